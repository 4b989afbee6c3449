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

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use irnic_ports::host_now as now;
use irnic_ports::slices::Short;
use irnic_transports::Time;
use irnic_transports::time::{SEC, US};
use parking_lot::{Condvar, MutexGuard};

use super::state::State;
use super::unit::Unit;

/// Consecutive empty polls after which a system call to stop peers from ringing pays off.
const PERSISTENT: u32 = 64;
/// Number of empty polls that only look at memory between two that also run timers and read the clock, and how close
/// together, ns, two of the latter must be: the next poll is then about to come.
const LOOKS: u32 = 15;
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
const SLEEP: u64 = 100 * US;

/// State of empty polls, and the number of threads that sleep after them.
#[derive(Debug, Default)]
pub(super) struct EmptyPolls {
    /// Number of consecutive empty polls, except those that only look at memory.
    count: u32,
    /// Number of empty polls that need only look at memory from here on.
    looks: u32,
    /// Number of other empty polls before that is possible again.
    recheck: u32,
    /// Time of the last empty poll that did more than look at memory.
    noted: Time,
    /// When the next empty poll has to check.
    next: Time,
    /// Until when the other threads of the process are assumed to have work for every core.
    pub(super) oversubscribed_until: Time,
    /// The last sample of processor time.
    usage: Option<Usage>,
    /// Number of sleeping threads.
    pub(super) sleeping: u32,
    /// The number of completions when the first of them began, or when they were last woken.
    seen: u64,
}

/// Wakes threads that sleep after empty polls, and identifies the background thread.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    woken: Condvar,
    /// Processor time clock of the background thread; 0 until there is one.
    background: AtomicI32,
}

/// A sample of processor time.
#[derive(Copy, Clone, Debug)]
struct Usage {
    at: Time,
    /// The thread that took it.
    thread: libc::pthread_t,
    /// Processor time of the process, except of that thread and of the background thread, in ns.
    others: u64,
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
    pub(super) fn any_sleeps(&self) -> bool {
        self.sleeping > 0
    }

    /// Returns whether the last call was an empty poll.
    #[inline]
    pub(super) fn are_repeated(&self) -> bool {
        self.count > 0
    }

    /// Records a call other than an empty poll.
    #[inline]
    pub(super) fn end(&mut self) {
        (self.count, self.looks) = (0, 0);
    }

    /// Returns whether an empty poll need only look at memory. One that does is recorded by [`EmptyPolls::looked`].
    #[inline]
    pub(super) fn need_only_look(&self) -> bool {
        self.looks > 0
    }

    /// Records an empty poll that only looked at memory.
    #[inline]
    pub(super) fn looked(&mut self) {
        self.looks -= 1;
    }

    /// Records that a look at memory does not suffice: the port has to be polled.
    pub(super) fn cannot_look(&mut self) {
        (self.looks, self.recheck) = (0, RECHECK);
    }

    /// Records an empty poll. Returns whether polling counts as persistent from this one on.
    #[inline]
    pub(super) fn note(&mut self, now: Time) -> bool {
        self.count = self.count.saturating_add(1);
        self.recheck = self.recheck.saturating_sub(1);
        // A thread that is about to sleep does so after a fixed number of polls.
        let continues = now.since(self.noted) < CLOSE && now >= self.oversubscribed_until;
        self.looks = if self.recheck == 0 && continues { LOOKS } else { 0 };
        self.noted = now;
        if self.count == 1 {
            self.next = if now < self.oversubscribed_until { now } else { now + PATIENCE };
        }
        self.count == PERSISTENT
    }

    /// Returns whether a thread whose polls stay empty should check now.
    #[inline]
    pub(super) fn are_due(&self, now: Time) -> bool {
        self.count >= PERSISTENT && now >= self.next
    }

    /// Records a sample of processor time. Returns whether to yield the core.
    fn record_usage(&mut self, usage: Usage) -> bool {
        let last = self.usage.replace(usage);
        let busy = last.is_some_and(|last| usage.finds_others_busy_since(&last));
        if !busy {
            self.next = usage.at + PATIENCE;
        }
        busy
    }

    /// Records that a core yielded at `before` was regained at `after`.
    fn yielded(&mut self, before: Time, after: Time) {
        if after.since(before) < YIELDED {
            self.next = after + PATIENCE;
        } else {
            self.next = after;
            self.oversubscribed_until = after + OVERSUBSCRIBED_HOLD;
        }
    }
}

impl Sleepers {
    /// Records that the calling thread is the background thread.
    pub(super) fn note_background(&self) {
        let mut clock = 0;
        // SAFETY: the thread is the calling one; a clock's number is written.
        if unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } == 0 {
            self.background.store(clock, Ordering::Relaxed);
        }
    }

    fn usage(&self) -> Usage {
        let background = match self.background.load(Ordering::Relaxed) {
            0 => 0,
            clock => cpu_time(clock),
        };
        let own = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
        let all = cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
        Usage { at: now(), thread: this_thread(), others: all.saturating_sub(own + background) }
    }
}

/// Returns the calling thread's id. The standard library would allocate one for threads that it did not start.
fn this_thread() -> libc::pthread_t {
    // SAFETY: no memory is passed, and it cannot fail.
    unsafe { libc::pthread_self() }
}

/// Returns the time of a processor time clock, in ns.
fn cpu_time(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec is written.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * SEC + time.tv_nsec as u64
}

impl State {
    /// Returns whether there are completions that sleeping threads were not notified of; true only once for them.
    #[inline]
    pub(super) fn ends_sleep(&mut self) -> bool {
        if !self.empty_polls.any_sleeps() {
            return false;
        }
        let completions = self.nic_port.nic.completions();
        std::mem::replace(&mut self.empty_polls.seen, completions) != completions
    }
}

impl Unit {
    /// Unlocks the unit, and wakes sleeping threads if there is a completion for them. They are woken without the lock:
    /// a thread that was handed it and got no core would keep all others waiting.
    #[inline]
    pub(super) fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let ends_sleep = state.ends_sleep();
        drop(state);
        if ends_sleep {
            self.sleepers.woken.notify_all();
        }
    }

    /// Makes a thread whose polls have been empty for some time yield its core to others, or sleep, if they want it.
    #[cold]
    pub(super) fn yield_or_sleep(&self, mut state: MutexGuard<'_, State>, now: Time) {
        if now < state.empty_polls.oversubscribed_until {
            return self.wait_for_completions(state);
        }
        let wanted = state.empty_polls.record_usage(self.sleepers.usage());
        self.unlock(state);
        if wanted {
            self.yield_core();
        }
    }

    /// Yields the calling thread's core to others.
    fn yield_core(&self) {
        let before = now();
        std::thread::yield_now();
        let after = now();
        self.state.lock().empty_polls.yielded(before, after);
    }

    /// Sleeps until there are completions, for at most [`SLEEP`].
    pub(super) fn wait_for_completions(&self, mut state: MutexGuard<'_, State>) {
        let before = state.nic_port.nic.completions();
        if !state.empty_polls.any_sleeps() {
            state.empty_polls.seen = before;
        }
        state.empty_polls.sleeping += 1;
        // Spinning threads give way to it when it wakes. Reset without the lock.
        let mut short = None;
        if state.arm_wakeup() && state.nic_port.nic.completions() == before {
            short = Some(Short::begin());
            self.sleepers.woken.wait_for(&mut state, Duration::from_nanos(SLEEP));
        }
        state.empty_polls.sleeping -= 1;
        // The next polls decide anew whether they are empty.
        state.empty_polls.end();
        self.unlock(state);
        drop(short);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(at: u64, others: u64) -> Usage {
        Usage { at: Time(at), thread: this_thread(), others }
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
        let other = std::thread::spawn(|| usage(0, 0)).join().unwrap();
        assert!(!polls.record_usage(other));
        assert!(!polls.record_usage(usage(1_000_000, 1_000_000)), "of another thread: what it used is not comparable");
    }

    #[test]
    fn only_polls_that_follow_each_other_closely_only_look() {
        let mut polls = EmptyPolls::default();
        polls.note(Time(SEC));
        assert!(!polls.need_only_look(), "nothing is known yet");
        polls.note(Time(SEC + CLOSE - 1));
        for _ in 0..LOOKS {
            assert!(polls.need_only_look());
            polls.looked();
        }
        assert!(!polls.need_only_look());
        polls.note(Time(SEC + 2 * CLOSE - 1));
        assert!(!polls.need_only_look(), "the application does something else in between");
        polls.note(Time(SEC + 2 * CLOSE));
        polls.end();
        assert!(!polls.need_only_look(), "it made another call");
        polls.note(Time(SEC + 2 * CLOSE));
        polls.cannot_look();
        for _ in 0..RECHECK {
            assert!(!polls.need_only_look());
            polls.note(Time(SEC + 2 * CLOSE));
        }
        assert!(polls.need_only_look());
        polls.oversubscribed_until = Time(3 * SEC);
        polls.note(Time(SEC + 2 * CLOSE));
        assert!(!polls.need_only_look(), "it is about to sleep");
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
