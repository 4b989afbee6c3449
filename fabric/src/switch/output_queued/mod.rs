//! An output-queued switch in which each output has a buffer of its own, and an order in which it sends: the switch of
//! universal packet scheduling (Mittal, UCB/EECS-2018-103, chapter 5) and of RC3 (NSDI 2014, §2.4).

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

/// The order in which an output sends what waits for it, and what it drops where there is no room.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Discipline {
    /// First in, first out. The arriving packet is dropped.
    #[default]
    Fifo,
    /// Last in, first out. The arriving packet is dropped.
    Lifo,
    /// Any of those that wait, all as likely. The arriving packet is dropped.
    Random,
    /// The highest priority first, and of one priority the first. The newest packet of the lowest priority below that
    /// of the arriving packet is dropped, else the arriving one (RC3 §2.4.1).
    Priority,
    /// Fair queueing: a packet of each flow in turn, flows that had nothing to send first. The newest packet of the
    /// flow with most bytes is dropped.
    Fair,
    /// [`Self::Fair`] with CoDel for each flow (RFC 8290 §4): its first packet is dropped where packets have waited for
    /// more than 5 ms for 100 ms.
    FairCodel,
    /// The lowest [`crate::network::Packet::slack`] first, as senders have set it: with sizes of flows it is SJF. The
    /// highest is dropped.
    Rank,
    /// As [`Self::Rank`], but of the flow that has the lowest the packet that came first goes (pFabric §4.2): SRPT, or
    /// SJF, in which no packet waits for those that come later in its flow.
    ShortestFlow,
    /// Least slack time first (LSTF, §5.1.2): by when the last bit has to leave. The packet with most slack is dropped.
    /// Where all packets start with the same slack it is FIFO+ (§5.2.2).
    LeastSlack,
    /// Earliest deadline first (EDF, appendix A.4): LSTF of headers that nobody changes.
    /// [`crate::network::Packet::slack`] says when the packet is to leave the network, and switches know from their
    /// routes what it takes from here on. The packet with the latest deadline is dropped. A switch outside of a network
    /// ([`Self::build`]) knows no routes, and goes by what packets say alone.
    EarliestDeadline,
    /// An order of one's own.
    Custom(CustomScheduler),
}

impl Discipline {
    /// Names of those that have one, as users write them.
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

    /// Whether it takes what packets wait off their slack, so that the end that receives them knows how long they
    /// waited ([`irnic_transports::Edge`]).
    pub fn keeps_slack(&self) -> bool {
        matches!(self, Discipline::Fair | Discipline::FairCodel | Discipline::LeastSlack | Discipline::Custom(_))
    }

    /// Whether it orders packets by rank, so that outputs can interrupt what they send for a lower one
    /// ([`OutputQueuedConfig::preempts`]).
    pub fn has_ranks(&self) -> bool {
        use Discipline::*;
        matches!(self, Priority | Rank | LeastSlack | EarliestDeadline | Custom(_))
    }

    /// Whether it drops packets that have waited, too.
    fn expires(&self) -> bool {
        matches!(self, Discipline::FairCodel | Discipline::Custom(_))
    }

    /// Whether it tells flows apart.
    fn looks_at_flows(&self) -> bool {
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
    /// Bytes on the wire that wait for an output at most; what it is sending is not among them.
    pub buffer: u64,
    /// Packets that wait for an output at most, whatever their size, if they are counted, too: `queue-limit` of ns-2.
    pub packets: Option<u32>,
    /// What goes next, and what is dropped.
    pub discipline: Discipline,
    /// Marking, by the bytes that wait for the output.
    pub ecn: Ecn,
    /// Whether a packet that arrives interrupts one that is being sent and would go after it, whose rest is sent when
    /// nothing that waits goes before it (preemption, §5.1.3 and appendix A.6). That takes no bits, and the neighbour
    /// sees the packet when its last bit is there. What has begun to leave does not count as waiting and is not
    /// dropped. Only orders by rank interrupt ([`Discipline::has_ranks`]).
    pub preempts: bool,
}

impl OutputQueuedConfig {
    /// So many bytes for each output, and an order in which it sends: no marks, packets in one piece.
    pub fn new(buffer: u64, discipline: Discipline) -> OutputQueuedConfig {
        OutputQueuedConfig { buffer, packets: None, discipline, ecn: Ecn::Off, preempts: false }
    }
}

/// What waits for one output.
#[derive(Debug)]
struct Output {
    bytes: u64,
    packets: u32,
    scheduler: Box<dyn Scheduler>,
}

impl Output {
    /// A packet no longer waits.
    #[inline]
    fn takes_out(&mut self, ctx: &SwitchCtx<'_>, id: PacketId) {
        self.bytes -= u64::from(ctx.packets.get(id).wire);
        self.packets -= 1;
    }
}

/// A switch with a buffer for each output, which sends by its [`Discipline`] and drops by it: packets that wait may
/// have to give way to one that arrives (push-out). It pauses nobody.
#[derive(Debug)]
pub struct OutputQueued {
    outputs: Box<[Output]>,
    buffer: u64,
    limit: u32,
    marker: Marker,
    /// Whether its order asks for the flows of packets ([`Packets::flow`]), which are not where the rest of a packet
    /// is.
    looks_at_flows: bool,
    /// Whether packets may expire ([`Scheduler::expire`]).
    expires: bool,
    preempts: bool,
}

impl OutputQueued {
    /// An empty one.
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
            looks_at_flows: config.discipline.looks_at_flows(),
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
        if self.looks_at_flows {
            fetch(&packets.content(id).path.src);
        }
    }

    fn prefetch_output(&self, _packets: &Packets, output: u16, step: usize) {
        if step == 0 {
            fetch(&self.outputs[usize::from(output)]);
        }
    }
}
