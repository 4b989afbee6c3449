//! Whether a receiver has to be woken: one word that says that it sleeps.
//!
//! A receiver has one bell, which all its senders get to see. While it polls, the word is 0 and no sender makes a system call. Who
//! finds it 1 wakes it by a byte on the connection, whose sending end is the sender's alone: a descriptor that both ends
//! share would have flags that the other could change, and a write to it could then wait for ever.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::sys;
use crate::region::{PAGE, Region, Shared};

/// The bell's page.
#[repr(C)]
struct Word {
    /// 1 while the receiver sleeps, or is about to, and wants to be woken.
    asleep: AtomicU32,
}

// SAFETY: one atomic.
unsafe impl Shared for Word {}

/// The bell of this process.
pub(super) struct Bell {
    region: Region,
    memory: OwnedFd,
}

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        let memory = sys::memory(c"irnic-bell", PAGE)?;
        Ok(Bell { region: Region::map(memory.as_fd(), PAGE)?, memory })
    }

    fn asleep(&self) -> &AtomicU32 {
        &self.region.object::<Word>(0).asleep
    }

    /// From now on senders ring. Then comes a fence, and then another look at what may have come before it.
    pub(super) fn lie_down(&self) {
        self.asleep().store(1, Ordering::Relaxed);
    }

    /// From now on senders do not ring.
    #[inline]
    pub(super) fn get_up(&self) {
        if self.asleep().load(Ordering::Relaxed) != 0 {
            self.asleep().store(0, Ordering::Relaxed);
        }
    }

    /// What a sender must be given.
    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// The bell of another process.
pub(super) struct PeerBell(Region);

impl PeerBell {
    /// The bell that a peer passed; `None` if it cannot be one.
    pub(super) fn new(memory: OwnedFd) -> Option<PeerBell> {
        if super::sealed_len(memory.as_fd())? != PAGE {
            return None;
        }
        Region::map(memory.as_fd(), PAGE).ok().map(PeerBell)
    }

    /// Whether the peer sleeps and has not been rung for yet: the caller is the one to wake it. A fence after the news was
    /// published has to come before.
    #[inline]
    pub(super) fn ring(&self) -> bool {
        let asleep = &self.0.object::<Word>(0).asleep;
        // The swap lets only one of many senders ring.
        asleep.load(Ordering::Relaxed) == 1 && asleep.swap(0, Ordering::Relaxed) == 1
    }
}
