//! A word by which somebody who sleeps, or is about to, has others wake it.
//!
//! Both sides issue a sequentially consistent fence between what they write and what they read: the sleeper between its
//! wish and its last look, the others between what they publish and [`Bell::ring`]. So either the wish is seen, or the
//! last look finds what was published.

use crate::sync::{AtomicU32, Ordering};

/// Such a word: 1 while a wake-up is wanted.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    /// Asks to be woken. The caller issues a fence, and then looks once more whether there is something to do.
    #[inline]
    pub(crate) fn ask(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// Withdraws the wish. Costs a read if there is none.
    #[inline]
    pub(crate) fn withdraw(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether the sleeper wants to be woken and nobody has done so yet: the caller must. The caller has issued
    /// a fence after publishing what it has.
    #[inline]
    pub(crate) fn ring(&self) -> bool {
        // The swap lets only one of many ring.
        self.0.load(Ordering::Relaxed) == 1 && self.0.swap(0, Ordering::Relaxed) == 1
    }

    /// Withdraws the wish, and returns whether somebody has heeded it.
    pub(crate) fn was_rung(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) == 0
    }

    /// Returns the word, for futex(2).
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }
}
