//! What travels beside a packet's bytes, from NIC to NIC, through a network that can carry it: the simulated one.
//!
//! No real header has these fields. A queue pair fills them in as it makes a packet, switches of a simulated network
//! read and change them, and the receiving queue pair finds what has become of them. Real ports drop them.

use crate::telemetry::Int;

/// How willing a switch is to drop a packet whose queue is too long: the colours of RFC 2697 and RFC 2698.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Colour {
    /// The packet is kept as long as there is room at all. TLT calls such packets important.
    #[default]
    Green,
    /// The packet goes first: a queue takes it only up to its colour threshold (TLT §4: unimportant).
    Red,
}

/// What accompanies one packet beside its bytes. [`Sideband::NONE`] accompanies those of a real network.
///
/// It is copied with each packet, and so stays small: what is large goes by reference.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Sideband<'a> {
    /// In-band network telemetry: for switches to write on, or as it came, on its way back to the sender.
    pub telemetry: Option<&'a Int>,
    /// Time that the packet may still wait in queues without missing its target, ns; negative if it is late (LSTF, UPS
    /// §2). Each switch subtracts how long the packet waited there.
    pub slack: i64,
    /// What the packet's slack has lost on its way, ns: how long it waited in switches that keep slack. Only who
    /// receives it is told; 0 as it is sent.
    pub waited: i64,
    /// Number of the queue pair that sent the packet, 24 bits. With its host it identifies the flow, also where the
    /// headers do not: those of connected services name the receiver only.
    pub src_qp: u32,
    /// Drop precedence.
    pub colour: Colour,
    /// Whether a switch has cut the payload off, in part or whole (NDP §3.1, "packet trimming"). The headers are those
    /// of the packet before that.
    pub trimmed: bool,
    /// Whether a switch has sent the packet back to its sender, addresses exchanged, because not even its headers found
    /// room (NDP §3.2.4). Its headers still name the queue pair that it was sent to.
    pub returned: bool,
}

// Three registers and a pointer: a packet without a sideband costs the stores of these.
const _: () = assert!(size_of::<Sideband<'_>>() == 32);

impl Sideband<'_> {
    /// The sideband of a packet that has none.
    pub const NONE: Sideband<'static> = Sideband {
        telemetry: None,
        slack: 0,
        waited: 0,
        src_qp: 0,
        colour: Colour::Green,
        trimmed: false,
        returned: false,
    };
}
