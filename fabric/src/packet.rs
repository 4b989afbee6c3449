//! Packets under way: parsed headers and a length. No byte of payload exists unless a run asks for it.

use irnic_transports::Path;
use irnic_transports::telemetry::Int;
use irnic_transports::wire::Headers;

/// Which packet, while it is under way.
pub type PacketId = u32;

/// No packet.
pub const NONE: PacketId = u32::MAX;

/// What links and switches look at.
#[derive(Copy, Clone, Debug)]
#[repr(align(32))]
pub struct Packet {
    /// Bytes on the wire, from the Ethernet header to the frame check sequence.
    pub wire: u32,
    /// Destination host.
    pub dst: u32,
    /// What ECMP hashes: addresses and UDP source port.
    pub entropy: u32,
    /// The next packet of the queue it waits in.
    next: PacketId,
    /// Port of the present switch by which it came.
    pub input: u16,
    /// 0 to 7.
    pub priority: u8,
    /// It has telemetry.
    telemetry: bool,
}

/// What only NICs look at, and marks for them.
#[derive(Clone, Debug)]
pub struct Content {
    /// BTH and extended headers.
    pub headers: Headers,
    /// IP and UDP fields; switches set the ECN bits.
    pub path: Path,
    /// Payload bytes.
    pub payload: u32,
    /// When its NIC sent it, ns.
    pub sent: u64,
    /// The frame, where runs carry bytes.
    pub frame: Option<Box<[u8]>>,
}

/// All packets under way.
#[derive(Debug, Default)]
pub struct Packets {
    packets: Vec<Packet>,
    contents: Vec<Content>,
    /// Of packets that have some, by their numbers, as far as there are such packets.
    telemetry: Vec<Int>,
    free: Vec<PacketId>,
}

impl Packets {
    /// Takes in a packet.
    #[inline]
    pub fn add(&mut self, packet: Packet, content: Content) -> PacketId {
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

    /// Forgets one.
    #[inline]
    pub fn remove(&mut self, id: PacketId) {
        self.free.push(id);
    }

    /// All, in no particular order. Walks over those that were removed, too.
    pub fn iter(&self) -> impl Iterator<Item = (&Packet, &Content)> {
        let mut live = vec![true; self.packets.len()];
        self.free.iter().for_each(|&id| live[id as usize] = false);
        let all = self.packets.iter().zip(&self.contents).zip(live);
        all.filter_map(|(packet, live)| live.then_some(packet))
    }

    /// Packets under way.
    pub fn len(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A packet as links and switches see it.
    #[inline]
    pub fn get(&self, id: PacketId) -> &Packet {
        &self.packets[id as usize]
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, id: PacketId) -> &mut Packet {
        &mut self.packets[id as usize]
    }

    /// What NICs see.
    #[inline]
    pub fn content(&self, id: PacketId) -> &Content {
        &self.contents[id as usize]
    }

    /// The same, to change.
    #[inline]
    pub fn content_mut(&mut self, id: PacketId) -> &mut Content {
        &mut self.contents[id as usize]
    }

    /// Gives it telemetry.
    pub fn set_telemetry(&mut self, id: PacketId, int: Int) {
        let place = id as usize;
        if self.telemetry.len() <= place {
            self.telemetry.resize(self.packets.len(), Int::EMPTY);
        }
        self.telemetry[place] = int;
        self.packets[place].telemetry = true;
    }

    /// Its telemetry, if it has any.
    #[inline]
    pub fn telemetry(&self, id: PacketId) -> Option<&Int> {
        self.get(id).telemetry.then(|| &self.telemetry[id as usize])
    }

    /// The same, to write on.
    #[inline]
    pub fn telemetry_mut(&mut self, id: PacketId) -> Option<&mut Int> {
        self.get(id).telemetry.then(|| &mut self.telemetry[id as usize])
    }

    /// Marks it as having met congestion, if its sender understands that (RFC 3168). Returns whether it did.
    #[inline]
    pub fn mark(&mut self, id: PacketId) -> bool {
        let class = &mut self.contents[id as usize].path.traffic_class;
        let capable = *class & 3 != 0;
        if capable {
            *class |= 3;
        }
        capable
    }
}

impl Packet {
    /// A packet about to leave its NIC.
    pub fn new(wire: u32, dst: u32, entropy: u32, priority: u8) -> Packet {
        Packet { wire, dst, entropy, next: NONE, input: 0, priority, telemetry: false }
    }
}

/// A queue of packets, first in, first out; the packets themselves are its links.
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

    /// Takes the first.
    #[inline]
    pub fn pop(&mut self, packets: &Packets) -> Option<PacketId> {
        let id = self.first()?;
        self.head = packets.get(id).next;
        Some(id)
    }

    /// All, in order.
    pub fn iter<'a>(&self, packets: &'a Packets) -> impl Iterator<Item = &'a Packet> + use<'a> {
        let first = self.first().map(|id| packets.get(id));
        std::iter::successors(first, |packet| (packet.next != NONE).then(|| packets.get(packet.next)))
    }

    /// The first.
    #[inline]
    pub fn first(&self) -> Option<PacketId> {
        (self.head != NONE).then_some(self.head)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }
}
