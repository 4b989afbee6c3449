//! How many objects name another, which stays as long as any does.

use std::sync::atomic::{AtomicU32, Ordering};

/// A count of objects that name the one that has it.
#[derive(Debug, Default)]
pub(super) struct Users(AtomicU32);

impl Users {
    /// Returns whether there are any.
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// Counts one in.
    pub(super) fn hold(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one out that was counted in.
    pub(super) fn release(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
