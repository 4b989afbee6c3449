//! Packets, as queues know them.

use super::host::{Host, Waiting};

/// Stands for no packet.
pub(crate) const NONE: u32 = u32::MAX;

/// The attributes of a queued packet that an engine needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Size in queues, bytes.
    pub size: u32,
    /// Port of arrival.
    pub input: u16,
    /// 0 to 7.
    pub priority: u8,
    /// Whether its colour is red.
    pub red: bool,
}

/// A packet as a policy sees it. Times are ns, sizes bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Arrival time.
    pub arrival: u64,
    /// Size in queues, bytes.
    pub size: u32,
    /// Value.
    pub value: i64,
    /// Processing requirement.
    pub processing: i64,
    /// Remaining slack.
    pub slack: i64,
    /// Its flow.
    pub flow: u64,
    /// Port of arrival.
    pub input: u16,
    /// Port of departure.
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

/// A queued packet.
#[derive(Copy, Clone, Debug)]
#[repr(align(32))]
pub(crate) struct Item {
    /// In each of the two orders: the next and the previous packet, or its position in a heap.
    pub links: [[u32; 2]; 2],
    pub size: u32,
    pub queue: u32,
    pub input: u16,
    pub priority: u8,
    pub red: bool,
    /// Its bucket in each of the two orders.
    pub buckets: [u8; 2],
}

impl Item {
    pub const EMPTY: Item =
        Item { links: [[NONE; 2]; 2], size: 0, queue: NONE, input: 0, priority: 0, red: false, buckets: [0; 2] };
}

/// All packets, by number.
pub(crate) type Items = Vec<Item>;

/// A linked list through the packets.
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

    /// Appends a packet to a list from which only the first is ever removed: its links are kept by the host.
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

    /// Removes the first packet, which must exist, from such a list.
    #[inline]
    pub fn take_first(&mut self, host: &impl Waiting) {
        self.head = host.next(self.head);
        if self.head == NONE {
            self.tail = NONE;
        }
    }

    /// All packets, in order.
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
