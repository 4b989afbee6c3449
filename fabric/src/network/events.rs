//! The event queue of a simulated network, built for speed.
//!
//! Nearly all events of a network lie within a few microseconds of now: the end of a transmission, an arrival after a
//! propagation delay. They wait in a ring with a slot for each nanosecond, so that nothing is ever sorted. Events up to
//! some tens of milliseconds ahead (wide-area links, timers) wait in buckets, each of which moves into the ring as a
//! whole when it is due; those further ahead wait in a heap. Events of the same nanosecond come out in the order they
//! went in.
//!
//! The next few events are taken out of the ring before they are due, so that the caller can see them coming
//! ([`EventQueue::coming`]) and prefetch what they need.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::prefetch::fetch;

/// Length of the ring, ns.
const REACH: u64 = 1 << 14;
/// Words of the ring's bitmap.
const WORDS: u64 = REACH / 64;
/// Width of a bucket, ns: the ring holds two, that of the horizon and the next.
const WIDTH: u64 = REACH / 2;
/// Buckets, which reach 33 ms ahead; a multiple of 64.
const BUCKETS: u64 = 1 << 12;
/// Events of a chunk, 7 at most: with the number of the next chunk, five of 12 bytes fill a cache line.
const CHUNK: usize = 5;
/// Bits of a slot for the number of events in its latest chunk.
const COUNT_BITS: u32 = 3;
/// No chunk.
const NONE: u32 = u32::MAX;
/// Number of events taken out ahead of time, as long as the next is no further away than [`GAP`].
const AHEAD: usize = 16;
/// Distance ahead of the last event taken out that is prefetched, ns.
const SOON: usize = 16;
/// One word of the ring's bitmap, ns.
const GAP: u64 = 64;

/// An event in an [`EventQueue`].
pub trait Waiting: Copy {
    /// Whether events have a place, and so do not always come out in the order in which they were pushed: see
    /// [`EventQueue::insert`].
    const PLACED: bool = false;

    /// Of events of the same nanosecond, the one with the lowest place comes first; of the same place, the one pushed
    /// first.
    #[inline]
    fn place(&self) -> u64 {
        0
    }
}

/// Events of one slot, and the chunk with those pushed after them.
#[derive(Copy, Clone, Debug)]
#[repr(align(64))]
struct Chunk<E> {
    events: [E; CHUNK],
    next: u32,
}

/// The events of one nanosecond: the first chunk, or [`NONE`], and the latest chunk with its number of events in the
/// lowest bits.
#[derive(Copy, Clone, Debug)]
struct Slot {
    first: u32,
    latest: u32,
}

impl Slot {
    const EMPTY: Slot = Slot { first: NONE, latest: 0 };

    /// The latest chunk and its number of events.
    #[inline]
    fn latest(self) -> (u32, usize) {
        (self.latest >> COUNT_BITS, self.latest as usize % (1 << COUNT_BITS))
    }
}

/// An event that is far ahead.
#[derive(Copy, Clone, Debug)]
struct Far<E> {
    at: u64,
    order: u64,
    event: E,
}

/// Events in order of time.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// The next events, in order, from `front` on.
    window: Vec<(u64, E)>,
    front: usize,
    /// All events before this time are in the window, as are the first of those at this time. Its slot has the rest.
    horizon: u64,
    /// The events of each nanosecond from the horizon on, and a bitmap of the non-empty slots.
    ring: Vec<Slot>,
    occupied: Box<[u64; WORDS as usize]>,
    chunks: Vec<Chunk<E>>,
    free: u32,
    /// Number of the first bucket that is not in the ring, counted from time 0.
    next: u64,
    /// Events of this bucket and later ones, in the order pushed, each with its offset from the start of its bucket,
    /// ns; and a bitmap of the non-empty buckets.
    buckets: Vec<Vec<(u16, E)>>,
    filled: Vec<u64>,
    /// Events beyond the buckets. All were pushed before any of the same bucket in `buckets`.
    far: BinaryHeap<Reverse<Far<E>>>,
    pushed: u64,
    popped: u64,
}

impl<E: Waiting> EventQueue<E> {
    /// An empty queue at time 0.
    pub fn new() -> EventQueue<E> {
        EventQueue {
            window: Vec::new(),
            front: 0,
            horizon: 0,
            ring: vec![Slot::EMPTY; REACH as usize],
            occupied: Box::new([0; WORDS as usize]),
            chunks: Vec::new(),
            free: NONE,
            next: 2,
            buckets: vec![Vec::new(); BUCKETS as usize],
            filled: vec![0; (BUCKETS / 64) as usize],
            far: BinaryHeap::new(),
            pushed: 0,
            popped: 0,
        }
    }

    /// Number of events in the queue.
    pub fn len(&self) -> usize {
        (self.pushed - self.popped) as usize
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of events pushed so far.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Adds an event at `at` ns, no earlier than the last event returned.
    #[inline]
    pub fn push(&mut self, at: u64, event: E) {
        let order = self.pushed;
        self.pushed += 1;
        if at < self.horizon || at == self.horizon && !self.is_open() {
            let place = self.window[self.front..].partition_point(|(other, _)| *other <= at);
            self.window.insert(self.front + place, (at, event));
        } else if at / WIDTH < self.next {
            self.put((at % REACH) as usize, event);
        } else {
            self.push_far(Far { at, order, event });
        }
    }

    /// Adds an event beyond the ring.
    fn push_far(&mut self, far: Far<E>) {
        let number = far.at / WIDTH;
        if number - self.next >= BUCKETS {
            self.far.push(Reverse(far));
            return;
        }
        let bucket = (number % BUCKETS) as usize;
        self.buckets[bucket].push(((far.at % WIDTH) as u16, far.event));
        self.filled[bucket / 64] |= 1 << (bucket % 64);
    }

    /// Inserts an event at `at` ns at its place in order: no earlier than the last event returned, and after all events
    /// of the same time and place.
    pub fn insert(&mut self, at: u64, event: E) {
        if at <= self.horizon {
            let waiting = &self.window[self.front..];
            let place = waiting.partition_point(|(other, e)| (*other, e.place()) <= (at, event.place()));
            if place < waiting.len() || at < self.horizon || !self.is_open() {
                self.pushed += 1;
                self.window.insert(self.front + place, (at, event));
                return;
            }
        }
        if at / WIDTH >= self.next {
            return self.push(at, event);
        }
        self.pushed += 1;
        // Those behind it move up by one.
        let slot = self.ring[(at % REACH) as usize];
        let (mut moved, mut behind) = (event, false);
        if slot.first != NONE {
            let (latest, count) = slot.latest();
            let mut chunk = slot.first;
            loop {
                let events = &mut self.chunks[chunk as usize].events;
                let len = if chunk == latest { count } else { CHUNK };
                for waiting in &mut events[..len] {
                    behind |= waiting.place() > moved.place();
                    if behind {
                        std::mem::swap(waiting, &mut moved);
                    }
                }
                if chunk == latest {
                    break;
                }
                chunk = self.chunks[chunk as usize].next;
            }
        }
        self.put((at % REACH) as usize, moved);
    }

    /// Removes all events, in order. No event pushed afterwards may be earlier than the first of them.
    pub fn drain(&mut self) -> Vec<(u64, E)> {
        let mut all = Vec::with_capacity(self.len());
        while let Some(next) = self.pop(u64::MAX) {
            all.push(next);
        }
        // Events pushed again must not be behind the horizon.
        self.window.clear();
        self.front = 0;
        self.horizon = all.first().map_or(self.horizon, |(at, _)| *at);
        self.next = self.horizon / WIDTH + 2;
        all
    }

    /// Whether the ring still has events at the horizon.
    #[inline]
    fn is_open(&self) -> bool {
        self.ring[(self.horizon % REACH) as usize].first != NONE
    }

    #[inline]
    fn put(&mut self, at: usize, event: E) {
        let slot = self.ring[at];
        let (latest, count) = slot.latest();
        if slot.first != NONE && count < CHUNK {
            self.chunks[latest as usize].events[count] = event;
            self.ring[at].latest += 1;
            return;
        }
        let chunk = Chunk { events: [event; CHUNK], next: NONE };
        let mut place = self.free;
        if place == NONE {
            place = self.chunks.len() as u32;
            self.chunks.push(chunk);
        } else {
            self.free = self.chunks[place as usize].next;
            self.chunks[place as usize] = chunk;
        }
        if slot.first == NONE {
            self.ring[at].first = place;
            self.occupied[at / 64] |= 1 << (at % 64);
        } else {
            self.chunks[latest as usize].next = place;
        }
        self.ring[at].latest = place << COUNT_BITS | 1;
    }

    /// Removes the next event and its time, ns, if it is no later than `until`.
    #[inline]
    pub fn pop(&mut self, until: u64) -> Option<(u64, E)> {
        if self.window.len() - self.front < AHEAD {
            self.refill();
        }
        let next = *self.window.get(self.front).filter(|(at, _)| *at <= until)?;
        self.front += 1;
        self.popped += 1;
        Some(next)
    }

    /// Time of the next event, ns.
    pub fn next_at(&mut self) -> Option<u64> {
        if self.front == self.window.len() {
            self.refill();
        }
        self.window.get(self.front).map(|(at, _)| *at)
    }

    /// The event that will come out after `n` others, if none is pushed in between. Only the near ones are visible.
    #[inline]
    pub fn coming(&self, n: usize) -> Option<E> {
        self.window.get(self.front + n).map(|(_, event)| *event)
    }

    /// All events in the queue, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        let near = self.ring.iter().filter(|slot| slot.first != NONE).flat_map(move |slot| {
            let (latest, count) = slot.latest();
            let next = move |chunk: &u32| (*chunk != latest).then(|| self.chunks[*chunk as usize].next);
            std::iter::successors(Some(slot.first), next).flat_map(move |chunk| {
                let count = if chunk == latest { count } else { CHUNK };
                &self.chunks[chunk as usize].events[..count]
            })
        });
        let far = self.buckets.iter().flatten().map(|(_, event)| event);
        let far = far.chain(self.far.iter().map(|Reverse(far)| &far.event));
        self.window[self.front..].iter().map(|(_, event)| event).chain(near).chain(far)
    }

    /// Moves the next events from the ring to the window: at least one, if the queue is not empty.
    fn refill(&mut self) {
        if self.front >= 4 * AHEAD || self.front == self.window.len() {
            self.window.drain(..self.front);
            self.front = 0;
        }
        while self.window.len() - self.front < AHEAD {
            if self.is_open() {
                self.take_chunk();
                continue;
            }
            let alone = self.front == self.window.len();
            match self.next_near(if alone { REACH } else { GAP }) {
                Some(at) => self.advance(at),
                None if alone && self.skip() => {}
                None => return,
            }
        }
    }

    /// Advances to the events at `at`, the next there are.
    #[inline]
    fn advance(&mut self, at: u64) {
        self.horizon = at;
        let soon = self.ring[(at as usize + SOON) % REACH as usize];
        if let Some(soon) = self.chunks.get(soon.first as usize) {
            fetch(soon);
        }
        if at / WIDTH + 2 > self.next {
            self.load();
        }
    }

    /// Advances to the next non-empty bucket; the ring is empty. Returns whether there is one.
    fn skip(&mut self) -> bool {
        let far = self.far.peek().map(|Reverse(far)| far.at / WIDTH);
        let Some(number) = self.next_filled().into_iter().chain(far).min() else { return false };
        self.next = number;
        self.load();
        self.horizon = self.horizon.max(number * WIDTH);
        true
    }

    /// Number of the first non-empty bucket.
    fn next_filled(&self) -> Option<u64> {
        let first = self.next % BUCKETS;
        // The word that holds `first` is examined twice: its upper part first, its lower part last.
        (0..=BUCKETS / 64).find_map(|i| {
            let word = (first / 64 + i) % (BUCKETS / 64);
            let upper = u64::MAX << (first % 64);
            let bits = self.filled[word as usize]
                & if i == 0 {
                    upper
                } else if i == BUCKETS / 64 {
                    !upper
                } else {
                    u64::MAX
                };
            let bucket = word * 64 + u64::from(bits.trailing_zeros());
            (bits != 0).then(|| self.next + (bucket + BUCKETS - first) % BUCKETS)
        })
    }

    /// Moves the events of the next bucket into the ring, which has none of that time yet: those of the heap first,
    /// since they were pushed first.
    fn load(&mut self) {
        let (number, bucket) = (self.next, (self.next % BUCKETS) as usize);
        self.next += 1;
        let far = |queue: &Self| queue.far.peek().is_some_and(|Reverse(far)| far.at / WIDTH == number);
        if !far(self) && self.buckets[bucket].is_empty() {
            return;
        }
        let mut events = std::mem::take(&mut self.buckets[bucket]);
        if far(self) {
            let pushed_later = events.len();
            while far(self) {
                let Some(Reverse(far)) = self.far.pop() else { break };
                events.push(((far.at % WIDTH) as u16, far.event));
            }
            events.rotate_left(pushed_later);
        }
        if E::PLACED {
            // Inserted events were pushed later, but may have a lower place.
            events.sort_by_key(|(after, event)| (*after, event.place()));
        }
        let begins = number * WIDTH % REACH;
        for (after, event) in events.drain(..) {
            self.put((begins + u64::from(after)) as usize, event);
        }
        self.buckets[bucket] = events;
        self.filled[bucket / 64] &= !(1 << (bucket % 64));
    }

    /// Takes the first chunk of events at the horizon out of the ring, and prefetches the next.
    #[inline]
    fn take_chunk(&mut self) {
        let (at, slot) = (self.horizon, (self.horizon % REACH) as usize);
        let first = self.ring[slot].first;
        let (latest, count) = self.ring[slot].latest();
        let chunk = &mut self.chunks[first as usize];
        let next = std::mem::replace(&mut chunk.next, self.free);
        self.free = first;
        if first == latest {
            self.window.extend(chunk.events[..count].iter().map(|event| (at, *event)));
            self.ring[slot] = Slot::EMPTY;
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        } else {
            self.window.extend(chunk.events.map(|event| (at, event)));
            self.ring[slot].first = next;
            fetch(&self.chunks[next as usize]);
        }
    }

    /// Time of the first non-empty slot of the ring, up to `within` ns after the horizon; `within` is a multiple of 64.
    #[inline]
    fn next_near(&self, within: u64) -> Option<u64> {
        let first = (self.horizon + 1) % REACH;
        let found = |word: u64, bits: u64| {
            let slot = word % WORDS * 64 + u64::from(bits.trailing_zeros());
            self.horizon + 1 + (slot + REACH - first) % REACH
        };
        // Of the word that holds `first`, the upper part is examined first; of the one `within` further, which may be
        // the same, the lower part is examined last.
        let (begins, upper) = (first / 64, u64::MAX << (first % 64));
        let bits = self.occupied[begins as usize] & upper;
        if bits != 0 {
            return Some(found(begins, bits));
        }
        let ends = begins + within / 64;
        let mut between = (begins + 1..ends).map(|word| (word, self.occupied[(word % WORDS) as usize]));
        if let Some((word, bits)) = between.find(|(_, bits)| *bits != 0) {
            return Some(found(word, bits));
        }
        let bits = self.occupied[(ends % WORDS) as usize] & !upper;
        (bits != 0).then(|| found(ends, bits))
    }
}

impl<E: Waiting> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue::new()
    }
}

impl<E: Waiting> Ord for Far<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.event.place(), self.order).cmp(&(other.at, other.event.place(), other.order))
    }
}

impl<E: Waiting> PartialOrd for Far<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E: Waiting> PartialEq for Far<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E: Waiting> Eq for Far<E> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Waiting for u64 {}

    /// An event with a place and a number.
    impl Waiting for (u64, u64) {
        const PLACED: bool = true;

        fn place(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn events_of_the_same_place_stay_in_order_when_another_is_inserted_before_them() {
        let mut queue = EventQueue::new();
        [(7, 1), (7, 2), (7, 3), (6, 4)].into_iter().for_each(|event| queue.insert(100, event));
        let order: Vec<u64> = queue.drain().into_iter().map(|(_, (_, id))| id).collect();
        assert_eq!(order, [4, 1, 2, 3]);
    }

    #[test]
    fn events_of_the_same_time_keep_their_order_through_heap_bucket_and_ring() {
        let mut queue = EventQueue::new();
        let at = 40_000_003;
        for (event, before) in [(1u64, at), (2, 30_000_000), (3, 100)] {
            if before < at {
                queue.push(at - before, 0);
                assert_eq!(queue.pop(at - before), Some((at - before, 0)));
            }
            queue.push(at, event);
        }
        assert_eq!(queue.far.len(), 0, "the ring has them all");
        assert_eq!(queue.drain(), [(at, 1), (at, 2), (at, 3)]);
    }

    proptest! {
        /// Compares with a sorted list. Places grow with time; some events are inserted at past places.
        #[test]
        fn inserted_events_come_at_their_place(
            steps in prop::collection::vec((0u8..7, 0u64..12, prop_oneof![0u64..3, 0u64..200, 0u64..40_000, 0u64..90_000_000]), 1..400)
        ) {
            let (mut queue, mut model, mut now, mut place) = (EventQueue::new(), Vec::new(), 0, 20u64);
            for (id, (what, back, after)) in (0u64..).zip(steps) {
                match what {
                    0..3 => {
                        place += 1;
                        queue.push(now + after, (place, id));
                        model.push((now + after, (place, id)));
                    }
                    3..5 => {
                        queue.insert(now + after, (place - back, id));
                        model.push((now + after, (place - back, id)));
                    }
                    _ => {
                        let Some(first) = model.iter().copied().min() else { continue };
                        model.retain(|&e| e != first);
                        // What is pushed from now on has a later place than what has come out.
                        if first.0 > now || first.1.0 > place - 12 {
                            place += 12;
                        }
                        now = first.0;
                        prop_assert_eq!(queue.pop(u64::MAX), Some(first));
                    }
                }
            }
            model.sort_unstable();
            prop_assert_eq!(&queue.drain(), &model);
            model.iter().for_each(|(at, event)| queue.push(*at, *event));
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.drain(), model);
        }

        /// Compares with a sorted list: steps of any length, some events at the very time being processed.
        #[test]
        fn events_come_in_order_of_time_and_then_of_pushing(
            steps in prop::collection::vec((0u8..4, prop_oneof![0u64..3, 0u64..200, 0u64..40_000, 0u64..2_000_000, 0u64..90_000_000]), 1..400)
        ) {
            let (mut queue, mut model, mut now, mut id) = (EventQueue::new(), Vec::new(), 0, 0u64);
            for (what, after) in steps {
                if what < 3 {
                    queue.push(now + after, id);
                    model.push((now + after, id));
                    id += 1;
                } else if let Some(first) = model.iter().copied().min() {
                    model.retain(|&e| e != first);
                    if first.0 > 0 {
                        prop_assert_eq!(queue.pop(first.0 - 1), None);
                    }
                    prop_assert_eq!(queue.pop(first.0), Some(first));
                    now = first.0;
                }
                prop_assert_eq!(queue.len(), model.len());
                let mut waiting: Vec<u64> = queue.iter().copied().collect();
                waiting.sort_unstable();
                prop_assert_eq!(waiting, model.iter().map(|(_, id)| *id).collect::<Vec<_>>());
            }
            model.sort_unstable();
            for at in 0..model.len() {
                prop_assert_eq!(queue.pop(u64::MAX), Some(model[at]));
                for n in 0..=AHEAD {
                    let coming = queue.coming(n);
                    prop_assert!(coming.is_none() || coming == model.get(at + 1 + n).map(|(_, id)| *id));
                }
            }
            prop_assert_eq!(queue.pop(u64::MAX), None);
        }
    }
}
