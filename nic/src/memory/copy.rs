//! Copies of payloads.
//!
//! The C library copies more than about 2 KiB by `rep movsb` where the processor reports it as fast (FSRM). On AMD's
//! Zen 3 and 4 it is slow if the destination begins up to 32 bytes behind the source, modulo the page size (glibc bug
//! 30994): 16 GB/s instead of 40. A payload of 4096 bytes behind its headers in a ring or a datagram easily lies like
//! that. So payloads are copied in pieces below that length.

use std::sync::atomic::{Ordering, fence};

use irnic_transports::{Gather, Payload};

/// Longest range that is copied without calling the C library, bytes.
const SHORT: usize = 32;

/// Longest piece, bytes.
const PIECE: usize = 2048;

/// Copies `len` bytes between ranges that may overlap.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len <= SHORT {
        // SAFETY: the caller's promise.
        return unsafe { copy_short(from, to, len) };
    }
    // When copying from the front, bytes that were not read yet must not be overwritten.
    let in_pieces = (to as usize).wrapping_sub(from as usize) >= len;
    let mut done = 0;
    while in_pieces && len - done > PIECE {
        // SAFETY: `done + PIECE < len`.
        unsafe { std::ptr::copy(from.add(done), to.add(done), PIECE) };
        done += PIECE;
    }
    // SAFETY: `done <= len`.
    unsafe { std::ptr::copy(from.add(done), to.add(done), len - done) };
}

/// Copies at most [`SHORT`] bytes between ranges that may overlap: both ends of the range are read before any is
/// written.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes.
#[inline]
unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    macro_rules! both_ends {
        ($word:ty) => {{
            let last = len - size_of::<$word>();
            // SAFETY: `len` is at least a word's length.
            unsafe {
                let first = from.cast::<$word>().read_unaligned();
                let end = from.add(last).cast::<$word>().read_unaligned();
                to.cast::<$word>().write_unaligned(first);
                to.add(last).cast::<$word>().write_unaligned(end);
            }
        }};
    }
    match len {
        0 => {}
        1 => both_ends!(u8),
        2..4 => both_ends!(u16),
        4..8 => both_ends!(u32),
        8..16 => both_ends!(u64),
        _ => both_ends!(u128),
    }
}

/// Copies a payload, or a frame with one.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_bytes(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: both have the same length, and do not overlap.
    unsafe { copy(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Copies `len` bytes of `payload`, starting at its byte `from`, to `addr`. Nothing is copied if either side has no
/// memory.
///
/// # Safety
/// `addr` must be 0 or writable for `len` bytes, and `from + len` no more than the payload's length.
#[inline]
pub(super) unsafe fn copy_in(payload: &Payload<'_>, from: usize, addr: u64, len: usize) {
    if addr == 0 {
        return;
    }
    let to = addr as *mut u8;
    // An application that polls memory must see the writes of earlier packets before those of this one, as with
    // hardware, whose writes PCIe keeps in order. No instruction on x86-64.
    fence(Ordering::Release);
    match payload {
        // SAFETY: the caller's promise. The ranges may overlap: a QP may be connected to itself.
        Payload::Bytes(bytes) => unsafe { copy(bytes[from..from + len].as_ptr(), to, len) },
        Payload::Gather(gather) => {
            let (mut skip, mut done) = (from, 0);
            for segment in gather.segments() {
                let have = segment.len as usize;
                if skip >= have {
                    skip -= have;
                    continue;
                }
                let take = (have - skip).min(len - done);
                if segment.addr != 0 {
                    // SAFETY: a gather list's segments are readable, and `done + take <= len`.
                    unsafe { copy((segment.addr as *const u8).add(skip), to.add(done), take) };
                }
                done += take;
                skip = 0;
                if done == len {
                    break;
                }
            }
        }
        Payload::Len(_) => {}
    }
}

/// Copies a whole payload to the start of `out`. Phantom memory reads as zeros.
///
/// # Panics
/// If `out` is shorter than the payload.
#[inline]
pub fn copy_payload(payload: &Payload<'_>, out: &mut [u8]) {
    match payload {
        Payload::Bytes(bytes) => copy_bytes(bytes, &mut out[..bytes.len()]),
        Payload::Len(n) => out[..*n as usize].fill(0),
        Payload::Gather(gather) => {
            let mut rest = out;
            for segment in gather.segments() {
                let (now, later) = rest.split_at_mut(segment.len as usize);
                if segment.addr == 0 {
                    now.fill(0);
                } else {
                    // SAFETY: a gather list's segments are readable; `now` has the same length and is not registered
                    // memory.
                    unsafe { copy(segment.addr as *const u8, now.as_mut_ptr(), now.len()) };
                }
                rest = later;
            }
        }
    }
}

/// Returns the segments of a gather list, all of which have memory.
pub(crate) fn pieces<'a>(gather: &Gather<'a>) -> impl Iterator<Item = &'a [u8]> + Clone {
    gather.segments().iter().map(|segment| {
        debug_assert!(segment.addr != 0);
        // SAFETY: a gather list's segments are readable for as long as it lives. The application does not change data
        // being sent before it is acknowledged; if it does, the bytes read are arbitrary, as with any NIC.
        unsafe { std::slice::from_raw_parts(segment.addr as *const u8, segment.len as usize) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_as_a_move_does_however_the_ranges_overlap() {
        let memory: Vec<u8> = (0..20_000u32).map(|i| ((i * 7919) >> 5) as u8).collect();
        for len in (0..=33).chain([2047, 2048, 2049, 4096, 4097, 6200]) {
            for (from, to) in
                [(0, 9000), (9000, 0), (5000, 5000), (5000, 5001), (5001, 5000), (5000, 8000), (8000, 5000)]
            {
                let (mut own, mut expected) = (memory.clone(), memory.clone());
                expected.copy_within(from..from + len, to);
                let start = own.as_mut_ptr();
                // SAFETY: both ranges are within the memory.
                unsafe { copy(start.add(from), start.add(to), len) };
                assert!(own == expected, "{len} bytes from {from} to {to}");
            }
        }
    }
}
