//! Functions that fail, for operations that this NIC does not have.
//!
//! They take no arguments: in the C calling conventions of Linux the caller removes its own, so one function fits every
//! signature with the same kind of return value.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::errno::{fail, set_errno};

/// Returns `EOPNOTSUPP`, which is also `errno`.
pub extern "C" fn int() -> c_int {
    fail(libc::EOPNOTSUPP)
}

/// Returns -1 with `errno` `EOPNOTSUPP`.
pub extern "C" fn minus_one() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    -1
}

/// Returns NULL with `errno` `EOPNOTSUPP`.
pub extern "C" fn ptr() -> *mut c_void {
    set_errno(libc::EOPNOTSUPP);
    ptr::null_mut()
}

/// Does nothing.
pub extern "C" fn void() {}
