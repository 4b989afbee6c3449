//! Fair queueing: a packet of each flow in turn.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::network::{PacketId, Packets};
use crate::priorities::Priorities;
use crate::switch::{Scheduler, SwitchCtx};

/// What tells flows apart: the sender, and its queue pair.
type Key = (IpAddr, u32);

/// The packets of one flow.
#[derive(Debug)]
struct Bin {
    key: Key,
    packets: VecDeque<PacketId>,
    bytes: u64,
}

/// Fair queueing as FQ-CoDel has it (RFC 8290 §4), without CoDel: a packet of each flow in turn, flows that had nothing to
/// send before those that had their turn. Flows are told apart exactly, not by a hash. Where there is no room, the newest
/// packet of the flow with most bytes is dropped.
#[derive(Debug, Default)]
pub(super) struct Fair {
    bins: Vec<Bin>,
    /// Bins of no flow.
    free: Vec<u32>,
    /// Flows with a turn, by key, each with its bin.
    known: Vec<(Key, u32)>,
    /// Bins in the order of their turns.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

impl Fair {
    fn bin_of(&self, packets: &Packets, id: PacketId) -> Result<u32, (usize, Key)> {
        let key = packets.flow(id);
        let at = self.known.binary_search_by(|(known, _)| known.cmp(&key));
        at.map(|at| self.known[at].1).map_err(|at| (at, key))
    }

    /// Forgets a flow whose turn finds it without a packet.
    fn forget(&mut self, bin: u32) {
        let key = self.bins[bin as usize].key;
        if let Ok(at) = self.known.binary_search_by(|(known, _)| known.cmp(&key)) {
            self.known.remove(at);
        }
        self.free.push(bin);
    }

    /// Takes a packet out of a bin.
    fn take(&mut self, packets: &Packets, bin: u32, at: usize) -> Option<PacketId> {
        let bin = &mut self.bins[bin as usize];
        let id = bin.packets.remove(at)?;
        bin.bytes -= u64::from(packets.get(id).wire);
        Some(id)
    }
}

impl Scheduler for Fair {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let bin = self.bin_of(ctx.packets, id).unwrap_or_else(|(at, key)| {
            let bin = self.free.pop().unwrap_or_else(|| {
                self.bins.push(Bin { key, packets: VecDeque::new(), bytes: 0 });
                self.bins.len() as u32 - 1
            });
            self.bins[bin as usize].key = key;
            self.known.insert(at, (key, bin));
            self.new.push_back(bin);
            bin
        });
        let bin = &mut self.bins[bin as usize];
        bin.packets.push_back(id);
        bin.bytes += u64::from(ctx.packets.get(id).wire);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        // Each has one look at most: those that may send nothing come to the end.
        for _ in 0..self.new.len() + self.old.len() {
            let (bin, is_old) = match self.new.pop_front() {
                Some(bin) => (bin, false),
                None => (self.old.pop_front()?, true),
            };
            let allowed = |id: &PacketId| !paused.contains(ctx.packets.get(*id).priority);
            let queue = &self.bins[bin as usize].packets;
            let first =
                if paused.is_empty() { (!queue.is_empty()).then_some(0) } else { queue.iter().position(allowed) };
            if is_old && queue.is_empty() {
                self.forget(bin);
                continue;
            }
            self.old.push_back(bin);
            if let Some(at) = first {
                return self.take(ctx.packets, bin, at);
            }
        }
        None
    }

    fn evict(&mut self, ctx: &mut SwitchCtx<'_>, arriving: PacketId) -> Option<PacketId> {
        let wire = u64::from(ctx.packets.get(arriving).wire);
        let own = self.bin_of(ctx.packets, arriving).map_or(0, |bin| self.bins[bin as usize].bytes) + wire;
        let bytes = |bin: u32| self.bins[bin as usize].bytes;
        let (longest, bin) = self.known.iter().map(|&(_, bin)| (bytes(bin), bin)).max_by_key(|(bytes, _)| *bytes)?;
        if longest <= own {
            return None;
        }
        let last = self.bins[bin as usize].packets.len() - 1;
        self.take(ctx.packets, bin, last)
    }
}
