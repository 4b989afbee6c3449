//! Cross-check: packets that go through the wire codec with their payload, and packets that are numbers, come to the
//! same.

use irnic_fabric::sim::{HeaderBytes, Outcome, Routing, SimConfig};
use irnic_fabric::switch::{Ecn, Thresholds};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;

use crate::kit::*;

fn base(transport: &str) -> SimConfig {
    let topology = Topology::leaf_spine(2, 2, 3, 40 * G, 40 * G, 500);
    let flows = (0..18u32)
        .map(|i| Flow {
            start: u64::from(i / 6) * 3_000,
            bytes: u64::from(i * 9973 % 40_000) + 1,
            ..flow(i % 6, (i + 2 + i / 6) % 6, 1)
        })
        .collect();
    let c = config(topology, flows, deep()[0].clone(), transport);
    with! { headers: HeaderBytes::Real, sample: Some(2_000), ..c }
}

/// Both ways; what they agree on.
fn both(c: SimConfig) -> Outcome {
    let numbers = complete(c.clone());
    let bytes = complete(with! { carry_bytes: true, ..c });
    assert_eq!(format!("{numbers:?}"), format!("{bytes:?}"));
    assert_eq!(bytes.nics.rx_icrc_encapsulated + bytes.nics.rx_malformed, 0);
    bytes
}

#[test]
fn without_loss() {
    for transport in ["roce", "irn", "irn-go-back-n", "irn-no-sack", "auto", "iwarp"] {
        let outcome = both(base(transport));
        assert_eq!(outcome.lost.0 + outcome.dropped.0, 0);
    }
}

#[test]
fn with_loss() {
    for transport in ["roce,rto=200us", "irn", "irn-go-back-n", "irn-no-sack", "auto", "iwarp"] {
        for routing in [Routing::Ecmp, Routing::Spray] {
            let mut c = base(transport);
            c.routing = routing;
            c.topology.links.iter_mut().for_each(|l| l.loss = 0.01);
            let outcome = both(c);
            assert!(outcome.lost.0 > 0 && outcome.nics.retransmitted_pkts > 0, "{transport}");
        }
    }
}

#[test]
fn with_drops() {
    for transport in ["roce,rto=200us", "irn"] {
        let outcome = both(with! { switch: input_queued(6 * WIRE, None), ..base(transport) });
        assert!(outcome.dropped.0 > 0, "{transport}");
    }
}

#[test]
fn with_pauses() {
    for transport in ["roce", "irn"] {
        for switch in [
            input_queued(DEEP, Some(Thresholds { xoff: 3 * WIRE, xon: WIRE })),
            shared(200 * WIRE, 1.0, Some(shared_pfc(0.05, WIRE, WIRE))),
        ] {
            let outcome = both(with! { switch, ..base(transport) });
            assert!(outcome.pfc_frames > 0 && outcome.paused() > 0 && outcome.dropped.0 == 0, "{transport}");
        }
    }
}

#[test]
fn with_marks_that_the_icrc_does_not_cover() {
    for mut switch in deep() {
        set_ecn(&mut switch, Ecn::Step { k: 2 * WIRE });
        let outcome = both(with! { switch, ect: true, ..base("irn") });
        assert!(outcome.links.iter().map(|l| l.counters.marked).sum::<u64>() > 20);
        assert_eq!(outcome.nics.retransmitted_pkts, 0);
    }
}
