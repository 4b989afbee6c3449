//! LSTF with preemption replays whatever has two congestion points a packet (Mittal, UCB/EECS-2018-103, appendix
//! A.6.1): here in the network itself, with its links and its rounding, on networks, packets and schedulers by chance.

use std::sync::Arc;

use irnic_fabric::network::NetworkConfig;
use irnic_fabric::schedule::{Detail, Header, Replay, Replayed, Schedule, Scheduled};
use irnic_fabric::sim::ideal;
use irnic_fabric::switch::{Discipline, OutputQueuedConfig, SwitchConfig};
use irnic_fabric::topology::{Routes, Topology};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::kit::*;

/// Networks.
const CASES: u64 = 2_000;
/// Rates at which a byte takes whole ns, and others.
const WHOLE: [u64; 5] = [500_000_000, G, 2 * G, 4 * G, 8 * G];
const OTHER: [u64; 5] = [10 * G, 1_111_111_111, 3 * G, 6_666_666_667, 700_000_001];

/// Of a host, its switch, and on which of two sides that is.
type Place = (u32, bool);

/// Switches on two sides, each with a link to each of the other side, and hosts at all of them: who sends to the other
/// side meets others at its own switch and at that of the receiver, and nowhere else.
fn two_sides(rng: &mut Pcg64Mcg, rates: &[u64]) -> (Topology, Vec<Place>) {
    let sides = [rng.random_range(1..=3), rng.random_range(1..=2)];
    let (switches, each) = (sides[0] + sides[1], rng.random_range(2..=4));
    let hosts = switches * each;
    let mut links = Vec::new();
    for host in 0..hosts {
        links.push((host, hosts + host / each, *rates.choose(rng).unwrap(), rng.random_range(0..3_000)));
    }
    for (left, right) in (0..sides[0]).flat_map(|left| (sides[0]..switches).map(move |right| (left, right))) {
        links.push((hosts + left, hosts + right, *rates.choose(rng).unwrap(), rng.random_range(0..5_000)));
    }
    let of = |host: u32| (host / each, host / each < sides[0]);
    (network(hosts, switches, &links), (0..hosts).map(of).collect())
}

/// Packets of many lengths between hosts of a switch, or of different sides, as their hosts can send them.
fn packets(rng: &mut Pcg64Mcg, topology: &Topology, places: &[Place]) -> Vec<Scheduled> {
    let routes = Routes::compute(topology, &|_| false);
    let mut all = Vec::new();
    for src in 0..topology.hosts {
        let allowed = |dst: &u32| {
            let [(a, left), (b, also_left)] = [src, *dst].map(|host| places[host as usize]);
            src != *dst && (a == b || left != also_left)
        };
        let mut others: Vec<u32> = (0..topology.hosts).filter(allowed).collect();
        // Most send to few.
        others.truncate(rng.random_range(1..=6));
        let mut sent = rng.random_range(0..2_000);
        for psn in 0..rng.random_range(1..=10) {
            let wire = *[125, 500, 1_000, 1_500, rng.random_range(125..=1_500)].choose(rng).unwrap();
            let Some(&dst) = others.choose(rng) else { continue };
            let path = routes.path(src, dst).unwrap();
            let links: Vec<_> = topology.along(&path).map(|link| (link.rate, link.delay)).collect();
            let ideal = ideal(&[(wire, 1)], &links);
            all.push(Scheduled { flow: src * 8 + psn % 3, psn, src, dst, wire, sent, ideal, ..Scheduled::default() });
            let takes = (u64::from(wire) * 8 * G).div_ceil(links[0].0) + 1;
            sent += takes + if rng.random_bool(0.7) { 0 } else { rng.random_range(0..10_000) };
        }
    }
    all.sort_by_key(|packet| packet.sent);
    all
}

fn switch(discipline: &Discipline, preempts: bool) -> SwitchConfig {
    SwitchConfig::OutputQueued(with! { preempts, ..OutputQueuedConfig::new(DEEP, discipline.clone()) })
}

fn replayed(config: NetworkConfig, schedule: &Arc<Schedule>, header: Header, record: bool) -> Replayed {
    let mut replay = Replay::new(config, schedule.clone(), header).expect("the same network");
    if record {
        replay.record(Detail::Hops);
    }
    while !replay.run(10_000).expect("the same times") {}
    replay.outcome(0).expect("accounts that add up")
}

#[test]
fn preemptive_lstf_replays_whatever_has_two_congestion_points() {
    let (mut packets_in_all, mut overdue_in_one_piece) = (0, 0);
    for seed in 0..CASES {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let whole = rng.random_bool(0.5);
        let (topology, places) = two_sides(&mut rng, if whole { &WHOLE } else { &OTHER });
        let packets = packets(&mut rng, &topology, &places);
        let network = |switch| with! { seed, ..NetworkConfig::new(topology.clone(), switch) };
        // Any scheduler, with anything in the header: with some it is the order.
        let (name, original) = &Discipline::NAMES[seed as usize % Discipline::NAMES.len()];
        let drawn = packets.iter().map(|_| rng.random_range(-20_000..20_000)).collect();
        let injected = Arc::new(Schedule::new(packets));
        let first = replayed(network(switch(original, false)), &injected, Header::Given(Arc::new(drawn)), true);
        let schedule = Arc::new(first.schedule.unwrap());
        let case = format!("seed {seed}, {name}");
        assert_eq!(schedule.packets().len(), injected.packets().len(), "{case}");
        assert!(schedule.packets().iter().all(|packet| packet.waits <= 2), "{case}");

        let by =
            |discipline, preempts, header| replayed(network(switch(&discipline, preempts)), &schedule, header, false);
        let lstf = by(Discipline::LeastSlack, true, Header::Slack);
        assert_eq!((lstf.all.lost, lstf.all.beyond_rounding), (0, 0), "{case}, by {} ns", lstf.worst);
        if whole {
            // No rounding, nothing overdue; and who knows the rest of the way needs no slack (A.4).
            assert_eq!(lstf.all.overdue, 0, "{case}, by {} ns", lstf.worst);
            assert_eq!(by(Discipline::EarliestDeadline, true, Header::Exit).left, lstf.left, "{case}");
        }
        // Who knows all needs no preemption (A.1).
        let vector = by(Discipline::Fifo, false, Header::Vector).left;
        assert!(vector.iter().zip(schedule.packets()).all(|(left, packet)| *left == packet.left), "{case}");
        packets_in_all += lstf.all.packets;
        overdue_in_one_piece += by(Discipline::LeastSlack, false, Header::Slack).all.beyond_rounding;
    }
    assert!(packets_in_all > 80_000 && overdue_in_one_piece > 300, "{packets_in_all} {overdue_in_one_piece}");
}

/// 1500 bytes take 12 µs of the slow link. 500, there 3 µs after them, go first and take 4; 250 that come then with the
/// rank of the first wait for its end, and meet it waiting.
#[test]
fn who_is_interrupted_waits_and_a_record_says_so() {
    let topology = star(&[10 * G, 10 * G, 10 * G, G]);
    let scheduled = |src: u32, sent, wire: u32| {
        let ideal = ideal(&[(wire, 1)], &[(10 * G, 1_000), (G, 1_000)]);
        Scheduled { src, dst: 3, wire, sent, ideal, ..Scheduled::default() }
    };
    let packets = vec![scheduled(0, 0, 1_500), scheduled(1, 3_800, 500), scheduled(2, 5_000, 250)];
    let ranks = Header::Given(Arc::new(vec![9, 3, 9]));
    let config = NetworkConfig::new(topology, switch(&Discipline::Rank, true));
    let record = replayed(config, &Arc::new(Schedule::new(packets)), ranks, true).schedule.unwrap();
    let seen: Vec<_> = record.packets().iter().map(|p| (p.queueing(), p.points, p.waits, p.hops)).collect();
    // At the switch at 2200, 5200 and 6200; they are through at 18,200, 9200 and 20,200.
    assert_eq!(seen, [(4_000, 0, 1, 1), (0, 0, 0, 1), (12_000, 1, 1, 1)]);
}
