//! Copies of payloads.
//!
//! The C library copies more than about 2 KiB by `rep movsb` where the processor says that this is quick (FSRM). On AMD's
//! Zen 3 and 4 it is not if the destination begins up to 32 bytes behind the source, modulo the size of a page (glibc bug
//! 30994): 16 GB/s instead of 40. A payload of 4096 bytes in a ring or a datagram behind its headers easily lies so. So
//! payloads are copied in pieces that are short enough.

/// The longest piece, bytes.
const PIECE: usize = 2048;

/// Copies `len` bytes, which may overlap.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // From the front, what is not read yet must not be written.
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

/// Copies a payload, or a frame with one.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_bytes(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: both are as long, and do not overlap.
    unsafe { copy(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_as_a_move_does_however_the_ranges_overlap() {
        let memory: Vec<u8> = (0..20_000u32).map(|i| ((i * 7919) >> 5) as u8).collect();
        for len in [0, 1, 2047, 2048, 2049, 4096, 4097, 6200] {
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
