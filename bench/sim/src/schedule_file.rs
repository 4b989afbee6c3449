//! Schedules of packets, as CSV or, with the feature `parquet`, as Parquet, with a row for each packet.

#[cfg(feature = "parquet")]
mod columns;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use irnic_fabric::schedule::{Schedule, Scheduled};
use irnic_report::origin::Origin;
use irnic_report::output::input;

use crate::per_flow::Kind;

/// A column of whole numbers.
struct Column {
    name: &'static str,
    get: fn(&Scheduled) -> u64,
    set: fn(&mut Scheduled, u64),
}

/// Columns of all schedules. Those with hops also have `switch_1`, `start_1_ns` and so on.
const COLUMNS: [Column; 12] = [
    Column { name: "flow", get: |p| p.flow.into(), set: |p, v| p.flow = v as u32 },
    Column { name: "psn", get: |p| p.psn.into(), set: |p, v| p.psn = v as u32 },
    Column { name: "src", get: |p| p.src.into(), set: |p, v| p.src = v as u32 },
    Column { name: "dst", get: |p| p.dst.into(), set: |p, v| p.dst = v as u32 },
    Column { name: "wire_bytes", get: |p| p.wire.into(), set: |p, v| p.wire = v as u32 },
    Column { name: "sent_ns", get: |p| p.sent, set: |p, v| p.sent = v },
    Column { name: "left_ns", get: |p| p.left, set: |p, v| p.left = v },
    Column { name: "ideal_ns", get: |p| p.ideal, set: |p, v| p.ideal = v },
    Column { name: "congestion_points", get: |p| p.points.into(), set: |p, v| p.points = v as u8 },
    Column { name: "waits", get: |p| p.waits.into(), set: |p, v| p.waits = v as u8 },
    Column { name: "hops", get: |p| p.hops.into(), set: |p, v| p.hops = v as u8 },
    Column { name: "entropy", get: |p| p.entropy.into(), set: |p, v| p.entropy = v as u32 },
];

/// Maximum number of hops with columns.
const MAX_HOPS: usize = 255;

/// Returns the names of the columns of a hop, counted from 0.
fn of_hop(hop: usize) -> [String; 2] {
    [format!("switch_{}", hop + 1), format!("start_{}_ns", hop + 1)]
}

/// Returns the number of hops of a schedule that have columns.
fn hops(schedule: &Schedule) -> usize {
    if !schedule.has_starts() {
        return 0;
    }
    schedule.packets().iter().map(|packet| usize::from(packet.hops)).max().unwrap_or(0)
}

/// Packets being read, column by column.
struct Rows {
    packets: Vec<Scheduled>,
    /// Columns of hops, packet by packet.
    starts: Vec<Vec<(u32, u64)>>,
}

impl Rows {
    fn schedule(self) -> Schedule {
        if self.starts.is_empty() {
            return Schedule::new(self.packets);
        }
        let mut starts = Vec::new();
        for (at, packet) in self.packets.iter().enumerate() {
            starts.extend(self.starts.iter().take(packet.hops.into()).filter_map(|hop| hop.get(at)));
        }
        Schedule::with_starts(self.packets, starts)
    }
}

/// Writes a schedule.
pub fn write(out: &mut (impl Write + Send), kind: Kind, origin: &Origin, schedule: &Schedule) -> io::Result<()> {
    match kind {
        Kind::Csv => csv(out, origin, schedule),
        #[cfg(feature = "parquet")]
        Kind::Parquet => columns::write(out, origin, schedule).map_err(io::Error::other),
    }
}

fn csv(out: &mut impl Write, origin: &Origin, schedule: &Schedule) -> io::Result<()> {
    out.write_all(origin.comment().as_bytes())?;
    let hops = hops(schedule);
    let mut names: Vec<String> = COLUMNS.iter().map(|c| c.name.to_owned()).collect();
    names.extend((0..hops).flat_map(of_hop));
    writeln!(out, "{}", names.join(","))?;
    for (at, packet) in schedule.packets().iter().enumerate() {
        for (place, column) in COLUMNS.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(out, "{comma}{}", (column.get)(packet))?;
        }
        let starts = schedule.starts(at);
        for hop in 0..hops {
            match starts.get(hop) {
                Some((switch, start)) => write!(out, ",{switch},{start}")?,
                None => out.write_all(b",,")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Reads a schedule written by [`fn@write`]; `kind` is that of its file name.
pub fn read(path: &Path, kind: Kind) -> Result<Schedule, String> {
    input(path)?;
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let read = match kind {
        Kind::Csv => parse(BufReader::new(file)),
        #[cfg(feature = "parquet")]
        Kind::Parquet => columns::read(file),
    };
    read.map_err(|e| format!("{}{e}", path.display()))
}

/// Parses CSV; lines that begin with `#` are comments. Errors begin with the line.
fn parse(text: impl BufRead) -> Result<Schedule, String> {
    let is_comment = |line: &io::Result<String>| line.as_ref().is_ok_and(|line| line.starts_with('#'));
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !is_comment(line));
    let (first, head) = lines.next().ok_or(": is empty; expected a line of names")?;
    let head = head.map_err(|e| format!(": {e}"))?;
    let names: Vec<&str> = head.split(',').collect();
    let place = |name: &str| names.iter().position(|n| *n == name);
    let mut places = Vec::new();
    for column in &COLUMNS {
        places.push(place(column.name).ok_or_else(|| format!(":{first}: no column `{}`", column.name))?);
    }
    let of_hops: Vec<[usize; 2]> = (0..MAX_HOPS)
        .map_while(|hop| {
            let [switch, start] = of_hop(hop);
            Some([place(&switch)?, place(&start)?])
        })
        .collect();
    let mut rows = Rows { packets: Vec::new(), starts: vec![Vec::new(); of_hops.len()] };
    for (at, line) in lines {
        let line = line.map_err(|e| format!(":{at}: {e}"))?;
        let fields: Vec<&str> = line.split(',').collect();
        let number = |place: usize, name: &str| {
            let text = fields.get(place).copied().unwrap_or_default();
            text.parse::<u64>().map_err(|_| format!(":{at}: expected a whole number as {name}, found `{text}`"))
        };
        let mut packet = Scheduled::default();
        for (column, &place) in COLUMNS.iter().zip(&places) {
            (column.set)(&mut packet, number(place, column.name)?);
        }
        for (hop, &[switch, start]) in of_hops.iter().enumerate() {
            let there = hop < usize::from(packet.hops);
            let of = if there { (number(switch, "switch")? as u32, number(start, "start")?) } else { (0, 0) };
            rows.starts[hop].push(of);
        }
        rows.packets.push(packet);
    }
    Ok(rows.schedule())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(starts: bool) -> Schedule {
        let packet = |at: u32| Scheduled {
            flow: at,
            psn: 7,
            src: at,
            dst: 3,
            wire: 1460,
            entropy: u32::MAX - at,
            sent: 10 * u64::from(at),
            left: 5_000_000_000 + u64::from(at),
            ideal: 4_999_999_000,
            hops: at as u8,
            points: 1,
            waits: 2,
        };
        let packets: Vec<Scheduled> = (0..4).map(packet).collect();
        if !starts {
            return Schedule::new(packets);
        }
        Schedule::with_starts(packets, (0..6).map(|n| (n, 1_000 + u64::from(n))).collect())
    }

    fn again(kind: Kind, schedule: &Schedule) -> Schedule {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        write(file.as_file_mut(), kind, &Origin::of_process(), schedule).expect("written");
        read(file.path(), kind).expect("a schedule")
    }

    #[test]
    fn what_is_written_is_read_again() {
        for schedule in [some(false), some(true), Schedule::default()] {
            assert_eq!(again(Kind::Csv, &schedule), schedule);
            #[cfg(feature = "parquet")]
            assert_eq!(again(Kind::Parquet, &schedule), schedule);
        }
    }

    #[test]
    fn errors_name_line_and_column() {
        let said = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert_eq!(said(""), ": is empty; expected a line of names");
        assert_eq!(said("flow,psn\n"), ":1: no column `src`");
        let mut text = Vec::new();
        write(&mut text, Kind::Csv, &Origin::of_process(), &some(false)).expect("written");
        let text = String::from_utf8(text).expect("text").replace("\n1,7,1,3,1460", "\n1,7,1,3,long");
        // Below the comment, the names and a packet.
        assert_eq!(said(&text), ":4: expected a whole number as wire_bytes, found `long`");
    }
}
