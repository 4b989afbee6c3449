//! `irnic perf` and `irnic rtt`.

mod flags;
mod lists;
mod rtt;
mod runs;
#[path = "../support/mod.rs"]
mod support;
