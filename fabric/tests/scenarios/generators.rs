//! Generators of packets, by hand.

use irnic_fabric::generator::{Gap, Generator, Stream};
use irnic_fabric::network::{Network, NetworkConfig};
use irnic_fabric::switch::{Ecn, Scheduling, SwitchConfig};

use crate::kit::*;

/// Runs streams of hosts on a star of 40 Gbit/s until `until`.
fn run(switch: SwitchConfig, streams: Vec<Vec<Stream>>, until: u64) -> Network<Generator> {
    let topology = star(&vec![40 * G; streams.len()]);
    let hosts = (7..).zip(streams).map(|(seed, streams)| Generator::new(streams, seed)).collect();
    let mut net = Network::new(NetworkConfig::new(topology, switch), hosts, ()).unwrap();
    net.run_until(until);
    net.check().unwrap();
    net
}

#[test]
fn a_constant_stream_keeps_its_pace() {
    let stream = Stream::new(1, 1250, 10, Gap::Constant(2_000));
    let net = run(deep()[0].clone(), vec![vec![stream], vec![]], u64::MAX);
    let received = net.endpoint(1).received();
    // The last is due at 18,000, and takes 2 · 250 + 2 · 1000 like all.
    assert_eq!((received.packets, received.bytes, received.last), (10, 12_500, 20_500));
    assert_eq!((received.delay, received.longest), (25_000, 2_500));
}

#[test]
fn a_poisson_process_has_its_mean_and_the_variance_of_its_count() {
    let counts: Vec<f64> = (0..400)
        .map(|seed| {
            let stream = Stream::new(1, 100, u64::MAX, Gap::Poisson(1_000.0));
            let hosts = vec![Generator::new(vec![stream], seed), Generator::sink()];
            let config = NetworkConfig::new(star(&[40 * G; 2]), deep()[0].clone());
            let mut net = Network::new(config, hosts, ()).unwrap();
            net.run_until(100_000);
            net.endpoint(0).sent() as f64
        })
        .collect();
    let mean = counts.iter().sum::<f64>() / 400.0;
    let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 399.0;
    assert!((mean - 100.0).abs() < 2.5 && (variance - 100.0).abs() < 30.0, "{mean} {variance}");
}

#[test]
fn what_is_due_waits_for_the_link_and_the_higher_priority_is_served_first() {
    // Hosts 0 and 1 at one switch, 2 and 3 at another, and half the rate between the two.
    let slow =
        network(4, 2, &[(0, 4, 40 * G, 0), (1, 4, 40 * G, 0), (4, 5, 20 * G, 0), (2, 5, 40 * G, 0), (3, 5, 40 * G, 0)]);
    let low = Stream::new(2, 1250, 100, Gap::Constant(0));
    let mut high = Stream::new(3, 1250, 100, Gap::Constant(0));
    (high.priority, high.ect) = (5, true);
    let mut switch = deep()[1].clone();
    set_scheduling(&mut switch, Scheduling::Strict);
    set_ecn(&mut switch, Ecn::Step { k: 0 });
    let last = |streams: [Vec<Stream>; 4]| {
        let hosts = streams.map(|streams| Generator::new(streams, 1)).into();
        let mut net = Network::new(NetworkConfig::new(slow.clone(), switch.clone()), hosts, ()).unwrap();
        net.run_until(u64::MAX);
        net.check().unwrap();
        [2, 3].map(|host| *net.endpoint(host).received())
    };
    let [_, alone] = last([vec![], vec![high], vec![], vec![]]);
    let [low, high] = last([vec![low], vec![high], vec![], vec![]]);
    assert_eq!(alone.last, 250 + 100 * 500 + 250);
    assert!(high.last <= alone.last + 500, "one packet of the other's at most was in the way: {high:?}");
    assert_eq!(low.last, alone.last + 100 * 500);
    // All but the first find the queue of their priority not empty; only those that may be marked are.
    assert_eq!((low.marked, alone.marked), (0, 98));
}
