//! `irnic sim`, `irnic reproduce` and sweeps, and what they write, to the byte.

mod errors;
mod golden;
mod junit;
mod pictures;
mod report;
mod reproduce;
mod runs;
mod series;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
