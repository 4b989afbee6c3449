//! Parsing and formatting of values.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use irnic_nic::clock::{Clock, ParseClockError};
use irnic_ports::frames::ParseFrameSpecError;
use irnic_ports::host::CrossMemory;
use irnic_ports::lab::ParseLabSpecError;
use irnic_ports::udp::Segmentation;
use irnic_transports::wire::Mtu;
use irnic_units::keys::{Value, ValueError};
use irnic_units::tc_rate_or_letter;

use super::{GidLayout, Gpu, MAX_UNITS, PortKind, Stats, Units};

/// Maximum length of a device name: with a prefix it must fit into 64 bytes (`ibv_device`), and it is part of a file's
/// name.
const MAX_NAME: usize = 40;

pub(super) fn name(value: &Value<'_>) -> Result<String, ValueError> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if value.text.is_empty()
        || value.text.len() > MAX_NAME
        || value.text.starts_with('.')
        || !value.text.bytes().all(fine)
    {
        return Err(value.wrong("1 to 40 letters, digits, '-', '_' or '.', not beginning with '.'"));
    }
    Ok(value.text.into())
}

pub(super) fn interface(value: &Value<'_>) -> Result<String, ValueError> {
    if value.text.is_empty() || value.text.len() >= libc::IFNAMSIZ || value.text.contains(['/', ' ']) {
        return Err(value.wrong("the name of a network interface, such as eth0"));
    }
    Ok(value.text.into())
}

pub(super) fn addresses(value: &Value<'_>) -> Result<Vec<IpAddr>, ValueError> {
    let all: Option<Vec<IpAddr>> = value.text.split(',').map(|a| a.trim().parse().ok()).collect();
    match all {
        Some(all) if all.iter().any(|a| a.is_unspecified() || a.is_multicast()) => {
            Err(value.wrong("addresses of this host, not a wildcard or a multicast group"))
        }
        Some(all) if (1..).zip(&all).any(|(next, a)| all[next..].contains(a)) => Err(value.wrong("each address once")),
        Some(all) => Ok(all),
        None => Err(value.wrong("IPv4 or IPv6 addresses with commas between, such as 192.0.2.1,2001:db8::1")),
    }
}

/// Parses one of a few words; `expected` lists them.
fn word<T: Copy>(value: &Value<'_>, words: &[(&str, T)], expected: &str) -> Result<T, ValueError> {
    value.read(|text| words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning), expected)
}

/// Parses what follows the word that a port begins with.
type ReadPort = fn(&Value<'_>, &str) -> Result<PortKind, ValueError>;

/// Ports by the words that they are or, with a colon, begin with.
pub(super) const PORTS: [(&str, ReadPort); 5] = [
    ("auto", |_, _| Ok(PortKind::Auto)),
    ("shm", |_, _| Ok(PortKind::Shm)),
    ("udp", |_, _| Ok(PortKind::Udp)),
    ("frames:", |value, spec| {
        let refuse = |e: ParseFrameSpecError| value.refuse(format_args!("frames: {e}"));
        spec.parse().map(PortKind::Frames).map_err(refuse)
    }),
    ("lab:", |value, spec| spec.parse().map(PortKind::Lab).map_err(|e: ParseLabSpecError| value.refuse(e))),
];

pub(super) fn port(value: &Value<'_>) -> Result<PortKind, ValueError> {
    let (word, rest) = value.text.split_at(value.text.find(':').map_or(value.text.len(), |at| at + 1));
    match PORTS.iter().find(|(known, _)| *known == word) {
        Some((_, read)) => read(value, rest),
        None => Err(value.wrong("auto, shm, udp, lab:SOCKET or frames:CARRIER such as frames:tap:tap0")),
    }
}

pub(super) fn mtu(value: &Value<'_>) -> Result<Mtu, ValueError> {
    value.read(|text| text.parse().ok().and_then(Mtu::from_bytes), "256, 512, 1024, 2048 or 4096 bytes")
}

/// Minimum and maximum rate of a link, bit/s.
const RATE_RANGE: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

pub(super) fn rate(value: &Value<'_>) -> Result<u64, ValueError> {
    let read = |text: &str| tc_rate_or_letter(text).filter(|rate| RATE_RANGE.contains(rate));
    value.read(read, "1M to 1T bit/s, such as 40G or 2.5gbit")
}

pub(super) fn ring(value: &Value<'_>) -> Result<usize, ValueError> {
    value.size(128 << 10..=64 << 20, "128K to 64M bytes, such as 512K").map(|bytes| bytes as usize)
}

pub(super) fn socket_buffer(value: &Value<'_>) -> Result<usize, ValueError> {
    value.size(64 << 10..=1 << 30, "64K to 1G bytes, such as 8M").map(|bytes| bytes as usize)
}

pub(super) fn segmentation(value: &Value<'_>) -> Result<Segmentation, ValueError> {
    let (on, off) = (Segmentation::On, Segmentation::Off);
    let words = [("auto", Segmentation::Auto), ("on", on), ("true", on), ("off", off), ("false", off)];
    word(value, &words, "auto, on or off")
}

pub(super) fn cross_memory(value: &Value<'_>) -> Result<CrossMemory, ValueError> {
    let (on, off) = (CrossMemory::On, CrossMemory::Off);
    let words = [("auto", CrossMemory::Auto), ("on", on), ("true", on), ("off", off), ("false", off)];
    word(value, &words, "auto, on or off")
}

/// Maximum spinning time of the background thread, ns.
const MAX_SPIN: u64 = 1_000_000_000;

pub(super) fn spin(value: &Value<'_>) -> Result<Option<u64>, ValueError> {
    match value.text {
        "auto" => Ok(None),
        _ => value.time(0..=MAX_SPIN, "auto, 0, or a time of at most 1s such as 50us").map(Some),
    }
}

pub(super) fn units(value: &Value<'_>) -> Result<Units, ValueError> {
    if value.text == "auto" {
        return Ok(Units::Auto);
    }
    value.number(1..=MAX_UNITS as u64, "auto, or a number from 1 to 16").map(|n| Units::Number(n as usize))
}

pub(super) fn gid_layout(value: &Value<'_>) -> Result<GidLayout, ValueError> {
    value.word(&[("dense", GidLayout::Dense), ("mlx5", GidLayout::Mlx5)])
}

pub(super) fn clock(value: &Value<'_>) -> Result<Clock, ValueError> {
    value.text.parse().map_err(|e: ParseClockError| value.refuse(e))
}

pub(super) fn timestamps(value: &Value<'_>) -> Result<bool, ValueError> {
    value.word(&[("poll", false), ("kernel", true)])
}

pub(super) fn gpu(value: &Value<'_>) -> Result<Gpu, ValueError> {
    value.word(&[("auto", Gpu::Auto), ("on", Gpu::On), ("off", Gpu::Off)])
}

pub(super) fn seed(value: &Value<'_>) -> Result<u64, ValueError> {
    value.number(0..=u64::MAX, "a number from 0 to 18446744073709551615")
}

/// Parses the name of an output file, whose directory exists.
pub(super) fn output(value: &Value<'_>) -> Result<PathBuf, ValueError> {
    let path = Path::new(value.text);
    // `irnic` uses this for standard output.
    if value.text == "-" {
        return Err(value.wrong("the name of a file: standard output is the application's"));
    }
    let directory = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if value.text.is_empty() || path.file_name().is_none() || value.text.ends_with('/') || path.is_dir() {
        return Err(value.wrong("the name of a file, in which %p is the process id"));
    }
    if !directory.is_dir() {
        let directory = directory.display();
        return Err(value.wrong(format_args!("a file in a directory that exists: {directory} does not")));
    }
    Ok(path.into())
}

pub(super) fn stats(value: &Value<'_>) -> Result<Stats, ValueError> {
    match value.text {
        "off" | "false" => Ok(Stats::Off),
        "on" | "true" => Ok(Stats::Text),
        "" => {
            let expected =
                "on (text to standard error), off, or the name of a file for JSON, in which %p is the process id";
            Err(value.wrong(expected))
        }
        _ => output(value)
            .map(Stats::Json)
            .map_err(|error| value.refuse(format_args!("{}; or on (text to standard error), or off", error.why))),
    }
}

pub(super) fn switch(value: &Value<'_>) -> Result<bool, ValueError> {
    let words = [("on", true), ("true", true), ("1", true), ("off", false), ("false", false), ("0", false)];
    word(value, &words, "on or off")
}

/// Returns the file name for process `pid`: replaces `%p`.
pub(crate) fn file_of(path: &Path, pid: u32) -> PathBuf {
    match path.to_str() {
        Some(text) => text.replace("%p", &pid.to_string()).into(),
        None => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value<'_> {
        Value { key: "key", text }
    }

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
            assert_eq!(rate(&value(text)).ok(), is, "{text}");
        }
        assert_eq!(ring(&value("512K")), Ok(512 << 10));
        assert!(ring(&value("1")).is_err() && ring(&value("1T")).is_err());
        assert_eq!(socket_buffer(&value("8m")), Ok(8 << 20));
    }

    #[test]
    fn the_process_id_is_put_into_names() {
        assert_eq!(file_of(Path::new("/tmp/a-%p.pcapng"), 42), Path::new("/tmp/a-42.pcapng"));
        assert_eq!(file_of(Path::new("a"), 42), Path::new("a"));
    }
}
