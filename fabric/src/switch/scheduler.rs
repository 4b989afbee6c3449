//! What an output sends next: selection among priorities, and custom orders.

use std::fmt;
use std::sync::Arc;

use super::SwitchCtx;
use crate::network::{PacketId, Packets, Port};
use crate::priorities::Priorities;

/// How an output selects among its priorities. Within a priority packets leave in order of arrival.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// The highest first.
    #[default]
    Strict,
    /// In turn, one packet each.
    RoundRobin,
}

impl Scheduling {
    /// Selects one of `candidates`; `turn` is the priority that is next in turn, and is advanced.
    #[inline]
    pub fn choose(self, candidates: Priorities, turn: &mut u8) -> Option<u8> {
        let priority = match self {
            Scheduling::Strict => candidates.highest(),
            Scheduling::RoundRobin => candidates.next_from(*turn),
        }?;
        *turn = (priority + 1) % 8;
        Some(priority)
    }
}

/// The queue of one output in an order of its own, across all priorities: by slack, by deadline, by size. Admission is
/// up to the buffer ([`super::SharedBufferConfig::scheduler`]).
pub trait Scheduler: Send + fmt::Debug {
    /// Queues a packet that has been admitted.
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId);

    /// Takes out the packet to send next, among those not `paused`.
    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId>;

    /// There is no room for `arriving`: takes out a packet to drop in its favour (push-out), or `None` if `arriving`
    /// itself is to be dropped. Called again until there is room.
    fn evict(&mut self, _ctx: &mut SwitchCtx<'_>, _arriving: PacketId) -> Option<PacketId> {
        None
    }

    /// Called before each [`Self::pop`]: takes out a packet to drop because it has waited for too long. Called again
    /// until there is none. Used by switches with a buffer for each output ([`super::OutputQueued`]) only.
    fn expire(&mut self, _ctx: &mut SwitchCtx<'_>, _paused: Priorities) -> Option<PacketId> {
        None
    }

    /// The rank of the packet that [`Self::pop`] would take out, the lower, the earlier; `None` if no packet may be
    /// sent, or if the order is not by rank. It does not change while the packet waits. Used by switches that interrupt
    /// packets ([`super::OutputQueuedConfig::preempts`]) only.
    fn rank(&self, _packets: &Packets, _paused: Priorities) -> Option<i64> {
        None
    }

    /// A packet that was taken out and interrupted continues: its last bit leaves `by` ns later than without the
    /// interruption.
    fn delayed(&mut self, _ctx: &mut SwitchCtx<'_>, _id: PacketId, _by: u64) {}

    /// Whether packets from `input` with `priority` wait, for deadlock detection.
    fn blocks(&self, _packets: &Packets, _input: u16, _priority: u8) -> bool {
        false
    }
}

/// Builds schedulers. Closures are factories.
pub trait SchedulerFactory: Send + Sync {
    /// Builds the scheduler of an output, whose port has its node and rate.
    fn build(&self, output: &Port) -> Box<dyn Scheduler>;
}

impl<F: Fn(&Port) -> Box<dyn Scheduler> + Send + Sync> SchedulerFactory for F {
    fn build(&self, output: &Port) -> Box<dyn Scheduler> {
        self(output)
    }
}

/// A factory of schedulers, shared by all runs that use it. Two are equal if they are the same object.
#[derive(Clone)]
pub struct CustomScheduler(Arc<dyn SchedulerFactory>);

impl CustomScheduler {
    /// Shares a factory. A closure takes the port of the output: `CustomScheduler::new(|_| Box::new(MyOrder::new()))`.
    pub fn new<F>(factory: F) -> CustomScheduler
    where
        F: Fn(&Port) -> Box<dyn Scheduler> + Send + Sync + 'static,
    {
        CustomScheduler(Arc::new(factory))
    }

    /// Builds the scheduler of an output.
    pub fn build(&self, output: &Port) -> Box<dyn Scheduler> {
        self.0.build(output)
    }
}

impl PartialEq for CustomScheduler {
    fn eq(&self, other: &CustomScheduler) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for CustomScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomScheduler")
    }
}
