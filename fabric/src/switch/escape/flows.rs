//! Flows, and the last few that arrived by an input.

use std::net::IpAddr;

use crate::network::{Packet, PacketId, Packets, host_of, mix};

/// A flow: the 5-tuple of RoCEv2, of which protocol and destination port are constant, and the priority, which PFC acts
/// on.
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

/// A key computed without parsing headers: the input of the ECMP hash, destination, queue pair, output and priority.
/// Packets of one flow always have the same key.
#[derive(Copy, Clone, Debug)]
struct Key {
    entropy: u32,
    dst: u32,
    src_qp: u32,
    output: u16,
    priority: u8,
}

impl Key {
    /// The key of no packet.
    const NONE: Key = Key { entropy: 0, dst: 0, src_qp: 0, output: 0, priority: u8::MAX };

    fn of(packet: &Packet, output: u16) -> Key {
        let &Packet { entropy, dst, src_qp, priority, .. } = packet;
        Key { entropy, dst, src_qp, output, priority }
    }

    /// Compares field by field: every packet of every switch passes here, and packing the fields into one word takes
    /// longer.
    #[inline(always)]
    fn is_of(&self, packet: &Packet, output: u16) -> bool {
        self.entropy == packet.entropy
            && self.dst == packet.dst
            && self.src_qp == packet.src_qp
            && self.output == output
            && self.priority == packet.priority
    }
}

/// Number of recent flows kept, by hash.
const RECENT: usize = 32;

/// Marks an empty slot of a [`FlowTable`].
const NOWHERE: u16 = u16::MAX;
/// Limit of the exponential back-off: a flow whose last n tokens failed is skipped for 2^n turns, 2^6 at most.
const PATIENCE: u8 = 6;

/// A known flow.
#[derive(Copy, Clone, Debug)]
struct Entry {
    flow: FlowId,
    output: u16,
    /// The next entry with the same hash.
    next: u16,
    /// Consecutive tokens that failed since a frame arrived, at most [`PATIENCE`], and the turns that the flow still
    /// has to skip.
    failed: u8,
    rests: u8,
}

/// The last flows of an input, and the outputs by which they leave (§4.3.1, §4.5.2): a circular array without
/// duplicates, with a round-robin cursor.
#[derive(Debug)]
pub(super) struct FlowTable {
    entries: Vec<Entry>,
    most: usize,
    /// The first entry of each hash.
    heads: Box<[u16]>,
    /// Slot of the next new flow.
    next: usize,
    /// Known flows whose frames leave by the same output as the last, and whose last token did not fail.
    recent: [Key; RECENT],
    /// The next flow to be sent a token.
    cursor: usize,
}

impl FlowTable {
    /// An empty table for this many flows.
    pub(super) fn new(most: u16) -> FlowTable {
        let most = usize::from(most.clamp(1, NOWHERE - 1));
        let heads = vec![NOWHERE; most.next_power_of_two()].into();
        FlowTable { entries: Vec::new(), most, heads, next: 0, recent: [Key::NONE; RECENT], cursor: 0 }
    }

    fn hash(&self, flow: FlowId) -> usize {
        let FlowId { src, dst, udp_src, priority } = flow;
        mix(src ^ mix(dst ^ mix(u32::from(udp_src) << 8 | u32::from(priority)))) as usize & (self.heads.len() - 1)
    }

    fn find(&self, flow: FlowId) -> Option<usize> {
        let mut at = self.heads[self.hash(flow)];
        while at != NOWHERE && self.entries[usize::from(at)].flow != flow {
            at = self.entries[usize::from(at)].next;
        }
        (at != NOWHERE).then_some(at.into())
    }

    /// Whether a packet that leaves by `output` does not escape and adds nothing new about its flow; if false, call
    /// [`Self::learn`].
    #[inline(always)]
    pub(super) fn knows(&self, packet: &Packet, output: u16) -> bool {
        self.recent[packet.entropy as usize % RECENT].is_of(packet, output) && !packet.is_escaping()
    }

    /// Records a packet that leaves by `output` and whose flow is unknown, or known differently.
    #[cold]
    #[inline(never)]
    pub(super) fn learn(&mut self, packets: &Packets, id: PacketId, output: u16) {
        self.note(FlowId::of(packets, id), output);
        let packet = packets.get(id);
        self.recent[packet.entropy as usize % RECENT] = Key::of(packet, output);
    }

    /// Records a frame of a flow that leaves by `output`.
    fn note(&mut self, flow: FlowId, output: u16) {
        if let Some(at) = self.find(flow) {
            let entry = &mut self.entries[at];
            if entry.output != output {
                entry.output = output;
                self.recent = [Key::NONE; RECENT];
            }
            (entry.failed, entry.rests) = (0, 0);
            return;
        }
        let hash = self.hash(flow);
        let at = if self.entries.len() < self.most { self.entries.len() } else { self.evict() };
        let entry = Entry { flow, output, next: self.heads[hash], failed: 0, rests: 0 };
        match self.entries.get_mut(at) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        self.heads[hash] = at as u16;
    }

    /// Removes the oldest flow; returns its slot.
    fn evict(&mut self) -> usize {
        self.recent = [Key::NONE; RECENT];
        let at = self.next;
        self.next = (at + 1) % self.most;
        let Entry { flow, next, .. } = self.entries[at];
        let hash = self.hash(flow);
        let mut before = self.heads[hash];
        if usize::from(before) == at {
            self.heads[hash] = next;
        } else {
            while usize::from(self.entries[usize::from(before)].next) != at {
                before = self.entries[usize::from(before)].next;
            }
            self.entries[usize::from(before)].next = next;
        }
        at
    }

    /// The output by which a flow leaves, if it is known.
    pub(super) fn output_of(&self, flow: FlowId) -> Option<u16> {
        self.find(flow).map(|at| self.entries[at].output)
    }

    /// Number of known flows.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The flow `n` turns ahead, and its output, unless it is skipped.
    pub(super) fn in_turn(&mut self, n: usize) -> Option<(FlowId, u16)> {
        let at = (self.cursor + n) % self.entries.len().max(1);
        let entry = self.entries.get_mut(at)?;
        if entry.rests > 0 {
            entry.rests -= 1;
            return None;
        }
        Some((entry.flow, entry.output))
    }

    /// Moves the cursor to the flow `n` turns ahead.
    pub(super) fn turn(&mut self, n: usize) {
        self.cursor = (self.cursor + n) % self.entries.len().max(1);
    }

    /// Notes that a token for a flow failed: the flow is skipped for longer with each failure.
    pub(super) fn failed(&mut self, flow: FlowId) {
        if let Some(at) = self.find(flow) {
            let entry = &mut self.entries[at];
            entry.failed = (entry.failed + 1).min(PATIENCE);
            entry.rests = (1 << entry.failed) - 1;
            self.recent = [Key::NONE; RECENT];
        }
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
        // The oldest is evicted; a known flow that moved to another output is not new.
        table.note(flow(4), 4);
        table.note(flow(2), 9);
        assert_eq!((1..=4).map(|n| table.output_of(flow(n))).collect::<Vec<_>>(), [None, Some(9), Some(3), Some(4)]);
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn turns_go_round() {
        let mut table = FlowTable::new(3);
        (1..=3).for_each(|n| table.note(flow(n), n));
        let turn = |table: &mut FlowTable, n| table.in_turn(n).map(|(_, output)| output);
        assert_eq!(turn(&mut table, 0), Some(1));
        table.turn(2);
        assert_eq!([0, 1].map(|n| turn(&mut table, n)), [Some(3), Some(1)]);
        table.turn(1);
        assert_eq!(turn(&mut table, 0), Some(1));
    }

    #[test]
    fn a_flow_whose_tokens_find_nothing_rests_until_a_frame_comes() {
        let mut table = FlowTable::new(2);
        table.note(flow(1), 1);
        let polls = |table: &mut FlowTable| (0..100).position(|_| table.in_turn(0).is_some());
        for rests in [1, 3, 7, 15, 31, 63, 63] {
            table.failed(flow(1));
            assert_eq!(polls(&mut table), Some(rests));
        }
        table.failed(flow(1));
        table.note(flow(1), 1);
        assert_eq!(polls(&mut table), Some(0));
        table.failed(flow(9));
    }

    #[test]
    fn many_flows_come_and_go() {
        let mut table = FlowTable::new(100);
        for n in 0..10_000u16 {
            table.note(flow(n), n % 7);
            assert_eq!(table.len(), usize::from(n + 1).min(100));
            let known = n.saturating_sub(99);
            assert_eq!((table.output_of(flow(n)), table.output_of(flow(known))), (Some(n % 7), Some(known % 7)));
            assert!(known == 0 || table.output_of(flow(known - 1)).is_none());
        }
    }
}
