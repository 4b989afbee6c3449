//! What a thread sees that reads two clocks in succession: not that it lost its core in between.
//!
//! Programs compare the time stamp counter with a clock: perftest reads one right after the other, and gives up if they
//! differ by much (`sample_get_cpu_mhz`). Reading the counter takes some microseconds here, in which a thread on a busy
//! machine often loses its core for milliseconds.

/// Processor time within which two readings are of the same moment, ns.
const MOMENT: i64 = 20_000;

/// A thread's last reading.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether it was of the counter.
    pub counter: bool,
    /// The lab's time, ns.
    pub at: i64,
    /// The thread's processor time, ns.
    pub cpu: i64,
    /// The lab's time was later.
    pub behind: bool,
}

impl Seen {
    /// Returns what a thread sees at `now`: the lab's time, unless it has just read the other clock. Then only the
    /// processor time since has passed, once.
    pub fn next(last: Option<Seen>, counter: bool, now: i64, cpu: i64) -> Seen {
        let until = last.filter(|last| last.counter != counter && !last.behind && cpu - last.cpu < MOMENT);
        let at = until.map_or(now, |last| now.min(last.at + (cpu - last.cpu)));
        Seen { counter, at, cpu, behind: at < now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_core_is_not_between_two_clocks() {
        let (clock, counter) = (false, true);
        let mut last = None;
        for (what, by, now, cpu, seen) in [
            ("the first reading", counter, 1_000, 0, 1_000),
            ("the core was lost for 5 ms", clock, 5_004_000, 3_000, 4_000),
            ("the same clock again", clock, 5_005_000, 4_000, 5_005_000),
            ("lost again", clock, 9_005_000, 4_500, 9_005_000),
            ("and before the other clock", counter, 12_000_000, 5_000, 9_005_500),
            ("not twice in a row", clock, 12_001_000, 6_000, 12_001_000),
            ("the thread did something else for long", counter, 13_000_000, 90_000, 13_000_000),
            ("the lab's time is slow", clock, 13_000_100, 100_000, 13_000_100),
        ] {
            let next = Seen::next(last, by, now, cpu);
            assert_eq!(next.at, seen, "{what}");
            last = Some(next);
        }
    }
}
