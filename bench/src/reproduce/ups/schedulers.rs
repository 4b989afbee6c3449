//! Schedulers of the original networks and of those that replay them: one queue for each output, with room for everything.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use irnic_fabric::Priorities;
use irnic_fabric::network::{PacketId, Port};
use irnic_fabric::switch::{CustomScheduler, Scheduler, SharedBufferConfig, SwitchConfig, SwitchCtx};
use rand::RngExt;

/// More than ever waits.
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
    /// Least slack time first: what is left of the slack when the last bit has left. The slack is reduced by the wait.
    Lstf,
    /// [`Order::Fq`] in every other switch and FIFO+, which is LSTF of packets that all have the same slack, in the others.
    HalfFq,
}

/// Returns switches of this order.
pub fn switches(order: Order, longest: u32) -> SwitchConfig {
    let mut config = SharedBufferConfig::new(BUFFER, longest);
    config.alpha = BUFFER as f64;
    if order != Order::Fifo {
        config.scheduler = Some(CustomScheduler::new(move |port: &Port| queue(order, port)));
    }
    SwitchConfig::SharedBuffer(config)
}

fn queue(order: Order, port: &Port) -> Box<dyn Scheduler> {
    match order {
        Order::Fifo => Box::new(Fifo::default()),
        Order::Lifo => Box::new(Lifo::default()),
        Order::Random => Box::new(Random::default()),
        Order::Fq => Box::new(FairQueue::default()),
        Order::Rank => Box::new(Ranked::new(None)),
        Order::Lstf => Box::new(Ranked::new(Some(port.rate))),
        Order::HalfFq if port.node.is_multiple_of(2) => Box::new(FairQueue::default()),
        Order::HalfFq => Box::new(Ranked::new(Some(port.rate))),
    }
}

#[derive(Debug, Default)]
struct Fifo(VecDeque<PacketId>);

impl Scheduler for Fifo {
    fn push(&mut self, _: &mut SwitchCtx<'_>, id: PacketId) {
        self.0.push_back(id);
    }

    fn pop(&mut self, _: &mut SwitchCtx<'_>, _: Priorities) -> Option<PacketId> {
        self.0.pop_front()
    }
}

#[derive(Debug, Default)]
struct Lifo(Vec<PacketId>);

impl Scheduler for Lifo {
    fn push(&mut self, _: &mut SwitchCtx<'_>, id: PacketId) {
        self.0.push(id);
    }

    fn pop(&mut self, _: &mut SwitchCtx<'_>, _: Priorities) -> Option<PacketId> {
        self.0.pop()
    }
}

#[derive(Debug, Default)]
struct Random(Vec<PacketId>);

impl Scheduler for Random {
    fn push(&mut self, _: &mut SwitchCtx<'_>, id: PacketId) {
        self.0.push(id);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, _: Priorities) -> Option<PacketId> {
        (!self.0.is_empty()).then(|| {
            let at = ctx.rng.random_range(0..self.0.len());
            self.0.swap_remove(at)
        })
    }
}

/// Queues of flows that have packets, by hash of the addresses and the sender's queue pair.
#[derive(Debug, Default)]
struct FairQueue {
    flows: BTreeMap<(u32, u32), VecDeque<PacketId>>,
    new: VecDeque<(u32, u32)>,
    old: VecDeque<(u32, u32)>,
    /// Queues of flows that have none.
    spare: Vec<VecDeque<PacketId>>,
}

impl Scheduler for FairQueue {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let packet = ctx.packets.get(id);
        let flow = (packet.entropy, packet.src_qp);
        let spare = &mut self.spare;
        let queue = self.flows.entry(flow).or_insert_with(|| {
            self.new.push_back(flow);
            spare.pop().unwrap_or_default()
        });
        queue.push_back(id);
    }

    fn pop(&mut self, _: &mut SwitchCtx<'_>, _: Priorities) -> Option<PacketId> {
        loop {
            let flow = self.new.pop_front().or_else(|| self.old.pop_front())?;
            let queue = self.flows.get_mut(&flow)?;
            let id = queue.pop_front();
            // One that has sent its last packet is looked at once more, so that it is not new again at once.
            if id.is_some() {
                self.old.push_back(flow);
                return id;
            }
            self.spare.extend(self.flows.remove(&flow));
        }
    }
}

/// Lowest rank first, of equal ones the first to come.
#[derive(Debug)]
struct Ranked {
    /// Rank, in what order packets came, number, and when it came, ns.
    queue: BinaryHeap<Reverse<(i64, u64, PacketId, u64)>>,
    next: u64,
    /// With LSTF the rate of the link, bit/s.
    rate: Option<u64>,
}

impl Ranked {
    fn new(rate: Option<u64>) -> Ranked {
        Ranked { queue: BinaryHeap::new(), next: 0, rate }
    }
}

impl Scheduler for Ranked {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let packet = ctx.packets.get(id);
        let time = |rate| ctx.now as i64 + (u64::from(packet.wire) * 8_000_000_000).div_ceil(rate) as i64;
        let rank = packet.slack + self.rate.map_or(0, time);
        self.queue.push(Reverse((rank, self.next, id, ctx.now)));
        self.next += 1;
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, _: Priorities) -> Option<PacketId> {
        let Reverse((.., id, came)) = self.queue.pop()?;
        if self.rate.is_some() {
            ctx.packets.get_mut(id).slack -= (ctx.now - came) as i64;
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use irnic_fabric::network::{NetworkConfig, Routing};
    use irnic_fabric::schedule::{Detail, Header, Replay, Schedule, Scheduled};
    use irnic_fabric::topology::Topology;

    use super::*;

    const G: u64 = 1_000_000_000;

    /// Packets of 1250 bytes, 1 µs at 10 Gbit/s, from hosts 1 to 5 to host 0, each with its flow, its rank and when it is
    /// sent, ns. Returns flows in the order in which they arrive.
    fn order(order: Order, packets: &[(u32, u32, i64, u64)]) -> Vec<u32> {
        let topology = Topology::star(6, 10 * G, 0);
        let config = NetworkConfig::new(topology, switches(order, 1_250));
        assert_eq!(config.routing, Routing::Ecmp);
        let of = |&(src, flow, _, sent): &(u32, u32, i64, u64)| Scheduled {
            flow,
            src,
            wire: 1_250,
            sent,
            ideal: 2_000,
            ..Scheduled::default()
        };
        let ranks = packets.iter().map(|packet| packet.2).collect();
        let schedule = Arc::new(Schedule::new(packets.iter().map(of).collect()));
        let mut replay = Replay::new(config, schedule, Header::Given(Arc::new(ranks))).expect("a network");
        replay.record(Detail::Ends);
        while !replay.run(100).expect("no error") {}
        let schedule = replay.outcome(0).expect("no error").schedule.expect("recorded");
        let mut left: Vec<(u64, u32)> = schedule.packets().iter().map(|p| (p.left, p.flow)).collect();
        left.sort_unstable();
        left.into_iter().map(|(_, flow)| flow).collect()
    }

    /// All but the first come while that is being sent.
    const WAITING: [(u32, u32, i64, u64); 5] =
        [(1, 1, 0, 0), (2, 2, 30, 100), (3, 3, 10, 200), (4, 4, 20, 300), (5, 5, 5, 400)];

    #[test]
    fn what_waits_goes_in_its_order() {
        assert_eq!(order(Order::Fifo, &WAITING), [1, 2, 3, 4, 5]);
        assert_eq!(order(Order::Lifo, &WAITING), [1, 5, 4, 3, 2]);
        assert_eq!(order(Order::Rank, &WAITING), [1, 5, 3, 4, 2]);
        let random = order(Order::Random, &WAITING);
        assert_eq!(random[0], 1);
        assert_eq!(random.iter().sum::<u32>(), 15);
    }

    #[test]
    fn slack_runs_down_while_packets_wait() {
        // Those that came first have as much more slack, less 1 ns each: the last is the most urgent.
        let tight = WAITING.map(|(src, flow, _, sent)| (src, flow, 1_000 - sent as i64 - i64::from(src), sent));
        assert_eq!(order(Order::Lstf, &tight), [1, 5, 4, 3, 2]);
        let equal = WAITING.map(|(src, flow, _, sent)| (src, flow, 7, sent));
        assert_eq!(order(Order::Lstf, &equal), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn flows_take_turns() {
        // Flow 9 has three packets from host 1, flow 8 two from host 2, which come later.
        let packets =
            [(1, 9, 0, 0), (3, 7, 0, 0), (1, 9, 0, 1_000), (2, 8, 0, 1_000), (1, 9, 0, 2_000), (2, 8, 0, 2_000)];
        let all = order(Order::Fq, &packets);
        assert_eq!(&all[..2], [9, 7]);
        assert_eq!(all[2..].iter().filter(|flow| **flow == 8).count(), 2);
        // The new flow goes before the old one's second packet, and no flow has two turns while another waits.
        assert_eq!(all[2..], [8, 9, 8, 9]);
    }
}
