//! Shortest flow first, without starving the earlier packets of that flow.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::bins::Bins;
use crate::network::PacketId;
use crate::priorities::Priorities;
use crate::switch::{Scheduler, SwitchCtx};

/// A queued packet: its rank (what it says remains of its flow), its order of arrival, and its number.
type Waiting = (i64, u64, PacketId);

/// The packets of one flow in order of arrival, and rank and order of the one with the lowest rank.
#[derive(Debug, Default)]
struct Bin {
    packets: VecDeque<Waiting>,
    lowest: Option<(i64, u64)>,
}

/// The flow with the lowest [`crate::network::Packet::slack`] in any of its packets, and of that flow the oldest
/// packet: pFabric's starvation prevention (Alizadeh et al., SIGCOMM 2013, §4.2), as universal packet scheduling uses
/// it for SJF and SRPT (§5.2.1). If there is no room, the packet with the highest is dropped, of equals the newest.
#[derive(Debug, Default)]
pub(super) struct ShortestFlow {
    bins: Bins<Bin>,
    /// Flows by their lowest rank. Outdated entries are skipped.
    order: BinaryHeap<Reverse<(i64, u64, u32)>>,
    arrivals: u64,
    packets: usize,
}

impl ShortestFlow {
    /// Notes the lowest rank of a flow.
    fn set_lowest(&mut self, bin: u32, lowest: Option<(i64, u64)>) {
        self.bins.get_mut(bin).lowest = lowest;
        match lowest {
            Some((rank, order)) => self.order.push(Reverse((rank, order, bin))),
            None => self.bins.give_back(bin),
        }
        if self.order.len() > 2 * self.packets + 64 {
            let bins = &self.bins;
            self.order.retain(|Reverse((rank, order, bin))| bins.get(*bin).lowest == Some((*rank, *order)));
        }
    }

    /// Takes a packet out of a bin.
    fn take(&mut self, number: u32, at: usize) -> Option<PacketId> {
        let bin = self.bins.get_mut(number);
        let (rank, order, id) = bin.packets.remove(at)?;
        self.packets -= 1;
        if bin.lowest == Some((rank, order)) {
            let next = bin.packets.front().filter(|(next, ..)| at == 0 && *next == rank);
            let lowest = next.or_else(|| bin.packets.iter().min()).map(|(rank, order, _)| (*rank, *order));
            self.set_lowest(number, lowest);
        }
        Some(id)
    }

    /// The next flow among those that have packets that may be sent.
    fn first_flow(&mut self) -> Option<u32> {
        loop {
            let &Reverse((rank, order, bin)) = self.order.peek()?;
            if self.bins.get(bin).lowest == Some((rank, order)) {
                return Some(bin);
            }
            self.order.pop();
        }
    }
}

impl Scheduler for ShortestFlow {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let (bin, _) = self.bins.find_or_add(ctx.packets, id);
        let (rank, order) = (ctx.packets.get(id).slack, self.arrivals);
        self.arrivals += 1;
        self.packets += 1;
        let of = self.bins.get_mut(bin);
        of.packets.push_back((rank, order, id));
        if of.lowest.is_none_or(|(lowest, _)| rank < lowest) {
            self.set_lowest(bin, Some((rank, order)));
        }
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        if paused.is_empty() {
            let flow = self.first_flow()?;
            return self.take(flow, 0);
        }
        let may_go = |(.., id): &&Waiting| !paused.contains(ctx.packets.get(*id).priority);
        let lowest = |(number, bin): (u32, &Bin)| Some((bin.packets.iter().filter(may_go).min().copied()?, number));
        let (_, flow) = self.bins.iter().filter_map(lowest).min()?;
        let first = self.bins.get(flow).packets.iter().position(|waiting| may_go(&waiting))?;
        self.take(flow, first)
    }

    fn evict(&mut self, ctx: &mut SwitchCtx<'_>, arriving: PacketId) -> Option<PacketId> {
        let highest = |(number, bin): (u32, &Bin)| {
            let (at, (rank, order, _)) = bin.packets.iter().enumerate().max_by_key(|(_, waiting)| **waiting)?;
            Some((*rank, *order, number, at))
        };
        let (rank, _, flow, at) = self.bins.iter().filter_map(highest).max()?;
        (rank > ctx.packets.get(arriving).slack).then(|| self.take(flow, at)).flatten()
    }
}
