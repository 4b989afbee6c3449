//! Ports that interrupt a transmission for a more urgent packet, and send the rest later (preemption).
//!
//! For other ports, an arrival is scheduled when the packet begins to leave; here, when its last bit has left, so that
//! nothing has to be undone. Sending in pieces costs no more bits, and the other end sees only the last one.

use super::{PacketId, Packets};
use crate::priorities::Priorities;

/// A packet whose transmission has begun.
#[derive(Copy, Clone, Debug)]
pub(super) struct Begun {
    pub(super) packet: PacketId,
    /// Rank; the lowest is sent first.
    pub(super) rank: i64,
    /// Time at which its last bit leaves, or would have left, ns.
    pub(super) end: u64,
    /// For an interrupted packet, the transmission time of its rest, ps, whatever the link's rate is by then.
    pub(super) left: u64,
}

/// Transmissions begun by a port that interrupts packets.
#[derive(Debug, Default)]
pub(super) struct Preemption {
    /// The packet in transmission.
    pub(super) sending: Option<Begun>,
    /// Interrupted packets; the last one is next.
    pub(super) rests: Vec<Begun>,
}

impl Preemption {
    /// Packets whose last bit has not left.
    pub(super) fn packets(&self) -> impl Iterator<Item = PacketId> {
        self.sending.iter().chain(&self.rests).map(|begun| begun.packet)
    }

    /// Whether an interrupted packet waits.
    pub(super) fn has_rests(&self) -> bool {
        !self.rests.is_empty()
    }

    /// Removes all packets whose transmission has begun.
    pub(super) fn flush(&mut self, lost: &mut Vec<PacketId>) {
        lost.extend(self.packets());
        self.sending = None;
        self.rests.clear();
    }

    /// Adds an interrupted packet. Of equal ranks, the one interrupted first is next.
    pub(super) fn add(&mut self, rest: Begun) {
        let place = self.rests.partition_point(|begun| begun.rank > rest.rank);
        self.rests.insert(place, rest);
    }

    /// Position and rank of the interrupted packet that is next, of those that may be sent.
    pub(super) fn next_rest(&self, packets: &Packets, paused: Priorities) -> Option<(usize, i64)> {
        let may_go = |begun: &&Begun| paused.is_empty() || !paused.contains(packets.get(begun.packet).priority);
        let place = self.rests.iter().rposition(|begun| may_go(&begun))?;
        Some((place, self.rests[place].rank))
    }
}
