//! Structures of libibverbs' public ABI, in the layout of rdma-core 65. Applications built against older headers read a
//! prefix of each, or, for `verbs_context`, a suffix.
//!
//! Names, order and types are those of `infiniband/verbs.h`; unnamed unions have been given names. What irnic never
//! accesses is `c_void`. `tests/layout` compares sizes and offsets with the system's headers.

#![allow(non_camel_case_types, non_snake_case, missing_docs)]

mod context;
mod device;
mod objects;
mod work;

use std::ffi::{c_int, c_void};

pub use context::*;
pub use device::*;
pub use objects::*;
pub use work::*;

/// A slot of a function table that irnic does not support: returns an errno value.
pub type RefuseInt = Option<unsafe extern "C" fn() -> c_int>;
/// A slot of a function table that irnic does not support: returns NULL and sets `errno`.
pub type RefusePtr = Option<unsafe extern "C" fn() -> *mut c_void>;
/// A slot of a function table that irnic does not support: returns nothing.
pub type RefuseVoid = Option<unsafe extern "C" fn()>;
