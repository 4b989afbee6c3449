//! Switches whose packets go from queue to queue inside: the buffered crossbar of OpenQueue's figures 2.12 and 2.13.

use irnic_fabric::experiment::{Grid, Written, find};
use irnic_fabric::sim::{Outcome, SimConfig};

use crate::kit::*;

fn experiment(pairs: &[(&str, &str)]) -> SimConfig {
    let key = |name| find(name).expect("a key").name();
    let common = pairs.iter().map(|(name, text)| (key(name), vec![Written::flag(key(name), text)])).collect();
    let case = Grid { common, runs: Vec::new() }.cases().unwrap().remove(0);
    case.experiment().unwrap().config(3).unwrap_or_else(|error| panic!("{pairs:?}: {error}"))
}

fn with(pairs: &[(&str, &str)], switch: &str) -> Outcome {
    complete(experiment(&[pairs, &[("switch", switch)]].concat()))
}

/// A lone packet takes its serialization once more on each of two lines inside, at their speed.
#[test]
fn a_packet_is_carried_twice_inside() {
    let lone = [("topology", "star:hosts=4,rate=10G,delay=1us"), ("workload", "incast:senders=1,bytes=1000")];
    let fct = |switch: &str| fcts(&with(&lone, switch))[0];
    let direct = fct("input-queued");
    // 1,090 bytes on the wire.
    for (speed, inside) in [("100%", 1_744), ("200%", 872), ("50%", 3_488)] {
        let more = fct(&format!("buffered-crossbar,speed={speed}")) - direct;
        assert!((inside..=inside + 1).contains(&more), "{speed}: {more} ns");
    }
}

/// Nothing is lost inside: lines wait for room. Only what comes from outside to a full queue is dropped.
#[test]
fn a_crossbar_loses_nothing_inside() {
    let incast = [
        ("topology", "star:hosts=9,rate=10G,delay=1us"),
        ("workload", "incast:senders=8,bytes=800KB+permutation:bytes=100KB"),
        ("transport", "roce"),
    ];
    let roomy = with(&incast, "buffered-crossbar,crosspoint=2500,last=2500");
    assert_eq!(roomy.dropped, (0, 0));
    assert!(roomy.links.iter().any(|link| link.counters.peak > 500_000), "all of it waits for one output");
    let small = run(experiment(&[&incast[..], &[("switch", "buffered-crossbar"), ("buffer", "20KB")]].concat()));
    assert!(small.dropped.0 > 50, "{:?}", small.dropped);
}

/// A link that goes down takes with it what waits for it at any level, and what is on its way inside; the accounts
/// hold.
#[test]
fn a_link_that_goes_down_loses_what_waits_inside() {
    let config = experiment(&[
        ("topology", "star:hosts=9,rate=10G,delay=1us"),
        ("workload", "incast:senders=8,bytes=800KB"),
        ("switch", "buffered-crossbar"),
        ("link-event", "down:0-9@100us,up:0-9@300us"),
    ]);
    let outcome = complete(config);
    let lost: u64 = outcome.links.iter().map(|link| link.counters.lost).sum();
    assert!(lost > 100, "{lost}");
}
