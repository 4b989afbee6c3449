//! Rates, times and sizes as one writes them for a network: decimal numbers, exact, with a unit.

use irnic_nic::impair::units::{MAX_NS, MAX_RATE, with_unit};

/// What [`rate`] reads, for messages.
pub const RATE: &str = "a rate such as 40G, 100Gbps or 2500Mbit, up to 1000T";
/// What [`time`] reads, for messages.
pub const TIME: &str = "a time such as 2us, 500ns or 1.5ms, up to 3600s";
/// What [`size`] reads, for messages.
pub const SIZE: &str = "a size such as 1000, 150MB (decimal), 64K or 64KiB (of 1024), 1 byte to 1 TB";

/// The largest size that can be written, bytes.
pub const MAX_BYTES: u64 = 1_000_000_000_000;

/// In bit/s. Other than `tc`, which reads `bps` as bytes, networks and ns-3 count bits in it.
const RATES: [(&str, u64); 21] = [
    ("", 1),
    ("bps", 1),
    ("bit", 1),
    ("b/s", 1),
    ("k", 1_000),
    ("kbps", 1_000),
    ("kbit", 1_000),
    ("kb/s", 1_000),
    ("m", 1_000_000),
    ("mbps", 1_000_000),
    ("mbit", 1_000_000),
    ("mb/s", 1_000_000),
    ("g", 1_000_000_000),
    ("gbps", 1_000_000_000),
    ("gbit", 1_000_000_000),
    ("gb/s", 1_000_000_000),
    ("t", 1_000_000_000_000),
    ("tbps", 1_000_000_000_000),
    ("tbit", 1_000_000_000_000),
    ("tb/s", 1_000_000_000_000),
    ("bit/s", 1),
];

/// In ns. Without a unit only zero is clear.
const TIMES: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// In bytes, as GNU's tools count: K is 1024, as in `irnic perf --size`; KB is 1000, as in papers; KiB says it.
const SIZES: [(&str, u64); 14] = [
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

/// Reads a rate in bit/s, 1 to 1 Pbit/s. A capital B, bytes to some, is refused.
pub fn rate(text: &str) -> Option<u64> {
    if text.contains('B') {
        return None;
    }
    with_unit(text, &RATES).filter(|rate| (1..=MAX_RATE).contains(rate))
}

/// Reads a time in ns, 0 to an hour.
pub fn time(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    with_unit(text, &TIMES).filter(|ns| *ns <= MAX_NS)
}

/// Reads a size in bytes, 1 to [`MAX_BYTES`].
pub fn size(text: &str) -> Option<u64> {
    with_unit(text, &SIZES).filter(|bytes| (1..=MAX_BYTES).contains(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_bits() {
        for (text, bits) in [
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
        ] {
            assert_eq!(rate(text), bits, "{text}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        for (text, ns) in [
            ("2us", Some(2_000)),
            ("0.001ms", Some(1_000)),
            ("0", Some(0)),
            ("1s", Some(1_000_000_000)),
            ("2", None),
            ("0.5ns", None),
            ("3601s", None),
        ] {
            assert_eq!(time(text), ns, "{text}");
        }
    }

    #[test]
    fn k_is_1024_and_kb_is_1000() {
        for (text, bytes) in [
            ("64K", Some(65_536)),
            ("64KB", Some(64_000)),
            ("64KiB", Some(65_536)),
            ("150MB", Some(150_000_000)),
            ("1", Some(1)),
            ("0", None),
            ("2TB", None),
            ("1X", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }
}
