//! Completion queues.

use std::sync::atomic::AtomicU32;

use irnic_transports::qp::Wc;

use super::channel::Channel;
use super::context::Context;
use super::event::await_acks;
use super::turn::Turn;
use crate::abi::structs::*;
use crate::errno::{Result, invalid};
use crate::runtime::{CompletionQueue, Listener};

/// A completion queue. All have the extended structure; `ibv_cq` is its beginning.
#[repr(C)]
pub(crate) struct Cq {
    /// The structure that C sees.
    pub(crate) ex: ibv_cq_ex,
    /// The queue.
    pub(crate) queue: CompletionQueue,
    /// Completion events that the application has taken.
    pub(crate) delivered: AtomicU32,
    /// Asynchronous events that the application has taken.
    pub(crate) async_delivered: AtomicU32,
    /// Held from `ibv_start_poll` to `ibv_end_poll`; `None` if the application promised to poll in one thread only.
    pub(crate) turn: Option<Turn>,
    /// The completion that the extended functions read.
    pub(crate) current: Wc,
}

impl Cq {
    /// Creates a queue and its object. `ex` has what C sees, except the NIC's handle.
    ///
    /// # Safety
    /// Context and channel in `ex` exist, the channel or is NULL.
    pub(crate) unsafe fn create(mut ex: ibv_cq_ex, queue: CompletionQueue) -> Result<*mut Cq> {
        ex.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        ex.cond = libc::PTHREAD_COND_INITIALIZER;
        let cq = Box::into_raw(Box::new(Cq {
            ex,
            queue,
            delivered: AtomicU32::new(0),
            async_delivered: AtomicU32::new(0),
            turn: None,
            current: Wc::EMPTY,
        }));
        // SAFETY: just created; the caller's promise.
        let opened = unsafe { (*cq).queue.open((*cq).listener()) };
        match opened {
            Ok(id) => {
                // SAFETY: just created.
                unsafe { (*cq).ex.handle = id.0 };
                Ok(cq)
            }
            Err(e) => {
                // SAFETY: just created, and not published.
                drop(unsafe { Box::from_raw(cq) });
                Err(e.into())
            }
        }
    }

    /// Returns a listener that forwards the queue's events.
    pub(crate) fn listener(&self) -> Box<dyn Listener> {
        let own = std::ptr::from_ref(self).cast_mut();
        // SAFETY: context and channel outlive the queue.
        unsafe {
            let channel = (!self.ex.channel.is_null()).then(|| Channel::from_c(self.ex.channel));
            Context::from_c(self.ex.context).listener(own, channel)
        }
    }

    /// Returns the queue behind a C pointer.
    ///
    /// # Safety
    /// `cq` exists or is NULL.
    #[inline]
    pub(crate) unsafe fn from_c<'a>(cq: *mut ibv_cq) -> Result<&'a Cq> {
        // SAFETY: passed on.
        unsafe { Cq::exists(cq) }.ok_or_else(|| invalid!("the completion queue is NULL"))
    }

    /// Returns the queue behind a C pointer, unless it is NULL.
    ///
    /// # Safety
    /// `cq` exists or is NULL.
    #[inline]
    pub(crate) unsafe fn exists<'a>(cq: *mut ibv_cq) -> Option<&'a Cq> {
        // SAFETY: `ex` is the first member, and begins like an `ibv_cq`.
        unsafe { cq.cast::<Cq>().as_ref() }
    }

    /// Frees a queue that is no longer notified: purges events that were not taken, and waits for the acknowledgement
    /// of those that the application took.
    ///
    /// # Safety
    /// `cq` exists.
    pub(crate) unsafe fn free(cq: *mut ibv_cq) {
        let own = cq.cast::<Cq>();
        // SAFETY: the caller's promise; context and channel outlive the queue.
        unsafe {
            let channel = (*own).ex.channel;
            Context::from_c((*own).ex.context).purge(own);
            if !channel.is_null() {
                Channel::from_c(channel).events().purge(|e| e.0 == cq);
            }
            let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
            await_acks(&raw mut (*cq).comp_events_completed, mutex, cond, &(*own).delivered);
            await_acks(&raw mut (*cq).async_events_completed, mutex, cond, &(*own).async_delivered);
            if !channel.is_null() {
                Channel::count(channel, -1);
            }
            drop(Box::from_raw(own));
        }
    }
}
