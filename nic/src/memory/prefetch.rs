//! Prefetch hints to the processor's cache.

/// Prefetches the cache line in which `what` begins. Never blocks.
#[inline(always)]
pub fn fetch<T>(what: &T) {
    fetch_at(what, 0);
}

/// Prefetches all cache lines of `what`. Never blocks.
#[inline(always)]
pub fn fetch_all<T>(what: &T) {
    for line in 0..size_of::<T>().div_ceil(LINE) {
        fetch_at(what, line * LINE);
    }
}

/// Prefetches the first cache lines of `what`, at most `most`. Never blocks.
#[inline(always)]
pub fn fetch_first<T: ?Sized>(what: &T, most: usize) {
    for line in 0..size_of_val(what).div_ceil(LINE).min(most) {
        fetch_at(what, line * LINE);
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

#[inline(always)]
fn fetch_at<T: ?Sized>(what: &T, offset: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing and cannot fault at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast::<i8>().wrapping_add(offset));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (what, offset);
}
