//! Conversion from the NIC's clock to the host's time: a straight line through pairs of readings (TIMELY §5).
//!
//! Two oscillators differ by tens of parts per million, varying with temperature, so the line is refitted as readings
//! arrive. The host may be interrupted during a reading; readings that took long are given less weight.

use std::collections::VecDeque;

/// Maximum number of pairs of readings that the line is fitted to.
const WINDOW: usize = 64;
/// A pair that took more than this multiple of the fastest in the window is left out.
const PATIENCE: u64 = 2;
/// Slack of that rule in ns: on a fast machine all readings are good.
const SLACK: u64 = 50;
/// Distance of the host's clock from the line in ns at which it was set: earlier readings are discarded.
const STEP: u64 = 1_000_000;

/// A pair of readings.
#[derive(Copy, Clone, Debug)]
struct Pair {
    /// Reading of the NIC's clock.
    ticks: u64,
    /// Reading of the host's clock in ns, in the middle of the bracket.
    host: u64,
    /// Time between the host's clock readings before and after that of the NIC's, in ns.
    bracket: u64,
}

/// Converts readings of the NIC's clock to the host's time (TIMELY §5), in ns of any of the host's clocks, monotonic or
/// since 1970.
#[derive(Clone, Debug)]
pub struct Calibration {
    pairs: VecDeque<Pair>,
    line: Option<Line>,
    nominal: f64,
}

/// ns of the host = `host` + `slope` × (ticks − `ticks`).
#[derive(Copy, Clone, Debug)]
struct Line {
    ticks: u64,
    host: u64,
    slope: f64,
}

impl Line {
    /// Returns the time from `self.host` until the clock shows `ticks`, in ns.
    fn after(&self, ticks: u64) -> f64 {
        // Readings before the line's own, also across a counter wrap, are small negative numbers.
        self.slope * ticks.wrapping_sub(self.ticks).cast_signed() as f64
    }

    fn at(&self, ticks: u64) -> u64 {
        self.host.saturating_add_signed(self.after(ticks).round() as i64)
    }
}

impl Calibration {
    /// Creates the calibration of a NIC with a nominal frequency of `nominal_hz`, used until there are two readings.
    pub fn new(nominal_hz: u64) -> Calibration {
        let pairs = VecDeque::with_capacity(WINDOW);
        Calibration { pairs, line: None, nominal: 1e9 / nominal_hz.max(1) as f64 }
    }

    /// Adds a pair of readings: the NIC's clock showed `ticks` between the host's times `before` and `after`, in ns.
    /// The counter may wrap; two readings must lie less than half its range apart.
    pub fn observe(&mut self, before: u64, ticks: u64, after: u64) {
        let bracket = after.saturating_sub(before);
        let pair = Pair { ticks, host: before + bracket / 2, bracket };
        if self.line.is_some_and(|line| line.at(ticks).abs_diff(pair.host) > STEP.max(bracket)) {
            self.pairs.clear();
        }
        if self.pairs.len() == WINDOW {
            self.pairs.pop_front();
        }
        self.pairs.push_back(pair);
        self.line = Some(self.fit(pair));
    }

    /// Fits a line by least squares to the pairs that were read quickly. Values are relative to the last pair, so that
    /// a double holds them to the nanosecond.
    fn fit(&self, last: Pair) -> Line {
        let quickest = self.pairs.iter().map(|p| p.bracket).min().unwrap_or(0);
        let good = || {
            let quick = |p: &&Pair| p.bracket <= quickest.saturating_mul(PATIENCE).saturating_add(SLACK);
            self.pairs.iter().filter(quick).map(|p| {
                (
                    p.ticks.wrapping_sub(last.ticks).cast_signed() as f64,
                    p.host.wrapping_sub(last.host).cast_signed() as f64,
                )
            })
        };
        let n = good().count() as f64;
        let (x, y) = good().fold((0.0, 0.0), |(x, y), (dx, dy)| (x + dx, y + dy));
        let (x, y) = (x / n, y / n);
        let (mut xx, mut xy) = (0.0, 0.0);
        for (dx, dy) in good() {
            xx += (dx - x) * (dx - x);
            xy += (dx - x) * (dy - y);
        }
        let slope = if xx > 0.0 && xy > 0.0 { xy / xx } else { self.nominal };
        let origin = Line { ticks: last.ticks, host: last.host, slope };
        Line { host: origin.host.saturating_add_signed((y - slope * x).round() as i64), ..origin }
    }

    /// Returns the number of pairs in the window, including those left out of the fit for having taken long.
    pub fn readings(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the host's time in ns at which the NIC's clock showed `ticks`; `None` without any reading.
    pub fn host_ns(&self, ticks: u64) -> Option<u64> {
        self.line.map(|line| line.at(ticks))
    }

    /// Returns how much faster than its nominal frequency the NIC's clock runs by the host's clock, in parts per
    /// million; 0 before two readings.
    pub fn drift_ppm(&self) -> f64 {
        self.line.map_or(0.0, |line| (self.nominal / line.slope - 1.0) * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use irnic_transports::Time;
    use irnic_transports::time::{MS, SEC, US};

    /// Offset of the host's clock from the NIC's time line: roughly the present time since 1970.
    const EPOCH: u64 = 1_790_000_000 * SEC + 123_456_789;

    /// Reads both clocks at `at`, bracketed by `before` and `after` ns.
    fn read(to: &mut Calibration, clock: &Clock, at: u64, before: u64, after: u64) {
        to.observe(EPOCH + at - before, clock.ticks(Time(at)), EPOCH + at + after);
    }

    /// Returns the error of the line at `at`, ns.
    fn miss(of: &Calibration, clock: &Clock, at: u64) -> u64 {
        of.host_ns(clock.ticks(Time(at))).unwrap().abs_diff(EPOCH + at)
    }

    #[test]
    fn a_drifting_clock_is_followed_to_the_nanosecond() {
        for (hz, ppm, offset) in [
            (156_250_000, 20.0, 0),
            (1_000_000_000, -50.0, u64::MAX - 1_000),
            (78_125_000, 99.9, 1 << 63),
            (1_000_000, 0.0, 7),
        ] {
            let clock = Clock::new(hz, ppm, offset);
            let mut line = Calibration::new(hz);
            assert_eq!((line.host_ns(5), line.drift_ppm()), (None, 0.0));
            for i in 1..=200 {
                read(&mut line, &clock, SEC + i * 10 * MS, 20, 20);
            }
            assert_eq!(line.readings(), WINDOW);
            let tick = 1_000_000_000 / hz;
            // In the window, and as far ahead again.
            for at in [SEC + 1_500 * MS, 3 * SEC, 3 * SEC + 600 * MS] {
                assert!(miss(&line, &clock, at) <= tick + 1, "{hz} Hz {ppm} ppm: {} ns", miss(&line, &clock, at));
            }
            assert!((line.drift_ppm() - ppm).abs() < 0.02 + tick as f64 / 100.0, "{} for {ppm}", line.drift_ppm());
        }
    }

    #[test]
    fn one_reading_is_enough_to_begin_with() {
        let clock = Clock::new(1_000_000_000, 30.0, 99);
        let mut line = Calibration::new(1_000_000_000);
        read(&mut line, &clock, SEC, 10, 10);
        assert_eq!(miss(&line, &clock, SEC), 0);
        // The claimed frequency is 30 parts per million wrong.
        assert!((29_000..31_000).contains(&miss(&line, &clock, 2 * SEC)));
    }

    #[test]
    fn readings_that_were_interrupted_do_not_count() {
        let clock = Clock::new(1_000_000_000, 10.0, 0);
        let mut line = Calibration::new(1_000_000_000);
        for i in 1..=60 {
            // Every third is interrupted for 40 µs before or after it.
            let (before, after) = match i % 6 {
                0 => (40 * US, 20),
                3 => (20, 40 * US),
                _ => (20, 30),
            };
            read(&mut line, &clock, i * MS, before, after);
        }
        assert!(miss(&line, &clock, 61 * MS) <= 10, "{}", miss(&line, &clock, 61 * MS));
    }

    #[test]
    fn a_host_clock_that_is_set_begins_anew() {
        let clock = Clock::new(1_000_000_000, 10.0, 0);
        let mut line = Calibration::new(1_000_000_000);
        for i in 1..=20 {
            read(&mut line, &clock, i * MS, 20, 20);
        }
        let (at, later) = (21 * MS, 3600 * SEC);
        line.observe(EPOCH + at + later, clock.ticks(Time(at)), EPOCH + at + later + 40);
        assert_eq!(line.readings(), 1);
        assert_eq!(line.host_ns(clock.ticks(Time(at))), Some(EPOCH + at + later + 20));
    }

    #[test]
    fn no_readings_make_it_panic_or_lose_its_mind() {
        let mut line = Calibration::new(0);
        for (before, ticks, after) in
            [(0, 0, 0), (u64::MAX, u64::MAX, 0), (5, 5, u64::MAX), (7, 5, 7), (7, 5, 7), (8, 4, 8), (0, u64::MAX, 0)]
        {
            line.observe(before, ticks, after);
            assert!(line.host_ns(u64::MAX / 3).is_some());
        }
    }
}
