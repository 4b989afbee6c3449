//! Heaps: an indexed one, from which any packet can be removed, and a double-ended one.

use super::items::{Items, Packet};
use super::view::compare;
use crate::program::Program;

/// A packet in a heap.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Entry {
    /// Keys of the order, encoded so that the smaller comes first. In two halves, because a wide load would follow two
    /// narrow stores.
    pub key: [u64; 2],
    /// Order of arrival.
    pub arrived: u64,
    pub id: u32,
}

/// The comparison of two entries.
#[derive(Copy, Clone)]
pub(crate) enum Compare<'a> {
    Keys,
    /// A comparator without keys, and the fields of all packets.
    By(&'a Program, &'a [Packet]),
}

/// An order of entries, as a type, so that it is dispatched once per operation.
trait Order: Copy {
    /// Whether `a` belongs above `b`.
    fn above(self, a: &Entry, b: &Entry) -> bool;
}

/// The lowest keys on top.
#[derive(Copy, Clone)]
struct Keys;

impl Order for Keys {
    #[inline(always)]
    fn above(self, a: &Entry, b: &Entry) -> bool {
        before(a, b)
    }
}

/// The last in order on top.
#[derive(Copy, Clone)]
struct Reversed<O>(O);

impl<O: Order> Order for Reversed<O> {
    #[inline(always)]
    fn above(self, a: &Entry, b: &Entry) -> bool {
        self.0.above(b, a)
    }
}

/// The first by a comparator without keys on top.
#[derive(Copy, Clone)]
struct By<'a>(&'a Program, &'a [Packet]);

impl Order for By<'_> {
    fn above(self, a: &Entry, b: &Entry) -> bool {
        let By(program, fields) = self;
        let (x, y) = (&fields[a.id as usize], &fields[b.id as usize]);
        let first = compare(program, x, y);
        debug_assert!(!(first && compare(program, y, x)), "a comparator puts each of two packets first");
        first || !compare(program, y, x) && a.arrived < b.arrived
    }
}

/// A 4-ary heap that tracks the positions of its packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    entries: Vec<Entry>,
    /// Whether the last in order is on top.
    reversed: bool,
}

const CHILDREN: usize = 4;

impl Heap {
    /// An empty heap; with `reversed`, the last in order is on top.
    pub fn new(reversed: bool) -> Heap {
        Heap { entries: Vec::new(), reversed }
    }

    /// All packets, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|entry| entry.id)
    }

    pub fn top(&self) -> Option<u32> {
        self.entries.first().map(|entry| entry.id)
    }

    /// Inlined, so that an entry is built in place: usually the heap is empty.
    #[inline(always)]
    pub fn push(&mut self, items: &mut Items, order: usize, compare: Compare<'_>, entry: Entry) {
        let place = self.entries.len();
        items[entry.id as usize].links[order][0] = place as u32;
        self.entries.push(entry);
        if place > 0 {
            self.settle(items, order, compare, place);
        }
    }

    #[inline]
    pub fn remove(&mut self, items: &mut Items, order: usize, compare: Compare<'_>, id: u32) {
        let place = items[id as usize].links[order][0] as usize;
        self.entries.swap_remove(place);
        if place < self.entries.len() {
            self.settle(items, order, compare, place);
        }
    }

    /// Moves an entry up or down to its place.
    #[inline(never)]
    fn settle(&mut self, items: &mut Items, order: usize, compare: Compare<'_>, place: usize) {
        let mut moves = Moves { entries: &mut self.entries, items, order };
        match (compare, self.reversed) {
            (Compare::Keys, false) => moves.settle(Keys, place),
            (Compare::Keys, true) => moves.settle(Reversed(Keys), place),
            (Compare::By(program, fields), false) => moves.settle(By(program, fields), place),
            (Compare::By(program, fields), true) => moves.settle(Reversed(By(program, fields)), place),
        }
    }
}

/// Entries of a heap being moved, and the items that track their positions.
struct Moves<'a> {
    entries: &'a mut [Entry],
    items: &'a mut Items,
    order: usize,
}

impl Moves<'_> {
    #[inline(always)]
    fn put(&mut self, place: usize, entry: Entry) {
        self.items[entry.id as usize].links[self.order][0] = place as u32;
        self.entries[place] = entry;
    }

    /// Moves an entry up. Returns whether it moved.
    #[inline(always)]
    fn rise(&mut self, order: impl Order, from: usize) -> bool {
        let entry = self.entries[from];
        let mut place = from;
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            let above = self.entries[parent];
            if !order.above(&entry, &above) {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        if place != from {
            self.put(place, entry);
        }
        place != from
    }

    #[inline(always)]
    fn settle(&mut self, order: impl Order, from: usize) {
        if self.rise(order, from) {
            return;
        }
        let entry = self.entries[from];
        let mut place = from;
        loop {
            let first = place * CHILDREN + 1;
            let children = self.entries.get(first..).unwrap_or_default().iter().take(CHILDREN).enumerate();
            let best = children.reduce(|a, b| if order.above(b.1, a.1) { b } else { a });
            let Some((child, below)) = best.filter(|(_, below)| order.above(below, &entry)) else { break };
            let below = *below;
            self.put(place, below);
            place = first + child;
        }
        self.put(place, entry);
    }
}

/// A min-max heap (Atkinson et al., 1986): levels whose packets come before all their descendants alternate with levels
/// whose packets come after all their descendants.
#[derive(Clone, Debug, Default)]
pub(crate) struct TwoEnded {
    entries: Vec<Entry>,
}

impl TwoEnded {
    /// All packets, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|entry| entry.id)
    }

    pub fn first(&self) -> Option<u32> {
        self.entries.first().map(|entry| entry.id)
    }

    pub fn last(&self) -> Option<u32> {
        self.last_place().map(|place| self.entries[place].id)
    }

    fn last_place(&self) -> Option<usize> {
        let candidates = self.entries.iter().enumerate().take(3).skip(usize::from(self.entries.len() > 1));
        candidates.reduce(|a, b| if before(b.1, a.1) { a } else { b }).map(|(place, _)| place)
    }

    pub fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
        self.lift(self.entries.len() - 1);
    }

    /// Moves a packet up that is too early or too late for its place.
    fn lift(&mut self, place: usize) {
        if place == 0 {
            return;
        }
        let parent = (place - 1) / 2;
        let first_on_top = is_first_level(place);
        if before(&self.entries[parent], &self.entries[place]) == first_on_top {
            self.entries.swap(place, parent);
            self.rise(parent, !first_on_top);
        } else {
            self.rise(place, first_on_top);
        }
    }

    fn rise(&mut self, mut place: usize, first_on_top: bool) {
        while place > 2 {
            let grandparent = ((place - 1) / 2 - 1) / 2;
            if before(&self.entries[place], &self.entries[grandparent]) != first_on_top {
                return;
            }
            self.entries.swap(place, grandparent);
            place = grandparent;
        }
    }

    /// Removes a packet: the first or the last directly, another after a linear search.
    pub fn remove(&mut self, id: u32) {
        let is = |place: &usize| self.entries[*place].id == id;
        let at_an_end = (0..self.entries.len().min(3)).find(is);
        let Some(place) = at_an_end.or_else(|| (3..self.entries.len()).find(is)) else {
            return debug_assert!(false, "packet {id} is not in the heap");
        };
        self.entries.swap_remove(place);
        if place < self.entries.len() {
            let place = self.sink(place, is_first_level(place));
            self.lift(place);
        }
    }

    /// Moves a packet down that is too late or too early for its place. Returns its final place.
    fn sink(&mut self, mut place: usize, first_on_top: bool) -> usize {
        let mut landed = None;
        loop {
            let child = 2 * place + 1;
            let grandchild = 4 * place + 3;
            let n = self.entries.len();
            let below = (child..(child + 2).min(n)).chain(grandchild..(grandchild + 4).min(n));
            let better = |a: usize, b: usize| before(&self.entries[a], &self.entries[b]) == first_on_top;
            let Some(best) = below.reduce(|a, b| if better(b, a) { b } else { a }) else { break };
            if !better(best, place) {
                break;
            }
            self.entries.swap(place, best);
            place = best;
            if best < grandchild {
                break;
            }
            let parent = (best - 1) / 2;
            if before(&self.entries[parent], &self.entries[best]) == first_on_top {
                self.entries.swap(parent, best);
                // From here on, the packet that was there sinks.
                landed = landed.or(Some(parent));
            }
        }
        landed.unwrap_or(place)
    }
}

/// Whether one comes before another by keys; of equals, the one that arrived first.
#[inline(always)]
fn before(a: &Entry, b: &Entry) -> bool {
    let whole = |key: [u64; 2]| u128::from(key[0]) << 64 | u128::from(key[1]);
    let (x, y) = (whole(a.key), whole(b.key));
    // Branch-free: branches would be unpredictable.
    (x < y) | (x == y) & (a.arrived < b.arrived)
}

/// Whether the packets of a place's level come before all their descendants.
fn is_first_level(place: usize) -> bool {
    (place + 1).ilog2().is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::super::items::Item;
    use super::*;

    fn entries(rng: &mut Pcg64Mcg, n: u32) -> Vec<Entry> {
        (0..n).map(|id| Entry { key: [0, u64::from(rng.next_u32() % 8)], arrived: u64::from(id), id }).collect()
    }

    #[test]
    fn a_heap_gives_any_packet_back_and_the_first_of_the_others() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for reversed in [false, true] {
            let all = entries(&mut rng, 300);
            let mut items = vec![Item::EMPTY; 300];
            let mut heap = Heap::new(reversed);
            let mut kept: Vec<Entry> = Vec::new();
            for entry in all {
                heap.push(&mut items, 1, Compare::Keys, entry);
                kept.push(entry);
                if rng.random_range(0..3) == 0 {
                    let taken = kept.swap_remove(rng.random_range(0..kept.len()));
                    heap.remove(&mut items, 1, Compare::Keys, taken.id);
                }
                let order = |e: &&Entry| (e.key, e.arrived);
                let top = if reversed { kept.iter().max_by_key(order) } else { kept.iter().min_by_key(order) };
                assert_eq!(heap.top(), top.map(|entry| entry.id));
            }
        }
    }

    #[test]
    fn a_heap_with_two_ends_has_the_first_and_the_last() {
        for (seed, of_all) in [(2, 0), (3, 3), (4, 10)] {
            two_ends(seed, of_all);
        }
    }

    /// Inserts packets and removes them at the ends, and one in `of_all` anywhere.
    fn two_ends(seed: u64, of_all: u32) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut heap = TwoEnded::default();
        let mut kept: Vec<Entry> = Vec::new();
        for entry in entries(&mut rng, 2_000) {
            heap.push(entry);
            kept.push(entry);
            while rng.random::<bool>() && !kept.is_empty() {
                let ends =
                    [kept.iter().min_by_key(|e| (e.key, e.arrived)), kept.iter().max_by_key(|e| (e.key, e.arrived))];
                let ends = ends.map(|end| end.map(|entry| entry.id));
                assert_eq!([heap.first(), heap.last()], ends);
                let any = of_all > 0 && rng.random_range(0..of_all) == 0;
                let end = ends[rng.random_range(0..2)].expect("not empty");
                let out = if any { kept[rng.random_range(0..kept.len())].id } else { end };
                heap.remove(out);
                kept.retain(|entry| entry.id != out);
            }
        }
    }
}
