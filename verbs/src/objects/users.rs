//! Number of objects that refer to another, which must outlive them.

use std::sync::atomic::{AtomicU32, Ordering};

/// A count of objects that refer to the one that contains it.
#[derive(Debug, Default)]
pub(super) struct Users(AtomicU32);

impl Users {
    /// Returns whether there are any.
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// Adds one.
    pub(super) fn hold(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes one that was added.
    pub(super) fn release(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
