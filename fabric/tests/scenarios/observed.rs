//! What the ends of connections see of a run, and senders that give up.

use irnic_fabric::sim::{Ending, Observe, Observed, Quit, SimConfig, Simulation};
use irnic_fabric::switch::{SwitchConfig, Thresholds, TrimmingConfig};
use irnic_fabric::workload::Flow;

use crate::kit::*;

/// All of it, in segments of four packets.
const ALL: Observe = Observe { from: 0, segment: 4, interval: 10_000, to: None, latencies: false, rounds: false };

fn observed(config: SimConfig, what: Observe) -> Observed {
    run(with! { observe: Some(what), ..config }).observed.expect("it was wanted")
}

#[test]
fn a_round_trip_is_that_of_a_segments_last_packet() {
    // At 10 Gbit/s a packet of 1250 bytes takes 1 µs, its payload 819 ns, and an acknowledgement of 226 bytes 181.
    // Packet 3 leaves at 3 µs and is there at 7, with two links of 1 µs; its acknowledgement takes 2 µs and twice 181
    // ns.
    let packets = |n, transport| config(star(&[10 * G; 2]), vec![flow(0, 1, n)], deep()[0].clone(), transport);
    let alone = 4_000 + 2_000 + 2 * 181 - 819;
    // IRN acknowledges each packet: the last of each segment counts. The rest is no segment.
    assert_eq!(observed(packets(10, "irn"), ALL).round_trips, [alone; 2]);
    // RoCE is asked at the end of the message only, which ends both: the later one counts.
    assert_eq!(observed(packets(8, "roce"), ALL).round_trips, [alone]);
    // Two senders to one: the queue grows by a packet each time that both have sent one. Which of the two is served
    // first is the switch's choice, so packet 3 of one waits for three others, and that of the other for four.
    let two = config(star(&[10 * G; 3]), vec![flow(0, 2, 4), flow(1, 2, 4)], deep()[1].clone(), "irn");
    let mut waited = observed(two, ALL).round_trips;
    waited.sort_unstable();
    assert_eq!(waited, [alone + 3_000, alone + 4_000]);
}

#[test]
fn what_is_sent_again_has_no_round_trip() {
    // A buffer of three packets loses some of two senders'.
    let lossy = config(star(&[10 * G; 3]), vec![flow(0, 2, 40), flow(1, 2, 40)], input_queued(3 * WIRE, None), "irn");
    let outcome = complete(with! { observe: Some(ALL), ..lossy });
    let observed = outcome.observed.expect("it was wanted");
    assert!(outcome.dropped.0 > 0 && observed.round_trips.len() < 20, "{observed:?}");
    // The queue adds no more than the other input's buffer: whoever waited for a repetition would have longer ones.
    assert!(observed.round_trips.iter().all(|rtt| *rtt < 15_000), "{observed:?}");
}

#[test]
fn payload_counts_by_flow_time_and_interval() {
    // Packet n of the first flow is there at 4 + n µs, of 20; the second begins at 100 µs.
    let late = Flow { start: 100_000, ..flow(2, 1, 5) };
    let both = || config(star(&[10 * G; 3]), vec![flow(0, 1, 20), late], deep()[0].clone(), "irn");
    let all = observed(both(), ALL);
    assert_eq!(all.bytes, [20 * MTU, 5 * MTU]);
    // Those at 4 to 9, 10 to 19 and 20 to 23 µs.
    assert_eq!(all.intervals[0], [6 * MTU, 10 * MTU, 4 * MTU]);
    assert_eq!((all.intervals[1].len(), all.intervals[1][10]), (11, 5 * MTU));
    // From 20 µs on; intervals are of the whole run.
    let some = observed(both(), Observe { from: 20_000, ..ALL });
    assert_eq!((&some.bytes[..], some.time.0), (&[4 * MTU, 5 * MTU][..], 20_000));
    assert_eq!(some.intervals, all.intervals);
    // Of round trips those that end from then on: of packets 15 and 19, and 3 of the other.
    assert_eq!((all.round_trips.len(), some.round_trips.len()), (6, 3));
    assert!(observed(both(), Observe { interval: 0, ..ALL }).intervals.iter().all(Vec::is_empty));
}

#[test]
fn flows_with_numbers_of_queue_pairs_that_are_gone_are_observed_as_themselves() {
    // Numbers come again after 256 others: each flow is over before the next begins.
    let flows = (0..400).map(|n| Flow { start: n * 20_000, ..flow(0, 1, 4) }).collect();
    let all = observed(config(star(&[10 * G; 2]), flows, deep()[0].clone(), "irn"), ALL);
    assert_eq!(all.bytes, [4 * MTU; 400]);
    assert_eq!(all.round_trips, [all.round_trips[0]; 400]);
}

#[test]
fn pfc_frames_count_from_then_on() {
    let pfc = Some(Thresholds { xoff: 5 * WIRE, xon: 3 * WIRE });
    let many = || config(star(&[10 * G; 3]), vec![flow(0, 2, 100), flow(1, 2, 100)], input_queued(DEEP, pfc), "roce");
    let all = run(with! { observe: Some(ALL), ..many() });
    assert_eq!(all.observed.map(|o| o.pfc_frames), Some(all.pfc_frames));
    let some = observed(many(), Observe { from: 100_000, ..ALL });
    assert!(some.pfc_frames > 0 && some.pfc_frames < all.pfc_frames, "{some:?}");
}

#[test]
fn a_latency_is_from_the_first_time_that_a_packet_is_sent() {
    let latencies = Observe { latencies: true, ..ALL };
    // As above: 4 µs there, 2 µs and twice 181 ns back; a pull of as many bytes may be before the answer.
    let alone = || config(star(&[10 * G; 2]), vec![flow(0, 1, 10)], deep()[0].clone(), "ndp");
    let all = observed(alone(), latencies).latencies;
    assert_eq!((all.len(), all[0]), (10, 6_362));
    assert!(all.iter().all(|ns| (6_362..=6_362 + 2 * 181).contains(ns)), "{all:?}");
    assert_eq!(observed(alone(), Observe { from: 4_500, ..latencies }).latencies.len(), 5);
    assert!(observed(alone(), ALL).latencies.is_empty());
    // Of eight senders' packets most lose their payload, and are answered when they have come again.
    let trimming = SwitchConfig::Trimming(TrimmingConfig::new(4 * WIRE));
    let flows = (0..8).map(|src| flow(src, 8, 20)).collect();
    let outcome = complete(with! { observe: Some(latencies), ..config(star(&[10 * G; 9]), flows, trimming, "ndp") });
    let all = outcome.observed.expect("it was wanted").latencies;
    assert_eq!((all.len(), outcome.trimmed.0 > 80), (160, true));
    // The last of 160 µs of packets was sent in the first 20.
    assert!(*all.iter().max().expect("some") > 100_000 && *all.iter().min().expect("some") >= 6_362, "{all:?}");
}

#[test]
fn observing_changes_nothing() {
    let plain = || config(star(&[10 * G; 3]), vec![flow(0, 2, 99), flow(1, 2, 99)], deep()[0].clone(), "irn");
    let (without, with) = (run(plain()), run(with! { observe: Some(ALL), ..plain() }));
    assert_eq!((without.ended, without.records, without.events), (with.ended, with.records, with.events));
}

#[test]
fn a_sender_that_gives_up_leaves_the_link_to_the_other() {
    // Two that share 10 Gbit/s; the second gives up after 100 µs.
    let flows = vec![flow(0, 2, 1_000), flow(1, 2, 1_000)];
    let two = config(star(&[10 * G; 3]), flows, deep()[0].clone(), "irn");
    let until = 800_000;
    let outcome = run(with! { quits: vec![Quit { at: 100_000, flow: 1 }], observe: Some(ALL), until, ..two });
    assert_eq!(outcome.ending, Ending::TimeUp);
    // What the second had in flight still comes; then the first has the link alone.
    let seen = outcome.observed.expect("it was wanted");
    let packets = |flow: usize, from: usize, to: usize| {
        let of = |n| seen.intervals[flow].get(n).copied().unwrap_or(0);
        (from..to).map(of).sum::<u64>() / MTU
    };
    assert!((40..60).contains(&packets(1, 0, 10)), "{:?}", seen.intervals[1]);
    assert_eq!((packets(1, 30, 80), packets(0, 30, 70)), (0, 400));
    assert_eq!((outcome.records[1].delivered, outcome.records[1].acknowledged), (None, None));
}

#[test]
fn giving_up_what_is_complete_is_nothing() {
    let one = config(star(&[10 * G; 2]), vec![flow(0, 1, 10), flow(0, 1, 100)], deep()[0].clone(), "roce");
    let outcome = complete(with! { quits: vec![Quit { at: 50_000, flow: 0 }], ..one });
    assert!(outcome.records[0].acknowledged < Some(50_000));
}

#[test]
fn what_cannot_be_given_up_is_refused() {
    let start = 5_000;
    let one = |quits| {
        let late = vec![Flow { start, ..flow(0, 1, 10) }];
        with! { quits, ..config(star(&[10 * G; 2]), late, deep()[0].clone(), "roce") }
    };
    let reused = with! { qps: irnic_fabric::sim::QpPolicy::Reused, ..one(vec![Quit { at: 9_000, flow: 0 }]) };
    for (config, said) in [
        (one(vec![Quit { at: 9_000, flow: 1 }]), "flow 1 is to be given up, but has no place among the flows"),
        (one(vec![Quit { at: start, flow: 0 }]), "flow 0 is to be given up, but has not begun by then"),
        (
            one(vec![Quit { at: 9_000, flow: 0 }, Quit { at: 8_000, flow: 0 }]),
            "flow 0 is to be given up, but has an earlier end than the one before it",
        ),
        (reused, "flow 0 is to be given up, but has a queue pair with others"),
    ] {
        assert_eq!(Simulation::new(config).unwrap_err().to_string(), said);
    }
}
