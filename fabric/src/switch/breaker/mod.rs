//! Loop breakers: ports that PFC has paused for long find out by tokens whether they wait for each other. If so, they
//! drop frames (LB) or each send one on (DLB), as §4.6.4 of Menikkumbura's dissertation (Purdue University) describes
//! for comparison with Escape.
//!
//! A suspected port sends a token to the neighbour that paused it. The neighbour forwards it by each output that is
//! suspected itself and has frames queued that came the same way. A port whose token comes back is in a loop; ports do
//! not forward tokens of ports with higher numbers, so that exactly one becomes the loop's master. docs/escape.md lists
//! the papers' details that were recalled from memory.

mod config;
mod counters;
mod ports;
mod token;

pub use config::{BreakerConfig, Remedy};
pub use counters::BreakerCounters;

use ports::{Input, Output};
use token::{Origin, Token};

use super::{Dequeue, Effect, Switch, SwitchCtx, Verdict};
use crate::network::{Control, PacketId, Packets, Port};
use crate::priorities::Priorities;

/// The input by which a token arrived that left by an output: the loop of `origin`, if it is one, has frames from that
/// input that wait for that output.
#[derive(Debug)]
struct Way {
    origin: Origin,
    priority: u8,
    output: u16,
    input: u16,
    probe: u32,
}

/// A switch wrapper that can take frames out of the inner switch's queues ([`Switch::extract`]).
#[derive(Debug)]
pub(crate) struct Breaker {
    inner: Box<dyn Switch>,
    config: BreakerConfig,
    node: u32,
    inputs: Box<[Input]>,
    outputs: Box<[Output]>,
    /// Paths of tokens past paused outputs.
    ways: Vec<Way>,
    /// Number of the last probe.
    probe: u32,
}

impl Breaker {
    /// Wraps the switch of `node` with these ports in a loop breaker. `edges` are the ports to hosts.
    pub(crate) fn around(
        inner: Box<dyn Switch>,
        config: &BreakerConfig,
        node: u32,
        ports: &[Port],
        edges: &[bool],
    ) -> Breaker {
        let input = |(port, edge): (&Port, &bool)| Input::new(port, *edge, config.place);
        Breaker {
            inner,
            config: *config,
            node,
            inputs: ports.iter().zip(edges).map(input).collect(),
            outputs: ports.iter().map(|_| Output::default()).collect(),
            ways: Vec::new(),
            probe: 0,
        }
    }

    /// Updates port state from the pauses that the inner switch requested.
    #[inline]
    fn keep_registry(&mut self, ctx: &mut SwitchCtx<'_>) {
        if !ctx.ledger.effects.is_empty() {
            self.note_pauses(ctx);
        }
    }

    #[cold]
    fn note_pauses(&mut self, ctx: &mut SwitchCtx<'_>) {
        for effect in &ctx.ledger.effects {
            let Effect::RequestPause(input, pause) = *effect else { continue };
            let input = &mut self.inputs[usize::from(input)];
            if input.requested.contains(pause.priority) != pause.stop {
                input.note(ctx.now, pause.priority, pause.stop, self.config.place);
            }
        }
    }

    fn origin(&self, port: u16) -> Origin {
        Origin { node: self.node, port }
    }

    fn is_suspect(&self, now: u64, output: u16, priority: u8) -> bool {
        !self.inputs[usize::from(output)].edge
            && self.outputs[usize::from(output)].is_suspect(now, priority, self.config.wait)
    }

    /// Whether a port would act on a loop through it from `input`: if so, it is worth waiting for its own token.
    fn can_resolve(&self, now: u64, input: u16, output: u16, priority: u8) -> bool {
        self.config.remedy == Remedy::Drop
            || self.outputs[usize::from(output)].is_rotating(now)
            || self.inputs[usize::from(input)].is_free(now, priority)
    }

    /// Sends the tokens that are due.
    fn send_tokens(&mut self, ctx: &mut SwitchCtx<'_>) {
        for port in 0..self.outputs.len() as u16 {
            let output = &mut self.outputs[usize::from(port)];
            let due = output.take_due(ctx.now, self.config.wait);
            if due.is_empty() || output.is_rotating(ctx.now) || self.inputs[usize::from(port)].edge {
                continue;
            }
            for priority in due.iter() {
                self.probe = self.probe.wrapping_add(1);
                let token = Token::Probe { origin: self.origin(port), priority, number: self.probe };
                ctx.control(port, token.into());
                ctx.ledger.totals.breaker.tokens += 1;
            }
        }
    }

    /// Arms the timer for the next token.
    fn keep_time(&self, ctx: &mut SwitchCtx<'_>) {
        let next = self.outputs.iter().map(Output::next_due).min().unwrap_or(u64::MAX);
        if next != u64::MAX {
            ctx.wake_at(next);
        }
    }

    /// Handles a token that arrived by `input`: its port waits for this one to accept frames, which waits for those of
    /// its outputs by which they leave.
    fn probed(&mut self, ctx: &mut SwitchCtx<'_>, input: u16, origin: Origin, priority: u8, probe: u32) {
        if !self.inputs[usize::from(input)].requested.contains(priority) {
            return;
        }
        for output in 0..self.outputs.len() as u16 {
            let stands =
                self.is_suspect(ctx.now, output, priority) && self.inner.blocks(ctx.packets, input, priority, output);
            if !stands {
                continue;
            }
            let own = self.origin(output);
            if own == origin {
                self.found(ctx, input, output, priority);
            } else if (own > origin || !self.can_resolve(ctx.now, input, output, priority))
                && self.remember(Way { origin, priority, output, input, probe })
            {
                ctx.control(output, Token::Probe { origin, priority, number: probe }.into());
                ctx.ledger.totals.breaker.forwarded += 1;
            }
        }
    }

    /// Records the path of a token. Returns whether it is new.
    fn remember(&mut self, way: Way) -> bool {
        let same =
            |known: &&mut Way| (known.origin, known.priority, known.output) == (way.origin, way.priority, way.output);
        match self.ways.iter_mut().find(same) {
            Some(known) if known.probe == way.probe => false,
            Some(known) => {
                *known = way;
                true
            }
            None => {
                self.ways.push(way);
                true
            }
        }
    }

    /// Handles the token of `output` that came back by `input`.
    fn found(&mut self, ctx: &mut SwitchCtx<'_>, input: u16, output: u16, priority: u8) {
        match self.config.remedy {
            Remedy::Drop => {
                ctx.ledger.totals.breaker.loops += 1;
                self.drop_frames(ctx, input, output, priority);
            }
            Remedy::Rotate => {
                if self.outputs[usize::from(output)].is_rotating(ctx.now) {
                    return;
                }
                ctx.ledger.totals.breaker.loops += 1;
                let origin = self.origin(output);
                self.remember(Way { origin, priority, output, input, probe: self.probe });
                if self.inputs[usize::from(input)].is_free(ctx.now, priority) {
                    self.rotate(ctx, input, output, origin, priority);
                }
            }
        }
    }

    /// LB: drops frames that came by `input` and wait for `output`, oldest first, until none are left or the neighbour
    /// is resumed.
    fn drop_frames(&mut self, ctx: &mut SwitchCtx<'_>, input: u16, output: u16, priority: u8) {
        while self.inputs[usize::from(input)].requested.contains(priority)
            && let Some(id) = self.take_first(ctx, input, output, priority, u32::MAX)
        {
            ctx.ledger.totals.breaker.dropped += 1;
            ctx.drop(id);
        }
    }

    /// Takes the first frame that came by `input` out of the regular queues of `output`, if it has at most `bytes`.
    fn take_first(
        &mut self,
        ctx: &mut SwitchCtx<'_>,
        input: u16,
        output: u16,
        priority: u8,
        bytes: u32,
    ) -> Option<PacketId> {
        let mut first = true;
        let id = self.inner.extract(ctx, output, &mut |packets, id| {
            let packet = packets.get(id);
            let is_first = first && (packet.input, packet.priority) == (input, priority);
            first &= !is_first;
            is_first && packet.wire <= bytes
        });
        self.keep_registry(ctx);
        let id = id?;
        self.inputs[usize::from(input)].left(priority, ctx.packets.get(id).wire);
        Some(id)
    }

    /// DLB: has the neighbour at `input` send one of the frames of the loop. For a loop of its own, the switch starts
    /// no further probes until the rotation is complete.
    fn rotate(&mut self, ctx: &mut SwitchCtx<'_>, input: u16, output: u16, origin: Origin, priority: u8) {
        let Some(bytes) = self.inputs[usize::from(input)].grant(ctx.now, priority, self.config.place) else { return };
        if origin == self.origin(output) {
            self.outputs[usize::from(output)].rotates(ctx.now + self.config.wait);
        }
        ctx.control(input, Token::Grant { origin, priority, bytes }.into());
    }

    /// Handles a grant: the neighbour of `output` has room for a frame of the loop. Sends one, and makes room for
    /// another.
    fn granted(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, origin: Origin, priority: u8, bytes: u32) {
        let mine = |way: &&Way| (way.origin, way.priority, way.output) == (origin, priority, output);
        let Some(&Way { input, .. }) = self.ways.iter().find(mine) else { return };
        let Some(id) = self.take_first(ctx, input, output, priority, bytes) else { return };
        self.outputs[usize::from(output)].push(ctx.packets, id);
        let waiting = self.backlog(output);
        let counters = &mut ctx.ports[usize::from(output)].counters;
        counters.peak = counters.peak.max(waiting);
        let breaker = &mut ctx.ledger.totals.breaker;
        breaker.moved += 1;
        breaker.rotations += u64::from(origin == self.origin(output));
        self.rotate(ctx, input, output, origin, priority);
    }

    /// Handles a pause: the neighbour of `output` has paused exactly these priorities.
    fn stopped(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, stopped: Priorities) {
        self.outputs[usize::from(output)].note(ctx.now, stopped, self.config.wait);
        self.ways.retain(|way| way.output != output || stopped.contains(way.priority));
        self.keep_time(ctx);
    }
}

impl Switch for Breaker {
    #[inline]
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let packet = ctx.packets.get(id);
        self.inputs[usize::from(packet.input)].arrived(ctx.now, packet.priority, packet.wire);
        let verdict = self.inner.enqueue(ctx, id, output);
        self.keep_registry(ctx);
        verdict
    }

    #[inline]
    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        if let Some(id) = self.outputs[usize::from(output)].pop(ctx.packets) {
            return Dequeue::Packet(id);
        }
        let next = self.inner.dequeue(ctx, output, paused);
        if let Dequeue::Packet(id) = next {
            let packet = ctx.packets.get(id);
            self.inputs[usize::from(packet.input)].left(packet.priority, packet.wire);
        }
        self.keep_registry(ctx);
        next
    }

    #[inline]
    fn backlog(&self, output: u16) -> u64 {
        self.inner.backlog(output) + self.outputs[usize::from(output)].bytes()
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
        match Token::read(control) {
            Some(Token::Probe { origin, priority, number }) => self.probed(ctx, port, origin, priority, number),
            Some(Token::Grant { origin, priority, bytes }) => self.granted(ctx, port, origin, priority, bytes),
            None => {
                if let Control::Pfc(stopped) = control {
                    self.stopped(ctx, port, stopped);
                }
                self.inner.on_control(ctx, port, control);
                self.keep_registry(ctx);
            }
        }
    }

    fn on_timer(&mut self, ctx: &mut SwitchCtx<'_>) {
        self.inner.on_timer(ctx);
        self.keep_registry(ctx);
        self.send_tokens(ctx);
        self.keep_time(ctx);
    }

    fn flush(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, lost: &mut Vec<PacketId>) {
        self.inner.flush(ctx, output, lost);
        self.keep_registry(ctx);
        self.stopped(ctx, output, Priorities::NONE);
        while let Some(id) = self.outputs[usize::from(output)].pop(ctx.packets) {
            lost.push(id);
        }
    }

    crate::forward_switch!(inner: paused_upstreams, blocks, prefetch, prefetch_output);
}
