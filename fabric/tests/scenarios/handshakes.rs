//! Flows that begin with a round trip through the network.

use irnic_fabric::sim::{QpPolicy, SimConfig, SimError, Simulation};
use irnic_transports::qp::Service;

use crate::kit::*;

/// Completion times at the sender.
fn acknowledged(config: SimConfig) -> Vec<u64> {
    let outcome = complete(config);
    outcome.records.iter().zip(&outcome.flows).map(|(r, f)| r.acknowledged.expect("an end") - f.start).collect()
}

#[test]
fn alone_it_takes_what_an_empty_network_does() {
    // TCP opens its window by one for the answer.
    for (with, without) in [("irn", "irn"), ("iwarp,cc.initial=1", "iwarp,cc.initial=2"), ("roce", "roce")] {
        for packets in [1, 2, 7, 300] {
            let mut c = config(star(&[40 * G; 2]), vec![flow(0, 1, packets)], deep()[0].clone(), without);
            let plain = acknowledged(c.clone())[0];
            c.setup_rtts = 1;
            let outcome = complete(c.clone());
            (c.setup_rtts, c.handshake, c.setups[0].transport) = (0, true, transport(with));
            let [here, there] = [complete(c.clone()).records[0].ideal, outcome.records[0].ideal];
            assert_eq!(here, there, "{with}: {packets}");
            // A READ's four packets instead of two have some headers more, and are acknowledged before the rest goes.
            let (trip, took) = (outcome.records[0].setup, acknowledged(c)[0] - plain);
            assert!(took.abs_diff(trip) <= 100, "{with}: {packets} packets: {took} ns, {trip} in an empty network");
        }
    }
}

#[test]
fn it_waits_behind_others() {
    // Some forty packets are before it at the receiver's link.
    let flows = || vec![flow(0, 2, 100), with! { start: 12_000, ..flow(1, 2, 1) }];
    let mut c = config(star(&[40 * G, 40 * G, 10 * G]), flows(), deep()[1].clone(), "irn");
    let plain = acknowledged(c.clone())[1];
    c.handshake = true;
    let with = acknowledged(c.clone())[1];
    c.flows.remove(0);
    let alone = acknowledged(c)[0];
    assert!(with > plain && with > alone + 20_000, "{with}: {plain} without, {alone} alone");
}

#[test]
fn flows_that_nobody_answers_or_that_share_have_none() {
    for (service, qps) in [(Service::Uc, QpPolicy::PerFlow), (Service::Rc, QpPolicy::Reused)] {
        let mut c = config(star(&[40 * G; 2]), vec![flow(0, 1, 1)], deep()[0].clone(), "irn");
        (c.handshake, c.setups[0].service, c.qps) = (true, service, qps);
        let what = "no reliable connection of its own, which could begin with a handshake";
        assert_eq!(Simulation::new(c).unwrap_err(), SimError::Flow { flow: 0, what });
    }
}
