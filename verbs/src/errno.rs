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
