//! Numbers with units as `tc` writes them: exact decimals, no floating point, so that what is printed reads back the same.

use std::fmt;

/// A percentage, exact to a millionth of a percent.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Percent(u32);

impl Percent {
    /// Decimal places that are kept.
    const PLACES: u32 = 6;
    /// Never.
    pub const ZERO: Percent = Percent(0);
    /// Always.
    pub const HUNDRED: Percent = Percent(100_000_000);

    /// A share of 0.0 to 1.0, clamped and rounded.
    pub fn from_share(share: f64) -> Percent {
        Percent((share.clamp(0.0, 1.0) * f64::from(Percent::HUNDRED.0)).round() as u32)
    }

    /// As a share of 0.0 to 1.0.
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(Percent::HUNDRED.0)
    }

    /// What is missing from a hundred percent.
    pub fn complement(self) -> Percent {
        Percent(Percent::HUNDRED.0 - self.0)
    }

    /// As a 64-bit threshold: a uniform `u64` lies below it this often. `None` is a hundred percent.
    pub(crate) fn threshold(self) -> Option<u64> {
        let scaled = (u128::from(self.0) << 64) / u128::from(Percent::HUNDRED.0);
        u64::try_from(scaled).ok()
    }

    /// Reads `1`, `1%` or `0.25%`.
    pub(crate) fn parse(text: &str) -> Option<Percent> {
        let (value, unit) = decimal(text, Percent::PLACES)?;
        let value = u32::try_from(value).ok().filter(|v| *v <= Percent::HUNDRED.0)?;
        matches!(unit, "" | "%").then_some(Percent(value))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10u32.pow(Percent::PLACES);
        write!(f, "{}", self.0 / one)?;
        if !self.0.is_multiple_of(one) {
            let places = format!("{:06}", self.0 % one);
            write!(f, ".{}", places.trim_end_matches('0'))?;
        }
        f.write_str("%")
    }
}

/// Units of time in ns. `tc` takes a bare number for microseconds.
const TIMES: [(&str, u64); 11] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("", 1_000),
    ("sec", 1_000_000_000),
    ("secs", 1_000_000_000),
    ("msec", 1_000_000),
    ("msecs", 1_000_000),
    ("usec", 1_000),
    ("usecs", 1_000),
];

/// Units of rate in bit/s. In `tc` a `bps` is a byte per second.
const RATES: [(&str, u64); 18] = [
    ("tbit", 1_000_000_000_000),
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
    ("", 1),
    ("kibit", 1 << 10),
    ("mibit", 1 << 20),
    ("gibit", 1 << 30),
    ("tibit", 1 << 40),
    ("bps", 8),
    ("kbps", 8_000),
    ("mbps", 8_000_000),
    ("gbps", 8_000_000_000),
    ("tbps", 8_000_000_000_000),
    ("kibps", 8 << 10),
    ("mibps", 8 << 20),
    ("gibps", 8 << 30),
];

/// The longest time that can be written, an hour: no delay is longer, and sums of them cannot overflow.
pub const MAX_NS: u64 = 3_600 * 1_000_000_000;
/// The highest rate that can be written, 1 Pbit/s.
pub const MAX_RATE: u64 = 1_000_000_000_000_000;

/// Reads a time, in ns, at most [`MAX_NS`]. A fraction of a nanosecond is refused.
pub(crate) fn parse_time(text: &str) -> Option<u64> {
    with_unit(text, &TIMES).filter(|ns| *ns <= MAX_NS)
}

/// Reads a rate, in bit/s, 1 to [`MAX_RATE`].
pub(crate) fn parse_rate(text: &str) -> Option<u64> {
    with_unit(text, &RATES).filter(|rate| (1..=MAX_RATE).contains(rate))
}

/// A time in ns, printed in the largest unit that keeps it whole.
pub(crate) struct Nanoseconds(pub u64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_whole(f, self.0, &TIMES[..4])
    }
}

/// A rate in bit/s, printed in the largest unit that keeps it whole.
pub(crate) struct BitRate(pub u64);

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_whole(f, self.0, &RATES[..5])
    }
}

/// `units` from the largest to 1.
fn write_whole(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |(_, scale): &&(&str, u64)| value != 0 && value.is_multiple_of(*scale);
    let (unit, scale) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
    write!(f, "{}{unit}", value / scale)
}

/// Reads a decimal number followed by one of `units`, names and scales, in any case. `None` if it is anything else, or not a
/// whole number once scaled.
pub fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    // Twelve places tell a bit in a terabit; what is left of a fraction must be zero.
    const PLACES: u32 = 12;
    let (value, unit) = decimal(text, PLACES)?;
    let (_, scale) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let scaled = value.checked_mul(u128::from(*scale))?;
    let one = 10u128.pow(PLACES);
    scaled.is_multiple_of(one).then_some(scaled / one).and_then(|v| u64::try_from(v).ok())
}

/// Splits `12.5unit` into the number times ten to the `places`, and the unit. More places than that are refused.
fn decimal(text: &str, places: u32) -> Option<(u128, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || whole.len() > 20 || fraction.len() > places as usize {
        return None;
    }
    // A second point is left in `fraction`, which then is no number.
    let read = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u128>().ok() };
    let fraction = read(fraction)? * 10u128.pow(places - fraction.len() as u32);
    Some((read(whole)? * 10u128.pow(places) + fraction, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_exact_decimals() {
        for (text, printed) in [
            ("1%", Some("1%")),
            ("1", Some("1%")),
            ("0.1%", Some("0.1%")),
            (".5%", Some("0.5%")),
            ("5.%", Some("5%")),
            ("100%", Some("100%")),
            ("0.000001%", Some("0.000001%")),
            ("33.333333%", Some("33.333333%")),
            ("0.0000001%", None),
            ("100.000001%", None),
            ("-1%", None),
            ("1%%", None),
            ("1.2.3%", None),
            (".", None),
            ("%", None),
            ("nan", None),
            ("1e3%", None),
            ("99999999999999999999999999999999%", None),
        ] {
            assert_eq!(Percent::parse(text).map(|p| p.to_string()).as_deref(), printed, "{text}");
        }
    }

    #[test]
    fn thresholds_split_the_range_of_a_draw() {
        assert_eq!(Percent::ZERO.threshold(), Some(0));
        assert_eq!(Percent::from_share(0.5).threshold(), Some(1 << 63));
        assert_eq!(Percent::HUNDRED.threshold(), None);
    }

    #[test]
    fn times_take_the_units_of_tc_and_microseconds_without_one() {
        for (text, ns) in [
            ("1s", Some(1_000_000_000)),
            ("1.5ms", Some(1_500_000)),
            ("10us", Some(10_000)),
            ("250ns", Some(250)),
            ("100", Some(100_000)),
            ("0.001", Some(1)),
            ("3USECS", Some(3_000)),
            ("2sec", Some(2_000_000_000)),
            ("0", Some(0)),
            ("1.5ns", None),
            ("1m", None),
            ("3601s", None),
            ("us", None),
        ] {
            assert_eq!(parse_time(text), ns, "{text}");
        }
    }

    #[test]
    fn rates_count_bits_and_bps_counts_bytes() {
        for (text, rate) in [
            ("10gbit", Some(10_000_000_000)),
            ("10Gbit", Some(10_000_000_000)),
            ("1.5mbit", Some(1_500_000)),
            ("1bps", Some(8)),
            ("1kibps", Some(8192)),
            ("2kibit", Some(2048)),
            ("9600", Some(9600)),
            ("0", None),
            ("0.5bit", None),
            ("10gb", None),
            ("99999tbit", None),
        ] {
            assert_eq!(parse_rate(text), rate, "{text}");
        }
    }

    #[test]
    fn printing_takes_the_largest_unit_that_divides() {
        for (ns, text) in [(0, "0ns"), (1, "1ns"), (1500, "1500ns"), (10_000, "10us"), (1_000_000_000, "1s")] {
            assert_eq!(Nanoseconds(ns).to_string(), text);
        }
        for (rate, text) in [(1, "1bit"), (8_000, "8kbit"), (400_000_000_000, "400gbit"), (1_500_000, "1500kbit")] {
            assert_eq!(BitRate(rate).to_string(), text);
        }
    }
}
