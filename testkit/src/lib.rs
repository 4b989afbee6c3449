//! Shared parts of the tests of all irnic crates: skipping, retries, waiting, browsers, and crash diagnosis.
#![forbid(unsafe_code)]

pub mod browser;
pub mod crash;
pub mod golden;
pub mod instructions;
pub mod once;
pub mod retry;
pub mod rxe;
pub mod sharing;
pub mod shim;
pub mod skip;
pub mod summary;
pub mod wait;

pub use skip::{long_form, skipped};
