//! What happens when: the event queue of a simulation, built for speed.
//!
//! Nearly all events of a network lie within a few microseconds of now: the end of a transmission, an arrival after a propagation
//! delay. They wait in a ring of stretches of a few ns, unsorted; a stretch is sorted when its time comes. What lies further ahead
//! (retransmission timers, samples) waits in a heap. Events of the same nanosecond come out in the order they went in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// ns of a stretch: 2².
const SHIFT: u32 = 2;
/// Stretches in the ring, which then reaches 16 µs ahead.
const STRETCHES: u64 = 4096;
/// End of a list.
const NONE: u32 = u32::MAX;

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<E> {
    at: u64,
    /// Wraps after 2³² events, of which far fewer wait for the same nanosecond.
    order: u32,
    event: E,
}

/// An entry of the ring and the next one of its stretch. Those in use at a time are few, and stay in the cache.
#[derive(Copy, Clone, Debug)]
struct Node<E> {
    entry: Entry<E>,
    next: u32,
}

/// Events in order of time.
#[derive(Debug)]
pub struct Agenda<E> {
    /// First node of each stretch, and which of them have one.
    ring: Vec<u32>,
    occupied: Vec<u64>,
    nodes: Vec<Node<E>>,
    free: u32,
    /// The stretch being worked off, latest first, and its number.
    current: Vec<Entry<E>>,
    stretch: u64,
    far: BinaryHeap<Reverse<Entry<E>>>,
    pushed: u64,
    len: usize,
}

impl<E: Copy + Ord> Agenda<E> {
    /// Nothing to do, at time 0.
    pub fn new() -> Agenda<E> {
        Agenda {
            ring: vec![NONE; STRETCHES as usize],
            occupied: vec![0; (STRETCHES / 64) as usize],
            nodes: Vec::new(),
            free: NONE,
            current: Vec::new(),
            stretch: 0,
            far: BinaryHeap::new(),
            pushed: 0,
            len: 0,
        }
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Events that were ever pushed.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Adds an event at `at` ns, no earlier than the last that came out.
    #[inline]
    pub fn push(&mut self, at: u64, event: E) {
        let entry = Entry { at, order: self.pushed as u32, event };
        self.pushed += 1;
        self.len += 1;
        let stretch = at >> SHIFT;
        if stretch <= self.stretch {
            let place = self.current.partition_point(|e| e.at > at);
            self.current.insert(place, entry);
        } else if stretch - self.stretch < STRETCHES {
            self.put((stretch % STRETCHES) as usize, entry);
        } else {
            self.far.push(Reverse(entry));
        }
    }

    #[inline]
    fn put(&mut self, slot: usize, entry: Entry<E>) {
        let node = Node { entry, next: self.ring[slot] };
        self.occupied[slot / 64] |= 1 << (slot % 64);
        if self.free == NONE {
            self.ring[slot] = self.nodes.len() as u32;
            self.nodes.push(node);
        } else {
            let place = self.free;
            self.ring[slot] = place;
            self.free = self.nodes[place as usize].next;
            self.nodes[place as usize] = node;
        }
    }

    /// The next event and its time, ns.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, E)> {
        if self.current.is_empty() && !self.advance() {
            return None;
        }
        let entry = self.current.pop()?;
        self.len -= 1;
        Some((entry.at, entry.event))
    }

    /// Goes on to the next stretch that holds something.
    fn advance(&mut self) -> bool {
        let near = self.next_occupied();
        let far = self.far.peek().map(|Reverse(e)| e.at >> SHIFT);
        let Some(next) = [near, far].into_iter().flatten().min() else { return false };
        self.stretch = next;
        let slot = (next % STRETCHES) as usize;
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        let mut at = std::mem::replace(&mut self.ring[slot], NONE);
        while at != NONE {
            let node = &mut self.nodes[at as usize];
            self.current.push(node.entry);
            let next = std::mem::replace(&mut node.next, self.free);
            self.free = at;
            at = next;
        }
        while let Some(&Reverse(entry)) = self.far.peek()
            && entry.at >> SHIFT == next
        {
            self.far.pop();
            self.current.push(entry);
        }
        // Wrapped order numbers compare by their distance from the latest.
        let latest = self.pushed as u32;
        self.current.sort_unstable_by_key(|e| Reverse((e.at, Reverse(latest.wrapping_sub(e.order)))));
        true
    }

    /// The number of the next stretch of the ring that is not empty.
    #[inline]
    fn next_occupied(&self) -> Option<u64> {
        let words = self.occupied.len() as u64;
        let first = (self.stretch + 1) % STRETCHES;
        // The word that holds `first` is looked at twice: its upper part now, its lower part after a full turn.
        for i in 0..=words {
            let word = (first / 64 + i) % words;
            let mut bits = self.occupied[word as usize];
            if i == 0 {
                bits &= u64::MAX << (first % 64);
            } else if i == words {
                bits &= !(u64::MAX << (first % 64));
            }
            if bits != 0 {
                let slot = word * 64 + u64::from(bits.trailing_zeros());
                return Some(self.stretch + 1 + (slot + STRETCHES - first) % STRETCHES);
            }
        }
        None
    }
}

impl<E: Copy + Ord> Default for Agenda<E> {
    fn default() -> Self {
        Agenda::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a sorted list: steps of any length, some events at the very moment that is being worked off.
        #[test]
        fn events_come_in_order_of_time_and_then_of_pushing(
            steps in prop::collection::vec((0u8..4, prop_oneof![0u64..3, 0u64..200, 0u64..40_000, 0u64..2_000_000]), 1..400)
        ) {
            let (mut agenda, mut model, mut now, mut id) = (Agenda::new(), Vec::new(), 0, 0u64);
            for (what, after) in steps {
                if what < 3 {
                    agenda.push(now + after, id);
                    model.push((now + after, id));
                    id += 1;
                } else if let Some(first) = model.iter().copied().min() {
                    model.retain(|&e| e != first);
                    prop_assert_eq!(agenda.pop(), Some(first));
                    now = first.0;
                }
                prop_assert_eq!(agenda.len(), model.len());
            }
            model.sort_unstable();
            for expected in model {
                prop_assert_eq!(agenda.pop(), Some(expected));
            }
            prop_assert_eq!(agenda.pop(), None);
        }
    }
}
