//! Streams whose receivers ask for each packet ([`irnic_transports::recovery::Pulled`]), over switches that trim: NDP
//! at the size of its paper's experiments, without a NIC. Packets are the authors': 9,000 bytes of payload and 64 of
//! headers, queues of 72,000 bytes, links of 10 Gbit/s and 1 µs.

use std::collections::{BTreeMap, VecDeque};

use irnic_fabric::Priorities;
use irnic_fabric::network::{
    Content, Endpoint, EndpointCtx, Network, NetworkConfig, Packet, PacketId, Routing, Standstill, address, host_of,
};
use irnic_fabric::switch::{SwitchConfig, TrimmingConfig};
use irnic_fabric::topology::Topology;
use irnic_transports::recovery::{Answer, Class, Feedback, Paths, Penalty, Pulled, Receiver};
use irnic_transports::wire::{Bth, Headers, Opcode};
use irnic_transports::{Path, Psn, Time};

use crate::kit::*;

const PAYLOAD: u32 = 9_000;
const HEADER: u32 = 64;
const FULL: u64 = (PAYLOAD + HEADER) as u64;
const WINDOW: u32 = 23;
/// ps that a full packet takes at 10 Gbit/s.
const INTERVAL: u64 = FULL * 800;

/// A stream that leaves a host.
struct Sending {
    dst: u32,
    stream: Pulled,
    paths: Paths,
    /// Full packets that the stream has.
    packets: u32,
}

impl Sending {
    fn more(&self) -> bool {
        self.stream.high().before(Psn::new(self.packets))
    }
}

/// A stream that reaches a host.
struct Receiving {
    receiver: Receiver,
    paths: Paths,
    owed: u32,
    pulls: u32,
    /// One past the last packet, once that is known.
    last: Option<Psn>,
    /// Whole packets that came since the network began to count.
    whole: u64,
    /// When everything had come, ns.
    done: Option<u64>,
}

/// A host. Acknowledgements and pulls leave before data; pulls of all streams wait in one queue.
struct Host {
    id: u32,
    ways: u16,
    sending: Vec<Sending>,
    turn: usize,
    receiving: BTreeMap<u32, Receiving>,
    /// Sources of streams that are owed pulls.
    pulls: VecDeque<u32>,
    /// When the next pull may go, ps.
    open: u64,
    control: VecDeque<(u32, Headers, u32)>,
    /// From when whole packets are counted, ns.
    counts: u64,
    retransmitted: u64,
    returned: u64,
}

impl Host {
    fn new(id: u32, ways: u16, counts: u64) -> Host {
        Host {
            id,
            ways,
            sending: Vec::new(),
            turn: 0,
            receiving: BTreeMap::new(),
            pulls: VecDeque::new(),
            open: 0,
            control: VecDeque::new(),
            counts,
            retransmitted: 0,
            returned: 0,
        }
    }

    fn paths(&self, peer: u32) -> Paths {
        Paths::new(self.ways, Penalty::Skip, 1 + self.id * 65_537 + peer).unwrap()
    }

    /// Has a stream of so many packets begin.
    fn send_to(&mut self, dst: u32, packets: u32, window: u32) {
        let stream = Pulled::new(Psn::new(0), window, 256, 0).unwrap();
        let paths = self.paths(dst);
        self.sending.push(Sending { dst, stream, paths, packets });
    }

    /// A feedback packet of a stream that comes from `src`: what it says is in fields that feedback has no other use
    /// for.
    fn feedback(&mut self, src: u32, subject: Option<(Psn, Answer, u16)>, pull: bool) {
        let r = self.receiving.get_mut(&src).unwrap();
        if pull {
            r.pulls += 1;
        }
        let mut headers = Headers::new(Bth::new(Opcode::RcAcknowledge, 0, r.receiver.expected()));
        let kind = match subject {
            None => 0,
            Some((_, Answer::Arrived { again }, _)) => 1 + u64::from(again),
            Some((_, Answer::Trimmed, _)) => 3,
        };
        let (psn, path) = subject.map_or((0, 0), |(psn, _, path)| (psn.get(), path));
        let number = if pull { u64::from(r.pulls & 0xff_ffff) } else { 0 };
        headers.atomic_ack = Some(kind << 50 | u64::from(pull) << 49 | u64::from(psn) << 24 | number);
        headers.imm = Some(path.into());
        let way = r.paths.next_path();
        self.control.push_back((src, headers, way.into()));
    }

    fn data(&mut self, now: u64, src: u32, headers: &Headers, path: u16, trimmed: bool) {
        let paths = self.paths(src);
        let r = self.receiving.entry(src).or_insert_with(|| Receiving {
            receiver: Receiver::new(Psn::new(0), Psn::new(0), 256),
            paths,
            owed: 0,
            pulls: 0,
            last: None,
            whole: 0,
            done: None,
        });
        let psn = headers.bth.psn;
        let known = psn.before(r.receiver.expected());
        let new = !known && !matches!(r.receiver.locate(psn), irnic_transports::recovery::Arrival::Duplicate);
        if headers.bth.solicited {
            r.last = Some(psn.plus(1));
        }
        let answer = match (new, trimmed) {
            (false, _) => Answer::Arrived { again: true },
            (true, true) => Answer::Trimmed,
            (true, false) => {
                r.receiver.receive_data(psn, Class::Middle);
                r.whole += u64::from(now >= self.counts);
                Answer::Arrived { again: false }
            }
        };
        let over = r.last == Some(r.receiver.expected());
        if over {
            r.done.get_or_insert(now);
            r.owed = 0;
        }
        let rides = new && !over && self.pulls.is_empty() && self.open <= now * 1000;
        if rides {
            self.open = now * 1000 + INTERVAL;
        } else if new && !over {
            r.owed += 1;
            if r.owed == 1 && !self.pulls.contains(&src) {
                self.pulls.push_back(src);
            }
        }
        self.feedback(src, Some((psn, answer, path)), rides);
    }
}

impl Endpoint for Host {
    type Shared = ();

    fn wants_tx(&mut self, _: Priorities) -> bool {
        !self.control.is_empty() || self.sending.iter().any(|s| s.stream.wants_tx(s.more()))
    }

    fn poll_transmit(&mut self, ctx: &mut EndpointCtx<'_, ()>) -> Option<PacketId> {
        let path = |dst, way: u32| Path {
            src: address(ctx.host),
            dst: address(dst),
            udp_src: 0xc000 | way as u16,
            traffic_class: 0,
            hop_limit: 64,
        };
        if let Some((dst, headers, way)) = self.control.pop_front() {
            return Some(ctx.send(Packet::new(HEADER, dst, way, 0), Content::new(headers, path(dst, way), 0)));
        }
        let n = self.sending.len();
        let at = (0..n).map(|k| (self.turn + k) % n).find(|&at| {
            let s = &self.sending[at];
            s.stream.wants_tx(s.more())
        })?;
        self.turn = at + 1;
        let s = &mut self.sending[at];
        let way = s.paths.next_path();
        let turn = s.stream.tx_free(Time(ctx.now), s.more(), way)?;
        if turn.fresh && !s.more() {
            s.stream.mark_last();
        }
        self.retransmitted += u64::from(!turn.fresh);
        let mut headers = Headers::new(Bth::new(Opcode::RcWriteOnly, 0, turn.psn));
        headers.bth.solicited = s.stream.is_last(turn.psn);
        let (dst, way) = (s.dst, u32::from(way));
        Some(ctx.send(Packet::new(FULL as u32, dst, way, 0), Content::new(headers, path(dst, way), PAYLOAD)))
    }

    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, ()>) {
        let (packet, content) = (ctx.packets.get(id), ctx.packets.content(id));
        let (peer, headers) = (host_of(content.path.src), content.headers);
        if packet.is_returned() {
            self.returned += 1;
            let s = self.sending.iter_mut().find(|s| s.dst == peer).expect("it came from here");
            if let Some(path) = s.stream.returned(headers.bth.psn) {
                s.paths.failed(path, 3);
            }
            return;
        }
        let Some(word) = headers.atomic_ack else {
            return self.data(ctx.now, peer, &headers, content.path.udp_src & 0x3fff, packet.is_trimmed());
        };
        let s = self.sending.iter_mut().find(|s| s.dst == peer).expect("a stream to whoever answers");
        let answer = match word >> 50 {
            0 => None,
            3 => Some(Answer::Trimmed),
            kind => Some(Answer::Arrived { again: kind == 2 }),
        };
        let feedback = Feedback {
            cumulative: headers.bth.psn,
            answer: answer.map(|answer| (Psn::new((word >> 24) as u32), answer)),
            pull: (word >> 49 & 1 == 1).then(|| Psn::new(word as u32)),
            owes_none: false,
        };
        match s.stream.receive(&feedback).expect("nobody lies") {
            Some((path, true)) => s.paths.arrived(path),
            Some((path, false)) => s.paths.failed(path, 1),
            None => {}
        }
        assert!(s.stream.in_use() <= WINDOW as i32, "{:?}", s.stream);
    }

    fn on_deadline(&mut self, now: u64) {
        while self.open <= now * 1000
            && let Some(src) = self.pulls.pop_front()
        {
            let r = self.receiving.get_mut(&src).unwrap();
            if r.owed == 0 {
                continue;
            }
            r.owed -= 1;
            if r.owed > 0 {
                self.pulls.push_back(src);
            }
            self.feedback(src, None, true);
            // The deadline came up to 1 ns late.
            self.open = self.open.max(now.saturating_sub(1) * 1000) + INTERVAL;
        }
    }

    fn next_deadline(&self) -> u64 {
        if self.pulls.is_empty() { u64::MAX } else { self.open.div_ceil(1000) }
    }
}

type Net = Network<Host>;

/// A fat-tree of `k`-port switches, 10 Gbit/s and 1 µs, whose whole packets are counted from `counts` ns on; `streams`
/// are source, destination, packets.
fn net(k: u32, routing: Routing, counts: u64, streams: &[(u32, u32, u32)]) -> Net {
    let topology = Topology::fat_tree(k, 10 * G, 1_000);
    let ways = (k * k / 4) as u16;
    let mut hosts: Vec<Host> = (0..topology.hosts).map(|id| Host::new(id, ways, counts)).collect();
    for &(src, dst, packets) in streams {
        hosts[src as usize].send_to(dst, packets, WINDOW);
    }
    let switch = SwitchConfig::Trimming(TrimmingConfig::new(72_000));
    let config = with! { routing, ..NetworkConfig::new(topology, switch) };
    let mut net = Network::new(config, hosts, ()).unwrap();
    net.watch();
    (0..net.endpoints().count() as u32).for_each(|host| net.settle(host));
    net
}

/// Goodput of each host, Gbit/s, from `from` to `until` ns.
fn goodputs(net: &Net, from: u64, until: u64) -> Vec<f64> {
    let mut all: Vec<f64> = net
        .endpoints()
        .map(|host| {
            let whole: u64 = host.receiving.values().map(|r| r.whole).sum();
            (whole * u64::from(PAYLOAD) * 8) as f64 / (until - from) as f64
        })
        .collect();
    all.sort_unstable_by(f64::total_cmp);
    all
}

/// Every host to another, in one cycle through all of them, drawn from a seed (Sattolo's algorithm).
fn permutation(hosts: u32, mut seed: u32) -> Vec<(u32, u32, u32)> {
    let mut to: Vec<u32> = (0..hosts).collect();
    for at in (1..hosts).rev() {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        to.swap(at as usize, ((u64::from(seed) * u64::from(at)) >> 32) as usize);
    }
    (0..hosts).map(|src| (src, to[src as usize], 1 << 22)).collect()
}

/// NDP §6.2 and §3.3: all links of 128 hosts are nearly full if senders choose ways, and little is trimmed on the way
/// up; switches that choose by chance trim several times as much there.
#[test]
fn a_permutation_fills_its_links_if_senders_choose_ways() {
    let run = |routing| {
        let (from, until) = (1_000_000, 3_000_000);
        let mut net = net(8, routing, from, &permutation(128, 1));
        let upwards = |net: &Net| {
            let trimmed: u64 = net.links().filter(|l| l.upwards).map(|l| l.counters.trimmed).sum();
            let whole: u64 = net.endpoints().flat_map(|host| host.receiving.values()).map(|r| r.whole).sum();
            (trimmed, whole)
        };
        assert_eq!(net.run_until(from), None);
        let (before, _) = upwards(&net);
        assert_eq!(net.run_until(until), None);
        net.check().unwrap();
        let all = goodputs(&net, from, until);
        let (after, whole) = upwards(&net);
        let share = (after - before) as f64 / whole as f64;
        assert_eq!((net.totals().dropped_packets, net.totals().returned_packets), (0, 0));
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        eprintln!("{routing:?}: mean {mean:.3}, least {:.3} Gbit/s, {:.4} % trimmed upwards", all[0], 100.0 * share);
        (mean, all[0], share)
    };
    let (mean, least, source) = run(Routing::Source);
    assert!(mean > 9.4 && least > 8.8, "{mean} {least}");
    let (_, _, random) = run(Routing::Random);
    // Of packets delivered whole, from the second millisecond on: 1.0 % and 6.7 %. The paper's 0.01 % (and 2.4 %) are
    // not met.
    assert!(source < 0.015 && random > 4.0 * source, "{source} {random}");
}

/// NDP figures 16 and 4: 100 senders of 450 kB each to one. Nothing is lost, the receiver's link is never idle, all
/// senders are served alike, and what is trimmed or sent back is of the first windows.
#[test]
fn an_incast_takes_as_long_as_its_bytes() {
    let (senders, packets) = (100, 50);
    // None near the receiver: those begin when nobody else's packets have arrived, and are done earlier.
    let streams: Vec<_> = (128 - senders..128).map(|src| (src, 0, packets)).collect();
    let mut net = net(8, Routing::Source, 0, &streams);
    // The first windows take 167 µs to send.
    net.run_until(400_000);
    let early = (net.totals().trimmed_packets, net.totals().returned_packets);
    eprintln!("trimmed and sent back in the first 400 us: {early:?}");
    assert_eq!(net.run_until(u64::MAX), Some(Standstill::Stuck), "nothing is left to do");
    net.check().unwrap();
    let t = net.totals();
    assert_eq!(t.dropped_packets, 0);
    let mut done: Vec<u64> = net.endpoint(0).receiving.values().map(|r| r.done.expect("all of it")).collect();
    done.sort_unstable();
    let (first, last) = (done[0] as f64, done[done.len() - 1] as f64);
    // Six links, store and forward, then every packet once.
    let best = (6.0 * (1_000.0 + FULL as f64 * 0.8)) + (u64::from(senders * packets) - 1) as f64 * FULL as f64 * 0.8;
    let again: u64 = net.endpoints().map(|host| host.retransmitted).sum();
    eprintln!(
        "last {:.4} of the best, last/first {:.3}, {} trimmed, {} sent back, {again} again of {}",
        last / best,
        last / first,
        t.trimmed_packets,
        t.returned_packets,
        senders * packets
    );
    assert!(last / best < 1.02 && last / first < 1.25, "{last} {best} {first}");
    // Once packets are asked for they find room, but for a few that were sent back and go unasked.
    assert!(t.trimmed_packets - early.0 < 25 && t.returned_packets == early.1, "{early:?} {t:?}");
    assert!(again < 2_400);
}

/// NDP figure 21: A sends to B, C, D and E, and F to E. A's four share its link alike, and F has what is left of E's.
#[test]
fn a_sender_of_four_and_a_receiver_of_two_are_both_full() {
    let (a, f, e) = (0, 20, 60);
    let streams = [(a, 30, 1 << 22), (a, 40, 1 << 22), (a, 50, 1 << 22), (a, e, 1 << 22), (f, e, 1 << 22)];
    let (from, until) = (2_000_000, 12_000_000);
    let mut net = net(8, Routing::Source, from, &streams);
    assert_eq!(net.run_until(until), None);
    net.check().unwrap();
    let got = |dst: u32, src: u32| {
        let whole = net.endpoint(dst).receiving[&src].whole;
        (whole * u64::from(PAYLOAD) * 8) as f64 / (until - from) as f64
    };
    let four = [30, 40, 50, e].map(|dst| got(dst, a));
    let other = got(e, f);
    eprintln!("A: {four:.3?}, F to E: {other:.3}");
    assert!(four.iter().all(|rate| *rate > 2.3 && *rate < 2.65), "{four:?}");
    assert!((other - 7.5).abs() < 0.15, "{other}");
    let (sent, at_e) = (four.iter().sum::<f64>(), four[3] + other);
    assert!(sent > 9.73 && at_e > 9.73, "{sent} {at_e}");
}
