//! Packets in flight: parsed headers and a length. Payload bytes exist only if a run asks for them.

use irnic_transports::telemetry::Int;
use irnic_transports::wire::{Headers, ICRC_LEN, RateNotice};
use irnic_transports::{Colour, Path, Sideband};

use crate::prefetch::fetch_all;

/// Number of a packet while it is in flight.
pub type PacketId = u32;

/// The number of no packet.
pub const NONE: PacketId = u32::MAX;

/// The part of a packet that links and switches use: half a cache line.
#[derive(Copy, Clone, Debug)]
#[repr(align(32))]
pub struct Packet {
    /// Remaining time that the packet may wait in queues and still be on time, ns (LSTF). Switches that schedule by it
    /// subtract its waiting time.
    pub slack: i64,
    /// Bytes on the wire, from the Ethernet header to the frame check sequence. Switches change it by
    /// [`crate::switch::SwitchCtx::trim`] and [`crate::switch::SwitchCtx::grow`] only, which keep the totals
    /// consistent.
    pub wire: u32,
    /// Destination host.
    pub dst: u32,
    /// Input of the ECMP hash: addresses and UDP source port.
    pub entropy: u32,
    /// The next packet in its queue.
    next: PacketId,
    /// Number of the queue pair that sent the packet, 0 if none did. Together with the sender's address it identifies
    /// the flow ([`Packets::flow`]).
    pub src_qp: u32,
    /// Port of the current switch by which the packet arrived, whose buffer it is charged to.
    pub input: u16,
    /// 0 to 7.
    pub priority: u8,
    /// Bits: telemetry, trimmed, red, returned, control, announced, notice, escaping.
    flags: u8,
}

const _: () = assert!(size_of::<Packet>() == 32);

const TELEMETRY: u8 = 1;
const TRIMMED: u8 = 2;
const RED: u8 = 4;
const RETURNED: u8 = 8;
const CONTROL: u8 = 16;
const ANNOUNCED: u8 = 32;
const NOTICE: u8 = 64;
const ESCAPING: u8 = 128;

/// The part of a packet that only endpoints use.
#[derive(Clone, Debug)]
pub struct Content {
    /// BTH and extended headers.
    pub headers: Headers,
    /// IP and UDP fields; switches set the ECN bits.
    pub path: Path,
    /// Payload bytes.
    pub payload: u32,
    /// Switches that the packet has yet to pass by their escape queues; 0 if it does not escape.
    pub hops: u16,
    /// Time at which the packet entered the network, ns. Set by the network.
    pub sent: u64,
    /// Slack with which the packet entered the network, ns. Set by the network.
    pub slack: i64,
    /// The frame from the BTH to the ICRC, if runs carry bytes; of a trimmed packet, what is left of it.
    pub frame: Option<Box<[u8]>>,
}

impl Content {
    /// The content of a packet without a frame.
    pub fn new(headers: Headers, path: Path, payload: u32) -> Content {
        Content { headers, path, payload, hops: 0, sent: 0, slack: 0, frame: None }
    }
}

/// All packets in flight, in a slab.
#[derive(Debug, Default)]
pub struct Packets {
    packets: Vec<Packet>,
    contents: Vec<Content>,
    /// Telemetry by packet number, sized for the packets that have some.
    telemetry: Vec<Int>,
    /// Contents of notices by packet number, sized for the packets that are notices.
    notices: Vec<RateNotice>,
    free: Vec<PacketId>,
}

impl Packets {
    /// Adds a packet.
    #[inline]
    pub(crate) fn add(&mut self, mut packet: Packet, content: Content) -> PacketId {
        if content.payload == 0 {
            packet.flags |= CONTROL;
        }
        match self.free.pop() {
            Some(id) => {
                self.packets[id as usize] = packet;
                self.contents[id as usize] = content;
                id
            }
            None => {
                self.packets.push(packet);
                self.contents.push(content);
                self.packets.len() as PacketId - 1
            }
        }
    }

    /// Prefetches the slot of the packet that will be added after `n` others.
    #[inline]
    pub(crate) fn fetch_free(&self, n: usize) {
        if let Some(&id) = self.free.iter().nth_back(n) {
            fetch_all(&self.packets[id as usize]);
            fetch_all(&self.contents[id as usize]);
        }
    }

    /// The link from a packet to the next, for queues kept elsewhere.
    #[inline]
    pub(crate) fn link(&self, id: PacketId) -> PacketId {
        self.packets[id as usize].next
    }

    /// Sets the link from a packet to another.
    #[inline]
    pub(crate) fn set_link(&mut self, id: PacketId, next: PacketId) {
        self.packets[id as usize].next = next;
    }

    /// Removes a packet.
    #[inline]
    pub(crate) fn remove(&mut self, id: PacketId) {
        self.free.push(id);
    }

    /// All packets, in no particular order. Also iterates over slots of removed packets.
    pub fn iter(&self) -> impl Iterator<Item = (&Packet, &Content)> {
        let mut live = vec![true; self.packets.len()];
        self.free.iter().for_each(|&id| live[id as usize] = false);
        let all = self.packets.iter().zip(&self.contents).zip(live);
        all.filter_map(|(packet, live)| live.then_some(packet))
    }

    /// Number of packets in flight.
    pub fn len(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    /// Whether no packet is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the part of a packet for links and switches.
    #[inline]
    pub fn get(&self, id: PacketId) -> &Packet {
        &self.packets[id as usize]
    }

    /// Returns the part of a packet for links and switches, mutably.
    #[inline]
    pub fn get_mut(&mut self, id: PacketId) -> &mut Packet {
        &mut self.packets[id as usize]
    }

    /// Returns the part of a packet for endpoints.
    #[inline]
    pub fn content(&self, id: PacketId) -> &Content {
        &self.contents[id as usize]
    }

    /// Returns the part of a packet for endpoints, mutably.
    #[inline]
    pub fn content_mut(&mut self, id: PacketId) -> &mut Content {
        &mut self.contents[id as usize]
    }

    /// Identifies the flow of a packet: the sender's address and the number of its queue pair there.
    pub fn flow(&self, id: PacketId) -> (std::net::IpAddr, u32) {
        (self.content(id).path.src, self.get(id).src_qp)
    }

    /// Attaches telemetry to a packet.
    pub fn set_telemetry(&mut self, id: PacketId, int: Int) {
        let place = id as usize;
        if self.telemetry.len() <= place {
            self.telemetry.resize(self.packets.len(), Int::EMPTY);
        }
        self.telemetry[place] = int;
        self.packets[place].flags |= TELEMETRY;
    }

    /// Returns a packet's telemetry, if it has any.
    #[inline]
    pub fn telemetry(&self, id: PacketId) -> Option<&Int> {
        (self.get(id).flags & TELEMETRY != 0).then(|| &self.telemetry[id as usize])
    }

    /// Returns a packet's telemetry, if it has any, mutably.
    #[inline]
    pub fn telemetry_mut(&mut self, id: PacketId) -> Option<&mut Int> {
        (self.get(id).flags & TELEMETRY != 0).then(|| &mut self.telemetry[id as usize])
    }

    /// Marks a packet as a notice.
    pub(crate) fn set_notice(&mut self, id: PacketId, notice: RateNotice) {
        let place = id as usize;
        if self.notices.len() <= place {
            self.notices.resize(self.packets.len(), notice);
        }
        self.notices[place] = notice;
        self.packets[place].flags |= NOTICE;
    }

    /// Returns the content of a switch's notice, which is no RoCEv2 packet.
    #[inline]
    pub fn notice(&self, id: PacketId) -> Option<&RateNotice> {
        self.get(id).is_notice().then(|| &self.notices[id as usize])
    }

    /// Returns the metadata that accompanies a packet's bytes.
    #[inline]
    pub fn sideband(&self, id: PacketId) -> Sideband<'_> {
        let packet = self.get(id);
        Sideband {
            telemetry: self.telemetry(id),
            slack: packet.slack,
            waited: self.content(id).slack - packet.slack,
            src_qp: packet.src_qp,
            colour: packet.colour(),
            trimmed: packet.is_trimmed(),
            returned: packet.is_returned(),
        }
    }

    /// Marks a packet as having met congestion, if it is ECN-capable (RFC 3168). Returns whether it is.
    #[inline]
    pub fn mark(&mut self, id: PacketId) -> bool {
        let class = &mut self.contents[id as usize].path.traffic_class;
        let capable = *class & 3 != 0;
        if capable {
            *class |= 3;
        }
        capable
    }

    /// Trims the payload. Returns the bytes cut.
    pub(crate) fn trim(&mut self, id: PacketId) -> u32 {
        let packet = &mut self.packets[id as usize];
        let content = &mut self.contents[id as usize];
        let cut = std::mem::take(&mut content.payload).min(packet.wire);
        packet.wire -= cut;
        packet.flags |= TRIMMED | CONTROL;
        if let Some(frame) = content.frame.take() {
            let headers = content.headers.frame_len(0) - ICRC_LEN;
            content.frame = Some(frame[..headers.min(frame.len())].into());
        }
        cut
    }
}

impl Packets {
    /// Turns a packet back to its sender by swapping addresses.
    pub(crate) fn turn_back(&mut self, id: PacketId) {
        let path = &mut self.contents[id as usize].path;
        (path.src, path.dst) = (path.dst, path.src);
        let packet = &mut self.packets[id as usize];
        packet.dst = super::host_of(path.dst);
        packet.flags |= RETURNED;
        // The rest of a routing label means little; any number will do.
        packet.entropy = super::mix(packet.entropy ^ u32::from(path.udp_src));
    }
}

impl Packet {
    /// A packet about to enter the network: bytes on the wire, destination host, input of the ECMP hash, priority (0 to
    /// 7).
    pub fn new(wire: u32, dst: u32, entropy: u32, priority: u8) -> Packet {
        Packet { slack: 0, wire, dst, entropy, next: NONE, src_qp: 0, input: 0, priority, flags: 0 }
    }

    /// Whether another part of the network is notified when the packet reaches its host: see
    /// [`super::Endpoint::awaits`].
    pub(crate) fn is_announced(&self) -> bool {
        self.flags & ANNOUNCED != 0
    }

    pub(crate) fn set_announced(&mut self) {
        self.flags |= ANNOUNCED;
    }

    /// Whether it has hops left by escape queues ([`Content::hops`]).
    #[inline]
    pub(crate) fn is_escaping(&self) -> bool {
        self.flags & ESCAPING != 0
    }

    pub(crate) fn set_escaping(&mut self, escaping: bool) {
        self.flags = self.flags & !ESCAPING | if escaping { ESCAPING } else { 0 };
    }

    /// Whether it is a switch's notice ([`Packets::notice`]).
    #[inline]
    pub(crate) fn is_notice(&self) -> bool {
        self.flags & NOTICE != 0
    }

    /// Whether switches write telemetry.
    pub(crate) fn has_telemetry(&self) -> bool {
        self.flags & TELEMETRY != 0
    }

    /// Whether a switch has trimmed the payload.
    #[inline]
    pub fn is_trimmed(&self) -> bool {
        self.flags & TRIMMED != 0
    }

    /// Whether there is no payload: an acknowledgement, a read request, a trimmed packet.
    #[inline]
    pub fn is_control(&self) -> bool {
        self.flags & CONTROL != 0
    }

    /// Whether a switch has returned the packet to its sender.
    #[inline]
    pub fn is_returned(&self) -> bool {
        self.flags & RETURNED != 0
    }

    /// Sets slack, colour and sending queue pair from a sideband, all of it but telemetry ([`Packets::set_telemetry`]).
    #[inline]
    #[must_use]
    pub fn with_sideband(mut self, sideband: &Sideband<'_>) -> Packet {
        (self.slack, self.src_qp) = (sideband.slack, sideband.src_qp);
        self.set_colour(sideband.colour);
        self
    }

    /// Drop precedence.
    #[inline]
    pub fn colour(&self) -> Colour {
        if self.flags & RED == 0 { Colour::Green } else { Colour::Red }
    }

    /// Sets the drop precedence.
    #[inline]
    pub fn set_colour(&mut self, colour: Colour) {
        self.flags = self.flags & !RED | if colour == Colour::Red { RED } else { 0 };
    }
}

/// A FIFO queue of packets, linked through the packets themselves.
#[derive(Copy, Clone, Debug)]
pub struct Fifo {
    head: PacketId,
    tail: PacketId,
}

impl Default for Fifo {
    fn default() -> Self {
        Fifo { head: NONE, tail: NONE }
    }
}

impl Fifo {
    /// Appends a packet.
    #[inline]
    pub fn push(&mut self, packets: &mut Packets, id: PacketId) {
        packets.get_mut(id).next = NONE;
        if self.head == NONE {
            self.head = id;
        } else {
            packets.get_mut(self.tail).next = id;
        }
        self.tail = id;
    }

    /// Takes the first packet.
    #[inline]
    pub fn pop(&mut self, packets: &Packets) -> Option<PacketId> {
        let id = self.first()?;
        self.head = packets.get(id).next;
        Some(id)
    }

    /// Takes the last packet. Linear; for short queues.
    pub fn pop_back(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let last = self.tail;
        self.extract(packets, |_, id| id == last)
    }

    /// Takes the first packet that is `wanted` out of the queue. Linear in its position.
    pub fn extract(
        &mut self,
        packets: &mut Packets,
        mut wanted: impl FnMut(&Packets, PacketId) -> bool,
    ) -> Option<PacketId> {
        let (mut before, mut at) = (NONE, self.first()?);
        while !wanted(packets, at) {
            (before, at) = (at, packets.get(at).next);
            if at == NONE {
                return None;
            }
        }
        let next = packets.get(at).next;
        if before == NONE {
            self.head = next;
        } else {
            packets.get_mut(before).next = next;
        }
        if next == NONE {
            self.tail = before;
        }
        Some(at)
    }

    /// All packets, in order.
    pub fn iter<'a>(&self, packets: &'a Packets) -> impl Iterator<Item = &'a Packet> + use<'a> {
        let first = self.first().map(|id| packets.get(id));
        std::iter::successors(first, |packet| (packet.next != NONE).then(|| packets.get(packet.next)))
    }

    /// The first packet.
    #[inline]
    pub fn first(&self) -> Option<PacketId> {
        (self.head != NONE).then_some(self.head)
    }

    /// Whether the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use irnic_transports::Psn;
    use irnic_transports::wire::{Bth, Opcode};

    use super::*;

    fn content() -> Content {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let path = Path { src: address, dst: address, udp_src: 0, traffic_class: 0, hop_limit: 64 };
        Content::new(Headers::new(Bth::new(Opcode::UdSendOnly, 0, Psn::new(0))), path, 10)
    }

    #[test]
    fn packets_leave_a_queue_at_either_end_and_in_the_middle() {
        let mut packets = Packets::default();
        let mut queue = Fifo::default();
        let ids: Vec<PacketId> = (0..5).map(|n| packets.add(Packet::new(100 + n, 0, 0, 0), content())).collect();
        ids.iter().for_each(|id| queue.push(&mut packets, *id));
        assert_eq!(queue.extract(&mut packets, |p, id| p.get(id).wire == 102), Some(ids[2]));
        assert_eq!(queue.extract(&mut packets, |p, id| p.get(id).wire == 102), None);
        assert_eq!(queue.pop_back(&mut packets), Some(ids[4]));
        queue.push(&mut packets, ids[2]);
        let order: Vec<u32> = queue.iter(&packets).map(|p| p.wire).collect();
        assert_eq!(order, [100, 101, 103, 102]);
        assert_eq!(queue.extract(&mut packets, |_, id| id == ids[0]), Some(ids[0]));
        assert_eq!([(); 4].map(|()| queue.pop(&packets)), [Some(ids[1]), Some(ids[3]), Some(ids[2]), None]);
        assert_eq!((queue.pop_back(&mut packets), queue.is_empty()), (None, true));
    }

    #[test]
    fn what_is_trimmed_is_its_headers() {
        let mut packets = Packets::default();
        let frame = vec![7; content().headers.frame_len(10)].into_boxed_slice();
        let id = packets.add(Packet::new(100, 0, 0, 0), Content { frame: Some(frame), ..content() });
        assert_eq!((packets.trim(id), packets.get(id).wire, packets.content(id).payload), (10, 90, 0));
        assert!(packets.get(id).is_trimmed() && packets.get(id).colour() == Colour::Green);
        let left = packets.content(id).frame.as_ref().map(|frame| frame.len());
        assert_eq!(left, Some(content().headers.frame_len(0) - ICRC_LEN));
        assert_eq!(packets.trim(id), 0);
    }
}
