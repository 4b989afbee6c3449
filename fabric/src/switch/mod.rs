//! What a switch does with packets: admits or drops, queues, marks, pauses, and picks the next. Links, routes and time are the
//! simulation's business ([`crate::sim`]).
//!
//! Each kind of switch is a file here that implements [`Switch`], and a line in [`SwitchConfig::build`].

mod ecn;
mod input_queued;
mod pfc;
mod shared_buffer;

use rand_pcg::Pcg64Mcg;

pub use ecn::Ecn;
pub use input_queued::{InputQueued, InputQueuedConfig};
pub use pfc::{Pfc, Thresholds};
pub use shared_buffer::{SharedBuffer, SharedBufferConfig, SharedPfc, headroom};

use crate::packet::{PacketId, Packets};
use crate::port::{Pause, Port};

/// How an output chooses among its priorities.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// The highest first.
    #[default]
    Strict,
    /// In turn, a packet each.
    RoundRobin,
}

/// What a switch works with while it handles one packet.
pub struct Surroundings<'a> {
    /// ns.
    pub now: u64,
    /// All packets of the network.
    pub packets: &'a mut Packets,
    /// Its own ports, by their numbers here.
    pub ports: &'a mut [Port],
    /// Chance, of this switch alone.
    pub chance: &'a mut Pcg64Mcg,
    /// Set to have the upstream neighbours of these inputs asked; the simulation sends the frames.
    pub asks: &'a mut Vec<(u16, Pause)>,
    /// Set to have an output that got nothing ask again, ns.
    pub again: Option<u64>,
}

/// A switch.
pub trait Switch: Send + std::fmt::Debug {
    /// A packet has arrived whole by its `input` and is to leave by `output`. Returns whether there was room for it.
    fn arrive(&mut self, s: &mut Surroundings<'_>, id: PacketId, output: u16) -> bool;

    /// The packet that `output`, which is free, sends next: none of the priorities in `stopped` (bits).
    fn next(&mut self, s: &mut Surroundings<'_>, output: u16, stopped: u8) -> Option<PacketId>;

    /// Bytes that wait for an output.
    fn queued(&self, output: u16) -> u64;

    /// Bytes in its buffer.
    fn buffered(&self) -> u64;

    /// Inputs whose neighbours it has stopped, and the priority, for finding deadlocks.
    fn stopping(&self) -> Vec<(u16, u8)>;

    /// Whether packets from `input` with `priority` wait for `output`.
    fn waits(&self, packets: &Packets, input: u16, priority: u8, output: u16) -> bool;

    /// A packet is about to come by `input` and leave by `output`: fetches what that will need into the cache.
    fn fetch(&self, input: u16, output: u16);

    /// Takes out all that waits for `output`, whose link went down, and hands it to `each`.
    fn flush(&mut self, s: &mut Surroundings<'_>, output: u16, each: &mut dyn FnMut(&mut Packets, PacketId));
}

/// Which switch, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum SwitchConfig {
    /// [`InputQueued`].
    InputQueued(InputQueuedConfig),
    /// [`SharedBuffer`].
    SharedBuffer(SharedBufferConfig),
}

impl SwitchConfig {
    /// A switch with these ports.
    pub fn build(&self, ports: &[Port]) -> Box<dyn Switch> {
        match self {
            SwitchConfig::InputQueued(config) => Box::new(InputQueued::new(config, ports)),
            SwitchConfig::SharedBuffer(config) => Box::new(SharedBuffer::new(config, ports)),
        }
    }
}
