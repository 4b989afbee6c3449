//! Endpoints: the sending and receiving ends at a host's only link.

use std::net::{IpAddr, Ipv4Addr};

use super::{Content, Control, Packet, PacketId, Packets, Port, PortId, Tapped, Totals};
use crate::priorities::Priorities;

/// The end of a host's link: a NIC with flows ([`crate::sim`]), a generator of packets ([`crate::generator`]), a
/// process.
///
/// The network never calls an endpoint while it is in a call. It polls for a packet when the link is free, so that the
/// endpoint selects what is sent next, as in hardware. After each call but [`Self::poll_transmit`] it asks for the next
/// deadline and polls for a packet; after changing an endpoint from outside, call [`super::Network::settle`].
pub trait Endpoint {
    /// State shared by all endpoints of a network and kept by the network: `()` if none.
    type Shared;

    /// Whether there may be something to send, with these priorities `paused`.
    fn wants_tx(&mut self, paused: Priorities) -> bool;

    /// Called when the link is free and [`Self::wants_tx`] returned true: sends a packet by [`EndpointCtx::send`] and
    /// returns its number, or `None`.
    fn poll_transmit(&mut self, ctx: &mut EndpointCtx<'_, Self::Shared>) -> Option<PacketId>;

    /// A packet has arrived completely. It is removed from the network when the call returns.
    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, Self::Shared>);

    /// The time returned by [`Self::next_deadline`] has come: `now`, ns.
    fn on_deadline(&mut self, now: u64);

    /// Time at which [`Self::on_deadline`] is due, ns; [`u64::MAX`] for never. Too early does no harm.
    fn next_deadline(&self) -> u64;

    /// A control frame other than PFC has arrived; PFC is reflected in the `paused` of [`Self::wants_tx`].
    fn on_control(&mut self, _control: Control, _ctx: &mut EndpointCtx<'_, Self::Shared>) {}

    /// A PFC frame has arrived, or the link has failed: from now on the switch pauses exactly these priorities. For
    /// endpoints that pass this on; those that only send get `paused` when polled.
    fn on_pause(&mut self, _paused: Priorities, _ctx: &mut EndpointCtx<'_, Self::Shared>) {}

    /// A frame begins to leave by a tapped port ([`super::Network::tap`]).
    fn on_tap(_shared: &mut Self::Shared, _tapped: Tapped<'_>) {}

    /// In a partitioned network: the host of another part that must be notified, at the exact time at which a packet
    /// arrives here, that it may have arrived, and a token for it. Called for packets without payload only, at hosts
    /// registered as awaiting some.
    fn awaits(&self, _content: &Content) -> Option<(u32, u32)> {
        None
    }

    /// Prefetches what any call needs into the processor's cache.
    #[inline]
    fn prefetch(&self) {}

    /// Prefetches what [`Self::prefetch_receive`] with this content reads.
    #[inline]
    fn prefetch_receiver(&self, _content: &Content) {}

    /// Prefetches what [`Self::prefetch_transmit`] reads.
    #[inline]
    fn prefetch_sender(&self) {}

    /// Prefetches what receiving a packet with this content needs.
    #[inline]
    fn prefetch_receive(&self, _content: &Content) {}

    /// Prefetches what sending the next packet needs.
    #[inline]
    fn prefetch_transmit(&self) {}
}

/// The context of an endpoint in one call.
#[derive(Debug)]
pub struct EndpointCtx<'a, S> {
    /// Current time, ns.
    pub now: u64,
    /// Host of the endpoint.
    pub host: u32,
    /// State shared by all endpoints.
    pub shared: &'a mut S,
    /// All packets of the network.
    pub packets: &'a mut Packets,
    pub(super) port: &'a mut Port,
    pub(super) totals: &'a mut Totals,
}

impl<S> EndpointCtx<'_, S> {
    /// Sends a packet. To be called at most once in [`Endpoint::poll_transmit`], which returns the number.
    #[inline]
    pub fn send(&mut self, packet: Packet, content: Content) -> PacketId {
        self.totals.injected(self.now, &packet, content.payload);
        self.packets.add(packet, Content { sent: self.now, slack: packet.slack, ..content })
    }

    /// Sends a control frame to the switch, before any packet. Hosts send no PFC frames; those are ignored.
    pub fn control(&mut self, control: Control) {
        if !matches!(control, Control::Pfc(_)) {
            self.port.push_control(control);
        }
    }

    /// Rate of the link, bit/s.
    #[inline]
    pub fn rate(&self) -> u64 {
        self.port.rate
    }

    /// Priorities that the switch has paused.
    #[inline]
    pub fn paused(&self) -> Priorities {
        self.port.paused()
    }
}

/// A host: an endpoint and its only port.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Host<E> {
    pub port: PortId,
    /// Time of its earliest deadline event, ns.
    pub wakes: u64,
    pub endpoint: E,
}

/// Address of a host.
pub fn address(host: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + host))
}

/// The host with an address.
#[inline]
pub fn host_of(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().wrapping_sub(0x0a00_0001),
        IpAddr::V6(_) => u32::MAX,
    }
}

/// A packet that was put on a host's link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Number of the packet.
    pub id: PacketId,
    /// Time at which its first bit leaves the host, ns.
    pub began: u64,
    /// Time at which its last bit has left the host, ns.
    pub left: u64,
    /// Delay by which it missed its arrival time at the other end, ns; 0 if it was in time.
    pub late: u64,
}

/// A fault applied to a packet on a host's link.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Mishap {
    /// Whether it is lost.
    pub lost: bool,
    /// Additional delay to the other end, which does not delay packets behind it, ns.
    pub later: u64,
}
