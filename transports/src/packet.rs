//! A packet between a queue pair and its carrier: parsed headers, a path, and a payload that is copied as late as
//! possible.

use std::marker::PhantomData;
use std::net::IpAddr;

use crate::sideband::{Colour, Sideband};
use crate::time::Time;
use crate::wire::Headers;

/// Addresses of a packet below the BTH: the fields of IP and UDP that a queue pair chooses or learns.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// The sender's address. Same family as `dst`.
    pub src: IpAddr,
    /// The receiver's address.
    pub dst: IpAddr,
    /// UDP source port: the entropy that ECMP hashes (RoCEv2 recommends 0xc000–0xffff). Ports with a single socket may
    /// replace it by that socket's.
    pub udp_src: u16,
    /// IPv4 TOS or IPv6 traffic class: six bits DSCP, two bits ECN.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
}

impl Path {
    /// Returns the priority of the packet, 0 to 7: the upper three bits of its traffic class (RFC 2474, class
    /// selector).
    #[inline]
    pub fn priority(&self) -> u8 {
        self.traffic_class >> 5
    }

    /// Returns the same addresses with another priority, 0 to 7. The rest of the traffic class is unchanged.
    #[must_use]
    pub fn with_priority(self, priority: u8) -> Path {
        Path { traffic_class: priority << 5 | self.traffic_class & 0x1f, ..self }
    }

    /// Returns the drop precedence: red if the lower three bits of the DSCP are 1, as in TLT (`docs/wire.md`).
    #[inline]
    pub fn colour(&self) -> Colour {
        if self.traffic_class >> 2 & 7 == 1 { Colour::Red } else { Colour::Green }
    }

    /// Returns the same addresses with another drop precedence. The priority and ECN bits are unchanged.
    #[must_use]
    pub fn with_colour(self, colour: Colour) -> Path {
        let bits = u8::from(colour == Colour::Red);
        Path { traffic_class: self.traffic_class & !0x1c | bits << 2, ..self }
    }

    /// Returns whether a switch may trim the payload of a packet of a pulled stream (NDP): the lower three bits of the
    /// DSCP are 0.
    #[inline]
    pub fn may_be_trimmed(&self) -> bool {
        self.traffic_class >> 2 & 7 == 0
    }

    /// Returns the treatment of a packet of a pulled stream by a switch (NDP), from the lower three bits of the DSCP.
    /// In other packets they belong to the application.
    #[inline]
    pub fn mark(&self) -> Mark {
        match self.traffic_class >> 2 & 7 {
            3 => Mark::Trimmed,
            5 => Mark::Returned,
            _ => Mark::Whole,
        }
    }

    /// Returns the same addresses with another mark.
    #[must_use]
    pub fn with_mark(self, mark: Mark) -> Path {
        let bits = match mark {
            Mark::Whole => 0,
            Mark::Trimmed => 3,
            Mark::Returned => 5,
        };
        Path { traffic_class: self.traffic_class & !0x1c | bits << 2, ..self }
    }

    /// Returns whether the packet has met congestion (RFC 3168: CE).
    #[inline]
    pub fn is_congested(&self) -> bool {
        self.traffic_class & 3 == 3
    }

    /// Returns the path as changed by a congested switch: marked, if the sender supports that (RFC 3168).
    pub(crate) fn marked(self) -> Path {
        let capable = self.traffic_class & 3 != 0;
        Path { traffic_class: self.traffic_class | if capable { 3 } else { 0 }, ..self }
    }
}

/// Treatment of a packet of a pulled stream by a switch (NDP §3.1, §3.2.4).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    Whole,
    /// The payload was cut off.
    Trimmed,
    /// The headers were returned to the sender.
    Returned,
}

/// Class of a packet, assigned where it is built. Its queue pair chooses priority and path by it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum PacketClass {
    /// A request, datagram, or response to a READ or atomic, sent for the first time.
    #[default]
    Data,
    /// A request or response that was sent before.
    Retransmission,
    /// An acknowledgement that must not arrive before a response sent earlier: in plain RoCE it would mean to the
    /// requester that the response is lost (IBA 9.7.5.1.1, implied NAK).
    OrderedAck,
    /// An acknowledgement, positive or negative, that may overtake everything.
    Ack,
    /// A congestion notification packet.
    Cnp,
}

impl PacketClass {
    /// Number of classes.
    pub const COUNT: usize = PacketClass::Cnp as usize + 1;

    /// Returns the class of a request or response; `fresh` if it is sent for the first time.
    #[inline]
    pub fn of_data(fresh: bool) -> PacketClass {
        if fresh { PacketClass::Data } else { PacketClass::Retransmission }
    }
}

/// A contiguous range of application memory: an address of this process and a length in bytes. An address of 0 is
/// memory that exists only as a length (a simulation that moves no bytes).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address in this process, 0 for memory without bytes.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
}

/// A gather list into registered memory, at most [`Gather::MAX`] segments.
#[derive(Copy, Clone, Debug)]
pub struct Gather<'a> {
    segments: &'a [Segment],
    stable: bool,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Gather<'a> {
    /// Maximum segments in the gather list of one packet, and in a work request of any queue pair.
    pub const MAX: usize = 32;

    /// Creates a gather list over `segments`.
    ///
    /// # Safety
    /// Every segment with a non-zero address must be readable for its length as long as `'a` lives.
    #[allow(unsafe_code, reason = "its promise is about addresses that others read, and nothing here does")]
    pub unsafe fn new(segments: &'a [Segment]) -> Gather<'a> {
        Gather { segments, stable: false, memory: PhantomData }
    }

    /// Sets whether its memory is [stable](Self::is_stable).
    #[must_use]
    pub fn with_stable(self, stable: bool) -> Gather<'a> {
        Gather { stable, ..self }
    }

    /// Returns whether the memory stays unchanged until the packet is acknowledged, as verbs require of the buffers of
    /// a send work request: a carrier need not copy it at once.
    pub fn is_stable(&self) -> bool {
        self.stable
    }

    /// Returns the segments, in order.
    pub fn segments(&self) -> &'a [Segment] {
        self.segments
    }
}

/// A packet's payload at its current location.
#[derive(Copy, Clone, Debug)]
pub enum Payload<'a> {
    /// Contiguous bytes, without padding.
    Bytes(&'a [u8]),
    /// Bytes in registered memory.
    Gather(Gather<'a>),
    /// Only a length: no bytes are moved (the simulated fabric's default).
    Len(u32),
}

impl Payload<'_> {
    /// No payload.
    pub const EMPTY: Payload<'static> = Payload::Bytes(&[]);

    /// Returns the length in bytes, without padding.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(b) => b.len(),
            Payload::Gather(g) => g.segments.iter().map(|s| s.len as usize).sum(),
            Payload::Len(n) => *n as usize,
        }
    }

    /// Returns whether there is no payload.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A packet that leaves the NIC. The carrier copies the payload before it returns.
#[derive(Copy, Clone, Debug)]
pub struct TxPacket<'a> {
    /// BTH and extended headers; the pad count is set.
    pub headers: &'a Headers,
    /// IP and UDP fields.
    pub path: &'a Path,
    /// Payload without padding.
    pub payload: Payload<'a>,
    /// Departure time from the NIC, in ticks of its hardware clock.
    pub timestamp: u64,
    /// Out-of-band data, where the network carries it.
    pub sideband: Sideband<'a>,
}

/// A packet that reached the NIC: ICRC verified or never needed, padding removed.
#[derive(Copy, Clone, Debug)]
pub struct RxPacket<'a> {
    /// BTH and extended headers.
    pub headers: &'a Headers,
    /// IP and UDP fields as received.
    pub path: &'a Path,
    /// Payload without padding.
    pub payload: Payload<'a>,
    /// Arrival time at the port, on the driver's clock.
    pub arrived: Time,
    /// Out-of-band data. The payload of a trimmed packet is shorter than its headers say, or empty.
    pub sideband: Sideband<'a>,
}
