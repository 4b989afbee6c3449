//! The performance of this machine without a NIC, for comparison: `irnic perf --baseline`.

use std::io;
use std::time::Duration;

use irnic_ports::raw::{self, Rate, RoundTrip};

use crate::error::PerfError;

/// Number of measurements of each path, interleaved so that disturbances affect all equally; the median is reported.
const TURNS: usize = 5;
const TIME: Duration = Duration::from_millis(100);
const ROUNDS: usize = 20_000;
/// Payload of a full packet.
const PACKET: usize = 4096;
/// Size of the raw ring, bytes: that of the shared-memory port.
const RING: usize = 512 << 10;
const MIB: f64 = (1u64 << 20) as f64;

/// A path, and its measurement.
type Row<T> = (&'static str, fn() -> io::Result<T>);

const RATES: [Row<Rate>; 6] = [
    ("copy of 64 KiB, one core", || Ok(raw::copy_bandwidth(raw::MESSAGE, TIME))),
    ("ring, 4096 B", || raw::ring_bandwidth(PACKET, RING, TIME)),
    ("ring, 8 B", || raw::ring_bandwidth(8, RING, TIME)),
    ("UDP with segmentation, 4096 B", || raw::udp_bandwidth(PACKET, TIME)),
    ("UDP with window and ACKs, 4096 B", || raw::udp_reliable_bandwidth(TIME)),
    ("UDP with segmentation, 64 B", || raw::udp_bandwidth(64, TIME)),
];
const TRIPS: [Row<RoundTrip>; 3] = [
    ("ring, 2 B", || raw::ring_rtt(ROUNDS)),
    ("UDP, 2 B", || raw::udp_rtt(ROUNDS)),
    ("UDP, 44 B, a port's options", || raw::udp_rtt_as_port(ROUNDS)),
];

/// The median of several measurements, by `key`; `None` if the machine does not support it.
fn medians<T: Copy>(rows: &[Row<T>], key: impl Fn(&T) -> f64) -> Result<Vec<Option<T>>, PerfError> {
    let mut turns: Vec<Vec<T>> = rows.iter().map(|_| Vec::new()).collect();
    for _ in 0..TURNS {
        for ((_, measure), turns) in rows.iter().zip(&mut turns) {
            match measure() {
                Ok(value) => turns.push(value),
                Err(e) if e.kind() == io::ErrorKind::Unsupported => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    for turns in &mut turns {
        turns.sort_by(|a, b| key(a).total_cmp(&key(b)));
    }
    Ok(turns.iter().map(|turns| turns.get(turns.len() / 2).copied()).collect())
}

/// Measures and prints.
pub fn print() -> Result<(), PerfError> {
    println!(" raw path (no NIC, two cores)      BW[MiB/sec]   BW[Gb/sec]   MsgRate[Mpps]");
    for ((name, _), rate) in RATES.iter().zip(medians(&RATES, |rate| rate.bytes_per_second)?) {
        match rate {
            Some(Rate { bytes_per_second: bytes, frames_per_second: frames }) => {
                println!(" {name:<32} {:>12.2} {:>12.2} {:>15.6}", bytes / MIB, bytes * 8.0 / 1e9, frames / 1e6);
            }
            None => println!(" {name:<32}  not on this machine"),
        }
    }
    println!(" raw path                          t_typical[usec], half a round trip   99% percentile[usec]");
    for ((name, _), trip) in TRIPS.iter().zip(medians(&TRIPS, |trip| trip.median as f64)?) {
        match trip {
            Some(RoundTrip { median, p99 }) => {
                println!(" {name:<32} {:>16.2} {:>38.2}", median as f64 / 2e3, p99 as f64 / 2e3);
            }
            None => println!(" {name:<32}  not on this machine"),
        }
    }
    Ok(())
}
