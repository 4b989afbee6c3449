//! The offset between two clocks, estimated from pairs of readings.

use irnic_transports::Time;
use irnic_transports::time::SEC;

/// Estimate of the offset from the caller's clock to another clock.
///
/// The other clock is read after the caller took `now`, so a reading shows at least the true offset. The minimum over
/// the last one to two seconds is off by no more than the shortest delay between two such readings. Older readings are
/// discarded, since either clock may have been slewed, set or stopped since.
#[derive(Copy, Clone, Debug)]
pub(super) struct Offset {
    /// Minimum of the current interval, and of the one before it.
    least: [i64; 2],
    /// The smaller of the two minima, 0 before anything is known.
    shift: i64,
    /// End of the current interval.
    until: Time,
}

impl Offset {
    const STRETCH: u64 = SEC;
    /// Treats both clocks as the same until the first reading.
    pub(super) const NEW: Offset = Offset { least: [i64::MAX; 2], shift: 0, until: Time::ZERO };

    /// Records that the other clock showed `clock` shortly after `now`.
    pub(super) fn observe(&mut self, now: Time, clock: u64) {
        let seen = clock.wrapping_sub(now.0) as i64;
        if now >= self.until {
            // After a gap, the known minimum is as old as the gap.
            let old = if now.since(self.until) < Self::STRETCH { self.least[0] } else { i64::MAX };
            (self.least, self.until) = ([seen, old], now + Self::STRETCH);
        }
        self.least[0] = self.least[0].min(seen);
        // The clock was set back or forward: the previous interval no longer applies.
        if self.least[1].abs_diff(self.least[0]) > SEC {
            self.least[1] = self.least[0];
        }
        self.shift = self.least[0].min(self.least[1]);
    }

    /// Returns what the other clock showed at `now`.
    #[inline]
    pub(super) fn at(&self, now: Time) -> u64 {
        now.0.wrapping_add_signed(self.shift)
    }

    /// Returns the time when the other clock showed `stamp`, at most `now`.
    #[inline]
    pub(super) fn convert(&self, now: Time, stamp: u64) -> Time {
        now - self.at(now).saturating_sub(stamp)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use irnic_transports::time::US;

    /// Reading of the clock at time 0.
    const EPOCH: u64 = 1_790_000_000 * SEC;

    #[test]
    fn a_stamp_of_the_clock_is_a_time_of_the_caller() {
        let mut offset = Offset::NEW;
        // Readings taken 300 ns to 50 µs after `now`.
        for (at, late) in [(SEC, 50_000), (SEC + 10 * US, 300), (SEC + 20 * US, 9_000)] {
            offset.observe(Time(at), EPOCH + at + late);
        }
        let now = Time(SEC + 20 * US);
        assert_eq!(offset.convert(now, EPOCH + SEC + 15 * US), Time(SEC + 15 * US - 300));
        assert_eq!(offset.at(now), EPOCH + now.0 + 300);
        // A stamp after `now` counts as `now`.
        assert_eq!(offset.convert(now, EPOCH + SEC + 25 * US), now);
        // A second later the best reading still counts, two seconds later it does not: the clock may have been slewed.
        offset.observe(Time(2 * SEC + 20 * US), EPOCH + 2 * SEC + 20 * US + 700);
        assert_eq!(offset.convert(Time(3 * SEC), EPOCH + 2 * SEC), Time(2 * SEC - 300));
        offset.observe(Time(3 * SEC + 20 * US), EPOCH + 3 * SEC + 20 * US + 700);
        assert_eq!(offset.convert(Time(4 * SEC), EPOCH + 3 * SEC), Time(3 * SEC - 700));
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        for set in [EPOCH - 3600 * SEC, EPOCH + 3600 * SEC] {
            let mut offset = Offset::NEW;
            offset.observe(Time(SEC), EPOCH + SEC);
            offset.observe(Time(2 * SEC), set + 2 * SEC);
            assert_eq!(offset.convert(Time(3 * SEC), set + 2 * SEC), Time(2 * SEC));
        }
    }

    #[test]
    fn the_clock_may_be_behind_the_caller() {
        let mut offset = Offset::NEW;
        offset.observe(Time(EPOCH), 5 * SEC);
        assert_eq!(offset.at(Time(EPOCH + 7)), 5 * SEC + 7);
        assert_eq!(offset.convert(Time(EPOCH + 7), 5 * SEC + 2), Time(EPOCH + 2));
    }

    #[test]
    fn any_stamp_is_a_time_no_later_than_now() {
        let mut offset = Offset::NEW;
        for clock in [7, EPOCH, 0] {
            for stamp in [0, 1, u64::MAX / 2, u64::MAX] {
                for now in [Time::ZERO, Time(SEC)] {
                    assert!(offset.convert(now, stamp) <= now);
                }
            }
            offset.observe(Time(7), clock);
        }
    }
}
