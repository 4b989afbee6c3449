//! Locks that are held while the process is copied.

use parking_lot::lock_api::RawMutex as _;
use parking_lot::{Mutex, RawMutex};

/// Unlocks a lock after a fork.
///
/// The locks of `parking_lot` share queues of waiting threads. In the child of a fork such a queue may be locked by a
/// thread that was not copied, and no thread waits: there the lock is reset, and its queue is left alone.
///
/// # Safety
/// The calling thread has locked it before the fork. In the child it is the only thread.
pub(crate) unsafe fn unlock<T>(lock: &Mutex<T>, child: bool) {
    // SAFETY: the thread holds the lock. Without other threads, writing the lock's atomic byte is not a race.
    unsafe {
        if child {
            std::ptr::from_ref(lock.raw()).cast_mut().write(RawMutex::INIT);
        } else {
            lock.force_unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, FilterOp, park, unpark_filter};

    use super::*;

    #[test]
    fn a_child_unlocks_although_a_thread_that_it_does_not_have_was_in_the_queue() {
        let lock = Arc::new(Mutex::new(1));
        std::mem::forget(lock.lock());
        // One thread waits, another is in the middle of examining the queue.
        let waits = std::thread::spawn({
            let lock = lock.clone();
            move || *lock.lock()
        });
        // SAFETY: only its address is used.
        let key = std::ptr::from_ref(unsafe { lock.raw() }) as usize;
        let mut queued = false;
        while !queued {
            std::thread::sleep(Duration::from_millis(1));
            let mut filter = |_| {
                queued = true;
                FilterOp::Stop
            };
            // SAFETY: none of the closures panics or parks, and no thread is unparked.
            unsafe { unpark_filter(key, &mut filter, |_| DEFAULT_UNPARK_TOKEN) };
        }
        let (entered, enters) = channel();
        let (leave, leaves) = channel::<()>();
        let parker = std::thread::spawn(move || {
            let validate = || {
                entered.send(()).expect("somebody listens");
                leaves.recv().expect("somebody says so");
                false
            };
            // SAFETY: the key is an address that this test owns, and none of the closures panics or parks.
            unsafe { park(key, validate, || {}, |_, _| {}, DEFAULT_PARK_TOKEN, None) };
        });
        enters.recv().expect("the thread looks");
        // SAFETY: the child only unlocks and exits; the alarm ends it if it cannot.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(10);
                unlock(&lock, true);
                libc::_exit(i32::from(lock.is_locked()));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        leave.send(()).expect("the thread listens");
        parker.join().expect("it ends");
        assert_eq!(status, 0);
        // SAFETY: this thread holds the lock.
        unsafe { unlock(&lock, false) };
        assert_eq!(waits.join().expect("it has the lock"), 1);
    }
}
