//! Accuracy of a rate limit, in windows of ten milliseconds.

use irnic_transports::Time;
use irnic_transports::time::MS;
use serde::{Deserialize, Serialize};

/// Minimum length of a window, ns.
const WINDOW: u64 = 10 * MS;

/// Payload bytes sent, measured every ten milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// Start of the window, and bytes sent until then.
    since: Option<(Time, u64)>,
    /// Rate of each window, bit/s.
    rates: Vec<f64>,
}

impl Windows {
    /// Reports that `sent` bytes have left until `now`. A window ends with the first call after ten milliseconds, and
    /// its rate is over its actual length.
    #[inline]
    pub fn update(&mut self, now: Time, sent: u64) {
        match self.since {
            Some((then, _)) if now.since(then) < WINDOW => {}
            Some((then, before)) => {
                self.rates.push((sent - before) as f64 * 8e9 / now.since(then) as f64);
                self.since = Some((now, sent));
            }
            None => self.since = Some((now, sent)),
        }
    }

    /// The deviation from `rate` bit/s; `None` before the first window is complete.
    pub fn pacing(&self, rate: f64) -> Option<Pacing> {
        let n = self.rates.len();
        let mut errors: Vec<f64> = self.rates.iter().map(|found| (found / rate - 1.0) * 100.0).collect();
        let mean = errors.iter().sum::<f64>() / n as f64;
        errors.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let at = |share: f64| errors.get(((n as f64 * share).ceil() as usize).max(1) - 1).copied();
        Some(Pacing { windows: n as u64, rate, mean, p99: at(0.99)?.abs(), worst: *errors.last()? })
    }
}

/// Deviation of the windows from the rate limit.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pacing {
    pub windows: u64,
    /// Rate limit, all queue pairs together, bit/s.
    pub rate: f64,
    /// Error of the mean rate, %.
    pub mean: f64,
    /// 99th percentile of the windows' absolute error, %.
    pub p99: f64,
    /// Largest absolute error, %.
    pub worst: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_judged_by_the_time_that_it_took() {
        let mut windows = Windows::default();
        assert_eq!(windows.pacing(8e6), None);
        // A byte per microsecond, polled late and often.
        for ms in [0, 1, 9, 10, 25, 30, 35, 40, 45] {
            windows.update(Time(ms * MS), ms * 1000);
        }
        let pacing = windows.pacing(8e6).unwrap();
        assert_eq!((pacing.windows, pacing.mean, pacing.worst), (4, 0.0, 0.0));
        windows.update(Time(60 * MS), 60_000 - 1_500);
        let pacing = windows.pacing(8e6).unwrap();
        // 13,500 bytes in 15 ms, the fifth window.
        let near = |found: f64, exact: f64| (found - exact).abs() < 1e-9;
        assert_eq!(pacing.windows, 5);
        assert!(near(pacing.worst, -10.0) && near(pacing.p99, 10.0) && near(pacing.mean, -2.0), "{pacing:?}");
    }
}
