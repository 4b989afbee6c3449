//! Baselines: the performance of this machine without a NIC, measured alongside irnic in the same run.
//!
//! There is no protocol here: no acknowledgements, no headers, no checksums; only [`udp_reliable_bandwidth`] has some
//! of these. Every bandwidth includes the copy from and to the application's buffer; both buffers are 64 KiB and
//! reused. The code shares nothing with the ports, so that a slow port cannot slow its own baseline. Two threads spin,
//! each on its own core.

mod reliable;
mod ring;
mod udp;

pub use reliable::udp_reliable_bandwidth;
pub use ring::{ring_bandwidth, ring_rtt};
pub use udp::{udp_bandwidth, udp_rtt, udp_rtt_as_port};

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

/// Size of the application's buffer at each end, in bytes.
pub const MESSAGE: usize = 64 << 10;

/// Cores of the sender and of the receiver.
const CORES: [usize; 2] = [0, 1];

/// A measured bandwidth.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Rate {
    /// Payload bytes per second that arrived.
    pub bytes_per_second: f64,
    /// Frames per second that arrived.
    pub frames_per_second: f64,
}

impl Rate {
    /// Returns the rate of `frames` frames of `frame` bytes in `time`.
    pub fn new(frames: u64, frame: usize, time: Duration) -> Rate {
        let frames_per_second = frames as f64 / time.as_secs_f64().max(1e-9);
        Rate { bytes_per_second: frames_per_second * frame as f64, frames_per_second }
    }

    /// Returns the bandwidth in 10^9 bytes per second.
    pub fn gigabytes(&self) -> f64 {
        self.bytes_per_second / 1e9
    }
}

/// Measured round-trip times.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct RoundTrip {
    /// Median in nanoseconds.
    pub median: u64,
    /// 99th percentile in nanoseconds.
    pub p99: u64,
}

impl RoundTrip {
    /// Computes the times from the instants at which consecutive round trips ended.
    pub fn from_instants(ends: &[Instant]) -> RoundTrip {
        let mut spans: Vec<u64> = ends.windows(2).map(|w| (w[1] - w[0]).as_nanos() as u64).collect();
        spans.sort_unstable();
        let at = |q: usize| spans.get((spans.len() * q / 100).min(spans.len().saturating_sub(1))).copied().unwrap_or(0);
        RoundTrip { median: at(50), p99: at(99) }
    }
}

/// Measures the bandwidth of copying `bytes` from one buffer to another on one core for `time`: one memcpy per message.
pub fn copy_bandwidth(bytes: usize, time: Duration) -> Rate {
    let from = vec![1u8; bytes];
    let mut to = vec![2u8; bytes];
    let mut copies = 0;
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..16 {
            black_box(&mut to).copy_from_slice(black_box(&from));
        }
        copies += 16;
    }
    Rate::new(copies, bytes, start.elapsed())
}

/// Binds the calling thread to the core of the sender (0) or the receiver (1).
///
/// # Errors
/// `Unsupported` for the receiver if there is only one core: two spinning threads would wait for each other. Otherwise
/// the system's error.
pub fn pin(role: usize) -> io::Result<()> {
    if std::thread::available_parallelism()?.get() < CORES.len() && role > 0 {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "two cores are needed for a spinning sender and receiver",
        ));
    }
    // SAFETY: an all-zero set is a valid, empty set, and the core is far below its size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(CORES[role], &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns whether a receiver that has `frames` frames after `elapsed` is done: after `time`, but without any frame
/// only if the sender has been silent for ten more seconds.
fn done(frames: u64, elapsed: Duration, time: Duration) -> bool {
    elapsed >= time && (frames > 0 || elapsed > time + Duration::from_secs(10))
}

/// Runs `near` and `far` in two pinned threads and returns both results.
fn two_threads<A: Send, B: Send>(
    near: impl FnOnce() -> io::Result<A> + Send,
    far: impl FnOnce() -> io::Result<B> + Send,
) -> io::Result<(A, B)> {
    if std::thread::available_parallelism()?.get() < CORES.len() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "two cores are needed for a spinning sender and receiver",
        ));
    }
    // Separate threads, so that the caller's affinity does not change.
    std::thread::scope(|scope| {
        let near = scope.spawn(|| pin(0).and_then(|()| near()));
        let far = scope.spawn(|| pin(1).and_then(|()| far()));
        let panicked = |_| io::Error::other("a measuring thread panicked");
        Ok((near.join().map_err(panicked)??, far.join().map_err(panicked)??))
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Reports measurements that the machine cannot run; does not judge any number.
    fn measured<T>(what: &str, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                irnic_testkit::skipped(&format!("{what}: {e}"));
                None
            }
            Err(e) => panic!("{what}: {e}"),
        }
    }

    #[test]
    fn every_baseline_moves_bytes() {
        let time = Duration::from_millis(5);
        assert!(copy_bandwidth(MESSAGE, time).bytes_per_second > 0.0);
        let rates = [
            measured("ring_bandwidth", ring_bandwidth(4096, 1 << 19, time)),
            measured("ring_bandwidth", ring_bandwidth(64, 1 << 18, time)),
            measured("udp_bandwidth", udp_bandwidth(4096, time)),
            measured("udp_reliable_bandwidth", udp_reliable_bandwidth(time)),
        ];
        assert!(rates.iter().flatten().all(|r| r.frames_per_second > 0.0));
        let trips = [
            measured("ring_rtt", ring_rtt(100)),
            measured("udp_rtt", udp_rtt(100)),
            measured("udp_rtt_as_port", udp_rtt_as_port(100)),
        ];
        assert!(trips.iter().flatten().all(|t| t.median > 0 && t.p99 >= t.median));
    }
}
