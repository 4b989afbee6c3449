//! `/dev/infiniband/rdma_cm` inside the process, as used by the distribution's librdmacm in place of the kernel's.
//!
//! ```text
//!   application ── librdmacm ── open, write, close
//!                                  │ redirected in librdmacm's own table            hook
//!                                  ▼
//!                 commands of rdma_user_cm.h, ABI 4                                 device, calls, abi
//!                 files (a pipe each), ids, events                                  state
//!                 which device has an address                                       address
//!                                  │ Unit::with_cm               ▲ CmListener       listener
//!                                  ▼                             │
//!                 runtime: a unit's irnic_cm::Cm, MADs at queue pair 1
//! ```
//!
//! The kernel's state of each file is in [`state`], under one lock that is always the last to be taken.

mod abi;
mod address;
mod attributes;
mod calls;
mod device;
#[cfg(any(test, fuzzing))]
mod forged;
mod hook;
mod listener;
mod state;
#[cfg(test)]
mod tests;

#[cfg(fuzzing)]
pub use forged::forged_commands;
pub(crate) use hook::install;
