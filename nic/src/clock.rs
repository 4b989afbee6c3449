//! The hardware clock: the free-running counter that packet time stamps are read from.

use std::fmt;
use std::str::FromStr;

use irnic_transports::Time;
use irnic_units::{Unit, with_unit};

/// Billionths of a tick per tick, and of a second per second.
const GIGA: u64 = 1_000_000_000;

/// A 64-bit counter whose frequency differs from the nominal one by a drift, and which wraps.
///
/// All arithmetic is exact, in 128-bit integers: no tick is ever lost or counted twice.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    nominal_hz: u64,
    /// True frequency in billionths of a hertz.
    nano_hz: u64,
    offset: u64,
}

impl Clock {
    /// Default frequency, 156.25 MHz or 6.4 ns per tick: `hca_core_clock` of a ConnectX-5, and the word clock of 10
    /// Gbit/s Ethernet (10.3125 GBd in words of 66 bits). A tick that is not an integer number of nanoseconds exposes
    /// software that confuses ticks with nanoseconds, which the 1 GHz of a ConnectX-6 Dx would hide.
    pub const DEFAULT_HZ: u64 = 156_250_000;
    /// Highest frequency, 10 GHz or a tenth of a nanosecond per tick.
    pub const MAX_HZ: u64 = 10_000_000_000;
    /// Largest drift in either direction, in parts per million. Crystals stay within 100.
    pub const MAX_DRIFT_PPM: f64 = 100_000.0;

    /// Creates a counter of `nominal_hz` (clamped to 1 to [`Clock::MAX_HZ`]) that shows `offset` at [`Time::ZERO`] and
    /// runs `drift_ppm` parts per million too fast, or too slow if negative (clamped to [`Clock::MAX_DRIFT_PPM`],
    /// resolution one part in 10⁹).
    pub fn new(nominal_hz: u64, drift_ppm: f64, offset: u64) -> Clock {
        let nominal_hz = nominal_hz.clamp(1, Clock::MAX_HZ);
        // NaN casts to 0.
        let drift_ppb = (drift_ppm.clamp(-Clock::MAX_DRIFT_PPM, Clock::MAX_DRIFT_PPM) * 1000.0).round() as i64;
        // At most 1e10 * 1.1e9, which fits.
        let nano_hz = nominal_hz * GIGA.saturating_add_signed(drift_ppb);
        Clock { nominal_hz, nano_hz, offset }
    }

    /// Returns the frequency that the device reports, in Hz.
    pub fn nominal_hz(&self) -> u64 {
        self.nominal_hz
    }

    /// Returns the counter at `now`. It never decreases other than by wrapping at 2⁶⁴.
    #[inline]
    pub fn ticks(&self, now: Time) -> u64 {
        // The usual clock, without a division.
        if self.nano_hz == GIGA * GIGA {
            return self.offset.wrapping_add(now.0);
        }
        let ticks = u128::from(now.0) * u128::from(self.nano_hz) / (u128::from(GIGA) * u128::from(GIGA));
        self.offset.wrapping_add(ticks as u64)
    }

    /// Returns the true duration of `ticks`, in ns, rounded to the nearest; `u64::MAX` on overflow. The wrapping
    /// difference of two readings is off by less than a tick.
    #[inline]
    pub fn to_ns(&self, ticks: u64) -> u64 {
        let scaled = u128::from(ticks) * u128::from(GIGA) * u128::from(GIGA);
        let hz = u128::from(self.nano_hz);
        u64::try_from((scaled + hz / 2) / hz).unwrap_or(u64::MAX)
    }

    /// Returns the duration of `ticks` at the nominal frequency, in ns, rounded to the nearest.
    #[inline]
    pub fn to_nominal_ns(&self, ticks: u64) -> u64 {
        let (scaled, hz) = (u128::from(ticks) * u128::from(GIGA), u128::from(self.nominal_hz));
        u64::try_from((scaled + hz / 2) / hz).unwrap_or(u64::MAX)
    }
}

/// Units of frequencies, in Hz.
const FREQUENCIES: [Unit; 4] = [("ghz", GIGA), ("mhz", 1_000_000), ("khz", 1_000), ("hz", 1)];

/// A description of a clock that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a frequency of 1Hz to 10GHz such as 156.25MHz, then drift=PPM (-100000 to 100000) and offset=TICKS with commas between"
)]
pub struct ParseClockError;

/// Parses a frequency with options, such as `156.25MHz` or `1GHz,drift=20,offset=1000000`: the drift in parts per
/// million, the offset as the counter's value at time 0.
impl FromStr for Clock {
    type Err = ParseClockError;

    fn from_str(text: &str) -> Result<Clock, ParseClockError> {
        let mut parts = text.split(',').map(str::trim);
        let hz = parts.next().and_then(|t| with_unit(t, &FREQUENCIES)).filter(|hz| (1..=Clock::MAX_HZ).contains(hz));
        let (mut drift, mut offset) = (None, None);
        for part in parts {
            let fits = |ppm: &f64| ppm.abs() <= Clock::MAX_DRIFT_PPM;
            let first = match part.split_once('=') {
                Some(("drift", t)) => drift.replace(t.parse().ok().filter(fits).ok_or(ParseClockError)?).is_none(),
                Some(("offset", t)) => offset.replace(t.parse().map_err(|_| ParseClockError)?).is_none(),
                _ => false,
            };
            if !first {
                return Err(ParseClockError);
            }
        }
        Ok(Clock::new(hz.ok_or(ParseClockError)?, drift.unwrap_or(0.0), offset.unwrap_or(0)))
    }
}

/// Writes the form that [`FromStr`] parses.
impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MHZ: u64 = 1_000_000;
        match (self.nominal_hz / MHZ, self.nominal_hz % MHZ) {
            (whole, 0) => write!(f, "{whole}MHz")?,
            _ if self.nominal_hz < MHZ => write!(f, "{}Hz", self.nominal_hz)?,
            (whole, rest) => write!(f, "{whole}.{}MHz", format!("{rest:06}").trim_end_matches('0'))?,
        }
        let drift = (self.nano_hz / self.nominal_hz).cast_signed() - GIGA.cast_signed();
        if drift != 0 {
            write!(f, ",drift={}", drift as f64 / 1000.0)?;
        }
        if self.offset != 0 {
            write!(f, ",offset={}", self.offset)?;
        }
        Ok(())
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new(Clock::DEFAULT_HZ, 0.0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use irnic_transports::time::SEC;
    use proptest::prelude::*;

    #[test]
    fn counts_its_frequency_in_a_second() {
        for (hz, ppm, ticks) in [
            (156_250_000, 0.0, 156_250_000),
            (1_000_000_000, 0.0, 1_000_000_000),
            (1_000_000_000, 50.0, 1_000_050_000),
            (1_000_000_000, -50.0, 999_950_000),
            (1_000_000_000, 0.125, 1_000_000_125),
            (1, 0.0, 1),
            (0, 0.0, 1),
            (1_000_000_000, f64::NAN, 1_000_000_000),
            (1_000_000_000, f64::INFINITY, 1_100_000_000),
            (u64::MAX, 0.0, Clock::MAX_HZ),
        ] {
            assert_eq!(Clock::new(hz, ppm, 0).ticks(Time(SEC)), ticks, "{hz} Hz {ppm} ppm");
        }
    }

    #[test]
    fn is_exact_after_a_century() {
        let century = Time(100 * 365 * 86_400 * SEC);
        assert_eq!(Clock::default().ticks(century), 100 * 365 * 86_400 * Clock::DEFAULT_HZ);
    }

    #[test]
    fn starts_at_its_offset_and_wraps() {
        let clock = Clock::new(1_000_000_000, 0.0, u64::MAX - 9);
        assert_eq!(clock.ticks(Time::ZERO), u64::MAX - 9);
        assert_eq!(clock.ticks(Time(15)), 5);
        assert_eq!(clock.to_ns(clock.ticks(Time(15)).wrapping_sub(clock.ticks(Time(0)))), 15);
    }

    #[test]
    fn a_host_that_trusts_the_nominal_frequency_sees_the_drift() {
        let clock = Clock::new(1_000_000_000, 20.0, 0);
        let ticks = clock.ticks(Time(SEC));
        assert_eq!(clock.to_ns(ticks), SEC);
        assert_eq!(clock.to_nominal_ns(ticks), SEC + 20_000);
    }

    #[test]
    fn is_described_in_words() {
        for (text, clock, canonical) in [
            ("156.25MHz", Clock::default(), "156.25MHz"),
            ("1ghz,drift=20", Clock::new(GIGA, 20.0, 0), "1000MHz,drift=20"),
            ("32768 Hz, offset=7, drift=-0.125", Clock::new(32_768, -0.125, 7), "32768Hz,drift=-0.125,offset=7"),
        ] {
            assert_eq!(text.parse(), Ok(clock), "{text}");
            assert_eq!((clock.to_string().as_str(), canonical.parse()), (canonical, Ok(clock)));
        }
        for text in
            ["", "5", "0Hz", "11GHz", "1GHz,drift=fast", "1GHz,drift=NaN", "1GHz,drift=1,drift=1", "1GHz,phase=1"]
        {
            assert_eq!(text.parse::<Clock>(), Err(ParseClockError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn is_monotone(hz in 1..Clock::MAX_HZ, ppm in -200.0..200.0, at in 0..u64::MAX >> 8, step in 0..10 * SEC) {
            let clock = Clock::new(hz, ppm, 0);
            prop_assert!(clock.ticks(Time(at)) <= clock.ticks(Time(at + step)));
        }

        #[test]
        fn a_difference_of_readings_is_off_by_less_than_a_tick(
            hz in 1_000..Clock::MAX_HZ, ppm in -200.0..200.0, offset: u64, at in 0..u64::MAX >> 8, span in 0..1_000 * SEC,
        ) {
            let clock = Clock::new(hz, ppm, offset);
            let ticks = clock.ticks(Time(at + span)).wrapping_sub(clock.ticks(Time(at)));
            prop_assert!(clock.to_ns(ticks).abs_diff(span) <= clock.to_ns(1) + 1);
        }
    }
}
