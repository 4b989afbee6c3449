//! Completion channels.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use super::event::await_event;
use crate::abi::structs::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::errno::{number, pointer, refused, status};
use crate::objects::{Channel, Context, Cq, CqPtr};

/// ibv_create_comp_channel(3).
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer("ibv_create_comp_channel", || Channel::create(context))
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
        // SAFETY: created by `ibv_create_comp_channel`.
        drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
        Ok(())
    })
}

/// ibv_get_cq_event(3). The wait is a cancellation point (pthreads(7)).
///
/// # Safety
/// `channel` exists; `cq` and `cq_context` may be written.
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    const CALL: &str = "ibv_get_cq_event";
    let fd = number(CALL, || {
        // SAFETY: the caller's promise.
        let this = unsafe { Channel::from_c(channel) };
        // SAFETY: a channel's context is open.
        unsafe { Context::from_c(this.context()) }
            .device()
            .prepare_to_block(Some(this.events().pushed()), || this.events().is_empty());
        Ok(this.events().fd())
    });
    if fd < 0 {
        return -1;
    }
    await_event(CALL, fd, || {
        // SAFETY: a channel outlives the calls on it; a queue's events are purged before it is freed.
        let event = unsafe {
            Channel::from_c(channel).events().take(|e| {
                (*e.0.cast::<Cq>()).delivered.fetch_add(1, Ordering::AcqRel);
            })
        };
        let Some(CqPtr(event)) = event else { return false };
        // SAFETY: a queue with events is not freed before they are taken or purged.
        unsafe {
            *cq = event;
            *cq_context = (*event).cq_context;
        }
        true
    })
}
