//! Threads that sleep after empty polls, and the processor time of the others.

use std::sync::atomic::{AtomicI32, Ordering};

use irnic_transports::time::SEC;
use parking_lot::Condvar;

use super::app_model::Usage;
use super::now;

/// Wakes threads that sleep after empty polls, and identifies the background thread.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    pub(super) woken: Condvar,
    /// Processor time clock of the background thread; 0 until there is one.
    background: AtomicI32,
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

    /// Takes a sample of processor time.
    pub(super) fn usage(&self) -> Usage {
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
