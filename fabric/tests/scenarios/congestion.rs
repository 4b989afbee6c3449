//! Congestion control in whole networks: pacing, marks and notifications, and what they do to a bottleneck.

use irnic_fabric::sim::{Ending, HeaderBytes, Outcome, SimConfig};
use irnic_fabric::switch::{Ecn, Thresholds};
use irnic_fabric::workload::Flow;
use irnic_transports::congestion::CongestionConfig;

use crate::kit::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A controller that holds this share of the line's rate, whatever it is told.
fn fixed(share: &str) -> String {
    format!("timely,t-low=0,t-high=3600s,add=1,hai=1,gain=1/1000000,initial={share}")
}

/// With congestion control, and the marks that it understands.
fn controlled(mut c: SimConfig, cc: &str, rate: u64, base_rtt: u64) -> SimConfig {
    let congestion: CongestionConfig = cc.parse().unwrap();
    let transport = &mut c.setups[0].transport;
    (transport.congestion, transport.line_rate, transport.base_rtt) = (congestion, rate, base_rtt);
    c.ect = congestion.uses_ecn();
    c
}

/// The marking that the algorithm's paper has, for a rate.
fn marking(cc: &str, rate: u64) -> Ecn {
    let bytes = |at_40g: u64| at_40g * (rate / G) / 40;
    match cc.split(',').next().unwrap() {
        "dcqcn" | "dcqcn-vendor" => Ecn::Red { kmin: bytes(5_000), kmax: bytes(200_000), pmax: 0.01 },
        "dctcp" => Ecn::Step { k: bytes(120_000) },
        _ => Ecn::Off,
    }
}

fn marked(outcome: &Outcome) -> u64 {
    outcome.links.iter().map(|l| l.counters.marked).sum()
}

#[test]
fn a_rate_is_kept_within_a_percent() {
    // 10 MB at 1 to 9 of 10 Gbit/s; payload counts.
    for (share, rate) in [("0.1", 1), ("0.25", 2), ("0.5", 5), ("0.9", 9)] {
        let rate = if share == "0.25" { 5 * G / 2 } else { rate * G };
        for transport in ["roce", "irn", "irn-go-back-n"] {
            let bytes = 10_000_000;
            let flow = Flow { bytes, ..flow(0, 1, 1) };
            let c = config(star(&[10 * G; 2]), vec![flow], deep()[0].clone(), transport);
            let c = with! { headers: HeaderBytes::Fixed(16), ..c };
            let outcome = complete(controlled(c, &fixed(share), 10 * G, 4_000));
            let expected = (bytes * 8) as f64 / rate as f64 * 1e9;
            let error = fcts(&outcome)[0] as f64 / expected - 1.0;
            assert!(error.abs() < 0.01, "{transport} at {rate} bit/s: {error}");
        }
    }
}

#[test]
fn many_paced_queue_pairs_of_a_host_keep_their_rates() {
    // 300 at 20 to 30 Mbit/s are 6 to 9 of 10 Gbit/s. 1 MB are 65 segments of 15 packets and one more: it leaves when
    // all before it are paid for but the half segment that a flow begins with, and waits at worst for one of each
    // other.
    for (share, rate) in [("0.002", 20_000_000.0), ("0.003", 30_000_000.0)] {
        let bytes = 1_000_000;
        let flows = (0..300).map(|i| Flow { bytes, ..flow(0, 1 + i % 3, 1) }).collect();
        let c = config(star(&[10 * G; 4]), flows, deep()[0].clone(), "irn");
        let c = with! { headers: HeaderBytes::Fixed(16), ..c };
        let outcome = complete(controlled(c, &fixed(share), 10 * G, 4_000));
        let expected = f64::from(65 * 15 * 1024 - 8_000) * 8e9 / rate;
        let slack = 300.0 * 15.0 * 832.0 + expected * 0.01;
        for fct in fcts(&outcome) {
            assert!((0.0..slack).contains(&(fct as f64 - expected + 1.0)), "{fct}, expected {expected}");
        }
    }
}

/// `n` flows, a microsecond apart, of 40 Gbit/s into a link of 40 Gbit/s, each with more than it can send until
/// `until`.
fn incast(n: u32, cc: &str, transport: &str, until: u64) -> Outcome {
    let mut switch = input_queued(DEEP, None);
    set_ecn(&mut switch, marking(cc, 40 * G));
    let flows = (0..n).map(|i| Flow { start: u64::from(i) * US, ..flow(i + 1, 0, 1_000_000) }).collect();
    let c = config(star(&vec![40 * G; n as usize + 1]), flows, switch, transport);
    run(with! { until, sample: Some(20 * US), ..controlled(c, cc, 40 * G, 4_000) })
}

/// Mean of the queue over the second half, bytes; and the share of the bottleneck that was used in it.
fn settled(outcome: &Outcome) -> (f64, f64) {
    let half = &outcome.samples[outcome.samples.len() / 2..];
    let queue = half.iter().map(|s| s.longest as f64).sum::<f64>() / half.len() as f64;
    let (first, last) = (half.first().unwrap(), half.last().unwrap());
    let wire = (last.delivered - first.delivered) as f64 * WIRE as f64 / MTU as f64;
    (queue, wire * 8.0 / (last.at - first.at) as f64 / 40.0)
}

const PATIENT: [&str; 2] = ["irn,rto-low=100ms,rto-high=200ms", "irn-go-back-n,rto-low=100ms,rto-high=200ms"];

#[test]
fn flows_that_heed_marks_share_a_bottleneck_and_keep_its_queue_short() {
    for transport in PATIENT {
        for n in [2, 8, 64] {
            let (without, _) = settled(&incast(n, "none", transport, 2 * MS));
            for cc in ["dctcp", "dcqcn"] {
                // The third quarter and the fourth.
                let (early, late) = (incast(n, cc, transport, 6 * MS), incast(n, cc, transport, 12 * MS));
                let share = |i| (port(&late, i, n + 1).bytes - port(&early, i, n + 1).bytes) as f64;
                let sum: f64 = (1..=n).map(share).sum();
                let jain = sum * sum / (f64::from(n) * (1..=n).map(|i| share(i) * share(i)).sum::<f64>());
                let (queue, utilisation) = settled(&late);
                let what =
                    format!("{n} of {cc} on {transport}: Jain {jain}, {utilisation}, {queue} of {without} bytes");
                assert!(jain > 0.9 && utilisation > 0.85 && queue < 0.7 * without, "{what}");
                assert!(marked(&late) > 0 && late.nics.np_ecn_marked_roce_packets > 0, "{what}");
                assert_eq!(late.nics.local_ack_timeout_err, 0, "{what}");
            }
        }
    }
}

#[test]
fn flows_that_heed_round_trips_keep_the_queue_short() {
    // From line rate they fall far below their share and rise by 10 Mbit/s at a time: with two flows nearly all of the
    // link is used by then, with eight less than half of it.
    for transport in PATIENT {
        for (n, least) in [(2, 0.9), (8, 0.35)] {
            let (without, _) = settled(&incast(n, "none", transport, 2 * MS));
            let (queue, utilisation) = settled(&incast(n, "timely", transport, 10 * MS));
            assert!(queue < 0.2 * without, "{n} on {transport}: {queue} of {without} bytes");
            assert!(utilisation > least, "{n} on {transport}: {utilisation}");
        }
    }
}

/// Runs `n` hosts that send 1 MB each to host 0 under congestion control `cc`, over links of 40 Gbit/s and 6 µs: the
/// round trip is 24 µs and what packets take on the links, 25 µs.
fn wide(n: u32, cc: &str, transport: &str, until: u64) -> Outcome {
    let flows = (0..n).map(|i| Flow { start: u64::from(i) * US, ..flow(i + 1, 0, 1_000_000) }).collect();
    let links: Vec<_> = (0..=n).map(|host| (host, n + 1, 40 * G, 6_000)).collect();
    let c = config(network(n + 1, 1, &links), flows, input_queued(DEEP, None), transport);
    run(with! { until, sample: Some(20 * US), ..controlled(c, cc, 40 * G, 25_000) })
}

#[test]
fn flows_that_heed_telemetry_keep_the_queue_empty_and_aim_at_95_percent() {
    // W_AI as the paper's rule has it for 64 flows, (1 − η)/N of the line's rate: all within a tenth of the fair share.
    // With the smaller steps of its ns-3 flows move so little that eight of them may stay further apart for long.
    for (transport, cc, fair) in [
        ("irn,cap=none,rto-low=100ms,rto-high=200ms", "hpcc,ai=line/1280", 0.1),
        ("irn-go-back-n,cap=none,rto-low=100ms,rto-high=200ms", "hpcc,ai=line/1280", 0.1),
        ("roce", "hpcc,ai=line/1280", 0.1),
        ("irn,cap=none,rto-low=100ms,rto-high=200ms", "hpcc", 0.4),
    ] {
        for n in [2, 8, 64] {
            let (early, late) = (wide(n, cc, transport, 10 * MS), wide(n, cc, transport, 20 * MS));
            let sent = |from, to| port(&late, from, to).bytes - port(&early, from, to).bytes;
            let shares: Vec<u64> = (1..=n).map(|i| sent(i, n + 1)).collect();
            let mean = shares.iter().sum::<u64>() as f64 / f64::from(n);
            let unfair = shares.iter().map(|&s| (s as f64 / mean - 1.0).abs()).fold(0.0, f64::max);
            let utilisation = sent(n + 1, 0) as f64 * 8.0 / (40 * G * 10 / 1_000) as f64;
            let (queue, _) = settled(&late);
            let what = format!("{n} of {cc} on {transport}: {unfair} from the mean, {utilisation}, {queue} bytes");
            assert!(unfair < fair, "{what}");
            assert!((0.94..0.98).contains(&utilisation), "{what}");
            // A twelfth of the bandwidth-delay product.
            assert!(queue < 10_000.0, "{what}");
            assert_eq!((late.dropped.0, late.nics.local_ack_timeout_err), (0, 0), "{what}");
        }
    }
}

#[test]
fn a_receiver_notifies_at_most_once_in_an_interval() {
    // 1000 packets by 40 into 10 Gbit/s, from a sender that does not slow down. Packet i arrives at 1250 + 1000 i +
    // 1000, and from the third on they have met others that wait. The first notification goes at packet 3, the next at
    // 53, and so on.
    for (interval, expected) in [("50us", 997 / 50 + 1), ("200us", 997 / 200 + 1), ("1500ns", 998 / 2), ("0", 998)] {
        for transport in ["roce", "irn,cap=4096", "irn-go-back-n,cap=4096"] {
            let mut switch = input_queued(DEEP, None);
            set_ecn(&mut switch, Ecn::Step { k: 0 });
            let c = config(star(&[40 * G, 10 * G]), vec![flow(0, 1, 1000)], switch, transport);
            let cc = format!("dcqcn,min-rate=line/1,cnp-interval={interval}");
            let mut c = controlled(c, &cc, 40 * G, 4_000);
            if transport != "roce" {
                c.setups[0].transport.timer = irnic_transports::config::Timer::Fixed(None);
            }
            let outcome = complete(c);
            // Acknowledgements are not marked: nothing waits on their way.
            assert_eq!((marked(&outcome), outcome.nics.np_ecn_marked_roce_packets), (998, 998));
            let counted = (outcome.nics.np_cnp_sent, outcome.nics.rp_cnp_handled, outcome.nics.rp_cnp_ignored);
            assert_eq!(counted, (expected, expected, 0), "{transport}, {interval}");
        }
    }
}

#[test]
fn whatever_is_lost_every_flow_ends() {
    for &(cc, _) in CongestionConfig::PRESETS {
        for transport in ["roce,rto=320us", "irn", "irn-go-back-n"] {
            for seed in 1..=3 {
                let mut topology = star(&[10 * G; 4]);
                topology.links.iter_mut().for_each(|l| l.loss = 0.03);
                let sizes = [0, 1, MTU, 3 * 16_000, 200_000];
                let flows = (0..30)
                    .map(|i| Flow {
                        bytes: sizes[i as usize % 5],
                        ..flow(1 + i % 3, if i % 2 == 0 { 0 } else { 1 + (i + 1) % 3 }, 1)
                    })
                    .collect();
                let mut switch = input_queued(60 * WIRE, None);
                set_ecn(&mut switch, Ecn::Step { k: 5 * WIRE });
                let c = with! { seed, until: 20_000 * MS, ..config(topology, flows, switch, transport) };
                let outcome = run(controlled(c, cc, 10 * G, 4_000));
                assert_eq!(outcome.ending, Ending::Complete, "{cc} on {transport}, seed {seed}");
                assert!(outcome.lost.0 > 0);
            }
        }
    }
}

#[test]
fn pauses_and_congestion_control_go_together() {
    // RoCE here has no timer: an acknowledgement that nobody asked for would be waited for in vain.
    for &(cc, _) in CongestionConfig::PRESETS {
        for transport in ["roce", "irn", "irn-go-back-n"] {
            let mut switch = input_queued(DEEP, Some(Thresholds { xoff: 20 * WIRE, xon: 15 * WIRE }));
            set_ecn(&mut switch, Ecn::Step { k: 10 * WIRE });
            let flows = (0..24).map(|i| flow(1 + i % 8, 0, 40 + u64::from(i))).collect();
            let c = config(star(&[40 * G; 9]), flows, switch, transport);
            let outcome = complete(controlled(c, cc, 40 * G, 4_000));
            assert!(outcome.dropped.0 == 0 && outcome.pfc_frames > 0, "{cc} on {transport}");
        }
    }
}

#[test]
fn a_seed_decides_all_and_bytes_change_nothing() {
    for &(cc, _) in CongestionConfig::PRESETS {
        let mut topology = star(&[40 * G; 5]);
        topology.links.iter_mut().for_each(|l| l.loss = 0.002);
        let mut switch = input_queued(200 * WIRE, None);
        set_ecn(&mut switch, Ecn::Red { kmin: 2 * WIRE, kmax: 40 * WIRE, pmax: 0.5 });
        let flows = (0..12).map(|i| flow(1 + i % 4, 0, 100)).collect();
        let c = controlled(config(topology, flows, switch, "irn"), cc, 40 * G, 4_000);
        let c = with! { sample: Some(10 * US), ..c };
        let once = format!("{:?}", complete(c.clone()));
        assert_eq!(once, format!("{:?}", complete(c.clone())), "{cc}");
        assert_eq!(once, format!("{:?}", complete(with! { carry_bytes: true, ..c })), "{cc}");
    }
}

#[test]
fn packets_far_apart_are_acknowledged_before_their_timer_runs_out() {
    // Every packet that waits is marked, and no rate is ever raised: it falls to 40 Mbit/s, 205 µs for a packet.
    // Sixteen, after which RoCE asks for an acknowledgement anyhow, take longer than the timer.
    let mut switch = input_queued(DEEP, None);
    set_ecn(&mut switch, Ecn::Step { k: 0 });
    let c = config(star(&[10 * G, G]), vec![flow(0, 1, 400)], switch, "roce,rto=2ms");
    let cc = "dcqcn,min-rate=40M,rate-timer=100s,byte-counter=off,cnp-interval=10us";
    let outcome = complete(controlled(c, cc, 10 * G, 4_000));
    assert!(fcts(&outcome)[0] > 50 * MS, "{:?}", fcts(&outcome));
    assert_eq!((outcome.nics.local_ack_timeout_err, outcome.nics.retransmitted_pkts), (0, 0));
}

#[test]
fn acknowledgements_with_a_priority_of_their_own_wait_for_no_data() {
    // A packet from 0 to 1 at 20 µs, while 400 packets from 2 and 3 wait for the link to 0 or are on it: 250 ns each.
    // Outputs have one queue for each priority here; with queues for each input the next acknowledgement would soon
    // have its turn.
    let acknowledged = |transport: &str, burst: bool| {
        let mut flows = if burst { vec![flow(2, 0, 200), flow(3, 0, 200)] } else { Vec::new() };
        flows.push(Flow { start: 20 * US, ..flow(0, 1, 1) });
        let c = config(star(&[40 * G; 4]), flows, deep()[1].clone(), transport);
        let outcome = complete(c);
        outcome.records.last().unwrap().acknowledged.unwrap() - 20 * US
    };
    for transport in ["roce", "irn,cap=none,rto-low=10ms,rto-high=10ms"] {
        let with = |burst| acknowledged(&format!("{transport},ack-priority=7"), burst);
        let (alone, shared) = (with(false), with(true));
        assert_eq!(alone, acknowledged(transport, false));
        assert!((0..=250).contains(&(shared - alone)), "{transport}: {shared} after {alone}");
        let behind = acknowledged(transport, true);
        assert!(behind > alone + 10 * US, "{transport}: {behind} after {alone}");
    }
}

#[test]
fn what_the_rate_holds_back_is_no_silence() {
    // At 10 Mbit/s what is lost waits for up to 13 ms, forty times the timer.
    for transport in ["roce,rto=320us", "irn", "irn-go-back-n"] {
        let mut topology = star(&[10 * G; 2]);
        topology.links.iter_mut().for_each(|l| l.loss = 0.01);
        let c = config(topology, vec![flow(0, 1, 300)], deep()[0].clone(), transport);
        let outcome = complete(controlled(c, &fixed("0.001"), 10 * G, 4_000));
        assert!(outcome.lost.0 > 0 && outcome.nics.retransmitted_pkts > 0);
        assert!(outcome.nics.local_ack_timeout_err <= outcome.lost.0, "{transport}: {:?}", outcome.nics);
    }
}
