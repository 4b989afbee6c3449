//! A host that is a single queue, as in the authors' simulator: a FIFO switch next to it, which sets fair slack as
//! packets leave.

use std::collections::{BTreeMap, VecDeque};

use irnic_fabric::Priorities;
use irnic_fabric::network::{PacketId, Port};
use irnic_fabric::switch::{CustomScheduler, Discipline, OutputQueuedConfig, Scheduler, SwitchConfig, SwitchCtx};

use super::scheme::{ROOM, Scheme};

/// The switch's port to its host ([`super::network::Network::with_host_queues`]).
const TO_HOST: u16 = 0;

/// The queue of a host, which sets the slack required by a scheme.
pub fn queue(scheme: Scheme) -> SwitchConfig {
    let discipline = match scheme.spacing() {
        None => Discipline::Fifo,
        Some(spacing) => {
            let queue = move |port: &Port| -> Box<dyn Scheduler> {
                match port.local {
                    TO_HOST => Discipline::Fifo.build(port),
                    _ => Box::new(Departures { spacing, queue: VecDeque::new(), flows: BTreeMap::new() }),
                }
            };
            Discipline::Custom(CustomScheduler::new(queue))
        }
    };
    SwitchConfig::OutputQueued(OutputQueuedConfig::new(ROOM, discipline))
}

/// [`irnic_transports::Slack::Fair`] by packets instead of bytes, and at departure: the slack of a packet that leaves
/// now is that of the previous one of its flow, plus the transmission time of a packet at r_est, minus the time since
/// that one left; 0 for the first, and never below 0 (§5.2.3). All in ns.
fn fair(last: Option<(i64, u64)>, spacing: i64, now: u64) -> i64 {
    last.map_or(0, |(slack, at)| (slack + spacing - (now - at) as i64).max(0))
}

/// FIFO; sets fair slack of packets with payload as they leave. Acknowledgements have none, and go first everywhere.
#[derive(Debug)]
struct Departures {
    /// Transmission time of a packet at r_est, ns.
    spacing: i64,
    queue: VecDeque<PacketId>,
    /// By queue pair, the slack of the last packet, and its departure time, ns.
    flows: BTreeMap<u32, (i64, u64)>,
}

impl Scheduler for Departures {
    fn push(&mut self, _ctx: &mut SwitchCtx<'_>, id: PacketId) {
        self.queue.push_back(id);
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, _paused: Priorities) -> Option<PacketId> {
        let id = self.queue.pop_front()?;
        let mut slack = 0;
        if ctx.packets.content(id).payload > 0 {
            let flow = ctx.packets.get(id).src_qp;
            slack = fair(self.flows.get(&flow).copied(), self.spacing, ctx.now);
            self.flows.insert(flow, (slack, ctx.now));
        }
        ctx.packets.get_mut(id).slack = slack;
        ctx.packets.content_mut(id).slack = slack;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slack of packets that leave at these times, at 500 Mbit/s.
    fn slacks(times: [u64; 4]) -> Vec<i64> {
        let mut last = None;
        let next = |now| {
            let slack = fair(last, 23_360, now);
            last = Some((slack, now));
            slack
        };
        times.into_iter().map(next).collect()
    }

    #[test]
    fn a_flow_faster_than_the_rate_gains_slack_and_a_slower_one_has_none() {
        assert_eq!(slacks([5, 11_685, 23_365, 35_045]), [0, 11_680, 23_360, 35_040]);
        assert_eq!(slacks([0, 23_360, 60_000, 90_000]), [0, 0, 0, 0]);
        // A pause uses up the slack gained.
        assert_eq!(slacks([0, 11_680, 40_000, 80_000]), [0, 11_680, 6_720, 0]);
    }
}
