//! One queue of pulls for all queue pairs of a NIC, and its pacing (NDP §3.2).
//!
//! Any number of senders together send what one link can take: pulls are spaced as full packets arrive on it. Queue
//! pairs take turns within a class; lower classes go first.

use std::collections::VecDeque;

use irnic_transports::Time;

/// Queue pairs, by their index in the NIC, that owe pulls.
#[derive(Debug)]
pub(crate) struct Pulls {
    pub(crate) rings: [VecDeque<u32>; Pulls::CLASSES],
    pub(crate) waiting: usize,
    /// Earliest time of the next pull: ns, and ps of the next one.
    pub(crate) open: Time,
    pub(crate) ps: u64,
    /// `open`, rounded up, while any queue pair waits.
    pub(crate) deadline: Time,
}

impl Default for Pulls {
    fn default() -> Self {
        Pulls { rings: Default::default(), waiting: 0, open: Time::ZERO, ps: 0, deadline: Time::NEVER }
    }
}

impl Pulls {
    pub(crate) const CLASSES: usize = 8;
    /// Maximum number of pulls by which a late timer catches up. The rest is skipped, so that senders are not asked for
    /// a burst.
    const BURST: u64 = 8;

    /// Makes room for another queue pair of a class.
    pub(crate) fn reserve(&mut self, class: u8, queue_pairs: usize) {
        let ring = &mut self.rings[usize::from(class) % Self::CLASSES];
        ring.reserve(queue_pairs.saturating_sub(ring.len()));
    }

    /// Returns the time at which [`Self::pop_due`] has a pull.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Returns whether a pull may leave at once, with its response: none waits, and the interval since the last has
    /// passed.
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        self.waiting == 0 && (self.open < now || self.open == now && self.ps == 0)
    }

    /// Appends a queue pair, which must not be in the queue.
    pub(crate) fn push(&mut self, index: u32, class: u8) {
        self.rings[usize::from(class) % Self::CLASSES].push_back(index);
        self.waiting += 1;
        self.set_deadline();
    }

    /// Takes the queue pair whose pull is due.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u32> {
        if self.deadline > now {
            return None;
        }
        let index = self.rings.iter_mut().find_map(VecDeque::pop_front);
        self.waiting -= usize::from(index.is_some());
        self.set_deadline();
        index
    }

    /// Accounts for a pull at `now`; the next one may leave `interval` ps later. If `late`, the pull has waited, and
    /// the delay is made up for.
    pub(crate) fn spend(&mut self, now: Time, interval: u64, late: bool) {
        let most = if late { (Self::BURST * interval) / 1000 } else { 0 };
        if now.since(self.open) > most {
            (self.open, self.ps) = (Time(now.0.saturating_sub(most)), 0);
        }
        let ps = self.ps + interval;
        self.open += ps / 1000;
        self.ps = ps % 1000;
        self.set_deadline();
    }

    /// Removes a queue pair.
    pub(crate) fn remove(&mut self, index: u32) {
        for ring in &mut self.rings {
            ring.retain(|&waiting| waiting != index);
        }
        self.waiting = self.rings.iter().map(VecDeque::len).sum();
        self.set_deadline();
    }

    fn set_deadline(&mut self) {
        self.deadline = if self.waiting == 0 { Time::NEVER } else { self.open + u64::from(self.ps > 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_are_as_far_apart_as_packets() {
        let mut pulls = Pulls::default();
        let mut now = Time(1_000);
        assert!(pulls.is_idle(now));
        pulls.spend(now, 3_333, false);
        assert!(!pulls.is_idle(now + 3) && pulls.is_idle(now + 4));
        (0..3).for_each(|index| pulls.push(index, 0));
        let mut times = Vec::new();
        for _ in 0..30 {
            now = pulls.deadline();
            let index = pulls.pop_due(now).expect("a pull is due");
            pulls.spend(now, 3_333, true);
            pulls.push(index, 0);
            times.push((now.0 - 1_000, index));
        }
        // 3.333 ns each, rounded up; in turn.
        let expected: Vec<_> = (1..=30).map(|n| ((n * 3_333_u64).div_ceil(1_000), (n as u32 - 1) % 3)).collect();
        assert_eq!(times, expected);
    }

    #[test]
    fn lower_classes_go_first_and_a_late_timer_catches_up_with_a_few() {
        let mut pulls = Pulls::default();
        for (index, class) in [(1, 7), (2, 0), (3, 7), (4, 1)] {
            pulls.push(index, class);
        }
        pulls.remove(3);
        pulls.spend(Time(100), 10_000, false);
        let now = Time(1_000);
        let mut order = Vec::new();
        while let Some(index) = pulls.pop_due(now) {
            pulls.spend(now, 10_000, true);
            order.push(index);
        }
        assert_eq!((order, pulls.deadline()), (vec![2, 4, 1], Time::NEVER));
        (0..20).for_each(|index| pulls.push(index, 0));
        let late = Time(10_000);
        let mut caught_up = 0;
        while pulls.pop_due(late).is_some() {
            pulls.spend(late, 10_000, true);
            caught_up += 1;
        }
        assert_eq!(caught_up, Pulls::BURST + 1);
    }
}
