//! Packets in queues, as far as queues have to know them.

use super::host::{Host, Waiting};

/// No packet.
pub(crate) const NONE: u32 = u32::MAX;

/// What an engine has to know of a packet that waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Bytes that it takes in queues.
    pub size: u32,
    /// The port by which it came.
    pub input: u16,
    /// 0 to 7.
    pub priority: u8,
    /// Whether its colour is red.
    pub red: bool,
}

/// A packet as a policy sees it. Times are ns, sizes bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// When it came.
    pub arrival: u64,
    /// Bytes that it takes in queues.
    pub size: u32,
    /// What it is worth.
    pub value: i64,
    /// What it takes to process.
    pub processing: i64,
    /// How long it may still wait.
    pub slack: i64,
    /// Its flow.
    pub flow: u64,
    /// The port by which it came.
    pub input: u16,
    /// The port by which it leaves.
    pub output: u16,
    /// 0 to 7.
    pub priority: u8,
    /// 0 to 63.
    pub dscp: u8,
    /// Whether it has no payload.
    pub control: bool,
    /// Whether its colour is red, so that it is dropped before green ones.
    pub red: bool,
}

/// A packet that waits.
#[derive(Copy, Clone, Debug)]
#[repr(align(32))]
pub(crate) struct Item {
    /// In each of the two orders: the next packet and the one before, or its place in a heap.
    pub links: [[u32; 2]; 2],
    pub size: u32,
    pub queue: u32,
    pub input: u16,
    pub priority: u8,
    pub red: bool,
    /// In each of the two orders, its bucket.
    pub buckets: [u8; 2],
}

impl Item {
    pub const EMPTY: Item =
        Item { links: [[NONE; 2]; 2], size: 0, queue: NONE, input: 0, priority: 0, red: false, buckets: [0; 2] };
}

/// All packets, by their numbers.
pub(crate) type Items = Vec<Item>;

/// A list through the packets.
#[derive(Copy, Clone, Debug)]
pub(crate) struct List {
    pub head: u32,
    pub tail: u32,
}

impl List {
    pub const EMPTY: List = List { head: NONE, tail: NONE };

    #[inline]
    pub fn push(&mut self, items: &mut Items, order: usize, id: u32) {
        items[id as usize].links[order] = [NONE, self.tail];
        if self.tail == NONE {
            self.head = id;
        } else {
            items[self.tail as usize].links[order][0] = id;
        }
        self.tail = id;
    }

    /// Appends a packet to a list of which only the first is ever taken out: its links are the host's.
    #[inline]
    pub fn append(&mut self, host: &mut impl Host, id: u32) {
        host.set_next(id, NONE);
        if self.head == NONE {
            self.head = id;
        } else {
            host.set_next(self.tail, id);
        }
        self.tail = id;
    }

    /// Takes the first packet, which there is, out of such a list.
    #[inline]
    pub fn take_first(&mut self, host: &impl Waiting) {
        self.head = host.next(self.head);
        if self.head == NONE {
            self.tail = NONE;
        }
    }

    /// All packets, the first first.
    pub fn all(self, items: &Items, order: usize) -> impl Iterator<Item = u32> {
        let some = |id: u32| (id != NONE).then_some(id);
        std::iter::successors(some(self.head), move |id| some(items[*id as usize].links[order][0]))
    }

    #[inline]
    pub fn remove(&mut self, items: &mut Items, order: usize, id: u32) {
        let [next, before] = items[id as usize].links[order];
        if before == NONE {
            self.head = next;
        } else {
            items[before as usize].links[order][0] = next;
        }
        if next == NONE {
            self.tail = before;
        } else {
            items[next as usize].links[order][1] = before;
        }
    }
}
