//! Which way packets go.

use irnic_fabric::sim::{Outcome, Routing};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;

use crate::kit::*;

/// Two leaves, 8 spines, 16 hosts at each leaf; leaves are 32 and 33, spines follow.
const SPINES: u32 = 8;

fn leaf_spine() -> Topology {
    Topology::leaf_spine(2, SPINES, 16, 100 * G, 100 * G, 500)
}

/// Packets of leaf 32 to each spine.
fn spread(outcome: &Outcome) -> Vec<u64> {
    (0..SPINES).map(|spine| port(outcome, 32, 34 + spine).packets).collect()
}

fn go(routing: Routing, flows: Vec<Flow>, transport: &str, seed: u64) -> Outcome {
    let c = config(leaf_spine(), flows, deep()[0].clone(), transport);
    complete(with! { routing, seed, ..c })
}

#[test]
fn flows_spread_evenly_over_equal_ways() {
    // 800 flows of one packet: 100 by each spine on average. Of 7 degrees of freedom, χ² is beyond 24.3 in one of 1000
    // draws.
    let flows: Vec<Flow> =
        (0..800).map(|i| Flow { start: u64::from(i) * 1000, ..flow(i % 16, 16 + i / 16 % 16, 1) }).collect();
    for seed in 1..=3 {
        let counts = spread(&go(Routing::Ecmp, flows.clone(), "roce", seed));
        assert_eq!(counts.iter().sum::<u64>(), 800);
        let chi2: f64 = counts.iter().map(|&n| (n as f64 - 100.0).powi(2) / 100.0).sum();
        assert!(chi2 < 24.3, "{counts:?}: χ² {chi2}");
        // And not more evenly than chance does: the hash decides, no counter.
        assert!(chi2 > 0.6, "{counts:?}: χ² {chi2}");
    }
}

#[test]
fn a_flow_keeps_its_way_and_its_order() {
    let outcome = go(Routing::Ecmp, vec![flow(0, 16, 100)], "roce", 1);
    let mut counts = spread(&outcome);
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 0, 0, 0, 0, 0, 100]);
    assert_eq!(outcome.nics.out_of_seq_request, 0);
}

#[test]
fn spraying_is_even_and_irn_copes_with_it() {
    // Sixteen hosts, 100 packets each, all at once: 200 by each spine, whatever they meet. What comes of it: another
    // order.
    let flows = || (0..16).map(|host| flow(host, 16 + (host + 3) % 16, 100)).collect();
    let outcome = go(Routing::Spray, flows(), "irn", 1);
    // Acknowledgements of the other direction go by the other leaf.
    assert_eq!(outcome.nics.retransmitted_pkts + 1600, spread(&outcome).iter().sum::<u64>());
    let counts = spread(&outcome);
    assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
    assert_eq!(outcome.dropped.0 + outcome.lost.0, 0);
    // One spine is farther away, so that every eighth packet is overtaken by the seven after it.
    let mut topology = leaf_spine();
    topology.links.iter_mut().filter(|l| l.b == 34).for_each(|l| l.delay = 2_000);
    let c = |transport| {
        let c = config(topology.clone(), vec![flow(0, 16, 100)], deep()[0].clone(), transport);
        complete(with! { routing: Routing::Spray, ..c })
    };
    // To the far spine and on from it: 3 µs more. IRN places what comes early; its last packets come no later than
    // that.
    let irn = c("irn");
    assert!(irn.nics.out_of_seq_request > 0);
    assert!(fcts(&irn)[0] <= ideals(&irn)[0] + 3_000 + 12 * 100, "{:?} {:?}", fcts(&irn), ideals(&irn));
    // RoCE goes back again and again.
    let roce = c("roce,rto=100us");
    assert!(fcts(&roce)[0] > 3 * fcts(&irn)[0], "{:?} {:?}", fcts(&roce), fcts(&irn));
}

#[test]
fn static_routes_go_by_the_destination() {
    // Sixteen destinations over eight spines: two each, ten packets to each.
    let flows = (0..16).map(|host| flow(host, 16 + host, 10)).collect();
    assert_eq!(spread(&go(Routing::Static, flows, "roce", 1)), [20; SPINES as usize]);
    // From anywhere, with any queue pair.
    let flows = (0..16).map(|host| flow(host, 20, 10)).collect();
    let mut counts = spread(&go(Routing::Static, flows, "roce", 1));
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 0, 0, 0, 0, 0, 160]);
}
