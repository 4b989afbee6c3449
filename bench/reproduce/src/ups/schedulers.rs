//! Schedulers of the original networks and of the replays, with unlimited buffers.

use irnic_fabric::Priorities;
use irnic_fabric::network::{PacketId, Port};
use irnic_fabric::switch::{CustomScheduler, Discipline, OutputQueuedConfig, Scheduler, SwitchConfig, SwitchCtx};

/// Buffer, larger than any queue, bytes.
const BUFFER: u64 = 1 << 40;
/// Value of the slack field of packets whose senders do not give the flow size.
pub const NO_SIZE: i64 = -1;

/// Scheduling order of an output.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// First in, first out.
    Fifo,
    /// Last in, first out.
    Lifo,
    /// Random, with equal probability.
    Random,
    /// One packet of each flow in turn, new flows first.
    Fq,
    /// Lowest static rank first: the slack field, which is not changed.
    Rank,
    /// Least slack time first.
    Lstf,
    /// Earliest deadline first, with static headers.
    Edf,
    /// Fair queueing between two classes: SJF by the slack field in one, FIFO in the one with [`NO_SIZE`].
    Classes,
    /// [`Order::Fq`] in every other switch, and FIFO+, which is LSTF with equal slack, in the others.
    HalfFq,
}

/// Returns switches of this order.
pub fn switches(order: Order) -> SwitchConfig {
    SwitchConfig::OutputQueued(OutputQueuedConfig::new(BUFFER, discipline(order)))
}

/// Returns switches of this order, by rank, with preemption.
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

/// Two classes that are served in turn, each with its own order: packets are all of the same length.
#[derive(Debug)]
struct Classes {
    own: [Box<dyn Scheduler>; 2],
    /// The class whose turn it is.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use irnic_fabric::experiment::Experiment;
    use irnic_fabric::schedule::{Detail, Header, Replay, Schedule};
    use irnic_fabric::sim::Simulation;
    use irnic_fabric::topology::Topology;
    use irnic_fabric::workload::Flow;
    use irnic_transports::qp::Service;

    use super::*;

    /// Times at which the last packet of each flow leaves the network, ns.
    fn ends(schedule: &Schedule) -> [u64; 3] {
        let of = |flow| schedule.packets().iter().filter(|p| p.flow == flow).map(|p| p.left).max().unwrap_or(0);
        [0, 1, 2].map(of)
    }

    #[test]
    fn a_class_of_one_flow_has_half_of_the_link_beside_one_of_two() {
        let mut experiment = Experiment::default();
        experiment.topology = Topology::star(4, 1_000_000_000, 1_000);
        experiment.flows = Some([0, 1, 2].map(|src| Flow::new(src, 3, 60 * 1_024, 0)).into());
        experiment.service = Service::Uc;
        let mut config = experiment.config(1).expect("a configuration");
        config.switch = switches(Order::Fifo);
        config.schedule = Some(Detail::Ends);
        let mut network = config.network();
        let schedule =
            Simulation::new(config).expect("a run").finish().expect("an outcome").schedule.unwrap_or_default();
        let fifo = ends(&schedule);
        // Flows 0 and 2 have a size, flow 1 has none.
        let sizes = schedule.packets().iter().map(|packet| if packet.flow == 1 { NO_SIZE } else { 60 }).collect();
        network.switch = switches(Order::Classes);
        let mut replay = Replay::new(network, Arc::new(schedule), Header::Given(Arc::new(sizes))).expect("a replay");
        replay.record(Detail::Ends);
        while !replay.run(1_000).expect("a step") {}
        let classes = ends(&replay.outcome(0).expect("an outcome").schedule.unwrap_or_default());
        // All end together; with two classes the one of the second has had two of three packets' times by then.
        assert!(fifo[1].abs_diff(fifo[0]) < 60_000, "{fifo:?}");
        let ratio = classes[1] as f64 / fifo[1] as f64;
        assert!((0.64..0.72).contains(&ratio), "{classes:?} {fifo:?}");
        assert!(classes[0].max(classes[2]).abs_diff(fifo[0].max(fifo[1]).max(fifo[2])) < 100);
    }
}
