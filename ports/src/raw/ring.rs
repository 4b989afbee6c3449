//! A minimal ring between two threads: fixed slots, two positions, frames copied in and out.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{MESSAGE, Rate, RoundTrip, done, two_threads};

/// Frames published and released at a time.
const BATCH: u64 = 16;

#[repr(align(128))]
struct CacheAligned(AtomicU64);

struct Ring {
    slots: Box<[AtomicU64]>,
    /// Words per slot. `mask` is the number of slots, a power of two, less one.
    stride: usize,
    mask: u64,
    frame: usize,
    head: CacheAligned,
    tail: CacheAligned,
}

impl Ring {
    fn new(frame: usize, ring_bytes: usize) -> Ring {
        let stride = frame.next_multiple_of(64) / 8;
        let slots = (ring_bytes / (8 * stride)).max(2 * BATCH as usize).next_power_of_two();
        Ring {
            slots: (0..slots * stride).map(|_| AtomicU64::new(1)).collect(),
            stride,
            mask: slots as u64 - 1,
            frame,
            head: CacheAligned(AtomicU64::new(0)),
            tail: CacheAligned(AtomicU64::new(0)),
        }
    }

    fn slot(&self, index: u64) -> *mut u8 {
        self.slots[(index & self.mask) as usize * self.stride..][..self.stride].as_ptr().cast_mut().cast()
    }

    /// Writes slot `index` from `bytes`.
    ///
    /// # Safety
    /// Only for the producer, and only while `tail + slots > index >= head`.
    unsafe fn write(&self, index: u64, bytes: &[u8]) {
        let len = bytes.len().min(self.frame);
        // SAFETY: a slot holds `frame` bytes, atomics may be written through a shared reference, and the consumer
        // leaves this slot alone, as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.slot(index), len) };
    }

    /// Reads slot `index` into `bytes`.
    ///
    /// # Safety
    /// Only for the consumer, and only while `tail <= index < head`.
    unsafe fn read(&self, index: u64, bytes: &mut [u8]) {
        let len = bytes.len().min(self.frame);
        // SAFETY: as in `write`, with the roles exchanged.
        unsafe { std::ptr::copy_nonoverlapping(self.slot(index), bytes.as_mut_ptr(), len) };
    }
}

/// Returns the offsets of consecutive frames in the application's buffer, repeated indefinitely.
fn frames(frame: usize) -> impl Iterator<Item = usize> {
    (0..MESSAGE / frame).map(move |i| i * frame).cycle()
}

/// Measures the bandwidth of frames of `frame` bytes (clamped to 1 to 64 Ki) through a ring of about `ring_bytes`
/// between two cores, for `time`.
///
/// # Errors
/// `Unsupported` on a machine with one core; otherwise the system's error.
pub fn ring_bandwidth(frame: usize, ring_bytes: usize, time: Duration) -> io::Result<Rate> {
    let frame = frame.clamp(1, MESSAGE);
    let ring = Ring::new(frame, ring_bytes);
    let stop = AtomicBool::new(false);
    let send = || {
        let buffer = vec![3u8; MESSAGE];
        let (mut next, mut tail) = (0, 0);
        let mut at = frames(frame);
        while !stop.load(Ordering::Relaxed) {
            if next + BATCH > tail + ring.mask + 1 {
                tail = ring.tail.0.load(Ordering::Acquire);
                std::hint::spin_loop();
                continue;
            }
            for offset in at.by_ref().take(BATCH as usize) {
                // SAFETY: there is room for the batch, as just checked.
                unsafe { ring.write(next, &buffer[offset..offset + frame]) };
                next += 1;
            }
            ring.head.0.store(next, Ordering::Release);
        }
        Ok(())
    };
    let receive = || {
        let mut buffer = vec![0u8; MESSAGE];
        let mut next = 0;
        let mut at = frames(frame);
        let start = Instant::now();
        loop {
            let head = ring.head.0.load(Ordering::Acquire);
            if head == next && !done(next, start.elapsed(), time) {
                std::hint::spin_loop();
                continue;
            }
            for offset in at.by_ref().take((head - next) as usize) {
                // SAFETY: before the head.
                unsafe { ring.read(next, &mut buffer[offset..offset + frame]) };
                next += 1;
                if next.is_multiple_of(BATCH) {
                    ring.tail.0.store(next, Ordering::Release);
                }
            }
            std::hint::black_box(&mut buffer);
            if done(next, start.elapsed(), time) {
                stop.store(true, Ordering::Relaxed);
                return Ok(Rate::new(next, frame, start.elapsed()));
            }
        }
    };
    two_threads(send, receive).map(|(_, rate)| rate)
}

/// Measures `rounds` round trips of 2 bytes through two rings.
///
/// # Errors
/// `Unsupported` on a machine with one core; otherwise the system's error.
pub fn ring_rtt(rounds: usize) -> io::Result<RoundTrip> {
    let (there, back) = (Ring::new(2, 0), Ring::new(2, 0));
    let run = |out: &Ring, inn: &Ring, first: bool| {
        let mut ends = Vec::with_capacity(rounds);
        let mut bytes = [0, 0];
        for i in 0..rounds as u64 {
            if first {
                // SAFETY: at most one frame is in either ring.
                unsafe { out.write(i, &bytes) };
                out.head.0.store(i + 1, Ordering::Release);
            }
            while inn.head.0.load(Ordering::Acquire) == i {
                std::hint::spin_loop();
            }
            // SAFETY: before the head.
            unsafe { inn.read(i, &mut bytes) };
            if first {
                ends.push(Instant::now());
            } else {
                // SAFETY: at most one frame is in either ring.
                unsafe { out.write(i, &bytes) };
                out.head.0.store(i + 1, Ordering::Release);
            }
        }
        Ok(RoundTrip::from_instants(&ends))
    };
    two_threads(|| run(&there, &back, true), || run(&back, &there, false)).map(|(trip, _)| trip)
}
