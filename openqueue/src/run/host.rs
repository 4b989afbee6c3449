//! What is around an engine: who has the packets, and does what a policy asks for.

use super::items::Seen;

/// What is around a switch, by port.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Rates of the links, bit/s.
    pub rates: Vec<u64>,
    /// Bytes that may still come by each link after its neighbour was asked to stop.
    pub headroom: Vec<u64>,
    /// Priorities in use.
    pub priorities: u8,
}

/// Packets that wait, by their numbers. The host keeps what an engine has to know of each, and one link: it has the
/// packets themselves, so that both lie together.
pub trait Waiting {
    /// The link that [`Host::set_next`] has set last.
    fn next(&self, id: u32) -> u32;

    /// What an engine has to know of a packet; as when it arrived, less what was trimmed.
    fn seen(&self, id: u32) -> Seen;
}

/// What a policy can have done to packets and neighbours.
pub trait Host: Waiting {
    /// Sets the link of a packet.
    fn set_next(&mut self, id: u32, next: u32);

    /// A random number of 64 bits.
    fn random(&mut self) -> u64;

    /// Marks a packet with congestion experienced.
    fn mark(&mut self, id: u32);

    /// Asks the neighbour at an input to stop or go on sending a priority.
    fn pause(&mut self, input: u16, priority: u8, stop: bool);

    /// What follows is about packets for this output. Only asked for where packets go from queue to queue.
    fn turn_to(&mut self, _output: u16) {}

    /// Whether the link of an output is sending a packet.
    fn is_sending(&self, output: u16) -> bool;

    /// Drops a packet that was taken in before.
    fn push_out(&mut self, id: u32);

    /// Whether a packet has payload that may be cut off. By default none has.
    fn can_trim(&self, _id: u32) -> bool {
        false
    }

    /// Cuts the payload off a packet that arrives, or that waited. Returns the bytes cut; `None` if that cannot be done
    /// after all: then the packet is dropped.
    fn trim(&mut self, _id: u32) -> Option<u32> {
        None
    }

    /// Sends a packet that arrives, or that waited, back to its sender, if it has lost its payload and has not been
    /// sent back before. Returns whether it has: then it is out of the engine's hands.
    fn turn_back(&mut self, _id: u32) -> bool {
        false
    }

    /// Tosses a fair coin.
    fn coin(&mut self) -> bool {
        self.random() >> 63 == 1
    }
}

/// What became of a packet that arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits.
    Queued,
    /// It waits without its payload, so many bytes.
    Trimmed(u32),
    /// There is no room for it. It has gone back to its sender.
    Returned,
    /// There is no room for it. It is still the host's.
    Dropped,
}

/// What has happened so far.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came, and their bytes.
    pub arrived: (u64, u64),
    /// Packets that were dropped as they came, and their bytes.
    pub refused: (u64, u64),
    /// Packets that were dropped after they had been taken in, and their bytes.
    pub pushed_out: (u64, u64),
    /// Packets that left, and their bytes.
    pub sent: (u64, u64),
    /// Packets that were trimmed, and the bytes cut off.
    pub trimmed: (u64, u64),
    /// Packets that went back to their senders, as they came or after they had been taken in, and their bytes.
    pub returned: (u64, u64),
}
