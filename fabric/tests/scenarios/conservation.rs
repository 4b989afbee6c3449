//! Laws that hold on average or in sum, whatever happens.

use irnic_fabric::sim::{Ending, Outcome};

use crate::kit::*;

/// `L = λ W` over a whole run, from sums that are kept apart: the bytes in the network over time, and the time of each
/// packet.
fn check(outcome: &Outcome) {
    assert_eq!(outcome.byte_time, outcome.stay);
    let (sent, ended) = (outcome.injected, [outcome.delivered, outcome.dropped, outcome.lost]);
    assert!(ended.iter().map(|g| g.1).sum::<u64>() <= sent.1 && ended.iter().map(|g| g.0).sum::<u64>() <= sent.0);
}

#[test]
fn one_packet_is_in_the_network_for_as_long_as_it_takes() {
    // 1250 bytes for 2500 ns, 250 + 1000 + 250 + 1000; then the acknowledgement, 226 bytes for 2 · (46 + 1000).
    let outcome = complete(config(star(&[40 * G; 2]), vec![flow(0, 1, 1)], deep()[0].clone(), "roce"));
    assert_eq!(outcome.byte_time, 1250 * 2500 + 226 * 2092);
    assert_eq!(outcome.ended, 2500 + 2092);
    check(&outcome);
}

#[test]
fn a_standing_queue_is_as_long_as_its_wait() {
    // From 40 to 10 Gbit/s: packet k waits 750·(k − 1), so its stay is 250 + 1000 + 750·(k − 1) + 1000 + 1000, 40 of
    // them: 40 · 3250 + 750 · 780. RoCE's acknowledgements of packets 16, 32 and 40 take 46 + 1000 + 181 + … each: 226
    // bytes are 180.8 ns at 10 Gbit/s.
    let outcome = complete(config(star(&[40 * G, 10 * G]), vec![flow(0, 1, 40)], deep()[0].clone(), "roce"));
    let acks = 3 * 226 * (181 + 1000 + 46 + 1000);
    assert_eq!(outcome.byte_time, 1250 * (40 * 3250 + 750 * 780) + acks);
    check(&outcome);
}

#[test]
fn bytes_are_conserved_at_any_moment() {
    // Stopped in mid-flight, with losses, drops and queues; the run checks itself, too, and would fail.
    for until in (0..60).map(|i| 1_000 + 1_717 * i) {
        for preset in ["irn", "roce,rto=30us"] {
            let mut topology = star(&[40 * G, 10 * G, 40 * G, 25 * G]);
            topology.links.iter_mut().for_each(|l| l.loss = 0.02);
            let flows = vec![flow(0, 1, 60), flow(2, 1, 60), flow(3, 2, 60), flow(0, 3, 60)];
            let c = config(topology, flows, shared(20 * WIRE, 1.0, None), preset);
            let outcome = run(with! { until, ..c });
            check(&outcome);
            let left = outcome.injected.0 - outcome.delivered.0 - outcome.dropped.0 - outcome.lost.0;
            assert!(left > 0 || outcome.ending == Ending::Complete || until > 30_000, "at {until}");
        }
    }
}
