//! The clock of a run, shared by all its ends and carriers.

use std::time::Instant;

use irnic_transports::Time;

/// The clock of a run: nanoseconds since its creation.
#[derive(Copy, Clone, Debug)]
pub struct RunClock {
    start: Instant,
    /// Maximum step between two readings, ns.
    longest_step: u64,
    real: u64,
    shown: u64,
    /// Rounds without a reading.
    unread: u32,
}

/// Number of idle rounds that share a reading of the clock, since reading it takes as long as the rest of such a round.
/// They last about a microsecond, timers a hundred and more.
const ROUNDS_PER_READING: u32 = 16;

impl RunClock {
    /// Returns a clock that follows real time.
    pub fn new() -> RunClock {
        RunClock::without_stalls(u64::MAX)
    }

    /// Returns a clock that stops while the process does not run: it advances by at most `longest_step` ns per reading.
    /// For experiments in which everything, including the network, uses this clock.
    pub fn without_stalls(longest_step: u64) -> RunClock {
        RunClock { start: Instant::now(), longest_step, real: 0, shown: 0, unread: 0 }
    }

    /// Reads the clock.
    #[inline]
    pub fn now(&mut self) -> Time {
        let real = self.start.elapsed().as_nanos() as u64;
        self.shown += (real - self.real).min(self.longest_step);
        self.real = real;
        self.unread = 0;
        Time(self.shown)
    }

    /// Returns the time for a round: reads the clock if the last round took `long`, otherwise now and then.
    #[inline]
    pub fn round(&mut self, long: bool) -> Time {
        self.unread += 1;
        if long || self.unread >= ROUNDS_PER_READING { self.now() } else { Time(self.shown) }
    }
}
