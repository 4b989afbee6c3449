//! Time in nanoseconds, passed in by the driver, never read from a clock.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// One microsecond in nanoseconds.
pub const US: u64 = 1_000;
/// One millisecond in nanoseconds.
pub const MS: u64 = 1_000_000;
/// One second in nanoseconds.
pub const SEC: u64 = 1_000_000_000;

/// Bits per byte times nanoseconds per second, which relates rates in bit/s, times in ns and numbers of bytes.
const BIT_NS: u64 = 8 * SEC;

/// Returns the time of `bytes` at `rate` bit/s, 1 or more, in ns; rounded down.
#[inline]
pub const fn time_of(bytes: u32, rate: u64) -> u64 {
    bytes as u64 * BIT_NS / rate
}

/// Returns the bytes transferred in `ns` nanoseconds at `rate` bit/s; rounded down.
#[inline]
pub const fn bytes_in(ns: u64, rate: u64) -> u64 {
    (rate as u128 * ns as u128 / BIT_NS as u128) as u64
}

/// An instant, in nanoseconds since an epoch chosen by the driver. Durations are plain `u64` nanoseconds.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The epoch.
    pub const ZERO: Time = Time(0);
    /// Later than everything: a timer that is not running.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the nanoseconds since `earlier`, 0 if `earlier` is in fact later.
    #[inline]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Time {
    type Output = Time;
    #[inline]
    fn add(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

impl AddAssign<u64> for Time {
    #[inline]
    fn add_assign(&mut self, ns: u64) {
        *self = *self + ns;
    }
}

impl Sub<u64> for Time {
    type Output = Time;
    #[inline]
    fn sub(self, ns: u64) -> Time {
        Time(self.0.saturating_sub(ns))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER { f.write_str("never") } else { write!(f, "{}.{:09}s", self.0 / SEC, self.0 % SEC) }
    }
}
