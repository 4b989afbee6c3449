//! Completion channels: file descriptors on which applications wait for completions.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::abi::structs::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::errno::Result;
use crate::runtime::EventQueue;

/// A completion queue that has an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct CqPtr(pub(crate) *mut ibv_cq);

// SAFETY: `ibv_destroy_cq` purges its events before it frees the queue, and verbs are called from any thread.
unsafe impl Send for CqPtr {}

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    base: ibv_comp_channel,
    events: Arc<EventQueue<CqPtr>>,
}

impl Channel {
    /// Creates a channel of a context.
    pub(crate) fn create(context: *mut ibv_context) -> Result<*mut ibv_comp_channel> {
        let events = Arc::new(EventQueue::new()?);
        let base = ibv_comp_channel { context, fd: events.fd(), refcnt: 0 };
        Ok(Box::into_raw(Box::new(Channel { base, events })).cast())
    }

    /// Returns the channel behind a C pointer.
    ///
    /// # Safety
    /// `channel` is one that `ibv_create_comp_channel` returned and that was not destroyed.
    pub(crate) unsafe fn from_c<'a>(channel: *mut ibv_comp_channel) -> &'a Channel {
        // SAFETY: `base` is the first member.
        unsafe { &*channel.cast() }
    }

    /// Returns the channel's context.
    pub(crate) fn context(&self) -> *mut ibv_context {
        self.base.context
    }

    /// Returns the events that the application has not taken.
    pub(crate) fn events(&self) -> &Arc<EventQueue<CqPtr>> {
        &self.events
    }

    /// Adds a completion queue to the count (1) or removes it (−1).
    ///
    /// # Safety
    /// `channel` exists.
    pub(crate) unsafe fn count(channel: *mut ibv_comp_channel, by: c_int) {
        // SAFETY: a valid channel; libibverbs uses the context's mutex, here the same word is an atomic.
        let refcnt = unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) };
        refcnt.fetch_add(by, Ordering::AcqRel);
    }
}
