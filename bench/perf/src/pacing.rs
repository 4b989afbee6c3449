//! How well a rate limit holds: what left in each ten milliseconds.

use irnic_transports::Time;
use irnic_transports::time::MS;
use serde::{Deserialize, Serialize};

/// A stretch whose rate is looked at, ns.
const WINDOW: u64 = 10 * MS;

/// Payload bytes sent, looked at every ten milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// When a stretch began, and bytes sent until then.
    since: Option<(Time, u64)>,
    /// bit/s of each.
    rates: Vec<f64>,
}

impl Windows {
    /// `sent` bytes have left until `now`. A stretch ends with the first look after its ten milliseconds, and its rate
    /// is over the time that it took.
    #[inline]
    pub fn look(&mut self, now: Time, sent: u64) {
        match self.since {
            Some((then, _)) if now.since(then) < WINDOW => {}
            Some((then, before)) => {
                self.rates.push((sent - before) as f64 * 8e9 / now.since(then) as f64);
                self.since = Some((now, sent));
            }
            None => self.since = Some((now, sent)),
        }
    }

    /// How far they are from `rate` bit/s; `None` before the first is over.
    pub fn pacing(&self, rate: f64) -> Option<Pacing> {
        let n = self.rates.len();
        let mut errors: Vec<f64> = self.rates.iter().map(|found| (found / rate - 1.0) * 100.0).collect();
        let mean = errors.iter().sum::<f64>() / n as f64;
        errors.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let at = |share: f64| errors.get(((n as f64 * share).ceil() as usize).max(1) - 1).copied();
        Some(Pacing { windows: n as u64, rate, mean, p99: at(0.99)?.abs(), worst: *errors.last()? })
    }
}

/// What left in each stretch beside the rate that was set.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pacing {
    pub windows: u64,
    /// bit/s that were set, all queue pairs together.
    pub rate: f64,
    /// Error of all, %.
    pub mean: f64,
    /// Error, either way, that 99 % of the stretches do not exceed, %.
    pub p99: f64,
    /// The largest, %.
    pub worst: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_judged_by_the_time_that_it_took() {
        let mut windows = Windows::default();
        assert_eq!(windows.pacing(8e6), None);
        // A byte a microsecond, looked at late and often.
        for ms in [0, 1, 9, 10, 25, 30, 35, 40, 45] {
            windows.look(Time(ms * MS), ms * 1000);
        }
        let pacing = windows.pacing(8e6).unwrap();
        assert_eq!((pacing.windows, pacing.mean, pacing.worst), (4, 0.0, 0.0));
        windows.look(Time(60 * MS), 60_000 - 1_500);
        let pacing = windows.pacing(8e6).unwrap();
        // 13,500 bytes in 15 ms, the fifth stretch.
        let near = |found: f64, exact: f64| (found - exact).abs() < 1e-9;
        assert_eq!(pacing.windows, 5);
        assert!(near(pacing.worst, -10.0) && near(pacing.p99, 10.0) && near(pacing.mean, -2.0), "{pacing:?}");
    }
}
