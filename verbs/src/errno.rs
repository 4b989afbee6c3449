//! Failures of C calls: an errno value, NULL with `errno` set, or -1 with `errno` set; and the boundary that no panic
//! crosses.

use std::ffi::c_int;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::null_mut;

use irnic_nic::{NicError, RegisterError};
use irnic_transports::room::{self, OutOfMemory};

use crate::explain;
use crate::gpu::GpuError;

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the C library returns the address of this thread's own variable.
    unsafe { *libc::__errno_location() = value };
}

/// Sets `errno` and returns the same value, for calls that do both.
pub(crate) fn fail(value: c_int) -> c_int {
    set_errno(value);
    value
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of Linux's C libraries.
const CANCEL_DISABLE: c_int = 1;

/// Runs `body` with cancellation of the calling thread disabled (pthread_cancel(3)): cancellation unwinds, which
/// nothing here survives, and would leave locks held. The `ibv_post_send` and `ibv_poll_cq` of hardware providers are
/// not cancellation points either.
#[inline]
fn uncancelled<T>(body: impl FnOnce() -> T) -> T {
    let mut state = 0;
    // SAFETY: an int is written.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut state) };
    let result = body();
    // SAFETY: a state returned by the previous call.
    unsafe { pthread_setcancelstate(state, null_mut()) };
    result
}

/// Runs `body`; if it panics, sets `errno` to `EIO` and returns `default`. C code cannot unwind.
pub(crate) fn guard<T>(default: T, body: impl FnOnce() -> T) -> T {
    match uncancelled(|| panic::catch_unwind(AssertUnwindSafe(body))) {
        Ok(value) => value,
        Err(_) => {
            set_errno(libc::EIO);
            default
        }
    }
}

/// Runs `body`, a look at memory without a cancellation point. False if it panics.
#[inline]
pub(crate) fn guard_look(body: impl FnOnce() -> bool) -> bool {
    panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or(false)
}

/// An errno value as an error.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// Result of a call that may fail with an errno value.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// Returns an error whose reason is printed if configured.
#[cold]
pub(crate) fn refused(errno: c_int, why: &dyn fmt::Display) -> Errno {
    explain::note(errno, why);
    Errno(errno)
}

/// `EINVAL` with a reason.
macro_rules! invalid {
    ($($why:tt)+) => { $crate::errno::refused(libc::EINVAL, &format_args!($($why)+)) };
}
pub(crate) use invalid;

/// `EOPNOTSUPP` with a reason, for features that irnic does not have, as in other providers.
macro_rules! unsupported {
    ($($why:tt)+) => { $crate::errno::refused(libc::EOPNOTSUPP, &format_args!($($why)+)) };
}
pub(crate) use unsupported;

impl From<NicError> for Errno {
    fn from(e: NicError) -> Errno {
        let errno = match e {
            NicError::Full(_)
            | NicError::CqOverflow
            | NicError::NoMemory(_)
            | NicError::Register(RegisterError::Full(_) | RegisterError::NoMemory(_)) => libc::ENOMEM,
            NicError::InUse(_) => libc::EBUSY,
            _ => libc::EINVAL,
        };
        refused(errno, &e)
    }
}

impl From<GpuError> for Errno {
    fn from(e: GpuError) -> Errno {
        refused(libc::EFAULT, &e)
    }
}

impl From<OutOfMemory> for Errno {
    fn from(e: OutOfMemory) -> Errno {
        refused(libc::ENOMEM, &e)
    }
}

impl From<std::io::Error> for Errno {
    fn from(e: std::io::Error) -> Errno {
        let full = matches!(e.kind(), std::io::ErrorKind::QuotaExceeded | std::io::ErrorKind::OutOfMemory);
        let errno = e.raw_os_error().unwrap_or(if full { libc::ENOMEM } else { libc::EIO });
        // Finding nothing yet is not an error.
        let waits = [libc::EAGAIN, libc::EINTR].contains(&errno);
        if waits { Errno(errno) } else { refused(errno, &e) }
    }
}

/// Runs the body of a C call. A panic must not unwind into C, nor end the application: it becomes `EIO`.
#[inline]
fn run<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    uncancelled(|| panic::catch_unwind(AssertUnwindSafe(body))).unwrap_or(Err(Errno(libc::EIO)))
}

/// Reports the reason of an error at the boundary to C, and sets `errno`.
#[cold]
fn fails(call: &str, e: Errno) {
    explain::print(call, e.0);
    set_errno(e.0);
}

/// Runs the body of `call`, which returns 0 or an errno value.
#[inline]
pub(crate) fn status(call: &'static str, body: impl FnOnce() -> Result<()>) -> c_int {
    match run(body) {
        Ok(()) => 0,
        Err(e) => {
            fails(call, e);
            e.0
        }
    }
}

/// Runs the body of `call`, which returns a pointer, or NULL and `errno`: `ENOMEM` if there is no memory even for the
/// small part of an object.
#[inline]
pub(crate) fn pointer<T>(call: &'static str, body: impl FnOnce() -> Result<*mut T>) -> *mut T {
    let with_room = || {
        room::ensure(0)?;
        body()
    };
    run(with_room).unwrap_or_else(|e| {
        fails(call, e);
        null_mut()
    })
}

/// Runs the body of `call`, which returns a number, or −1 and `errno`.
#[inline]
pub(crate) fn number(call: &'static str, body: impl FnOnce() -> Result<c_int>) -> c_int {
    run(body).unwrap_or_else(|e| {
        fails(call, e);
        -1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> Option<c_int> {
        std::io::Error::last_os_error().raw_os_error()
    }

    #[test]
    fn a_panic_becomes_an_error() {
        set_errno(0);
        assert_eq!((guard(-1, || 5), errno()), (5, Some(0)));
        assert_eq!((guard(-1, || panic!("on purpose")), errno()), (-1, Some(libc::EIO)));
    }

    #[test]
    fn fail_returns_what_errno_is() {
        assert_eq!((fail(libc::ENOSPC), errno()), (libc::ENOSPC, Some(libc::ENOSPC)));
    }
}
