//! The functions of libibverbs under their C names.
//!
//! Here is what needs no NIC: strings, rates, copies of kernel structures, fork, sysfs, addresses of completions, and
//! refusals. What works on an object of the NIC is in the module of that object and re-exported here. `crate::symbols`
//! gives each function its versioned name.

// The contract of each unsafe function is that of its C prototype: pointers are valid for what the prototype says they
// point to, or NULL where libibverbs allows NULL.
#![allow(clippy::missing_safety_doc)]

mod absent;
mod address;
mod fork;
mod marshal;
mod rates;
pub mod refuse;
mod strings;
mod sysfs;

pub use absent::*;
pub use address::*;
pub use fork::*;
pub use marshal::*;
pub use rates::*;
pub use strings::*;
pub use sysfs::*;

pub use crate::symbols::pending::*;
