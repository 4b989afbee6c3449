//! An output-queued switch whose outputs have a buffer and a scheduling order each: the switch of universal packet
//! scheduling (Mittal, UCB/EECS-2018-103, chapter 5) and of RC3 (NSDI 2014, §2.4).

mod bins;
mod codel;
mod deadline;
mod fair;
mod plain;
mod rank;
mod ranked;
mod shortest;
#[cfg(test)]
mod tests;

pub(crate) use deadline::with_tables;
pub use rank::RankQueue;

use super::{CustomScheduler, Dequeue, Ecn, Marker, Scheduler, Switch, SwitchCtx, Verdict};
use crate::network::{PacketId, Packets, Port};
use crate::prefetch::fetch;
use crate::priorities::Priorities;

/// The order in which an output sends its packets, and which packet it drops if there is no room.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Discipline {
    /// First in, first out. The arriving packet is dropped.
    #[default]
    Fifo,
    /// Last in, first out. The arriving packet is dropped.
    Lifo,
    /// A random queued packet, with equal probability. The arriving packet is dropped.
    Random,
    /// The highest priority first, FIFO within a priority. Drops the newest packet of the lowest priority below that of
    /// the arriving packet, otherwise the arriving one (RC3 §2.4.1).
    Priority,
    /// Fair queueing: one packet of each flow in turn, new flows first. Drops the newest packet of the flow with the
    /// most bytes.
    Fair,
    /// [`Self::Fair`] with CoDel for each flow (RFC 8290 §4): drops its first packet once packets have waited for more
    /// than 5 ms for 100 ms.
    FairCodel,
    /// The lowest [`crate::network::Packet::slack`] first, as set by senders: with flow sizes, this is SJF. Drops the
    /// highest.
    Rank,
    /// Like [`Self::Rank`], but sends the oldest packet of the flow that has the lowest (pFabric §4.2): SRPT, or SJF,
    /// in which no packet waits for later ones of its flow.
    ShortestFlow,
    /// Least slack time first (LSTF, §5.1.2): by the time at which the last bit has to leave. Drops the packet with the
    /// most slack. If all packets start with the same slack, this is FIFO+ (§5.2.2).
    LeastSlack,
    /// Earliest deadline first (EDF, appendix A.4): LSTF with unchanged headers. [`crate::network::Packet::slack`] is
    /// the time at which the packet is to leave the network, and switches compute the remaining travel time from their
    /// routes. The packet with the latest deadline is dropped. A switch outside of a network ([`Self::build`]) has no
    /// routes, and uses the packet's value alone.
    EarliestDeadline,
    /// A custom order.
    Custom(CustomScheduler),
}

impl Discipline {
    /// The named disciplines, as users write them.
    pub const NAMES: [(&'static str, Discipline); 10] = [
        ("fifo", Discipline::Fifo),
        ("lifo", Discipline::Lifo),
        ("random", Discipline::Random),
        ("priority", Discipline::Priority),
        ("fq", Discipline::Fair),
        ("fq-codel", Discipline::FairCodel),
        ("rank", Discipline::Rank),
        ("srpt", Discipline::ShortestFlow),
        ("lstf", Discipline::LeastSlack),
        ("edf", Discipline::EarliestDeadline),
    ];

    /// Whether waiting time is subtracted from a packet's slack, so that the receiving end can tell how long it waited
    /// ([`irnic_transports::Edge`]).
    pub fn keeps_slack(&self) -> bool {
        matches!(self, Discipline::Fair | Discipline::FairCodel | Discipline::LeastSlack | Discipline::Custom(_))
    }

    /// Whether packets are ordered by rank, so that outputs can interrupt a transmission for a lower one
    /// ([`OutputQueuedConfig::preempts`]).
    pub fn has_ranks(&self) -> bool {
        use Discipline::*;
        matches!(self, Priority | Rank | LeastSlack | EarliestDeadline | Custom(_))
    }

    /// Whether queued packets may expire.
    fn expires(&self) -> bool {
        matches!(self, Discipline::FairCodel | Discipline::Custom(_))
    }

    /// Whether flows are distinguished.
    fn by_flow(&self) -> bool {
        matches!(self, Discipline::Fair | Discipline::FairCodel | Discipline::ShortestFlow)
    }

    /// Builds the queue of an output.
    pub fn build(&self, output: &Port) -> Box<dyn Scheduler> {
        match self {
            Discipline::Fifo => Box::new(plain::FirstIn::default()),
            Discipline::Lifo => Box::new(plain::LastIn::default()),
            Discipline::Random => Box::new(plain::AnyOf::default()),
            Discipline::Priority => Box::new(plain::ByPriority::default()),
            Discipline::Fair => Box::new(fair::Fair::new(false)),
            Discipline::FairCodel => Box::new(fair::Fair::new(true)),
            Discipline::Rank | Discipline::EarliestDeadline => Box::new(ranked::ByRank::default()),
            Discipline::ShortestFlow => Box::new(shortest::ShortestFlow::default()),
            Discipline::LeastSlack => Box::new(ranked::LeastSlack::new(output.local)),
            Discipline::Custom(custom) => custom.build(output),
        }
    }
}

/// Parameters of an [`OutputQueued`] switch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OutputQueuedConfig {
    /// Limit on the bytes on the wire queued for an output, without the packet in transmission.
    pub buffer: u64,
    /// Limit on the number of packets queued for an output, if any: `queue-limit` of ns-2.
    pub packets: Option<u32>,
    /// Order and drops.
    pub discipline: Discipline,
    /// Marking, by the bytes that wait for the output.
    pub ecn: Ecn,
    /// Whether an arriving packet interrupts the transmission of one that would go after it, whose rest is sent when
    /// nothing queued goes before it (preemption, §5.1.3 and appendix A.6). Interruptions cost no bits, and the
    /// neighbour sees the packet when its last bit has arrived. A packet whose transmission has begun does not count as
    /// waiting and is not dropped. Only orders by rank interrupt ([`Discipline::has_ranks`]).
    pub preempts: bool,
}

impl OutputQueuedConfig {
    /// A buffer of this many bytes for each output, and its order: no marks, no preemption.
    pub fn new(buffer: u64, discipline: Discipline) -> OutputQueuedConfig {
        OutputQueuedConfig { buffer, packets: None, discipline, ecn: Ecn::Off, preempts: false }
    }
}

/// State of one output.
#[derive(Debug)]
struct Output {
    bytes: u64,
    packets: u32,
    scheduler: Box<dyn Scheduler>,
}

impl Output {
    /// Accounts for a packet that leaves the queue.
    #[inline]
    fn takes_out(&mut self, ctx: &SwitchCtx<'_>, id: PacketId) {
        self.bytes -= u64::from(ctx.packets.get(id).wire);
        self.packets -= 1;
    }
}

/// A switch with a buffer for each output, which sends and drops by its [`Discipline`]: an arriving packet may push out
/// queued ones. It never pauses its neighbours.
#[derive(Debug)]
pub struct OutputQueued {
    outputs: Box<[Output]>,
    buffer: u64,
    limit: u32,
    marker: Marker,
    /// Whether the discipline uses the flows of packets ([`Packets::flow`]), which are stored apart from the rest of a
    /// packet.
    by_flow: bool,
    /// Whether packets may expire ([`Scheduler::expire`]).
    expires: bool,
    preempts: bool,
}

impl OutputQueued {
    /// An empty switch.
    pub fn new(config: &OutputQueuedConfig, ports: &[Port]) -> OutputQueued {
        let output = |port| Output { bytes: 0, packets: 0, scheduler: config.discipline.build(port) };
        let marker = Marker::new(config.ecn, ports.len());
        let expires = config.discipline.expires();
        let preempts = config.preempts && config.discipline.has_ranks();
        OutputQueued {
            outputs: ports.iter().map(output).collect(),
            buffer: config.buffer,
            limit: config.packets.unwrap_or(u32::MAX),
            marker,
            by_flow: config.discipline.by_flow(),
            expires,
            preempts,
        }
    }
}

impl Switch for OutputQueued {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let wire = u64::from(ctx.packets.get(id).wire);
        if wire > self.buffer || self.limit == 0 {
            return Verdict::Dropped;
        }
        let out = &mut self.outputs[usize::from(output)];
        while out.bytes + wire > self.buffer || out.packets >= self.limit {
            let Some(victim) = out.scheduler.evict(ctx, id) else { return Verdict::Dropped };
            out.takes_out(ctx, victim);
            ctx.drop(victim);
        }
        self.marker.apply(ctx, id, output, output.into(), out.bytes);
        out.bytes += wire;
        out.packets += 1;
        let counters = &mut ctx.ports[usize::from(output)].counters;
        counters.peak = counters.peak.max(out.bytes);
        out.scheduler.push(ctx, id);
        Verdict::Queued
    }

    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        let out = &mut self.outputs[usize::from(output)];
        if out.bytes == 0 {
            return Dequeue::Idle;
        }
        if self.expires {
            while let Some(expired) = out.scheduler.expire(ctx, paused) {
                out.takes_out(ctx, expired);
                ctx.drop(expired);
            }
        }
        let Some(id) = out.scheduler.pop(ctx, paused) else { return Dequeue::Idle };
        out.takes_out(ctx, id);
        Dequeue::Packet(id)
    }

    #[inline]
    fn backlog(&self, output: u16) -> u64 {
        self.outputs[usize::from(output)].bytes
    }

    fn blocks(&self, packets: &Packets, input: u16, priority: u8, output: u16) -> bool {
        self.outputs[usize::from(output)].scheduler.blocks(packets, input, priority)
    }

    fn preempts(&self) -> bool {
        self.preempts
    }

    fn rank(&self, packets: &Packets, output: u16, paused: Priorities) -> Option<i64> {
        self.outputs[usize::from(output)].scheduler.rank(packets, paused)
    }

    fn delayed(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, id: PacketId, by: u64) {
        self.outputs[usize::from(output)].scheduler.delayed(ctx, id, by);
    }

    fn prefetch(&self, packets: &Packets, id: PacketId, _input: u16, output: u16) {
        fetch(&self.outputs[usize::from(output)]);
        if self.by_flow {
            fetch(&packets.content(id).path.src);
        }
    }

    fn prefetch_output(&self, _packets: &Packets, output: u16, step: usize) {
        if step == 0 {
            fetch(&self.outputs[usize::from(output)]);
        }
    }
}
