//! The flow table: which flows have packets in a queue now (§4.3 of the paper, its first variant).

use irnic_transports::wire::RateNotice;

use crate::network::{PacketId, Packets, host_of, mix};

/// A flow that has, or had of late, packets in the queue.
#[derive(Debug)]
struct Flow {
    key: u64,
    packets: u32,
    /// A notice about one of them.
    notice: RateNotice,
}

/// The flows of a queue. Those that have left it are forgotten when they are next looked at, so that nothing is
/// allocated but for more flows than ever before.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// In the order in which they came.
    flows: Vec<Flow>,
    /// Places of flows by the hash of their keys, open addressing; [`FREE`] for none. A power of two, at most half full.
    places: Vec<u32>,
}

const FREE: u32 = u32::MAX;

/// Identifies the flow of a packet: host and queue pair that send it.
#[inline]
fn key(packets: &Packets, id: PacketId) -> u64 {
    let (src, qp) = packets.flow(id);
    u64::from(host_of(src)) << 32 | u64::from(qp)
}

impl Flows {
    /// Where a key is in `places`, or would be.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mask = self.places.len() - 1;
        let mut at = mix(key as u32 ^ mix((key >> 32) as u32)) as usize & mask;
        while self.places[at] != FREE && self.flows[self.places[at] as usize].key != key {
            at = (at + 1) & mask;
        }
        at
    }

    /// A packet has joined the queue. One over IPv6, about which there is no notice, does not count.
    #[inline]
    pub(super) fn enter(&mut self, packets: &Packets, id: PacketId) {
        let key = key(packets, id);
        if 2 * (self.flows.len() + 1) > self.places.len() {
            let room = (4 * self.flows.len()).max(16).next_power_of_two();
            self.places.resize(room, FREE);
            self.lay_out();
        }
        let at = self.find(key);
        if self.places[at] != FREE {
            self.flows[self.places[at] as usize].packets += 1;
            return;
        }
        let content = packets.content(id);
        if let Some(notice) = RateNotice::about(&content.path, &content.headers, content.payload) {
            self.places[at] = self.flows.len() as u32;
            self.flows.push(Flow { key, packets: 1, notice });
        }
    }

    /// A packet has left the queue.
    #[inline]
    pub(super) fn leave(&mut self, packets: &Packets, id: PacketId) {
        if self.flows.is_empty() {
            return;
        }
        let place = self.places[self.find(key(packets, id))];
        if let Some(flow) = self.flows.get_mut(place as usize) {
            flow.packets = flow.packets.saturating_sub(1);
        }
    }

    /// Notices about the flows that have packets in the queue. The others are forgotten.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = &mut RateNotice> {
        let before = self.flows.len();
        self.flows.retain(|flow| flow.packets > 0);
        if self.flows.len() < before {
            self.lay_out();
        }
        self.flows.iter_mut().map(|flow| &mut flow.notice)
    }

    /// The queue is empty.
    pub(super) fn clear(&mut self) {
        if !self.flows.is_empty() {
            self.flows.clear();
            self.places.fill(FREE);
        }
    }

    /// Finds each flow its place.
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

    /// The senders of the flows that wait.
    fn waiting(flows: &mut Flows) -> Vec<(u32, u32)> {
        flows.waiting().map(|n| (host_of(IpAddr::V4(n.src)), n.bth.dest_qp - 1000)).collect()
    }

    #[test]
    fn flows_are_those_with_packets_now_in_the_order_in_which_they_came() {
        let (mut packets, mut flows) = (Packets::default(), Flows::default());
        assert!(waiting(&mut flows).is_empty());
        let ids = [(3, 7), (1, 7), (3, 7), (3, 8)].map(|(host, qp)| packet(&mut packets, host, qp));
        ids.iter().for_each(|id| flows.enter(&packets, *id));
        assert_eq!(waiting(&mut flows), [(3, 7), (1, 7), (3, 8)]);
        flows.leave(&packets, ids[0]);
        flows.leave(&packets, ids[1]);
        assert_eq!(waiting(&mut flows), [(3, 7), (3, 8)]);
        flows.enter(&packets, ids[1]);
        assert_eq!(waiting(&mut flows), [(3, 7), (3, 8), (1, 7)]);
        flows.clear();
        flows.leave(&packets, ids[1]);
        assert!(waiting(&mut flows).is_empty());
    }

    proptest! {
        #[test]
        fn counts_are_those_of_an_ordered_map(
            steps in prop::collection::vec((0..4_u32, 0..60_u32, 0..10_u32), 1..400)
        ) {
            let (mut packets, mut flows) = (Packets::default(), Flows::default());
            let mut model: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for (host, qp, what) in steps {
                let id = packet(&mut packets, host, qp);
                let count = model.entry((host, qp)).or_default();
                if what < 6 {
                    flows.enter(&packets, id);
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
