//! A packet on its way between a queue pair and whatever carries it: parsed headers, a path, and a payload that is not
//! copied until the carrier must.

use std::marker::PhantomData;
use std::net::IpAddr;

use crate::telemetry::Int;
use crate::time::Time;
use crate::wire::Headers;

/// Where a packet goes and comes from below the BTH: the fields of IP and UDP that a queue pair chooses or learns.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// The sender's address. Same family as `dst`.
    pub src: IpAddr,
    /// The receiver's address.
    pub dst: IpAddr,
    /// UDP source port: the entropy that ECMP hashes (RoCEv2 recommends 0xc000–0xffff). Ports that own one socket may
    /// replace it by that socket's.
    pub udp_src: u16,
    /// IPv4 TOS or IPv6 traffic class: six bits DSCP, two bits ECN.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
}

impl Path {
    /// Whether the packet has met congestion (RFC 3168: CE).
    #[inline]
    pub fn is_congested(&self) -> bool {
        self.traffic_class & 3 == 3
    }
}

/// One stretch of application memory: an address of this process and a length in bytes. An address of 0 is memory that
/// exists only as a length (a simulation that moves no bytes).
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
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Gather<'a> {
    /// Longest gather list of one packet; no queue pair takes more scatter/gather elements in a work request.
    pub const MAX: usize = 32;

    /// A gather list over `segments`.
    ///
    /// # Safety
    /// Every segment with a non-zero address must be readable for its length as long as `'a` lives.
    pub unsafe fn new(segments: &'a [Segment]) -> Gather<'a> {
        Gather { segments, memory: PhantomData }
    }

    /// The segments, in order.
    pub fn segments(&self) -> &'a [Segment] {
        self.segments
    }
}

/// A packet's payload where it lies now.
#[derive(Copy, Clone, Debug)]
pub enum Payload<'a> {
    /// Contiguous bytes, without padding.
    Bytes(&'a [u8]),
    /// Bytes in registered memory.
    Gather(Gather<'a>),
    /// Only a length: nothing moves (the simulated fabric's default).
    Len(u32),
}

impl Payload<'_> {
    /// No payload.
    pub const EMPTY: Payload<'static> = Payload::Bytes(&[]);

    /// Length in bytes, without padding.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(b) => b.len(),
            Payload::Gather(g) => g.segments.iter().map(|s| s.len as usize).sum(),
            Payload::Len(n) => *n as usize,
        }
    }

    /// Whether there is no payload.
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
    /// When the NIC handed it to the wire, in ticks of its hardware clock.
    pub timestamp: u64,
    /// Telemetry that goes with it: for switches to write on, or as it came, on its way back.
    pub telemetry: Option<&'a Int>,
}

/// A packet that reached the NIC: ICRC verified or never needed, padding removed.
#[derive(Copy, Clone, Debug)]
pub struct RxPacket<'a> {
    /// BTH and extended headers.
    pub headers: &'a Headers,
    /// IP and UDP fields as they arrived.
    pub path: &'a Path,
    /// Payload without padding.
    pub payload: Payload<'a>,
    /// When the port saw it, on the habitat's clock.
    pub arrived: Time,
    /// Telemetry that came with it.
    pub telemetry: Option<&'a Int>,
}
