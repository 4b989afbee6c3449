//! The same again, and not the same: seeds, queue pairs, sizes.

use irnic_fabric::sim::{Outcome, QpPolicy, Routing, SimConfig};
use irnic_fabric::switch::Ecn;
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;
use irnic_transports::wire::Mtu;

use crate::kit::*;

/// Something of everything: losses, marks, pauses or drops, many flows on a small fat-tree.
fn mixed(transport: &str, pfc: bool, seed: u64) -> SimConfig {
    let mut topology = Topology::fat_tree(4, 40 * G, 500);
    topology.links.iter_mut().for_each(|l| l.loss = 1e-3);
    let flows = (0..120u32)
        .map(|i| Flow {
            start: u64::from(i / 4) * 1_500,
            bytes: u64::from(i * 7919 % 60_000) + 1,
            priority: (i % 3) as u8,
            ..flow(i % 16, [0, 3, 7][i as usize % 3], 1)
        })
        .filter(|f| f.src != f.dst)
        .collect();
    let pfc = pfc.then_some(shared_pfc(0.5, 0, 2 * WIRE));
    let mut switch = shared(200 * WIRE, 1.0, pfc);
    set_ecn(&mut switch, Ecn::Red { kmin: 2 * WIRE, kmax: 20 * WIRE, pmax: 0.5 });
    with! { ect: true, sample: Some(5_000), seed, ..config(topology, flows, switch, transport) }
}

fn text(outcome: &Outcome) -> String {
    format!("{outcome:?}")
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for transport in ["irn", "roce,rto=200us"] {
        for pfc in [false, true] {
            for routing in [Routing::Ecmp, Routing::Spray] {
                let go = |seed| complete(with! { routing, ..mixed(transport, pfc, seed) });
                let first = go(7);
                assert!(first.lost.0 > 0 && first.samples.len() > 10);
                assert!(first.links.iter().any(|l| l.counters.marked > 0));
                assert_eq!(pfc, first.pfc_frames > 0, "{transport}");
                assert_eq!(text(&first), text(&go(7)), "{transport}, PFC {pfc}");
                assert_ne!(text(&first), text(&go(8)), "{transport}, PFC {pfc}");
            }
        }
    }
}

#[test]
fn steps_of_any_length_come_to_the_same() {
    let whole = complete(mixed("irn", true, 3));
    let mut simulation = irnic_fabric::sim::Simulation::new(mixed("irn", true, 3)).unwrap();
    let mut step = 1;
    while !simulation.run(step).unwrap() {
        step = step % 1000 + 17;
    }
    assert_eq!(text(&whole), text(&simulation.outcome().unwrap()));
}

#[test]
fn queue_pairs_of_their_own_and_reused_ones_both_serve() {
    for transport in ["irn", "roce,rto=200us"] {
        let go = |qps| complete(with! { qps, ..mixed(transport, false, 5) });
        let (own, reused) = (go(QpPolicy::PerFlow), go(QpPolicy::Reused));
        assert_eq!(own.records.len(), reused.records.len());
        assert!(own.records.iter().chain(&reused.records).all(|r| r.delivered <= r.acknowledged));
    }
}

#[test]
fn flows_of_one_queue_pair_follow_each_other() {
    // A hundred flows of one packet each, all at 0, more than the send queue holds: packet k is there at 250·k + 2250,
    // if the queue never runs dry. 64 are posted; acknowledgements come in time for the others with RoCE, since it asks
    // at each message's end.
    for transport in ["irn", "roce"] {
        let flows = vec![flow(0, 1, 1); 100];
        let c = config(star(&[40 * G; 2]), flows, deep()[0].clone(), transport);
        let outcome = complete(with! { qps: QpPolicy::Reused, ..c });
        let expected: Vec<u64> = (1..=100).map(|k| 250 * k + 2_250).collect();
        assert_eq!(fcts(&outcome), expected, "{transport}");
    }
}

#[test]
fn long_flows_are_several_messages() {
    // 1 GiB and a byte: two messages, 2¹⁸ packets of 4096 and one of 1 byte. Reused: behind a short one, and two long
    // ones at a time.
    for qps in [QpPolicy::PerFlow, QpPolicy::Reused] {
        let long = Flow { bytes: (1 << 30) + 1, ..flow(0, 1, 1) };
        let topology = network(2, 0, &[(0, 1, 100 * G, 1_000)]);
        let mut c = config(topology, vec![flow(0, 1, 1), long], deep()[0].clone(), "irn");
        (c.setups[0].mtu, c.qps) = (Mtu::B4096, qps);
        let outcome = complete(c);
        // (4096 + 226) · 8 / 100 = 345.76 ns each, 18.16 for the last; the short flow before it takes 100, and with its
        // own queue pair so does it after the first of the long one.
        let expected = (100_000 + (1u64 << 18) * 345_760 + 18_160u64).div_ceil(1000) + 1_000;
        assert_eq!(fcts(&outcome)[1], expected, "{qps:?}");
        assert_eq!(outcome.payload, (1 << 30) + 1 + MTU);
    }
}

#[test]
fn a_flow_without_bytes_is_a_packet() {
    // 226 bytes take 45.2 ns, rounded up, on each of two links.
    for carry_bytes in [false, true] {
        for transport in ["irn", "roce"] {
            let c = config(star(&[40 * G; 2]), vec![Flow { bytes: 0, ..flow(0, 1, 1) }], deep()[0].clone(), transport);
            let outcome = complete(with! { carry_bytes, ..c });
            assert_eq!((fcts(&outcome), ideals(&outcome)), (vec![2_092], vec![2_092]));
        }
    }
}
