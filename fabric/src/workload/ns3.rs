//! Flow files of the ns-3 RDMA simulators, unmodified.
//!
//! The first line has the number of flows. HPCC and TLT continue with `source destination priority port bytes start`
//! for each, ConWeave has no port; the start is in seconds. The formats are distinguished by the number of columns. The
//! rest after the last flow is ignored, since those simulators read no further. Files of the first DCQCN simulator are
//! rejected: their six columns are `source destination priority packets start end`.

use std::path::Path;

use irnic_units as units;

use super::{Flow, poisson::MAX_FLOWS, sort};
use crate::input::{Error, Line, Lines};
use crate::topology::Topology;

/// Latest start, s.
const MAX_START: f64 = 3600.0;

/// Reads a flow file. Hosts are given by their ids in the topology file ([`Topology::ids`]). Times are unchanged; most
/// files begin at 2 s. A flow of no bytes counts as 1 byte, as in ConWeave.
pub fn read(path: &Path, topology: &Topology, class: u8) -> Result<Vec<Flow>, Error> {
    parse(path, &Lines::read(path)?, topology, class)
}

/// Parses `text` like [`read`]; `path` is for messages.
pub fn parse(path: &Path, text: &str, topology: &Topology, class: u8) -> Result<Vec<Flow>, Error> {
    const COUNT: &str = "the number of flows";
    let mut lines = Lines::new(path, text);
    let line = lines.expect(COUNT)?;
    if line.columns.len() != 1 {
        return Err(line.wrong_line(COUNT));
    }
    let count: u64 = line.below(0, MAX_FLOWS, "the number of flows, below 100,000,000")?;
    let mut flows = Vec::new();
    for number in 1..=count {
        let line = lines.expect(&format!("flow {number} of {count}"))?;
        flows.push(flow(&line, topology, class)?);
    }
    sort(&mut flows);
    Ok(flows)
}

const OTHER: &str = "a port below 65,536 and a whole number of bytes before the start (files of the first DCQCN simulator, \
                     with packets, start and end, are not supported)";

fn flow(line: &Line<'_>, topology: &Topology, class: u8) -> Result<Flow, Error> {
    let (bytes, start) = match line.columns.len() {
        5 => (3, 4),
        6 => (4, 5),
        _ => return Err(line.wrong_line("a flow: source, destination, priority, perhaps a port, bytes and start")),
    };
    let is_number = |at: usize, limit: u64| line.columns[at].parse().is_ok_and(|number: u64| number <= limit);
    if line.columns.len() == 6 && !(is_number(3, u16::MAX.into()) && is_number(4, u64::MAX)) {
        return Err(line.wrong_line(OTHER));
    }
    let host = |at| line.column(at, |id| topology.host_with_id(id.parse().ok()?), "the id of a host");
    let (src, dst) = (host(0)?, host(1)?);
    if src == dst {
        return Err(line.wrong("a flow between two hosts", line.columns[1]));
    }
    let priority = line.below(2, 8, "a priority, 0 to 7")?;
    let bytes: u64 = line.below(bytes, units::MAX_BYTES, "a number of bytes, below 1 TB")?;
    let seconds = |text: &str| text.parse::<f64>().ok().filter(|s| (0.0..=MAX_START).contains(s));
    let start = line.column(start, seconds, "a start in seconds, 0 to 3600")?;
    Ok(Flow { src, dst, bytes: bytes.max(1), start: (start * 1e9).round() as u64, priority, class, setup: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(text: &str) -> Result<Vec<Flow>, Error> {
        parse(Path::new("f.txt"), text, &Topology::star(4, 1, 1), 2)
    }

    #[test]
    fn the_number_of_columns_tells_the_simulator() {
        // HPCC's, with trailing comments; ConWeave's, whose generator leaves a blank after the count.
        let hpcc = flows("2\n2 1 3 100 200000000 2\n3 1 3 100 5 2.000000001\n\nFirst line: # of flows\n").unwrap();
        let conweave = flows("2 \n3 1 3 5 2.000000001\n2 1 3 200000000 2.000000000\n").unwrap();
        let flow = |src, bytes, start| Flow { src, dst: 1, bytes, start, priority: 3, class: 2, setup: 0 };
        assert_eq!(hpcc, [flow(2, 200_000_000, 2_000_000_000), flow(3, 5, 2_000_000_001)]);
        assert_eq!(conweave, hpcc);
    }

    #[test]
    fn hosts_are_called_as_in_the_topology_file() {
        let topology =
            crate::topology::ns3::parse(Path::new("t"), "3 1 2\n0\n0 1 1Gbps 1us 0\n0 2 1Gbps 1us 0\n").unwrap();
        let flows = parse(Path::new("f"), "1\n2 1 3 0 0\n", &topology, 0).unwrap();
        assert_eq!((flows[0].src, flows[0].dst, flows[0].bytes), (1, 0, 1));
        let error = parse(Path::new("f"), "1\n2 0 3 0 0\n", &topology, 0).unwrap_err();
        assert_eq!(error.to_string(), "f:2: expected the id of a host, found `0`");
    }

    #[test]
    fn errors_name_file_line_and_what_was_expected() {
        for (text, said) in [
            ("", "f.txt:1: expected the number of flows, found the end of the file"),
            ("x\n", "f.txt:1: expected the number of flows, below 100,000,000, found `x`"),
            ("0 1 3 100 5 2\n", "f.txt:1: expected the number of flows, found `0 1 3 100 5 2`"),
            ("2\n0 1 3 5 2\n", "f.txt:3: expected flow 2 of 2, found the end of the file"),
            (
                "1\n0 1 3 5\n",
                "f.txt:2: expected a flow: source, destination, priority, perhaps a port, bytes and start, found `0 1 3 5`",
            ),
            (
                "1\n2 1 3 10000000 2.0 9.5\n",
                "f.txt:2: expected a port below 65,536 and a whole number of bytes before the start (files of the first \
                 DCQCN simulator, with packets, start and end, are not supported), found `2 1 3 10000000 2.0 9.5`",
            ),
            ("1\n0 4 3 5 2\n", "f.txt:2: expected the id of a host, found `4`"),
            ("1\n0 0 3 5 2\n", "f.txt:2: expected a flow between two hosts, found `0`"),
            ("1\n0 1 8 5 2\n", "f.txt:2: expected a priority, 0 to 7, found `8`"),
            ("1\n0 1 3 -5 2\n", "f.txt:2: expected a number of bytes, below 1 TB, found `-5`"),
            ("1\n0 1 3 5 -2\n", "f.txt:2: expected a start in seconds, 0 to 3600, found `-2`"),
        ] {
            assert_eq!(flows(text).unwrap_err().to_string(), said, "{text:?}");
        }
    }
}
