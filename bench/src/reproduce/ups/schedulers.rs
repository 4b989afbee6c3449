//! Schedulers of the original networks and of those that replay them, with room for everything.

use irnic_fabric::Priorities;
use irnic_fabric::network::{PacketId, Port};
use irnic_fabric::switch::{CustomScheduler, Discipline, OutputQueuedConfig, Scheduler, SwitchConfig, SwitchCtx};

/// More than ever waits, bytes.
const BUFFER: u64 = 1 << 40;
/// The slack field of packets whose senders do not say how long the flow is.
pub const NO_SIZE: i64 = -1;

/// In which order an output sends what waits for it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// As it came.
    Fifo,
    /// The latest first.
    Lifo,
    /// By chance, all alike.
    Random,
    /// A packet of each flow in turn, new flows before others.
    Fq,
    /// Lowest static rank first: the slack field, which nobody changes.
    Rank,
    /// Least slack time first.
    Lstf,
    /// Earliest deadline first, by static headers.
    Edf,
    /// Fair queueing between two classes, SJF by the slack field in one, and FIFO in that of [`NO_SIZE`].
    Classes,
    /// [`Order::Fq`] in every other switch and FIFO+, which is LSTF of packets that all have the same slack, in the others.
    HalfFq,
}

/// Returns switches of this order.
pub fn switches(order: Order) -> SwitchConfig {
    SwitchConfig::OutputQueued(OutputQueuedConfig::new(BUFFER, discipline(order)))
}

/// Returns switches of this order, of ranks, in which what goes first interrupts what is being sent.
pub fn preemptive(order: Order) -> SwitchConfig {
    let mut config = OutputQueuedConfig::new(BUFFER, discipline(order));
    config.preempts = true;
    SwitchConfig::OutputQueued(config)
}

fn discipline(order: Order) -> Discipline {
    match order {
        Order::Fifo => Discipline::Fifo,
        Order::Lifo => Discipline::Lifo,
        Order::Random => Discipline::Random,
        Order::Fq => Discipline::Fair,
        Order::Rank => Discipline::Rank,
        Order::Lstf => Discipline::LeastSlack,
        Order::Edf => Discipline::EarliestDeadline,
        Order::Classes => Discipline::Custom(CustomScheduler::new(|port: &Port| {
            let own = [Discipline::Rank, Discipline::Fifo].map(|own| own.build(port));
            Box::new(Classes { own, turn: 0 })
        })),
        Order::HalfFq => Discipline::Custom(CustomScheduler::new(|port: &Port| {
            let own = if port.node.is_multiple_of(2) { Discipline::Fair } else { Discipline::LeastSlack };
            own.build(port)
        })),
    }
}

/// Two classes, of which each has an order of its own and sends in turn: packets are all of the same length.
#[derive(Debug)]
struct Classes {
    own: [Box<dyn Scheduler>; 2],
    /// Whose turn it is.
    turn: usize,
}

impl Scheduler for Classes {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let class = usize::from(ctx.packets.get(id).slack == NO_SIZE);
        self.own[class].push(ctx, id);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        let order = [self.turn, 1 - self.turn];
        let (id, class) = order.into_iter().find_map(|class| Some((self.own[class].pop(ctx, paused)?, class)))?;
        self.turn = 1 - class;
        Some(id)
    }
}
