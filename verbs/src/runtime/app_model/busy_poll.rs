//! How long the background thread polls before it sleeps.
//!
//! Sleeping and waking up cost two task switches, and the waker a system call: for each burst, if an application leaves
//! the work to the thread. So the thread continues to poll for a time after the last packet, by the rules of KVM's halt
//! polling (Linux, Documentation/virt/kvm/halt-polling.rst): longer if longer polling would have avoided the last
//! sleep, not at all once packets are further apart than the longest time. While it finds nothing it yields its core;
//! if other threads take it, it sleeps as before.

use irnic_transports::Time;
use irnic_transports::time::{MS, SEC, US};

use super::intervals::POLL_INTERVAL;

/// Longest polling time after the last packet, ns, and the first one.
const LONGEST: u64 = 200 * US;
const FIRST: u64 = 10 * US;
/// A `sched_yield` that took this long, ns, has let a thread run that computes or polls itself; a thread that only
/// works now and then gets the core between two polls.
const TAKEN: u64 = 500 * US;
/// How long polling is suspended after another thread took the core, ns: doubled each time in a row.
const REST: u64 = MS;
const LONGEST_REST: u64 = SEC;
/// Initial time for which the thread leaves the unit to an application, ns.
const ASIDE: u64 = 50 * US;

/// When to continue polling, and when to sleep.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct BusyPoll {
    /// Polling time, ns, if configured; nothing is learnt then.
    fixed: Option<u64>,
    /// Polling time after the last packet, ns.
    window: u64,
    last_moved: Time,
    /// Other threads wanted the core: polling is suspended until then.
    rest_until: Time,
    rest: u64,
    /// Time for which the unit is left to an application next, ns.
    aside: u64,
}

impl BusyPoll {
    /// Returns the rules for a thread that polls for `fixed` ns; `None`: adaptive.
    pub(in crate::runtime) fn new(fixed: Option<u64>) -> BusyPoll {
        BusyPoll { fixed, window: 0, last_moved: Time::ZERO, rest_until: Time::ZERO, rest: REST, aside: ASIDE }
    }

    /// Records that the port ended a sleep.
    pub(in crate::runtime) fn woken(&mut self, now: Time) {
        self.window = match now.since(self.last_moved) {
            // Polling ended too early for it, or had been given up.
            idle if idle <= LONGEST => (2 * self.window).clamp(FIRST, LONGEST),
            _ => 0,
        };
    }

    /// Records that packets moved.
    #[inline]
    pub(in crate::runtime) fn moved(&mut self, now: Time) {
        self.last_moved = now;
        self.aside = ASIDE;
    }

    /// Returns how long to leave the unit to an application that may stop polling at any time, ns: longer each time in
    /// a row, since it continues to poll and a check costs it the core. Not longer if the thread was woken: there is
    /// work if the application stops.
    pub(in crate::runtime) fn keep_aside(&mut self, woken: bool) -> u64 {
        let aside = if woken { ASIDE } else { self.aside };
        self.aside = (2 * aside).min(POLL_INTERVAL);
        aside
    }

    /// Returns whether to poll again rather than sleep.
    #[inline]
    pub(in crate::runtime) fn goes_on(&self, now: Time) -> bool {
        let window = self.fixed.unwrap_or(if now < self.rest_until { 0 } else { self.window });
        now.since(self.last_moved) < window
    }

    /// Returns whether polling yields the core to other threads: not if its time is configured.
    pub(in crate::runtime) fn yields(&self) -> bool {
        self.fixed.is_none()
    }

    /// Records that a core yielded at `before` was regained at `after`.
    pub(in crate::runtime) fn yielded(&mut self, before: Time, after: Time) {
        if after.since(before) >= TAKEN {
            self.rest_until = after + self.rest;
            self.rest = (2 * self.rest).min(LONGEST_REST);
        } else if after >= self.rest_until + self.rest {
            self.rest = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_longer_as_long_as_that_would_have_saved_a_sleep() {
        let mut poll = BusyPoll::new(None);
        let mut now = Time(SEC);
        poll.moved(now);
        assert!(!poll.goes_on(now), "nothing is known yet");
        for window in [10, 20, 40, 80, 160, 200, 200] {
            now += 199 * US;
            poll.woken(now);
            poll.moved(now);
            assert!(poll.goes_on(now + (window * US - 1)) && !poll.goes_on(now + window * US), "{window}");
        }
        now += LONGEST + 1;
        poll.woken(now);
        poll.moved(now);
        assert!(!poll.goes_on(now));
    }

    #[test]
    fn rests_longer_each_time_that_others_take_the_core() {
        let mut poll = BusyPoll::new(None);
        let mut now = Time(SEC);
        poll.moved(now);
        poll.woken(now);
        assert!(poll.goes_on(now));
        poll.yielded(now, now + (TAKEN - 1));
        assert!(poll.goes_on(now));
        for rest in [MS, 2 * MS, 4 * MS] {
            poll.yielded(now, now + TAKEN);
            now += TAKEN + rest;
            poll.moved(now - 1);
            assert!(!poll.goes_on(now - 1), "{rest}");
            poll.moved(now);
            assert!(poll.goes_on(now), "{rest}");
        }
        // After as much undisturbed time as its next rest, it begins with short rests again.
        now += 8 * MS;
        poll.yielded(now, now);
        poll.yielded(now, now + TAKEN);
        poll.moved(now + TAKEN + MS);
        assert!(poll.goes_on(now + TAKEN + MS));
    }

    #[test]
    fn keeps_out_of_the_way_longer_while_the_application_is_inside() {
        let mut poll = BusyPoll::new(None);
        let mut kept =
            || std::iter::repeat_with(|| poll.keep_aside(false)).take(7).map(|ns| ns / US).collect::<Vec<_>>();
        assert_eq!(kept(), [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!([true, true, false].map(|woken| poll.keep_aside(woken) / US), [50, 50, 100]);
        poll.moved(Time(SEC));
        assert_eq!(poll.keep_aside(false), 50 * US);
    }

    #[test]
    fn does_as_it_is_told() {
        for (fixed, goes_on) in [(0, false), (SEC, true)] {
            let mut poll = BusyPoll::new(Some(fixed));
            poll.moved(Time(SEC));
            poll.woken(Time(SEC));
            assert!(!poll.yields());
            assert_eq!(poll.goes_on(Time(2 * SEC - 1)), goes_on);
        }
    }
}
