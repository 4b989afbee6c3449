//! The cost of any lost packet, of either end, in real time: round trips, not a timeout.

use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{SendOp, WcStatus::*};
use irnic_transports::time::US;
use irnic_transports::wire::parse;

use crate::kit::{Case, Duo};

/// Round trip of the network without queues, ns.
const ROUND_TRIP: u64 = 200 * US;

/// Transfers: an operation, its bytes, and the number of work requests.
const TRANSFERS: [(SendOp, u32, u64); 5] = [
    (SendOp::Write, 8 << 10, 2),
    (SendOp::Send, 1500, 4),
    (SendOp::Read, 8 << 10, 2),
    (SendOp::FetchAdd { add: 1 }, 8, 2),
    (SendOp::Write, 100, 1),
];

/// Result of a transfer.
#[derive(Debug)]
struct Transfer {
    /// Time until the last completion, in hundredths of a round trip.
    time: u64,
    /// Frames that left from each end.
    frames: [usize; 2],
    timeouts: u64,
    again: u64,
    probes: u64,
    /// Spurious retransmissions by timers.
    spurious: u64,
}

/// Makes a transfer between ends that have measured a round trip. `lost` decides for each frame: by its end, its
/// position among the end's frames, and the number of previous transmissions of its packet.
fn transfer(
    transports: [&str; 2],
    (op, len, count): (SendOp, u32, u64),
    mut lost: impl FnMut(usize, usize, usize) -> bool + 'static,
) -> Transfer {
    let mut d = Duo::with(&Case { transport: "irn", impairments: "delay 100us", seed: 1 }, |c| {
        c.transport = transports.map(|t| TransportConfig::parse(t, true).unwrap());
        c.timeout = 14;
    });
    for (id, op) in [(100, SendOp::Write), (101, SendOp::Read), (102, SendOp::Write), (103, SendOp::Read)] {
        d.post(id, op, 3000);
        d.run();
    }
    d.done(0);
    let counts = |d: &Duo| {
        [0, 1].map(|i| *d.net.nics[i].counters()).iter().fold([0; 4], |sums: [u64; 4], c| {
            let timeouts = c.local_ack_timeout_err + c.irn_read_timeouts;
            [
                sums[0] + timeouts,
                sums[1] + c.retransmitted_pkts,
                sums[2] + c.tlp_probes,
                sums[3] + c.irn_spurious_timeouts,
            ]
        })
    };
    let before = counts(&d);
    let frames = std::rc::Rc::new(std::cell::RefCell::new([0; 2]));
    let (mut seen, left) = (std::collections::HashMap::new(), frames.clone());
    d.net.tamper = Some(Box::new(move |from, frame| {
        let headers = parse(frame).unwrap().0;
        let times: &mut usize = seen.entry((from, headers.bth.opcode as u8, headers.bth.psn)).or_default();
        let place = &mut left.borrow_mut()[from];
        let is_lost = lost(from, *place, *times);
        (*place, *times) = (*place + 1, *times + 1);
        !is_lost
    }));
    for id in 0..count {
        d.recv(id, 2000);
        d.post(id, op, len);
    }
    let start = d.net.now;
    let mut done = vec![];
    while done.len() < count as usize {
        assert!(d.net.step(), "the network is silent with {done:?} done");
        done.extend(d.done(0));
    }
    assert_eq!(done, (0..count).map(|id| (id, Success)).collect::<Vec<_>>());
    let time = d.net.now.since(start) * 100 / ROUND_TRIP;
    d.run();
    let after = counts(&d);
    let [timeouts, again, probes, spurious] = std::array::from_fn(|n| after[n] - before[n]);
    let frames = *frames.borrow();
    Transfer { time, frames, timeouts, again, probes, spurious }
}

const TRANSPORTS: [[&str; 2]; 4] = [["irn", "irn"], ["auto", "auto"], ["roce", "roce"], ["auto", "roce"]];

#[test]
fn without_loss_nothing_is_sent_again() {
    for transports in TRANSPORTS {
        for what in TRANSFERS {
            let t = transfer(transports, what, |_, _, _| false);
            assert_eq!((t.timeouts, t.again, t.probes), (0, 0, 0), "{transports:?} {what:?} {t:?}");
            // A SEND may wait for credits.
            assert!(t.time <= 210, "{transports:?} {what:?} {t:?}");
        }
    }
}

/// Loses each packet in turn, of both ends: the first, the last, acknowledgements, requests, responses.
#[test]
fn a_lost_packet_costs_three_round_trips_at_most() {
    for transports in TRANSPORTS {
        for what in TRANSFERS {
            let calm = transfer(transports, what, |_, _, _| false);
            for end in [0, 1] {
                for n in 0..calm.frames[end] {
                    let t = transfer(transports, what, move |from, place, _| (from, place) == (end, n));
                    let which = format!("packet {n} of end {end}, {transports:?} {what:?}: {t:?}");
                    assert!(t.timeouts == 0 && t.time <= calm.time + 310, "{which}");
                    if transports == ["irn", "irn"] {
                        // Once for the loss, and once as a probe.
                        assert!(t.again <= 2 && t.spurious <= t.probes, "{which}");
                    }
                }
            }
        }
    }
}

/// Returns the time that a WRITE takes of which the first transmission is lost, in hundredths of a round trip of 5 us.
/// `knows`: it is known what the peer has answered.
fn lone_write(knows: bool) -> u64 {
    const ROUND_TRIP: u64 = 5 * US;
    let mut d = Duo::with(&Case { transport: "irn", impairments: "delay 2us", seed: 1 }, |c| {
        c.transport = [TransportConfig::parse("irn", true).unwrap(); 2];
        c.timeout = 14;
    });
    d.net.knows_reading = knows;
    for id in 0..20 {
        d.post(id, SendOp::Write, 100);
        d.run();
    }
    d.done(0);
    let mut once = true;
    d.net.tamper = Some(Box::new(move |_, _| !std::mem::take(&mut once)));
    let start = d.net.now;
    d.post(100, SendOp::Write, 100);
    while d.done(0).is_empty() {
        assert!(d.net.step(), "the network is silent");
    }
    d.net.now.since(start) * 100 / ROUND_TRIP
}

/// A peer of which nothing but packets is known may hold an acknowledgement back.
#[test]
fn a_probe_is_sent_sooner_if_it_is_known_that_no_answer_is_due() {
    let (known, unknown) = (lone_write(true), lone_write(false));
    assert!(known <= 450, "{known} hundredths of a round trip");
    assert!((1000..1300).contains(&unknown), "{unknown} hundredths of a round trip");
}

/// Each packet of such a path is probed before it can be acknowledged, so that none measures it (Karn), unless probes
/// wait longer each time.
#[test]
fn a_round_trip_longer_than_the_first_wait_is_measured_all_the_same() {
    for transport in ["irn", "roce"] {
        let mut d = Duo::with(&Case { transport, impairments: "delay 1100us", seed: 1 }, |c| {
            c.transport = [TransportConfig::parse(transport, true).unwrap(); 2];
            c.timeout = 14;
        });
        for id in 0..20 {
            d.post(id, SendOp::Write, 100);
            d.run();
        }
        let counters = d.net.nics[0].counters();
        assert!(counters.tlp_probes <= 2 && counters.local_ack_timeout_err == 0, "{transport}: {counters:?}");
    }
}

/// Of two lost packets the second may be the probe, or its answer: then timeouts, for a READ at both ends, find the
/// first soon after.
fn assert_soon(calm: &Transfer, t: &Transfer, which: String) {
    assert!(t.timeouts <= 2 * t.probes && t.time <= calm.time + 650, "{which}: {t:?}");
}

#[test]
fn a_repetition_that_is_lost_is_found_by_what_was_sent_later_or_by_a_probe() {
    for what in TRANSFERS {
        let calm = transfer(["irn"; 2], what, |_, _, _| false);
        for end in [0, 1] {
            for n in 0..calm.frames[end] {
                let mut once = true;
                let t = transfer(["irn"; 2], what, move |from, place, times| {
                    let again = from == end && times == 1 && std::mem::take(&mut once);
                    (from, place) == (end, n) || again
                });
                assert_soon(&calm, &t, format!("packet {n} of end {end}, {what:?}"));
            }
        }
    }
}

/// One packet is lost, and any one of the other end, such as the NACK.
#[test]
fn a_lost_nack_costs_round_trips_only() {
    for what in TRANSFERS {
        let calm = transfer(["irn"; 2], what, |_, _, _| false);
        for end in [0, 1] {
            for (n, k) in (0..calm.frames[end]).flat_map(|n| (0..calm.frames[1 - end] + 2).map(move |k| (n, k))) {
                let t = transfer(["irn"; 2], what, move |from, place, _| place == if from == end { n } else { k });
                assert_soon(&calm, &t, format!("packets {n} of end {end}, {k} of the other, {what:?}"));
            }
        }
    }
}
