//! Out-of-band data of a packet, carried from NIC to NIC by networks that can: the simulated one.
//!
//! No real header has these fields. A queue pair sets them when it builds a packet, switches of a simulated network
//! read and change them, and the receiving queue pair reads the result. Real ports drop them.

use crate::telemetry::Int;

/// Drop precedence of a packet whose queue is too long: the colours of RFC 2697 and RFC 2698.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Colour {
    /// The packet is kept as long as there is any room. TLT calls such packets important.
    #[default]
    Green,
    /// The packet is dropped first: a queue accepts it only up to its colour threshold (TLT §4: unimportant).
    Red,
}

/// Out-of-band data of one packet. [`Sideband::NONE`] in a real network.
///
/// It is copied with each packet, and so is kept small: large parts are references.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Sideband<'a> {
    /// In-band network telemetry: for switches to fill in, or as received, to be returned to the sender.
    pub telemetry: Option<&'a Int>,
    /// Time that the packet may still wait in queues without missing its target, ns; negative if it is late (LSTF, UPS
    /// §2). Each switch subtracts how long the packet waited there.
    pub slack: i64,
    /// Slack used up on the path, ns: how long the packet waited in switches that track slack. Set only on reception; 0
    /// on transmission.
    pub waited: i64,
    /// Number of the queue pair that sent the packet, 24 bits. Together with its host it identifies the flow, also
    /// where the headers do not: those of connected services name only the receiver.
    pub src_qp: u32,
    /// Drop precedence.
    pub colour: Colour,
    /// Whether a switch has cut the payload off, in part or completely (NDP §3.1, "packet trimming"). The headers are
    /// unchanged.
    pub trimmed: bool,
    /// Whether a switch has returned the packet to its sender, addresses exchanged, for lack of room even for its
    /// headers (NDP §3.2.4). Its headers still name the destination queue pair.
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
