//! A token bucket that decides when the next packet may leave.

use crate::footprint::{bits, footprint, instant, left, why, width};
use crate::time::Time;
use crate::time::{MS, SEC};

/// Tokens are billionths of a bit, so that one nanosecond at one bit per second is one token and nothing is ever
/// rounded.
const PER_BYTE: i128 = 8 * SEC as i128;

/// Paces a sender to a rate in bit/s, with bursts up to a number of bytes after idle times.
///
/// A packet may leave when the bucket covers it, or is full: one longer than the burst then leaves the bucket in debt,
/// so the rate holds whatever the packet sizes.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// bit/s, 0 for no pacing.
    rate: u64,
    burst: i128,
    tokens: i128,
    /// Time at which `tokens` was computed.
    counted: Time,
    /// Earliest departure of a packet that was held back, never if there is none.
    held: Time,
}

/// Maximum delay of a held packet that does not reduce the rate, ns: real-time drivers always run slightly late. The
/// tokens earned meanwhile may be spent at once.
const CATCH_UP: u64 = MS;

impl Pacer {
    /// Creates a full bucket. `rate` in bit/s, 0 for no pacing; `burst` in bytes.
    pub fn new(now: Time, rate: u64, burst: u32) -> Pacer {
        let burst = i128::from(burst) * PER_BYTE;
        Pacer { rate, burst, tokens: burst, counted: now, held: Time::NEVER }
    }

    /// Returns the rate in bit/s, 0 if unpaced.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Sets the rate in bit/s, 0 for no pacing. Tokens or debt from the old rate until `now` are kept. Time spent
    /// unpaced earns nothing and costs nothing.
    pub fn set_rate(&mut self, now: Time, rate: u64) {
        self.earn(now);
        self.rate = rate;
    }

    /// Sets the burst in bytes. Tokens above it are lost.
    pub fn set_burst(&mut self, now: Time, burst: u32) {
        self.earn(now);
        self.burst = i128::from(burst) * PER_BYTE;
        self.tokens = self.tokens.min(self.full());
    }

    /// Returns when a packet of `bytes` may leave if nothing else does before: `now` or later.
    #[inline]
    pub fn earliest(&self, now: Time, bytes: u32) -> Time {
        if self.rate == 0 {
            return now;
        }
        let missing = (i128::from(bytes) * PER_BYTE).min(self.burst) - self.tokens_at(now);
        if missing <= 0 {
            return now;
        }
        let ns = (missing as u128).div_ceil(u128::from(self.rate));
        now + u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Holds a packet until `at`, as returned by [`Self::earliest`]. If it is sent later, up to a millisecond, the
    /// delay does not count as idle time: its tokens are earned beyond the burst.
    #[inline]
    pub fn hold(&mut self, at: Time) {
        self.held = at;
    }

    /// Takes the tokens of a packet of `bytes` that leaves at `now`, going into debt if it leaves too early.
    #[inline]
    pub fn spend(&mut self, now: Time, bytes: u32) {
        if self.rate != 0 {
            self.earn(now);
            self.tokens -= i128::from(bytes) * PER_BYTE;
            self.held = Time::NEVER;
        }
    }

    /// Cancels a debt.
    pub fn cancel_debt(&mut self, now: Time) {
        self.earn(now);
        self.tokens = self.tokens.max(0);
    }

    fn earn(&mut self, now: Time) {
        self.tokens = self.tokens_at(now);
        self.counted = self.counted.max(now);
    }

    #[inline]
    fn tokens_at(&self, now: Time) -> i128 {
        let earned = i128::from(self.rate) * i128::from(now.since(self.counted));
        let late = i128::from(self.rate) * i128::from(now.since(self.held).min(CATCH_UP));
        self.tokens.saturating_add(earned).min((self.full() + late).max(self.tokens))
    }

    /// Returns the capacity. The extra nanosecond's worth keeps the tokens earned by rounding a wait up to whole
    /// nanoseconds; without it they would be lost with every packet as long as the burst.
    fn full(&self) -> i128 {
        self.burst + i128::from(self.rate)
    }
}

footprint!(Pacer, |at| {
    rate => bits(width::RATE),
    burst => left(why::SHARED),
    tokens => bits(width::RATE),
    counted => instant(),
    held => left("makes up for software that is late"),
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::US;
    use proptest::prelude::*;

    const GBIT: u64 = 1_000_000_000;

    /// Sends `sizes` repeatedly as early as allowed until `end`; returns the bytes sent and when the last one left.
    fn run(pacer: &mut Pacer, from: Time, end: Time, sizes: &[u32]) -> (u64, Time) {
        let (mut now, mut sent) = (from, 0);
        for &bytes in sizes.iter().cycle() {
            let at = pacer.earliest(now, bytes);
            if at >= end {
                break;
            }
            now = at;
            pacer.spend(now, bytes);
            sent += u64::from(bytes);
        }
        (sent, now)
    }

    #[test]
    fn unpaced_never_waits() {
        let mut pacer = Pacer::new(Time::ZERO, 0, 0);
        for _ in 0..100 {
            assert_eq!(pacer.earliest(Time(5), u32::MAX), Time(5));
            pacer.spend(Time(5), u32::MAX);
        }
    }

    #[test]
    fn a_full_bucket_lets_one_burst_through_and_then_the_rate_holds() {
        // 8 Gbit/s is one byte per nanosecond.
        let mut pacer = Pacer::new(Time::ZERO, 8 * GBIT, 3000);
        for _ in 0..3 {
            assert_eq!(pacer.earliest(Time::ZERO, 1000), Time::ZERO);
            pacer.spend(Time::ZERO, 1000);
        }
        assert_eq!(pacer.earliest(Time::ZERO, 1000), Time(1000));
        assert_eq!(pacer.earliest(Time(400), 1000), Time(1000));
    }

    #[test]
    fn idle_time_earns_no_more_than_the_burst() {
        let mut pacer = Pacer::new(Time::ZERO, 8 * GBIT, 3000);
        let (sent, _) = run(&mut pacer, Time(SEC), Time(SEC + 1), &[1000]);
        assert_eq!(sent, 3000);
    }

    #[test]
    fn a_packet_longer_than_the_burst_leaves_and_is_paid_for_afterwards() {
        let mut pacer = Pacer::new(Time::ZERO, 8 * GBIT, 100);
        assert_eq!(pacer.earliest(Time::ZERO, 4096), Time::ZERO);
        pacer.spend(Time::ZERO, 4096);
        assert_eq!(pacer.earliest(Time::ZERO, 4096), Time(4096));
    }

    #[test]
    fn a_packet_that_was_held_back_and_is_asked_for_late_costs_no_rate() {
        // 8 Gbit/s is one byte per nanosecond.
        let mut pacer = Pacer::new(Time::ZERO, 8 * GBIT, 1000);
        let (mut now, mut sent) = (Time::ZERO, 0);
        while now < Time(10 * MS) {
            let at = pacer.earliest(now, 1000);
            if at > now {
                pacer.hold(at);
                // Every poll is 50 µs late, the time of fifty packets.
                now = at + 50 * US;
                continue;
            }
            pacer.spend(now, 1000);
            sent += 1000;
        }
        assert!((sent as u64).abs_diff(now.0) <= 52_000, "{sent} bytes in {now:?}");
        // A host that stalled for ten milliseconds catches up by one.
        pacer.hold(now + 10);
        let (burst, _) = run(&mut pacer, now + 10 * MS, now + 10 * MS + 1, &[1000]);
        assert!((MS - 2000..MS + 2000).contains(&burst), "{burst}");
    }

    #[test]
    fn a_rate_change_keeps_what_was_earned() {
        let mut pacer = Pacer::new(Time::ZERO, 8 * GBIT, 2000);
        pacer.spend(Time::ZERO, 2000);
        pacer.set_rate(Time(500), 4 * GBIT);
        assert_eq!(pacer.earliest(Time(500), 500), Time(500));
        assert_eq!(pacer.earliest(Time(500), 1000), Time(1500));
        pacer.set_rate(Time(500), 0);
        pacer.set_rate(Time(900), 8 * GBIT);
        assert_eq!(pacer.earliest(Time(900), 1000), Time(1400));
    }

    #[test]
    fn a_debt_that_is_forgiven_is_no_credit() {
        let mut pacer = Pacer::new(Time::ZERO, 8 * GBIT, 100);
        pacer.spend(Time::ZERO, 4096);
        pacer.cancel_debt(Time(50));
        assert_eq!(pacer.earliest(Time(50), 4096), Time(150));
        pacer.cancel_debt(Time(110));
        assert_eq!(pacer.earliest(Time(110), 4096), Time(150));
    }

    #[test]
    fn a_clock_that_steps_back_earns_nothing() {
        let mut pacer = Pacer::new(Time(1000), 8 * GBIT, 1000);
        pacer.spend(Time(1000), 1000);
        assert_eq!(pacer.earliest(Time(0), 10), Time(10));
        pacer.spend(Time(0), 0);
        assert_eq!(pacer.earliest(Time(1000), 10), Time(1010));
    }

    #[test]
    fn the_rate_is_met_within_a_percent_at_every_rate() {
        let sizes = [64, 4096, 1024, 9000, 1, 256, 2048];
        for (rate, span) in [
            (1_000_000, 1000 * MS),
            (100_000_000, 1000 * MS),
            (GBIT, 100 * MS),
            (10 * GBIT, 100 * MS),
            (40 * GBIT, 20 * MS),
            (100 * GBIT, 10 * MS),
            (400 * GBIT, 10 * MS),
        ] {
            for burst in [0, 64, 9000] {
                let mut pacer = Pacer::new(Time::ZERO, rate, burst);
                let (sent, _) = run(&mut pacer, Time::ZERO, Time(span), &sizes);
                let exact = rate as f64 * span as f64 / SEC as f64 / 8.0;
                // The burst at the beginning and the incomplete packet at the end.
                let slack = f64::from(burst) + 9000.0;
                assert!((sent as f64 - exact).abs() <= exact * 0.0001 + slack, "{rate} {burst}: {sent} for {exact}");
            }
        }
    }

    proptest! {
        #[test]
        fn never_exceeds_and_never_falls_behind(
            rate in 1_000_000u64..400_000_000_000,
            burst in 0u32..100_000,
            sizes in prop::collection::vec(1u32..10_000, 1..20),
            span in 10 * US..10 * MS,
        ) {
            let mut pacer = Pacer::new(Time(17), rate, burst);
            let (sent, last) = run(&mut pacer, Time(17), Time(17 + span), &sizes);
            let earned = u128::from(rate) * u128::from(last.since(Time(17))) / (8 * u128::from(SEC));
            let most = u128::from(burst.max(10_000)) + 1 + u128::from(rate) / (8 * u128::from(SEC));
            prop_assert!(u128::from(sent) <= earned + most);
            // The bucket begins full, and the sender is never idle.
            prop_assert!(u128::from(sent) + 10_000 >= u128::from(rate) * u128::from(span) / (8 * u128::from(SEC)));
        }

        #[test]
        fn waiting_until_earliest_is_enough(
            rate in 1u64..400_000_000_000,
            burst in 0u32..100_000,
            packets in prop::collection::vec((1u32..10_000, 0u64..10_000), 1..50),
        ) {
            let mut pacer = Pacer::new(Time::ZERO, rate, burst);
            let mut now = Time::ZERO;
            for (bytes, pause) in packets {
                let at = pacer.earliest(now + pause, bytes);
                prop_assert_eq!(pacer.earliest(at, bytes), at);
                now = at;
                pacer.spend(now, bytes);
            }
        }
    }
}
