//! Taking events, and preparing to wait for them.

use std::os::fd::RawFd;

use crate::errno::{Errno, Result};
use crate::objects::devices;
use crate::ucma::abi::{Answer, EventResp};
use crate::ucma::state::state;

/// Prepares to wait for an event, if there is none already. `EAGAIN` if there is none and the file is non-blocking.
pub(in crate::ucma) fn await_event(fd: RawFd, answer: Answer) -> Result<()> {
    answer.needs(std::mem::offset_of!(EventResp, reserved))?;
    if state().has_events(fd)? {
        return Ok(());
    }
    let nothing = || state().has_events(fd).is_ok_and(|has| !has);
    run_devices(&nothing);
    if !state().has_events(fd)? {
        // SAFETY: no memory is passed.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags & libc::O_NONBLOCK != 0 {
            return Err(Errno(libc::EAGAIN));
        }
        prepare_to_block(&nothing);
    }
    Ok(())
}

/// Takes an event reported by the descriptor. Returns false if it was purged meanwhile.
///
/// # Safety
/// As for all [commands with a reply](super), for the address `response`.
pub(in crate::ucma) unsafe fn take_event(fd: RawFd, response: u64, answer: Answer) -> Result<bool> {
    let taken = state().take(fd)?;
    let Some(resp) = taken else { return Ok(false) };
    // SAFETY: the caller's promise.
    unsafe { answer.write(response, &resp) }?;
    Ok(true)
}

/// Runs the open devices, for an application for which there may be `nothing`.
fn run_devices(nothing: &dyn Fn() -> bool) {
    for device in devices() {
        if let Some(runtime) = device.running() {
            runtime.first_unit().poll_cm(nothing);
        }
    }
}

/// Prepares for the calling thread's sleep, unless there is something for it.
fn prepare_to_block(nothing: &dyn Fn() -> bool) {
    for device in devices() {
        if let Some(runtime) = device.running() {
            runtime.prepare_to_block(None, nothing);
        }
    }
}
