//! Structures that keep the packets of a queue in order: the simplest that suffices.

use super::heap::{Compare, Entry, Heap, TwoEnded};
use super::items::{Items, List, NONE, Packet};
use super::view::of_packet;
use crate::order::{PacketOrder, SortKey};

/// The structure for an order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    List,
    /// Buckets, this many.
    Buckets(u8),
    Heap,
    TwoEnded,
}

/// Packets in an order.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    List(List),
    Buckets(Box<Buckets>),
    Heap(Box<Heap>),
    TwoEnded(Box<TwoEnded>),
}

/// A list for each value of a key, and a bitmap of the non-empty ones.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    filled: u64,
    lists: Box<[List]>,
}

/// A packet to be inserted.
#[derive(Copy, Clone)]
pub(crate) struct New<'a> {
    pub id: u32,
    pub arrived: u64,
    pub packet: &'a Packet,
    /// Fields of all packets, if the plan keeps them.
    pub fields: &'a [Packet],
}

impl New<'_> {
    /// The packet's entry in a heap.
    #[inline(always)]
    pub fn entry(&self, order: &PacketOrder) -> Entry {
        Entry { key: order.key(self.packet), arrived: self.arrived, id: self.id }
    }
}

impl PacketOrder {
    /// The structure for the order; `both_ends` if the last is needed as well as the first.
    pub(crate) fn shape(&self, both_ends: bool) -> Shape {
        match self {
            PacketOrder::Arrival | PacketOrder::Reverse => Shape::List,
            PacketOrder::Keys(keys) => match (&keys[..], both_ends) {
                ([only], _) if only.range().is_some_and(|(_, count)| count <= 64) => {
                    Shape::Buckets(only.range().map_or(64, |(_, count)| count as u8))
                }
                (_, true) => Shape::TwoEnded,
                (_, false) => Shape::Heap,
            },
            PacketOrder::Comparator(_) => Shape::Heap,
        }
    }

    #[inline]
    pub(crate) fn compare<'a>(&'a self, fields: &'a [Packet]) -> Compare<'a> {
        match self {
            PacketOrder::Comparator(program) => Compare::By(program, fields),
            _ => Compare::Keys,
        }
    }

    #[inline]
    fn key(&self, packet: &Packet) -> [u64; 2] {
        match self {
            PacketOrder::Keys(keys) => match &keys[..] {
                [only] => [0, sortable(only, packet)],
                [first, second, ..] => [sortable(first, packet), sortable(second, packet)],
                [] => [0; 2],
            },
            _ => [0; 2],
        }
    }

    fn bucket(&self, packet: &Packet) -> u8 {
        let PacketOrder::Keys(keys) = self else { return 0 };
        let Some((least, count)) = keys[0].range() else { return 0 };
        let place = (keys[0].program.run(|source| of_packet(packet, source)) - least).clamp(0, count - 1);
        if keys[0].descending { (count - 1 - place) as u8 } else { place as u8 }
    }
}

/// Encodes a key as an unsigned number so that the smaller comes first.
fn sortable(key: &SortKey, packet: &Packet) -> u64 {
    let value = key.program.run(|source| of_packet(packet, source));
    let ascending = (value as u64) ^ 1 << 63;
    if key.descending { !ascending } else { ascending }
}

impl Store {
    pub fn new(shape: Shape, reversed: bool) -> Store {
        match shape {
            Shape::List => Store::List(List::EMPTY),
            Shape::Buckets(count) => {
                Store::Buckets(Box::new(Buckets { filled: 0, lists: vec![List::EMPTY; usize::from(count)].into() }))
            }
            Shape::Heap => Store::Heap(Box::new(Heap::new(reversed))),
            Shape::TwoEnded => Store::TwoEnded(Box::default()),
        }
    }

    #[inline]
    pub fn push(&mut self, items: &mut Items, place: usize, order: &PacketOrder, new: New<'_>) {
        match self {
            Store::List(list) => list.push(items, place, new.id),
            Store::Buckets(buckets) => {
                let bucket = order.bucket(new.packet);
                items[new.id as usize].buckets[place] = bucket;
                buckets.filled |= 1 << bucket;
                buckets.lists[usize::from(bucket)].push(items, place, new.id);
            }
            Store::Heap(heap) => {
                heap.push(items, place, order.compare(new.fields), new.entry(order));
            }
            Store::TwoEnded(heap) => heap.push(new.entry(order)),
        }
    }

    /// Inserts a packet into an indexed heap, with an entry built earlier.
    pub fn push_later(
        &mut self,
        items: &mut Items,
        place: usize,
        order: &PacketOrder,
        fields: &[Packet],
        entry: Entry,
    ) {
        if let Store::Heap(heap) = self {
            heap.push(items, place, order.compare(fields), entry);
        }
    }

    /// The numbers of all packets, in an arbitrary order.
    pub fn list(&self, items: &Items, numbers: &mut Vec<u32>) {
        match self {
            Store::List(list) => numbers.extend(list.all(items, 0)),
            Store::Buckets(buckets) => numbers.extend(buckets.lists.iter().flat_map(|list| list.all(items, 0))),
            Store::Heap(heap) => numbers.extend(heap.all()),
            Store::TwoEnded(heap) => numbers.extend(heap.all()),
        }
    }

    /// Whether it is an empty heap.
    pub fn is_empty_heap(&self) -> bool {
        matches!(self, Store::Heap(heap) if heap.top().is_none())
    }

    /// The first in order.
    #[inline]
    pub fn first(&self, order: &PacketOrder) -> Option<u32> {
        match self {
            Store::List(list) if *order == PacketOrder::Reverse => Some(list.tail).filter(|id| *id != NONE),
            Store::List(list) => Some(list.head).filter(|id| *id != NONE),
            Store::Buckets(buckets) => buckets.first(),
            Store::Heap(heap) => heap.top(),
            Store::TwoEnded(heap) => heap.first(),
        }
    }

    /// The last in order; of a single-ended heap the top, which is the last if it is reversed.
    #[inline]
    pub fn last(&self, order: &PacketOrder) -> Option<u32> {
        match self {
            Store::List(list) if *order == PacketOrder::Reverse => Some(list.head).filter(|id| *id != NONE),
            Store::List(list) => Some(list.tail).filter(|id| *id != NONE),
            Store::Buckets(buckets) => buckets.last(),
            Store::Heap(heap) => heap.top(),
            Store::TwoEnded(heap) => heap.last(),
        }
    }

    #[inline]
    pub fn remove(&mut self, items: &mut Items, place: usize, order: &PacketOrder, fields: &[Packet], id: u32) {
        match self {
            Store::List(list) => list.remove(items, place, id),
            Store::Buckets(buckets) => buckets.remove(items, place, id),
            Store::Heap(heap) => heap.remove(items, place, order.compare(fields), id),
            Store::TwoEnded(heap) => heap.remove(id),
        }
    }
}

impl Buckets {
    fn first(&self) -> Option<u32> {
        (self.filled != 0).then(|| self.lists[self.filled.trailing_zeros() as usize].head)
    }

    fn last(&self) -> Option<u32> {
        (self.filled != 0).then(|| self.lists[self.filled.ilog2() as usize].tail)
    }

    fn remove(&mut self, items: &mut Items, place: usize, id: u32) {
        let bucket = usize::from(items[id as usize].buckets[place]);
        self.lists[bucket].remove(items, place, id);
        if self.lists[bucket].head == NONE {
            self.filled &= !(1 << bucket);
        }
    }
}
