//! Per-queue-pair state of a hardware NIC, field by field, and its size in memory here.
//!
//! Each struct of a reliable connection ends with a table of its fields, made by `footprint!`. The table destructures
//! the struct, so a field without an entry does not compile. An entry gives the bits that a NIC would hold on chip, or
//! the reason why there are none: the value is the same for all queue pairs, derived from others, kept in host memory,
//! or only statistics for users.
//!
//! Sizes are those that the values need, not those of Rust's types: [`width`] has them.

/// Sizes of values, in bits.
pub mod width {
    /// Sequence numbers of packets, messages and work requests (IBA 9.7.2).
    pub const PSN: u64 = 24;
    /// Times and durations: ns, wrapping after 4.3 s.
    pub const TIME: u64 = 32;
    /// Indices of work requests.
    pub const INDEX: u64 = 16;
    /// Packet counts within a window of at most 65,536.
    pub const COUNT: u64 = 17;
    /// Rates: bit/s, up to 1 Tbit/s.
    pub const RATE: u64 = 40;
    /// Fixed-point numbers that software keeps in floating point.
    pub const FIXED: u64 = 32;
    /// Handles of other objects of the NIC: completion queues, protection domains.
    pub const HANDLE: u64 = 24;
    /// Keys of memory regions.
    pub const KEY: u64 = 32;
    /// Addresses of memory.
    pub const ADDRESS: u64 = 64;
    /// Message lengths.
    pub const LENGTH: u64 = 32;
}

/// The owner of a field, which has one of it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Per {
    /// A queue pair.
    QueuePair,
    /// A request WQE.
    SendWqe,
    /// A receive WQE.
    RecvWqe,
    /// A NIC: parameters that all queue pairs share.
    Nic,
}

/// The dissertation's list of IRN's additional state (§4.5.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// "The packet sequence to be retransmitted", of requester and responder.
    Retransmit,
    /// "The recovery sequence", of both.
    Recovery,
    /// "Various flags", of both.
    Flags,
    /// A retransmission timer: RoCE has the requester's, IRN adds the responder's for READs.
    Deadline,
    /// "A variable to track in-progress Read requests in the Read WQE buffer".
    ReadProgress,
    /// Bitmaps of packets received: of requests at the responder, of READ responses at the requester.
    Received,
    /// The bitmaps of selective acknowledgements, one at each end.
    Sacked,
    /// "Sequence numbers for certain types of WQEs".
    WqeNumber,
    /// "The BDP cap value, the RTO_low value, and N for RTO_low".
    Shared,
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its path from the queue pair: `service.requester.assigned`.
    pub name: String,
    /// The owner.
    pub per: Per,
    /// Bits on the chip; 0 if `left` gives the reason.
    pub bits: u64,
    /// The dissertation's item that it belongs to, if any.
    pub item: Option<Item>,
    /// Reason why it is not on the chip.
    pub left: Option<&'static str>,
}

/// Memory used by the software, in bytes, once everything that grows on demand has grown.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// A queue pair, without its work requests.
    pub queue_pair: usize,
    /// Each entry of its send queue.
    pub send_wqe: usize,
    /// Each entry of its receive queue.
    pub recv_wqe: usize,
}

/// A queue pair's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Every field, in the order of the structs.
    pub fields: Vec<Field>,
    /// Its memory here.
    pub memory: Memory,
}

impl Footprint {
    /// Returns the total bits on the chip of this owner's fields.
    pub fn bits(&self, per: Per) -> u64 {
        self.fields.iter().filter(|field| field.per == per).map(|field| field.bits).sum()
    }

    /// Returns the bits of a dissertation item, of fields whose names contain `within`.
    pub fn item(&self, item: Item, within: &str) -> u64 {
        let counts = |field: &&Field| field.item == Some(item) && field.name.contains(within);
        self.fields.iter().filter(counts).map(|field| field.bits).sum()
    }
}

/// What fields depend on: the transport, and attributes of the queue pair.
pub(crate) struct Setup {
    /// Both the IRN extension and plain RoCE may be in use.
    pub(crate) irn: bool,
    pub(crate) plain: bool,
    /// Payload bytes of a full packet.
    pub(crate) mtu: u64,
    /// READs and atomics that may be outstanding as a requester, and as a responder.
    pub(crate) reads: u64,
    pub(crate) answers: u64,
    /// Packets in flight.
    pub(crate) cap: u32,
    /// Number of priorities below the stream's.
    pub(crate) low_levels: u64,
    /// Whether anything depends on measured round trips.
    pub(crate) measures: bool,
    /// Whether there are tail loss probes, send times as evidence of losses, echoes of marks, fences between requests
    /// to overlapping memory, and a priority of acknowledgements.
    pub(crate) probes: bool,
    pub(crate) evidence: bool,
    pub(crate) echoes: bool,
    pub(crate) fences: bool,
    pub(crate) ack_priority: bool,
    /// Whether there is congestion control, and whether it takes congestion notifications or telemetry.
    pub(crate) controlled: bool,
    pub(crate) cnps: bool,
    pub(crate) telemetry: bool,
    /// The sender of IRN's responses.
    pub(crate) responses: Box<dyn Parts>,
}

/// A type with a table of fields.
pub(crate) trait Parts {
    fn list(&self, at: &Setup, ledger: &mut Ledger);
}

/// A table's entry for a field.
pub(crate) struct Entry<'a> {
    what: What<'a>,
    item: Option<Item>,
    heap: usize,
}

enum What<'a> {
    Bits(u64),
    Left(&'static str),
    Part(&'a dyn Parts),
    Each(Per, Box<dyn Parts>, usize),
    Times(u64, Box<dyn Parts>),
}

impl<'a> Entry<'a> {
    fn new(what: What<'a>) -> Entry<'a> {
        Entry { what, item: None, heap: 0 }
    }

    /// Assigns the entry and everything in it to a dissertation item.
    pub(crate) fn is(self, item: Item) -> Entry<'a> {
        Entry { item: Some(item), ..self }
    }

    /// Adds heap memory of `bytes` to the struct's own.
    pub(crate) fn heap(self, bytes: usize) -> Entry<'a> {
        Entry { heap: bytes, ..self }
    }

    /// Includes the entry if `there`, otherwise leaves it out for the reason `why`.
    pub(crate) fn when(self, there: bool, why: &'static str) -> Entry<'a> {
        if there { self } else { left(why).heap(self.heap) }
    }
}

/// An entry of this many bits on the chip.
pub(crate) fn bits<'a>(bits: u64) -> Entry<'a> {
    Entry::new(What::Bits(bits))
}

/// An entry of one bit.
pub(crate) fn flag<'a>() -> Entry<'a> {
    bits(1)
}

/// An entry for a sequence number.
pub(crate) fn sequence<'a>() -> Entry<'a> {
    bits(width::PSN)
}

/// An entry for a time or a duration.
pub(crate) fn instant<'a>() -> Entry<'a> {
    bits(width::TIME)
}

/// An entry for an optional value of `inner` bits.
pub(crate) fn maybe<'a>(inner: u64) -> Entry<'a> {
    bits(1 + inner)
}

/// An entry with nothing on the chip, and the reason.
pub(crate) fn left<'a>(why: &'static str) -> Entry<'a> {
    Entry::new(What::Left(why))
}

/// An entry for a struct with a table of its own.
pub(crate) fn part(part: &dyn Parts) -> Entry<'_> {
    Entry::new(What::Part(part))
}

/// An entry for a work request with a table of its own, which takes `bytes` in software.
pub(crate) fn each<'a>(per: Per, part: impl Parts + 'static, bytes: usize) -> Entry<'a> {
    Entry::new(What::Each(per, Box::new(part), bytes))
}

/// An entry for `count` copies of a struct with a table of its own, as one field.
pub(crate) fn times<'a>(count: u64, part: impl Parts + 'static) -> Entry<'a> {
    Entry::new(What::Times(count, Box::new(part)))
}

/// Reasons why fields are not on the chip.
pub(crate) mod why {
    pub(crate) const STATISTICS: &str = "statistics";
    pub(crate) const SHARED: &str = "the same for all queue pairs of a transport";
    pub(crate) const FOLLOWS: &str = "follows from other fields";
    pub(crate) const SPEED: &str = "makes software faster";
    pub(crate) const HOST: &str = "in host memory";
    pub(crate) const IRN: &str = "of the IRN format";
    pub(crate) const PLAIN: &str = "of plain RoCE";
    pub(crate) const OFF: &str = "of what this transport does not use";
    pub(crate) const ORDER: &str = "of what takes packets in any order";
    pub(crate) const PORT: &str = "answers wait in the port's queue";
    pub(crate) const MODEL: &str = "models a delay that a NIC would have";
}

/// The list of fields being built.
pub(crate) struct Ledger {
    path: String,
    per: Per,
    item: Option<Item>,
    footprint: Footprint,
}

impl Ledger {
    fn new() -> Ledger {
        Ledger { path: String::new(), per: Per::QueuePair, item: None, footprint: Footprint::default() }
    }

    pub(crate) fn enter(&mut self, at: &Setup, name: &str, entry: Entry<'_>) {
        let (len, item) = (self.path.len(), self.item);
        if len > 0 {
            self.path.push('.');
        }
        self.path += name;
        self.item = entry.item.or(item);
        self.footprint.memory.queue_pair += entry.heap;
        match entry.what {
            What::Bits(bits) => self.add(bits, None),
            What::Left(why) => self.add(0, Some(why)),
            What::Times(count, part) => {
                let mut one = Ledger::new();
                part.list(at, &mut one);
                self.add(count * one.footprint.fields.iter().map(|field| field.bits).sum::<u64>(), None);
            }
            What::Part(part) => part.list(at, self),
            What::Each(per, part, bytes) => {
                let outer = std::mem::replace(&mut self.per, per);
                match per {
                    Per::SendWqe => self.footprint.memory.send_wqe += bytes,
                    Per::RecvWqe => self.footprint.memory.recv_wqe += bytes,
                    Per::QueuePair | Per::Nic => {}
                }
                part.list(at, self);
                self.per = outer;
            }
        }
        self.path.truncate(len);
        self.item = item;
    }

    /// [`Self::enter`] beside the part that is being listed, under the same struct.
    pub(crate) fn enter_sibling(&mut self, at: &Setup, name: &str, entry: Entry<'_>) {
        let own = self.path.split_off(self.path.rfind('.').unwrap_or(0));
        self.enter(at, name, entry);
        self.path += &own;
    }

    fn add(&mut self, bits: u64, left: Option<&'static str>) {
        let left = left.or((bits == 0).then_some(why::OFF));
        let item = self.item.filter(|_| left.is_none());
        self.footprint.fields.push(Field { name: self.path.clone(), per: self.per, bits, item, left });
    }
}

/// Lists the fields of `parts`, whose own size is `bytes`, and those of `transport`, which all queue pairs share.
pub(crate) fn of(parts: &dyn Parts, bytes: usize, transport: &dyn Parts, at: &Setup) -> Footprint {
    let mut ledger = Ledger::new();
    ledger.footprint.memory.queue_pair = bytes;
    parts.list(at, &mut ledger);
    ledger.per = Per::Nic;
    ledger.enter(at, "transport", part(transport));
    ledger.footprint
}

/// Defines the table of a struct. `$at` is the [`Setup`]; entries may use the fields by name.
macro_rules! footprint {
    ($type:path, |$at:ident| { $($field:ident => $entry:expr),+ $(,)? }) => {
        impl $crate::footprint::Parts for $type {
            fn list(&self, $at: &$crate::footprint::Setup, ledger: &mut $crate::footprint::Ledger) {
                #[allow(unused_variables)]
                let Self { $($field),+ } = self;
                $(ledger.enter($at, stringify!($field), $entry);)+
            }
        }
    };
}

pub(crate) use footprint;
