//! A switch that trims payloads rather than dropping packets: NDP's (§3.1 of "Re-architecting datacenter networks and
//! stacks for low latency and high performance", SIGCOMM 2017), and Cut Payload's for comparison.

use rand::RngExt;

use super::{Dequeue, Switch, SwitchCtx, Verdict};
use crate::network::{Fifo, PacketId, Packets, Port};
use crate::prefetch::fetch;
use crate::priorities::Priorities;

/// Which packet is trimmed when the queue of an output is full, and where its headers go.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// The arriving packet or the last in the queue, with equal probability, so that synchronized senders do not always
    /// lose the same packets. Headers have a queue of their own (NDP).
    #[default]
    Coin,
    /// The arriving packet. Headers have a queue of their own (NDP's NetFPGA).
    Arriving,
    /// The arriving packet, whose headers are queued in its place: one queue for all (Cut Payload).
    InPlace,
}

/// Parameters of a [`Trimming`] switch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrimmingConfig {
    /// Bytes on the wire of packets with payload that an output holds, including the one in transmission.
    pub data: u64,
    /// Bytes on the wire of packets without payload that an output holds, including the one in transmission. With
    /// [`Cut::InPlace`], in addition to `data` bytes of packets with payload.
    pub headers: u64,
    /// Packets without payload sent for each one with payload, while both wait.
    pub ratio: u32,
    /// The packet that is trimmed.
    pub cut: Cut,
    /// Whether headers that do not fit are returned to their sender, once (NDP §3.2.4). Otherwise they are dropped.
    pub returns: bool,
}

impl TrimmingConfig {
    /// Headers sent for each packet with payload (NDP §3.1).
    pub const RATIO: u32 = 10;

    /// Returns NDP's switch (§3.1): `data` bytes for packets with payload, as many for packets without, and headers
    /// that do not fit are returned.
    pub fn new(data: u64) -> TrimmingConfig {
        TrimmingConfig { data, headers: data, ratio: Self::RATIO, cut: Cut::Coin, returns: true }
    }
}

/// One of the two queues of an output.
#[derive(Copy, Clone, Debug, Default)]
struct Queue {
    fifo: Fifo,
    bytes: u64,
}

impl Queue {
    #[inline]
    fn push(&mut self, packets: &mut Packets, id: PacketId) {
        self.bytes += u64::from(packets.get(id).wire);
        self.fifo.push(packets, id);
    }

    #[inline]
    fn pop(&mut self, packets: &Packets) -> Option<PacketId> {
        let id = self.fifo.pop(packets)?;
        self.bytes -= u64::from(packets.get(id).wire);
        Some(id)
    }

    fn pop_back(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = self.fifo.pop_back(packets)?;
        self.bytes -= u64::from(packets.get(id).wire);
        Some(id)
    }

    /// Whether its first packet may be sent.
    #[inline]
    fn ready(&self, packets: &Packets, paused: Priorities) -> bool {
        self.fifo.first().is_some_and(|id| !paused.contains(packets.get(id).priority))
    }
}

/// State of one output.
#[derive(Copy, Clone, Debug, Default)]
#[repr(align(64))]
struct Output {
    data: Queue,
    headers: Queue,
    /// Bytes of the packet sent last, by kind: it takes up room until it has left.
    sending: u32,
    sending_data: bool,
    /// Headers sent in a row while data was waiting as well.
    run: u32,
}

/// A switch with two queues for each output: a short one for packets with payload, and one for those without, which
/// gets almost all turns. If the first is full, the arriving packet or the last one in it is trimmed and moves to the
/// second, so the receiver is notified of every packet within a queue's length. A header that does not fit there is
/// returned to its sender.
///
/// Which queue a packet goes to depends on its payload only. Priorities are neither used nor changed.
#[derive(Debug)]
pub struct Trimming {
    outputs: Box<[Output]>,
    config: TrimmingConfig,
}

impl Trimming {
    /// An empty switch.
    pub fn new(config: &TrimmingConfig, ports: &[Port]) -> Trimming {
        Trimming { outputs: vec![Output::default(); ports.len()].into(), config: config.clone() }
    }

    /// Admits a packet with payload: whole, trimmed, or whole in place of the last in the queue.
    fn admit_data(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let out = &mut self.outputs[usize::from(output)];
        let wire = u64::from(ctx.packets.get(id).wire);
        let counts = out.sending_data || self.config.cut == Cut::InPlace;
        let room = self.config.data.saturating_sub(if counts { sending(out.sending, ctx, output) } else { 0 });
        if out.data.bytes + wire <= room {
            out.data.push(ctx.packets, id);
            return Verdict::Queued;
        }
        if self.config.cut == Cut::Coin
            && ctx.rng.random::<bool>()
            && let Some(last) = out.data.pop_back(ctx.packets)
        {
            if out.data.bytes + wire <= room {
                out.data.push(ctx.packets, id);
                ctx.trim(last, output);
                if !self.admit_header(ctx, last, output) {
                    ctx.drop(last);
                }
                return Verdict::Queued;
            }
            // It is so much shorter than the arriving one that trimming it gains nothing.
            out.data.push(ctx.packets, last);
        }
        let cut = ctx.trim(id, output);
        if self.admit_header(ctx, id, output) { Verdict::Trimmed { cut } } else { Verdict::Dropped }
    }

    /// Admits a packet without payload, or returns it to its sender. Returns false if there is no room and it may not
    /// be returned.
    fn admit_header(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> bool {
        let out = &mut self.outputs[usize::from(output)];
        let wire = u64::from(ctx.packets.get(id).wire);
        let in_place = self.config.cut == Cut::InPlace;
        let queue = if in_place { &mut out.data } else { &mut out.headers };
        let limit = if in_place { self.config.data + self.config.headers } else { self.config.headers };
        let sending = if in_place || !out.sending_data { sending(out.sending, ctx, output) } else { 0 };
        if queue.bytes + sending + wire <= limit {
            queue.push(ctx.packets, id);
            return true;
        }
        let packet = ctx.packets.get(id);
        let back = self.config.returns && packet.is_trimmed() && !packet.is_returned();
        if back {
            ctx.return_to_sender(id, output);
        }
        back
    }
}

/// Bytes of the packet that an output is transmitting, if any.
#[inline]
fn sending(last: u32, ctx: &SwitchCtx<'_>, output: u16) -> u64 {
    if ctx.ports[usize::from(output)].is_busy(ctx.now) { u64::from(last) } else { 0 }
}

impl Switch for Trimming {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let verdict = if ctx.packets.get(id).is_control() {
            if self.admit_header(ctx, id, output) { Verdict::Queued } else { Verdict::Dropped }
        } else {
            self.admit_data(ctx, id, output)
        };
        let bytes = self.backlog(output);
        let counters = &mut ctx.ports[usize::from(output)].counters;
        counters.peak = counters.peak.max(bytes);
        verdict
    }

    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        let out = &mut self.outputs[usize::from(output)];
        let headers = out.headers.ready(ctx.packets, paused);
        let data = out.data.ready(ctx.packets, paused);
        let from_headers = match (headers, data) {
            (false, false) => return Dequeue::Idle,
            // Turns count only while both wait: a queue that was empty has gained no credit.
            (true, true) => {
                let more = out.run < self.config.ratio;
                out.run = if more { out.run + 1 } else { 0 };
                more
            }
            (only_headers, _) => only_headers,
        };
        let queue = if from_headers { &mut out.headers } else { &mut out.data };
        let Some(id) = queue.pop(ctx.packets) else { return Dequeue::Idle };
        (out.sending, out.sending_data) = (ctx.packets.get(id).wire, !from_headers);
        Dequeue::Packet(id)
    }

    #[inline]
    fn backlog(&self, output: u16) -> u64 {
        let out = &self.outputs[usize::from(output)];
        out.data.bytes + out.headers.bytes
    }

    fn prefetch(&self, _packets: &Packets, _id: PacketId, _input: u16, output: u16) {
        fetch(&self.outputs[usize::from(output)]);
    }

    fn prefetch_output(&self, packets: &Packets, output: u16, step: usize) {
        let out = &self.outputs[usize::from(output)];
        match step {
            0 => fetch(out),
            1 => {
                for id in [out.headers.fifo.first(), out.data.fifo.first()].into_iter().flatten() {
                    fetch(packets.get(id));
                }
            }
            _ => {}
        }
    }
}
