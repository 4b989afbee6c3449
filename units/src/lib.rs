//! Parsing and arithmetic shared by irnic's crates.
//!
//! Quantities with units ([`rate()`], [`time()`], [`size()`] and the variants of `tc`), key-value options ([`keys`]),
//! settings files whose errors name lines (`toml`, with the feature of that name), floating-point functions that give
//! the same bits on every machine ([`math`]), and inputs that no output replaces ([`files`]). Depends on no other crate
//! of irnic.
//!
//! ```
//! assert_eq!(irnic_units::rate("40G"), Some(40_000_000_000));
//! assert_eq!(irnic_units::time("1.5ms"), Some(1_500_000));
//! assert_eq!((irnic_units::size("64K"), irnic_units::size("64KB")), (Some(65_536), Some(64_000)));
//! ```

#![forbid(unsafe_code)]

mod counters;
mod delegate;
pub mod files;
pub mod keys;
pub mod math;
mod names;
mod quantity;
#[cfg(feature = "toml")]
pub mod toml;

pub use names::{did_you_mean, nearest};
pub use quantity::{
    BitRate, MAX_BYTES, MAX_NS, MAX_RATE, MIN_LINK_RATE, Nanoseconds, RATE, SIZE, TIME, Unit, decimal, quotient, rate,
    size, tc_link_rate, tc_rate, tc_rate_or_letter, tc_size, tc_time, time, too_slow, with_unit,
};
