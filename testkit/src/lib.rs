//! What the tests of all irnic crates share: how a test is skipped, when one may be run again, how it waits, and what a
//! crash leaves.
#![forbid(unsafe_code)]

pub mod crash;
pub mod once;
pub mod retry;
pub mod sharing;
pub mod shim;
pub mod skip;
pub mod summary;
pub mod wait;

pub use skip::{long_form, skipped};
