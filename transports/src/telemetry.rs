//! In-band network telemetry (INT): records written by the switches on a packet's path about their egress ports (HPCC
//! §4.1).
//!
//! It travels out of band, from NIC to NIC through their carrier: a sender that wants it attaches an empty record to
//! each request, and the receiver returns the filled one with its next acknowledgement. Simulated and emulated networks
//! carry it, real ports do not.

/// Record written by a switch as a packet leaves it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Rate of the port, bit/s.
    pub rate: u64,
    /// The switch's clock, ns.
    pub at: u64,
    /// Bytes sent by the port before this packet.
    pub sent: u64,
    /// Bytes queued at the port behind this packet.
    pub queued: u64,
}

/// The telemetry of one packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Int {
    hops: [Hop; Int::HOPS],
    count: u8,
    answer: bool,
    way: u32,
}

impl Int {
    /// Maximum number of switches: the longest path in a fat-tree of three tiers. Those beyond write nothing.
    pub const HOPS: usize = 5;
    /// Bytes on the wire, however many hops are used: eight for each switch, and two (HPCC §4.1).
    pub const LEN: u32 = 8 * Int::HOPS as u32 + 2;
    /// Telemetry of a packet that has passed no switch.
    pub const EMPTY: Int =
        Int { hops: [Hop { rate: 0, at: 0, sent: 0, queued: 0 }; Int::HOPS], count: 0, answer: false, way: 0 };

    /// Adds a hop as the packet leaves a switch by the port with this number in the network. Telemetry being returned
    /// is unchanged.
    #[inline]
    pub fn push(&mut self, port: u32, hop: Hop) {
        if self.answer {
            return;
        }
        if let Some(place) = self.hops.get_mut(usize::from(self.count)) {
            *place = hop;
            self.count += 1;
            self.way = self.way.rotate_left(5) ^ port;
        }
    }

    /// Returns the hops in path order.
    #[inline]
    pub fn hops(&self) -> &[Hop] {
        &self.hops[..usize::from(self.count)]
    }

    /// Returns a digest of the ports: packets with different digests took different paths (HPCC's pathID).
    #[inline]
    pub fn way(&self) -> u32 {
        self.way
    }

    /// Returns the telemetry as returned by an acknowledgement.
    #[inline]
    #[must_use]
    pub fn answer(self) -> Int {
        Int { answer: true, ..self }
    }

    /// Returns whether it is being returned.
    #[inline]
    pub fn is_answer(&self) -> bool {
        self.answer
    }

    /// Length of [`Self::to_bytes`].
    pub const BYTES: usize = 8 + 32 * Int::HOPS;

    /// Serializes everything, for a carrier between processes of one machine.
    pub fn to_bytes(&self) -> [u8; Int::BYTES] {
        let mut bytes = [0; Int::BYTES];
        (bytes[0], bytes[1]) = (self.count, u8::from(self.answer));
        bytes[4..8].copy_from_slice(&self.way.to_le_bytes());
        let words = self.hops.iter().flat_map(|hop| [hop.rate, hop.at, hop.sent, hop.queued]);
        for (to, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Parses the output of [`Self::to_bytes`]; `None` if it has more switches than there is room for.
    pub fn from_bytes(bytes: &[u8; Int::BYTES]) -> Option<Int> {
        let (count, answer) = (bytes[0], bytes[1] != 0);
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[8 + 8 * n + i]));
        let hop = |n| Hop { rate: word(4 * n), at: word(4 * n + 1), sent: word(4 * n + 2), queued: word(4 * n + 3) };
        let way = u32::from_le_bytes(std::array::from_fn(|i| bytes[4 + i]));
        let int = Int { hops: std::array::from_fn(hop), count, answer, way };
        (usize::from(count) <= Int::HOPS).then_some(int)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(at: u64) -> Hop {
        Hop { rate: 1, at, sent: 2, queued: 3 }
    }

    #[test]
    fn switches_write_in_the_order_of_the_way_as_far_as_there_is_room() {
        let mut int = Int::EMPTY;
        for i in 0..7 {
            int.push(i, hop(i.into()));
        }
        assert_eq!(int.hops().iter().map(|h| h.at).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(Int::LEN, 42);
    }

    #[test]
    fn ways_differ_by_their_ports_and_their_order() {
        let way = |ports: &[u32]| {
            let mut int = Int::EMPTY;
            ports.iter().for_each(|&port| int.push(port, hop(0)));
            int.way()
        };
        assert_eq!(way(&[1, 2, 3]), way(&[1, 2, 3]));
        assert_ne!(way(&[1, 2, 3]), way(&[1, 4, 3]));
        assert_ne!(way(&[1, 2]), way(&[2, 1]));
    }

    #[test]
    fn bytes_have_all_of_it() {
        let mut int = Int::EMPTY;
        (1..=3).for_each(|i| int.push(i, Hop { rate: 10, at: u64::MAX - u64::from(i), sent: 12, queued: 13 }));
        for int in [Int::EMPTY, int, int.answer()] {
            assert_eq!(Int::from_bytes(&int.to_bytes()), Some(int));
        }
        let mut wrong = int.to_bytes();
        wrong[0] = Int::HOPS as u8 + 1;
        assert_eq!(Int::from_bytes(&wrong), None);
    }

    #[test]
    fn nothing_is_written_on_the_way_back() {
        let mut int = Int::EMPTY;
        int.push(1, hop(1));
        let mut back = int.answer();
        back.push(2, hop(2));
        assert_eq!((back.hops(), back.is_answer(), int.is_answer()), (int.hops(), true, false));
    }
}
