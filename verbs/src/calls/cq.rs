//! Completion queues.

use std::ffi::{c_int, c_void};

use irnic_nic::{Arm, Nic};
use parking_lot::MutexGuard;

use super::completion::to_c;
use crate::abi::structs::*;
use crate::errno::{Errno, Result, guard_look, invalid, pointer, status};
use crate::objects::{Channel, Context, Cq, acknowledge};
use crate::runtime::{CompletionQueue, Look, State};

/// Returns the capacity of a queue for `requested` entries. ConnectX and others round up to a power of two above, and
/// applications rely on it: perftest requests one entry, but with a late acknowledgement two wait in it.
fn entries(requested: u32) -> Result<u32> {
    if requested == 0 || requested > Nic::MAX_CQE {
        return Err(invalid!("cqe = {requested}: expected 1 to {}", Nic::MAX_CQE));
    }
    Ok((requested + 1).next_power_of_two().min(Nic::MAX_CQE))
}

/// Creates a completion queue.
///
/// # Safety
/// `context` is open, `channel` exists or is NULL.
pub(super) unsafe fn create(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
) -> Result<*mut Cq> {
    // SAFETY: the caller's promise.
    let (num_vectors, this) = unsafe { ((*context).num_comp_vectors, Context::from_c(context)) };
    if vector >= num_vectors as u32 {
        return Err(invalid!("comp_vector {vector}: expected less than {num_vectors}"));
    }
    let cqe = entries(cqe)?;
    // SAFETY: all-zero: numbers, and pointers that may be NULL.
    let mut ex: ibv_cq_ex = unsafe { std::mem::zeroed() };
    (ex.context, ex.channel, ex.cq_context, ex.cqe) = (context, channel, cq_context, cqe as c_int);
    let queue = CompletionQueue::new(this.device().clone(), cqe, this.owner());
    // SAFETY: the caller's promise.
    let cq = unsafe { Cq::create(ex, queue) }?;
    if !channel.is_null() {
        // SAFETY: the caller's promise.
        unsafe { Channel::count(channel, 1) };
    }
    Ok(cq)
}

/// ibv_create_cq(3).
///
/// # Safety
/// `context` is open, `channel` exists or is NULL.
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer("ibv_create_cq", || {
        let number = |name, value| u32::try_from(value).map_err(|_| invalid!("{name} = {value} is negative"));
        let (cqe, vector) = (number("cqe", cqe)?, number("comp_vector", comp_vector)?);
        // SAFETY: passed on.
        Ok(unsafe { create(context, cqe, cq_context, channel, vector) }?.cast())
    })
}

/// ibv_resize_cq(3).
///
/// # Safety
/// `cq` exists.
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    status("ibv_resize_cq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Cq::from_c(cq) }?;
        let entries = entries(u32::try_from(cqe).map_err(|_| invalid!("cqe = {cqe} is negative"))?)?;
        this.queue.resize(entries)?;
        // SAFETY: the caller's promise.
        unsafe { (*cq).cqe = entries as c_int };
        Ok(())
    })
}

/// ibv_destroy_cq(3). Waits until the application has acknowledged the events that it took.
///
/// # Safety
/// `cq` exists.
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    status("ibv_destroy_cq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Cq::from_c(cq) }?;
        this.queue.destroy()?;
        // SAFETY: the caller's promise; no further event is raised for it.
        unsafe { Cq::free(cq) };
        Ok(())
    })
}

/// ibv_ack_cq_events(3).
///
/// # Safety
/// `cq` exists.
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
        acknowledge(&raw mut (*cq).comp_events_completed, mutex, cond, nevents);
    }
}

/// ibv_modify_cq(3): moderation means fewer interrupts, of which there are none.
pub(super) unsafe extern "C" fn modify_cq(_cq: *mut ibv_cq, _attr: *mut ibv_modify_cq_attr) -> c_int {
    Errno(libc::EOPNOTSUPP).0
}

/// ibv_req_notify_cq(3).
pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    status("ibv_req_notify_cq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Cq::from_c(cq) }?;
        Ok(this.queue.arm(if solicited_only != 0 { Arm::Solicited } else { Arm::Next })?)
    })
}

/// ibv_poll_cq(3).
pub(super) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise. Nothing here panics, or is a cancellation point.
    let look = match unsafe { Cq::exists(cq) } {
        Some(this) if num_entries >= 0 => this.queue.look(),
        _ => Look::Blind,
    };
    match look {
        Look::Nothing => 0,
        // SAFETY: passed on.
        Look::Change(state) => unsafe { poll_closer(state, cq, num_entries, wc) },
        // SAFETY: passed on.
        Look::Blind => unsafe { poll_port(cq, num_entries, wc) },
    }
}

/// Polls a queue after a look that showed a change.
///
/// # Safety
/// As for ibv_poll_cq(3); `state` is that of the queue's unit.
// Functions of their own, called last, so that a look in vain needs no room on the stack.
#[inline(never)]
unsafe fn poll_closer(
    state: Option<MutexGuard<'_, State>>,
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    // SAFETY: the caller's promise.
    if guard_look(|| unsafe { &*cq.cast::<Cq>() }.queue.finds_nothing(state)) {
        return 0;
    }
    // SAFETY: passed on.
    unsafe { poll_port(cq, num_entries, wc) }
}

/// Polls a queue for which a look at memory does not suffice.
///
/// # Safety
/// As for ibv_poll_cq(3).
#[inline(never)]
unsafe fn poll_port(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    let Ok(max) = usize::try_from(num_entries) else { return -libc::EINVAL };
    let mut n = 0;
    let outcome = status("ibv_poll_cq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Cq::from_c(cq) }?;
        this.queue.poll(max, |from| {
            // SAFETY: no more than `max` completions come.
            unsafe { wc.add(n).write(to_c(from)) };
            n += 1;
        })?;
        Ok(())
    });
    if outcome == 0 { n as c_int } else { -outcome }
}
