//! Shared receive queues.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use irnic_transports::qp::SrqId;

use super::context::Context;
use super::event::await_acks;
use super::pd::Pd;
use super::xrcd::Xrcd;
use crate::abi::structs::*;
use crate::errno::{Result, invalid};
use crate::runtime::{Place, Unit};

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    /// The structure that C sees.
    pub(crate) base: ibv_srq,
    /// Its place in the device.
    place: Place,
    /// The NIC's handle.
    pub(crate) id: SrqId,
    /// Asynchronous events that the application has taken.
    pub(crate) delivered: AtomicU32,
    /// The XRC domain, or NULL.
    xrcd: *mut ibv_xrcd,
}

impl Srq {
    /// Creates the object of a queue created in the NIC. `xrcd`: the handle on its XRC domain, or NULL.
    ///
    /// # Safety
    /// `xrcd` exists or is NULL.
    pub(crate) unsafe fn create(
        domain: &Pd,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        srq_context: *mut c_void,
        place: Place,
        id: SrqId,
    ) -> *mut ibv_srq {
        domain.hold();
        // SAFETY: the caller's promise.
        if let Some(xrcd) = unsafe { xrcd.cast::<Xrcd>().as_ref() } {
            xrcd.hold();
        }
        let base = ibv_srq {
            context: domain.context_ptr(),
            srq_context,
            pd,
            handle: id.0,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            cond: libc::PTHREAD_COND_INITIALIZER,
            events_completed: 0,
        };
        Box::into_raw(Box::new(Srq { base, place, id, delivered: AtomicU32::new(0), xrcd })).cast()
    }

    /// Returns the processing unit.
    pub(crate) fn unit(&self) -> &Arc<Unit> {
        self.place.unit()
    }

    /// Returns the queue behind a C pointer.
    ///
    /// # Safety
    /// `srq` exists or is NULL.
    pub(crate) unsafe fn from_c<'a>(srq: *mut ibv_srq) -> Result<&'a Srq> {
        // SAFETY: `base` is the first member.
        unsafe { srq.cast::<Srq>().as_ref() }.ok_or_else(|| invalid!("the shared receive queue is NULL"))
    }

    /// Frees a queue that is no longer notified: purges events that were not taken, and waits for the acknowledgement
    /// of those that the application took.
    ///
    /// # Safety
    /// `srq` exists.
    pub(crate) unsafe fn free(srq: *mut ibv_srq) {
        let own = srq.cast::<Srq>();
        // SAFETY: the caller's promise; context and protection domain outlive the queue.
        unsafe {
            Context::from_c((*own).base.context).purge(own);
            let (mutex, cond) = (&raw mut (*srq).mutex, &raw mut (*srq).cond);
            await_acks(&raw mut (*srq).events_completed, mutex, cond, &(*own).delivered);
            Pd::release((*own).base.pd);
            Xrcd::release((*own).xrcd);
            drop(Box::from_raw(own));
        }
    }
}
