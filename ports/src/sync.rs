//! Atomics shared by two processes or threads: the processor's, or those of the model checker loom, which tries the
//! orders in which a weakly ordered machine may make them visible (the package `irnic-models`, in `ports/models`).

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Orders what was done before a message was passed to the kernel, or after one was received from it: a receiver sees
/// everything that the sender did before. The kernel guarantees this itself; loom does not know that.
#[inline]
pub(crate) fn message() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Returns the address of a word, for the kernel.
#[cfg(not(loom))]
pub(crate) fn address(word: &AtomicU32) -> *mut u32 {
    word.as_ptr()
}

/// A modelled word has no address; no model calls the kernel.
#[cfg(loom)]
pub(crate) fn address(_: &AtomicU32) -> *mut u32 {
    std::ptr::null_mut()
}
