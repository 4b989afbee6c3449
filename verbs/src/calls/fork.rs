//! Fork protection: none is needed.
//!
//! libibverbs keeps a child from sharing registered pages, as a hardware NIC continues to write to the physical pages
//! after the parent got copies. This NIC runs in the process and accesses its virtual addresses.

use std::ffi::{c_int, c_void};

use crate::abi::consts::IBV_FORK_UNNEEDED;

/// Enables fork protection. Always 0.
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Returns that registered memory survives a fork without protection.
pub extern "C" fn ibv_is_fork_initialized() -> u32 {
    IBV_FORK_UNNEEDED
}

/// Protects a range from being shared with a child. Always 0.
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Removes the protection. Always 0.
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
