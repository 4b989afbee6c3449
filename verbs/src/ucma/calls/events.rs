//! Taking events, and waiting for them.

use std::os::fd::RawFd;

use crate::errno::{Errno, Result};
use crate::objects::devices;
use crate::ucma::abi::{Answer, EventResp};
use crate::ucma::state::state;

/// # Safety
/// That of all [commands that answer](super), for the address `response`.
pub(in crate::ucma) unsafe fn get_event(fd: RawFd, response: u64, answer: Answer) -> Result<()> {
    answer.needs(std::mem::offset_of!(EventResp, reserved))?;
    loop {
        if !state().has_events(fd)? {
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
        }
        let mut byte = 0u8;
        // Another reader may have taken it: then this waits, as the descriptor says.
        // SAFETY: one byte is written.
        match unsafe { libc::read(fd, (&raw mut byte).cast(), 1) } {
            1 => {}
            0 => return Err(closed_meanwhile()),
            _ => return Err(std::io::Error::last_os_error().into()),
        }
        // What the byte stood for may have been purged meanwhile.
        let taken = state().take(fd)?;
        if let Some(resp) = taken {
            // SAFETY: the caller's promise.
            return unsafe { answer.write(response, &resp) };
        }
    }
}

/// Another thread has closed the file while this one waited for an event. The kernel lets it wait on, until a signal,
/// and programs count on that: rping closes its channel and ends while a thread of it waits.
fn closed_meanwhile() -> Errno {
    // SAFETY: has no precondition.
    unsafe { libc::pause() };
    Errno(libc::EINTR)
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
