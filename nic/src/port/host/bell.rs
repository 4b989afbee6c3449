//! How a sleeping receiver is woken: one word that says that it sleeps, and an event counter that it waits for.
//!
//! A receiver has one bell, which all its senders get. While it polls, the word is 0 and no sender makes a system call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::sys;
use crate::port::region::{PAGE, Region, Shared};

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
    event: OwnedFd,
}

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        let memory = sys::memory(c"irnic-bell", PAGE)?;
        Ok(Bell { region: Region::map(memory.as_fd(), PAGE)?, memory, event: sys::event()? })
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

    /// What becomes readable when somebody rings.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// What a sender must be given.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.memory.as_fd(), self.event.as_fd()]
    }
}

/// The bell of another process.
pub(super) struct PeerBell {
    region: Region,
    event: OwnedFd,
}

impl PeerBell {
    /// The bell that a peer passed; `None` if it cannot be one.
    pub(super) fn new(memory: OwnedFd, event: OwnedFd) -> Option<PeerBell> {
        if super::sealed_len(memory.as_fd())? != PAGE || !sys::is_event(event.as_fd()) {
            return None;
        }
        Some(PeerBell { region: Region::map(memory.as_fd(), PAGE).ok()?, event })
    }

    /// Wakes the peer if it sleeps; a fence after the news was published has to come before. Returns whether it slept.
    #[inline]
    pub(super) fn ring(&self) -> bool {
        let asleep = &self.region.object::<Word>(0).asleep;
        // The swap lets only one of many senders ring.
        let slept = asleep.load(Ordering::Relaxed) == 1 && asleep.swap(0, Ordering::Relaxed) == 1;
        if slept {
            sys::signal(self.event.as_fd());
        }
        slept
    }
}
