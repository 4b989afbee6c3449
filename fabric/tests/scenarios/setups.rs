//! Flows that name their queue pair setup: several transports on one network.

use irnic_fabric::sim::QpSetup;
use irnic_fabric::sim::{QpPolicy, SimError, Simulation};
use irnic_fabric::workload::Flow;
use irnic_transports::wire::Mtu;

use crate::kit::*;

fn setup(name: &str) -> QpSetup {
    QpSetup::new(transport(name))
}

/// Three flows to host 3 that begin together, each with the transport of its place.
fn coexisting(qps: QpPolicy) -> irnic_fabric::sim::SimConfig {
    let flows = (0..3).map(|i| Flow { setup: i, ..flow(i.into(), 3, 400) }).collect();
    let mut c = config(star(&[40 * G; 4]), flows, shared(60 * WIRE, 1.0, None), "irn");
    c.setups = ["irn", "roce,rto=400us", "iwarp"].map(setup).to_vec();
    c.qps = qps;
    c
}

#[test]
fn three_transports_share_a_bottleneck() {
    for qps in [QpPolicy::PerFlow, QpPolicy::Reused] {
        let outcome = complete(coexisting(qps));
        assert!(outcome.dropped.0 > 0, "the buffer is too short for three windows");
        // 1200 packets of 250 ns, the way, and what goes twice.
        assert!(fcts(&outcome).iter().max() >= Some(&(1200 * 250)), "{:?}", fcts(&outcome));
    }
    // Each sender repairs its losses by its own rules; TCP, which starts slowly, has the fewest.
    let outcome = complete(coexisting(QpPolicy::PerFlow));
    let again: Vec<u64> = outcome.records.iter().map(|r| r.retransmitted).collect();
    assert!(again[2] > 0 && again[0] > 2 * again[2] && again[1] > 2 * again[2] && again[0] != again[1], "{again:?}");
    let ideals = ideals(&outcome);
    assert!(ideals[0] == ideals[1] && ideals[1] == ideals[2], "packets of one length: {ideals:?}");
}

#[test]
fn a_setup_changes_its_own_flows_only() {
    // Flows that never meet do as they do alone.
    let flows = |setups: [u16; 2]| {
        let pairs = [(0, 1), (2, 3)];
        pairs.iter().zip(setups).map(|(&(src, dst), setup)| Flow { setup, ..flow(src, dst, 300) }).collect()
    };
    let run = |setups, all: &[QpSetup]| {
        let mut c = config(star(&[40 * G; 4]), flows(setups), deep()[0].clone(), "irn");
        c.setups = all.to_vec();
        fcts(&complete(c))
    };
    let (irn, tcp) = (setup("irn"), setup("iwarp"));
    let both = run([0, 1], &[irn, tcp]);
    assert_eq!(both[0], run([0, 0], &[irn])[0]);
    assert_eq!(both[1], run([0, 0], &[tcp])[1]);
    assert_ne!(both[0], both[1]);
}

#[test]
fn each_setup_has_its_own_mtu() {
    let flows = (0..2).map(|i| Flow { setup: i, ..flow(i.into(), 2, 8) }).collect();
    let mut c = config(star(&[40 * G; 3]), flows, deep()[1].clone(), "irn");
    c.setups = vec![setup("irn"), with! { mtu: Mtu::B4096, ..setup("irn") }];
    assert_eq!(c.longest_packet(), 4096 + AROUND);
    let outcome = complete(c);
    assert_eq!([port(&outcome, 0, 3).packets, port(&outcome, 1, 3).packets], [8, 2]);
}

#[test]
fn a_setup_that_is_not_there_is_refused() {
    let c = config(star(&[40 * G; 2]), vec![Flow { setup: 1, ..flow(0, 1, 1) }], deep()[0].clone(), "irn");
    let what = "a queue pair setup that is not there";
    assert_eq!(Simulation::new(c).unwrap_err(), SimError::Flow { flow: 0, what });
}
