//! Values in words, and words of values.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use irnic_nic::clock::{Clock, ParseClockError};
use irnic_ports::udp::Segmentation;
use irnic_transports::wire::Mtu;
use irnic_units as units;

use super::{PortKind, Stats};

/// A value, or what would have been one.
pub(super) type Parsed<T> = Result<T, String>;

fn expected<T>(what: &str) -> Parsed<T> {
    Err(format!("expected {what}"))
}

/// The longest name of a device: it and a prefix go into 64 bytes (`ibv_device`), and it is part of a file's name.
const MAX_NAME: usize = 40;

pub(super) fn name(text: &str) -> Parsed<String> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if text.is_empty() || text.len() > MAX_NAME || text.starts_with('.') || !text.bytes().all(fine) {
        return expected("1 to 40 letters, digits, '-', '_' or '.', not beginning with '.'");
    }
    Ok(text.into())
}

pub(super) fn interface(text: &str) -> Parsed<String> {
    if text.is_empty() || text.len() >= libc::IFNAMSIZ || text.contains(['/', ' ']) {
        return expected("the name of a network interface, such as eth0");
    }
    Ok(text.into())
}

pub(super) fn addresses(text: &str) -> Parsed<Vec<IpAddr>> {
    let all: Option<Vec<IpAddr>> = text.split(',').map(|a| a.trim().parse().ok()).collect();
    match all {
        Some(all) if all.iter().any(|a| a.is_unspecified() || a.is_multicast()) => {
            expected("addresses of this host, not a wildcard or a multicast group")
        }
        Some(all) if (1..).zip(&all).any(|(next, a)| all[next..].contains(a)) => expected("each address once"),
        Some(all) => Ok(all),
        None => expected("IPv4 or IPv6 addresses with commas between, such as 192.0.2.1,2001:db8::1"),
    }
}

pub(super) fn port(text: &str) -> Parsed<PortKind> {
    match text {
        "auto" => Ok(PortKind::Auto),
        "shm" => Ok(PortKind::Shm),
        "udp" => Ok(PortKind::Udp),
        _ => expected("auto, shm or udp"),
    }
}

pub(super) fn mtu(text: &str) -> Parsed<Mtu> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| "expected 256, 512, 1024, 2048 or 4096 bytes".into())
}

/// The lowest and highest rate of a link, bit/s.
const RATE_RANGE: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

pub(super) fn rate(text: &str) -> Parsed<u64> {
    match units::tc_rate_or_letter(text).filter(|r| RATE_RANGE.contains(r)) {
        Some(rate) => Ok(rate),
        None => expected("1M to 1T bit/s, such as 40G or 2.5gbit"),
    }
}

fn bytes(text: &str, range: std::ops::RangeInclusive<u64>, what: &str) -> Parsed<usize> {
    match units::size(text).filter(|b| range.contains(b)) {
        Some(bytes) => Ok(bytes as usize),
        None => expected(what),
    }
}

pub(super) fn ring(text: &str) -> Parsed<usize> {
    bytes(text, 128 << 10..=64 << 20, "128K to 64M bytes, such as 512K")
}

pub(super) fn socket_buffer(text: &str) -> Parsed<usize> {
    bytes(text, 64 << 10..=1 << 30, "64K to 1G bytes, such as 8M")
}

pub(super) fn segmentation(text: &str) -> Parsed<Segmentation> {
    match text {
        "auto" => Ok(Segmentation::Auto),
        "on" | "true" => Ok(Segmentation::On),
        "off" | "false" => Ok(Segmentation::Off),
        _ => expected("auto, on or off"),
    }
}

/// The longest that the background thread may spin, ns.
const MAX_SPIN: u64 = 1_000_000_000;

pub(super) fn spin(text: &str) -> Parsed<u64> {
    match units::time(text).filter(|t| *t <= MAX_SPIN) {
        Some(time) => Ok(time),
        None => expected("0, or a time of at most 1s such as 50us"),
    }
}

pub(super) fn clock(text: &str) -> Parsed<Clock> {
    text.parse().map_err(|e: ParseClockError| e.to_string())
}

pub(super) fn timestamps(text: &str) -> Parsed<bool> {
    match text {
        "poll" => Ok(false),
        "kernel" => Ok(true),
        _ => expected("poll or kernel"),
    }
}

pub(super) fn seed(text: &str) -> Parsed<u64> {
    text.parse().or_else(|_| expected("a number from 0 to 18446744073709551615"))
}

/// Reads the name of a file that can be made: the directory is there.
pub(super) fn output(text: &str) -> Parsed<PathBuf> {
    let path = Path::new(text);
    let directory = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if text.is_empty() || path.file_name().is_none() || text.ends_with('/') || path.is_dir() {
        return expected("the name of a file, in which %p is the process id");
    }
    if !directory.is_dir() {
        return expected(&format!("a file in a directory that exists: {} does not", directory.display()));
    }
    Ok(path.into())
}

pub(super) fn stats(text: &str) -> Parsed<Stats> {
    match text {
        "off" | "false" => Ok(Stats::Off),
        "on" | "true" => Ok(Stats::Text),
        "" => {
            expected("on (text to standard error), off, or the name of a file for JSON, in which %p is the process id")
        }
        file => output(file).map(Stats::Json).map_err(|why| format!("{why}; or on (text to standard error), or off")),
    }
}

pub(super) fn switch(text: &str) -> Parsed<bool> {
    match text {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => expected("on or off"),
    }
}

/// Returns the name of a file of process `pid`: `%p` in it is replaced.
pub(crate) fn file_of(path: &Path, pid: u32) -> PathBuf {
    match path.to_str() {
        Some(text) => text.replace("%p", &pid.to_string()).into(),
        None => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes_have_units() {
        for (text, is) in [
            ("40G", Some(40_000_000_000)),
            ("40g", Some(40_000_000_000)),
            ("2.5gbit", Some(2_500_000_000)),
            ("100Mbit", Some(100_000_000)),
            ("1gbps", Some(8_000_000_000)),
            ("10000000", Some(10_000_000)),
            ("40 G", Some(40_000_000_000)),
            ("1000", None),
            ("40 parsecs", None),
            ("-1G", None),
            ("", None),
        ] {
            assert_eq!(rate(text).ok(), is, "{text}");
        }
        assert_eq!(ring("512K"), Ok(512 << 10));
        assert!(ring("1").is_err() && ring("1T").is_err());
        assert_eq!(socket_buffer("8m"), Ok(8 << 20));
    }

    #[test]
    fn the_process_id_is_put_into_names() {
        assert_eq!(file_of(Path::new("/tmp/a-%p.pcapng"), 42), Path::new("/tmp/a-42.pcapng"));
        assert_eq!(file_of(Path::new("a"), 42), Path::new("a"));
    }
}
