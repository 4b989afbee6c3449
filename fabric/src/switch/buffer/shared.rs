//! An output-queued switch whose ports share one buffer with dynamic thresholds (Choudhury and Hahne): what a queue may
//! hold is α times what is free. The switch of TLT (§7.1), HPCC and ConWeave.

use super::colour::{self, Colours};
use crate::network::{CONTROL_FRAME, Fifo, PacketId, Packets, Port};
use crate::prefetch::fetch;
use crate::priorities::Priorities;
use crate::switch::{
    CustomScheduler, Dequeue, Ecn, Gfc, GfcConfig, Marker, Pfc, Scheduler, Scheduling, Switch, SwitchCtx, Thresholds,
    Verdict,
};

/// Parameters of PFC in a shared buffer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SharedPfc {
    /// XOFF is sent when an input's priority holds more than α times the free bytes.
    pub alpha: f64,
    /// Fixed XOFF and XON thresholds instead, whatever is free.
    pub fixed: Option<Thresholds>,
    /// Bytes reserved for each input and priority, before it draws on the shared part.
    pub reserve: u64,
    /// XON is sent this many bytes below the threshold.
    pub resume: u64,
    /// Bytes for what is in flight when XOFF is sent, for each input and priority in use; `None`: from the link's rate
    /// and delay and the longest packets ([`headroom`]).
    pub headroom: Option<u64>,
    /// Additional bytes of headroom for each input, for wrappers to which packets arrive in spite of XOFF.
    pub margin: u64,
    /// Priorities in use, 1 to 8: reserve and headroom of each input are set aside for this many.
    pub priorities: u8,
}

/// Parameters of a [`SharedBuffer`] switch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SharedBufferConfig {
    /// Bytes of buffer in all.
    pub buffer: u64,
    /// A queue holds at most α times the free bytes; with PFC there is no such limit.
    pub alpha: f64,
    /// PFC, by input and priority.
    pub pfc: Option<SharedPfc>,
    /// GFC instead of PFC, by the bytes of an input, all priorities together.
    pub gfc: Option<GfcConfig>,
    /// Bytes on the wire of the longest packet, for the headroom.
    pub longest: u32,
    /// Most bytes of red packets in the queue of one output and priority (TLT §4.1: color-aware dropping threshold). A
    /// red packet beyond it is dropped before anything is accounted, so that PFC never sees it. Green ones, which
    /// include all that no transport colours, are subject to the other limits only. `None`: colours are ignored.
    pub colour: Option<u64>,
    /// Marking, by the bytes in the packet's queue.
    pub ecn: Ecn,
    /// Choice among priorities.
    pub scheduling: Scheduling,
    /// A custom order for each output instead, across priorities.
    pub scheduler: Option<CustomScheduler>,
}

impl SharedPfc {
    /// XOFF at α times the free bytes, XON 3 KiB below; 4 KiB reserve for each input, headroom from the links, one
    /// priority.
    pub fn new(alpha: f64) -> SharedPfc {
        SharedPfc { alpha, fixed: None, reserve: 4_096, resume: 3_072, headroom: None, margin: 0, priorities: 1 }
    }
}

impl SharedBufferConfig {
    /// A buffer of this many bytes, for packets of at most `longest` bytes: α = 1, no PFC, no colours, no marks, strict
    /// priorities.
    pub fn new(buffer: u64, longest: u32) -> SharedBufferConfig {
        let (ecn, scheduling) = (Ecn::Off, Scheduling::Strict);
        SharedBufferConfig {
            buffer,
            alpha: 1.0,
            pfc: None,
            gfc: None,
            longest,
            colour: None,
            ecn,
            scheduling,
            scheduler: None,
        }
    }
}

const PRIORITIES: usize = Priorities::COUNT;

/// Bytes of one priority that may need room beyond a threshold: what is sent while XOFF waits for the packet before it,
/// is serialized and propagates, behind those of other priorities; the packet that the neighbour has begun; what is on
/// the link by then; and the packet at which XOFF is decided, if other inputs have taken the room that would have
/// admitted it.
pub fn headroom(rate: u64, delay: u64, longest: u32) -> u64 {
    let flying = (u128::from(rate) * u128::from(2 * delay)).div_ceil(8_000_000_000) as u64;
    flying + 3 * u64::from(longest) + PRIORITIES as u64 * u64::from(CONTROL_FRAME)
}

/// Packets queued for one output with one priority, and their bytes.
#[derive(Copy, Clone, Debug, Default)]
struct Queue {
    packets: Fifo,
    bytes: u64,
}

/// State of one output.
#[derive(Copy, Clone, Debug, Default)]
struct Output {
    bytes: u64,
    /// Priorities with packets queued for it.
    priorities: Priorities,
    turn: u8,
}

/// An output-queued switch whose ports share one buffer with dynamic thresholds (Choudhury and Hahne): what a queue may
/// hold is α times what is free.
#[derive(Debug)]
pub struct SharedBuffer {
    config: SharedBufferConfig,
    /// By output and priority.
    queues: Vec<Queue>,
    outputs: Vec<Output>,
    /// By output, the schedulers that hold the packets in place of the queues, which still count bytes.
    schedulers: Option<Vec<Box<dyn Scheduler>>>,
    /// Bytes by input and priority: total, and those in headroom.
    inputs: Vec<[u64; PRIORITIES]>,
    in_headroom: Vec<[u64; PRIORITIES]>,
    headroom: Vec<u64>,
    /// Bytes of inputs beyond their reserve, without headroom.
    shared: u64,
    /// Size of the shared part of the buffer, bytes.
    pool: u64,
    pfc: Pfc,
    gfc: Option<Box<Gfc>>,
    marker: Marker,
    colours: Option<Box<Colours>>,
}

impl SharedBuffer {
    /// An empty switch.
    pub fn new(config: &SharedBufferConfig, ports: &[Port]) -> SharedBuffer {
        let n = ports.len();
        let headroom: Vec<u64> = ports
            .iter()
            .map(|p| match &config.pfc {
                None => 0,
                Some(pfc) => {
                    pfc.margin + pfc.headroom.unwrap_or_else(|| self::headroom(p.rate, p.delay, config.longest))
                }
            })
            .collect();
        let reserve = config.pfc.as_ref().map_or(0, |p| p.reserve) * n as u64;
        let priorities = config.pfc.as_ref().map_or(0, |p| u64::from(p.priorities));
        SharedBuffer {
            pool: config.buffer.saturating_sub(priorities * (headroom.iter().sum::<u64>() + reserve)),
            config: config.clone(),
            queues: vec![Queue::default(); n * PRIORITIES],
            outputs: vec![Output::default(); n],
            schedulers: config.scheduler.as_ref().map(|custom| ports.iter().map(|port| custom.build(port)).collect()),
            inputs: vec![[0; PRIORITIES]; n],
            in_headroom: vec![[0; PRIORITIES]; n],
            headroom,
            shared: 0,
            pfc: Pfc::new(n),
            gfc: config.gfc.map(|gfc| Box::new(Gfc::new(gfc, n))),
            marker: Marker::new(config.ecn, n * PRIORITIES),
            colours: config.colour.map(|most| Box::new(Colours::new(most, n * PRIORITIES))),
        }
    }

    fn free(&self) -> u64 {
        self.pool.saturating_sub(self.shared)
    }

    fn update_pfc(&mut self, ctx: &mut SwitchCtx<'_>, input: u16, priority: u8) {
        if let Some(gfc) = &mut self.gfc {
            return gfc.update(ctx, input, self.inputs[usize::from(input)].iter().sum());
        }
        let Some(pfc) = &self.config.pfc else { return };
        let (i, p) = (usize::from(input), usize::from(priority));
        let at = pfc.fixed.unwrap_or_else(|| {
            let limit = pfc.reserve + (pfc.alpha * self.free() as f64) as u64;
            Thresholds { xoff: limit, xon: limit.saturating_sub(pfc.resume) }
        });
        // Headroom is only used beyond XOFF, and empty again before XON.
        let buffered = if self.in_headroom[i][p] > 0 { u64::MAX } else { self.inputs[i][p] };
        self.pfc.update(ctx, input, priority, buffered, at);
    }

    /// Finds room for a packet and accounts for it.
    fn admit(&mut self, input: usize, priority: usize, output: u16, wire: u64) -> bool {
        if let Some(gfc) = &self.gfc {
            let room = wire <= self.free() && gfc.admits(self.inputs[input].iter().sum(), wire);
            if room {
                self.shared += wire;
                self.inputs[input][priority] += wire;
            }
            return room;
        }
        let held = self.inputs[input][priority] - self.in_headroom[input][priority];
        match &self.config.pfc {
            None => {
                let queue = &self.queues[usize::from(output) * PRIORITIES + priority];
                let limit = (self.config.alpha * self.free() as f64) as u64;
                if queue.bytes + wire > limit || wire > self.free() {
                    return false;
                }
                self.shared += wire;
            }
            Some(pfc) => {
                let before = held.saturating_sub(pfc.reserve);
                let more = (held + wire).saturating_sub(pfc.reserve) - before;
                let limit = match pfc.fixed {
                    Some(at) => at.xoff.saturating_sub(pfc.reserve),
                    None => (pfc.alpha * self.free() as f64) as u64,
                };
                if self.in_headroom[input][priority] == 0 && before <= limit && more <= self.free() {
                    self.shared += more;
                } else {
                    if self.in_headroom[input][priority] + wire > self.headroom[input] {
                        return false;
                    }
                    self.in_headroom[input][priority] += wire;
                }
            }
        }
        self.inputs[input][priority] += wire;
        true
    }

    /// Releases the bytes of a packet: headroom first.
    fn release(&mut self, input: usize, priority: usize, wire: u64) {
        let from_headroom = self.in_headroom[input][priority].min(wire);
        self.in_headroom[input][priority] -= from_headroom;
        let rest = wire - from_headroom;
        let held = self.inputs[input][priority] - self.in_headroom[input][priority] - from_headroom;
        let reserve = self.config.pfc.as_ref().map_or(0, |p| p.reserve);
        self.shared -= held.saturating_sub(reserve) - (held - rest).saturating_sub(reserve);
        self.inputs[input][priority] -= wire;
    }

    /// Accounts for a packet that has left its queue.
    fn leave(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) {
        let (wire, input, priority) = {
            let p = ctx.packets.get(id);
            (u64::from(p.wire), p.input, p.priority)
        };
        let queue = usize::from(output) * PRIORITIES + usize::from(priority);
        self.queues[queue].bytes -= wire;
        self.outputs[usize::from(output)].bytes -= wire;
        if let Some(colours) = &mut self.colours {
            colours.leave(ctx.packets.get(id), queue);
        }
        self.release(usize::from(input), usize::from(priority), wire);
        self.update_pfc(ctx, input, priority);
    }

    /// Takes the first packet of a queue.
    fn take(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, priority: u8) -> Option<PacketId> {
        let queue = &mut self.queues[usize::from(output) * PRIORITIES + usize::from(priority)].packets;
        let id = queue.pop(ctx.packets)?;
        if queue.is_empty() {
            self.outputs[usize::from(output)].priorities.remove(priority);
        }
        self.leave(ctx, id, output);
        Some(id)
    }

    /// Drops a packet that the scheduler of an output evicts for `arriving`. Returns whether there was one.
    fn push_out(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, arriving: PacketId) -> bool {
        let Some(schedulers) = &mut self.schedulers else { return false };
        let Some(victim) = schedulers[usize::from(output)].evict(ctx, arriving) else { return false };
        self.leave(ctx, victim, output);
        ctx.drop(victim);
        true
    }
}

impl Switch for SharedBuffer {
    #[inline(always)]
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let (wire, input, priority) = {
            let p = ctx.packets.get(id);
            (u64::from(p.wire), p.input, p.priority)
        };
        let queue = usize::from(output) * PRIORITIES + usize::from(priority);
        if let Some(colours) = &self.colours
            && !colours.admits(ctx, id, output, queue)
        {
            return Verdict::Dropped;
        }
        while !self.admit(usize::from(input), usize::from(priority), output, wire) {
            if !self.push_out(ctx, output, id) {
                if self.colours.is_some() {
                    colour::count_drop(ctx, id, output);
                }
                return Verdict::Dropped;
            }
        }
        if let Some(colours) = &mut self.colours {
            colours.enter(ctx, id, output, queue);
        }
        self.marker.apply(ctx, id, output, queue, self.queues[queue].bytes);
        match &mut self.schedulers {
            None => self.queues[queue].packets.push(ctx.packets, id),
            Some(schedulers) => schedulers[usize::from(output)].push(ctx, id),
        }
        self.queues[queue].bytes += wire;
        let out = &mut self.outputs[usize::from(output)];
        out.bytes += wire;
        out.priorities.insert(priority);
        let counters = &mut ctx.ports[usize::from(output)].counters;
        counters.peak = counters.peak.max(out.bytes);
        self.update_pfc(ctx, input, priority);
        Verdict::Queued
    }

    #[inline(always)]
    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        if let Some(schedulers) = &mut self.schedulers {
            let Some(id) = schedulers[usize::from(output)].pop(ctx, paused) else { return Dequeue::Idle };
            self.leave(ctx, id, output);
            return Dequeue::Packet(id);
        }
        let out = &mut self.outputs[usize::from(output)];
        let chosen = self.config.scheduling.choose(out.priorities.without(paused), &mut out.turn);
        chosen.and_then(|priority| self.take(ctx, output, priority)).map_or(Dequeue::Idle, Dequeue::Packet)
    }

    #[inline(always)]
    fn backlog(&self, output: u16) -> u64 {
        self.outputs[usize::from(output)].bytes
    }

    /// See [`Switch::extract`]: takes from the highest priority first. A custom scheduler has its own queues, from
    /// which this takes nothing.
    fn extract(
        &mut self,
        ctx: &mut SwitchCtx<'_>,
        output: u16,
        wanted: &mut dyn FnMut(&Packets, PacketId) -> bool,
    ) -> Option<PacketId> {
        let waiting = self.outputs[usize::from(output)].priorities;
        for priority in (0..PRIORITIES as u8).rev().filter(|priority| waiting.contains(*priority)) {
            let queue = &mut self.queues[usize::from(output) * PRIORITIES + usize::from(priority)].packets;
            if let Some(id) = queue.extract(ctx.packets, &mut *wanted) {
                if queue.is_empty() {
                    self.outputs[usize::from(output)].priorities.remove(priority);
                }
                self.leave(ctx, id, output);
                return Some(id);
            }
        }
        None
    }

    fn paused_upstreams(&self) -> Vec<(u16, u8)> {
        self.pfc.paused_upstreams()
    }

    fn blocks(&self, packets: &Packets, input: u16, priority: u8, output: u16) -> bool {
        if let Some(schedulers) = &self.schedulers {
            return schedulers[usize::from(output)].blocks(packets, input, priority);
        }
        let queue = &self.queues[usize::from(output) * PRIORITIES + usize::from(priority)];
        queue.packets.iter(packets).any(|packet| packet.input == input)
    }

    fn prefetch(&self, _packets: &Packets, _id: PacketId, input: u16, output: u16) {
        fetch(&self.queues[usize::from(output) * PRIORITIES]);
        fetch(&self.outputs[usize::from(output)]);
        fetch(&self.inputs[usize::from(input)]);
    }

    fn flush(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, lost: &mut Vec<PacketId>) {
        for priority in 0..PRIORITIES as u8 {
            while let Some(id) = self.take(ctx, output, priority) {
                lost.push(id);
            }
        }
        while self.schedulers.is_some()
            && let Dequeue::Packet(id) = self.dequeue(ctx, output, Priorities::NONE)
        {
            lost.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use irnic_transports::wire::{Bth, Headers, Opcode};
    use irnic_transports::{Path, Psn};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::network::{Content, Packet};
    use crate::switch::Ledger;

    fn packet(packets: &mut Packets, input: u16) -> PacketId {
        let address = crate::network::address(0);
        let path = Path { src: address, dst: address, udp_src: 0, traffic_class: 0, hop_limit: 64 };
        let headers = Headers::new(Bth::new(Opcode::RcSendOnly, 0, Psn::new(0)));
        let content = Content::new(headers, path, 0);
        let mut packet = Packet::new(100, 0, 0, 0);
        packet.input = input;
        packets.add(packet, content)
    }

    #[test]
    fn an_input_waits_for_the_outputs_that_its_own_packets_wait_for() {
        let config = SharedBufferConfig {
            buffer: 1 << 20,
            alpha: 1.0,
            pfc: None,
            gfc: None,
            longest: 1_000,
            colour: None,
            ecn: Ecn::Off,
            scheduling: Scheduling::Strict,
            scheduler: None,
        };
        let mut ports: Vec<Port> = (0..4).map(|local| Port::new(0, local, 0, 0, 1, 1, 0.0)).collect();
        let mut switch = SharedBuffer::new(&config, &ports);
        let (mut packets, mut rng, mut ledger) = (Packets::default(), Pcg64Mcg::new(1), Ledger::default());
        // From input 0 to output 2, from input 1 to output 3: both inputs and both outputs have packets.
        let ids = [(0, 2), (1, 3)].map(|(input, output)| (packet(&mut packets, input), output));
        let mut ctx =
            SwitchCtx { now: 0, packets: &mut packets, ports: &mut ports, rng: &mut rng, ledger: &mut ledger };
        for (id, output) in ids {
            assert_eq!(switch.enqueue(&mut ctx, id, output), Verdict::Queued);
        }
        let blocked = |switch: &SharedBuffer, packets: &Packets| -> Vec<(u16, u16)> {
            let pairs = (0..4).flat_map(|input| (0..4).map(move |output| (input, output)));
            pairs.filter(|&(input, output)| switch.blocks(packets, input, 0, output)).collect()
        };
        assert_eq!(blocked(&switch, ctx.packets), [(0, 2), (1, 3)]);
        assert_eq!(switch.dequeue(&mut ctx, 2, Priorities::NONE), Dequeue::Packet(ids[0].0));
        assert_eq!(blocked(&switch, ctx.packets), [(1, 3)]);
    }
}
