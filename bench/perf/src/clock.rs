//! The clock of a run, which all ends and carriers of it go by.

use std::time::Instant;

use irnic_transports::Time;

/// The clock of a run: nanoseconds since it was made.
#[derive(Copy, Clone, Debug)]
pub struct RunClock {
    start: Instant,
    /// Longest step from one reading to the next, in ns.
    longest_step: u64,
    real: u64,
    shown: u64,
    /// Rounds without a reading.
    unread: u32,
}

/// Reading the clock takes as long as the rest of a round in which nothing happens: so many of those share a reading.
/// They last about a microsecond, timers a hundred and more.
const ROUNDS_PER_READING: u32 = 16;

impl RunClock {
    /// Returns a clock that shows the time, whatever the process does.
    pub fn new() -> RunClock {
        RunClock::without_stalls(u64::MAX)
    }

    /// Returns a clock that stands still while the process does not run: it advances by at most `longest_step` ns from
    /// reading to reading. For an experiment all of whose parts, the network included, go by this clock.
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

    /// Returns the time for a round: reads the clock if the last round took `long`, else now and then.
    #[inline]
    pub fn round(&mut self, long: bool) -> Time {
        self.unread += 1;
        if long || self.unread >= ROUNDS_PER_READING { self.now() } else { Time(self.shown) }
    }
}
