//! Credit-based flow control, as InfiniBand has it: neighbours send what there is room for, and nothing else.

use irnic_fabric::network::CreditConfig;
use irnic_fabric::sim::{Change, LinkChange, Outcome, Parallel};
use irnic_fabric::switch::{InputQueuedConfig, SwitchConfig};
use irnic_fabric::topology::Topology;

use crate::deadlock;
use crate::kit::*;

/// Each priority of an input has room for so many packets; the buffer is not larger than what was granted.
fn credits(packets: u64, priorities: u64) -> SwitchConfig {
    let credits = Some(CreditConfig { each: (packets * WIRE) as u32, longest: WIRE as u32 });
    SwitchConfig::InputQueued(with! { credits, ..InputQueuedConfig::new(packets * priorities * WIRE) })
}

fn unharmed(outcome: &Outcome) {
    assert_eq!((outcome.dropped.0, outcome.nics.retransmitted_pkts, outcome.pfc_frames), (0, 0, 0));
}

#[test]
fn a_fast_sender_waits_for_a_slow_link_and_nothing_is_lost() {
    // 40 Gbit/s to 10: the slow link is busy from 250 + 1000 on, a packet each µs, and 1000 ns for the last. Credits
    // for the acknowledgements take it for 7 ns each.
    let outcome = complete(config(star(&[40 * G, 10 * G]), vec![flow(0, 1, 400)], credits(10, 1), "roce"));
    unharmed(&outcome);
    let busy = 1_250 + 400 * 1_000 + 1_000;
    let credits = outcome.nics.sent_acks * 7;
    assert!((busy..=busy + credits).contains(&fcts(&outcome)[0]), "{:?}", fcts(&outcome));
    // What is granted, less what is on its way.
    assert!((7 * WIRE..=10 * WIRE).contains(&port(&outcome, 2, 1).peak));
    assert!(port(&outcome, 0, 2).paused > 200_000, "the host waits most of the time");
}

#[test]
fn credit_for_two_packets_is_two_packets_each_time_round() {
    // A packet that is sent at 0 is at the switch at 1250 and goes on at once; a credit takes 2 ns and 1000: the third
    // is sent at 2252, and the fourth, whose credit is there at 2502, behind it.
    let outcome = complete(config(star(&[40 * G; 2]), vec![flow(0, 1, 20)], credits(2, 1), "roce"));
    unharmed(&outcome);
    assert_eq!(fcts(&outcome), [9 * 2_252 + 2 * 250 + 1_000 + 250 + 1_000]);
}

#[test]
fn credits_of_priorities_are_apart() {
    // Priority 0 goes to the slow host and uses up its credit; priority 1 goes by as if it were alone.
    let slow = || flow(0, 2, 100);
    let fast = |src| with_priority(1, flow(src, 1, 200));
    let alone = complete(config(star(&[40 * G, 40 * G, G]), vec![fast(0)], credits(10, 2), "roce"));
    let both = complete(config(star(&[40 * G, 40 * G, G]), vec![slow(), fast(0)], credits(10, 2), "roce"));
    unharmed(&both);
    // What the slow one sends before its credit is used up and each 10 µs after it.
    let (fct, most) = (fcts(&both)[1], fcts(&alone)[0] + 250 * (10 + 100));
    assert!((fcts(&alone)[0]..most).contains(&fct), "{fct}");
    // With one priority it waits behind the slow one.
    let one = complete(config(star(&[40 * G, 40 * G, G]), vec![slow(), flow(0, 1, 200)], credits(10, 1), "roce"));
    unharmed(&one);
    assert!(fcts(&one)[1] > 10 * fct, "{:?}", fcts(&one));
}

#[test]
fn packets_and_credits_that_are_lost_cost_no_credit() {
    // Of 4,000 packets 200 are lost: sixty times the credit.
    let mut topology = star(&[40 * G; 2]);
    topology.links.iter_mut().for_each(|link| link.loss = 0.05);
    let c = config(topology, vec![flow(0, 1, 4_000)], credits(3, 1), "irn");
    let outcome = complete(with! { until: 200_000_000, ..c });
    assert!(outcome.lost.0 > 200 && outcome.dropped.0 == 0);
    // Links that fail with packets and credits on them, again and again.
    let times = (0..40).flat_map(|n| [(n * 5_000 + 1_100, Change::Down), (n * 5_000 + 3_100, Change::Up)]);
    for link in [0, 1] {
        let changes = times.clone().map(|(at, what)| LinkChange { at, link, what }).collect();
        let c = config(star(&[40 * G; 2]), vec![flow(0, 1, 1_000)], credits(3, 1), "roce,rto=4us");
        let outcome = complete(with! { changes, until: 20_000_000, ..c });
        let missing = outcome.lost.0 + outcome.dropped.0;
        assert!(missing > 40, "{missing}");
    }
}

#[test]
fn the_ring_locks_up_as_with_pfc_and_is_found_out() {
    for n in [3, 5] {
        let detours = if n == 3 { deadlock::clockwise() } else { Vec::new() };
        let c = config(deadlock::ring(n), deadlock::flows(n, 400), credits(20, 1), "roce");
        deadlock::check(&run(with! { detours, ..c }), n);
    }
}

#[test]
fn threads_grant_each_other_credit() {
    let flows = || (0..16).map(|host| flow(host, 15 - host, 300)).collect();
    let c = || config(Topology::fat_tree(4, 40 * G, 700), flows(), credits(6, 1), "roce");
    let one = complete(c());
    unharmed(&one);
    let parallel = Parallel::new(c(), 3).unwrap().finish().unwrap();
    assert_eq!(format!("{parallel:?}"), format!("{one:?}"));
}
