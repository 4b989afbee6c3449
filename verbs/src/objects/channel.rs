//! Completion channels and asynchronous events: file descriptors that applications may wait on.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::Mutex;

use crate::abi::structs::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::context::Context;
use crate::cq::Cq;
use crate::errno::{Result, number, pointer, refused, status};

/// Events in order, and a descriptor that is readable while there are any: an eventfd counts them, one `read` takes one.
#[derive(Debug)]
pub struct Queue<T> {
    fd: OwnedFd,
    events: Mutex<VecDeque<T>>,
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new() -> io::Result<Queue<T>> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Queue { fd: unsafe { OwnedFd::from_raw_fd(fd) }, events: Mutex::new(VecDeque::new()) })
    }

    /// The descriptor. Applications make it non-blocking as they like.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Adds an event.
    pub fn push(&self, event: T) {
        let mut events = self.events.lock();
        events.push_back(event);
        self.add(1);
    }

    fn add(&self, n: u64) {
        // SAFETY: eight bytes are read. The counter cannot overflow: each event is in memory.
        unsafe { libc::write(self.fd(), (&raw const n).cast(), 8) };
    }

    /// The oldest event; waits for one, unless the descriptor is non-blocking. `seen` is called with the queue locked.
    pub fn take(&self, seen: impl Fn(&T)) -> Result<T> {
        loop {
            let mut count = 0u64;
            // SAFETY: eight bytes are written.
            if unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) } != 8 {
                return Err(io::Error::last_os_error().into());
            }
            // What was counted may have been purged meanwhile.
            let mut events = self.events.lock();
            if let Some(event) = events.pop_front() {
                seen(&event);
                return Ok(event);
            }
        }
    }

    /// Removes events that no application has seen. A reader may have counted one of them and wait for the queue now: the
    /// counter is taken down without waiting, whatever the descriptor's flags say.
    pub fn purge(&self, mut unwanted: impl FnMut(&T) -> bool) {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|e| !unwanted(e));
        for _ in events.len()..before {
            let mut count = 0u64;
            let to = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: 8 };
            // SAFETY: eight bytes are written. Where the kernel cannot do that (before 5.8), or a reader was faster, it finds
            // the queue shorter than it counted and goes on waiting.
            unsafe { libc::preadv2(self.fd(), &to, 1, -1, libc::RWF_NOWAIT) };
        }
    }
}

/// A completion channel.
#[repr(C)]
pub struct Channel {
    base: ibv_comp_channel,
    events: Queue<CqPtr>,
}

/// A completion queue that has an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct CqPtr(*mut Cq);

// SAFETY: `ibv_destroy_cq` purges its events before it frees the queue, and verbs are called from any thread.
unsafe impl Send for CqPtr {}

impl Channel {
    /// The channel behind a C pointer.
    ///
    /// # Safety
    /// `channel` is one that `ibv_create_comp_channel` returned and that was not destroyed.
    pub unsafe fn from_c<'a>(channel: *mut ibv_comp_channel) -> &'a Channel {
        // SAFETY: `base` is the first member.
        unsafe { &*channel.cast() }
    }

    /// A completion queue has something.
    pub fn notify(&self, cq: *mut Cq) {
        self.events.push(CqPtr(cq));
    }

    /// Forgets what a completion queue had.
    pub fn purge(&self, cq: *mut Cq) {
        self.events.purge(|&e| e == CqPtr(cq));
    }

    /// Counts a completion queue in (1) or out (−1).
    ///
    /// # Safety
    /// As [`Channel::from_c`].
    pub unsafe fn count(channel: *mut ibv_comp_channel, by: c_int) {
        // SAFETY: a valid channel; the context's mutex in libibverbs, here an atomic on the same word.
        let refcnt = unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) };
        refcnt.fetch_add(by, Ordering::AcqRel);
    }
}

/// ibv_create_comp_channel(3).
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer("ibv_create_comp_channel", || {
        let events = Queue::new()?;
        let base = ibv_comp_channel { context, fd: events.fd(), refcnt: 0 };
        Ok(Box::into_raw(Box::new(Channel { base, events })).cast())
    })
}

/// ibv_destroy_comp_channel(3).
///
/// # Safety
/// `channel` exists.
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    status("ibv_destroy_comp_channel", || {
        // SAFETY: the caller's promise.
        if unsafe { (*channel).refcnt } != 0 {
            return Err(refused(libc::EBUSY, &"completion queues still use the channel"));
        }
        // SAFETY: made by `ibv_create_comp_channel`.
        drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
        Ok(())
    })
}

/// ibv_get_cq_event(3).
///
/// # Safety
/// `channel` exists; `cq` and `cq_context` may be written.
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    number("ibv_get_cq_event", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Channel::from_c(channel) };
        // SAFETY: a channel's context is open.
        unsafe { Context::from_c(this.base.context) }.unit().leave();
        // SAFETY: a queue's events are purged before it is freed.
        let CqPtr(event) = this.events.take(|e| unsafe {
            (*e.0).delivered.fetch_add(1, Ordering::AcqRel);
        })?;
        // SAFETY: a queue with events is not freed before they are taken or purged.
        unsafe {
            *cq = event.cast();
            *cq_context = (*event).ex.cq_context;
        }
        Ok(0)
    })
}
