//! A double-ended priority queue of packets: the lowest rank is sent next, the highest is dropped.

use crate::network::PacketId;

/// Sort key of a packet: rank, then order of arrival.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    rank: i64,
    order: u64,
    id: PacketId,
}

/// Packets by rank, those of equal rank in order of arrival. A min-max heap (Atkinson et al., 1986): logarithmic time
/// at both ends, and no allocation once it has grown.
#[derive(Clone, Debug, Default)]
pub struct RankQueue {
    /// Levels alternate: an entry of an even level is below all its descendants, one of an odd level above them.
    heap: Vec<Entry>,
    order: u64,
}

/// Whether `a` belongs nearer to the root than `b`, on a min level (`low`) or a max level.
#[inline]
fn before(a: Entry, b: Entry, low: bool) -> bool {
    if low { a < b } else { a > b }
}

/// Whether a place is on a min level.
#[inline]
fn is_low(place: usize) -> bool {
    (place + 1).ilog2().is_multiple_of(2)
}

impl RankQueue {
    /// Number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there are no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Adds a packet.
    #[inline]
    pub fn push(&mut self, rank: i64, id: PacketId) {
        self.heap.push(Entry { rank, order: self.order, id });
        self.order += 1;
        self.rise(self.heap.len() - 1);
    }

    /// Removes the packet of the lowest rank, of equals the earliest: rank and packet.
    #[inline]
    pub fn pop_lowest(&mut self) -> Option<(i64, PacketId)> {
        if self.heap.is_empty() {
            return None;
        }
        let Entry { rank, id, .. } = self.heap.swap_remove(0);
        self.sink(0, true);
        Some((rank, id))
    }

    /// The lowest rank.
    #[inline]
    pub fn lowest(&self) -> Option<i64> {
        self.heap.first().map(|entry| entry.rank)
    }

    /// The lowest rank of packets that are `wanted`. Linear; for the rare cases in which some may not be sent.
    #[cold]
    pub fn lowest_wanted(&self, wanted: impl Fn(PacketId) -> bool) -> Option<i64> {
        self.heap.iter().filter(|entry| wanted(entry.id)).map(|entry| entry.rank).min()
    }

    /// The highest rank.
    pub fn highest(&self) -> Option<i64> {
        Some(self.heap[self.last()?].rank)
    }

    /// Removes the packet of the highest rank, of equals the latest: rank and packet.
    pub fn pop_highest(&mut self) -> Option<(i64, PacketId)> {
        let place = self.last()?;
        let Entry { rank, id, .. } = self.heap.swap_remove(place);
        self.sink(place, is_low(place));
        Some((rank, id))
    }

    /// Removes the packet of the lowest rank that is `wanted`. Linear; for the rare cases in which some may not be
    /// sent.
    #[cold]
    pub fn pop_wanted(&mut self, wanted: impl Fn(PacketId) -> bool) -> Option<(i64, PacketId)> {
        let first = self.heap.iter().enumerate().filter(|(_, entry)| wanted(entry.id)).min_by_key(|(_, entry)| **entry);
        let place = first?.0;
        let Entry { rank, id, .. } = self.heap.swap_remove(place);
        // The entry moved there from the end may belong above or below.
        if place < self.heap.len() {
            self.rise(place);
            self.sink(place, is_low(place));
        }
        Some((rank, id))
    }

    /// The place of the last in order.
    fn last(&self) -> Option<usize> {
        match self.heap.len() {
            0 => None,
            1 => Some(0),
            2 => Some(1),
            _ => Some(if self.heap[1] > self.heap[2] { 1 } else { 2 }),
        }
    }

    fn rise(&mut self, mut at: usize) {
        if at == 0 {
            return;
        }
        let mut low = is_low(at);
        let parent = (at - 1) / 2;
        if before(self.heap[parent], self.heap[at], low) {
            self.heap.swap(parent, at);
            (at, low) = (parent, !low);
        }
        while at > 2 {
            let grandparent = (at - 3) / 4;
            if !before(self.heap[at], self.heap[grandparent], low) {
                break;
            }
            self.heap.swap(at, grandparent);
            at = grandparent;
        }
    }

    fn sink(&mut self, mut at: usize, low: bool) {
        let heap = &mut self.heap[..];
        loop {
            let (child, grandchild) = (2 * at + 1, 4 * at + 3);
            if child >= heap.len() {
                return;
            }
            let rest = [child + 1, grandchild, grandchild + 1, grandchild + 2, grandchild + 3];
            let below = rest.into_iter().take_while(|place| *place < heap.len());
            let first =
                below.fold(child, |first, place| if before(heap[place], heap[first], low) { place } else { first });
            if !before(heap[first], heap[at], low) {
                return;
            }
            heap.swap(first, at);
            if first < grandchild {
                return;
            }
            let parent = (first - 1) / 2;
            if before(heap[parent], heap[first], low) {
                heap.swap(parent, first);
            }
            at = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Call {
        Push(i64),
        Lowest,
        Highest,
        Wanted(u32),
    }

    fn calls() -> impl Strategy<Value = Vec<Call>> {
        let call = prop_oneof![
            4 => (-20i64..20).prop_map(Call::Push),
            2 => Just(Call::Lowest),
            1 => Just(Call::Highest),
            1 => (1u32..4).prop_map(Call::Wanted),
        ];
        prop::collection::vec(call, 0..200)
    }

    proptest! {
        /// Compares with a sorted list.
        #[test]
        fn both_ends_are_those_of_a_sorted_list(calls in calls()) {
            let (mut queue, mut list) = (RankQueue::default(), Vec::<(i64, PacketId)>::new());
            for (id, call) in (0..).zip(calls) {
                match call {
                    Call::Push(rank) => {
                        queue.push(rank, id);
                        list.insert(list.partition_point(|(other, _)| *other <= rank), (rank, id));
                    }
                    Call::Lowest => {
                        prop_assert_eq!(queue.lowest(), list.first().map(|(rank, _)| *rank));
                        let first = (!list.is_empty()).then(|| list.remove(0));
                        prop_assert_eq!(queue.pop_lowest(), first);
                    }
                    Call::Highest => {
                        prop_assert_eq!(queue.highest(), list.last().map(|(rank, _)| *rank));
                        prop_assert_eq!(queue.pop_highest(), list.pop());
                    }
                    Call::Wanted(n) => {
                        let at = list.iter().position(|(_, id)| id.is_multiple_of(n));
                        prop_assert_eq!(queue.lowest_wanted(|id| id.is_multiple_of(n)), at.map(|at| list[at].0));
                        prop_assert_eq!(queue.pop_wanted(|id| id.is_multiple_of(n)), at.map(|at| list.remove(at)));
                    }
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (list.len(), list.is_empty()));
            }
        }
    }
}
