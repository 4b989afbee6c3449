//! Empty polls in a process with more busy threads than cores: the thread yields its core.
//!
//! A thread that polls an empty queue in a loop may keep the core from the thread that it waits for. The scheduler
//! preempts it only every few milliseconds, which pass each time that work moves from one such thread to another. So a
//! thread whose polls have been empty for some time, while other threads of its process are busy, yields its core by
//! `sched_yield`. If no thread takes it, that returns at once, and polling continues. If one does, the process counts
//! as *oversubscribed*: empty polls then sleep, as if the application waited on a completion channel. The port rings,
//! the background thread does the work, and the next completion of any queue, or [`SLEEP`], ends the sleep.
//!
//! A process with one busy thread never yields, however busy the host: its core would go to strangers.

use irnic_transports::Time;
use irnic_transports::time::{SEC, US};

/// Consecutive empty polls after which a system call to stop peers from ringing pays off.
const PERSISTENT: u32 = 64;
/// Number of empty polls that only look at memory between two that also run timers and read the clock, at first and at
/// most: it doubles as long as the latter are less than [`OFTEN`] ns apart.
const LOOKS: u32 = 15;
const MOST_LOOKS: u32 = 127;
const OFTEN: u64 = US;
/// How close together, ns, two polls that do more than look must be: the next poll is then about to come.
const CLOSE: u64 = 4 * US;
/// Number of empty polls before it is checked again whether a look at memory would do, once it did not.
const RECHECK: u32 = 64;
/// How long polls must be empty, ns, before the thread checks whether others want its core, and the interval of checks.
const PATIENCE: u64 = 200 * US;
/// A `sched_yield` that took longer than this, ns, has let another thread run.
const YIELDED: u64 = 20 * US;
/// How long a process counts as oversubscribed, ns. Finding out again costs a time slice of another thread.
const OVERSUBSCRIBED_HOLD: u64 = SEC;
/// Longest sleep, ns. The application may also wait for something that is not visible here.
pub(in crate::runtime) const SLEEP: u64 = 100 * US;

/// State of empty polls, and the number of threads that sleep after them.
#[derive(Debug, Default)]
pub(in crate::runtime) struct EmptyPolls {
    /// Number of consecutive empty polls, except those that only look at memory.
    count: u32,
    /// Number of empty polls that need only look at memory from here on, and their number after the last one that did
    /// more.
    looks: u32,
    granted: u32,
    /// Number of consecutive times that already the first look did not suffice.
    in_vain: u8,
    /// Number of other empty polls before that is possible again.
    recheck: u32,
    /// Time of the last empty poll that did more than look at memory.
    noted: Time,
    /// When the next empty poll has to check.
    next: Time,
    /// Until when the other threads of the process are assumed to have work for every core.
    pub(in crate::runtime) oversubscribed_until: Time,
    /// The last sample of processor time.
    usage: Option<Usage>,
    /// Number of sleeping threads.
    pub(in crate::runtime) sleeping: u32,
    /// The number of completions when the first of them began, or when they were last woken.
    seen: u64,
}

/// A sample of processor time.
#[derive(Copy, Clone, Debug)]
pub(in crate::runtime) struct Usage {
    pub(in crate::runtime) at: Time,
    /// The thread that took it.
    pub(in crate::runtime) thread: libc::pthread_t,
    /// Processor time of the process, except of that thread and of the background thread, in ns.
    pub(in crate::runtime) others: u64,
}

impl Usage {
    /// Returns whether other threads have used half a core or more since an earlier sample.
    fn finds_others_busy_since(&self, last: &Usage) -> bool {
        self.thread == last.thread && self.others.saturating_sub(last.others) >= self.at.since(last.at) / 2
    }
}

impl EmptyPolls {
    /// Returns whether threads sleep.
    #[inline]
    pub(in crate::runtime) fn any_sleeps(&self) -> bool {
        self.sleeping > 0
    }

    /// Records that a thread is about to sleep, at this number of completions.
    pub(in crate::runtime) fn sleep(&mut self, completions: u64) {
        if !self.any_sleeps() {
            self.seen = completions;
        }
        self.sleeping += 1;
    }

    /// Records that a thread has slept. The next polls decide anew whether they are empty.
    pub(in crate::runtime) fn slept(&mut self) {
        self.sleeping -= 1;
        self.end();
    }

    /// Returns whether there are completions that sleeping threads were not notified of; true only once for them.
    #[inline]
    pub(in crate::runtime) fn end_sleep(&mut self, completions: u64) -> bool {
        std::mem::replace(&mut self.seen, completions) != completions
    }

    /// Returns whether the last call was an empty poll.
    #[inline]
    pub(in crate::runtime) fn are_repeated(&self) -> bool {
        self.count > 0
    }

    /// Records a call other than an empty poll.
    #[inline]
    pub(in crate::runtime) fn end(&mut self) {
        (self.count, self.looks, self.granted, self.in_vain) = (0, 0, 0, 0);
    }

    /// Returns the number of empty polls that need only look at memory. [`EmptyPolls::looked`] records what a look
    /// showed.
    #[inline]
    pub(in crate::runtime) fn looks(&self) -> u32 {
        self.looks
    }

    /// Records a poll that only read memory: whether it `found_nothing`, or the port has to be polled.
    #[inline]
    pub(in crate::runtime) fn looked(&mut self, found_nothing: bool) {
        if found_nothing {
            self.looks -= 1;
        } else {
            self.look_failed();
        }
    }

    #[cold]
    fn look_failed(&mut self) {
        self.in_vain = if self.looks == self.granted { self.in_vain + 1 } else { 0 };
        if self.in_vain == 2 {
            (self.in_vain, self.recheck) = (0, RECHECK);
        }
        self.looks = 0;
    }

    /// Records an empty poll. Returns whether polling counts as persistent from this one on.
    #[inline]
    pub(in crate::runtime) fn note(&mut self, now: Time) -> bool {
        self.count = self.count.saturating_add(1);
        self.recheck = self.recheck.saturating_sub(1);
        // A thread that is about to sleep does so after a fixed number of polls.
        let interval = now.since(self.noted);
        let continues = interval < CLOSE && now >= self.oversubscribed_until;
        self.granted = match (self.recheck == 0 && continues, self.granted) {
            (false, _) => 0,
            (true, before) if interval < OFTEN => (2 * before + 1).clamp(LOOKS, MOST_LOOKS),
            (true, before) => before.max(LOOKS),
        };
        self.looks = self.granted;
        self.noted = now;
        if self.count == 1 {
            self.next = if now < self.oversubscribed_until { now } else { now + PATIENCE };
        }
        self.count == PERSISTENT
    }

    /// Returns whether a thread whose polls stay empty should check now.
    #[inline]
    pub(in crate::runtime) fn are_due(&self, now: Time) -> bool {
        self.count >= PERSISTENT && now >= self.next
    }

    /// Records a sample of processor time. Returns whether to yield the core.
    pub(in crate::runtime) fn record_usage(&mut self, usage: Usage) -> bool {
        let last = self.usage.replace(usage);
        let busy = last.is_some_and(|last| usage.finds_others_busy_since(&last));
        if !busy {
            self.next = usage.at + PATIENCE;
        }
        busy
    }

    /// Records that a core yielded at `before` was regained at `after`.
    pub(in crate::runtime) fn yielded(&mut self, before: Time, after: Time) {
        if after.since(before) < YIELDED {
            self.next = after + PATIENCE;
        } else {
            self.next = after;
            self.oversubscribed_until = after + OVERSUBSCRIBED_HOLD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(at: u64, others: u64) -> Usage {
        Usage { at: Time(at), thread: 1, others }
    }

    /// Returns the state after as many empty polls as count as persistent.
    fn persistent(now: Time) -> EmptyPolls {
        let mut polls = EmptyPolls::default();
        persist(&mut polls, now);
        polls
    }

    fn persist(polls: &mut EmptyPolls, now: Time) {
        polls.end();
        for n in 1..=PERSISTENT {
            assert!(!polls.are_due(Time::NEVER), "{n}");
            assert_eq!(polls.note(now), n == PERSISTENT);
        }
    }

    #[test]
    fn a_core_is_yielded_where_other_threads_of_the_process_use_half_a_core() {
        for (others, wanted) in [(0, false), (499_999, false), (500_000, true), (2_000_000, true)] {
            let mut polls = persistent(Time::ZERO);
            assert!(!polls.record_usage(usage(0, 7)), "there is nothing to compare the first look with");
            assert_eq!(polls.record_usage(usage(1_000_000, 7 + others)), wanted, "{others}");
            assert_eq!(polls.are_due(Time(1_000_000)), wanted, "{others}");
        }
        let mut polls = EmptyPolls::default();
        assert!(!polls.record_usage(Usage { thread: 2, ..usage(0, 0) }));
        assert!(!polls.record_usage(usage(1_000_000, 1_000_000)), "of another thread: what it used is not comparable");
    }

    #[test]
    fn only_polls_that_follow_each_other_closely_only_look() {
        let mut polls = EmptyPolls::default();
        polls.note(Time(SEC));
        assert!(polls.looks() == 0, "nothing is known yet");
        polls.note(Time(SEC + CLOSE - 1));
        for _ in 0..LOOKS {
            assert!(polls.looks() > 0);
            polls.looked(true);
        }
        assert!(polls.looks() == 0);
        polls.note(Time(SEC + 2 * CLOSE - 1));
        assert!(polls.looks() == 0, "the application does something else in between");
        polls.note(Time(SEC + 2 * CLOSE));
        polls.end();
        assert!(polls.looks() == 0, "it made another call");
        // A first look that does not suffice may be chance; the second in a row is not.
        for recheck in [0, RECHECK] {
            polls.note(Time(SEC + 2 * CLOSE));
            polls.note(Time(SEC + 2 * CLOSE));
            assert!(polls.looks() > 0);
            polls.looked(false);
            assert!(polls.looks() == 0);
            assert_eq!(polls.recheck, recheck);
        }
        for _ in 0..RECHECK {
            assert!(polls.looks() == 0);
            polls.note(Time(SEC + 2 * CLOSE));
        }
        assert!(polls.looks() > 0);
        polls.oversubscribed_until = Time(3 * SEC);
        polls.note(Time(SEC + 2 * CLOSE));
        assert!(polls.looks() == 0, "it is about to sleep");
    }

    #[test]
    fn polls_look_more_often_as_long_as_they_are_quick() {
        let mut polls = EmptyPolls::default();
        let mut now = Time(SEC);
        polls.note(now);
        let mut after = |interval: u64| {
            now += interval;
            polls.note(now);
            polls.looks
        };
        let quick = [OFTEN - 1; 5].map(&mut after);
        assert_eq!(quick, [LOOKS, 31, 63, MOST_LOOKS, MOST_LOOKS]);
        assert_eq!([OFTEN, CLOSE, OFTEN].map(&mut after), [MOST_LOOKS, 0, LOOKS]);
    }

    #[test]
    fn a_process_counts_as_oversubscribed_for_a_while_after_somebody_took_the_core() {
        let mut polls = persistent(Time::ZERO);
        let [before, at_once, later] = [Time(SEC), Time(SEC + YIELDED - 1), Time(SEC + YIELDED)];
        polls.yielded(before, at_once);
        assert!(polls.oversubscribed_until <= at_once && !polls.are_due(at_once) && polls.are_due(at_once + PATIENCE));
        polls.yielded(before, later);
        assert!(polls.are_due(later));
        let held = later + (OVERSUBSCRIBED_HOLD - 1);
        for (at, due) in [(later, true), (held, true), (later + OVERSUBSCRIBED_HOLD, false)] {
            persist(&mut polls, at);
            assert_eq!(polls.are_due(at), due, "{at:?}");
        }
    }
}
