//! Fair queueing: one packet of each flow in turn.

use std::collections::VecDeque;

use super::bins::Bins;
use super::codel::Codel;
use crate::network::PacketId;
use crate::priorities::Priorities;
use crate::switch::{Scheduler, SwitchCtx};

/// The packets of one flow, each with its arrival time, ns.
#[derive(Debug, Default)]
struct Bin {
    packets: VecDeque<(PacketId, u64)>,
    bytes: u64,
    codel: Codel,
}

/// Fair queueing as in FQ-CoDel (RFC 8290 §4), except for the quantum: one packet of each flow in turn, new flows
/// before those that have had their turn. Flows are distinguished exactly, not by a hash. If there is no room, the
/// newest packet of the flow with the most bytes is dropped. Waiting time is subtracted from a packet's slack, which
/// does not affect the order.
#[derive(Debug, Default)]
pub(super) struct Fair {
    bins: Bins<Bin>,
    /// Bins in the order of their turns.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    /// Length on the wire of the longest packet seen, bytes.
    longest: u64,
    /// Whether packets that have waited for too long are dropped (CoDel).
    codel: bool,
}

impl Fair {
    /// With or without CoDel for each flow.
    pub(super) fn new(codel: bool) -> Fair {
        Fair { codel, ..Fair::default() }
    }

    /// Takes a packet out of a bin.
    fn take(&mut self, ctx: &SwitchCtx<'_>, bin: u32, at: usize) -> Option<PacketId> {
        let bin = self.bins.get_mut(bin);
        let (id, _) = bin.packets.remove(at)?;
        bin.bytes -= u64::from(ctx.packets.get(id).wire);
        Some(id)
    }

    /// Finds the bin whose turn it is, moves it to the front of its list, and returns it with the position of its
    /// packet that may be sent.
    fn turn(&mut self, ctx: &SwitchCtx<'_>, paused: Priorities) -> Option<(u32, usize)> {
        // Each is examined at most once: those that may send nothing move to the end.
        for _ in 0..self.new.len() + self.old.len() {
            let (bin, is_old) = match self.new.front() {
                Some(bin) => (*bin, false),
                None => (*self.old.front()?, true),
            };
            let allowed = |(id, _): &(PacketId, u64)| !paused.contains(ctx.packets.get(*id).priority);
            let queue = &self.bins.get(bin).packets;
            let first =
                if paused.is_empty() { (!queue.is_empty()).then_some(0) } else { queue.iter().position(allowed) };
            if let Some(at) = first {
                return Some((bin, at));
            }
            let is_empty = queue.is_empty();
            if is_empty {
                self.bins.get_mut(bin).codel.empty();
            }
            if is_old && is_empty {
                self.old.pop_front();
                self.bins.give_back(bin);
            } else {
                self.end_turn();
            }
        }
        None
    }

    /// Ends the turn of the current bin.
    fn end_turn(&mut self) {
        let bin = self.new.pop_front().or_else(|| self.old.pop_front());
        self.old.extend(bin);
    }
}

impl Scheduler for Fair {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let (bin, is_new) = self.bins.find_or_add(ctx.packets, id);
        if is_new {
            self.new.push_back(bin);
        }
        let wire = u64::from(ctx.packets.get(id).wire);
        let bin = self.bins.get_mut(bin);
        bin.packets.push_back((id, ctx.now));
        bin.bytes += wire;
        self.longest = self.longest.max(wire);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        let (bin, at) = self.turn(ctx, paused)?;
        self.end_turn();
        let (_, since) = self.bins.get_mut(bin).packets[at];
        let id = self.take(ctx, bin, at)?;
        ctx.packets.get_mut(id).slack -= (ctx.now - since) as i64;
        Some(id)
    }

    fn expire(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        if !self.codel {
            return None;
        }
        let (number, at) = self.turn(ctx, paused)?;
        let bin = self.bins.get_mut(number);
        let (id, since) = bin.packets[at];
        let few = bin.bytes - u64::from(ctx.packets.get(id).wire) <= self.longest;
        let drops = bin.codel.drops(ctx.now, ctx.now - since, few);
        drops.then(|| self.take(ctx, number, at)).flatten()
    }

    fn evict(&mut self, ctx: &mut SwitchCtx<'_>, arriving: PacketId) -> Option<PacketId> {
        let wire = u64::from(ctx.packets.get(arriving).wire);
        let own = self.bins.find(ctx.packets, arriving).map_or(0, |bin| self.bins.get(bin).bytes) + wire;
        let (bin, of) = self.bins.iter().max_by_key(|(_, bin)| bin.bytes)?;
        if of.bytes <= own {
            return None;
        }
        let last = of.packets.len() - 1;
        self.take(ctx, bin, last)
    }
}
