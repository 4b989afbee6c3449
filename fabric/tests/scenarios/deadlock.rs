//! Networks that PFC brings to a standstill for ever.

use irnic_fabric::sim::{Change, Detour, Ending, LinkChange, Outcome};
use irnic_fabric::switch::{RoccConfig, Switch, SwitchConfig, Thresholds};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;

use crate::kit::*;

/// Switches in a ring, two hosts at each: the switch of host h is number h / 2.
pub fn ring(n: u32) -> Topology {
    let hosts = (0..2 * n).map(|h| (h, 2 * n + h / 2, 40 * G, 1_000));
    let ring = (0..n).map(|i| (2 * n + i, 2 * n + (i + 1) % n, 40 * G, 1_000));
    network(2 * n, n, &hosts.chain(ring).collect::<Vec<_>>())
}

/// Every host sends two switches further. A switch has three inputs for the next link: two hosts, and the link before,
/// which gets a third of it. But two thirds of what comes by that link want to go on: they pile up, and wait for the
/// next link.
pub fn flows(n: u32, packets: u64) -> Vec<Flow> {
    (0..2 * n).map(|host| flow(host, (host + 4) % (2 * n), packets)).collect()
}

/// In a ring of three the other way round is shorter; these go clockwise all the same.
pub fn clockwise() -> Vec<Detour> {
    (0..3).map(|i| Detour { node: 6 + i, dst: 2 * ((i + 2) % 3), via: 6 + (i + 1) % 3 }).collect()
}

fn switch(pfc: bool) -> SwitchConfig {
    input_queued(if pfc { DEEP } else { 40 * WIRE }, pfc.then_some(Thresholds { xoff: 20 * WIRE, xon: 18 * WIRE }))
}

pub fn check(outcome: &Outcome, n: u32) {
    assert!(matches!(&outcome.ending, Ending::Deadlock(ports) if ports.len() == n as usize), "{:?}", outcome.ending);
    // The ring, wherever it begins.
    let mut cycle = outcome.deadlock.clone();
    cycle.sort_unstable();
    let mut expected: Vec<_> = (0..n).map(|i| (2 * n + i, 2 * n + (i + 1) % n)).collect();
    expected.sort_unstable();
    assert_eq!(cycle, expected);
    for pair in 0..n as usize {
        let (from, to) = (outcome.deadlock[pair], outcome.deadlock[(pair + 1) % n as usize]);
        assert_eq!(from.1, to.0, "each waits for the next");
    }
    assert!(outcome.records.iter().all(|r| r.delivered.is_none()));
    assert_eq!(outcome.dropped.0, 0);
}

#[test]
fn a_ring_of_three_locks_up_and_is_found_out() {
    // RoCE without timers: nothing happens any more. IRN: timers go on for ever. With samples: those too.
    for (transport, sample) in
        [("roce", None), ("roce", Some(10_000)), ("irn,cap=4096", None), ("roce,rto=200us", None)]
    {
        let c = config(ring(3), flows(3, 400), switch(true), transport);
        let outcome = run(with! { detours: clockwise(), sample, ..c });
        check(&outcome, 3);
        assert!(outcome.ended < 10_000_000, "{transport}: at {} ns", outcome.ended);
    }
}

#[test]
fn notices_hide_no_deadlock() {
    let c = config(ring(3), flows(3, 400), switch(true), "roce");
    let outcome = run(with! { detours: clockwise(), rocc: Some(RoccConfig::default()), ..c });
    check(&outcome, 3);
    assert!(outcome.emitted.0 > 0 && outcome.ended < 20_000_000, "at {} ns", outcome.ended);
}

#[test]
fn a_ring_of_five_locks_up_by_shortest_ways() {
    for transport in ["roce", "irn,cap=4096"] {
        check(&run(config(ring(5), flows(5, 400), switch(true), transport)), 5);
    }
}

#[test]
fn a_shared_buffer_locks_up_too() {
    let pfc = shared_pfc(0.1, 0, WIRE);
    let outcome = run(with! {
        detours: clockwise(),
        ..config(ring(3), flows(3, 400), shared(400 * WIRE, 1.0, Some(pfc)), "roce")
    });
    check(&outcome, 3);
}

#[test]
fn without_pfc_or_without_the_ring_nothing_locks_up() {
    // Packets are dropped instead, and come again.
    let dropping =
        complete(with! { detours: clockwise(), ..config(ring(3), flows(3, 400), switch(false), "irn,cap=4096") });
    assert!(dropping.dropped.0 > 0);
    // By the shorter way nobody goes on to another link of the ring: pauses, but no cycle.
    let direct = complete(config(ring(3), flows(3, 400), switch(true), "roce"));
    assert!(direct.paused() > 0);
}

#[test]
fn a_long_pause_is_no_deadlock() {
    // Packets of the slow link take 100 ms each, far longer than the network is watched: the pauses end.
    let c = config(star(&[40 * G, 100_000]), vec![flow(0, 1, 40)], switch(true), "roce");
    let outcome = complete(c);
    assert!(outcome.paused() > 1_000_000_000);
}

/// A switch of the library in another that hands on everything.
#[derive(Debug)]
struct Around {
    inner: Box<dyn Switch>,
}

impl Switch for Around {
    irnic_fabric::forward_switch!(
        inner: enqueue, dequeue, backlog, on_control, on_timer, paused_upstreams, blocks, prefetch, flush
    );
}

#[test]
fn a_switch_that_hands_on_everything_is_the_one_within() {
    for inner in [switch(true), shared(400 * WIRE, 1.0, Some(shared_pfc(0.1, 0, WIRE)))] {
        let config = |switch| with! { detours: clockwise(), ..config(ring(3), flows(3, 400), switch, "roce") };
        let around = {
            let inner = inner.clone();
            SwitchConfig::custom(move |node, ports| Box::new(Around { inner: inner.build(node, ports) }))
        };
        let outcome = run(config(around.clone()));
        check(&outcome, 3);
        assert_eq!(format!("{outcome:?}"), format!("{:?}", run(config(inner.clone()))));
        // A link that fails takes along what waits for it.
        let change = |at, what| LinkChange { at, link: 6, what };
        let changes = vec![change(50_000, Change::Down), change(90_000, Change::Up)];
        let [outside, inside] =
            [around, inner].map(|switch| run(with! { changes: changes.clone(), until: 1_000_000, ..config(switch) }));
        assert!(inside.lost.0 > 0);
        assert_eq!(format!("{outside:?}"), format!("{inside:?}"));
    }
}
