//! What an output sends next: the choice among priorities, and orders of one's own.

use std::fmt;
use std::sync::Arc;

use super::SwitchCtx;
use crate::network::{PacketId, Packets, Port};
use crate::priorities::Priorities;

/// How an output chooses among its priorities. Within a priority packets go in the order in which they came.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// The highest first.
    #[default]
    Strict,
    /// In turn, a packet each.
    RoundRobin,
}

impl Scheduling {
    /// Chooses one of `candidates`; `turn` is the priority that is next in turn, and is moved on.
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

/// The queue of one output in an order of its own, across all priorities: by slack, by deadline, by size. A buffer
/// decides what is admitted to it ([`super::SharedBufferConfig::scheduler`]).
pub trait Scheduler: Send + fmt::Debug {
    /// Takes in a packet that has been admitted.
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId);

    /// Takes out the packet that goes next, none of those that are `paused`.
    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId>;

    /// There is no room for `arriving`: takes out a packet that is to be dropped in its favour (push-out), or none if
    /// `arriving` itself is to be. Called again until there is room.
    fn evict(&mut self, _ctx: &mut SwitchCtx<'_>, _arriving: PacketId) -> Option<PacketId> {
        None
    }

    /// Before each [`Self::pop`]: takes out a packet that has waited for too long, and is dropped. Called again until
    /// there is none. For switches with a buffer for each output ([`super::OutputQueued`]); others do not ask.
    fn expire(&mut self, _ctx: &mut SwitchCtx<'_>, _paused: Priorities) -> Option<PacketId> {
        None
    }

    /// The rank of the packet that [`Self::pop`] would take out, the lower, the earlier; none where none may go, or
    /// where the order is not by rank. It does not change while the packet waits. For switches that interrupt packets
    /// ([`super::OutputQueuedConfig::preempts`]); others do not ask.
    fn rank(&self, _packets: &Packets, _paused: Priorities) -> Option<i64> {
        None
    }

    /// A packet that was taken out and interrupted goes on: its last bit leaves so many ns later than it would have
    /// without that.
    fn delayed(&mut self, _ctx: &mut SwitchCtx<'_>, _id: PacketId, _by: u64) {}

    /// Whether packets from `input` with `priority` wait, for finding deadlocks.
    fn blocks(&self, _packets: &Packets, _input: u16, _priority: u8) -> bool {
        false
    }
}

/// Builds schedulers. Closures are factories.
pub trait SchedulerFactory: Send + Sync {
    /// Builds the scheduler of an output, whose port knows node and rate.
    fn build(&self, output: &Port) -> Box<dyn Scheduler>;
}

impl<F: Fn(&Port) -> Box<dyn Scheduler> + Send + Sync> SchedulerFactory for F {
    fn build(&self, output: &Port) -> Box<dyn Scheduler> {
        self(output)
    }
}

/// A factory of schedulers, shared by all runs that use it. Two are equal if they are the same.
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
