//! Cumulative distributions of flow sizes, as the ns-3 RDMA simulators have them.
//!
//! A point a line: bytes, and the percentage of flows up to that size, from 0 to 100, with straight lines between. As in the traffic
//! generators of HPCC and ConWeave, a size is what the line says, rounded down, and 1 byte at least. TLT's files have shares,
//! from 0 to 1, which is taken from the last line. A step, two points of the same size, is a size that so many flows have.

use std::path::Path;

use irnic_transports::units;

use super::Sizes;
use crate::input::{Error, Lines};

/// Distributions that need no file.
pub const NAMES: [&str; 5] = ["AliStorage2019", "FbHdp2015", "GoogleRPC2008", "Solar2022", "WebSearch"];

const FILES: [&str; 5] = [
    include_str!("../../../fixtures/workloads/AliStorage2019.txt"),
    include_str!("../../../fixtures/workloads/FbHdp2015.txt"),
    include_str!("../../../fixtures/workloads/GoogleRPC2008.txt"),
    include_str!("../../../fixtures/workloads/Solar2022.txt"),
    include_str!("../../../fixtures/workloads/WebSearch.txt"),
];

/// One of [`NAMES`].
pub fn builtin(name: &str) -> Option<Sizes> {
    let at = NAMES.iter().position(|known| *known == name)?;
    Some(parse(Path::new(name), FILES[at]).expect("the fixtures are well-formed"))
}

/// Reads a file.
pub fn read(path: &Path) -> Result<Sizes, Error> {
    parse(path, &Lines::read(path)?)
}

/// [`read`] of `text`; `path` is for messages and the name.
pub fn parse(path: &Path, text: &str) -> Result<Sizes, Error> {
    let mut lines = Lines::new(path, text);
    let mut points: Vec<(u64, f64)> = Vec::new();
    let mut line = lines.expect("bytes and a percentage")?;
    loop {
        if line.columns.len() != 2 {
            return Err(line.wrong_line("bytes and a percentage"));
        }
        let bytes = line.below(0, units::MAX_BYTES, "a whole number of bytes, below 1 TB")?;
        let share = |text: &str| text.parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
        let share = line.column(1, share, "a percentage, 0 to 100")?;
        match points.last() {
            None if share != 0.0 => return Err(line.wrong("the first percentage to be 0", line.columns[1])),
            Some((before, _)) if bytes < *before => {
                return Err(line.wrong(format!("{before} bytes or more, as the line before"), line.columns[0]));
            }
            Some((_, before)) if share < *before => {
                return Err(line.wrong(format!("{before} or more, as the line before"), line.columns[1]));
            }
            _ => points.push((bytes, share)),
        }
        line = match lines.next() {
            Some(line) => line,
            None => break,
        };
    }
    if !matches!(points.last(), Some((_, share)) if *share == 100.0 || *share == 1.0) {
        return Err(line.wrong("the last percentage to be 100, or 1 in a file of shares", line.columns[1]));
    }
    let name = path.to_string_lossy().into_owned();
    Ok(Sizes::pieces(format!("cdf:{name}"), points.windows(2).flat_map(|pair| pieces(pair[0], pair[1]))))
}

/// The sizes between two points: share, smallest, largest.
fn pieces((from, low): (u64, f64), (to, high): (u64, f64)) -> Vec<(f64, u64, u64)> {
    let share = high - low;
    let pieces = match (from, to) {
        (0, 0 | 1) => vec![(share, 1, 1)],
        // Below 1 byte is 1 byte.
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
            let area = points.windows(2).map(|p| (p[0][0] + p[1][0]) / 2.0 * (p[1][1] - p[0][1]) / 100.0);
            let found = builtin(name).unwrap().mean();
            // Rounding down takes half a byte.
            let expected = area.sum::<f64>() - 0.5;
            assert!((found - expected).abs() < 0.02, "{name}: {found}, not {expected}");
        }
    }

    #[test]
    fn steps_and_shares_are_understood() {
        // Half of the flows have 10 bytes, the rest 20 to 29.
        let sizes = parse(Path::new("d"), "10 0\n10 0.5\n20 0.5\n30 1\n").unwrap();
        assert_eq!(sizes.mean(), 0.5 * 10.0 + 0.5 * 24.5);
        assert_eq!(sizes.mean_packets(10), 0.5 + 0.5 * (2.0 + 9.0 * 3.0) / 10.0);
        assert_eq!(sizes.range(), (10, 29));
        assert_eq!(sizes.name, "cdf:d");
    }

    #[test]
    fn no_flow_is_empty() {
        for text in ["0 0\n1 100\n", "0 0\n0 100\n"] {
            assert_eq!(parse(Path::new("d"), text).unwrap().range(), (1, 1));
        }
        assert_eq!(parse(Path::new("d"), "0 0\n4 100\n").unwrap().mean(), (1.0 + 1.0 + 2.0 + 3.0) / 4.0);
    }

    #[test]
    fn errors_name_file_line_and_what_was_expected() {
        for (text, said) in [
            ("", "d.txt:1: expected bytes and a percentage, found the end of the file"),
            ("0\n", "d.txt:1: expected bytes and a percentage, found `0`"),
            ("0.5 0\n", "d.txt:1: expected a whole number of bytes, below 1 TB, found `0.5`"),
            ("0 1\n", "d.txt:1: expected the first percentage to be 0, found `1`"),
            ("0 0\n9 x\n", "d.txt:2: expected a percentage, 0 to 100, found `x`"),
            ("0 0\n9 101\n", "d.txt:2: expected a percentage, 0 to 100, found `101`"),
            ("0 0\n9 NaN\n", "d.txt:2: expected a percentage, 0 to 100, found `NaN`"),
            ("0 0\n9 50\n8 100\n", "d.txt:3: expected 9 bytes or more, as the line before, found `8`"),
            ("0 0\n9 50\n\n10 40\n", "d.txt:4: expected 50 or more, as the line before, found `40`"),
            ("0 0\n9 50\n", "d.txt:2: expected the last percentage to be 100, or 1 in a file of shares, found `50`"),
        ] {
            assert_eq!(parse(Path::new("d.txt"), text).unwrap_err().to_string(), said, "{text:?}");
        }
    }
}
