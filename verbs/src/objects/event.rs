//! Asynchronous events: from the NIC to the context of the object they concern, and the acknowledgements that `destroy`
//! waits for.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use irnic_transports::qp::Event;

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::context::Context;
use crate::cq::Cq;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::unit::Inner;

/// An event in a context's queue.
#[derive(Copy, Clone)]
pub struct AsyncEvent(pub ibv_async_event);

// SAFETY: the pointer inside names an object whose `destroy` purges its events first.
unsafe impl Send for AsyncEvent {}

impl AsyncEvent {
    /// Whether it concerns the object at this address.
    pub fn concerns<T>(&self, object: *const T) -> bool {
        // SAFETY: all pointers of the union are at the same place; a port number is no address of an object.
        unsafe { self.0.element.qp }.cast_const().cast::<T>() == object
    }

    fn kind(&self) -> u32 {
        self.0.event_type
    }
}

/// Puts an event of the NIC into the queue of the context it belongs to.
pub fn raise(inner: &mut Inner, event: Event) {
    let qp = |qpn| inner.qp(qpn).map(|qp| ibv_async_event_element { qp: qp.cast() });
    let (kind, element) = match event {
        Event::QpRequestError(n) => (IBV_EVENT_QP_REQ_ERR, qp(n)),
        Event::QpAccessError(n) => (IBV_EVENT_QP_ACCESS_ERR, qp(n)),
        Event::QpFatal(n) => (IBV_EVENT_QP_FATAL, qp(n)),
        Event::CommunicationEstablished(n) => (IBV_EVENT_COMM_EST, qp(n)),
        Event::SqDrained(n) => (IBV_EVENT_SQ_DRAINED, qp(n)),
        Event::LastWqeReached(n) => (IBV_EVENT_QP_LAST_WQE_REACHED, qp(n)),
        Event::CqError(cq) => (IBV_EVENT_CQ_ERR, inner.cq(cq).map(|cq| ibv_async_event_element { cq: cq.cast() })),
        Event::SrqLimitReached(srq) => {
            (IBV_EVENT_SRQ_LIMIT_REACHED, inner.srq(srq).map(|srq| ibv_async_event_element { srq: srq.cast() }))
        }
    };
    // An object that was destroyed meanwhile has no events.
    let Some(element) = element else { return };
    let event = AsyncEvent(ibv_async_event { element, event_type: kind });
    // SAFETY: the object is registered, hence alive, and its first member is its context.
    unsafe {
        let context = *element.qp.cast::<*mut ibv_context>();
        Context::from_c(context).events.push(event);
    }
}

/// Which counter, mutex and condition an event's acknowledgement goes to.
type Acks = (*mut u32, *mut libc::pthread_mutex_t, *mut libc::pthread_cond_t);

/// ibv_ack_async_event(3).
///
/// # Safety
/// `event` came from `ibv_get_async_event`, and its object exists.
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller's promise; the type says which member of the union is meant.
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

/// Adds to a counter of acknowledged events and wakes who waits for it.
///
/// # Safety
/// Counter, mutex and condition belong to one existing object.
pub unsafe fn acknowledge(
    completed: *mut u32,
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    n: u32,
) {
    // SAFETY: the caller's promise; the mutex guards the counter.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        *completed = (*completed).wrapping_add(n);
        libc::pthread_cond_signal(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}

/// Waits until as many events are acknowledged as the application has taken.
///
/// # Safety
/// As [`acknowledge`].
pub unsafe fn await_acks(
    completed: *mut u32,
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    delivered: &AtomicU32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        while *completed != delivered.load(Ordering::Acquire) {
            libc::pthread_cond_wait(cond, mutex);
        }
        libc::pthread_mutex_unlock(mutex);
    }
}

/// ibv_get_async_event(3).
///
/// # Safety
/// `context` is open; `event` may be written.
pub unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    crate::errno::number("ibv_get_async_event", || {
        // SAFETY: the caller's promise.
        let context = unsafe { Context::from_c(context) };
        context.unit().leave();
        // Counted while the queue is locked, so that nobody destroys the object in between.
        let taken = context.events.take(|e| {
            // SAFETY: the object's events are purged before it is freed.
            unsafe { delivered(e) }.map(|d| d.fetch_add(1, Ordering::AcqRel));
        })?;
        // SAFETY: the caller's promise.
        unsafe { *event = taken.0 };
        Ok(0)
    })
}

/// The counter of events that the application took.
///
/// # Safety
/// The object exists.
unsafe fn delivered<'a>(event: &AsyncEvent) -> Option<&'a AtomicU32> {
    // SAFETY: the type says which member is meant.
    unsafe {
        match event.kind() {
            IBV_EVENT_CQ_ERR => Some(&(*event.0.element.cq.cast::<Cq>()).async_delivered),
            IBV_EVENT_SRQ_LIMIT_REACHED => Some(&(*event.0.element.srq.cast::<Srq>()).delivered),
            IBV_EVENT_PORT_ACTIVE | IBV_EVENT_PORT_ERR => None,
            _ => Some(&(*event.0.element.qp.cast::<Qp>()).delivered),
        }
    }
}
