//! What happens when: the event queue of a simulated network, built for speed.
//!
//! Nearly all events of a network lie within a few microseconds of now: the end of a transmission, an arrival after a
//! propagation delay. They wait in a ring with a slot for each nanosecond, so that nothing is ever sorted. What lies up
//! to some tens of milliseconds ahead (the links of a wide area, timers) waits in buckets, each of which goes into the
//! ring as a whole in its time; what lies further ahead still, in a heap. Events of the same nanosecond come out in the
//! order they went in.
//!
//! The next few events are taken out of the ring before it is their turn: who works them off can see them coming
//! ([`EventQueue::coming`]) and fetch what they will need.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::prefetch::fetch;

/// ns that the ring reaches ahead.
const REACH: u64 = 1 << 14;
/// Words of the ring's bitmap.
const WORDS: u64 = REACH / 64;
/// ns of a bucket: the ring holds two, that of the horizon and the next.
const WIDTH: u64 = REACH / 2;
/// Buckets, which reach 33 ms ahead; a multiple of 64.
const BUCKETS: u64 = 1 << 12;
/// Events of a chunk, 7 at most: with the number of the next chunk, five of 12 bytes make one line of the cache.
const CHUNK: usize = 5;
/// Bits of a slot for the number of events in its latest chunk.
const COUNT_BITS: u32 = 3;
/// No chunk.
const NONE: u32 = u32::MAX;
/// So many events are taken out ahead of their turn, as long as the next is not further away than [`GAP`].
const AHEAD: usize = 16;
/// ns after the last event taken out, for which the cache is told already.
const SOON: usize = 16;
/// ns; one word of the ring's bitmap.
const GAP: u64 = 64;

/// What waits in an [`EventQueue`].
pub trait Waiting: Copy {
    /// Events with a place do not always come in the order in which they are pushed: see [`EventQueue::insert`].
    const PLACED: bool = false;

    /// Of events of the same nanosecond one with a lower place comes first; of the same place, the one pushed first.
    #[inline]
    fn place(&self) -> u64 {
        0
    }
}

/// Some events of one slot, and the chunk with those pushed after them.
#[derive(Copy, Clone, Debug)]
#[repr(align(64))]
struct Chunk<E> {
    events: [E; CHUNK],
    next: u32,
}

/// The events of one ns: the chunk with the first of them, or [`NONE`], and the latest chunk with the number of events
/// in it in its lowest bits.
#[derive(Copy, Clone, Debug)]
struct Slot {
    first: u32,
    latest: u32,
}

impl Slot {
    const EMPTY: Slot = Slot { first: NONE, latest: 0 };

    /// The latest chunk and how many events are in it.
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
    /// What comes next, in order: from `front` on.
    window: Vec<(u64, E)>,
    front: usize,
    /// All events before this time are in the window, and the first of those at it. The slot of this time has the rest.
    horizon: u64,
    /// The events of each ns from the horizon on, and which slots have some.
    ring: Vec<Slot>,
    occupied: Box<[u64; WORDS as usize]>,
    chunks: Vec<Chunk<E>>,
    free: u32,
    /// The number, counted from time 0, of the first bucket that is not in the ring.
    next: u64,
    /// Events of this bucket and those after it, as they were pushed, each with the ns since its bucket began; and
    /// which buckets have some.
    buckets: Vec<Vec<(u16, E)>>,
    filled: Vec<u64>,
    /// What lies behind the buckets. All of it was pushed before anything of the same bucket that is in `buckets`.
    far: BinaryHeap<Reverse<Far<E>>>,
    pushed: u64,
    popped: u64,
}

impl<E: Waiting> EventQueue<E> {
    /// Nothing to do, at time 0.
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

    /// Events that wait.
    pub fn len(&self) -> usize {
        (self.pushed - self.popped) as usize
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Events that were ever pushed.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Adds an event at `at` ns, no earlier than the last that came out.
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

    /// Adds an event that the ring does not reach yet.
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

    /// Adds an event at `at` ns where its place is among those that wait: no earlier than the last that came out, and
    /// after all events of the same time with the same place.
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
        // Those behind it move up by one each.
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

    /// Takes all events out, in order. None that is pushed afterwards is earlier than the first of them.
    pub fn drain(&mut self) -> Vec<(u64, E)> {
        let mut all = Vec::with_capacity(self.len());
        while let Some(next) = self.pop(u64::MAX) {
            all.push(next);
        }
        // What is pushed again is not behind the horizon.
        self.window.clear();
        self.front = 0;
        self.horizon = all.first().map_or(self.horizon, |(at, _)| *at);
        self.next = self.horizon / WIDTH + 2;
        all
    }

    /// Whether events at the horizon are left in the ring.
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

    /// The next event and its time, ns, if that is no later than `until`.
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

    /// When the next event is due, ns.
    pub fn next_at(&mut self) -> Option<u64> {
        if self.front == self.window.len() {
            self.refill();
        }
        self.window.get(self.front).map(|(at, _)| *at)
    }

    /// The event that is going to come after `n` others, if nothing comes between. What is not near is not seen.
    #[inline]
    pub fn coming(&self, n: usize) -> Option<E> {
        self.window.get(self.front + n).map(|(_, event)| *event)
    }

    /// All events that wait, in no particular order.
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

    /// Takes the next events out of the ring: one at least, if there is any anywhere.
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

    /// Goes on to the events at `at`, the next there are.
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

    /// Goes on to the next bucket that has events, of which the ring has none. Returns whether there is one.
    fn skip(&mut self) -> bool {
        let far = self.far.peek().map(|Reverse(far)| far.at / WIDTH);
        let Some(number) = self.next_filled().into_iter().chain(far).min() else { return false };
        self.next = number;
        self.load();
        self.horizon = self.horizon.max(number * WIDTH);
        true
    }

    /// The number of the first bucket that has events.
    fn next_filled(&self) -> Option<u64> {
        let first = self.next % BUCKETS;
        // The word that holds `first` comes twice: its upper part now, its lower part last.
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

    /// Moves the events of the next bucket into the ring, in which nothing of its time is yet: those of the heap first,
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
            // What was inserted came later, and may have a lower place.
            events.sort_by_key(|(after, event)| (*after, event.place()));
        }
        let begins = number * WIDTH % REACH;
        for (after, event) in events.drain(..) {
            self.put((begins + u64::from(after)) as usize, event);
        }
        self.buckets[bucket] = events;
        self.filled[bucket / 64] &= !(1 << (bucket % 64));
    }

    /// Takes the first chunk of events at the horizon out of the ring, and has the cache told of the next.
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

    /// The time of the first slot of the ring that is not empty, of those up to `within` ns after the horizon, a
    /// multiple of 64.
    #[inline]
    fn next_near(&self, within: u64) -> Option<u64> {
        let first = (self.horizon + 1) % REACH;
        let found = |word: u64, bits: u64| {
            let slot = word % WORDS * 64 + u64::from(bits.trailing_zeros());
            self.horizon + 1 + (slot + REACH - first) % REACH
        };
        // Of the word that holds `first` the upper part comes now; of the one `within` further, which may be the same,
        // the lower part last.
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
        /// Against a sorted list. Places grow, as time does; some events are inserted at places that are past.
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
                        // What comes from now on has a later place than what came.
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

        /// Against a sorted list: steps of any length, some events at the very moment that is being worked off.
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
