//! A lock that a thread takes in one C call and gives back in a later one: `ibv_wr_start` to `ibv_wr_complete`,
//! `ibv_start_poll` to `ibv_end_poll`. Between them other threads wait, as with the providers of rdma-core.

use parking_lot::lock_api::RawReentrantMutex;
use parking_lot::{RawMutex, RawThreadId};

/// A lock that one thread at a time has, as often as it likes.
pub(crate) struct Turn(RawReentrantMutex<RawMutex, RawThreadId>);

impl Turn {
    /// Returns a turn that is nobody's.
    pub(crate) const fn new() -> Turn {
        Turn(RawReentrantMutex::INIT)
    }

    /// Waits until it is this thread's turn; at once if it is already.
    #[inline]
    pub(crate) fn take(&self) {
        if !self.held() {
            self.0.lock();
        }
    }

    /// Tells whether it is this thread's turn.
    #[inline]
    pub(crate) fn held(&self) -> bool {
        self.0.is_owned_by_current_thread()
    }

    /// Ends this thread's turn; nothing happens if it is another's.
    #[inline]
    pub(crate) fn end(&self) {
        if self.held() {
            // SAFETY: this thread holds it, and once only: `take` sees to that.
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
