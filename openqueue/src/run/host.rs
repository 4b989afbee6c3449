//! The environment of an engine: access to the packets, and the actions of policies.

use super::items::Seen;

/// The environment of a switch, by port.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Rates of the links, bit/s.
    pub rates: Vec<u64>,
    /// Bytes that may still arrive by each link after its neighbour was asked to pause.
    pub headroom: Vec<u64>,
    /// Priorities in use.
    pub priorities: u8,
}

/// Queued packets, by number. The host keeps what an engine needs of each, and one link, next to the packets
/// themselves.
pub trait Waiting {
    /// The link that was last set by [`Host::set_next`].
    fn next(&self, id: u32) -> u32;

    /// The attributes of a packet, as on arrival, less what was trimmed.
    fn seen(&self, id: u32) -> Seen;
}

/// Actions of a policy on packets and neighbours.
pub trait Host: Waiting {
    /// Sets the link of a packet.
    fn set_next(&mut self, id: u32, next: u32);

    /// A random number of 64 bits.
    fn random(&mut self) -> u64;

    /// Marks a packet with congestion experienced.
    fn mark(&mut self, id: u32);

    /// Asks the neighbour at an input to pause or resume a priority.
    fn pause(&mut self, input: u16, priority: u8, stop: bool);

    /// Announces that the following calls concern packets for this output. Only called if packets move from queue to
    /// queue.
    fn turn_to(&mut self, _output: u16) {}

    /// Whether the link of an output is transmitting a packet.
    fn is_sending(&self, output: u16) -> bool;

    /// Drops a packet that was admitted before.
    fn push_out(&mut self, id: u32);

    /// Whether a packet has payload to trim. The default is false.
    fn can_trim(&self, _id: u32) -> bool {
        false
    }

    /// Trims the payload of an arriving or queued packet. Returns the bytes cut; `None` if that is not possible after
    /// all: then the packet is dropped.
    fn trim(&mut self, _id: u32) -> Option<u32> {
        None
    }

    /// Returns an arriving or queued packet to its sender, if it has been trimmed and not been returned before. Returns
    /// whether it was; the engine then no longer has it.
    fn turn_back(&mut self, _id: u32) -> bool {
        false
    }

    /// Tosses a fair coin.
    fn coin(&mut self) -> bool {
        self.random() >> 63 == 1
    }
}

/// Result of an arrival.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is queued.
    Queued,
    /// The packet is queued without its payload, of this many bytes.
    Trimmed(u32),
    /// There was no room; the packet was returned to its sender.
    Returned,
    /// There was no room; the packet stays with the host.
    Dropped,
}

/// Counters, each of packets and bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that arrived, and their bytes.
    pub arrived: (u64, u64),
    /// Packets dropped on arrival, and their bytes.
    pub refused: (u64, u64),
    /// Packets dropped after they had been queued, and their bytes.
    pub pushed_out: (u64, u64),
    /// Packets that left, and their bytes.
    pub sent: (u64, u64),
    /// Packets that were trimmed, and the bytes cut off.
    pub trimmed: (u64, u64),
    /// Packets returned to their senders, on arrival or after they had been queued, and their bytes.
    pub returned: (u64, u64),
}
