//! A word with which a thread that sleeps, or is about to, asks others to wake it.
//!
//! Both sides issue a sequentially consistent fence between their write and their read: the sleeper between setting the
//! word and its last check, the others between publishing and [`Bell::ring`]. So either the request is seen, or the
//! last check finds what was published.

use crate::sync::{AtomicU32, Ordering};

/// A wake-up word: 1 while a wake-up is wanted.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    /// Requests a wake-up. The caller issues a fence, then checks once more whether there is work.
    #[inline]
    pub(crate) fn request(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// Withdraws the request. Costs only a read if there is none.
    #[inline]
    pub(crate) fn withdraw(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether the sleeper has a pending request, in which case the caller must wake it. The caller has issued
    /// a fence after publishing its data.
    #[inline]
    pub(crate) fn ring(&self) -> bool {
        // The swap lets only one of several threads ring.
        self.0.load(Ordering::Relaxed) == 1 && self.0.swap(0, Ordering::Relaxed) == 1
    }

    /// Withdraws the request, and returns whether it was already honoured.
    pub(crate) fn was_rung(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) == 0
    }

    /// Returns the word, for futex(2).
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }
}
