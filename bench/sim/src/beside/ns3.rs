//! `fct.txt` of the ns-3 RDMA simulators.
//!
//! A flow has a line `source destination port port bytes start time ideal`, with times in ns. HPCC and TLT write hosts
//! as addresses in hexadecimal, `0b000101` for host 1; ConWeave writes their ids, and possibly a ninth column.

use std::path::Path;

use irnic_fabric::input::{Error, Lines};

use super::Completed;

pub fn parse(path: &Path, text: &str) -> Result<Vec<Completed>, Error> {
    const EXPECTED: &str = "a flow: source, destination, two ports, bytes, start, time and ideal time in ns";
    let mut lines = Lines::new(path, text);
    let mut all = Vec::new();
    for line in lines.by_ref() {
        if !(8..=9).contains(&line.columns.len()) {
            return Err(line.wrong_line(EXPECTED));
        }
        let number = |at: usize| line.below(at, u64::MAX, EXPECTED);
        let host = |at| line.column(at, host, "a host: an address of eight hexadecimal digits, or an id");
        let (src, dst) = (host(0)?, host(1)?);
        let end = number(5)? as f64 + number(6)? as f64;
        all.push(Completed { src, dst, bytes: Some(number(4)?), end });
    }
    if all.is_empty() {
        lines.expect(EXPECTED)?;
    }
    Ok(all)
}

/// The id of a host is the middle of its address: `node_id_to_ip` of HPCC's `third.cc`.
fn host(text: &str) -> Option<u32> {
    if text.len() == 8 {
        return Some(u32::from_str_radix(text, 16).ok()? >> 8 & 0xffff);
    }
    text.parse().ok()
}
