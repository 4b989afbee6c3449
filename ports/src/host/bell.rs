//! Wake-up words: whether a receiver sleeps and must be woken.
//!
//! A receiver shares one such word, the bell, with all its senders. While it polls, the word is 0 and no sender makes a
//! system call. A sender that reads 1 wakes the receiver by a byte on their connection. The sender alone owns its end
//! of the connection: the flags of a shared descriptor could be changed by the other process, and a write to it could
//! then block forever.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::sys;
use crate::bell;
use crate::region::{PAGE, Region, Shared};

/// The page of a bell.
#[derive(Default)]
#[repr(C)]
struct Word {
    asleep: bell::Bell,
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

    fn asleep(&self) -> &bell::Bell {
        &self.region.object::<Word>(0).asleep
    }

    /// Requests wake-ups from senders. The caller must issue a fence and then check for frames that came before it.
    pub(super) fn prepare_sleep(&self) {
        self.asleep().request();
    }

    /// Cancels the request for wake-ups.
    #[inline]
    pub(super) fn cancel_sleep(&self) {
        self.asleep().withdraw();
    }

    /// Returns the memory file to pass to senders.
    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// The bell of another process.
pub(super) struct PeerBell(Region);

impl PeerBell {
    /// Maps the bell that a peer passed; `None` if the file is not one.
    pub(super) fn new(memory: OwnedFd) -> Option<PeerBell> {
        if sys::sealed_len(memory.as_fd())? != PAGE {
            return None;
        }
        Region::map(memory.as_fd(), PAGE).ok().map(PeerBell)
    }

    /// Returns whether the peer sleeps and has not been woken yet, in which case the caller must wake it. The caller
    /// must have issued a fence after publishing.
    #[inline]
    pub(super) fn ring(&self) -> bool {
        self.0.object::<Word>(0).asleep.ring()
    }
}
