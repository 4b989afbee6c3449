//! A station on an Ethernet, without I/O: which packets are for it, which it answers, and how it reaches others. Time
//! is passed in; packets are passed as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use irnic_transports::wire::ip::{
    self, Datagram, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_LEN, IpError, ipv4_checksum, parse_ip,
};
use irnic_transports::{Path, Time};

use super::arp::{self, Arp};
use super::ethernet::{self, MAX_HEADER, MIN_PACKET, Mac};
use super::nd::{self, Kind, Nd, NdError};
use super::neighbours::{Action, Lookup, Neighbours};

/// Hop limit of packets whose path sets none.
const HOP_LIMIT: u8 = 64;

/// Maximum number of groups that a station joins.
const MAX_GROUPS: usize = 256;

/// Longest control packet that a station sends.
const MAX_CONTROL: usize = MAX_HEADER + nd::MAX_LEN;
const _: () = assert!(MAX_CONTROL >= MIN_PACKET && nd::MAX_LEN >= arp::LEN);

/// The upper six bits of a traffic class.
const DSCP: u8 = 0xfc;

irnic_units::counters! {
    /// Received packets that were not for the station's NIC, and control packets sent. On a carrier that shows packets
    /// to other stations, these are counted as well.
    pub struct FrameCounters {
        /// Packets to another station, or sent by this one.
        rx_other_mac,
        /// Packets of another VLAN.
        rx_other_vlan,
        /// Packets to this station for an IP address or a group that is not its own.
        rx_other_address,
        /// Packets of other protocols, including UDP to ports other than 4791.
        rx_foreign,
        /// RoCEv2 packets over IPv4 with options.
        rx_options,
        /// IP fragments. RoCEv2 is never fragmented.
        rx_fragments,
        /// Packets with a wrong checksum, of the IPv4 header or of neighbour discovery.
        rx_checksum,
        /// Packets that are truncated, whose lengths disagree, or whose source cannot be a station's.
        rx_malformed,
        /// Requests for a neighbour's link-layer address sent, ARP and neighbour discovery.
        neighbour_requests,
        /// Replies sent to such requests of others.
        neighbour_replies,
        /// Neighbours that did not answer.
        neighbour_failures,
        /// Frames dropped because their neighbour's link-layer address was not known.
        tx_unresolved,
    }
}

/// Classification of a received packet.
#[derive(Debug)]
pub enum Arrival<'a> {
    /// A frame for the NIC.
    Frame {
        /// IP and UDP headers of the frame.
        datagram: Datagram<'a>,
        /// The DF flag; true over IPv6.
        dont_fragment: bool,
    },
    /// A neighbour's address, for which frames may be waiting.
    Neighbour(IpAddr, Mac),
    /// Nothing for the NIC.
    Nothing,
}

/// How to reach a destination.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Send to this station or group.
    Send(Mac),
    /// The neighbour has been asked.
    Pending,
    /// The neighbour does not answer, or the address cannot be a station's.
    Unreachable,
}

/// A station: addresses of its own, groups, neighbours.
#[derive(Debug)]
pub struct Link {
    mac: Mac,
    addresses: Vec<IpAddr>,
    /// VLAN identifier, 1 to 4094.
    vlan: Option<u16>,
    /// Traffic class, its lower two bits 0, of packets whose path sets no DSCP.
    class: u8,
    groups: Vec<IpAddr>,
    neighbours: Neighbours,
    counters: FrameCounters,
}

impl Link {
    /// Returns a station with these addresses and VLAN, 1 to 4094, if any. `dscp`, 0 to 63, applies to frames whose
    /// path sets none.
    pub fn new(mac: Mac, addresses: Vec<IpAddr>, vlan: Option<u16>, dscp: u8) -> Link {
        let counters = FrameCounters::default();
        Link { mac, addresses, vlan, class: dscp << 2, groups: Vec::new(), neighbours: Neighbours::new(), counters }
    }

    /// Returns the link-layer address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Returns the station's IP addresses.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Returns the station's counters.
    pub fn counters(&self) -> FrameCounters {
        self.counters
    }

    /// Counts frames that were dropped because their neighbour's address was not known.
    pub(super) fn count_unresolved(&mut self, frames: u64) {
        self.counters.tx_unresolved += frames;
    }

    /// Returns whether an address is the station's.
    #[inline]
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// Returns whether frames to a group are for the station.
    pub fn is_member(&self, group: IpAddr) -> bool {
        self.groups.contains(&group)
    }

    /// Joins a group. Returns false, and does nothing, if the station is in too many groups already.
    pub fn join(&mut self, group: IpAddr) -> bool {
        let joined = self.is_member(group);
        if !joined && self.groups.len() < MAX_GROUPS {
            self.groups.push(group);
            return true;
        }
        joined
    }

    /// Leaves a group.
    pub fn leave(&mut self, group: IpAddr) {
        self.groups.retain(|g| *g != group);
    }

    /// Returns the solicited-node groups of the station's addresses, which its carrier has to receive.
    pub fn solicited_groups(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().filter_map(|a| match a {
            IpAddr::V6(v6) => Some(nd::solicited_node(*v6).into()),
            IpAddr::V4(_) => None,
        })
    }

    /// Returns the station's first address of the family of `dst`.
    fn source_for(&self, dst: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|a| a.is_ipv4() == dst.is_ipv4())
    }

    /// Returns the path that a frame is sent on: with a source of the destination's family, the station's DSCP if the
    /// path sets none, and a hop limit.
    #[inline]
    pub fn wire_path(&self, path: &Path) -> Path {
        let mut wire = *path;
        if wire.src.is_unspecified() || wire.src.is_ipv4() != wire.dst.is_ipv4() {
            wire.src = self.source_for(wire.dst).unwrap_or(wire.src);
        }
        if wire.traffic_class & DSCP == 0 {
            wire.traffic_class |= self.class;
        }
        if wire.hop_limit == 0 {
            wire.hop_limit = HOP_LIMIT;
        }
        wire
    }

    /// Returns the bytes of all headers before a frame on this path.
    #[inline]
    pub fn headers_len(&self, path: &Path) -> usize {
        ethernet::header_len(self.vlan) + ip::headers_len(path)
    }

    /// Writes all headers before a frame of `frame_len` bytes on `wire`, a path that [`Link::wire_path`] returned. The
    /// tag's priority is the upper three bits of the traffic class. Returns their length.
    ///
    /// # Panics
    /// If `out` is shorter than [`Link::headers_len`].
    #[inline]
    pub fn emit(&self, wire: &Path, to: Mac, frame_len: usize, out: &mut [u8]) -> usize {
        let ethertype = if wire.dst.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
        let at = ethernet::emit(to, self.mac, self.vlan, wire.traffic_class >> 5, ethertype, out);
        at + ip::emit(wire, 0, frame_len, &mut out[at..])
    }

    /// Returns whether an address can be that of a station that this one reaches.
    pub fn can_have(&self, address: IpAddr) -> bool {
        is_station(address) && self.source_for(address).is_some()
    }

    /// Returns how to reach `dst`, and starts resolution if nothing is known of it. The second value is a neighbour
    /// evicted to make room: frames that wait for it must be dropped.
    #[inline]
    pub fn way(&mut self, now: Time, dst: IpAddr) -> (Way, Option<IpAddr>) {
        if dst.is_multicast() {
            return (Way::Send(Mac::of_group(dst)), None);
        }
        if !self.can_have(dst) {
            return (Way::Unreachable, None);
        }
        let (lookup, forgotten) = self.neighbours.lookup(now, dst);
        let way = match lookup {
            Lookup::Known(mac) => Way::Send(mac),
            Lookup::Pending => Way::Pending,
            Lookup::Unreachable => Way::Unreachable,
        };
        (way, forgotten)
    }

    /// Returns the time of the next work of [`Link::poll`].
    pub fn next_deadline(&self) -> Time {
        self.neighbours.next_deadline()
    }

    /// Passes due requests to `send`, as whole packets, and neighbours that have not answered to `give_up`.
    #[inline]
    pub fn poll(&mut self, now: Time, send: &mut dyn FnMut(&[u8]), give_up: &mut dyn FnMut(IpAddr)) {
        if now < self.neighbours.next_deadline() {
            return;
        }
        let Link { mac, addresses, vlan, counters, neighbours, .. } = self;
        let own = Own { mac: *mac, addresses, vlan: *vlan };
        neighbours.poll(now, &mut |action| match action {
            Action::Request(address, to) => {
                counters.neighbour_requests += 1;
                own.request(address, to, send);
            }
            Action::GiveUp(address) => {
                counters.neighbour_failures += 1;
                give_up(address);
            }
        });
    }

    /// Processes a packet, without its checksum, and passes the reply to it, if any, to `reply`. `tag` is the control
    /// information of a VLAN tag that the carrier has stripped.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        now: Time,
        bytes: &'a [u8],
        tag: Option<u16>,
        reply: &mut dyn FnMut(&[u8]),
    ) -> Arrival<'a> {
        let Some(packet) = ethernet::parse(bytes, tag) else {
            self.counters.rx_malformed += 1;
            return Arrival::Nothing;
        };
        if packet.src == self.mac || packet.dst != self.mac && !packet.dst.is_multicast() {
            self.counters.rx_other_mac += 1;
            return Arrival::Nothing;
        }
        if packet.vlan != self.vlan.unwrap_or(0) {
            self.counters.rx_other_vlan += 1;
            return Arrival::Nothing;
        }
        match packet.ethertype {
            ETHERTYPE_IPV4 => self.ip(&packet),
            ETHERTYPE_IPV6 if packet.payload.get(6) == Some(&nd::ICMPV6) => self.icmpv6(now, packet.payload, reply),
            ETHERTYPE_IPV6 => self.ip(&packet),
            ethernet::ARP => self.arp(now, packet.payload, reply),
            _ => {
                self.counters.rx_foreign += 1;
                Arrival::Nothing
            }
        }
    }

    #[inline]
    fn ip<'a>(&mut self, packet: &ethernet::Packet<'a>) -> Arrival<'a> {
        let bytes = packet.payload;
        let datagram = match parse_ip(bytes) {
            Ok(datagram) => datagram,
            Err(error) => {
                *self.count_of(error) += 1;
                return Arrival::Nothing;
            }
        };
        let header = datagram.headers;
        let v4 = packet.ethertype == ETHERTYPE_IPV4;
        let path = &datagram.path;
        let counter = if path.src.is_ipv4() != v4 || !is_station(path.src) || self.is_own(path.src) {
            &mut self.counters.rx_malformed
        } else if v4 && ipv4_checksum(&header[..IPV4_LEN]) != 0 {
            &mut self.counters.rx_checksum
        } else if !self.is_for_us(packet.dst, path.dst) {
            &mut self.counters.rx_other_address
        } else {
            return Arrival::Frame { datagram, dont_fragment: !v4 || header[6] & 0x40 != 0 };
        };
        *counter += 1;
        Arrival::Nothing
    }

    /// Returns whether a packet to `mac` and `address` is for the station: one of its addresses, or a group that it has
    /// joined at the group's link-layer address.
    #[inline]
    fn is_for_us(&self, mac: Mac, address: IpAddr) -> bool {
        if address.is_multicast() {
            self.is_member(address) && (mac == Mac::of_group(address) || mac == self.mac)
        } else {
            self.is_own(address) && mac == self.mac
        }
    }

    fn count_of(&mut self, error: IpError) -> &mut u64 {
        let counters = &mut self.counters;
        match error {
            IpError::HeaderLength(_) => &mut counters.rx_options,
            IpError::Fragment { .. } => &mut counters.rx_fragments,
            error if error.is_foreign() => &mut counters.rx_foreign,
            _ => &mut counters.rx_malformed,
        }
    }

    #[cold]
    fn arp(&mut self, now: Time, bytes: &[u8], reply: &mut dyn FnMut(&[u8])) -> Arrival<'static> {
        let Some(arp) = Arp::parse(bytes) else {
            self.counters.rx_malformed += 1;
            return Arrival::Nothing;
        };
        let sender = IpAddr::V4(arp.sender);
        let is_probe = arp.sender.is_unspecified();
        if !arp.sender_mac.is_unicast() || !is_probe && !is_station(sender) || self.is_own(sender) {
            self.counters.rx_malformed += 1;
            return Arrival::Nothing;
        }
        let to_us = self.is_own(arp.target.into());
        if arp.request && to_us {
            let Arp { sender_mac, sender, target, .. } = arp;
            let answer =
                Arp { request: false, sender_mac: self.mac, sender: target, target_mac: sender_mac, target: sender };
            self.counters.neighbour_replies += 1;
            self.own().send(sender_mac, ethernet::ARP, &answer.emit(), reply);
        }
        let waited = !is_probe && self.neighbours.learn(now, sender, arp.sender_mac, arp.request && to_us, true);
        if waited { Arrival::Neighbour(sender, arp.sender_mac) } else { Arrival::Nothing }
    }

    #[cold]
    fn icmpv6(&mut self, now: Time, bytes: &[u8], reply: &mut dyn FnMut(&[u8])) -> Arrival<'static> {
        let nd = match Nd::parse(bytes) {
            Ok(nd) if !self.is_own(nd.src.into()) => nd,
            error => {
                let counters = &mut self.counters;
                *match error {
                    Err(NdError::Other) => &mut counters.rx_foreign,
                    Err(NdError::Checksum) => &mut counters.rx_checksum,
                    Err(NdError::Malformed) | Ok(_) => &mut counters.rx_malformed,
                } += 1;
                return Arrival::Nothing;
            }
        };
        let target = IpAddr::V6(nd.target);
        let (neighbour, new, replaces) = match nd.kind {
            Kind::Solicitation if !self.is_own(target) => return Arrival::Nothing,
            Kind::Solicitation => {
                self.advertise(&nd, reply);
                (nd.src, true, true)
            }
            // Another station claims this station's address.
            Kind::Advertisement { .. } if self.is_own(target) => return Arrival::Nothing,
            Kind::Advertisement { replaces, .. } => (nd.target, false, replaces),
        };
        match nd.mac {
            Some(mac) if self.neighbours.learn(now, neighbour.into(), mac, new, replaces) => {
                Arrival::Neighbour(neighbour.into(), mac)
            }
            _ => Arrival::Nothing,
        }
    }

    /// Answers a solicitation (RFC 4861 7.2.4). One without a sender is a duplicate address probe, answered to all
    /// nodes.
    fn advertise(&mut self, solicitation: &Nd, reply: &mut dyn FnMut(&[u8])) {
        let probe = solicitation.src.is_unspecified();
        let to = match solicitation.mac {
            Some(mac) => mac,
            None if probe => Mac::of_group(nd::ALL_NODES.into()),
            // Without the sender's link-layer address, the answer would have to wait for resolution.
            None => return,
        };
        let answer = Nd {
            src: solicitation.target,
            dst: if probe { nd::ALL_NODES } else { solicitation.src },
            target: solicitation.target,
            mac: Some(self.mac),
            kind: Kind::Advertisement { solicited: !probe, replaces: true },
        };
        let mut packet = [0; nd::MAX_LEN];
        let len = answer.emit(&mut packet);
        self.counters.neighbour_replies += 1;
        self.own().send(to, ETHERTYPE_IPV6, &packet[..len], reply);
    }

    fn own(&self) -> Own<'_> {
        Own { mac: self.mac, addresses: &self.addresses, vlan: self.vlan }
    }
}

/// The station's own addresses, for control packets.
struct Own<'a> {
    mac: Mac,
    addresses: &'a [IpAddr],
    vlan: Option<u16>,
}

impl Own<'_> {
    /// Asks for the owner of an address: all stations, or the one that had it.
    fn request(&self, address: IpAddr, to: Option<Mac>, send: &mut dyn FnMut(&[u8])) {
        match address {
            IpAddr::V4(target) => {
                let own = self.addresses.iter().find_map(|a| if let IpAddr::V4(v4) = a { Some(*v4) } else { None });
                let sender = own.unwrap_or(Ipv4Addr::UNSPECIFIED);
                let target_mac = to.unwrap_or_default();
                let request = Arp { request: true, sender_mac: self.mac, sender, target_mac, target };
                self.send(to.unwrap_or(Mac::BROADCAST), ethernet::ARP, &request.emit(), send);
            }
            IpAddr::V6(target) => {
                let group = nd::solicited_node(target);
                let dst = if to.is_some() { target } else { group };
                let src = self.source_v6(target);
                let solicitation = Nd { src, dst, target, mac: Some(self.mac), kind: Kind::Solicitation };
                let mut packet = [0; nd::MAX_LEN];
                let len = solicitation.emit(&mut packet);
                self.send(to.unwrap_or(Mac::of_group(group.into())), ETHERTYPE_IPV6, &packet[..len], send);
            }
        }
    }

    /// Returns the source address of a request for `target`: a link-local one if `target` is and there is one.
    fn source_v6(&self, target: Ipv6Addr) -> Ipv6Addr {
        let own = || self.addresses.iter().filter_map(|a| if let IpAddr::V6(v6) = a { Some(*v6) } else { None });
        let alike = |a: &Ipv6Addr| a.is_unicast_link_local() == target.is_unicast_link_local();
        own().find(alike).or_else(|| own().next()).unwrap_or(Ipv6Addr::UNSPECIFIED)
    }

    /// Sends a message, padded to the minimum packet length.
    fn send(&self, to: Mac, ethertype: u16, message: &[u8], send: &mut dyn FnMut(&[u8])) {
        let mut packet = [0; MAX_CONTROL];
        let at = ethernet::emit(to, self.mac, self.vlan, 0, ethertype, &mut packet);
        packet[at..at + message.len()].copy_from_slice(message);
        send(&packet[..(at + message.len()).max(MIN_PACKET)]);
    }
}

/// Returns whether an address can be that of one station.
fn is_station(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && address != IpAddr::V4(Ipv4Addr::BROADCAST)
}

#[cfg(all(test, not(loom)))]
mod tests;
