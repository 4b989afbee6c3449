//! Flows, and the last few that came by an input.

use std::net::IpAddr;

use crate::network::{PacketId, Packets, host_of};

/// A flow: the 5-tuple of RoCEv2, of which protocol and destination port are always the same, and the priority, by which
/// PFC tells frames apart.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowId {
    /// IPv4 addresses.
    pub src: u32,
    pub dst: u32,
    pub udp_src: u16,
    pub priority: u8,
}

impl FlowId {
    /// The flow of a packet.
    #[inline]
    pub(super) fn of(packets: &Packets, id: PacketId) -> FlowId {
        let path = &packets.content(id).path;
        let bits = |address| match address {
            IpAddr::V4(v4) => v4.to_bits(),
            IpAddr::V6(_) => host_of(address),
        };
        let (src, dst) = (bits(path.src), bits(path.dst));
        FlowId { src, dst, udp_src: path.udp_src, priority: packets.get(id).priority }
    }

    /// Whether a packet belongs to the flow.
    #[inline]
    pub(super) fn has(&self, packets: &Packets, id: PacketId) -> bool {
        packets.get(id).priority == self.priority && FlowId::of(packets, id) == *self
    }
}

/// The last flows that came by an input, and the outputs by which they leave (§4.3.1, §4.5.2): a circular array without
/// repetitions.
#[derive(Debug)]
pub(super) struct FlowTable {
    flows: Vec<(FlowId, u16)>,
    most: usize,
    /// Where the next new flow goes.
    next: usize,
    /// Where the flow is that came last.
    last: usize,
    /// Whose turn it is to be sent a token.
    cursor: usize,
}

impl FlowTable {
    /// An empty one for so many flows.
    pub(super) fn new(most: usize) -> FlowTable {
        FlowTable { flows: Vec::with_capacity(most), most: most.max(1), next: 0, last: 0, cursor: 0 }
    }

    /// A frame of a flow has come that leaves by `output`.
    #[inline]
    pub(super) fn note(&mut self, flow: FlowId, output: u16) {
        if self.flows.get(self.last) == Some(&(flow, output)) {
            return;
        }
        self.note_other(flow, output);
    }

    fn note_other(&mut self, flow: FlowId, output: u16) {
        match self.flows.iter().position(|(known, _)| *known == flow) {
            Some(at) => (self.flows[at].1, self.last) = (output, at),
            None if self.flows.len() < self.most => {
                self.last = self.flows.len();
                self.flows.push((flow, output));
            }
            None => {
                (self.flows[self.next], self.last) = ((flow, output), self.next);
                self.next = (self.next + 1) % self.most;
            }
        }
    }

    /// The output by which a flow leaves, if it is known.
    pub(super) fn output_of(&self, flow: FlowId) -> Option<u16> {
        self.flows.iter().find(|(known, _)| *known == flow).map(|(_, output)| *output)
    }

    /// How many flows are known.
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The flow whose turn comes after `n` others, and its output. Without one there are none.
    pub(super) fn in_turn(&self, n: usize) -> Option<(FlowId, u16)> {
        self.flows.get((self.cursor + n) % self.flows.len().max(1)).copied()
    }

    /// The next turn is that of the flow after `n` others.
    pub(super) fn turn(&mut self, n: usize) {
        self.cursor = (self.cursor + n) % self.flows.len().max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(udp_src: u16) -> FlowId {
        FlowId { udp_src, ..FlowId::default() }
    }

    #[test]
    fn the_last_flows_are_known_and_each_once() {
        let mut table = FlowTable::new(3);
        assert_eq!(table.in_turn(0), None);
        for n in [1, 1, 2, 1, 3, 3] {
            table.note(flow(n), n);
        }
        assert_eq!((1..=4).map(|n| table.output_of(flow(n))).collect::<Vec<_>>(), [Some(1), Some(2), Some(3), None]);
        // The first that was new gives way, and one that is known has moved.
        table.note(flow(4), 4);
        table.note(flow(2), 9);
        assert_eq!((1..=4).map(|n| table.output_of(flow(n))).collect::<Vec<_>>(), [None, Some(9), Some(3), Some(4)]);
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn turns_go_round() {
        let mut table = FlowTable::new(3);
        (1..=3).for_each(|n| table.note(flow(n), n));
        let first = |table: &FlowTable| table.in_turn(0).map(|(_, output)| output);
        assert_eq!(first(&table), Some(1));
        table.turn(2);
        assert_eq!((first(&table), table.in_turn(1).map(|(_, output)| output)), (Some(3), Some(1)));
        table.turn(1);
        assert_eq!(first(&table), Some(1));
    }
}
