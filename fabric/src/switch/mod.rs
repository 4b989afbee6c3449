//! What a switch does with packets: admits or drops, queues, marks, pauses, and picks the next. Links, routes and time
//! are the network's business ([`crate::network`]).
//!
//! A switch is put together from parts: a [`buffer`] that decides what is admitted, a [`scheduler`] that decides what
//! goes next, and [`Ecn`] and [`Pfc`] that mark and pause. A custom one implements [`Switch`] and is passed by
//! [`SwitchConfig::custom`]; it may wrap one of those here ([`crate::forward_switch`]).

mod any;
mod breaker;
pub mod buffer;
mod counters;
mod ctx;
mod ecn;
mod escape;
mod factory;
mod forward;
mod gfc;
mod output_queued;
mod pfc;
mod policy;
mod remote;
mod rocc;
pub mod scheduler;
mod trimming;

pub(crate) use any::Any;
pub(crate) use breaker::Breaker;
pub use breaker::{BreakerConfig, BreakerCounters, Remedy};
pub use buffer::{InputQueued, InputQueuedConfig, SharedBuffer, SharedBufferConfig, SharedPfc, headroom};
pub(crate) use ctx::{Effect, Ledger};
pub use ctx::{SwitchCtx, Via};
use ecn::Marker;
pub use ecn::{Ecn, PiConfig};
pub(crate) use escape::Escape;
pub use escape::{EscapeConfig, EscapeCounters, Order, Period};
pub use factory::{CustomSwitch, HolConfig, SwitchConfig, SwitchFactory};
use gfc::Gfc;
pub use gfc::GfcConfig;
pub(crate) use output_queued::with_tables;
pub use output_queued::{Discipline, OutputQueued, OutputQueuedConfig, RankQueue};
pub use pfc::{Pfc, Thresholds};
pub use policy::{Planned, PolicySwitch};
pub(crate) use remote::RemoteSwitch;
pub(crate) use rocc::Rocc;
pub use rocc::{Compute, FlowTable, RoccConfig};
pub use scheduler::{CustomScheduler, Scheduler, SchedulerFactory, Scheduling};
pub use trimming::{Cut, Trimming, TrimmingConfig};

use crate::network::packet::{PacketId, Packets};
use crate::network::port::Control;
use crate::priorities::Priorities;

/// Result of a packet's arrival.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet waits for its output.
    Queued,
    /// The packet waits for its output without its payload, which [`SwitchCtx::trim`] has cut off.
    Trimmed {
        /// Bytes cut off.
        cut: u32,
    },
    /// There was no room; the network drops the packet.
    Dropped,
}

/// Answer of a switch to a free output.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Dequeue {
    /// A packet, which has left the switch.
    Packet(PacketId),
    /// Nothing, until a packet arrives for it or a pause ends.
    Idle,
    /// Nothing yet: ask again at this time, ns.
    RetryAt(u64),
}

/// A switch: what happens to packets between the links. Three methods are required, [`Self::enqueue`],
/// [`Self::dequeue`] and [`Self::backlog`]; the rest has defaults that do nothing.
///
/// The network routes a packet, calls `enqueue`, and calls `dequeue` whenever the link of an output with a backlog is
/// free. Both take constant time and allocate nothing per packet, if the switch is to be as fast as those here.
///
/// # A whole switch
///
/// One first-in first-out queue for each output, which holds eight packets:
///
/// ```
/// use irnic_fabric::network::{Fifo, PacketId};
/// use irnic_fabric::sim::{SimConfig, Simulation};
/// use irnic_fabric::switch::{Dequeue, Switch, SwitchConfig, SwitchCtx, Verdict};
/// use irnic_fabric::topology::Topology;
/// use irnic_fabric::workload::Flow;
/// use irnic_fabric::Priorities;
/// use irnic_transports::config::TransportConfig;
///
/// #[derive(Clone, Debug, Default)]
/// struct Output {
///     queue: Fifo,
///     packets: u32,
///     bytes: u64,
/// }
///
/// #[derive(Debug)]
/// struct EightPackets(Vec<Output>);
///
/// impl Switch for EightPackets {
///     fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
///         let out = &mut self.0[usize::from(output)];
///         if out.packets == 8 {
///             return Verdict::Dropped;
///         }
///         out.packets += 1;
///         out.bytes += u64::from(ctx.packets.get(id).wire);
///         out.queue.push(ctx.packets, id);
///         Verdict::Queued
///     }
///
///     fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
///         let out = &mut self.0[usize::from(output)];
///         match out.queue.first() {
///             Some(first) if !paused.contains(ctx.packets.get(first).priority) => {
///                 out.queue.pop(ctx.packets);
///                 out.packets -= 1;
///                 out.bytes -= u64::from(ctx.packets.get(first).wire);
///                 Dequeue::Packet(first)
///             }
///             _ => Dequeue::Idle,
///         }
///     }
///
///     fn backlog(&self, output: u16) -> u64 {
///         self.0[usize::from(output)].bytes
///     }
/// }
///
/// let switch = SwitchConfig::custom(|_node, ports| Box::new(EightPackets(vec![Output::default(); ports.len()])));
/// let flows = (0..2).map(|src| Flow::new(src, 2, 100_000, 0)).collect();
/// let irn = TransportConfig::preset("irn").expect("a preset");
/// let config = SimConfig::new(Topology::star(3, 40_000_000_000, 1_000), flows, switch, irn);
/// let outcome = Simulation::new(config)?.finish()?;
/// assert!(outcome.dropped.0 > 0 && outcome.records.iter().all(|flow| flow.delivered.is_some()));
/// # Ok::<(), irnic_fabric::sim::SimError>(())
/// ```
pub trait Switch: Send + std::fmt::Debug {
    /// A packet has arrived completely by the port [`crate::network::Packet::input`] and is to leave by `output`. With
    /// [`Verdict::Dropped`] the network drops it; otherwise the switch holds it until [`Self::dequeue`] or
    /// [`SwitchCtx::drop`].
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict;

    /// The link of `output` is free: returns the next packet. The neighbour has `paused` some priorities; packets of
    /// these that the switch returns are sent all the same.
    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue;

    /// Bytes on the wire queued for `output`. Summed over all outputs, the bytes in the switch.
    fn backlog(&self, output: u16) -> u64;

    /// A control frame has arrived by `port`. For a PFC frame the network has already noted what it pauses, and passes
    /// it to [`Self::dequeue`]. Afterwards outputs with a backlog are polled.
    fn on_control(&mut self, _ctx: &mut SwitchCtx<'_>, _port: u16, _control: Control) {}

    /// A time requested by [`SwitchCtx::wake_at`] has come. Afterwards outputs with a backlog are polled.
    fn on_timer(&mut self, _ctx: &mut SwitchCtx<'_>) {}

    /// Ports whose neighbours the switch has paused, each with the priority, for deadlock detection and for links that
    /// come up again.
    fn paused_upstreams(&self) -> Vec<(u16, u8)> {
        Vec::new()
    }

    /// Whether packets from `input` with `priority` wait for `output`, for deadlock detection.
    fn blocks(&self, _packets: &Packets, _input: u16, _priority: u8, _output: u16) -> bool {
        false
    }

    /// Takes the first packet that is `wanted` out of the queues of an output, at any position and whether or not it
    /// may be sent, and accounts for it as [`Self::dequeue`] does. Wrappers use it to send packets early; with the
    /// default they find none.
    fn extract(
        &mut self,
        _ctx: &mut SwitchCtx<'_>,
        _output: u16,
        _wanted: &mut dyn FnMut(&Packets, PacketId) -> bool,
    ) -> Option<PacketId> {
        None
    }

    /// Whether outputs interrupt what they send for a packet of lower [`Self::rank`] (preemption), and send the rest of
    /// it later. Called once, when the network is built.
    fn preempts(&self) -> bool {
        false
    }

    /// Of a switch that [`Self::preempts`]: the rank of the packet that [`Self::dequeue`] would return for `output`
    /// now, the lower, the earlier. It does not change while the packet waits or is being sent.
    fn rank(&self, _packets: &Packets, _output: u16, _paused: Priorities) -> Option<i64> {
        None
    }

    /// For a switch that [`Self::preempts`]: an interrupted packet continues, and its last bit leaves `output` `by` ns
    /// later than without the interruption.
    fn delayed(&mut self, _ctx: &mut SwitchCtx<'_>, _output: u16, _id: PacketId, _by: u64) {}

    /// Packet `id` is about to come by `input` and leave by `output`: prefetches the data needed for that into the
    /// processor's cache.
    fn prefetch(&self, _packets: &Packets, _id: PacketId, _input: u16, _output: u16) {}

    /// The link of `output` is about to be free: prefetches the data that `dequeue` needs into the processor's cache.
    /// Called with `step` 0, 1 and 2, some time apart, since addresses may themselves have to be fetched first.
    fn prefetch_output(&self, _packets: &Packets, _output: u16, _step: usize) {}

    /// The link of `output` went down: moves all packets queued for it to `lost`. The default moves all that
    /// [`Self::dequeue`] returns.
    fn flush(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, lost: &mut Vec<PacketId>) {
        while let Dequeue::Packet(id) = self.dequeue(ctx, output, Priorities::NONE) {
            lost.push(id);
        }
    }
}
