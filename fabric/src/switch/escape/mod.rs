//! Escape: frames that are blocked behind a paused output leave their queue, if the next switch has an open output for
//! them (Menikkumbura, dissertation at Purdue University, chapter 4).
//!
//! A switch that has its neighbour paused sends it tokens for flows that leave by outputs that are open. A token finds
//! the first frame of its flow in the queue of the paused output, or is forwarded upstream; the frame travels
//! downstream through escape queues in which the token has reserved slots. [`EscapeConfig`] has the parameters,
//! docs/escape.md what the published algorithm leaves open and how it is resolved here.

mod config;
mod counters;
mod flows;
mod pool;
mod token;

pub use config::{EscapeConfig, Order, Period};
pub use counters::EscapeCounters;

use flows::{FlowId, FlowTable};
use pool::Pool;
use token::Message;

use super::{Dequeue, Effect, Switch, SwitchCtx, Verdict};
use crate::network::{Control, Fifo, PacketId, Packets, Port};
use crate::priorities::Priorities;

/// The receiving end of a port.
#[derive(Debug)]
struct Input {
    flows: FlowTable,
    /// Priorities that the neighbour was asked to pause: the port registry's PFC-requested bits (§4.3.1).
    requested: Priorities,
    /// Whether a host is at the other end, which has no queue to take frames from.
    edge: bool,
    /// Δ^esc, ns.
    period: u64,
    /// Time at which tokens are sent next, ns; [`u64::MAX`] if nothing is paused.
    next: u64,
}

/// The sending end of a port.
#[derive(Debug)]
struct Output {
    pool: Pool,
    /// q⃗.
    queue: Fifo,
    bytes: u64,
}

/// A switch wrapper that takes frames out of the inner switch's queues ([`Switch::extract`]).
#[derive(Debug)]
pub(crate) struct Escape<S> {
    inner: S,
    inputs: Box<[Input]>,
    outputs: Box<[Output]>,
    /// Frames in the escape queues of all outputs. Usually 0.
    escaping: u32,
    config: EscapeConfig,
    /// Interval at which tokens are reclaimed, ns.
    reclaim: u64,
    /// Time of the next reclaim, ns; [`u64::MAX`] if no tokens are out.
    reclaim_at: u64,
}

impl<S: Switch> Escape<S> {
    /// Wraps a switch with these ports. `edges` are the ports to hosts; `reclaim` is [`EscapeConfig::reclaim_in`] the
    /// network.
    pub(crate) fn around(inner: S, config: &EscapeConfig, ports: &[Port], edges: &[bool], reclaim: u64) -> Escape<S> {
        let pool = config.pool.max(1);
        let input = |(port, edge): (&Port, &bool)| Input {
            flows: FlowTable::new(config.flows),
            requested: Priorities::NONE,
            edge: *edge,
            period: config.period(port.delay),
            next: u64::MAX,
        };
        let output = |_| Output { pool: Pool::new(pool), queue: Fifo::default(), bytes: 0 };
        Escape {
            inner,
            inputs: ports.iter().zip(edges).map(input).collect(),
            outputs: ports.iter().map(output).collect(),
            escaping: 0,
            config: config.clone(),
            reclaim,
            reclaim_at: u64::MAX,
        }
    }

    /// Updates the port registry from the pauses that the inner switch requested.
    #[inline]
    fn keep_registry(&mut self, ctx: &mut SwitchCtx<'_>) {
        if !ctx.ledger.effects.is_empty() {
            self.note_pauses(ctx);
        }
    }

    #[cold]
    fn note_pauses(&mut self, ctx: &mut SwitchCtx<'_>) {
        for at in 0..ctx.ledger.effects.len() {
            let Effect::RequestPause(input, pause) = ctx.ledger.effects[at] else { continue };
            let input = &mut self.inputs[usize::from(input)];
            if pause.stop {
                input.requested.insert(pause.priority);
            } else {
                input.requested.remove(pause.priority);
            }
            if pause.stop && !input.edge && input.next == u64::MAX {
                // By then the pause has taken effect.
                input.next = ctx.now + input.period;
                ctx.wake_at(input.next);
            }
        }
    }

    /// Event e₁: sends tokens for flows that arrived by a paused input and leave by an open output, in turn (Algorithm
    /// 3, lines 5 to 14).
    fn send_tokens(&mut self, ctx: &mut SwitchCtx<'_>, input: u16) {
        let from = &mut self.inputs[usize::from(input)];
        let mut served = 0;
        for n in 0..from.flows.len() {
            let Some((flow, output)) = from.flows.in_turn(n) else { continue };
            let port = &ctx.ports[usize::from(output)];
            let open = port.is_up() && !port.paused().contains(flow.priority);
            let out = &mut self.outputs[usize::from(output)];
            if from.requested.contains(flow.priority) && open && out.pool.free() > 0 {
                out.pool.send();
                ctx.control(input, Message::Token(flow, 1).into());
                ctx.ledger.totals.escape.tokens += 1;
                served = n + 1;
            }
        }
        from.flows.turn(served);
        if served > 0 {
            self.expect(ctx);
        }
    }

    /// Arms the timer that reclaims tokens.
    fn expect(&mut self, ctx: &mut SwitchCtx<'_>) {
        if self.reclaim_at == u64::MAX {
            self.reclaim_at = ctx.now + self.reclaim;
            ctx.wake_at(self.reclaim_at);
        }
    }

    /// Event e₂: a token has arrived by the output that it concerns (lines 15 to 28).
    fn receive(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, flow: FlowId, hops: u16) {
        if self.outputs[usize::from(output)].pool.free() == 0 {
            ctx.ledger.totals.escape.exhausted += 1;
            return self.refuse(ctx, output, flow, hops);
        }
        if let Some(id) = self.extract_first(ctx, output, flow) {
            self.outputs[usize::from(output)].pool.take();
            ctx.ledger.totals.escape.frames += 1;
            self.tag(ctx, id, hops);
            return self.push(ctx, id, output);
        }
        let arrived_by = self.inputs.iter().position(|input| input.flows.output_of(flow) == Some(output));
        match arrived_by {
            Some(at)
                if !self.inputs[at].edge && self.inputs[at].requested.contains(flow.priority) && hops < u16::MAX =>
            {
                self.outputs[usize::from(output)].pool.send();
                ctx.control(at as u16, Message::Token(flow, hops + 1).into());
                ctx.ledger.totals.escape.forwarded += 1;
                self.expect(ctx);
            }
            _ => {
                ctx.ledger.totals.escape.unmatched += 1;
                self.refuse(ctx, output, flow, hops);
            }
        }
    }

    /// Answers a token that ends here, if answers are enabled.
    fn refuse(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, flow: FlowId, hops: u16) {
        if self.config.nack {
            ctx.control(output, Message::Nack(flow, hops).into());
            ctx.ledger.totals.escape.nacks += 1;
        }
    }

    /// Handles the end of a token that this switch sent or forwarded by an input.
    fn take_back(&mut self, ctx: &mut SwitchCtx<'_>, input: u16, flow: FlowId, hops: u16) {
        let Some(output) = self.inputs[usize::from(input)].flows.output_of(flow) else { return };
        self.outputs[usize::from(output)].pool.take_back();
        if hops > 1 {
            self.refuse(ctx, output, flow, hops - 1);
        } else {
            self.inputs[usize::from(input)].flows.failed(flow);
        }
    }

    /// Takes the first frame of a flow out of the regular queues of an output.
    fn extract_first(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, flow: FlowId) -> Option<PacketId> {
        let id = self.inner.extract(ctx, output, &mut |packets, id| flow.has(packets, id));
        self.keep_registry(ctx);
        id
    }

    /// Sets or removes the tag of a frame, which carries `hops`.
    fn tag(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, hops: u16) {
        let before = std::mem::replace(&mut ctx.packets.content_mut(id).hops, hops);
        ctx.packets.get_mut(id).set_escaping(hops > 0);
        match (before, hops) {
            (0, 1..) => ctx.grow(id, self.config.tag),
            (1.., 0) => ctx.shrink(id, self.config.tag),
            _ => {}
        }
    }

    /// Puts a frame into an escape queue that has room.
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) {
        let out = &mut self.outputs[usize::from(output)];
        out.bytes += u64::from(ctx.packets.get(id).wire);
        out.queue.push(ctx.packets, id);
        self.escaping += 1;
        let escape = &mut ctx.ledger.totals.escape;
        escape.peak = escape.peak.max(out.pool.taken().into());
        let waiting = self.backlog(output);
        let counters = &mut ctx.ports[usize::from(output)].counters;
        counters.peak = counters.peak.max(waiting);
    }

    /// Takes the first frame out of an escape queue.
    #[cold]
    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, output: u16) -> Option<PacketId> {
        let out = &mut self.outputs[usize::from(output)];
        let id = out.queue.pop(ctx.packets)?;
        out.bytes -= u64::from(ctx.packets.get(id).wire);
        out.pool.leave();
        self.escaping -= 1;
        Some(id)
    }

    /// Handles the arrival of a frame that escapes.
    #[cold]
    fn arrive(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let (flow, hops) = (FlowId::of(ctx.packets, id), ctx.packets.content(id).hops);
        if !self.outputs[usize::from(output)].pool.arrive() {
            // Its slot was reclaimed before it arrived, or it came by another path than its token. No earlier frame of
            // its flow is behind it, so it may wait with the others.
            ctx.ledger.totals.escape.late += 1;
            self.tag(ctx, id, 0);
            return self.enqueue_regular(ctx, id, output);
        }
        // Event e₃ (lines 29 to 32), except that the token is returned when the frame leaves.
        let first = match self.config.order {
            Order::Strict => self.extract_first(ctx, output, flow),
            Order::Printed => None,
        };
        let Some(first) = first else {
            self.tag(ctx, id, hops - 1);
            self.push(ctx, id, output);
            return Verdict::Queued;
        };
        ctx.ledger.totals.escape.swapped += 1;
        self.tag(ctx, first, hops - 1);
        self.push(ctx, first, output);
        self.tag(ctx, id, 0);
        self.enqueue_regular(ctx, id, output)
    }

    /// Handles a frame that escapes, or that updates the flow table.
    #[cold]
    #[inline(never)]
    fn enqueue_other(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let packet = ctx.packets.get(id);
        let (input, escapes) = (usize::from(packet.input), packet.is_escaping());
        self.inputs[input].flows.learn(ctx.packets, id, output);
        if escapes { self.arrive(ctx, id, output) } else { self.enqueue_regular(ctx, id, output) }
    }

    #[inline(always)]
    fn enqueue_regular(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let verdict = self.inner.enqueue(ctx, id, output);
        self.keep_registry(ctx);
        verdict
    }

    /// Arms the timer for the next event.
    fn keep_time(&self, ctx: &mut SwitchCtx<'_>) {
        let next = self.inputs.iter().map(|input| input.next).min().unwrap_or(u64::MAX).min(self.reclaim_at);
        if next != u64::MAX {
            ctx.wake_at(next);
        }
    }
}

impl<S: Switch> Switch for Escape<S> {
    #[inline]
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let packet = ctx.packets.get(id);
        if self.inputs[usize::from(packet.input)].flows.knows(packet, output) {
            return self.enqueue_regular(ctx, id, output);
        }
        self.enqueue_other(ctx, id, output)
    }

    #[inline]
    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        if self.escaping > 0
            && let Some(id) = self.pop(ctx, output)
        {
            return Dequeue::Packet(id);
        }
        let next = self.inner.dequeue(ctx, output, paused);
        self.keep_registry(ctx);
        next
    }

    #[inline]
    fn backlog(&self, output: u16) -> u64 {
        let escaping = if self.escaping > 0 { self.outputs[usize::from(output)].bytes } else { 0 };
        self.inner.backlog(output) + escaping
    }

    fn extract(
        &mut self,
        ctx: &mut SwitchCtx<'_>,
        output: u16,
        wanted: &mut dyn FnMut(&Packets, PacketId) -> bool,
    ) -> Option<PacketId> {
        let id = self.inner.extract(ctx, output, wanted);
        self.keep_registry(ctx);
        id
    }

    fn on_control(&mut self, ctx: &mut SwitchCtx<'_>, port: u16, control: Control) {
        match Message::read(control) {
            Some(Message::Token(flow, hops)) => self.receive(ctx, port, flow, hops),
            Some(Message::Nack(flow, hops)) => self.take_back(ctx, port, flow, hops),
            None => {
                self.inner.on_control(ctx, port, control);
                self.keep_registry(ctx);
            }
        }
    }

    fn on_timer(&mut self, ctx: &mut SwitchCtx<'_>) {
        self.inner.on_timer(ctx);
        self.keep_registry(ctx);
        for at in 0..self.inputs.len() {
            let input = &mut self.inputs[at];
            if input.next > ctx.now {
                continue;
            }
            input.next = if input.requested.is_empty() { u64::MAX } else { ctx.now + input.period };
            if input.next != u64::MAX {
                self.send_tokens(ctx, at as u16);
            }
        }
        if ctx.now >= self.reclaim_at {
            for out in &mut self.outputs {
                ctx.ledger.totals.escape.reclaimed += u64::from(out.pool.reclaim());
            }
            let owed = self.outputs.iter().any(|out| out.pool.is_owed());
            self.reclaim_at = if owed { ctx.now + self.reclaim } else { u64::MAX };
        }
        self.keep_time(ctx);
    }

    fn flush(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, lost: &mut Vec<PacketId>) {
        self.inner.flush(ctx, output, lost);
        self.keep_registry(ctx);
        let out = &mut self.outputs[usize::from(output)];
        while let Some(id) = out.queue.pop(ctx.packets) {
            out.pool.leave();
            self.escaping -= 1;
            lost.push(id);
        }
        out.bytes = 0;
    }

    crate::forward_switch!(inner: paused_upstreams, blocks, prefetch, prefetch_output);
}
