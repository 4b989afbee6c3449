//! Orders by a value that packets carry: slack (LSTF), or a rank that switches leave unchanged.

use super::RankQueue;
use crate::network::{PacketId, Packets};
use crate::priorities::Priorities;
use crate::switch::{Scheduler, SwitchCtx};

/// Least slack time first (Mittal, UCB/EECS-2018-103, §5.1.2 and §5.4): the packet whose last bit has to leave first to
/// reach its destination in time is next. If there is no room, the one of the highest rank is dropped.
///
/// [`crate::network::Packet::slack`] is the time that a packet may still wait. Its rank here, the time by which its
/// last bit has to be sent, is the slack at its arrival plus the arrival time plus its transmission time. When it
/// leaves, its slack is what remains.
#[derive(Debug)]
pub(super) struct LeastSlack {
    output: usize,
    queue: RankQueue,
}

impl LeastSlack {
    pub(super) fn new(output: u16) -> LeastSlack {
        LeastSlack { output: output.into(), queue: RankQueue::default() }
    }

    fn rank_of(&self, ctx: &SwitchCtx<'_>, id: PacketId) -> i64 {
        let packet = ctx.packets.get(id);
        let transmission = ctx.ports[self.output].serialization(packet.wire).div_ceil(1000);
        packet.slack.saturating_add_unsigned(ctx.now).saturating_add_unsigned(transmission)
    }
}

impl Scheduler for LeastSlack {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let rank = self.rank_of(ctx, id);
        self.queue.push(rank, id);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        let (rank, id) = lowest(&mut self.queue, ctx, paused)?;
        let packet = ctx.packets.get_mut(id);
        // What the link's clock rounds is part of the transmission, not of the wait: no slack is lost.
        let out = ctx.ports[self.output].would_end(ctx.now, packet.wire).div_ceil(1000);
        packet.slack = rank.saturating_sub_unsigned(out);
        Some(id)
    }

    fn rank(&self, packets: &Packets, paused: Priorities) -> Option<i64> {
        lowest_rank(&self.queue, packets, paused)
    }

    /// All bits of a packet have the slack of the last, which decreases while others are sent (§5.1.3, item 5).
    fn delayed(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, by: u64) {
        let packet = ctx.packets.get_mut(id);
        packet.slack = packet.slack.saturating_sub_unsigned(by);
    }

    fn evict(&mut self, ctx: &mut SwitchCtx<'_>, arriving: PacketId) -> Option<PacketId> {
        let rank = self.rank_of(ctx, arriving);
        highest_above(&mut self.queue, rank)
    }
}

/// The lowest [`crate::network::Packet::slack`] first, which switches leave unchanged: flow size (SJF), remaining size
/// (SRPT), times. If there is no room, the highest is dropped.
#[derive(Debug, Default)]
pub(super) struct ByRank(RankQueue);

impl Scheduler for ByRank {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        self.0.push(ctx.packets.get(id).slack, id);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        lowest(&mut self.0, ctx, paused).map(|(_, id)| id)
    }

    fn rank(&self, packets: &Packets, paused: Priorities) -> Option<i64> {
        lowest_rank(&self.0, packets, paused)
    }

    fn evict(&mut self, ctx: &mut SwitchCtx<'_>, arriving: PacketId) -> Option<PacketId> {
        highest_above(&mut self.0, ctx.packets.get(arriving).slack)
    }
}

/// Removes the first packet that may be sent.
#[inline]
pub(super) fn lowest(queue: &mut RankQueue, ctx: &SwitchCtx<'_>, paused: Priorities) -> Option<(i64, PacketId)> {
    if paused.is_empty() {
        return queue.pop_lowest();
    }
    queue.pop_wanted(|id| !paused.contains(ctx.packets.get(id).priority))
}

/// The rank of the first packet that may be sent.
#[inline]
pub(super) fn lowest_rank(queue: &RankQueue, packets: &Packets, paused: Priorities) -> Option<i64> {
    if paused.is_empty() {
        return queue.lowest();
    }
    queue.lowest_wanted(|id| !paused.contains(packets.get(id).priority))
}

/// Removes the last packet in order, if its rank is above `rank`.
pub(super) fn highest_above(queue: &mut RankQueue, rank: i64) -> Option<PacketId> {
    if queue.highest()? <= rank {
        return None;
    }
    queue.pop_highest().map(|(_, id)| id)
}
