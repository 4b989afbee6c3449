//! A lock that a thread takes in one C call and releases in a later one: `ibv_wr_start` to `ibv_wr_complete`,
//! `ibv_start_poll` to `ibv_end_poll`. Other threads wait in between, as in the providers of rdma-core.

use parking_lot::lock_api::RawReentrantMutex;
use parking_lot::{RawMutex, RawThreadId};

/// A lock held by one thread at a time; taking it again has no effect.
pub(crate) struct Turn(RawReentrantMutex<RawMutex, RawThreadId>);

impl Turn {
    /// Creates an unlocked turn.
    pub(crate) const fn new() -> Turn {
        Turn(RawReentrantMutex::INIT)
    }

    /// Waits until this thread has the lock; returns at once if it has it already.
    #[inline]
    pub(crate) fn take(&self) {
        if !self.held() {
            self.0.lock();
        }
    }

    /// Returns whether this thread has the lock.
    #[inline]
    pub(crate) fn held(&self) -> bool {
        self.0.is_owned_by_current_thread()
    }

    /// Releases this thread's lock; does nothing if another one has it.
    #[inline]
    pub(crate) fn end(&self) {
        if self.held() {
            // SAFETY: this thread holds it, and only once, as ensured by `take`.
            unsafe { self.0.unlock() };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_turn_belongs_to_one_thread_until_that_ends_it() {
        let (turn, ended) = (Turn::new(), AtomicBool::new(false));
        turn.take();
        turn.take();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                turn.end();
                assert!(!turn.held(), "not this thread's to end");
                turn.take();
                assert!(ended.load(Ordering::SeqCst));
                turn.end();
            });
            std::thread::sleep(std::time::Duration::from_millis(5));
            ended.store(true, Ordering::SeqCst);
            turn.end();
            assert!(!turn.held());
        });
    }
}
