//! Applications that take completions and then look for arrivals in memory, without a call.
//!
//! A request that is complete once it has left (UC), or was not signaled, gives such an application no reason to poll
//! until the arrival. The background thread would have to be woken for each one. So once the application has shown the
//! pattern, a poll that takes completions also waits for the arrival, for at most [`PATIENCE`].

use irnic_transports::Time;
use irnic_transports::time::{MS, US};

/// Number of consecutive calls soon after an arrival that show the pattern.
const SHOWN: u8 = 8;
/// Longest time between completions and arrival, ns: a wake-up of the background thread, and its peer's. Longest time
/// until the application has seen the arrival.
const SOON: u64 = 200 * US;
/// How long a poll waits, ns: at first the peer needs a wake-up, too.
const PATIENCE: u64 = 200 * US;
/// How long polls do not wait after the first one in vain, and at most, ns.
const FIRST_HOLD: u64 = 5 * MS;
const LONGEST_HOLD: u64 = 640 * MS;

/// What is known of the application.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct MemoryWatch {
    /// When it last took completions, and when packets arrived after that; 0 if it has made another call since, or if
    /// none did.
    took: Time,
    arrived: Time,
    /// Consecutive calls soon after an arrival, up to [`SHOWN`].
    shown: u8,
    /// Polls do not wait before.
    from: Time,
    hold: u64,
}

impl Default for MemoryWatch {
    fn default() -> MemoryWatch {
        let never = Time::ZERO;
        MemoryWatch { took: never, arrived: never, shown: 0, from: never, hold: FIRST_HOLD }
    }
}

impl MemoryWatch {
    /// Returns whether the application has shown the pattern.
    #[inline]
    pub(in crate::runtime) fn is_shown(&self) -> bool {
        self.shown == SHOWN
    }

    /// Records that the application took completions.
    #[inline]
    pub(in crate::runtime) fn took(&mut self, now: Time) {
        (self.took, self.arrived) = (now, Time::ZERO);
    }

    /// Records that packets have arrived outside of polls.
    #[inline]
    pub(in crate::runtime) fn arrived(&mut self, now: Time) {
        if self.arrived == Time::ZERO {
            self.arrived = now;
        }
    }

    /// Records a post.
    #[inline]
    pub(in crate::runtime) fn posted(&mut self, now: Time) {
        let took = std::mem::replace(&mut self.took, Time::ZERO);
        if took == Time::ZERO {
            return;
        }
        let watched = self.arrived > Time::ZERO && self.arrived.since(took) < SOON && now.since(self.arrived) < SOON;
        self.shown = if watched { (self.shown + 1).min(SHOWN) } else { 0 };
    }

    /// Returns until when a poll that has taken completions waits for packets; in the past if it does not.
    pub(in crate::runtime) fn waits_until(&self, now: Time) -> Time {
        if self.is_shown() && now >= self.from { now + PATIENCE } else { Time::ZERO }
    }

    /// Records the outcome of a wait that ended at `now`.
    pub(in crate::runtime) fn waited(&mut self, now: Time, arrived: bool) {
        if arrived {
            self.hold = FIRST_HOLD;
            self.arrived(now);
        } else {
            self.from = now + self.hold;
            self.hold = (2 * self.hold).min(LONGEST_HOLD);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Time = Time(1_000 * MS);

    /// Takes completions, gets packets after `arrival` ns, and posts after another `sight`.
    fn exchange(watch: &mut MemoryWatch, at: Time, arrival: u64, sight: u64) {
        watch.took(at);
        watch.arrived(at + arrival);
        watch.arrived(at + arrival + 1);
        watch.posted(at + arrival + sight);
    }

    fn shown() -> MemoryWatch {
        let mut watch = MemoryWatch::default();
        for _ in 0..SHOWN {
            assert!(!watch.is_shown());
            exchange(&mut watch, BEGIN, SOON - 1, SOON - 1);
        }
        assert!(watch.is_shown());
        watch
    }

    #[test]
    fn an_application_that_posts_soon_after_arrivals_looks_at_memory() {
        assert_eq!(shown().waits_until(BEGIN), BEGIN + PATIENCE);
        // It posts what it has anyhow; what arrives is nothing to it; it makes other calls.
        let others: [fn(&mut MemoryWatch); 3] = [
            |watch| {
                watch.took(BEGIN);
                watch.posted(BEGIN + 1);
            },
            |watch| exchange(watch, BEGIN, US, SOON),
            |watch| exchange(watch, BEGIN, SOON, US),
        ];
        for other in others {
            let mut watch = shown();
            other(&mut watch);
            assert!(!watch.is_shown());
        }
        let mut watch = shown();
        watch.posted(BEGIN);
        assert!(watch.is_shown(), "the second of two posts");
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let (mut watch, mut now) = (shown(), BEGIN);
        for hold in [5, 10, 20, 40, 80, 160, 320, 640, 640] {
            watch.waited(now, false);
            assert_eq!(watch.waits_until(now + (hold * MS - 1)), Time::ZERO, "{hold}");
            now += hold * MS;
            assert_eq!(watch.waits_until(now), now + PATIENCE);
        }
        watch.waited(now, true);
        watch.waited(now, false);
        assert_eq!(watch.waits_until(now + 5 * MS), now + 5 * MS + PATIENCE);
    }
}
