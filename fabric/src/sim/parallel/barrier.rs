//! A barrier for threads that wait for each other for some microseconds.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Number of spins before a thread yields its core.
const SPINS: usize = 2_000;
/// A yield that takes longer than this has let a thread run that computes.
const TAKEN: Duration = Duration::from_micros(200);
/// Number of rounds after that in which threads sleep instead of yielding.
const CROWDED: usize = 1_000;

/// A barrier for a number of threads. Writes of a thread before the barrier are visible to all threads after it.
///
/// Threads spin, then yield their cores. If others compute there, they sleep: each yield would cost a time slice of
/// some milliseconds, while a thread that has slept preempts others when it is woken.
#[derive(Debug)]
pub(super) struct Barrier {
    threads: usize,
    waiting: AtomicUsize,
    /// Number of rounds completed.
    rounds: AtomicUsize,
    broken: AtomicBool,
    /// Round from which threads yield again.
    crowded_until: AtomicUsize,
    /// Number of sleeping threads.
    sleeping: AtomicUsize,
    lock: Mutex<()>,
    woken: Condvar,
}

/// A thread has abandoned the barrier.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl Barrier {
    pub(super) fn new(threads: usize) -> Barrier {
        Barrier {
            threads,
            waiting: AtomicUsize::new(0),
            rounds: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            crowded_until: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            lock: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    /// Waits for all threads.
    pub(super) fn wait(&self) -> Result<(), Broken> {
        let round = self.rounds.load(Ordering::Acquire);
        if self.waiting.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.waiting.store(0, Ordering::Relaxed);
            // Pairs with the order in `sleep`: either this sees the sleeper, or that sees the next round.
            self.rounds.store(round.wrapping_add(1), Ordering::SeqCst);
            self.wake();
            return Ok(());
        }
        let mut spins = 0;
        while self.is_going_on(round)? {
            spins += 1;
            if spins < SPINS {
                hint::spin_loop();
            } else if round < self.crowded_until.load(Ordering::Relaxed) {
                self.sleep(round);
            } else {
                let before = Instant::now();
                thread::yield_now();
                if before.elapsed() > TAKEN {
                    self.crowded_until.store(round.saturating_add(CROWDED), Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Returns whether a round has not ended yet.
    fn is_going_on(&self, round: usize) -> Result<bool, Broken> {
        if self.rounds.load(Ordering::SeqCst) != round {
            return Ok(false);
        }
        if self.broken.load(Ordering::SeqCst) { Err(Broken) } else { Ok(true) }
    }

    /// Sleeps until a round has ended, or a thread has abandoned the barrier.
    #[cold]
    fn sleep(&self, round: usize) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        while self.is_going_on(round) == Ok(true) {
            guard = self.woken.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes sleeping threads.
    fn wake(&self) {
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            // A thread that is about to sleep has the lock until it does.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.woken.notify_all();
        }
    }

    /// Leaves the barrier for good, and releases the other threads.
    pub(super) fn abandon(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn nobody_goes_on_before_all_have_come_and_all_see_what_was_written() {
        for (threads, crowded) in [(1, false), (2, false), (2, true), (7, false), (7, true)] {
            let barrier = Barrier::new(threads);
            if crowded {
                barrier.crowded_until.store(usize::MAX, Ordering::Relaxed);
            }
            let counters: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
            thread::scope(|scope| {
                for me in 0..threads {
                    let (barrier, counters) = (&barrier, &counters);
                    scope.spawn(move || {
                        for round in 1..=500 {
                            counters[me].store(round, Ordering::Relaxed);
                            barrier.wait().expect("nobody panics");
                            assert!(counters.iter().all(|c| c.load(Ordering::Relaxed) == round));
                            barrier.wait().expect("nobody panics");
                        }
                    });
                }
            });
            assert_eq!(barrier.sleeping.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_sleeper_is_woken_by_the_last_thread_or_by_one_that_leaves() {
        for leaves in [false, true] {
            let barrier = Barrier::new(2);
            barrier.crowded_until.store(usize::MAX, Ordering::Relaxed);
            thread::scope(|scope| {
                let sleeper = scope.spawn(|| barrier.wait());
                while barrier.sleeping.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                if leaves {
                    barrier.abandon();
                } else {
                    barrier.wait().expect("nobody panics");
                }
                assert_eq!(sleeper.join().expect("no panic"), if leaves { Err(Broken) } else { Ok(()) });
            });
        }
    }

    #[test]
    fn who_waits_for_a_thread_that_is_gone_goes_on() {
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| barrier.abandon());
            assert_eq!(barrier.wait(), Err(Broken));
        });
    }
}
