//! Cumulative distributions of flow sizes, in the formats of the simulators of ns-2 and ns-3.
//!
//! One point per line: bytes, and the percentage of flows up to that size, from 0 to 100. Three columns are ns-2's: a
//! size, a number that ns-2 does not use either, and the share. Files of TLT and ns-2 have shares from 0 to 1, which is
//! detected by the last line.
//!
//! Points are interpolated linearly: as in the traffic generators of HPCC and ConWeave, a size is the interpolated
//! value, rounded down, at least 1 byte. A step, two points of the same size, is a size with that share of the flows.
//! With [discrete](Reading::discrete), there is no interpolation: a flow has one of the listed sizes.

use std::path::Path;

use irnic_units as units;

use super::Sizes;
use crate::input::{Error, Line, Lines};

/// Built-in distributions.
pub const NAMES: [&str; 10] = [
    "AliStorage2019",
    "CacheFollower",
    "FbHdp2015",
    "GoogleRPC2008",
    "IMC10",
    "NdpWeb",
    "RoccHadoop",
    "Solar2022",
    "WebSearch",
    "WebServer",
];

const FILES: [&str; 10] = [
    include_str!("../../../fixtures/workloads/AliStorage2019.txt"),
    include_str!("../../../fixtures/workloads/CacheFollower.txt"),
    include_str!("../../../fixtures/workloads/FbHdp2015.txt"),
    include_str!("../../../fixtures/workloads/GoogleRPC2008.txt"),
    include_str!("../../../fixtures/workloads/IMC10.txt"),
    include_str!("../../../fixtures/workloads/NdpWeb.txt"),
    include_str!("../../../fixtures/workloads/RoccHadoop.txt"),
    include_str!("../../../fixtures/workloads/Solar2022.txt"),
    include_str!("../../../fixtures/workloads/WebSearch.txt"),
    include_str!("../../../fixtures/workloads/WebServer.txt"),
];
/// The built-in distributions that are discrete by default.
const DISCRETE: [&str; 3] = ["IMC10", "NdpWeb", "RoccHadoop"];

/// Format of a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Unit of sizes, bytes, 1 or more: 1460 if sizes are in packets.
    pub unit: u64,
    /// Whether sizes are not interpolated. The first share need not be 0 then.
    pub discrete: bool,
}

impl Default for Reading {
    /// Bytes, with interpolation.
    fn default() -> Reading {
        Reading { unit: 1, discrete: false }
    }
}

/// One of [`NAMES`]. Without `discrete`, the default of the distribution: IMC10, NdpWeb and RoccHadoop are discrete,
/// the others are not.
pub fn builtin(name: &str, discrete: Option<bool>) -> Option<Sizes> {
    let at = NAMES.iter().position(|known| *known == name)?;
    let reading = Reading { discrete: discrete.unwrap_or(DISCRETE.contains(&name)), ..Reading::default() };
    Some(parse(Path::new(name), FILES[at], reading).expect("the fixtures are well-formed"))
}

/// Reads a file.
pub fn read(path: &Path, reading: Reading) -> Result<Sizes, Error> {
    parse(path, &Lines::read(path)?, reading)
}

/// Parses `text` like [`read`]; `path` is for messages and the name.
pub fn parse(path: &Path, text: &str, reading: Reading) -> Result<Sizes, Error> {
    let mut lines = Lines::new(path, text);
    let mut points: Vec<(u64, f64)> = Vec::new();
    let mut line = lines.expect(COLUMNS)?;
    let columns = line.columns.len();
    if !matches!(columns, 2 | 3) {
        return Err(line.wrong_line(COLUMNS));
    }
    loop {
        if line.columns.len() != columns {
            return Err(line.wrong_line(format!("{columns} columns, as the first line")));
        }
        let (bytes, share) = point(&line, reading)?;
        let written = line.columns[columns - 1];
        match points.last() {
            None if share != 0.0 && !reading.discrete => {
                return Err(line.wrong("the first percentage to be 0 (or discrete=on)", written));
            }
            Some((before, _)) if bytes < *before => {
                let before = before / reading.unit;
                return Err(line.wrong(format!("{before} or more, as the line before"), line.columns[0]));
            }
            Some((_, before)) if share < *before => {
                return Err(line.wrong(format!("{before} or more, as the line before"), written));
            }
            _ => points.push((bytes, share)),
        }
        line = match lines.next() {
            Some(line) => line,
            None => break,
        };
    }
    if !matches!(points.last(), Some((_, share)) if *share == 100.0 || *share == 1.0) {
        let written = line.columns[columns - 1];
        return Err(line.wrong("the last percentage to be 100, or 1 in a file of shares", written));
    }
    let name = format!("cdf:{}", path.to_string_lossy());
    Ok(if reading.discrete {
        let below = std::iter::once(0.0).chain(points.iter().map(|(_, share)| *share));
        let listed = points.iter().zip(below).map(|((bytes, share), below)| (share - below, *bytes, *bytes));
        Sizes::pieces(name, listed.filter(|(share, ..)| *share > 0.0))
    } else {
        Sizes::pieces(name, points.windows(2).flat_map(|pair| pieces(pair[0], pair[1])))
    })
}

const COLUMNS: &str = "bytes and a percentage";

/// Bytes, and the share of flows up to them.
fn point(line: &Line<'_>, reading: Reading) -> Result<(u64, f64), Error> {
    let bytes = |text: &str| text.parse::<u64>().ok()?.checked_mul(reading.unit).filter(|b| *b < units::MAX_BYTES);
    let share = |text: &str| text.parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
    let expected = match reading.unit {
        1 => "a whole number of bytes, below 1 TB".to_owned(),
        unit => format!("a whole number of units of {unit} bytes, below 1 TB"),
    };
    let bytes = line.column(0, bytes, &expected)?;
    let share = line.column(line.columns.len() - 1, share, "a percentage, 0 to 100")?;
    // With interpolation no flow is below 1 byte; in a list it could be.
    if reading.discrete && bytes == 0 && share > 0.0 {
        return Err(line.wrong("1 or more: a flow has a byte", line.columns[0]));
    }
    Ok((bytes, share))
}

/// The sizes between two points: share, smallest, largest.
fn pieces((from, low): (u64, f64), (to, high): (u64, f64)) -> Vec<(f64, u64, u64)> {
    let share = high - low;
    let pieces = match (from, to) {
        (0, 0 | 1) => vec![(share, 1, 1)],
        // Below 1 byte counts as 1 byte.
        (0, to) => vec![(share / to as f64, 1, 1), (share * (to - 1) as f64 / to as f64, 1, to - 1)],
        (from, to) if from == to => vec![(share, from, from)],
        (from, to) => vec![(share, from, to - 1)],
    };
    pieces.into_iter().filter(|(share, ..)| *share > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_the_trapezoids() {
        for (name, text) in NAMES.iter().zip(FILES) {
            let points: Vec<Vec<f64>> =
                text.lines().map(|l| l.split_whitespace().map(|c| c.parse().unwrap()).collect()).collect();
            // Rounding down takes half a byte, of a step nothing.
            let middle = |p: &[Vec<f64>]| (p[0][0] + p[1][0]) / 2.0 - if p[0][0] < p[1][0] { 0.5 } else { 0.0 };
            let expected: f64 = points.windows(2).map(|p| middle(p) * (p[1][1] - p[0][1]) / 100.0).sum();
            let found = builtin(name, Some(false)).unwrap().mean();
            assert!((found - expected).abs() < 0.02, "{name}: {found}, not {expected}");
        }
    }

    fn parse(text: &str) -> Result<Sizes, Error> {
        super::parse(Path::new("d.txt"), text, Reading::default())
    }

    fn parse_discrete(text: &str, unit: u64) -> Result<Sizes, Error> {
        super::parse(Path::new("d.txt"), text, Reading { unit, discrete: true })
    }

    #[test]
    fn steps_and_shares_are_understood() {
        // Half of the flows have 10 bytes, the rest 20 to 29.
        let sizes = parse("10 0\n10 0.5\n20 0.5\n30 1\n").unwrap();
        assert_eq!(sizes.mean(), 0.5 * 10.0 + 0.5 * 24.5);
        assert_eq!(sizes.mean_packets(10), 0.5 + 0.5 * (2.0 + 9.0 * 3.0) / 10.0);
        assert_eq!(sizes.range(), (10, 29));
        assert_eq!(sizes.name, "cdf:d.txt");
        // ns-2's columns.
        assert_eq!(parse("10 1 0\n10 1 0.5\n20 7 0.5\n30 1 1\n").unwrap(), sizes);
    }

    #[test]
    fn a_discrete_distribution_has_the_sizes_that_are_listed() {
        let sizes = parse_discrete("1 1 0\n1 1 0.5\n2 1 0.75\n4 1 0.75\n8 1 1.0\n", 1460).unwrap();
        assert_eq!(sizes.mean(), 1460.0 * (0.5 + 0.25 * 2.0 + 0.25 * 8.0));
        assert_eq!(sizes.mean_packets(1460), 3.0);
        assert_eq!(sizes.range(), (1460, 8 * 1460));
        // The first share need not be 0; the same in percent.
        assert_eq!(parse_discrete("1 50\n2 75\n8 100\n", 1460).unwrap(), sizes);
        assert_eq!(parse_discrete("7 1\n", 1).unwrap().range(), (7, 7));
    }

    /// The packets of `CDF_aditya.txt`, of 1460 bytes each.
    #[test]
    fn imc10_is_irns_description_of_its_workload() {
        let sizes = builtin("IMC10", None).unwrap();
        let packets = "1 1 0\n1 1 0.5\n2 1 0.6\n3 1 0.7\n5 1 0.75\n7 1 0.8\n40 1 0.8125\n72 1 0.825\n137 1 0.85\n267 1 0.9\n\
                       1187 1 0.95\n2107 1 1\n";
        let listed = parse_discrete(packets, 1460).unwrap();
        assert!((sizes.mean() / listed.mean() - 1.0).abs() < 1e-9 && sizes.range() == listed.range());
        assert!((sizes.mean_packets(1460) - 184.475).abs() < 1e-9, "{}", sizes.mean_packets(1460));
        // Interpolated on request: fewer large flows.
        assert!(builtin("IMC10", Some(false)).unwrap().mean() < sizes.mean());
    }

    #[test]
    fn no_flow_is_empty() {
        for text in ["0 0\n1 100\n", "0 0\n0 100\n"] {
            assert_eq!(parse(text).unwrap().range(), (1, 1));
        }
        assert_eq!(parse("0 0\n4 100\n").unwrap().mean(), (1.0 + 1.0 + 2.0 + 3.0) / 4.0);
    }

    #[test]
    fn errors_name_file_line_and_what_was_expected() {
        for (text, said) in [
            ("", "d.txt:1: expected bytes and a percentage, found the end of the file"),
            ("0\n", "d.txt:1: expected bytes and a percentage, found `0`"),
            ("0.5 0\n", "d.txt:1: expected a whole number of bytes, below 1 TB, found `0.5`"),
            ("0 1 2 3\n", "d.txt:1: expected bytes and a percentage, found `0 1 2 3`"),
            ("0 1 0\n9 100\n", "d.txt:2: expected 3 columns, as the first line, found `9 100`"),
            ("0 1\n", "d.txt:1: expected the first percentage to be 0 (or discrete=on), found `1`"),
            ("0 0\n9 x\n", "d.txt:2: expected a percentage, 0 to 100, found `x`"),
            ("0 0\n9 101\n", "d.txt:2: expected a percentage, 0 to 100, found `101`"),
            ("0 0\n9 NaN\n", "d.txt:2: expected a percentage, 0 to 100, found `NaN`"),
            ("0 0\n9 50\n8 100\n", "d.txt:3: expected 9 or more, as the line before, found `8`"),
            ("0 0\n9 50\n\n10 40\n", "d.txt:4: expected 50 or more, as the line before, found `40`"),
            ("0 0\n9 50\n", "d.txt:2: expected the last percentage to be 100, or 1 in a file of shares, found `50`"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), said, "{text:?}");
        }
        for (text, said) in [
            ("0 1 0.5\n", "d.txt:1: expected 1 or more: a flow has a byte, found `0`"),
            ("1 50\n2 40\n", "d.txt:2: expected 50 or more, as the line before, found `40`"),
            ("5 50\n2 100\n", "d.txt:2: expected 5 or more, as the line before, found `2`"),
            ("1 50\n2 90\n", "d.txt:2: expected the last percentage to be 100, or 1 in a file of shares, found `90`"),
            (
                "1000000000 1\n",
                "d.txt:1: expected a whole number of units of 1460 bytes, below 1 TB, found `1000000000`",
            ),
        ] {
            assert_eq!(parse_discrete(text, 1460).unwrap_err().to_string(), said, "{text:?}");
        }
    }
}
