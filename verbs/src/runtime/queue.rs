//! Events that wait for an application, behind a file descriptor that it may wait on.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Events in order, and a descriptor that is readable while there are any: an eventfd counts them, one `read` takes
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

/// Waits until there is something to read, unless the descriptor is non-blocking. Returns how many bytes were read, −1
/// and `errno` as read(2) does.
///
/// The calling thread may be cancelled while it waits, or leave by `longjmp`: whoever calls this has nothing to drop.
pub(crate) fn wait<const N: usize>(fd: RawFd) -> isize {
    let mut bytes = [0u8; N];
    // SAFETY: so many bytes are written.
    unsafe { read(fd, bytes.as_mut_ptr().cast(), N) }
}

impl<T> EventQueue<T> {
    /// Returns an empty queue, or why there is no descriptor for it.
    pub(crate) fn new() -> io::Result<EventQueue<T>> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(EventQueue { fd: unsafe { OwnedFd::from_raw_fd(fd) }, events: Mutex::default(), pushed: Arc::default() })
    }

    /// Returns the descriptor. Applications make it non-blocking as they like.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Tells whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.lock().is_empty()
    }

    /// Returns how many events were added so far.
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

    /// Takes the oldest event, for somebody who has read from the descriptor; `None` if it was purged meanwhile. `seen`
    /// is called with the queue locked.
    pub(crate) fn take(&self, seen: impl Fn(&T)) -> Option<T> {
        let mut events = self.events.lock();
        let event = events.pop_front()?;
        seen(&event);
        Some(event)
    }

    /// Removes events that no application has seen. A reader may have counted one of them and wait for the queue now:
    /// the counter is taken down without waiting, whatever the descriptor's flags say.
    pub(crate) fn purge(&self, mut unwanted: impl FnMut(&T) -> bool) {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|e| !unwanted(e));
        for _ in events.len()..before {
            let mut count = 0u64;
            let to = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: 8 };
            // SAFETY: eight bytes are written. Where the kernel cannot do that (before 5.8), or a reader was faster, it
            // finds the queue shorter than it counted and goes on waiting.
            unsafe { libc::preadv2(self.fd(), &to, 1, -1, libc::RWF_NOWAIT) };
        }
    }
}
