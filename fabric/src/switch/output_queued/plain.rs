//! Orders that depend on arrival and priority only.

use std::collections::VecDeque;

use rand::RngExt;

use crate::network::{PacketId, Packets};
use crate::priorities::Priorities;
use crate::switch::{Scheduler, SwitchCtx};

/// Whether a packet may be sent.
fn may_go(packets: &Packets, id: PacketId, paused: Priorities) -> bool {
    !paused.contains(packets.get(id).priority)
}

/// First in, first out.
#[derive(Debug, Default)]
pub(super) struct FirstIn(VecDeque<PacketId>);

impl Scheduler for FirstIn {
    fn push(&mut self, _ctx: &mut SwitchCtx<'_>, id: PacketId) {
        self.0.push_back(id);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        if paused.is_empty() {
            return self.0.pop_front();
        }
        let first = self.0.iter().position(|id| may_go(ctx.packets, *id, paused))?;
        self.0.remove(first)
    }
}

/// Last in, first out.
#[derive(Debug, Default)]
pub(super) struct LastIn(Vec<PacketId>);

impl Scheduler for LastIn {
    fn push(&mut self, _ctx: &mut SwitchCtx<'_>, id: PacketId) {
        self.0.push(id);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        if paused.is_empty() {
            return self.0.pop();
        }
        let last = self.0.iter().rposition(|id| may_go(ctx.packets, *id, paused))?;
        Some(self.0.remove(last))
    }
}

/// Random, with equal probability.
#[derive(Debug, Default)]
pub(super) struct AnyOf(Vec<PacketId>);

impl Scheduler for AnyOf {
    fn push(&mut self, _ctx: &mut SwitchCtx<'_>, id: PacketId) {
        self.0.push(id);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        // If there are packets that may not be sent, they are moved to the end.
        let mut able = self.0.len();
        if !paused.is_empty() {
            let (mut at, packets) = (0, &*ctx.packets);
            while at < able {
                if may_go(packets, self.0[at], paused) {
                    at += 1;
                } else {
                    able -= 1;
                    self.0.swap(at, able);
                }
            }
        }
        let chosen = (able > 0).then(|| ctx.rng.random_range(0..able))?;
        Some(self.0.swap_remove(chosen))
    }
}

/// The highest priority first, FIFO within a priority. If there is no room, the newest packet of the lowest priority
/// below that of the arriving one is dropped (RC3 §2.4.1: "priority dropping and priority scheduling").
#[derive(Debug, Default)]
pub(super) struct ByPriority {
    queues: [VecDeque<PacketId>; Priorities::COUNT],
    waiting: Priorities,
}

impl ByPriority {
    fn take(&mut self, priority: u8, take: fn(&mut VecDeque<PacketId>) -> Option<PacketId>) -> Option<PacketId> {
        let queue = &mut self.queues[usize::from(priority)];
        let id = take(queue)?;
        if queue.is_empty() {
            self.waiting.remove(priority);
        }
        Some(id)
    }
}

impl Scheduler for ByPriority {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let priority = ctx.packets.get(id).priority;
        self.queues[usize::from(priority)].push_back(id);
        self.waiting.insert(priority);
    }

    fn pop(&mut self, _ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        self.take(self.waiting.without(paused).highest()?, VecDeque::pop_front)
    }

    fn rank(&self, _packets: &Packets, paused: Priorities) -> Option<i64> {
        self.waiting.without(paused).highest().map(|priority| -i64::from(priority))
    }

    fn evict(&mut self, ctx: &mut SwitchCtx<'_>, arriving: PacketId) -> Option<PacketId> {
        let lowest = self.waiting.next_from(0)?;
        (lowest < ctx.packets.get(arriving).priority).then(|| self.take(lowest, VecDeque::pop_back)).flatten()
    }
}
