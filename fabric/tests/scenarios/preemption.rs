//! Switches that interrupt what they send for what has to leave earlier.

use irnic_fabric::Priorities;
use irnic_fabric::generator::{Gap, Stream};
use irnic_fabric::network::{
    Change, Content, Endpoint, EndpointCtx, LinkChange, Network, NetworkConfig, NetworkError, Packet, PacketId,
    address, host_of,
};
use irnic_fabric::schedule::Detail;
use irnic_fabric::sim::{Parallel, SimError, Simulation};
use irnic_fabric::switch::{
    BreakerConfig, Discipline, HolConfig, OutputQueuedConfig, Remedy, RoccConfig, SwitchConfig, Thresholds,
};
use irnic_fabric::topology::Topology;
use irnic_transports::wire::{Bth, Headers, Opcode};
use irnic_transports::{Path, Psn};

use crate::kit::*;

/// A packet: when its host begins to send it, ns, its destination, bytes on the wire, slack and priority.
#[derive(Copy, Clone, Debug)]
struct Shot(u64, u32, u32, i64, u8);

/// A packet that has arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// Its sender, and its place among the sender's packets.
    from: (u32, usize),
    wire: u32,
    sent: u64,
    at: u64,
    /// What it was sent with, and what was left.
    slack: (i64, i64),
}

/// Sends packets, in order of time, and notes what arrives.
#[derive(Debug, Default)]
struct Host {
    shots: Vec<Shot>,
    next: usize,
    due: usize,
    seen: Vec<Seen>,
}

impl Endpoint for Host {
    type Shared = ();

    fn wants_tx(&mut self, _paused: Priorities) -> bool {
        self.due > 0
    }

    fn poll_transmit(&mut self, ctx: &mut EndpointCtx<'_, ()>) -> Option<PacketId> {
        let Shot(_, dst, wire, slack, priority) = *self.shots.get(self.next)?;
        (self.next, self.due) = (self.next + 1, self.due - 1);
        let path = Path { src: address(ctx.host), dst: address(dst), udp_src: 0, traffic_class: 0, hop_limit: 64 };
        let headers = Headers::new(Bth::new(Opcode::UdSendOnly, 0, Psn::new(self.next as u32)));
        let mut packet = Packet::new(wire, dst, 0, priority);
        packet.slack = slack;
        Some(ctx.send(packet, Content::new(headers, path, wire - 100)))
    }

    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, ()>) {
        let (packet, content) = (ctx.packets.get(id), ctx.packets.content(id));
        let place = content.headers.bth.psn.get() as usize - 1;
        self.seen.push(Seen {
            from: (host_of(content.path.src), place),
            wire: packet.wire,
            sent: content.sent,
            at: ctx.now,
            slack: (content.slack, packet.slack),
        });
    }

    fn on_deadline(&mut self, now: u64) {
        self.due = self.shots[self.next..].iter().take_while(|shot| shot.0 <= now).count();
    }

    fn next_deadline(&self) -> u64 {
        self.shots.get(self.next + self.due).map_or(u64::MAX, |shot| shot.0)
    }
}

fn by(discipline: Discipline, buffer: u64) -> SwitchConfig {
    SwitchConfig::OutputQueued(with! { preempts: true, ..OutputQueuedConfig::new(buffer, discipline) })
}

/// Three hosts at 10 Gbit/s and one, the fourth, at 1 Gbit/s, a µs away from their switch each.
fn slow() -> Topology {
    star(&[10 * G, 10 * G, 10 * G, G])
}

/// Runs packets of hosts to the end; returns the network and what hosts have seen. At any ns the accounts hold.
fn run_shots(config: NetworkConfig, shots: Vec<Vec<Shot>>) -> (Network<Host>, Vec<Vec<Seen>>) {
    let n = shots.len() as u32;
    let hosts = shots.into_iter().map(|shots| Host { shots, ..Host::default() }).collect();
    let mut net = Network::new(config, hosts, ()).unwrap();
    loop {
        let next = net.next_event();
        if next == u64::MAX {
            break;
        }
        net.run_until(next);
        net.check().unwrap();
    }
    assert!(net.packets().is_empty());
    let seen = (0..n).map(|host| net.endpoint(host).seen.clone()).collect();
    (net, seen)
}

/// What is sent to the fourth host by three, as it arrives: sender, bytes on the wire, and when.
fn at_the_slow_one(discipline: Discipline, shots: [&[Shot]; 3]) -> Vec<(u32, u32, u64)> {
    let shots = shots.into_iter().map(<[Shot]>::to_vec).chain([vec![]]).collect();
    let (net, seen) = run_shots(NetworkConfig::new(slow(), by(discipline.clone(), DEEP)), shots);
    let sent: u64 = seen[3].iter().map(|seen| u64::from(seen.wire)).sum();
    // Pieces are not packets.
    let out = net.links().find(|link| (link.from, link.to) == (4, 3)).unwrap().counters;
    assert_eq!((out.packets, out.bytes), (seen[3].len() as u64, sent));
    assert!(discipline == Discipline::LeastSlack || seen[3].iter().all(|seen| seen.slack.0 == seen.slack.1));
    seen[3].iter().map(|seen| (seen.from.0, seen.wire, seen.at)).collect()
}

/// A packet that is at the switch at this time: `wire` bytes take 0.8 ns each there.
fn there_at(at: u64, wire: u32, slack: i64) -> Shot {
    Shot(at - 1_000 - u64::from(wire) * 4 / 5, 3, wire, slack, 0)
}

#[test]
fn a_long_packet_is_interrupted_twice() {
    // 1500 bytes are there at 2200 and would take 12 µs. 500, 4 µs, are there at 5000: 9200 ns are left. They go on at
    // 9000, and 250 bytes, 2 µs, are there at 10,000, when 8200 are left; these end at 20,200. Another of their rank,
    // there at 11,000, waits until then, and so do 125 bytes of a higher one, 1 µs.
    let long = [there_at(2_200, 1_500, 9)];
    let first = [there_at(5_000, 500, 3), there_at(11_000, 1_250, 9)];
    let second = [there_at(10_000, 250, 8), there_at(14_000, 125, 10)];
    let seen = at_the_slow_one(Discipline::Rank, [&long, &first, &second]);
    let expected = [(1, 500, 10_000), (2, 250, 13_000), (0, 1_500, 21_200), (1, 1_250, 31_200), (2, 125, 32_200)];
    assert_eq!(seen, expected);
}

#[test]
fn interruptions_nest_and_the_lowest_rank_goes_on_first() {
    // 1250 bytes each, 10 µs, there at 2000, 3000 and 4000: 9000 ns are left of either that is interrupted. The last to
    // come is above the second, and below the first.
    let first = [there_at(2_000, 1_250, 9), there_at(5_000, 125, 7)];
    let seen = at_the_slow_one(Discipline::Rank, [&first, &[there_at(3_000, 1_250, 5)], &[there_at(4_000, 1_250, 1)]]);
    let expected = [(2, 1_250, 15_000), (1, 1_250, 24_000), (0, 125, 25_000), (0, 1_250, 34_000)];
    assert_eq!(seen, expected);
}

#[test]
fn who_comes_at_the_end_interrupts_nothing_and_who_comes_at_the_beginning_does() {
    // 1250 bytes from 2,000 to 12,000.
    for (at, expected) in [
        (12_000, [(0, 1_250, 13_000), (1, 125, 14_000)]),
        (11_999, [(1, 125, 13_999), (0, 1_250, 14_000)]),
        (2_000, [(1, 125, 4_000), (0, 1_250, 14_000)]),
    ] {
        let seen = at_the_slow_one(Discipline::Rank, [&[there_at(2_000, 1_250, 9)], &[there_at(at, 125, 3)], &[]]);
        assert_eq!(seen, expected, "{at}");
    }
}

#[test]
fn highest_priorities_interrupt_lower_ones_and_not_each_other() {
    let shot = |at, wire, priority| Shot(there_at(at, wire, 0).0, 3, wire, 0, priority);
    let shots = [[shot(2_000, 1_250, 1)], [shot(3_000, 250, 1)], [shot(4_000, 125, 2)]];
    let seen = at_the_slow_one(Discipline::Priority, shots.each_ref().map(|shots| &shots[..]));
    assert_eq!(seen, [(2, 125, 6_000), (0, 1_250, 14_000), (1, 250, 16_000)]);
}

/// Packets of many lengths and slacks, from the hosts 0 to 3 to 4 and 5; no host sends two at a time.
fn medley() -> Vec<Vec<Shot>> {
    let shot = |host: u64, n: u64| {
        let mixed = (n * 7 + host * 13) % 31;
        let wire = 125 + (mixed * 97 % 1_400) as u32;
        Shot(n * 4_500 + mixed * 60, 4 + (mixed % 2) as u32, wire, 200 * (mixed as i64 * 11 % 29), 0)
    };
    (0..4).map(|host| (0..100).map(|n| shot(host, n)).collect()).chain([vec![], vec![]]).collect()
}

/// Four hosts left of two switches and two right of them.
fn dumbbell([left, middle, right]: [u64; 3]) -> Topology {
    let mut links = vec![(6, 7, middle, 3_001)];
    links.extend((0..4).map(|host| (host, 6, left, 1_000)));
    links.extend((4..6).map(|host| (host, 7, right, 701)));
    network(6, 2, &links)
}

/// What slack a packet has lost is what it was longer under way, to the ns: also where packets take no whole number of
/// ns.
#[test]
fn waiting_and_interruptions_use_slack_up() {
    for rates in [[10 * G, 2 * G, G], [10 * G, 1_333_333_333, 777_777_777], [9_999_999_937, G, G + 1]] {
        let lost = |switch| {
            let (_, seen) = run_shots(NetworkConfig::new(dumbbell(rates), switch), medley());
            let all: Vec<Seen> = seen.concat();
            assert_eq!(all.len(), 400);
            for seen in &all {
                let bits = |rate: u64| (u64::from(seen.wire) * 8 * G).div_ceil(rate);
                let fastest = rates.map(bits).iter().sum::<u64>() + 1_000 + 3_001 + 701;
                let lost = seen.slack.0 - seen.slack.1;
                assert_eq!((seen.at - seen.sent) as i64, fastest as i64 + lost, "{seen:?}, {rates:?}");
            }
            all.iter().map(|seen| seen.slack.0 - seen.slack.1).collect::<Vec<_>>()
        };
        let in_one_piece = SwitchConfig::OutputQueued(OutputQueuedConfig::new(DEEP, Discipline::LeastSlack));
        assert_ne!(lost(by(Discipline::LeastSlack, DEEP)), lost(in_one_piece));
    }
}

#[test]
fn what_has_begun_does_not_fill_the_buffer_and_is_not_dropped() {
    // Room for one packet of 1250 bytes, 10 µs. The first is interrupted by the second; the third waits, and gives way
    // to the fourth, though the first has more slack.
    let shots = vec![
        vec![there_at(2_000, 1_250, 90_000), there_at(5_000, 1_250, 60_000)],
        vec![there_at(3_000, 1_250, 50_000)],
        vec![there_at(4_000, 1_250, 70_000)],
        vec![],
    ];
    let (net, seen) = run_shots(NetworkConfig::new(slow(), by(Discipline::LeastSlack, 1_250)), shots);
    let order: Vec<_> = seen[3].iter().map(|seen| (seen.from, seen.at, seen.slack.1)).collect();
    // 8 and 20 µs are gone of the slack of those that waited, and nothing of the other's.
    assert_eq!(order, [((1, 0), 14_000, 50_000), ((0, 1), 24_000, 52_000), ((0, 0), 33_000, 70_000)]);
    let dropped: u64 = net.links().map(|link| link.counters.dropped).sum();
    let out = net.links().find(|link| (link.from, link.to) == (4, 3)).unwrap().counters;
    assert_eq!((dropped, out.peak), (1, 1_250));
}

#[test]
fn what_has_begun_is_lost_with_the_link() {
    // As where interruptions nest, and one more that waits. The link is down from 6 to 7 µs; then one comes through.
    let shots = vec![
        vec![there_at(2_000, 1_250, 9), there_at(5_000, 1_250, 10)],
        vec![there_at(3_000, 1_250, 5), there_at(8_000, 1_250, 9)],
        vec![there_at(4_000, 1_250, 1)],
        vec![],
    ];
    let change = |at, what| LinkChange { at, link: 3, what };
    let changes = vec![change(6_000, Change::Down), change(7_000, Change::Up)];
    let config = with! { changes, ..NetworkConfig::new(slow(), by(Discipline::Rank, DEEP)) };
    let (net, seen) = run_shots(config, shots);
    let lost: u64 = net.links().map(|link| link.counters.lost).sum();
    assert_eq!((lost, seen[3].len(), seen[3][0].from), (4, 1, (1, 1)));
    // The line is busy until what was cut off would have ended.
    assert_eq!(seen[3][0].at, 14_000 + 10_000 + 1_000);
}

#[test]
fn a_neighbour_that_pauses_loses_nothing() {
    // Two switches between three hosts and a slow one. The second has PFC and room for what comes within a round trip;
    // it pauses priorities 1 and 2 while packets of these wait in pieces.
    let links = [(0, 4, 40 * G, 500), (1, 4, 40 * G, 500), (2, 4, 40 * G, 500), (4, 5, 10 * G, 500), (5, 3, G, 500)];
    let topology = network(4, 2, &links);
    let pausing = input_queued(60_000, Some(Thresholds { xoff: 20_000, xon: 15_000 }));
    let differing = vec![(5, pausing)];
    let config = with! { differing, ..NetworkConfig::new(topology, by(Discipline::Priority, DEEP)) };
    let stream = |priority: u8, gap| with! { priority, ..Stream::new(3, WIRE as u32, 200, Gap::Constant(gap)) };
    let streams = vec![vec![stream(1, 2_700)], vec![stream(2, 3_100)], vec![stream(3, 20_000)], vec![]];
    let net = stream_until(config, streams, u64::MAX);
    assert_eq!([1, 2, 3].map(|priority| net.endpoint(3).of_priority(priority)), [200; 3]);
    assert!(link(&net, 5, 4).pauses > 10 && link(&net, 4, 5).paused > 100_000);
}

#[test]
fn threads_come_to_the_same() {
    let flows = || (0..16).map(|host| with_priority(host as u8 % 8, flow(host, 15 - host, 100))).collect();
    for (discipline, nics) in [(Discipline::Priority, "irn"), (Discipline::LeastSlack, "irn,slack=fct:1us")] {
        let config = |switch| config(Topology::fat_tree(4, 10 * G, 700), flows(), switch, nics);
        let one = complete(config(by(discipline.clone(), DEEP)));
        let parallel = Parallel::new(config(by(discipline.clone(), DEEP)), 3).unwrap().finish().unwrap();
        assert_eq!(format!("{parallel:?}"), format!("{one:?}"));
        let in_one_piece = SwitchConfig::OutputQueued(OutputQueuedConfig::new(DEEP, discipline));
        assert_ne!(fcts(&one), fcts(&complete(config(in_one_piece))));
    }
}

#[test]
fn packets_in_pieces_carry_their_bytes() {
    let flows = || (0..6).map(|host| flow(host, (host + 1) % 6, 50)).chain([flow(0, 2, 1), flow(3, 1, 2)]).collect();
    let config = config(star(&[10 * G; 6]), flows(), by(Discipline::LeastSlack, 20 * WIRE), "irn,slack=fct:1us");
    complete(with! { carry_bytes: true, ..config });
}

#[test]
fn what_needs_packets_in_one_piece_is_refused() {
    let network = || NetworkConfig::new(slow(), by(Discipline::LeastSlack, DEEP));
    let hosts = || (0..4).map(|_| Host::default()).collect();
    let refused = |config| Network::new(config, hosts(), ()).map(drop).unwrap_err();
    for (config, what) in [
        (with! { rocc: Some(RoccConfig::default()), ..network() }, "congestion points of RoCC"),
        (
            with! { hol: Some(HolConfig::Breaker(BreakerConfig::new(Remedy::Drop))), ..network() },
            "means against head-of-line blocking",
        ),
    ] {
        assert_eq!(refused(config), NetworkError::Preemption(what));
    }
    // Where no order is by rank, nothing is interrupted.
    assert!(Network::new(NetworkConfig::new(slow(), by(Discipline::Fifo, DEEP)), hosts(), ()).is_ok());
    let flows = vec![flow(0, 3, 1)];
    let recorded = config(slow(), flows, by(Discipline::LeastSlack, DEEP), "irn");
    let of = |detail| Simulation::new(with! { schedule: Some(detail), ..recorded.clone() }).map(drop);
    assert!(matches!(of(Detail::Hops), Err(SimError::Hops)) && of(Detail::Ends).is_ok());
}
