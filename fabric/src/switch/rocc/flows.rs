//! Flow tables: which flows a congestion point notifies (§3.3.4 of the dissertation).

use irnic_transports::wire::RateNotice;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::network::{PacketId, Packets, host_of, mix};

/// Selection of the flows that a congestion point notifies.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub enum FlowTable {
    /// Flows that have a packet in the queue now: the paper's.
    #[default]
    Queue,
    /// Flows of which a packet joined the queue recently.
    Age {
        /// Capacity in flows, 1 or more; the one seen longest ago is evicted. Default: F_max/F_min.
        entries: Option<u32>,
        /// Time after its last packet at which a flow is forgotten, ns. Longer than a flow at F_min takes for a packet.
        age: u64,
    },
    /// Heavy flows, as ElephantTrap finds them by sampling packets.
    Elephant {
        /// Capacity in flows, 1 or more; the one with the lowest count is evicted, of several the oldest.
        entries: u32,
        /// Share of the packets that are sampled, above 0 to 1.
        sample: f64,
        /// Interval at which counts are halved, ns; a flow whose count reaches 0 is forgotten.
        age: u64,
    },
}

impl FlowTable {
    /// A packet of 1,086 bytes at F_min, 100 Mbit/s, takes 87 µs.
    pub const AGE: FlowTable = FlowTable::Age { entries: None, age: 200_000 };
    /// A sixteenth of the packets, 128 flows.
    pub const ELEPHANT: FlowTable = FlowTable::Elephant { entries: 128, sample: 1.0 / 16.0, age: 1_000_000 };
}

/// A flow in the table.
#[derive(Debug)]
struct Flow {
    key: u64,
    /// Packets in the queue, or samples.
    count: u32,
    /// Time at which a packet last joined the queue, ns.
    seen: u64,
    /// A notice that quotes one of its packets.
    notice: RateNotice,
}

/// The flow table of a queue. Flows that are no longer to be notified are removed when they are next examined, so that
/// nothing is allocated except when the number of flows reaches a new maximum.
#[derive(Debug)]
pub(super) struct Flows {
    table: FlowTable,
    /// Capacity in flows.
    most: usize,
    /// Time at which counts were last halved, ns.
    halved: u64,
    /// Flows in the order of arrival.
    flows: Vec<Flow>,
    /// Index of flows by the hash of their keys, open addressing; [`FREE`] marks empty slots. A power of two in size,
    /// at most half full.
    places: Vec<u32>,
}

const FREE: u32 = u32::MAX;

/// Identifies the flow of a packet by sending host and queue pair.
#[inline]
fn key(packets: &Packets, id: PacketId) -> u64 {
    let (src, qp) = packets.flow(id);
    u64::from(host_of(src)) << 32 | u64::from(qp)
}

impl Flows {
    /// An empty table of a port on which a flow gets at least `least` bit/s of the link's rate.
    pub(super) fn new(table: FlowTable, rate: u64, least: u64) -> Flows {
        let most = match table {
            FlowTable::Queue => usize::MAX,
            FlowTable::Age { entries: None, .. } => (rate / least.max(1)).clamp(1, 1 << 20) as usize,
            FlowTable::Age { entries: Some(entries), .. } | FlowTable::Elephant { entries, .. } => {
                entries.max(1) as usize
            }
        };
        Flows { table, most, halved: 0, flows: Vec::new(), places: Vec::new() }
    }

    /// The slot of a key in `places`, or the one it would get.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mask = self.places.len() - 1;
        let mut at = mix(key as u32 ^ mix((key >> 32) as u32)) as usize & mask;
        while self.places[at] != FREE && self.flows[self.places[at] as usize].key != key {
            at = (at + 1) & mask;
        }
        at
    }

    /// Records a packet that joined the queue. IPv6 packets are ignored: there is no notice for them.
    #[inline]
    pub(super) fn enter(&mut self, packets: &Packets, id: PacketId, now: u64, rng: &mut Pcg64Mcg) {
        if let FlowTable::Elephant { sample, .. } = self.table
            && rng.random::<f64>() >= sample
        {
            return;
        }
        let key = key(packets, id);
        if 2 * (self.flows.len() + 1) > self.places.len() {
            let room = (4 * self.flows.len()).max(16).next_power_of_two();
            self.places.resize(room, FREE);
            self.lay_out();
        }
        let at = self.find(key);
        if self.places[at] != FREE {
            let flow = &mut self.flows[self.places[at] as usize];
            (flow.count, flow.seen) = (flow.count.saturating_add(1), now);
            return;
        }
        let content = packets.content(id);
        let Some(notice) = RateNotice::about(&content.path, &content.headers, content.payload) else { return };
        let flow = Flow { key, count: 1, seen: now, notice };
        if self.flows.len() < self.most {
            self.places[at] = self.flows.len() as u32;
            self.flows.push(flow);
        } else {
            self.replace(flow);
        }
    }

    /// Replaces the flow that is to be evicted.
    #[cold]
    fn replace(&mut self, flow: Flow) {
        let by_count = matches!(self.table, FlowTable::Elephant { .. });
        let rank = |at: &usize| {
            let flow = &self.flows[*at];
            (if by_count { flow.count } else { 0 }, flow.seen)
        };
        if let Some(victim) = (0..self.flows.len()).min_by_key(rank) {
            self.flows.remove(victim);
            self.flows.push(flow);
            self.lay_out();
        }
    }

    /// Records a packet that left the queue.
    #[inline]
    pub(super) fn leave(&mut self, packets: &Packets, id: PacketId) {
        if self.flows.is_empty() || self.table != FlowTable::Queue {
            return;
        }
        let place = self.places[self.find(key(packets, id))];
        if let Some(flow) = self.flows.get_mut(place as usize) {
            flow.count = flow.count.saturating_sub(1);
        }
    }

    /// Notices for the flows that are to be notified now. The others are removed.
    pub(super) fn waiting(&mut self, now: u64) -> impl Iterator<Item = &mut RateNotice> {
        let before = self.flows.len();
        match self.table {
            FlowTable::Queue => self.flows.retain(|flow| flow.count > 0),
            FlowTable::Age { age, .. } => self.flows.retain(|flow| now - flow.seen <= age),
            FlowTable::Elephant { age, .. } => {
                if now - self.halved >= age {
                    self.halved = now;
                    self.flows.iter_mut().for_each(|flow| flow.count /= 2);
                    self.flows.retain(|flow| flow.count > 0);
                }
            }
        }
        if self.flows.len() < before {
            self.lay_out();
        }
        self.flows.iter_mut().map(|flow| &mut flow.notice)
    }

    /// Notes that the queue is empty, so that there is nothing to notify.
    pub(super) fn emptied(&mut self) {
        if self.table == FlowTable::Queue {
            self.clear();
        }
    }

    /// Clears the table.
    pub(super) fn clear(&mut self) {
        if !self.flows.is_empty() {
            self.flows.clear();
            self.places.fill(FREE);
        }
    }

    /// Rebuilds the index of slots.
    fn lay_out(&mut self) {
        self.places.fill(FREE);
        for n in 0..self.flows.len() {
            let at = self.find(self.flows[n].key);
            self.places[at] = n as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use irnic_transports::wire::{Bth, Headers, Opcode};
    use irnic_transports::{Path, Psn};
    use proptest::prelude::*;

    use super::*;
    use crate::network::{Content, Packet, address};

    /// A packet of a queue pair of a host.
    fn packet(packets: &mut Packets, host: u32, qp: u32) -> PacketId {
        let path = Path { src: address(host), dst: address(99), udp_src: 0, traffic_class: 0, hop_limit: 64 };
        let headers = Headers::new(Bth::new(Opcode::RcWriteMiddle, 1000 + qp, Psn::new(0)));
        let mut packet = Packet::new(1_086, 99, 0, 0);
        packet.src_qp = qp;
        packets.add(packet, Content::new(headers, path, 1_024))
    }

    fn table(table: FlowTable) -> Flows {
        Flows::new(table, 40_000_000_000, 100_000_000)
    }

    fn enter(flows: &mut Flows, packets: &Packets, id: PacketId, now: u64) {
        flows.enter(packets, id, now, &mut Pcg64Mcg::new(7));
    }

    /// Senders of the flows that are notified.
    fn waiting(flows: &mut Flows) -> Vec<(u32, u32)> {
        waiting_at(flows, 0)
    }

    fn waiting_at(flows: &mut Flows, now: u64) -> Vec<(u32, u32)> {
        flows.waiting(now).map(|n| (host_of(IpAddr::V4(n.src)), n.bth.dest_qp - 1000)).collect()
    }

    #[test]
    fn flows_are_those_with_packets_now_in_the_order_in_which_they_came() {
        let (mut packets, mut flows) = (Packets::default(), table(FlowTable::Queue));
        assert!(waiting(&mut flows).is_empty());
        let ids = [(3, 7), (1, 7), (3, 7), (3, 8)].map(|(host, qp)| packet(&mut packets, host, qp));
        ids.iter().for_each(|id| enter(&mut flows, &packets, *id, 0));
        assert_eq!(waiting(&mut flows), [(3, 7), (1, 7), (3, 8)]);
        flows.leave(&packets, ids[0]);
        flows.leave(&packets, ids[1]);
        assert_eq!(waiting(&mut flows), [(3, 7), (3, 8)]);
        enter(&mut flows, &packets, ids[1], 0);
        assert_eq!(waiting(&mut flows), [(3, 7), (3, 8), (1, 7)]);
        flows.clear();
        flows.leave(&packets, ids[1]);
        assert!(waiting(&mut flows).is_empty());
    }

    #[test]
    fn a_bounded_table_forgets_those_that_were_seen_longest_ago() {
        let mut packets = Packets::default();
        let ids = [1, 2, 3].map(|host| packet(&mut packets, host, 7));
        let mut flows = table(FlowTable::Age { entries: Some(2), age: 100 });
        [(ids[0], 0), (ids[1], 10), (ids[0], 20)].into_iter().for_each(|(id, at)| enter(&mut flows, &packets, id, at));
        // Departures change nothing.
        flows.leave(&packets, ids[0]);
        flows.emptied();
        assert_eq!(waiting_at(&mut flows, 30), [(1, 7), (2, 7)]);
        enter(&mut flows, &packets, ids[2], 40);
        assert_eq!(waiting_at(&mut flows, 120), [(1, 7), (3, 7)]);
        assert_eq!(waiting_at(&mut flows, 121), [(3, 7)]);
        flows.leave(&packets, ids[2]);
        assert_eq!((waiting_at(&mut flows, 141), table(FlowTable::AGE).most), (vec![], 400));
    }

    #[test]
    fn a_trap_keeps_the_flows_of_which_it_samples_most() {
        let mut packets = Packets::default();
        let ids = [1, 2, 3].map(|host| packet(&mut packets, host, 7));
        let mut flows = table(FlowTable::Elephant { entries: 2, sample: 1.0, age: 1_000 });
        [0, 0, 0, 1].into_iter().for_each(|n| enter(&mut flows, &packets, ids[n], 0));
        enter(&mut flows, &packets, ids[2], 1);
        assert_eq!(waiting_at(&mut flows, 2), [(1, 7), (3, 7)]);
        // Counts are halved: one of them drops to 0.
        assert_eq!((waiting_at(&mut flows, 1_000), waiting_at(&mut flows, 2_000)), (vec![(1, 7)], vec![]));
        // A sixteenth of the packets.
        let (mut flows, mut rng) = (table(FlowTable::ELEPHANT), Pcg64Mcg::new(7));
        (0..16_000).for_each(|_| flows.enter(&packets, ids[0], 0, &mut rng));
        assert!((900..1_100).contains(&flows.flows[0].count), "{}", flows.flows[0].count);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_an_ordered_map(
            steps in prop::collection::vec((0..4_u32, 0..60_u32, 0..10_u32), 1..400)
        ) {
            let (mut packets, mut flows) = (Packets::default(), table(FlowTable::Queue));
            let mut model: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for (host, qp, what) in steps {
                let id = packet(&mut packets, host, qp);
                let count = model.entry((host, qp)).or_default();
                if what < 6 {
                    enter(&mut flows, &packets, id, 0);
                    *count += 1;
                } else if what < 9 && *count > 0 {
                    flows.leave(&packets, id);
                    *count -= 1;
                } else {
                    model.retain(|_, count| *count > 0);
                    let mut all = waiting(&mut flows);
                    all.sort_unstable();
                    prop_assert_eq!(all, model.keys().copied().collect::<Vec<_>>());
                }
            }
        }
    }
}
