//! Omniscient replay (Mittal, appendix A.1): the header of a packet has, for each switch, the time at which the
//! original switch began to send it, which is its rank there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::Schedule;
use crate::network::{PacketId, Port};
use crate::priorities::Priorities;
use crate::switch::{CustomScheduler, Scheduler, SharedBufferConfig, SwitchConfig, SwitchCtx};

/// More than is ever queued.
const BUFFER: u64 = 1 << 40;

/// Switches with unlimited buffers that send packets by a schedule. The slack of a packet is its index in the schedule.
pub(super) fn switches(schedule: Arc<Schedule>, longest: u32) -> SwitchConfig {
    let mut config = SharedBufferConfig::new(BUFFER, longest);
    config.alpha = BUFFER as f64;
    config.scheduler = Some(CustomScheduler::new(move |port: &Port| {
        Box::new(ByStart { node: port.node, schedule: schedule.clone(), queue: BinaryHeap::new(), next: 0 })
    }));
    SwitchConfig::SharedBuffer(config)
}

/// The queue of an output.
#[derive(Debug)]
struct ByStart {
    node: u32,
    schedule: Arc<Schedule>,
    /// Time at which the original switch began to send each packet, order of arrival, and packet number.
    queue: BinaryHeap<Reverse<(u64, u64, PacketId)>>,
    next: u64,
}

impl Scheduler for ByStart {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let packet = ctx.packets.get(id).slack as usize;
        let starts = self.schedule.starts(packet);
        let start = starts.iter().find(|(node, _)| *node == self.node).map_or(u64::MAX, |(_, start)| *start);
        self.queue.push(Reverse((start, self.next, id)));
        self.next += 1;
    }

    fn pop(&mut self, _: &mut SwitchCtx<'_>, _: Priorities) -> Option<PacketId> {
        self.queue.pop().map(|Reverse((.., id))| id)
    }
}
