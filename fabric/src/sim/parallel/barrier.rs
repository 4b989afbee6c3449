//! A barrier for threads that wait for each other for some microseconds.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Number of spins before a thread yields its core.
const SPINS: usize = 2_000;

/// A spinning barrier for a number of threads. Writes of a thread before the barrier are visible to all threads after
/// it.
#[derive(Debug)]
pub(super) struct Barrier {
    threads: usize,
    waiting: AtomicUsize,
    /// Number of rounds completed.
    rounds: AtomicUsize,
    broken: AtomicBool,
}

/// A thread has abandoned the barrier.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl Barrier {
    pub(super) fn new(threads: usize) -> Barrier {
        Barrier { threads, waiting: AtomicUsize::new(0), rounds: AtomicUsize::new(0), broken: AtomicBool::new(false) }
    }

    /// Waits for all threads.
    pub(super) fn wait(&self) -> Result<(), Broken> {
        let round = self.rounds.load(Ordering::Acquire);
        if self.waiting.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.waiting.store(0, Ordering::Relaxed);
            self.rounds.store(round.wrapping_add(1), Ordering::Release);
            return Ok(());
        }
        let mut spins = 0;
        while self.rounds.load(Ordering::Acquire) == round {
            if self.broken.load(Ordering::Relaxed) {
                return Err(Broken);
            }
            spins += 1;
            if spins < SPINS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        Ok(())
    }

    /// Leaves the barrier for good, and releases the other threads.
    pub(super) fn abandon(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn nobody_goes_on_before_all_have_come_and_all_see_what_was_written() {
        for threads in [1, 2, 7] {
            let barrier = Barrier::new(threads);
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
