//! Delivery of events to the application: the queue of a context or a channel, and the acknowledgements that `destroy`
//! waits for.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use irnic_transports::qp::Event;

use super::channel::CqPtr;
use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::device::{PortEvent, PortListener};
use crate::runtime::{EventQueue, Listener};

/// An asynchronous event in a context's queue.
#[derive(Copy, Clone)]
pub(crate) struct AsyncEvent(pub(crate) ibv_async_event);

// SAFETY: the pointer inside refers to an object whose `destroy` purges its events first.
unsafe impl Send for AsyncEvent {}

impl AsyncEvent {
    /// Returns whether the event concerns the object at this address.
    pub(super) fn concerns<T>(&self, object: *const T) -> bool {
        // SAFETY: all pointers of the union are at the same place; a port number is not the address of an object.
        unsafe { self.0.element.qp }.cast_const().cast::<T>() == object
    }

    /// Returns the `ibv_event_type`.
    pub(crate) fn kind(&self) -> u32 {
        self.0.event_type
    }
}

/// Forwards the events of a C object. It passes on the object's address and never dereferences it.
pub(super) struct ObjectListener {
    object: *mut c_void,
    /// The queue of the object's context.
    events: Arc<EventQueue<AsyncEvent>>,
    /// The queue of a completion queue's channel.
    completions: Option<Arc<EventQueue<CqPtr>>>,
}

// SAFETY: the address is not dereferenced.
unsafe impl Send for ObjectListener {}

impl ObjectListener {
    /// Returns the listener of the object at an address: a completion queue, queue pair or shared receive queue.
    pub(super) fn new<T>(
        object: *mut T,
        events: &Arc<EventQueue<AsyncEvent>>,
        completions: Option<&Arc<EventQueue<CqPtr>>>,
    ) -> ObjectListener {
        ObjectListener { object: object.cast(), events: events.clone(), completions: completions.cloned() }
    }
}

impl Listener for ObjectListener {
    fn completion(&self) {
        if let Some(completions) = &self.completions {
            completions.push(CqPtr(self.object.cast()));
        }
    }

    fn event(&self, event: Event) {
        // All pointers of the union are at the same place.
        let element = ibv_async_event_element { qp: self.object.cast() };
        self.events.push(AsyncEvent(ibv_async_event { element, event_type: event_type(event) }));
    }
}

impl PortListener for EventQueue<AsyncEvent> {
    fn port_event(&self, event: PortEvent) {
        let event_type = match event {
            PortEvent::Down => IBV_EVENT_PORT_ERR,
            PortEvent::Up => IBV_EVENT_PORT_ACTIVE,
            PortEvent::Gids => IBV_EVENT_GID_CHANGE,
            PortEvent::Removed => IBV_EVENT_DEVICE_FATAL,
            // Relevant to connections only.
            PortEvent::Moved => return,
        };
        let element = ibv_async_event_element { port_num: 1 };
        self.push(AsyncEvent(ibv_async_event { element, event_type }));
    }
}

/// Returns the `ibv_event_type` of an event.
fn event_type(event: Event) -> u32 {
    match event {
        Event::QpRequestError(_) => IBV_EVENT_QP_REQ_ERR,
        Event::QpAccessError(_) => IBV_EVENT_QP_ACCESS_ERR,
        Event::QpFatal(_) => IBV_EVENT_QP_FATAL,
        Event::CommunicationEstablished(_) => IBV_EVENT_COMM_EST,
        Event::SqDrained(_) => IBV_EVENT_SQ_DRAINED,
        Event::LastWqeReached(_) => IBV_EVENT_QP_LAST_WQE_REACHED,
        Event::CqError(_) => IBV_EVENT_CQ_ERR,
        Event::SrqLimitReached(_) => IBV_EVENT_SRQ_LIMIT_REACHED,
    }
}

/// Adds to a counter of acknowledged events and wakes the thread that waits for it.
///
/// # Safety
/// Counter, mutex and condition belong to one existing object.
pub(crate) unsafe fn acknowledge(
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

/// Waits until all events that the application has taken are acknowledged.
///
/// # Safety
/// Counter, mutex and condition belong to one existing object.
pub(super) unsafe fn await_acks(
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
