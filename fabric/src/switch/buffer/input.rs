//! A switch with a buffer for each input with a queue for each output (virtual output queues), which the outputs serve
//! in turn: the switch of the IRN paper (§4.3.1).

use std::ops::Range;

use crate::network::{CreditConfig, Fifo, NONE, PacketId, Packets, Port};
use crate::prefetch::fetch;
use crate::priorities::Priorities;
use crate::switch::{Dequeue, Ecn, Marker, Pfc, Scheduling, Switch, SwitchCtx, Thresholds, Verdict};

/// Parameters of an [`InputQueued`] switch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InputQueuedConfig {
    /// Bytes of buffer for each input.
    pub buffer: u64,
    /// PFC, on the bytes of one input and priority.
    pub pfc: Option<Thresholds>,
    /// Credits instead of PFC, on the bytes of one input and priority; the credits of all priorities in use must fit
    /// the buffer.
    pub credits: Option<CreditConfig>,
    /// Marking, by the bytes that wait for the output.
    pub ecn: Ecn,
    /// Choice among priorities.
    pub scheduling: Scheduling,
    /// Outputs to which an input can send at a time, 1 or more: the speedup of its crossbar. `None`: all.
    pub speedup: Option<u16>,
}

impl InputQueuedConfig {
    /// Parameters with this buffer for each input, bytes: no PFC, no credits, no marks, strict priorities, a crossbar
    /// without limit.
    pub fn new(buffer: u64) -> InputQueuedConfig {
        let (scheduling, ecn) = (Scheduling::Strict, Ecn::Off);
        InputQueuedConfig { buffer, pfc: None, credits: None, ecn, scheduling, speedup: None }
    }
}

const PRIORITIES: usize = Priorities::COUNT;

/// Packets queued for one output, and its round-robin state.
#[derive(Clone, Debug)]
#[repr(align(32))]
struct Output {
    bytes: u64,
    /// The input that is next in turn.
    turn: [u16; PRIORITIES],
    /// The only packet queued for this output, if it bypassed the queues, and its input: as long as no other packet
    /// arrives before it departs, the queues need not be touched.
    only: PacketId,
    only_input: u16,
    /// Priorities with packets queued for it.
    priorities: Priorities,
    priority_turn: u8,
}

impl Output {
    const IDLE: Output = Output {
        bytes: 0,
        turn: [0; PRIORITIES],
        only: NONE,
        only_input: 0,
        priorities: Priorities::NONE,
        priority_turn: 0,
    };
}

/// A switch with a buffer for each input with a queue for each output (virtual output queues), which the outputs serve
/// in turn (IRN §4.3.1). Fields used for every packet are in the first cache lines.
#[derive(Debug)]
#[repr(C)]
pub struct InputQueued {
    inputs: usize,
    /// By output.
    outputs: Box<[Output]>,
    /// Bytes buffered, by input.
    buffered: Box<[u64]>,
    /// Outputs with a backlog, by their number modulo 64: a hint.
    busy: u64,
    /// By priority, output, input, up to the highest priority seen: most networks use one, whose queues are then
    /// contiguous.
    queues: Vec<Fifo>,
    /// By priority and output, a bit set of the inputs with packets in its queues, of `words` words.
    waiting: Box<[u64]>,
    words: usize,
    crossbar: Option<Box<Crossbar>>,
    config: InputQueuedConfig,
    /// Bytes by input and priority; empty without PFC and credits.
    by_priority: Box<[[u64; PRIORITIES]]>,
    pfc: Pfc,
    marker: Marker,
}

/// Transfers of the crossbar, if inputs cannot send to all outputs at a time.
#[derive(Debug)]
struct Crossbar {
    /// By input, `speedup` entries each: the ends of its transfers, ns.
    ends: Vec<u64>,
    each: usize,
    /// Scratch space for the inputs that are free.
    free: Vec<u64>,
}

impl Crossbar {
    fn new(inputs: usize, words: usize, speedup: u16) -> Crossbar {
        let each = usize::from(speedup.max(1));
        Crossbar { ends: vec![0; inputs * each], each, free: vec![0; words] }
    }

    /// The transfer of an input that ends first.
    fn first(&mut self, input: usize) -> &mut u64 {
        let of_input = &mut self.ends[input * self.each..(input + 1) * self.each];
        of_input.iter_mut().min().expect("one at least")
    }

    /// The first input in turn that has something `waiting` and is free, or the time at which one will be.
    fn choose(&mut self, now: u64, waiting: &[u64], turn: u16) -> Result<u16, u64> {
        let mut retry_at = u64::MAX;
        self.free.copy_from_slice(waiting);
        for input in (0..self.ends.len() / self.each).filter(|i| waiting[i / 64] >> (i % 64) & 1 == 1) {
            let end = *self.first(input);
            if end > now {
                self.free[input / 64] &= !(1 << (input % 64));
                retry_at = retry_at.min(end);
            }
        }
        next_bit(&self.free, turn).ok_or(retry_at)
    }
}

impl InputQueued {
    /// An empty switch.
    pub fn new(config: &InputQueuedConfig, ports: &[Port]) -> InputQueued {
        let n = ports.len();
        let words = n.div_ceil(64);
        InputQueued {
            inputs: n,
            outputs: vec![Output::IDLE; n].into(),
            buffered: vec![0; n].into(),
            busy: 0,
            queues: vec![Fifo::default(); n * n],
            waiting: vec![0; n * PRIORITIES * words].into(),
            words,
            crossbar: config.speedup.map(|speedup| Box::new(Crossbar::new(n, words, speedup))),
            config: config.clone(),
            by_priority: vec![[0; PRIORITIES]; if config.pfc.is_some() || config.credits.is_some() { n } else { 0 }]
                .into(),
            pfc: Pfc::new(n),
            marker: Marker::new(config.ecn, n),
        }
    }

    #[inline]
    fn queue(&self, output: u16, priority: u8, input: u16) -> usize {
        (usize::from(priority) * self.inputs + usize::from(output)) * self.inputs + usize::from(input)
    }

    /// The range of [`Self::waiting`] for an output.
    #[inline]
    fn waiting(&self, output: u16, priority: u8) -> Range<usize> {
        let first = (usize::from(priority) * self.inputs + usize::from(output)) * self.words;
        first..first + self.words
    }

    /// Whether neighbours are informed of the buffered bytes (PFC or credits).
    #[inline]
    fn tells(&self) -> bool {
        !self.by_priority.is_empty()
    }

    /// Adds to or subtracts from the buffered bytes of an input and priority.
    fn tell(&mut self, ctx: &mut SwitchCtx<'_>, input: u16, priority: u8, more: i64) {
        let bytes = &mut self.by_priority[usize::from(input)][usize::from(priority)];
        *bytes = bytes.wrapping_add_signed(more);
        if let Some(at) = self.config.pfc {
            self.pfc.update(ctx, input, priority, *bytes, at);
        } else if more < 0 {
            ctx.return_credit(input, priority, more.unsigned_abs() as u32);
        }
    }

    /// Takes the first packet of a non-empty queue.
    #[inline]
    fn take(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, priority: u8, input: u16) -> Option<PacketId> {
        let queue = self.queue(output, priority, input);
        let id = self.queues.get_mut(queue)?.pop(ctx.packets)?;
        self.dequeued(output, priority, input);
        self.leave(ctx, id, output, priority, input);
        Some(id)
    }

    /// Updates state after a packet left a queue, possibly the last.
    #[inline]
    fn dequeued(&mut self, output: u16, priority: u8, input: u16) {
        if self.queues[self.queue(output, priority, input)].is_empty() {
            let waiting = self.waiting(output, priority);
            let waiting = &mut self.waiting[waiting];
            waiting[usize::from(input) / 64] &= !(1 << (input % 64));
            if waiting.iter().all(|w| *w == 0) {
                self.outputs[usize::from(output)].priorities.remove(priority);
            }
        }
    }

    /// Accounts for a packet that has left the switch.
    #[inline]
    fn leave(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16, priority: u8, input: u16) {
        let wire = u64::from(ctx.packets.get(id).wire);
        let out = &mut self.outputs[usize::from(output)];
        out.bytes -= wire;
        if out.priorities.is_empty() {
            self.busy &= !(1 << (output % 64));
        }
        self.buffered[usize::from(input)] -= wire;
        if self.tells() {
            self.tell(ctx, input, priority, -(wire as i64));
        }
    }

    /// Grows the queues for a packet of a higher priority than any before.
    #[cold]
    fn make_queues(&mut self, priority: u8) {
        self.queues.resize((usize::from(priority) + 1) * self.inputs * self.inputs, Fifo::default());
    }

    /// Puts a packet into its queue.
    #[inline]
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16, priority: u8, input: u16) {
        let queue = self.queue(output, priority, input);
        if queue >= self.queues.len() {
            self.make_queues(priority);
        }
        self.queues[queue].push(ctx.packets, id);
        let waiting = self.waiting(output, priority);
        self.waiting[waiting][usize::from(input) / 64] |= 1 << (input % 64);
    }

    /// Moves the only packet queued for an output into its queue, if it bypassed it.
    #[inline]
    fn queue_up(&mut self, ctx: &mut SwitchCtx<'_>, output: u16) {
        let out = &mut self.outputs[usize::from(output)];
        let (id, input) = (std::mem::replace(&mut out.only, NONE), out.only_input);
        if id != NONE {
            let priority = ctx.packets.get(id).priority;
            self.push(ctx, id, output, priority, input);
        }
    }
}

/// The first set bit at or after `from`, else the first.
#[inline]
fn next_bit(words: &[u64], from: u16) -> Option<u16> {
    let (start, bit) = (usize::from(from) / 64, from % 64);
    let bit_of = |word: usize, bits: u64| (bits != 0).then(|| (word * 64) as u16 + bits.trailing_zeros() as u16);
    if let Some(found) = words.get(start).and_then(|w| bit_of(start, w & (u64::MAX << bit))) {
        return Some(found);
    }
    let rest = (start + 1..words.len()).chain(0..=start.min(words.len().saturating_sub(1)));
    rest.map(|w| bit_of(w, words[w])).find(Option::is_some).flatten()
}

impl Switch for InputQueued {
    #[inline(always)]
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let (wire, input, priority) = {
            let p = ctx.packets.get(id);
            (u64::from(p.wire), p.input, p.priority)
        };
        let place = usize::from(input);
        if self.buffered[place] + wire > self.config.buffer {
            return Verdict::Dropped;
        }
        let out = &mut self.outputs[usize::from(output)];
        self.marker.apply(ctx, id, output, output.into(), out.bytes);
        self.buffered[place] += wire;
        let alone = out.priorities.is_empty() && self.crossbar.is_none();
        out.bytes += wire;
        out.priorities.insert(priority);
        let counters = &mut ctx.ports[usize::from(output)].counters;
        counters.peak = counters.peak.max(out.bytes);
        self.busy |= 1 << (output % 64);
        if alone {
            (out.only, out.only_input) = (id, input);
        } else {
            self.queue_up(ctx, output);
            self.push(ctx, id, output, priority, input);
        }
        if self.tells() {
            self.tell(ctx, input, priority, wire as i64);
        }
        Verdict::Queued
    }

    #[inline(always)]
    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        let out = &mut self.outputs[usize::from(output)];
        let candidates = out.priorities.without(paused);
        let Some(priority) = self.config.scheduling.choose(candidates, &mut out.priority_turn) else {
            return Dequeue::Idle;
        };
        if out.only != NONE {
            let (id, input) = (std::mem::replace(&mut out.only, NONE), out.only_input);
            out.turn[usize::from(priority)] = if usize::from(input) + 1 == self.inputs { 0 } else { input + 1 };
            out.priorities.remove(priority);
            self.leave(ctx, id, output, priority, input);
            return Dequeue::Packet(id);
        }
        let turn = out.turn[usize::from(priority)];
        let waiting = self.waiting(output, priority);
        let waiting = &self.waiting[waiting];
        let input = match &mut self.crossbar {
            None => next_bit(waiting, turn),
            Some(crossbar) => match crossbar.choose(ctx.now, waiting, turn) {
                Ok(input) => Some(input),
                Err(at) => return Dequeue::RetryAt(at),
            },
        };
        let Some(input) = input else { return Dequeue::Idle };
        let next = if usize::from(input) + 1 == self.inputs { 0 } else { input + 1 };
        self.outputs[usize::from(output)].turn[usize::from(priority)] = next;
        let Some(id) = self.take(ctx, output, priority, input) else { return Dequeue::Idle };
        if let Some(crossbar) = &mut self.crossbar {
            let ends = ctx.ports[usize::from(output)].would_end(ctx.now, ctx.packets.get(id).wire);
            *crossbar.first(usize::from(input)) = ends.div_ceil(1000);
        }
        Dequeue::Packet(id)
    }

    #[inline(always)]
    fn backlog(&self, output: u16) -> u64 {
        self.outputs[usize::from(output)].bytes
    }

    /// See [`Switch::extract`]: takes from the highest priority first, and within it from the first input.
    fn extract(
        &mut self,
        ctx: &mut SwitchCtx<'_>,
        output: u16,
        wanted: &mut dyn FnMut(&Packets, PacketId) -> bool,
    ) -> Option<PacketId> {
        self.queue_up(ctx, output);
        let waiting = self.outputs[usize::from(output)].priorities;
        for priority in (0..PRIORITIES as u8).rev().filter(|priority| waiting.contains(*priority)) {
            for input in 0..self.inputs as u16 {
                let queue = self.queue(output, priority, input);
                if let Some(id) = self.queues.get_mut(queue).and_then(|queue| queue.extract(ctx.packets, &mut *wanted))
                {
                    self.dequeued(output, priority, input);
                    self.leave(ctx, id, output, priority, input);
                    return Some(id);
                }
            }
        }
        None
    }

    fn paused_upstreams(&self) -> Vec<(u16, u8)> {
        let Some(CreditConfig { each, longest }) = self.config.credits else { return self.pfc.paused_upstreams() };
        let full = |bytes: &u64| bytes + u64::from(longest) > u64::from(each);
        let each = |(input, bytes): (usize, &[u64; PRIORITIES])| {
            let full = bytes.iter().enumerate().filter(|(_, bytes)| full(bytes));
            full.map(|(priority, _)| (input as u16, priority as u8)).collect::<Vec<_>>()
        };
        self.by_priority.iter().enumerate().flat_map(each).collect()
    }

    fn blocks(&self, packets: &Packets, input: u16, priority: u8, output: u16) -> bool {
        let out = &self.outputs[usize::from(output)];
        let only = out.only != NONE && out.only_input == input && packets.get(out.only).priority == priority;
        only || self.queues.get(self.queue(output, priority, input)).is_some_and(|queue| !queue.is_empty())
    }

    fn prefetch(&self, _packets: &Packets, _id: PacketId, input: u16, output: u16) {
        fetch(&self.outputs[usize::from(output)]);
        fetch(&self.buffered[usize::from(input)]);
        if self.busy >> (output % 64) & 1 == 1 {
            fetch(&self.queues[self.queue(output, 0, input)]);
            fetch(&self.waiting[usize::from(output) * self.words]);
        }
    }

    fn prefetch_output(&self, packets: &Packets, output: u16, step: usize) {
        if self.busy >> (output % 64) & 1 == 0 {
            return;
        }
        let out = &self.outputs[usize::from(output)];
        if step == 0 {
            fetch(out);
            fetch(&self.waiting[usize::from(output) * self.words]);
            return;
        }
        // The queue whose turn it is now.
        let Some(priority) = out.priorities.highest() else { return };
        let waiting = &self.waiting[self.waiting(output, priority)];
        let Some(input) = next_bit(waiting, out.turn[usize::from(priority)]) else { return };
        let Some(queue) = self.queues.get(self.queue(output, priority, input)) else { return };
        if step == 1 {
            fetch(queue);
        } else if let Some(id) = queue.first() {
            fetch(packets.get(id));
        }
    }

    fn flush(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, lost: &mut Vec<PacketId>) {
        self.queue_up(ctx, output);
        for priority in 0..PRIORITIES as u8 {
            for input in 0..self.inputs as u16 {
                while let Some(id) = self.take(ctx, output, priority, input) {
                    lost.push(id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round() {
        assert_eq!(next_bit(&[0b1010], 0), Some(1));
        assert_eq!(next_bit(&[0b1010], 2), Some(3));
        assert_eq!(next_bit(&[0b1010], 4), Some(1));
        assert_eq!(next_bit(&[0, 1 << 5], 70), Some(69));
        assert_eq!(next_bit(&[1, 1 << 5], 64), Some(69));
        assert_eq!(next_bit(&[0, 0], 3), None);
    }
}
