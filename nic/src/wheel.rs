//! A hierarchical timing wheel: one pending deadline for each of many small ids (queue pairs).
//!
//! Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987), scheme 7, with two changes. The level of a
//! timer follows from the highest base-64 digit in which its tick differs from the wheel's, so eleven levels span all
//! of 64-bit time and nothing overflows. And every timer keeps its exact deadline, so none fires early or late,
//! whatever the tick: the tick only decides how much sorting is left to the end.

use irnic_transports::Time;

/// Slots of one level, each a bit of the level's bitmap.
const SLOTS: usize = 64;
const DIGIT_BITS: u32 = 6;
/// Base-64 digits of a 64-bit tick.
const LEVELS: usize = 11;
/// Index of the list of due timers that were taken out of their slots, in the order in which they are returned.
const DUE: u16 = (LEVELS * SLOTS) as u16;
/// Marks a timer that is in no list.
const IDLE: u16 = u16::MAX;
const NIL: u32 = u32::MAX;

#[derive(Copy, Clone, Debug)]
struct Timer {
    at: Time,
    /// Neighbours in a circular list.
    next: u32,
    prev: u32,
    /// `level * SLOTS + slot`, [`DUE`] or [`IDLE`].
    list: u16,
}

const UNUSED: Timer = Timer { at: Time::NEVER, next: NIL, prev: NIL, list: IDLE };

/// A set of deadlines, at most one per id. Scheduling and cancelling are O(1). Storage grows to the largest id seen;
/// nothing is allocated after that.
#[derive(Debug)]
#[repr(C)]
pub struct Wheel {
    /// Result of [`Self::next_deadline`].
    next: Time,
    start: Time,
    tick_shift: u32,
    /// The tick that the slots are relative to: no timer is before it.
    current: u64,
    timers: Vec<Timer>,
    heads: [u32; LEVELS * SLOTS + 1],
    /// Bitmaps of occupied slots, by level.
    occupied: [u64; LEVELS],
    /// Bitmap of occupied levels.
    levels: u16,
    /// Lower bound of the deadlines in each slot of level 0.
    earliest: [Time; SLOTS],
    /// The earliest deadline that entered the due list.
    due_since: Time,
    len: usize,
}

impl Wheel {
    /// Bytes per id.
    pub const BYTES_EACH: usize = size_of::<Timer>();

    /// Creates an empty wheel whose time begins at `start`. `tick_ns` is the sorting granularity in ns, rounded down to
    /// a power of two (0 is treated as 1). It does not limit the precision of timers.
    pub fn new(start: Time, tick_ns: u64) -> Wheel {
        Wheel {
            next: Time::NEVER,
            start,
            tick_shift: tick_ns.max(1).ilog2(),
            current: 0,
            timers: Vec::new(),
            heads: [NIL; LEVELS * SLOTS + 1],
            occupied: [0; LEVELS],
            levels: 0,
            earliest: [Time::NEVER; SLOTS],
            due_since: Time::NEVER,
            len: 0,
        }
    }

    /// Returns the bytes that adding an id may allocate.
    pub fn growth(&self) -> usize {
        irnic_transports::room::growth(&self.timers)
    }

    /// Makes room for ids below `ids`, so that scheduling them does not allocate.
    pub fn reserve(&mut self, ids: u32) {
        if self.timers.len() < ids as usize {
            self.timers.resize(ids as usize, UNUSED);
        }
    }

    /// Sets the deadline of `id`, replacing the previous one. [`Time::NEVER`] cancels it. Ids should be small and
    /// dense: memory is proportional to the largest one.
    pub fn schedule(&mut self, id: u32, at: Time) {
        self.cancel(id);
        if at == Time::NEVER {
            return;
        }
        if id as usize >= self.timers.len() {
            self.timers.resize(id as usize + 1, UNUSED);
        }
        self.timers[id as usize].at = at;
        self.len += 1;
        self.place(id);
        self.next = self.soonest();
    }

    /// Cancels the deadline of `id`, if it has one.
    pub fn cancel(&mut self, id: u32) {
        if self.deadline(id).is_some() {
            self.unlink(id);
            self.len -= 1;
            self.next = self.soonest();
        }
    }

    /// Returns the deadline of `id`; `None` if it has none.
    pub fn deadline(&self, id: u32) -> Option<Time> {
        self.timers.get(id as usize).filter(|t| t.list != IDLE).map(|t| t.at)
    }

    /// Returns the number of ids with a deadline.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no id has a deadline.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns when to call [`Wheel::pop_due`] next: never later than the earliest deadline, [`Time::NEVER`] if there
    /// is none.
    ///
    /// The result is exact for the 64 ticks around now, except that it may be the time of a cancelled timer of the same
    /// tick; further ahead it is the beginning of the slot. A call at that time that returns nothing brings the result
    /// closer, so a loop that sleeps until then always makes progress.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        self.next
    }

    /// Computes the time of [`Self::next_deadline`] after a change.
    fn soonest(&self) -> Time {
        if self.heads[DUE as usize] != NIL {
            return self.due_since;
        }
        match self.first_slot() {
            None => Time::NEVER,
            Some((0, slot)) => self.earliest[slot],
            Some((level, slot)) => self.time_of(self.tick_of_slot(level, slot)),
        }
    }

    /// Removes and returns an id whose deadline is not after `now`; call it until it returns `None`. Earlier ticks come
    /// first; the order within a tick is arbitrary but reproducible. Ids may be scheduled and cancelled between calls;
    /// an id rescheduled at or before `now` is returned again.
    pub fn pop_due(&mut self, now: Time) -> Option<u32> {
        if self.heads[DUE as usize] == NIL {
            self.advance(now);
        }
        let id = self.heads[DUE as usize];
        if id == NIL {
            self.next = self.soonest();
            return None;
        }
        self.cancel(id);
        Some(id)
    }

    /// Moves the wheel to `now`, or to the first tick before it with due timers, which are moved to the due list.
    fn advance(&mut self, now: Time) {
        let target = self.tick_at(now).max(self.current);
        while let Some((level, slot)) = self.first_slot() {
            let tick = self.tick_of_slot(level, slot);
            if tick > target {
                break;
            }
            self.current = tick;
            if level > 0 {
                self.cascade(level, slot);
            } else if self.earliest[slot] > now {
                return;
            } else {
                self.collect(slot, now);
                if self.heads[DUE as usize] != NIL {
                    return;
                }
            }
        }
        self.current = target;
    }

    /// Distributes the timers of a slot that the wheel has reached over the levels below.
    fn cascade(&mut self, level: usize, slot: usize) {
        let list = level * SLOTS + slot;
        while self.heads[list] != NIL {
            let id = self.heads[list];
            self.unlink(id);
            self.place(id);
        }
    }

    /// Moves due timers from a slot of level 0 to the due list.
    fn collect(&mut self, slot: usize, now: Time) {
        let mut left = Time::NEVER;
        self.due_since = Time::NEVER;
        let mut id = self.heads[slot];
        let last = self.timers[id as usize].prev;
        loop {
            let Timer { at, next, .. } = self.timers[id as usize];
            if at <= now {
                self.due_since = self.due_since.min(at);
                self.unlink(id);
                self.link(id, DUE);
            } else {
                left = left.min(at);
            }
            if id == last {
                break;
            }
            id = next;
        }
        self.earliest[slot] = left;
    }

    /// Returns the occupied slot that time reaches first. Levels do not overlap: every slot of a lower level comes
    /// before those of the higher ones.
    fn first_slot(&self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// Returns the first tick of a slot.
    fn tick_of_slot(&self, level: usize, slot: usize) -> u64 {
        let shift = level as u32 * DIGIT_BITS;
        let above = self.current.checked_shr(shift + DIGIT_BITS).unwrap_or(0);
        above.checked_shl(shift + DIGIT_BITS).unwrap_or(0) | (slot as u64) << shift
    }

    fn tick_at(&self, at: Time) -> u64 {
        at.since(self.start) >> self.tick_shift
    }

    fn time_of(&self, tick: u64) -> Time {
        self.start + (tick << self.tick_shift)
    }

    /// Puts an unlinked timer into the slot of its deadline. An overdue one goes to the current tick.
    fn place(&mut self, id: u32) {
        let at = self.timers[id as usize].at;
        let tick = self.tick_at(at).max(self.current);
        let level = (tick ^ self.current).checked_ilog2().map_or(0, |bit| bit / DIGIT_BITS);
        let slot = (tick >> (level * DIGIT_BITS)) as usize % SLOTS;
        let level = level as usize;
        if level == 0 {
            let bit = self.occupied[0] >> slot & 1;
            self.earliest[slot] = if bit == 0 { at } else { self.earliest[slot].min(at) };
        }
        self.occupied[level] |= 1 << slot;
        self.levels |= 1 << level;
        self.link(id, (level * SLOTS + slot) as u16);
    }

    fn link(&mut self, id: u32, list: u16) {
        let head = self.heads[list as usize];
        let (next, prev) = if head == NIL {
            self.heads[list as usize] = id;
            (id, id)
        } else {
            let tail = self.timers[head as usize].prev;
            self.timers[tail as usize].next = id;
            self.timers[head as usize].prev = id;
            (head, tail)
        };
        let timer = &mut self.timers[id as usize];
        (timer.next, timer.prev, timer.list) = (next, prev, list);
    }

    fn unlink(&mut self, id: u32) {
        let Timer { next, prev, list, .. } = self.timers[id as usize];
        self.timers[id as usize].list = IDLE;
        if next != id {
            self.timers[prev as usize].next = next;
            self.timers[next as usize].prev = prev;
            if self.heads[list as usize] == id {
                self.heads[list as usize] = next;
            }
            return;
        }
        self.heads[list as usize] = NIL;
        if list != DUE {
            let (level, slot) = (list as usize / SLOTS, list as usize % SLOTS);
            self.occupied[level] &= !(1 << slot);
            if self.occupied[level] == 0 {
                self.levels &= !(1 << level);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn drain(wheel: &mut Wheel, now: Time) -> Vec<u32> {
        std::iter::from_fn(|| wheel.pop_due(now)).collect()
    }

    #[test]
    fn an_empty_wheel_has_nothing_to_wait_for() {
        let mut wheel = Wheel::new(Time(5), 1000);
        assert_eq!(wheel.next_deadline(), Time::NEVER);
        assert_eq!(wheel.pop_due(Time::NEVER), None);
        assert!(wheel.is_empty());
    }

    #[test]
    fn a_timer_fires_at_its_deadline_and_not_a_nanosecond_earlier() {
        for at in [0, 1, 999, 1024, 65_535, 65_536, 1 << 30, (1 << 47) + 3, u64::MAX - 1] {
            let mut wheel = Wheel::new(Time::ZERO, 1024);
            wheel.schedule(7, Time(at));
            if at > 0 {
                assert_eq!(wheel.pop_due(Time(at - 1)), None, "{at}");
            }
            assert_eq!(wheel.next_deadline(), Time(at));
            assert_eq!(drain(&mut wheel, Time(at)), [7]);
            assert_eq!(wheel.next_deadline(), Time::NEVER);
        }
    }

    #[test]
    fn scheduling_again_replaces_and_cancelling_forgets() {
        let mut wheel = Wheel::new(Time::ZERO, 1);
        wheel.schedule(0, Time(10));
        wheel.schedule(0, Time(500));
        wheel.schedule(1, Time(20));
        wheel.schedule(2, Time(30));
        wheel.cancel(1);
        wheel.cancel(99);
        wheel.schedule(2, Time::NEVER);
        assert_eq!(wheel.len(), 1);
        assert_eq!(wheel.deadline(0), Some(Time(500)));
        assert_eq!(wheel.deadline(1), None);
        assert_eq!(drain(&mut wheel, Time(499)), [0; 0]);
        assert_eq!(drain(&mut wheel, Time(500)), [0]);
    }

    #[test]
    fn ids_can_be_scheduled_and_cancelled_while_due_ones_are_taken() {
        let mut wheel = Wheel::new(Time::ZERO, 1);
        for id in 0..4 {
            wheel.schedule(id, Time(100));
        }
        assert_eq!(wheel.pop_due(Time(100)), Some(0));
        wheel.schedule(0, Time(200));
        wheel.cancel(1);
        wheel.schedule(2, Time(150));
        assert_eq!(wheel.next_deadline(), Time(100));
        assert_eq!(drain(&mut wheel, Time(100)), [3]);
        assert_eq!(drain(&mut wheel, Time(1000)), [2, 0]);
    }

    #[test]
    fn a_deadline_already_past_is_due_at_once() {
        let mut wheel = Wheel::new(Time(1 << 40), 64);
        assert_eq!(wheel.pop_due(Time(1 << 41)), None);
        wheel.schedule(3, Time(12));
        assert_eq!(wheel.next_deadline(), Time(12));
        assert_eq!(drain(&mut wheel, Time(1 << 41)), [3]);
    }

    #[test]
    fn sleeping_until_next_deadline_reaches_a_far_timer_in_few_steps() {
        let mut wheel = Wheel::new(Time(77), 1);
        let at = Time(77 + (1 << 48) - 1);
        wheel.schedule(0, at);
        let mut steps = 0;
        loop {
            let now = wheel.next_deadline();
            assert!(now <= at);
            steps += 1;
            if wheel.pop_due(now).is_some() {
                assert_eq!(now, at);
                break;
            }
            assert!(wheel.next_deadline() > now);
        }
        assert!(steps <= 8, "{steps}");
    }

    #[test]
    fn ids_that_were_seen_allocate_nothing() {
        let mut wheel = Wheel::new(Time::ZERO, 1024);
        wheel.reserve(64);
        let storage = wheel.timers.as_ptr();
        for round in 0..1000u64 {
            for id in 0..64 {
                wheel.schedule(id, Time(round * 5_000 + u64::from(id) * 777));
            }
            drain(&mut wheel, Time(round * 4_000));
        }
        assert_eq!(wheel.timers.as_ptr(), storage);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Schedule(u32, u64),
        Cancel(u32),
        Run(u64),
        RunToNext,
    }

    fn op() -> impl Strategy<Value = Op> {
        let span = || prop_oneof![0..200u64, 0..100_000u64, 0..1u64 << 40, 0..1u64 << 50];
        prop_oneof![
            4 => (0..40u32, span()).prop_map(|(id, at)| Op::Schedule(id, at)),
            1 => (0..40u32).prop_map(Op::Cancel),
            2 => span().prop_map(Op::Run),
            2 => Just(Op::RunToNext),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_an_ordered_map(
            start in prop_oneof![Just(0u64), 0..1u64 << 45],
            tick in prop_oneof![Just(1u64), Just(64), Just(1000), Just(1 << 20)],
            ops in prop::collection::vec(op(), 1..200),
        ) {
            let mut wheel = Wheel::new(Time(start), tick);
            let mut model: BTreeMap<u32, Time> = BTreeMap::new();
            let mut now = Time(start);
            for op in ops {
                match op {
                    Op::Schedule(id, after) => {
                        // Some of them lie before now.
                        let at = Time((now.0 + after).saturating_sub(50));
                        wheel.schedule(id, at);
                        model.insert(id, at);
                    }
                    Op::Cancel(id) => {
                        wheel.cancel(id);
                        model.remove(&id);
                    }
                    Op::Run(_) | Op::RunToNext => {
                        let before = now;
                        now = match op {
                            Op::Run(ns) => now + ns,
                            _ if model.is_empty() => now,
                            _ => wheel.next_deadline().max(now),
                        };
                        let fired = drain(&mut wheel, now);
                        // A deadline overdue when scheduled counts as of the wheel's tick at that time.
                        let ticks = fired.iter().map(|id| model[id].max(before).since(Time(start)) >> tick.ilog2());
                        prop_assert!(ticks.is_sorted());
                        let mut fired = fired;
                        fired.sort_unstable();
                        let due: Vec<u32> = model.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
                        prop_assert_eq!(fired, due);
                        model.retain(|_, at| *at > now);
                        prop_assert!(model.is_empty() || wheel.next_deadline() > now);
                    }
                }
                let earliest = model.values().min().copied().unwrap_or(Time::NEVER);
                prop_assert!(wheel.next_deadline() <= earliest);
                prop_assert_eq!(model.is_empty(), wheel.next_deadline() == Time::NEVER);
                prop_assert_eq!(wheel.len(), model.len());
            }
        }
    }
}
