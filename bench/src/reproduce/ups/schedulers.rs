//! Schedulers of the original networks and of those that replay them, with room for everything.

use irnic_fabric::network::Port;
use irnic_fabric::switch::{CustomScheduler, Discipline, OutputQueuedConfig, SwitchConfig};

/// More than ever waits, bytes.
const BUFFER: u64 = 1 << 40;

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
        Order::HalfFq => Discipline::Custom(CustomScheduler::new(|port: &Port| {
            let own = if port.node.is_multiple_of(2) { Discipline::Fair } else { Discipline::LeastSlack };
            own.build(port)
        })),
    }
}
