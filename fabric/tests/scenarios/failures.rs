//! Links that fail, return, or get slower.

use irnic_fabric::sim::{Change, LinkChange, Outcome};
use irnic_fabric::switch::{SwitchConfig, Thresholds};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;

use crate::kit::*;

/// Two leaves (8 and 9) with four hosts each, two spines (10 and 11). Links 8 and 9 are those of leaf 8.
fn leaf_spine() -> Topology {
    Topology::leaf_spine(2, 2, 4, 40 * G, 40 * G, 1_000)
}

fn by_spine(outcome: &Outcome) -> [u64; 2] {
    [10, 11].map(|spine| port(outcome, 8, spine).packets)
}

/// Sixteen flows from the left to the right, 100 packets each.
fn crowd() -> Vec<Flow> {
    (0..16).map(|i| flow(i % 4, 4 + (i + 1) % 4, 100)).collect()
}

#[test]
fn flows_survive_a_link_that_fails_and_returns() {
    let change = |at, what| LinkChange { at, link: 9, what };
    for preset in ["irn", "irn-go-back-n", "roce,rto=500us"] {
        for switch in deep() {
            let go = |changes| complete(with! { changes, ..config(leaf_spine(), crowd(), switch.clone(), preset) });
            let calm = go(vec![]);
            assert!(by_spine(&calm).iter().all(|&n| n > 400), "both are used");
            assert_eq!((calm.lost.0, calm.nics.retransmitted_pkts), (0, 0));

            let failed = go(vec![change(20_000, Change::Down)]);
            assert!(failed.lost.0 > 0 && failed.nics.retransmitted_pkts > 0, "{preset}");
            let counted: u64 = failed.links.iter().map(|l| l.counters.lost).sum();
            assert_eq!(failed.lost.0, counted, "{preset}");
            // At most what fits onto the link until the failure; after it, nothing.
            let [first, second] = by_spine(&failed);
            assert!(second <= (20_000 - 1_250) / 250 + 1, "{preset}: {second}");
            assert!(first + second >= 1600);

            let back = go(vec![change(20_000, Change::Down), change(60_000, Change::Up)]);
            assert!(by_spine(&back)[1] > second, "{preset}: used again");
        }
    }
}

#[test]
fn a_packet_on_a_link_that_fails_is_lost_and_one_behind_it_is_not() {
    // Packet k is on the first link from 250·(k − 1) to 250·k + 1000. At 1100 the link fails: the first to fourth are
    // on it, the fifth was begun at 1000. It returns at 1200, while the fifth would still be being sent: it is lost,
    // too. The sixth comes through, is not the first, and all are sent again.
    let change = |at, what| LinkChange { at, link: 0, what };
    let changes = vec![change(1_100, Change::Down), change(1_200, Change::Up)];
    let c = config(star(&[40 * G; 2]), vec![flow(0, 1, 10)], deep()[0].clone(), "roce");
    let outcome = complete(with! { changes, ..c });
    assert_eq!(outcome.lost, (5, 5 * WIRE));
    assert_eq!(port(&outcome, 0, 2).lost, 5);
    // The sixth is there at 2500 + 1000 + 1250: 4750 - 1000. It was sent by 1500, is at the switch at 2500 and at host
    // 1 at 3750. The NAK takes 2 · (45.2 + 1000), rounded up: 5842. All ten have gone out by 2500, and go again from
    // 5842 on.
    assert_eq!(outcome.nics.retransmitted_pkts, 10);
    assert_eq!(fcts(&outcome), [5_842 + 10 * 250 + 2_250]);
}

#[test]
fn a_host_without_its_link_waits_for_it() {
    let change = |at, what| LinkChange { at, link: 1, what };
    for preset in ["irn", "roce,rto=500us"] {
        let changes = vec![change(5_000, Change::Down), change(3_000_000, Change::Up)];
        let c = config(star(&[40 * G; 2]), vec![flow(0, 1, 100)], deep()[0].clone(), preset);
        let outcome = complete(with! { changes, ..c });
        // Without a way to the host the switch drops what comes for it.
        assert!(outcome.lost.0 > 0 && outcome.dropped.0 > 0 && outcome.nics.local_ack_timeout_err > 0, "{preset}");
        assert!((3_000_000..5_000_000).contains(&fcts(&outcome)[0]), "{preset}: {:?}", fcts(&outcome));
    }
}

#[test]
fn a_link_that_returns_is_told_again_that_it_is_stopped() {
    // The switch has stopped host 0 since 2500 ns, and will for three milliseconds. Its link fails and returns
    // meanwhile: the host would send on, and there is headroom for no more than was under way.
    let change = |at, what| LinkChange { at, link: 0, what };
    let pfc = Some(Thresholds { xoff: 4 * WIRE, xon: 2 * WIRE });
    let outcome = |switch: SwitchConfig| {
        let mut c = config(star(&[40 * G, 40_000_000]), vec![flow(0, 1, 60)], switch, "roce,rto=50ms");
        c.changes = vec![change(100_000, Change::Down), change(120_000, Change::Up)];
        complete(c)
    };
    // Packets begun from 120,000 until XOFF has come, 1013 ns later: 5. With the 14 that wait, 19.
    let enough = outcome(input_queued(19 * WIRE, pfc));
    assert_eq!((enough.dropped.0, port(&enough, 2, 1).peak), (0, 19 * WIRE));
    assert_eq!(enough.lost.0, 0, "nothing was under way");
    // The XOFF that was renewed is counted.
    let calm = complete(config(star(&[40 * G, 40_000_000]), vec![flow(0, 1, 15)], input_queued(DEEP, pfc), "roce"));
    assert_eq!(port(&calm, 2, 0).pauses, 1);
    assert!(port(&enough, 2, 0).pauses > 1);
}

#[test]
fn a_degraded_link_is_slower_and_recovers() {
    // 40 packets; the switch's link to host 1 begins packet k at 1250·1 + 250·(k − 1). From 5000 on it has 10 Gbit/s:
    // packet 16, begun at 5000 — events of links come first in their nanosecond, being known first — takes 1000. At
    // 9000 packet 20 begins, with 40 Gbit/s again: 21 packets of 250.
    let change = |at, rate| LinkChange { at, link: 1, what: Change::Rate(rate) };
    let c = config(star(&[40 * G; 2]), vec![flow(0, 1, 40)], deep()[0].clone(), "irn");
    let outcome = complete(with! { changes: vec![change(4_900, 10 * G), change(8_900, 40 * G)], ..c });
    assert_eq!(fcts(&outcome), [5_000 + 4 * 1_000 + 21 * 250 + 1_000]);
}
