//! Polling in vain in a process with more busy threads than cores: the thread gives its core away.
//!
//! A thread that polls an empty queue in a loop may keep the core from the thread that it waits for. The scheduler takes
//! it away once in some milliseconds, and as many pass each time that work goes from one such thread to another. So a
//! thread that has polled in vain for a while, beside others of its process that are busy, offers its core by
//! `sched_yield`. Where nobody takes it, that returns at once, and polling goes on. Where somebody does, the process is
//! *crowded*: polls in vain then *rest*, as if the application slept on a completion channel. The port rings, the
//! background thread does the work, and the next completion of any queue, or [`REST`], ends the rest.
//!
//! A process with one busy thread never offers, however busy the host: its core would go to strangers.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use irnic_ports::host_now as now;
use irnic_transports::Time;
use irnic_transports::time::{SEC, US};
use parking_lot::{Condvar, MutexGuard};

use super::slices::Short;
use super::state::State;
use super::unit::Unit;

/// How long polls find nothing, ns, before the thread looks whether others want its core, and until it looks again.
const PATIENCE: u64 = 200 * US;
/// A `sched_yield` that took longer than this, ns, has let another thread run.
const SWITCHED: u64 = 20 * US;
/// How long a process counts as crowded, ns. To find out again takes a turn of another thread.
const CROWDED_HOLD: u64 = SEC;
/// The longest rest, ns. The application may wait for something else as well, of which nobody here hears.
const REST: u64 = 100 * US;

/// What is known of polls in vain, and who rests.
#[derive(Debug, Default)]
pub(super) struct Rests {
    /// When the next poll in vain has to do something about it.
    next: Time,
    /// Other threads of the process have work for every core, or had lately.
    pub(super) crowded_until: Time,
    /// The last look at who uses the cores.
    look: Option<Look>,
    /// Threads that rest.
    pub(super) resting: u32,
    /// The number of completions when the first of them began, or when they were last called.
    seen: u64,
}

/// What calls threads from their rest, and what tells of the others.
#[derive(Debug, Default)]
pub(super) struct Bench {
    called: Condvar,
    /// The processor time clock of the background thread; 0 until there is one.
    background: AtomicI32,
}

/// Processor time that was used by some time.
#[derive(Copy, Clone, Debug)]
struct Look {
    at: Time,
    /// The thread that looked.
    thread: ThreadId,
    /// What the process has used, less that thread and the background thread, in ns.
    others: u64,
}

impl Look {
    /// Tells whether others have used half a core or more since an earlier look.
    fn finds_others_busy_since(&self, last: &Look) -> bool {
        self.thread == last.thread && self.others.saturating_sub(last.others) >= self.at.since(last.at) / 2
    }
}

impl Rests {
    /// Tells whether threads rest.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.resting > 0
    }

    /// Notes the first of successive polls in vain.
    #[inline]
    pub(super) fn begin(&mut self, now: Time) {
        self.next = if now < self.crowded_until { now } else { now + PATIENCE };
    }

    /// Tells whether a thread that keeps polling in vain should do something about it.
    #[inline]
    pub(super) fn due(&self, now: Time) -> bool {
        now >= self.next
    }

    /// Notes a look at who uses the cores. Returns whether the core is to be offered.
    fn looked(&mut self, look: Look) -> bool {
        let last = self.look.replace(look);
        let busy = last.is_some_and(|last| look.finds_others_busy_since(&last));
        if !busy {
            self.next = look.at + PATIENCE;
        }
        busy
    }

    /// Notes that a core that was offered at `before` came back at `after`.
    fn offered(&mut self, before: Time, after: Time) {
        if after.since(before) < SWITCHED {
            self.next = after + PATIENCE;
        } else {
            self.next = after;
            self.crowded_until = after + CROWDED_HOLD;
        }
    }
}

impl Bench {
    /// Notes that the calling thread is the background thread.
    pub(super) fn note_background(&self) {
        let mut clock = 0;
        // SAFETY: the thread is the calling one; a clock's number is written.
        if unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } == 0 {
            self.background.store(clock, Ordering::Relaxed);
        }
    }

    fn look(&self) -> Look {
        let background = match self.background.load(Ordering::Relaxed) {
            0 => 0,
            clock => cpu_time(clock),
        };
        let own = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
        let all = cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
        Look { at: now(), thread: std::thread::current().id(), others: all.saturating_sub(own + background) }
    }
}

/// Returns what a clock of processor time shows, in ns.
fn cpu_time(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec is written.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * SEC + time.tv_nsec as u64
}

impl State {
    /// Tells, once for any number of completions, whether there are some of which threads that rest have not heard.
    #[inline]
    pub(super) fn ends_rests(&mut self) -> bool {
        if !self.rests.any() {
            return false;
        }
        let completions = self.nic_port.nic.completions();
        std::mem::replace(&mut self.rests.seen, completions) != completions
    }
}

impl Unit {
    /// Unlocks the unit, and calls threads that rest if there is a completion for them. They are called without the
    /// lock: one that was handed it and got no core would keep everybody waiting.
    #[inline]
    pub(super) fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let ends_rests = state.ends_rests();
        drop(state);
        if ends_rests {
            self.bench.called.notify_all();
        }
    }

    /// Has a thread that has polled in vain for a while offer its core to others, or rest, if they want it.
    #[cold]
    pub(super) fn give_way(&self, mut state: MutexGuard<'_, State>, now: Time) {
        if now < state.rests.crowded_until {
            return self.rest(state);
        }
        let offers = state.rests.looked(self.bench.look());
        self.unlock(state);
        if offers {
            self.offer();
        }
    }

    /// Offers the calling thread's core to others.
    fn offer(&self) {
        let before = now();
        std::thread::yield_now();
        let after = now();
        self.state.lock().rests.offered(before, after);
    }

    /// Rests until there are completions, for [`REST`] at most.
    fn rest(&self, mut state: MutexGuard<'_, State>) {
        let before = state.nic_port.nic.completions();
        if !state.rests.any() {
            state.rests.seen = before;
        }
        state.rests.resting += 1;
        // Those who spin give way to it when it wakes. That ends without the lock.
        let mut short = None;
        if state.arm_wakeup() && state.nic_port.nic.completions() == before {
            short = Some(Short::begin());
            self.bench.called.wait_for(&mut state, Duration::from_nanos(REST));
        }
        state.rests.resting -= 1;
        // What it finds now decides whether it has polled in vain.
        state.polled();
        self.unlock(state);
        drop(short);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: u64, others: u64) -> Look {
        Look { at: Time(at), thread: std::thread::current().id(), others }
    }

    #[test]
    fn a_core_is_offered_where_other_threads_of_the_process_use_half_a_core() {
        for (others, offers) in [(0, false), (499_999, false), (500_000, true), (2_000_000, true)] {
            let mut rests = Rests::default();
            assert!(!rests.looked(look(0, 7)), "there is nothing to compare the first look with");
            assert_eq!(rests.looked(look(1_000_000, 7 + others)), offers, "{others}");
            assert_eq!(rests.due(Time(1_000_000)), offers, "{others}");
        }
        let mut rests = Rests::default();
        let other = std::thread::spawn(|| look(0, 0)).join().unwrap();
        assert!(!rests.looked(other));
        assert!(!rests.looked(look(1_000_000, 1_000_000)), "another thread looked: what it used is not comparable");
    }

    #[test]
    fn a_process_is_crowded_for_a_while_after_an_offer_was_taken() {
        let mut rests = Rests::default();
        let [before, at_once, later] = [Time(SEC), Time(SEC + SWITCHED - 1), Time(SEC + SWITCHED)];
        rests.offered(before, at_once);
        assert!(rests.crowded_until <= at_once && !rests.due(at_once) && rests.due(at_once + PATIENCE));
        rests.offered(before, later);
        assert!(rests.due(later));
        for (at, crowded) in [(later, true), (later + (CROWDED_HOLD - 1), true), (later + CROWDED_HOLD, false)] {
            rests.begin(at);
            assert_eq!(rests.due(at), crowded, "{at:?}");
        }
    }
}
