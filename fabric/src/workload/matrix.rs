//! Connection matrices of htsim, unmodified.
//!
//! ```text
//! Nodes 432
//! Connections 2
//! 7->12 id 1 start 0 size 135000
//! 3->12 id 2 start 0 size 0 prio 1
//! ```
//!
//! A size of 0 is a flow without an end. Starts are picoseconds in files for today's htsim and microseconds in older
//! ones, so a start other than 0 requires the unit to be given. Hosts are numbered as in this crate's topologies: those
//! behind one switch are consecutive. Triggers, which start a flow when another ends, are rejected.

use std::path::Path;

use super::{ENDLESS, Flow, Setting, poisson::MAX_FLOWS, sort};
use crate::input::{Error, Line, Lines};
use irnic_units as units;

/// The unit of starts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 10⁻¹² s.
    Picoseconds,
    /// 10⁻⁶ s.
    Microseconds,
}

/// Latest start, ns.
const MAX_START: u64 = 3_600_000_000_000;

/// Reads the number of hosts of a matrix.
pub fn nodes(path: &Path) -> Result<u32, Error> {
    let text = Lines::read(path)?;
    number(&mut Lines::new(path, &text), "Nodes", u32::MAX.into()).map(|nodes| nodes as u32)
}

/// Reads a matrix. Without a `unit`, all flows must start at 0.
pub fn read(path: &Path, unit: Option<Unit>, setting: &Setting<'_>, class: u8) -> Result<Vec<Flow>, Error> {
    parse(path, &Lines::read(path)?, unit, setting, class)
}

/// Parses `text` like [`read`]; `path` is for messages.
pub fn parse(
    path: &Path,
    text: &str,
    unit: Option<Unit>,
    setting: &Setting<'_>,
    class: u8,
) -> Result<Vec<Flow>, Error> {
    let mut lines = Lines::new(path, text);
    let nodes = number(&mut lines, "Nodes", u64::from(setting.topology.hosts) + 1)?;
    let count = number(&mut lines, "Connections", MAX_FLOWS)?;
    let mut flows = Vec::new();
    for at in 1..=count {
        let line = lines.expect(&format!("connection {at} of {count}"))?;
        flows.push(flow(&line, nodes as u32, unit, setting, class)?);
    }
    if let Some(line) = lines.next() {
        return Err(line.wrong_line(format!("the end after {count} connections, without triggers")));
    }
    sort(&mut flows);
    Ok(flows)
}

/// Parses a line of a word and a number below `limit`.
fn number(lines: &mut Lines<'_>, word: &str, limit: u64) -> Result<u64, Error> {
    let expected = format!("{word} and a number below {limit}");
    let line = lines.expect(&expected)?;
    if line.columns.len() != 2 || line.columns[0] != word {
        return Err(line.wrong_line(expected));
    }
    line.below(1, limit, &expected)
}

fn flow(line: &Line<'_>, nodes: u32, unit: Option<Unit>, setting: &Setting<'_>, class: u8) -> Result<Flow, Error> {
    let pair = |text: &str| {
        let (src, dst) = text.split_once("->")?;
        let (src, dst): (u32, u32) = (src.parse().ok()?, dst.parse().ok()?);
        (src < nodes && dst < nodes && src != dst).then_some((src, dst))
    };
    let (src, dst) = line.column(0, pair, &format!("SOURCE->DESTINATION, two numbers below {nodes}"))?;
    let mut flow = Flow { priority: setting.priority, class, ..Flow::new(src, dst, ENDLESS, 0) };
    let mut at = 1;
    let mut sized = false;
    while at < line.columns.len() {
        let key = line.columns[at];
        let value = line.columns.get(at + 1).ok_or_else(|| line.wrong(format!("a value after {key}"), key))?;
        let wrong = |expected: &str| line.wrong(expected, value);
        match key {
            "id" => {}
            "start" => flow.start = start(value, unit).ok_or_else(|| wrong(START))?,
            "size" => {
                let bytes = value.parse().ok().filter(|bytes| *bytes <= units::MAX_BYTES);
                flow.bytes = match bytes.ok_or_else(|| wrong("a number of bytes, 0 for no end"))? {
                    0 => ENDLESS,
                    bytes => bytes,
                };
                sized = true;
            }
            "prio" => {
                flow.priority = value.parse().ok().filter(|n| *n < 8).ok_or_else(|| wrong("a priority, 0 to 7"))?;
            }
            _ => return Err(line.wrong("id, start, size or prio, and no triggers", key)),
        }
        at += 2;
    }
    if sized { Ok(flow) } else { Err(line.wrong_line("a connection with a size")) }
}

const START: &str = "a start of 0, or cm:FILE,unit=ps or unit=us, which says what it counts";

/// Parses a start into ns.
fn start(text: &str, unit: Option<Unit>) -> Option<u64> {
    let start: u64 = text.parse().ok()?;
    let ns = match unit {
        None if start == 0 => 0,
        None => return None,
        Some(Unit::Picoseconds) => start / 1_000,
        Some(Unit::Microseconds) => start.checked_mul(1_000)?,
    };
    Some(ns).filter(|ns| *ns <= MAX_START)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    fn flows(text: &str, unit: Option<Unit>) -> Result<Vec<Flow>, String> {
        let topology = Topology::star(16, 1, 1);
        let setting = Setting {
            topology: &topology,
            seed: 1,
            load: 0.5,
            duration: None,
            flows: None,
            mtu: 1024,
            header: 62,
            priority: 2,
        };
        parse(Path::new("m.cm"), text, unit, &setting, 3).map_err(|error| error.to_string())
    }

    #[test]
    fn connections_are_flows() {
        // As in htsim's incast.cm and permutation.cm, with a start.
        let text = "Nodes 16\nConnections 3\n1->0 id 1 start 2000000 size 2000000\n2->0 start 0 size 0\n\n\
                    3->15 id 3 start 0 size 9000 prio 7\n";
        let flow = |src, dst, bytes, start, priority| Flow { priority, class: 3, ..Flow::new(src, dst, bytes, start) };
        let read = |start| vec![flow(2, 0, ENDLESS, 0, 2), flow(3, 15, 9_000, 0, 7), flow(1, 0, 2_000_000, start, 2)];
        assert_eq!(flows(text, Some(Unit::Picoseconds)), Ok(read(2_000)));
        assert_eq!(flows(text, Some(Unit::Microseconds)), Ok(read(2_000_000_000)));
        assert_eq!(
            flows(text, None).unwrap_err(),
            "m.cm:3: expected a start of 0, or cm:FILE,unit=ps or unit=us, which says what it counts, found `2000000`"
        );
    }

    #[test]
    fn errors_name_the_line() {
        for (text, said) in [
            ("Nodes 17\n", "m.cm:1: expected Nodes and a number below 17, found `17`"),
            ("Nodes 4\nConnections 1\n", "m.cm:3: expected connection 1 of 1, found the end of the file"),
            (
                "Nodes 4\nConnections 1\n1->4 size 1",
                "m.cm:3: expected SOURCE->DESTINATION, two numbers below 4, found `1->4`",
            ),
            ("Nodes 4\nConnections 1\n1->2 start 0", "m.cm:3: expected a connection with a size, found `1->2 start 0`"),
            (
                "Nodes 4\nConnections 1\n1->2 trigger 1 size 3",
                "m.cm:3: expected id, start, size or prio, and no triggers, found `trigger`",
            ),
            (
                "Nodes 4\nConnections 0\ntrigger id 1 oneshot",
                "m.cm:3: expected the end after 0 connections, without triggers, found `trigger id 1 oneshot`",
            ),
        ] {
            assert_eq!(flows(text, None).unwrap_err(), said, "{text}");
        }
    }
}
