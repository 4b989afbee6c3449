//! Time as the firmware sees it: nanoseconds passed in by the habitat, never read from a clock.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// One microsecond in nanoseconds.
pub const US: u64 = 1_000;
/// One millisecond in nanoseconds.
pub const MS: u64 = 1_000_000;
/// One second in nanoseconds.
pub const SEC: u64 = 1_000_000_000;

/// An instant, in nanoseconds since an epoch that the habitat chose. Spans of time are plain `u64` nanoseconds.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The epoch.
    pub const ZERO: Time = Time(0);
    /// Later than everything: a timer that is not running.
    pub const NEVER: Time = Time(u64::MAX);

    /// Nanoseconds since `earlier`, 0 if `earlier` is in fact later.
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
