//! Heaps: one with places, of which any packet can be taken out, and one with two ends.

use super::items::{Items, Packet};
use super::view::compare;
use crate::program::Program;

/// A packet in a heap.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Entry {
    /// Keys of the order, so made that the smaller comes first.
    pub key: u128,
    /// In the order of arrival.
    pub arrived: u64,
    pub id: u32,
}

/// Which of two comes first.
#[derive(Copy, Clone)]
pub(crate) enum Compare<'a> {
    Keys,
    /// A comparator without keys, and the fields of all packets.
    By(&'a Program, &'a [Packet]),
}

impl Compare<'_> {
    #[inline]
    pub fn before(self, a: &Entry, b: &Entry) -> bool {
        match self {
            Compare::Keys => (a.key, a.arrived) < (b.key, b.arrived),
            Compare::By(program, fields) => {
                let (x, y) = (&fields[a.id as usize], &fields[b.id as usize]);
                let first = compare(program, x, y);
                debug_assert!(!(first && compare(program, y, x)), "a comparator puts each of two packets first");
                first || !compare(program, y, x) && a.arrived < b.arrived
            }
        }
    }
}

/// A heap with four children each, whose packets know their places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    entries: Vec<Entry>,
    /// The last in order is on top.
    reversed: bool,
}

const CHILDREN: usize = 4;

impl Heap {
    /// An empty one; `reversed`: the last in order is on top.
    pub fn new(reversed: bool) -> Heap {
        Heap { entries: Vec::new(), reversed }
    }

    #[inline]
    fn above(&self, compare: Compare<'_>, a: &Entry, b: &Entry) -> bool {
        if self.reversed { compare.before(b, a) } else { compare.before(a, b) }
    }

    /// All packets, in no order.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|entry| entry.id)
    }

    pub fn top(&self) -> Option<u32> {
        self.entries.first().map(|entry| entry.id)
    }

    fn put(&mut self, items: &mut Items, order: usize, place: usize, entry: Entry) {
        items[entry.id as usize].links[order][0] = place as u32;
        self.entries[place] = entry;
    }

    pub fn push(&mut self, items: &mut Items, order: usize, compare: Compare<'_>, entry: Entry) {
        self.entries.push(entry);
        self.rise(items, order, compare, self.entries.len() - 1, entry);
    }

    fn rise(&mut self, items: &mut Items, order: usize, compare: Compare<'_>, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if !self.above(compare, &entry, &self.entries[parent]) {
                break;
            }
            let moved = self.entries[parent];
            self.put(items, order, place, moved);
            place = parent;
        }
        self.put(items, order, place, entry);
    }

    fn sink(&mut self, items: &mut Items, order: usize, compare: Compare<'_>, mut place: usize, entry: Entry) {
        loop {
            let first = place * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.entries.len());
            let best =
                children.reduce(|a, b| if self.above(compare, &self.entries[b], &self.entries[a]) { b } else { a });
            let Some(best) = best.filter(|best| self.above(compare, &self.entries[*best], &entry)) else { break };
            let moved = self.entries[best];
            self.put(items, order, place, moved);
            place = best;
        }
        self.put(items, order, place, entry);
    }

    pub fn remove(&mut self, items: &mut Items, order: usize, compare: Compare<'_>, id: u32) {
        let place = items[id as usize].links[order][0] as usize;
        let Some(last) = self.entries.pop() else { return };
        if place == self.entries.len() {
            return;
        }
        if place > 0 && self.above(compare, &last, &self.entries[(place - 1) / CHILDREN]) {
            self.rise(items, order, compare, place, last);
        } else {
            self.sink(items, order, compare, place, last);
        }
    }
}

/// A heap with two ends (Atkinson et al., 1986): levels whose packets come before all below them take turns with levels
/// whose packets come after all below them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TwoEnded {
    entries: Vec<Entry>,
}

impl TwoEnded {
    /// All packets, in no order.
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
        let place = self.entries.len() - 1;
        if place == 0 {
            return;
        }
        let parent = (place - 1) / 2;
        let first_on_top = is_first_level(place);
        if before(&self.entries[parent], &entry) == first_on_top {
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

    /// Takes out the first or the last, which `id` is.
    pub fn remove(&mut self, id: u32) {
        let is = |place: &usize| self.entries[*place].id == id;
        let Some(place) = [0, 1, 2].into_iter().filter(|place| *place < self.entries.len()).find(is) else {
            return debug_assert!(false, "neither the first nor the last");
        };
        self.entries.swap_remove(place);
        if place < self.entries.len() {
            self.sink(place, is_first_level(place));
        }
    }

    fn sink(&mut self, mut place: usize, first_on_top: bool) {
        loop {
            let child = 2 * place + 1;
            let grandchild = 4 * place + 3;
            let n = self.entries.len();
            let below = (child..(child + 2).min(n)).chain(grandchild..(grandchild + 4).min(n));
            let better = |a: usize, b: usize| before(&self.entries[a], &self.entries[b]) == first_on_top;
            let Some(best) = below.reduce(|a, b| if better(b, a) { b } else { a }) else { return };
            if !better(best, place) {
                return;
            }
            self.entries.swap(place, best);
            if best < grandchild {
                return;
            }
            let parent = (best - 1) / 2;
            if before(&self.entries[parent], &self.entries[best]) == first_on_top {
                self.entries.swap(parent, best);
            }
            place = best;
        }
    }
}

fn before(a: &Entry, b: &Entry) -> bool {
    (a.key, a.arrived) < (b.key, b.arrived)
}

/// Whether the packets of a place's level come before all below them.
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
        (0..n).map(|id| Entry { key: u128::from(rng.next_u32() % 8), arrived: u64::from(id), id }).collect()
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
        let mut rng = Pcg64Mcg::seed_from_u64(2);
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
                let out = ends[rng.random_range(0..2)].expect("not empty");
                heap.remove(out);
                kept.retain(|entry| entry.id != out);
            }
        }
    }
}
