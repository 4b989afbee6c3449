//! Tests of a single switch: order and drops.

use std::net::{IpAddr, Ipv4Addr};

use irnic_transports::wire::{Bth, Headers, Opcode};
use irnic_transports::{Path, Psn};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::network::{Content, Packet};
use crate::switch::Ledger;

/// A switch with one output of 1 Gbit/s, and packets of 1,000 bytes, 8 us each.
struct Alone {
    switch: OutputQueued,
    packets: Packets,
    ports: Vec<Port>,
    rng: Pcg64Mcg,
    ledger: Ledger,
    now: u64,
}

impl Alone {
    fn new(buffer: u64, discipline: Discipline) -> Alone {
        Alone::of(&OutputQueuedConfig::new(buffer, discipline))
    }

    fn of(config: &OutputQueuedConfig) -> Alone {
        let ports = vec![Port::new(0, 0, 0, 0, 1_000_000_000, 0, 0.0)];
        let switch = OutputQueued::new(config, &ports);
        let (packets, ledger) = (Packets::default(), Ledger::default());
        Alone { switch, packets, ports, rng: Pcg64Mcg::new(1), ledger, now: 0 }
    }

    /// Offers a packet of a flow; returns its number and whether it was admitted.
    fn offer(&mut self, flow: u32, priority: u8, slack: i64, wire: u32) -> (PacketId, bool) {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let path = Path { src: address, dst: address, udp_src: 0, traffic_class: 0, hop_limit: 64 };
        let headers = Headers::new(Bth::new(Opcode::UdSendOnly, 0, Psn::new(0)));
        let mut packet = Packet::new(wire, 0, 0, priority);
        (packet.slack, packet.src_qp) = (slack, flow);
        self.ledger.totals.injected(self.now, &packet, wire);
        let id = self.packets.add(packet, Content::new(headers, path, wire));
        let Alone { switch, packets, ports, rng, ledger, now } = self;
        let mut ctx = SwitchCtx { now: *now, packets, ports, rng, ledger };
        (id, switch.enqueue(&mut ctx, id, 0) == Verdict::Queued)
    }

    /// Takes out the next packet that is not paused, and starts its transmission; returns number and slack.
    fn next(&mut self, paused: Priorities) -> Option<(PacketId, i64)> {
        let Alone { switch, packets, ports, rng, ledger, now } = self;
        let mut ctx = SwitchCtx { now: *now, packets, ports, rng, ledger };
        match switch.dequeue(&mut ctx, 0, paused) {
            Dequeue::Packet(id) => Some((id, self.packets.get(id).slack)),
            _ => None,
        }
    }

    /// All queued packets, in the order in which they are sent.
    fn drain(&mut self) -> Vec<PacketId> {
        let all = std::iter::from_fn(|| self.next(Priorities::NONE)).map(|(id, _)| id).collect();
        assert_eq!(self.switch.backlog(0), 0);
        all
    }

    fn dropped(&self) -> u64 {
        self.ledger.totals.dropped_packets
    }
}

#[test]
fn packets_may_be_counted_whatever_their_size() {
    for (discipline, kept) in [(Discipline::Fifo, [0, 1, 2]), (Discipline::LeastSlack, [0, 3, 2])] {
        let mut config = OutputQueuedConfig::new(1 << 20, discipline);
        config.packets = Some(3);
        let mut alone = Alone::of(&config);
        // Slack is less each time, so that least slack first drops the oldest. The last reuses the number of the first,
        // which has been dropped by then.
        let taken: Vec<bool> = (0..5).map(|n| alone.offer(0, 0, 100 - i64::from(n), 40).1).collect();
        assert_eq!(taken[..3], [true; 3]);
        assert_eq!(alone.drain(), kept);
        // There is room again.
        assert!(alone.offer(0, 0, 0, 1_000).1);
    }
}

#[test]
fn first_last_and_any() {
    for (discipline, order) in [(Discipline::Fifo, [0, 1, 2, 3]), (Discipline::Lifo, [3, 2, 1, 0])] {
        let mut alone = Alone::new(4_000, discipline);
        (0..4).for_each(|flow| assert!(alone.offer(flow, 0, 0, 1_000).1));
        assert!(!alone.offer(4, 7, -9, 1_000).1, "the arriving packet finds no room, whatever it is");
        assert_eq!((alone.drain(), alone.dropped()), (order.to_vec(), 0));
    }
    let mut alone = Alone::new(100_000, Discipline::Random);
    let (mut first, mut last) = ([0; 4], 0);
    for _ in 0..2_000 {
        let ids: Vec<PacketId> = (0..4).map(|flow| alone.offer(flow, 0, 0, 1_000).0).collect();
        let order = alone.drain();
        first[ids.iter().position(|id| *id == order[0]).unwrap()] += 1;
        last += usize::from(order[3] == ids[3]);
        order.iter().for_each(|id| alone.packets.remove(*id));
    }
    assert!(first.iter().chain([&last]).all(|n| (400..600).contains(n)), "{first:?} {last}");
}

#[test]
fn priorities_are_served_from_above_and_dropped_from_below() {
    let mut alone = Alone::new(4_000, Discipline::Priority);
    let ids = [2, 5, 2, 1].map(|priority| alone.offer(0, priority, 0, 1_000).0);
    // None is below 1; then the one of 1 is evicted, then the newest of 2, then the older of 2; then nothing is below
    // 5.
    assert!(!alone.offer(0, 1, 0, 1_000).1);
    let late = [3, 5, 5].map(|priority| alone.offer(0, priority, 0, 1_000));
    assert!(late.iter().all(|(_, taken)| *taken));
    assert_eq!(alone.dropped(), 3);
    assert!(!alone.offer(0, 3, 0, 1_000).1, "equals do not give way");
    let seven = alone.offer(0, 7, 0, 1_000);
    assert!(seven.1);
    // The 3 was evicted for it. Numbers of dropped packets are reused, orders are not.
    assert_eq!((alone.dropped(), ids[1]), (4, 1));
    assert_eq!(alone.drain(), [seven.0, ids[1], late[1].0, late[2].0]);
}

#[test]
fn several_small_packets_give_way_to_a_large_one() {
    let mut alone = Alone::new(3_000, Discipline::Priority);
    (0..6).for_each(|_| assert!(alone.offer(0, 0, 0, 500).1));
    assert!(alone.offer(0, 1, 0, 1_400).1);
    assert_eq!((alone.dropped(), alone.switch.backlog(0)), (3, 2_900));
    assert!(!alone.offer(0, 7, 0, 3_001).1, "it would never fit");
    assert_eq!(alone.switch.backlog(0), 2_900);
}

#[test]
fn least_slack_goes_first_and_most_is_dropped() {
    let mut alone = Alone::new(4_000, Discipline::LeastSlack);
    let ids = [500, -20, 300, 300].map(|slack| alone.offer(0, 0, slack, 1_000).0);
    // The arriving packet has as much slack as the last in order, and came later; then it has less.
    assert!(!alone.offer(0, 0, 500, 1_000).1);
    let (late, taken) = alone.offer(0, 0, 400, 1_000);
    assert!(taken && alone.dropped() == 1);
    assert_eq!((late, alone.drain()), (late, vec![ids[1], ids[2], ids[3], late]));
}

/// A packet's slack decreases by its waiting time, and by nothing else.
#[test]
fn waiting_is_what_uses_slack_up() {
    let mut alone = Alone::new(10_000, Discipline::LeastSlack);
    let (a, _) = alone.offer(0, 0, 5_000, 1_000);
    let (b, _) = alone.offer(0, 0, 100_000, 500);
    assert_eq!(alone.next(Priorities::NONE), Some((a, 5_000)));
    alone.ports[0].send(0, 1_000);
    alone.now = 8_000;
    // It arrived at 8,000 and has not waited: less slack than the other has by now.
    let (c, _) = alone.offer(0, 0, 80_000, 1_000);
    assert_eq!(alone.next(Priorities::NONE), Some((c, 80_000)));
    alone.ports[0].send(8_000, 1_000);
    alone.now = 16_000;
    assert_eq!(alone.next(Priorities::NONE), Some((b, 84_000)));
    // Of two with the same slack and different lengths, the shorter has to be out earlier.
    let ids = [1_500, 1_000].map(|wire| alone.offer(0, 0, 7, wire).0);
    assert_eq!(alone.drain(), [ids[1], ids[0]]);
}

#[test]
fn ranks_stay_as_they_are() {
    let mut alone = Alone::new(3_000, Discipline::Rank);
    let ids = [9, 3, 9].map(|rank| alone.offer(0, 0, rank, 1_000).0);
    alone.now = 1_000_000;
    let (late, taken) = alone.offer(0, 0, 5, 1_000);
    assert!(taken && !alone.offer(0, 0, 9, 1_000).1);
    assert_eq!(alone.next(Priorities::NONE), Some((ids[1], 3)));
    assert_eq!(alone.drain(), [late, ids[0]]);
}

#[test]
fn flows_take_turns_and_the_longest_gives_way() {
    let mut alone = Alone::new(6_000, Discipline::Fair);
    let a = [(); 4].map(|()| alone.offer(1, 0, 0, 1_000).0);
    let b = alone.offer(2, 0, 0, 1_000).0;
    assert_eq!(alone.next(Priorities::NONE).unwrap().0, a[0]);
    // New flows go before the one that has had its turn.
    let c = [(); 2].map(|()| alone.offer(3, 0, 0, 1_000).0);
    // Full: the newest packet of the longest flow is evicted for other flows, not for its own.
    assert!(!alone.offer(1, 0, 0, 1_000).1);
    let d = alone.offer(4, 0, 0, 1_000);
    assert!(d.1 && alone.dropped() == 1);
    assert_eq!(alone.drain(), [b, c[0], d.0, a[1], c[1], a[2]]);
    // Flows that have left are new again.
    let e = alone.offer(1, 0, 0, 1_000).0;
    assert_eq!(alone.drain(), [e]);
}

#[test]
fn what_is_paused_is_passed_over() {
    for (name, discipline) in Discipline::NAMES {
        let mut alone = Alone::new(10_000, discipline);
        let paused = Priorities::of(3);
        let ids = [3, 0, 3].map(|priority| alone.offer(u32::from(priority), priority, 0, 1_000).0);
        assert_eq!(alone.next(paused).map(|(id, _)| id), Some(ids[1]), "{name}");
        assert_eq!(alone.next(paused), None, "{name}");
        assert_eq!((alone.switch.backlog(0), alone.drain().len()), (2_000, 2), "{name}");
    }
}

/// A packet in transmission would be interrupted by a packet of a lower rank than its own.
#[test]
fn ranks_are_those_of_what_goes_next() {
    for (name, discipline) in Discipline::NAMES {
        let config = OutputQueuedConfig { preempts: true, ..OutputQueuedConfig::new(10_000, discipline.clone()) };
        let ranked = matches!(name, "priority" | "rank" | "lstf" | "edf");
        let mut alone = Alone::new(10_000, discipline.clone());
        assert_eq!((discipline.has_ranks(), OutputQueued::new(&config, &alone.ports).preempts()), (ranked, ranked));
        assert!(!alone.switch.preempts(), "{name}");
        let rank = |alone: &Alone, paused| alone.switch.rank(&alone.packets, 0, paused);
        assert_eq!(rank(&alone, Priorities::NONE), None);
        for (priority, slack) in [(0, 700), (5, 300), (2, 500), (5, 400)] {
            alone.offer(0, priority, slack, 1_000);
        }
        // Ranks rise in the order of departure, whatever is paused.
        for paused in [Priorities::of(5), Priorities::NONE] {
            let mut ranks = Vec::new();
            while let Some(next) = rank(&alone, paused).filter(|_| ranked) {
                assert!(alone.next(paused).is_some(), "{name}");
                ranks.push(next);
            }
            assert_eq!((ranks.len(), ranks.is_sorted()), (if ranked { 2 } else { 0 }, true), "{name}: {ranks:?}");
        }
    }
}

#[test]
fn of_the_shortest_flow_the_first_packet_goes() {
    let mut alone = Alone::new(6_000, Discipline::ShortestFlow);
    // The remaining size of flow 1 decreases with each packet: its first packet still goes first, before flow 2.
    let a = [9, 4, 3].map(|rank| alone.offer(1, 0, rank, 1_000).0);
    let b = [5, 5].map(|rank| alone.offer(2, 0, rank, 1_000).0);
    assert_eq!(alone.next(Priorities::NONE).unwrap().0, a[0]);
    // One packet of flow 3 that is shorter than all; then there is room for one more.
    let c = alone.offer(3, 0, 1, 1_000).0;
    let d = alone.offer(4, 0, 7, 1_000).0;
    // Full: the largest is evicted for smaller ones only, and of equals the arriving one is dropped.
    assert!(!alone.offer(5, 0, 7, 1_000).1);
    let e = alone.offer(5, 0, 5, 1_000);
    assert!(e.1 && alone.dropped() == 1);
    let order = alone.drain();
    assert_eq!(order, [c, a[1], a[2], b[0], b[1], e.0]);
    assert!(!order.contains(&d));
    // The later of two has the lower rank, which counts for both.
    let f = [8, 2].map(|rank| alone.offer(1, 0, rank, 1_000).0);
    let g = alone.offer(2, 0, 3, 1_000).0;
    assert_eq!(alone.drain(), [f[0], f[1], g]);
}

/// Compares with a list that is searched for each packet.
#[test]
fn shortest_flows_are_those_of_a_list() {
    use rand::RngExt;

    for seed in 0..40 {
        let mut rng = Pcg64Mcg::new(seed);
        let mut alone = Alone::new(20_000, Discipline::ShortestFlow);
        // Flow, rank and number, in order of arrival.
        let mut list: Vec<(u32, i64, PacketId)> = Vec::new();
        for _ in 0..2_000 {
            if rng.random_range(0..5) < 3 {
                let (flow, rank) = (rng.random_range(0..6), rng.random_range(0..9));
                let (id, taken) = alone.offer(flow, 0, rank, 1_000);
                let most = list.iter().map(|(_, rank, _)| *rank).max();
                assert_eq!(taken, list.len() < 20 || most > Some(rank), "seed {seed}");
                if taken && list.len() == 20 {
                    let victim = list.iter().rposition(|(_, rank, _)| Some(*rank) == most).unwrap();
                    list.remove(victim);
                }
                if taken {
                    list.push((flow, rank, id));
                }
            } else {
                let flow = list.iter().min_by_key(|(_, rank, _)| *rank).map(|(flow, ..)| *flow);
                let first = list.iter().position(|(of, ..)| Some(*of) == flow).map(|at| list.remove(at).2);
                assert_eq!(alone.next(Priorities::NONE).map(|(id, _)| id), first, "seed {seed}");
            }
        }
    }
}

#[test]
fn what_waits_for_too_long_is_dropped_flow_by_flow() {
    let mut alone = Alone::new(1_000_000, Discipline::FairCodel);
    let bulk: Vec<PacketId> = (0..300).map(|_| alone.offer(1, 0, 0, 1_000).0).collect();
    let (mut sent, mut sparse) = (Vec::new(), 0);
    // One packet leaves per millisecond; once in 40 ms one of another flow arrives, and is next.
    for ms in 0..250 {
        alone.now = ms * 1_000_000;
        let other = (ms % 40 == 20).then(|| alone.offer(2, 0, 0, 1_000).0);
        let (id, _) = alone.next(Priorities::NONE).unwrap();
        match other {
            Some(other) => sparse += u64::from(id == other),
            None => sent.push(id),
        }
    }
    assert_eq!(sparse, 6);
    // Above the target from 5 ms on, so the first drop is at 105 ms, then at 205 ms.
    assert_eq!((alone.dropped(), alone.switch.backlog(0)), (2, 1_000 * (300 - 2 - sent.len() as u64)));
    let missing: Vec<usize> = (0..sent.len() + 2).filter(|at| !sent.contains(&bulk[*at])).collect();
    assert_eq!(missing, [102, 201]);
    // Without CoDel all are sent.
    let mut plain = Alone::new(1_000_000, Discipline::Fair);
    (0..300).for_each(|_| assert!(plain.offer(1, 0, 0, 1_000).1));
    (0..300).for_each(|ms| {
        plain.now = ms * 1_000_000;
        assert!(plain.next(Priorities::NONE).is_some());
    });
    assert_eq!(plain.dropped(), 0);
}
