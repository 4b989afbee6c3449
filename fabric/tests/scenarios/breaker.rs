//! Loops that are found by tokens and broken: by dropping frames (LB), or by sending one on at each switch (DLB), as
//! the dissertation about Escape evaluates them (§4.6.4).

use irnic_fabric::sim::{Detour, Ending, Outcome, Parallel, SimConfig};
use irnic_fabric::switch::{BreakerConfig, BreakerCounters, HolConfig, Remedy, SwitchConfig, Thresholds};
use irnic_fabric::topology::Topology;

use crate::escape_random::{draw, harm};
use crate::kit::*;

fn breaker(remedy: Remedy) -> HolConfig {
    HolConfig::Breaker(with! { place: WIRE as u32, ..BreakerConfig::new(remedy) })
}

/// So many switches in a ring and so many hosts at each, links of 40 Gbit/s and 1.5 µs. Every host sends to one at the
/// second switch after its own, clockwise.
fn ring(n: u32, hosts: u32, switch: SwitchConfig, hol: Option<HolConfig>, transport: &str) -> SimConfig {
    let all = n * hosts;
    let flows = (0..all).map(|host| flow(host, (host + 2 * hosts) % all, 1_000)).collect();
    let detour = |i| Detour { node: all + i, dst: (i + 2) % n * hosts, via: all + (i + 1) % n };
    let topology = Topology::ring(n, hosts, 40 * G, 1_500);
    with! { detours: (0..n).map(detour).collect(), hol, ..config(topology, flows, switch, transport) }
}

/// Either kind of switch: XOFF at 100 packets, XON at 80. With input queues outputs serve their inputs in turn, and the
/// ring needs two hosts at each switch to lock up.
fn switches() -> [(u32, SwitchConfig); 2] {
    let at = Thresholds { xoff: 100 * WIRE, xon: 80 * WIRE };
    let pfc = with! { fixed: Some(at), margin: WIRE, ..shared_pfc(1.0, 0, 0) };
    [(2, input_queued(150 * WIRE, Some(at))), (1, shared(1_000 * WIRE, 1.0, Some(pfc)))]
}

fn counters(outcome: &Outcome) -> BreakerCounters {
    outcome.breaker.expect("switches have breakers")
}

/// Runs a configuration cut into parts, one thread each.
fn in_parts(config: &SimConfig, parts: usize) -> String {
    format!("{:?}", Parallel::new(config.clone(), parts).unwrap().finish().unwrap())
}

#[test]
fn lb_breaks_rings_by_dropping_frames_that_are_sent_again() {
    for n in [3, 4] {
        for (hosts, switch) in switches() {
            let without = run(ring(n, hosts, switch.clone(), None, "roce,rto=1ms"));
            assert!(matches!(&without.ending, Ending::Deadlock(ports) if ports.len() == n as usize), "{n} {hosts}");
            let config = ring(n, hosts, switch, Some(breaker(Remedy::Drop)), "roce,rto=1ms");
            let outcome = complete(config.clone());
            let did = counters(&outcome);
            assert!(
                did.loops > 0 && did.tokens > did.loops && did.forwarded >= did.loops * u64::from(n - 1),
                "{did:?}"
            );
            // XON comes 20 packets below XOFF.
            assert!(did.dropped >= 20 && outcome.nics.retransmitted_pkts >= did.dropped, "{did:?}");
            assert_eq!((outcome.dropped.0, did.rotations, did.moved), (did.dropped, 0, 0));
            assert_eq!(in_parts(&config, 2), format!("{outcome:?}"));
        }
    }
}

#[test]
fn dlb_turns_rings_and_drops_nothing() {
    for n in [3, 4] {
        for (hosts, switch) in switches() {
            let config = ring(n, hosts, switch, Some(breaker(Remedy::Rotate)), "roce");
            let outcome = complete(config.clone());
            let did = counters(&outcome);
            assert_eq!((harm(&outcome), did.dropped), ([0; 3], 0));
            assert!(did.loops > 0 && did.rotations > did.loops && did.moved >= did.rotations * u64::from(n), "{did:?}");
            assert_eq!(outcome.nics.rcvd_pkts, outcome.delivered.0);
            assert_eq!(in_parts(&config, 2), format!("{outcome:?}"));
        }
    }
}

#[test]
fn long_pauses_are_no_loops() {
    // Two hosts behind one link to a slow third: all outputs towards it are paused for 100 ms at a time.
    let links = [(0, 3, 40 * G), (1, 3, 40 * G), (2, 5, G / 10), (3, 4, 40 * G), (4, 5, 40 * G)];
    let topology = network(3, 3, &links.map(|(a, b, rate)| (a, b, rate, 1_000)));
    for remedy in [Remedy::Drop, Remedy::Rotate] {
        for (_, switch) in switches() {
            let flows = (0..2).map(|src| flow(src, 2, 400)).collect();
            let hol = Some(breaker(remedy));
            let outcome = complete(with! { hol, ..config(topology.clone(), flows, switch, "roce") });
            let did = counters(&outcome);
            assert!(outcome.paused() > 10_000_000 && did.tokens > 10, "{did:?}");
            // Of the two switches that are paused one waits for the other.
            assert!(did.forwarded > 0 && (did.loops, did.dropped, did.moved) == (0, 0, 0), "{did:?}");
            assert_eq!(harm(&outcome), [0; 3]);
        }
    }
}

#[test]
fn where_nothing_is_paused_breakers_change_nothing() {
    for (hosts, switch) in switches() {
        let direct = |hol| {
            let ring = ring(3, hosts, switch.clone(), hol, "roce");
            run(
                with! { detours: Vec::new(), flows: (0..3 * hosts).map(|h| flow(h, (h + hosts) % (3 * hosts), 50)).collect(), ..ring },
            )
        };
        let without = format!("{:?}", direct(None));
        for remedy in [Remedy::Drop, Remedy::Rotate] {
            let mut with = direct(Some(breaker(remedy)));
            assert_eq!((with.breaker.take(), with.pfc_frames), (Some(Default::default()), 0));
            assert_eq!(without, format!("{with:?}"));
        }
    }
}

/// `IRNIC_SCHEDULES=n` tries so many, and tells how many end with `--nocapture`. The accounts hold in all of them, or
/// the runs would fail. With LB what is dropped is sent again into queues of few packets, until the time is up for
/// some.
#[test]
fn random_networks_that_lock_up_end() {
    let schedules = std::env::var("IRNIC_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let (mut locked, mut slow, mut dropped) = (0, 0, 0);
    for seed in 0..schedules {
        let [without, with] = [None, Some(breaker(Remedy::Rotate))].map(|hol| {
            let rotating = breaker(Remedy::Rotate);
            run(with! { hol, ..draw(seed, seed % 2 == 0, &rotating) })
        });
        assert_eq!(harm(&with), [0; 3], "seed {seed}");
        slow += u64::from(with.ending != Ending::Complete);
        locked += u64::from(matches!(without.ending, Ending::Deadlock(_)));
        assert!(without.pfc_frames > 0 || counters(&with) == Default::default(), "seed {seed}");
        let dropping = breaker(Remedy::Drop);
        let mut config = draw(seed, seed % 2 == 0, &dropping);
        config.setups.iter_mut().for_each(|setup| setup.transport = transport("roce,rto=10ms"));
        let outcome = run(with! { hol: Some(dropping), ..config });
        assert!(!matches!(outcome.ending, Ending::Deadlock(_) | Ending::Stuck), "seed {seed}: {:?}", outcome.ending);
        assert_eq!(outcome.dropped.0, counters(&outcome).dropped, "seed {seed}");
        dropped += outcome.dropped.0;
    }
    println!("of {schedules} networks {locked} lock up, and {slow} do not end with DLB");
    assert!(
        schedules < 40 || locked > schedules / 4 && 20 * slow < schedules && dropped > 100,
        "{locked}, {slow}, {dropped}"
    );
}
