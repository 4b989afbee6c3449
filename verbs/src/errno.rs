//! The C library's `errno`, and the border that no panic crosses.

use std::ffi::c_int;
use std::panic::{self, AssertUnwindSafe};

/// Sets the calling thread's `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: the C library returns the address of this thread's own variable.
    unsafe { *libc::__errno_location() = value };
}

/// Sets `errno` and returns the same value, for calls that do both.
pub fn fail(value: c_int) -> c_int {
    set_errno(value);
    value
}

/// Runs `body`; when it panics, sets `errno` to `EIO` and returns `default`. C code cannot unwind.
pub fn guard<T>(default: T, body: impl FnOnce() -> T) -> T {
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(_) => {
            set_errno(libc::EIO);
            default
        }
    }
}
