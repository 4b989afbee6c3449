//! Five-bit encodings of time in queue pair attributes and in RNR NAKs.

/// Time that a responder that is not ready asks the requester to wait: a code below 32 (IBA 9.7.5.2.8, table 46).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The table's entries in units of 10 µs. Code 0 is the longest.
    const TEN_US: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];

    /// Returns the timer with this code, of which the low five bits are used.
    #[inline]
    pub const fn new(code: u8) -> RnrTimer {
        RnrTimer(code & 31)
    }

    /// Returns the code.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the nanoseconds, from 10 µs to 655.36 ms.
    #[inline]
    pub const fn nanos(self) -> u64 {
        RnrTimer::TEN_US[self.0 as usize] as u64 * 10_000
    }

    /// Returns the shortest timer of at least `ns`, the longest one if there is none.
    pub fn at_least(ns: u64) -> RnrTimer {
        (1..32).map(RnrTimer).find(|timer| timer.nanos() >= ns).unwrap_or(RnrTimer(0))
    }
}

/// Local ACK Timeout: 4.096 µs · 2ⁿ with a code n below 32, 0 for none (IBA 9.7.6.1.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Returns the timeout with this code, of which the low five bits are used.
    #[inline]
    pub const fn new(code: u8) -> AckTimeout {
        AckTimeout(code & 31)
    }

    /// Returns the code.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the nanoseconds, `None` if the requester waits for ever.
    #[inline]
    pub const fn nanos(self) -> Option<u64> {
        if self.0 == 0 { None } else { Some(4096 << self.0) }
    }

    /// Returns the shortest timeout of at least `ns`, the longest one if there is none.
    pub fn at_least(ns: u64) -> AckTimeout {
        (1..32).map(AckTimeout).find(|timeout| timeout.nanos() >= Some(ns)).unwrap_or(AckTimeout(31))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{MS, SEC};

    #[test]
    fn rnr_timer_has_the_values_of_table_46() {
        for (code, us) in [(0, 655_360), (1, 10), (5, 60), (12, 640), (13, 960), (20, 10_240), (31, 491_520)] {
            assert_eq!(RnrTimer::new(code).nanos(), us * 1_000, "code {code}");
        }
        let sorted: Vec<u64> = (1..33).map(|code| RnrTimer::new(code).nanos()).collect();
        assert!(sorted.is_sorted(), "codes 1 to 31, then 0, grow: {sorted:?}");
    }

    #[test]
    fn rnr_timer_rounds_up() {
        for code in 0..32 {
            let timer = RnrTimer::new(code);
            assert_eq!(RnrTimer::at_least(timer.nanos()), timer);
        }
        assert_eq!(RnrTimer::at_least(0), RnrTimer::new(1));
        assert_eq!(RnrTimer::at_least(641_000), RnrTimer::new(13));
        assert_eq!(RnrTimer::at_least(SEC), RnrTimer::new(0));
    }

    #[test]
    fn ack_timeout_doubles_with_each_code() {
        assert_eq!(AckTimeout::new(0).nanos(), None);
        assert_eq!(AckTimeout::new(1).nanos(), Some(8_192));
        assert_eq!(AckTimeout::new(14).nanos(), Some(67_108_864));
        assert_eq!(AckTimeout::new(31).nanos(), Some(4096 << 31));
        assert_eq!(AckTimeout::at_least(67 * MS), AckTimeout::new(14));
        assert_eq!(AckTimeout::at_least(u64::MAX), AckTimeout::new(31));
    }
}
