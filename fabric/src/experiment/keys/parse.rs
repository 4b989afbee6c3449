//! Values that keys of several categories have.

use irnic_units::keys::{Value, ValueError};
use irnic_units::{MAX_BYTES, MAX_NS, SIZE, TIME};

/// Parses a value by its `FromStr`, whose error states what is wrong.
pub(super) fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(value: &Value<'_>) -> Result<T, ValueError> {
    value.text.parse().map_err(|error| value.refuse(error))
}

pub(super) fn size(value: &Value<'_>) -> Result<u64, ValueError> {
    value.size(1..=MAX_BYTES, SIZE)
}

pub(super) fn positive_time(value: &Value<'_>) -> Result<u64, ValueError> {
    value.time(1..=MAX_NS, TIME)
}
