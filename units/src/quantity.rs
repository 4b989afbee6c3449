//! Quantities with units, parsed as exact decimals without floating point, so that printed values parse back unchanged.
//!
//! There are two dialects. Most of irnic's input is written as networks and papers write it: [`rate`], [`time`],
//! [`size`]. Impairments are written as in `tc`, where `bps` is bytes per second, a bare time is in microseconds and
//! `kb` is 1024 bytes: [`tc_rate`], [`tc_time`], [`tc_size`]. A parser with units of its own passes them to
//! [`with_unit`].

use std::fmt;

/// A unit: its lowercase name and its value in base units.
pub type Unit = (&'static str, u64);

/// What [`rate`] accepts, for error messages.
pub const RATE: &str = "a rate such as 40G, 100Gbps or 2500Mbit, up to 1000T";
/// What [`time`] accepts, for error messages.
pub const TIME: &str = "a time such as 2us, 500ns or 1.5ms, up to 3600s";
/// What [`size`] accepts, for error messages.
pub const SIZE: &str = "a size such as 1000, 150MB (decimal), 64K or 64KiB (of 1024), 1 byte to 1 TB";

/// Longest time accepted, one hour: longer than any delay, and sums cannot overflow.
pub const MAX_NS: u64 = 3_600 * 1_000_000_000;
/// Highest rate accepted, 1 Pbit/s.
pub const MAX_RATE: u64 = 1_000_000_000_000_000;
/// Lowest rate of a link, bit/s, 1 Mbit/s: lower ones are numbers with a forgotten unit.
pub const MIN_LINK_RATE: u64 = 1_000_000;
/// Largest size accepted, bytes.
pub const MAX_BYTES: u64 = 1_000_000_000_000;

/// In ns. Without a unit only zero is unambiguous.
const TIMES: [Unit; 6] =
    [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1), ("\u{b5}s", 1_000), ("\u{3bc}s", 1_000)];

/// Additional units of `tc`, which reads a bare number as microseconds.
const TC_TIMES: [Unit; 7] = [
    ("", 1_000),
    ("sec", 1_000_000_000),
    ("secs", 1_000_000_000),
    ("msec", 1_000_000),
    ("msecs", 1_000_000),
    ("usec", 1_000),
    ("usecs", 1_000),
];

/// In bit/s.
const RATES: [Unit; 6] =
    [("tbit", 1_000_000_000_000), ("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1), ("", 1)];

/// SI letters alone.
const LETTERS: [Unit; 4] = [("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000), ("t", 1_000_000_000_000)];

/// As networks and ns-3 write bit rates.
const BIT_RATES: [Unit; 11] = [
    ("bps", 1),
    ("kbps", 1_000),
    ("mbps", 1_000_000),
    ("gbps", 1_000_000_000),
    ("tbps", 1_000_000_000_000),
    ("b/s", 1),
    ("kb/s", 1_000),
    ("mb/s", 1_000_000),
    ("gb/s", 1_000_000_000),
    ("tb/s", 1_000_000_000_000),
    ("bit/s", 1),
];

/// Additional units of `tc`, where `bps` is bytes per second.
const TC_RATES: [Unit; 12] = [
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

/// In bytes, as in GNU's tools: K is 1024; KB is 1000, as in papers; KiB is explicit.
const SIZES: [Unit; 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1_000),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
    ("t", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("tib", 1 << 40),
];

/// In bytes, as in `tc`: all multiples of 1024, whatever the name.
const TC_SIZES: [Unit; 8] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
];

/// Parses a rate in bit/s, 1 to [`MAX_RATE`]. A capital B, which may mean bytes, is rejected.
pub fn rate(text: &str) -> Option<u64> {
    if text.contains('B') {
        return None;
    }
    bit_rate(text, [&RATES[..], &LETTERS, &BIT_RATES])
}

/// The expected value in place of a link's rate below [`MIN_LINK_RATE`], which was written as `text`.
pub fn too_slow(text: &str, rate: u64) -> Option<String> {
    if rate >= MIN_LINK_RATE {
        return None;
    }
    let meant = if is_bare(text) { format!("; did you mean {text}G?") } else { String::new() };
    Some(format!("a rate of 1M or more, {text} being {rate} bit/s{meant}"))
}

/// Returns whether a quantity has no unit.
fn is_bare(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// Parses a rate as `tc` does, in bit/s, but not one below [`MIN_LINK_RATE`] whose unit was forgotten.
pub fn tc_link_rate(text: &str) -> Option<u64> {
    tc_rate(text).filter(|rate| *rate >= MIN_LINK_RATE || !is_bare(text))
}

/// Parses a rate as `tc` does, in bit/s, 1 to [`MAX_RATE`].
pub fn tc_rate(text: &str) -> Option<u64> {
    bit_rate(text, [&RATES[..], &TC_RATES])
}

/// Parses a rate as [`tc_rate`] does, and also a letter alone: `40G`.
pub fn tc_rate_or_letter(text: &str) -> Option<u64> {
    bit_rate(text, [&RATES[..], &LETTERS, &TC_RATES])
}

fn bit_rate<const N: usize>(text: &str, units: [&[Unit]; N]) -> Option<u64> {
    with_unit(text, units.into_iter().flatten()).filter(|rate| (1..=MAX_RATE).contains(rate))
}

/// Parses a time in ns, at most [`MAX_NS`]; zero needs no unit. A fraction of a nanosecond is rejected.
pub fn time(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    with_unit(text, &TIMES).filter(|ns| *ns <= MAX_NS)
}

/// Parses a time as `tc` does, in ns, at most [`MAX_NS`].
pub fn tc_time(text: &str) -> Option<u64> {
    with_unit(text, TIMES.iter().chain(&TC_TIMES)).filter(|ns| *ns <= MAX_NS)
}

/// Parses a size in bytes, 1 to [`MAX_BYTES`].
pub fn size(text: &str) -> Option<u64> {
    with_unit(text, &SIZES).filter(|bytes| (1..=MAX_BYTES).contains(bytes))
}

/// Parses a size as `tc` does, in bytes, at most [`MAX_BYTES`].
pub fn tc_size(text: &str) -> Option<u64> {
    with_unit(text, &TC_SIZES).filter(|bytes| *bytes <= MAX_BYTES)
}

/// A time in ns, displayed in the largest unit that keeps it an integer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Nanoseconds(pub u64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_whole(f, self.0, &TIMES[..4])
    }
}

/// A rate in bit/s, displayed in the largest unit that keeps it an integer.
#[derive(Copy, Clone, Debug)]
pub struct BitRate(pub u64);

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_whole(f, self.0, &RATES[..5])
    }
}

/// Writes `value` in the first of `units` that divides it; they go from the largest to 1.
fn write_whole(f: &mut fmt::Formatter<'_>, value: u64, units: &[Unit]) -> fmt::Result {
    let fits = |(_, scale): &&Unit| value != 0 && value.is_multiple_of(*scale);
    let (unit, scale) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
    write!(f, "{}{unit}", value / scale)
}

/// Parses a decimal number followed by one of `units`, in any case. `None` if it is anything else, or not an integer
/// after scaling.
pub fn with_unit<'a>(text: &str, units: impl IntoIterator<Item = &'a Unit>) -> Option<u64> {
    // Twelve places resolve a bit in a terabit; the rest of a fraction must be zero.
    const PLACES: u32 = 12;
    let (value, unit) = decimal(text, PLACES)?;
    let (_, scale) = units.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let scaled = value.checked_mul(u128::from(*scale))?;
    let one = 10u128.pow(PLACES);
    scaled.is_multiple_of(one).then_some(scaled / one).and_then(|v| u64::try_from(v).ok())
}

/// Splits `12.5unit`, with an optional blank between, into the number times ten to the `places`, and the unit. More
/// decimal places than that are rejected.
pub fn decimal(text: &str, places: u32) -> Option<(u128, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || whole.len() > 20 || fraction.len() > places as usize {
        return None;
    }
    // A second point stays in `fraction`, which then fails to parse.
    let read = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u128>().ok() };
    let fraction = read(fraction)? * 10u128.pow(places - fraction.len() as u32);
    Some((read(whole)? * 10u128.pow(places) + fraction, unit.trim_start()))
}

/// Parses a number, or a quotient of two such as `1/16`.
pub fn quotient(text: &str) -> Option<f64> {
    let (above, below) = text.split_once('/').unwrap_or((text, "1"));
    Some(above.trim().parse::<f64>().ok()? / below.trim().parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(read: fn(&str) -> Option<u64>, cases: &[(&str, Option<u64>)]) {
        for (text, value) in cases {
            assert_eq!(read(text), *value, "{text}");
        }
    }

    #[test]
    fn rates_count_bits() {
        reads(
            rate,
            &[
                ("40G", Some(40_000_000_000)),
                ("100Gbps", Some(100_000_000_000)),
                ("2.5gbit", Some(2_500_000_000)),
                ("100Mb/s", Some(100_000_000)),
                ("1000", Some(1000)),
                ("100GBps", None),
                ("0", None),
                ("40X", None),
                ("", None),
                ("-1G", None),
            ],
        );
    }

    #[test]
    fn times_need_a_unit() {
        reads(
            time,
            &[
                ("2us", Some(2_000)),
                ("0.001ms", Some(1_000)),
                ("0", Some(0)),
                ("1s", Some(1_000_000_000)),
                ("3µs", Some(3_000)),
                ("3μs", Some(3_000)),
                ("2 us", Some(2_000)),
                ("2", None),
                ("2usec", None),
                ("0.5ns", None),
                ("3601s", None),
            ],
        );
    }

    #[test]
    fn tc_counts_in_1024() {
        reads(
            tc_size,
            &[
                ("0", Some(0)),
                ("100", Some(100)),
                ("5k", Some(5 << 10)),
                ("5KB", Some(5 << 10)),
                ("1.5m", Some(3 << 19)),
                ("1gb", Some(1 << 30)),
                ("1kbit", None),
                ("2000g", None),
                ("-1", None),
            ],
        );
    }

    #[test]
    fn k_is_1024_and_kb_is_1000() {
        reads(
            size,
            &[
                ("64K", Some(65_536)),
                ("64KB", Some(64_000)),
                ("64KiB", Some(65_536)),
                ("150MB", Some(150_000_000)),
                ("1", Some(1)),
                ("0", None),
                ("2TB", None),
                ("1X", None),
            ],
        );
    }

    #[test]
    fn times_take_the_units_of_tc_and_microseconds_without_one() {
        reads(
            tc_time,
            &[
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
            ],
        );
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
            ("10g", None),
            ("99999tbit", None),
        ] {
            assert_eq!(tc_rate(text), rate, "{text}");
            assert!(rate.is_none() || tc_rate_or_letter(text) == rate, "{text}");
            let forgotten = text.parse::<f64>().is_ok() && rate.is_some_and(|rate| rate < MIN_LINK_RATE);
            assert_eq!(tc_link_rate(text), rate.filter(|_| !forgotten), "{text}");
        }
    }

    #[test]
    fn letters_go_with_the_units_of_tc_where_that_is_asked_for() {
        for (text, bits) in [("40G", 40_000_000_000), ("2.5 gbit", 2_500_000_000), ("1gbps", 8_000_000_000)] {
            assert_eq!(tc_rate_or_letter(text), Some(bits), "{text}");
        }
    }

    #[test]
    fn quotients_are_of_two_numbers() {
        for (text, value) in
            [("1/16", Some(0.0625)), ("0.5", Some(0.5)), ("1 / 4", Some(0.25)), ("1/", None), ("/2", None)]
        {
            assert_eq!(quotient(text), value, "{text}");
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
