//! Asynchronous events.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::number;
use crate::objects::{AsyncEvent, Context, Cq, Qp, Srq, acknowledge};
use crate::runtime::wait;

/// Counter, mutex and condition of an event's acknowledgement.
type Acks = (*mut u32, *mut libc::pthread_mutex_t, *mut libc::pthread_cond_t);

/// ibv_ack_async_event(3).
///
/// # Safety
/// `event` came from `ibv_get_async_event`, and its object exists.
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller's promise; the type selects the member of the union.
    let (completed, mutex, cond): Acks = unsafe {
        let event = AsyncEvent(*event);
        match event.kind() {
            IBV_EVENT_CQ_ERR => {
                let cq = event.0.element.cq;
                (&raw mut (*cq).async_events_completed, &raw mut (*cq).mutex, &raw mut (*cq).cond)
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                let srq = event.0.element.srq;
                (&raw mut (*srq).events_completed, &raw mut (*srq).mutex, &raw mut (*srq).cond)
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                let qp = event.0.element.qp;
                (&raw mut (*qp).events_completed, &raw mut (*qp).mutex, &raw mut (*qp).cond)
            }
            _ => return,
        }
    };
    // SAFETY: members of an existing object.
    unsafe { acknowledge(completed, mutex, cond, 1) };
}

/// ibv_get_async_event(3). The wait is a cancellation point (pthreads(7)).
///
/// # Safety
/// `context` is open; `event` may be written.
pub unsafe extern "C-unwind" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    const CALL: &str = "ibv_get_async_event";
    let fd = number(CALL, || {
        // SAFETY: the caller's promise.
        let context = unsafe { Context::from_c(context) };
        // The thread that waits for errors is a separate one of the application.
        context.device().prepare_to_block(None, || false);
        Ok(context.events().fd())
    });
    if fd < 0 {
        return -1;
    }
    await_event(CALL, fd, || {
        // Counted while the queue is locked, so that the object is not destroyed in between.
        // SAFETY: the caller's promise; an object's events are purged before it is freed.
        let taken = unsafe {
            Context::from_c(context).events().take(|e| {
                delivered(e).map(|d| d.fetch_add(1, Ordering::AcqRel));
            })
        };
        let Some(taken) = taken else { return false };
        // SAFETY: the caller's promise.
        unsafe { *event = taken.0 };
        true
    })
}

/// Waits for an event in the queue behind a descriptor, until `take` has taken one: it returns false if the event was
/// purged, or taken by another thread. Returns 0, or −1 and `errno` if the wait fails.
///
/// Like [`wait`], it may be left by cancellation or `longjmp`: neither the caller nor `take` has anything to drop.
pub(super) fn await_event(call: &'static str, fd: c_int, take: impl Fn() -> bool) -> c_int {
    loop {
        if wait::<8>(fd) != 8 {
            return -1;
        }
        match number(call, || Ok(c_int::from(take()))) {
            0 => {}
            1 => return 0,
            _ => return -1,
        }
    }
}

/// Returns the counter of an object's events that the application has taken.
///
/// # Safety
/// The object exists.
unsafe fn delivered<'a>(event: &AsyncEvent) -> Option<&'a AtomicU32> {
    // SAFETY: the type selects the member.
    unsafe {
        match event.kind() {
            IBV_EVENT_CQ_ERR => Some(&(*event.0.element.cq.cast::<Cq>()).async_delivered),
            IBV_EVENT_SRQ_LIMIT_REACHED => Some(&(*event.0.element.srq.cast::<Srq>()).delivered),
            IBV_EVENT_DEVICE_FATAL | IBV_EVENT_PORT_ACTIVE | IBV_EVENT_PORT_ERR | IBV_EVENT_GID_CHANGE => None,
            _ => Some(&(*event.0.element.qp.cast::<Qp>()).delivered),
        }
    }
}
