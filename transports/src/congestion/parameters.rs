//! Parameters of algorithms as text.

use irnic_units::keys::{Key, Value, ValueError};
use irnic_units::{MAX_NS, Nanoseconds, quotient};

use super::MOST_WINDOW;

/// A number above 0 and up to 1.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Share(f64);

// Never NaN.
impl Eq for Share {}

impl Share {
    /// Returns `None` unless the value is above 0 and at most 1.
    pub const fn new(value: f64) -> Option<Share> {
        if value > 0.0 && value <= 1.0 { Some(Share(value)) } else { None }
    }

    /// Returns the number.
    #[inline]
    pub fn get(self) -> f64 {
        self.0
    }
}

/// A parameter of an algorithm: a row of its parameter table.
pub(super) struct Parameter<C: 'static> {
    pub(super) key: Key<C>,
    pub(super) get: fn(&C) -> String,
}

/// Returns a named parameter. `set` parses the text that `get` returns.
pub(super) const fn parameter<C>(
    name: &'static str,
    set: fn(&mut C, &Value<'_>) -> Result<(), ValueError>,
    get: fn(&C) -> String,
) -> Parameter<C> {
    Parameter { key: Key::new(name, set), get }
}

/// Parameters of an algorithm.
pub(super) trait Parameters: Sized + 'static {
    /// All parameters.
    const ALL: &'static [Parameter<Self>];

    /// Returns the parameter with this name.
    fn named(name: &str) -> Option<&'static Parameter<Self>> {
        Self::ALL.iter().find(|parameter| parameter.key.name == name)
    }
}

/// Parses a number above 0 and at most 1, or a quotient such as 1/256.
pub(super) fn share(value: &Value<'_>) -> Result<Share, ValueError> {
    value.read(|text| quotient(text).and_then(Share::new), "a number above 0 and up to 1, such as 0.8 or 1/256")
}

/// Parses a share of the line rate, or `line` for all of it.
pub(super) fn share_of_line(value: &Value<'_>) -> Result<Share, ValueError> {
    match Share::new(1.0) {
        Some(all) if value.text == "line" => Ok(all),
        _ => share(value),
    }
}

/// Parses a round trip, ns.
pub(super) fn round_trip(value: &Value<'_>) -> Result<u64, ValueError> {
    value.time(1..=MAX_NS, "a time such as 20us, 1ns to 3600s")
}

/// Parses the bytes of a segment.
pub(super) fn segment(value: &Value<'_>) -> Result<u32, ValueError> {
    value.size(1..=1 << 30, "a size such as 16KB, 1 byte to 1 GiB").map(|bytes| bytes as u32)
}

/// Parses a window in packets, or `bdp` for `None`.
pub(super) fn window(value: &Value<'_>) -> Result<Option<u32>, ValueError> {
    match value.text {
        "bdp" => Ok(None),
        _ => value.number(1..=MOST_WINDOW, "bdp, or 1 to 65536 packets").map(Some),
    }
}

/// Formats a share for [`share`] to parse.
pub(super) fn share_text(share: Share) -> String {
    share.get().to_string()
}

/// Formats a rate for [`Value::rate`] to parse.
pub(super) fn rate(bits: u64) -> String {
    format!("{bits}bit")
}

/// Formats a time for [`Value::time`] to parse.
pub(super) fn time(ns: u64) -> String {
    Nanoseconds(ns).to_string()
}

/// Formats a size for [`Value::size`] to parse.
pub(super) fn size(bytes: u64) -> String {
    format!("{bytes}B")
}

/// Formats a window for [`window`] to parse.
pub(super) fn window_text(packets: Option<u32>) -> String {
    packets.map_or("bdp".to_owned(), |n| n.to_string())
}

/// Formats a switch for [`Value::switch`] to parse.
pub(super) fn switch(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}
