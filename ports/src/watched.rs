//! What a caller that polls continuously reads in place of polling its port.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::region::Region;
use crate::sync::{AtomicU64, Ordering};

/// A word of memory that changes when a frame arrives at a port: [`Port::watched`](crate::Port::watched).
pub struct Watched {
    word: NonNull<AtomicU64>,
    value: u64,
    /// Contains the word.
    _region: Arc<Region>,
}

// SAFETY: the word is an atomic in a region, which is `Sync`.
unsafe impl Send for Watched {}

impl Watched {
    /// Watches a word in a region for other values than `value`.
    pub(crate) fn new(region: Arc<Region>, word: impl FnOnce(&Region) -> &AtomicU64, value: u64) -> Watched {
        Watched { word: NonNull::from(word(&region)), value, _region: region }
    }

    /// Returns whether no frame has arrived.
    #[inline]
    pub fn is_unchanged(&self) -> bool {
        // SAFETY: the region does not move its words, and exists as long as `self`.
        unsafe { self.word.as_ref() }.load(Ordering::Acquire) == self.value
    }
}
