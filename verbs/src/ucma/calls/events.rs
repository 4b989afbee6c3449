//! Taking events, and preparing to wait for them.

use std::os::fd::RawFd;

use crate::errno::{Errno, Result};
use crate::objects::devices;
use crate::ucma::abi::{Answer, EventResp};
use crate::ucma::state::state;

/// Prepares for a wait for an event, which there may be already. `EAGAIN` if there is none and the file does not wait.
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

/// Takes an event of which the descriptor has told. Returns false if it was purged meanwhile.
///
/// # Safety
/// That of all [commands that answer](super), for the address `response`.
pub(in crate::ucma) unsafe fn take_event(fd: RawFd, response: u64, answer: Answer) -> Result<bool> {
    let taken = state().take(fd)?;
    let Some(resp) = taken else { return Ok(false) };
    // SAFETY: the caller's promise.
    unsafe { answer.write(response, &resp) }?;
    Ok(true)
}

/// Runs the devices that are open, for an application for which there may be `nothing`.
fn run_devices(nothing: &dyn Fn() -> bool) {
    for device in devices() {
        if let Some(runtime) = device.running() {
            runtime.first_unit().look(nothing);
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
