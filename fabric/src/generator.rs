//! Packet generators: endpoints without a transport. They send what is due regardless of losses, and count what
//! arrives: for testing switches, and as background load.

use std::collections::VecDeque;

use irnic_transports::wire::{Bth, Headers, Opcode};
use irnic_transports::{Colour, Path, Psn};

use crate::network::{Content, Endpoint, EndpointCtx, Packet, PacketId, address, host_of, mix};
use crate::priorities::Priorities;
use crate::sim::ENCAPSULATION;
use crate::workload::random::{Purpose, Random};

/// Time between the packets of a stream.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Gap {
    /// Constant, ns. With 0, all packets are due at once.
    Constant(u64),
    /// Exponentially distributed with this mean, ns: a Poisson process.
    Poisson(f64),
}

/// Packets of one kind to one host.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stream {
    /// Destination host.
    pub dst: u32,
    /// Length of each packet on the wire, including headers, bytes.
    pub wire: u32,
    /// 0 to 7.
    pub priority: u8,
    /// Time from the start of one packet to the start of the next.
    pub gap: Gap,
    /// Time at which the first packet is due, ns; with [`Gap::Poisson`], one gap later.
    pub start: u64,
    /// Number of packets.
    pub packets: u64,
    /// Whether switches may mark the packets (ECT).
    pub ect: bool,
    /// Drop precedence.
    pub colour: Colour,
    /// [`Packet::slack`] at the start, ns.
    pub slack: i64,
}

impl Stream {
    /// `packets` packets of `wire` bytes to `dst`, `gap` apart from time 0 on: priority 0, not ECN-capable, green, no
    /// slack.
    pub fn new(dst: u32, wire: u32, packets: u64, gap: Gap) -> Stream {
        Stream { dst, wire, priority: 0, gap, start: 0, packets, ect: false, colour: Colour::Green, slack: 0 }
    }
}

/// Packets received by a generator.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Packets that arrived.
    pub packets: u64,
    /// Bytes on the wire of packets that arrived.
    pub bytes: u64,
    /// Packets that had been trimmed.
    pub trimmed: u64,
    /// Packets that had met congestion (ECN).
    pub marked: u64,
    /// Sum over the packets of the time from the first bit at the sender to the last here, ns.
    pub delay: u64,
    /// The longest such time, ns.
    pub longest: u64,
    /// Arrival time of the last packet, ns.
    pub last: u64,
}

/// A stream, and its progress.
#[derive(Copy, Clone, Debug)]
struct Running {
    stream: Stream,
    /// Time at which the next packet is due, ns with fraction.
    next: f64,
    left: u64,
}

/// An endpoint that sends streams of packets. Packets that are due while the link is busy or paused are queued in that
/// order.
#[derive(Debug)]
pub struct Generator {
    streams: Vec<Running>,
    random: Random,
    /// Streams with packets due.
    due: VecDeque<u32>,
    /// Number of packets queued, by priority.
    waiting: [u64; Priorities::COUNT],
    /// Whether packets have labels in place of the ECMP hash input.
    labels: bool,
    sent: u64,
    received: Received,
    /// Packets that arrived with their payload, by source host.
    whole: Vec<u64>,
    /// Packets that arrived, by priority.
    by_priority: [u64; Priorities::COUNT],
}

impl Generator {
    /// A generator of these streams. Poisson processes draw from `seed`, which should differ between hosts.
    pub fn new(streams: Vec<Stream>, seed: u64) -> Generator {
        let mut random = Random::new(seed, Purpose::Packets, 0, 0);
        let running = |stream: Stream| {
            let first = match stream.gap {
                Gap::Constant(_) => 0.0,
                Gap::Poisson(mean) => random.exponential() * mean,
            };
            Running { stream, next: stream.start as f64 + first, left: stream.packets }
        };
        let streams = streams.into_iter().map(running).collect();
        let (due, waiting) = (VecDeque::new(), [0; Priorities::COUNT]);
        Generator {
            streams,
            random,
            due,
            waiting,
            labels: false,
            sent: 0,
            received: Received::default(),
            whole: Vec::new(),
            by_priority: [0; Priorities::COUNT],
        }
    }

    /// A generator of these streams for networks in which senders choose paths ([`crate::network::Routing::Source`]):
    /// the label of a packet is the index of its stream.
    pub fn labelling(streams: Vec<Stream>, seed: u64) -> Generator {
        Generator { labels: true, ..Generator::new(streams, seed) }
    }

    /// A generator that sends nothing, and counts arrivals.
    pub fn sink() -> Generator {
        Generator::new(Vec::new(), 0)
    }

    /// Packets sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Packets received.
    pub fn received(&self) -> &Received {
        &self.received
    }

    /// Number of packets of a priority received.
    pub fn of_priority(&self, priority: u8) -> u64 {
        self.by_priority[usize::from(priority % 8)]
    }

    /// Number of packets received from a host with their payload.
    pub fn whole_from(&self, host: u32) -> u64 {
        self.whole.get(host as usize).copied().unwrap_or(0)
    }
}

impl Endpoint for Generator {
    type Shared = ();

    fn wants_tx(&mut self, paused: Priorities) -> bool {
        (0..8).any(|priority| self.waiting[usize::from(priority)] > 0 && !paused.contains(priority))
    }

    fn poll_transmit(&mut self, ctx: &mut EndpointCtx<'_, ()>) -> Option<PacketId> {
        let paused = ctx.paused();
        let allowed = |&of: &u32| !paused.contains(self.streams[of as usize].stream.priority);
        let of = self.due.iter().position(allowed).and_then(|at| self.due.remove(at))?;
        let stream = self.streams[of as usize].stream;
        self.waiting[usize::from(stream.priority)] -= 1;
        let headers = Headers::new(Bth::new(Opcode::UdSendOnly, of, Psn::new(self.sent as u32 & 0xff_ffff)));
        let payload = stream.wire.saturating_sub(headers.frame_len(0) as u32 + ENCAPSULATION);
        let path = Path {
            src: address(ctx.host),
            dst: address(stream.dst),
            udp_src: 0xc000 | (of & 0x3fff) as u16,
            traffic_class: stream.priority << 5 | if stream.ect { 2 } else { 0 },
            hop_limit: 64,
        };
        let hashed = mix(ctx.host ^ mix(stream.dst ^ mix(u32::from(path.udp_src))));
        let entropy = if self.labels { of } else { hashed };
        let mut packet = Packet::new(stream.wire, stream.dst, entropy, stream.priority);
        packet.src_qp = of;
        packet.slack = stream.slack;
        packet.set_colour(stream.colour);
        self.sent += 1;
        Some(ctx.send(packet, Content::new(headers, path, payload)))
    }

    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, ()>) {
        let (packet, content) = (ctx.packets.get(id), ctx.packets.content(id));
        let r = &mut self.received;
        let delay = ctx.now - content.sent;
        r.packets += 1;
        r.bytes += u64::from(packet.wire);
        r.trimmed += u64::from(packet.is_trimmed());
        r.marked += u64::from(content.path.is_congested());
        r.delay += delay;
        r.longest = r.longest.max(delay);
        r.last = ctx.now;
        self.by_priority[usize::from(packet.priority)] += 1;
        if !packet.is_trimmed() {
            let from = host_of(content.path.src) as usize;
            if self.whole.len() <= from {
                self.whole.resize(from + 1, 0);
            }
            self.whole[from] += 1;
        }
    }

    fn on_deadline(&mut self, now: u64) {
        for (of, running) in (0..).zip(&mut self.streams) {
            while running.left > 0 && running.next as u64 <= now {
                running.left -= 1;
                running.next += match running.stream.gap {
                    Gap::Constant(gap) => gap as f64,
                    Gap::Poisson(mean) => self.random.exponential() * mean,
                };
                self.due.push_back(of);
                self.waiting[usize::from(running.stream.priority)] += 1;
            }
        }
    }

    fn next_deadline(&self) -> u64 {
        let running = self.streams.iter().filter(|running| running.left > 0);
        running.map(|running| running.next as u64).min().unwrap_or(u64::MAX)
    }
}
