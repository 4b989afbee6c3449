//! The ends of a network: whatever sends and receives packets at a host's only link.

use std::net::{IpAddr, Ipv4Addr};

use super::{Content, Control, Packet, PacketId, Packets, Port, PortId, Tapped, Totals};
use crate::priorities::Priorities;

/// What is at the end of a host's link: a NIC with flows ([`crate::sim`]), a generator of packets
/// ([`crate::generator`]), a process.
///
/// The network never calls an endpoint while it is in a call. It asks for a packet when the link is free, so that what
/// goes next is the endpoint's choice, as in hardware. After each call but [`Self::poll_transmit`] it asks for the next
/// deadline and for a packet; whoever changes an endpoint from outside says so by [`super::Network::settle`].
pub trait Endpoint {
    /// What all endpoints of a network have in common, which the network keeps for them: `()` if nothing.
    type Shared;

    /// Whether there may be something to send, with these priorities `paused`.
    fn wants_tx(&mut self, paused: Priorities) -> bool;

    /// The link is free and [`Self::wants_tx`]: sends a packet by [`EndpointCtx::send`] and returns its number, or
    /// nothing.
    fn poll_transmit(&mut self, ctx: &mut EndpointCtx<'_, Self::Shared>) -> Option<PacketId>;

    /// A packet has arrived whole. It is gone from the network when the call returns.
    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, Self::Shared>);

    /// The time that [`Self::next_deadline`] named has come: `now`, ns.
    fn on_deadline(&mut self, now: u64);

    /// When [`Self::on_deadline`] is due, ns; [`u64::MAX`] for never. Too early does no harm.
    fn next_deadline(&self) -> u64;

    /// A control frame other than PFC's has arrived; PFC's are [`Self::wants_tx`]'s `paused`.
    fn on_control(&mut self, _control: Control, _ctx: &mut EndpointCtx<'_, Self::Shared>) {}

    /// A PFC frame has arrived, or the link has failed: the switch pauses these priorities from now on, and no others.
    /// For endpoints that have to tell somebody; the network asks those that only send with what is paused.
    fn on_pause(&mut self, _paused: Priorities, _ctx: &mut EndpointCtx<'_, Self::Shared>) {}

    /// Something begins to leave by a port that is watched ([`super::Network::tap`]).
    fn on_tap(_shared: &mut Self::Shared, _tapped: Tapped<'_>) {}

    /// In a network that is cut: the host of another part that is to know at the very moment of a packet's arrival here
    /// that it may have come, and a number by which it is known there. Asked of packets without payload, and only at
    /// hosts of which the network has been told that they await some.
    fn awaits(&self, _content: &Content) -> Option<(u32, u32)> {
        None
    }

    /// Fetches into the processor's cache what any call will need.
    #[inline]
    fn prefetch(&self) {}

    /// Fetches what [`Self::prefetch_receive`] with this content will look at.
    #[inline]
    fn prefetch_receiver(&self, _content: &Content) {}

    /// Fetches what [`Self::prefetch_transmit`] will look at.
    #[inline]
    fn prefetch_sender(&self) {}

    /// Fetches what receiving a packet with this content will need.
    #[inline]
    fn prefetch_receive(&self, _content: &Content) {}

    /// Fetches what sending the next packet will need.
    #[inline]
    fn prefetch_transmit(&self) {}
}

/// What an endpoint works with in one call.
#[derive(Debug)]
pub struct EndpointCtx<'a, S> {
    /// ns.
    pub now: u64,
    /// The host that the endpoint is.
    pub host: u32,
    /// What all endpoints share.
    pub shared: &'a mut S,
    /// All packets of the network.
    pub packets: &'a mut Packets,
    pub(super) port: &'a mut Port,
    pub(super) totals: &'a mut Totals,
}

impl<S> EndpointCtx<'_, S> {
    /// Sends a packet: to be called once in [`Endpoint::poll_transmit`], which returns the number.
    #[inline]
    pub fn send(&mut self, packet: Packet, content: Content) -> PacketId {
        self.totals.injected(self.now, &packet, content.payload);
        self.packets.add(packet, Content { sent: self.now, slack: packet.slack, ..content })
    }

    /// Sends a control frame to the switch, before any packet. Hosts send no PFC frames: those are ignored.
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
    /// When the earliest deadline event for it is, ns.
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
