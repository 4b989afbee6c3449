//! Queues of events for an application, each with a file descriptor to wait on.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Events in order, and a descriptor that is readable while there are any: an eventfd counts them, and one `read` takes
/// one.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    fd: OwnedFd,
    events: Mutex<VecDeque<T>>,
    pushed: Arc<AtomicU64>,
}

// A thread may be cancelled in it (pthreads(7)), which unwinds.
unsafe extern "C-unwind" {
    fn read(fd: c_int, to: *mut c_void, len: usize) -> isize;
}

/// Waits until there is something to read, unless the descriptor is non-blocking. Returns the number of bytes read, or
/// −1 and `errno` as read(2) does.
///
/// The calling thread may be cancelled while it waits, or leave by `longjmp`: the caller must have nothing to drop.
pub(crate) fn wait<const N: usize>(fd: RawFd) -> isize {
    let mut bytes = [0u8; N];
    // SAFETY: at most `N` bytes are written.
    unsafe { read(fd, bytes.as_mut_ptr().cast(), N) }
}

impl<T> EventQueue<T> {
    /// Returns an empty queue, or the error of creating its descriptor.
    pub(crate) fn new() -> io::Result<EventQueue<T>> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor with no other owner.
        Ok(EventQueue { fd: unsafe { OwnedFd::from_raw_fd(fd) }, events: Mutex::default(), pushed: Arc::default() })
    }

    /// Returns the descriptor. Applications may make it non-blocking.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Returns whether there are no events.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.lock().is_empty()
    }

    /// Returns the number of events added so far.
    pub(crate) fn pushed(&self) -> &Arc<AtomicU64> {
        &self.pushed
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: T) {
        let mut events = self.events.lock();
        events.push_back(event);
        self.pushed.fetch_add(1, Ordering::Relaxed);
        let one = 1u64;
        // SAFETY: eight bytes are read. The counter cannot overflow: each event is in memory.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    /// Takes the oldest event, for a caller that has read from the descriptor; `None` if it was purged meanwhile.
    /// `seen` is called with the queue locked.
    pub(crate) fn take(&self, seen: impl Fn(&T)) -> Option<T> {
        let mut events = self.events.lock();
        let event = events.pop_front()?;
        seen(&event);
        Some(event)
    }

    /// Removes events that the application has not seen. A reader may have counted one of them and now wait for the
    /// queue: the counter is decremented without waiting, whatever the descriptor's flags.
    pub(crate) fn purge(&self, mut unwanted: impl FnMut(&T) -> bool) {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|e| !unwanted(e));
        for _ in events.len()..before {
            let mut count = 0u64;
            let to = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: 8 };
            // SAFETY: eight bytes are written. If the kernel cannot do that (before 5.8), or a reader was faster, the
            // reader finds fewer events than counted and continues to wait.
            unsafe { libc::preadv2(self.fd(), &to, 1, -1, libc::RWF_NOWAIT) };
        }
    }
}
