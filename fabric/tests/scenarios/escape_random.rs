//! Escape in random networks whose ways are long and cross each other, under random traffic.

use irnic_fabric::sim::{Detour, Ending, HeaderBytes, Outcome, QpPolicy, SimConfig};
use irnic_fabric::switch::{EscapeConfig, HolConfig, Order, Thresholds, headroom};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::kit::*;

/// Three to six switches in a ring with some chords, one to three hosts at each.
fn graph(rng: &mut Pcg64Mcg) -> (Topology, u32) {
    let switches = rng.random_range(3..=6);
    let each = rng.random_range(1..=3);
    let mut topology = Topology::ring(switches, each, 40 * G, *[100, 500, 1_500].choose(rng).unwrap());
    for _ in 0..rng.random_range(0..=2) {
        let (a, b) = (rng.random_range(0..switches), rng.random_range(0..switches));
        if a != b {
            let link = topology.links[0];
            topology.links.push(irnic_fabric::topology::LinkSpec {
                a: topology.hosts + a,
                b: topology.hosts + b,
                rate: *[10 * G, 40 * G, 100 * G].choose(rng).unwrap(),
                ..link
            });
        }
    }
    (topology, each)
}

/// For each switch with hosts a random tree that leads there, as deep as it gets: no way has a loop, and ways of
/// different trees close cycles.
fn detours(topology: &Topology, each: u32, rng: &mut Pcg64Mcg) -> Vec<Detour> {
    let mut all = Vec::new();
    for root in 0..topology.switches {
        let mut parent = vec![None; topology.switches as usize];
        let mut way = vec![root];
        while let Some(&at) = way.last() {
            let mut ports = topology.ports(topology.hosts + at);
            ports.shuffle(rng);
            let new = ports.into_iter().filter_map(|(_, peer)| peer.checked_sub(topology.hosts));
            match new.into_iter().find(|peer| *peer != root && parent[*peer as usize].is_none()) {
                Some(peer) => {
                    parent[peer as usize] = Some(at);
                    way.push(peer);
                }
                None => {
                    way.pop();
                }
            }
        }
        let of = |(node, via): (usize, Option<u32>)| {
            let via = topology.hosts + via?;
            Some(Detour { node: topology.hosts + node as u32, dst: root * each, via })
        };
        all.extend(parent.into_iter().enumerate().filter_map(of));
    }
    all
}

/// A network, and traffic for it, to few hosts or to many. `warm`: all flows between two hosts are one by their
/// 5-tuple, and have come through all switches of their way before the rest begins.
pub fn draw(seed: u64, warm: bool, hol: &HolConfig) -> SimConfig {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let (topology, each) = graph(&mut rng);
    let detours = detours(&topology, each, &mut rng);
    let hosts = topology.hosts;
    let targets = rng.random_range(1..=hosts);
    let priorities = if warm { 1 } else { rng.random_range(1..=2) };
    let mut flows: Vec<Flow> = (0..rng.random_range(hosts..=6 * hosts))
        .map(|_| {
            let src = rng.random_range(0..hosts);
            let dst = (src + 1 + rng.random_range(0..targets.min(hosts - 1))) % hosts;
            let bytes = rng.random_range(1..=200 * MTU);
            let priority = rng.random_range(0..priorities);
            Flow { bytes, start: rng.random_range(0..100_000), priority, ..flow(src, dst, 1) }
        })
        .collect();
    if warm {
        // One packet of each pair, one after the other, before the rest.
        let mut pairs: Vec<(u32, u32)> = flows.iter().map(|flow| (flow.src, flow.dst)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let begin = 50_000 * pairs.len() as u64;
        flows.iter_mut().for_each(|flow| flow.start += begin);
        let first = (0..).zip(&pairs).map(|(n, &(src, dst))| Flow { start: 50_000 * n, ..flow(src, dst, 1) });
        flows.extend(first);
    }
    flows.sort_by_key(|flow| flow.start);
    let xoff = rng.random_range(2..=20) * WIRE;
    let at = Thresholds { xoff, xon: xoff - WIRE };
    let longest = WIRE as u32;
    let margin = hol.margin(longest);
    let switch = if rng.random() {
        let room = topology.links.iter().map(|l| headroom(l.rate, l.delay, longest)).max().unwrap();
        input_queued(u64::from(priorities) * (xoff + room + margin), Some(at))
    } else {
        let pfc = with! { fixed: Some(at), margin, priorities, ..shared_pfc(1.0, 0, 0) };
        shared(1 << 22, 1.0, Some(pfc))
    };
    let mut c = config(topology, flows, switch, "roce");
    c.headers = HeaderBytes::Fixed(AROUND);
    c.detours = detours;
    c.seed = seed;
    if warm {
        c.qps = QpPolicy::Reused;
    }
    c.until = 100_000_000;
    c
}

/// Escape with a flow table that forgets nobody.
fn escape() -> EscapeConfig {
    with! { flows: 256, ..EscapeConfig::default() }
}

fn escaping(seed: u64, warm: bool, escape: EscapeConfig) -> Outcome {
    let hol = HolConfig::Escape(escape);
    let c = draw(seed, warm, &hol);
    run(with! { hol: Some(hol), ..c })
}

/// What was dropped, sent again and out of order.
pub fn harm(outcome: &Outcome) -> [u64; 3] {
    [outcome.dropped.0, outcome.nics.retransmitted_pkts, outcome.nics.out_of_seq_request]
}

/// `IRNIC_SCHEDULES=n` tries so many, from `IRNIC_FIRST` on.
#[test]
fn whatever_locks_up_ends_in_order_and_loses_nothing() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (first, schedules) = (number("IRNIC_FIRST", 0), number("IRNIC_SCHEDULES", 60));
    let mut locked = 0;
    for seed in first..first + schedules {
        let outcome = escaping(seed, true, escape());
        assert_eq!((&outcome.ending, harm(&outcome)), (&Ending::Complete, [0; 3]), "seed {seed}");
        let without = run(draw(seed, true, &HolConfig::Escape(escape())));
        locked += u64::from(matches!(without.ending, Ending::Deadlock(_)));
        // What is not blocked does not notice: nor do the others, if nobody was paused.
        let counters = outcome.escape.unwrap();
        assert!(without.pfc_frames > 0 || counters == Default::default(), "seed {seed}: {counters:?}");
    }
    assert!(schedules < 60 || locked > schedules / 3, "only {locked} of {schedules} lock up without");
}

/// Lines 15 to 32 as they are printed: a frame that escapes goes before frames of its flow that came earlier and wait
/// in the regular queue, at the switch that asked for it or on the way there.
#[test]
fn the_printed_order_is_not_that_of_flows() {
    let printed = escaping(1, true, with! { order: Order::Printed, ..escape() });
    let [dropped, again, disorder] = harm(&printed);
    assert!(dropped == 0 && again > 0 && disorder > 0, "{:?}", harm(&printed));
}

/// With a table as small as the least pool (§4.3.1), whose flow leaves by a blocked output, nobody hears of the others.
#[test]
fn a_small_table_leaves_a_deadlock() {
    let small = escaping(0, true, with! { flows: 1, ..escape() });
    assert!(matches!(small.ending, Ending::Deadlock(_)), "{:?}", small.ending);
    assert_eq!(harm(&small), [0; 3]);
}

/// A switch sends tokens for flows that have come through it. Where a deadlock arises before, it stays: in few of the
/// networks, whose number `IRNIC_SCHEDULES=n` with `--nocapture` tells.
#[test]
fn flows_that_never_came_through_leave_a_deadlock() {
    let unknown = escaping(26, false, escape());
    assert!(matches!(unknown.ending, Ending::Deadlock(_)), "{:?}", unknown.ending);
    assert_eq!(harm(&unknown), [0; 3]);
    let schedules = std::env::var("IRNIC_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let (mut stay, mut lock) = (0, 0);
    for seed in 0..schedules {
        let outcome = escaping(seed, false, escape());
        assert_eq!(harm(&outcome), [0; 3], "seed {seed}");
        stay += u64::from(outcome.ending != Ending::Complete);
        let without = run(draw(seed, false, &HolConfig::Escape(escape())));
        lock += u64::from(matches!(without.ending, Ending::Deadlock(_)));
    }
    println!("of {schedules} networks {lock} lock up without Escape, and {stay} with it");
    assert!(schedules < 40 || 5 * stay < lock, "{stay} of {lock}");
}

/// Tokens that found nothing leave room set aside all along their way. The timer gives one back an interval: two looks
/// a millisecond apart see nothing delivered.
#[test]
fn without_answers_tokens_leak() {
    let leaking = escaping(3, true, with! { nack: false, ..escape() });
    let counters = leaking.escape.unwrap();
    assert!(matches!(leaking.ending, Ending::Deadlock(_)), "{:?}", leaking.ending);
    assert!(counters.reclaimed > counters.frames, "{counters:?}");
}

/// A timer that is shorter than a frame's way gives its room to others: it has to wait with the rest, whose room is not
/// made for that.
#[test]
fn a_token_that_is_taken_back_too_soon_costs_frames() {
    let hasty = escaping(11, true, with! { reclaim: Some(500), ..escape() });
    assert!(hasty.escape.unwrap().late > 0 && hasty.dropped.0 > 0, "{:?}", hasty.escape);
}
