//! Earliest deadline first: headers carry the time at which packets are to leave the network, and switches compute the
//! rest from their routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Discipline, RankQueue};
use crate::network::{PacketId, Packets, Port};
use crate::priorities::Priorities;
use crate::sim::ideal;
use crate::switch::{CustomScheduler, Scheduler, SwitchConfig, SwitchCtx};
use crate::topology::{Routes, Topology};

/// Tables shared by all outputs of a network.
#[derive(Debug)]
struct Tables {
    topology: Topology,
    routes: Routes,
}

impl Tables {
    /// Returns the time on idle links from when `output` has sent the last bit of a packet of `wire` bytes until it
    /// reaches host `dst`, ns. 0 if there is no path.
    fn rest(&self, output: &Port, dst: u32, wire: u32) -> u64 {
        let (_, next) = self.routes.wire(output.node, output.local);
        let path = self.routes.path(next, dst).unwrap_or_default();
        let first = std::iter::once((output.rate, output.delay));
        let links: Vec<(u64, u64)> =
            first.chain(self.topology.along(&path).map(|link| (link.rate, link.delay))).collect();
        ideal(&[(wire, 1)], &links) - output.serialization(wire).div_ceil(1000)
    }
}

/// Passes the tables to those switches that use deadlines ([`Discipline::EarliestDeadline`]).
pub(crate) fn with_tables<'a>(
    switches: impl Iterator<Item = &'a mut SwitchConfig>,
    topology: &Topology,
    routes: &Routes,
) {
    let mut tables = None;
    for switch in switches {
        let SwitchConfig::OutputQueued(config) = switch else { continue };
        if config.discipline != Discipline::EarliestDeadline {
            continue;
        }
        let all = || Arc::new(Tables { topology: topology.clone(), routes: routes.clone() });
        let tables = tables.get_or_insert_with(all).clone();
        config.discipline = Discipline::Custom(CustomScheduler::new(move |output: &Port| {
            let known = BTreeMap::new();
            let output = Port::new(output.node, output.local, 0, output.link, output.rate, output.delay, 0.0);
            Box::new(EarliestDeadline { tables: tables.clone(), output, known, queue: RankQueue::default() })
        }));
    }
}

/// Earliest deadline first (Mittal, UCB/EECS-2018-103, appendix A.4): [`crate::network::Packet::slack`] is the time at
/// which the packet is to leave the network, and is not changed. Its rank here, the time by which its last bit has to
/// be sent, is that minus the remaining travel time without queueing. If there is no room, the one of the highest rank
/// is dropped.
///
/// Of equally long paths the first counts, in the network as it was built.
#[derive(Debug)]
struct EarliestDeadline {
    tables: Arc<Tables>,
    output: Port,
    /// Remaining travel times of packets, by destination and bytes on the wire, ns.
    known: BTreeMap<(u32, u32), u64>,
    queue: RankQueue,
}

impl EarliestDeadline {
    fn rank_of(&mut self, ctx: &SwitchCtx<'_>, id: PacketId) -> i64 {
        let packet = ctx.packets.get(id);
        let of = (packet.dst, packet.wire);
        let rest = self.known.entry(of).or_insert_with(|| self.tables.rest(&self.output, of.0, of.1));
        packet.slack.saturating_sub_unsigned(*rest)
    }
}

impl Scheduler for EarliestDeadline {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let rank = self.rank_of(ctx, id);
        self.queue.push(rank, id);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        super::ranked::lowest(&mut self.queue, ctx, paused).map(|(_, id)| id)
    }

    fn rank(&self, packets: &Packets, paused: Priorities) -> Option<i64> {
        super::ranked::lowest_rank(&self.queue, packets, paused)
    }

    fn evict(&mut self, ctx: &mut SwitchCtx<'_>, arriving: PacketId) -> Option<PacketId> {
        let rank = self.rank_of(ctx, arriving);
        super::ranked::highest_above(&mut self.queue, rank)
    }
}
