//! `KEY=VALUE` options: splitting a list, parsing values, and tables of keys.
//!
//! ```
//! use irnic_units::keys::{Key, Value, pairs};
//!
//! #[derive(Default)]
//! struct Pacer { rate: u64, burst: u64 }
//!
//! const KEYS: [Key<Pacer>; 2] = [
//!     Key::new("rate", |pacer, value| value.rate(1..=u64::MAX, "a rate such as 5G").map(|rate| pacer.rate = rate)),
//!     Key::new("burst", |pacer, value| value.size(1..=65_536, "1 to 65536 bytes").map(|size| pacer.burst = size)),
//! ];
//!
//! let mut pacer = Pacer::default();
//! for value in pairs("rate=5G, burst=4K") {
//!     let value = value.expect("KEY=VALUE");
//!     let key = Key::find(&KEYS, value.key).expect("rate or burst");
//!     (key.set)(&mut pacer, &value).expect("a rate and a size");
//! }
//! assert_eq!((pacer.rate, pacer.burst), (5_000_000_000, 4_096));
//!
//! let error = (KEYS[1].set)(&mut pacer, &Value { key: "burst", text: "1M" }).unwrap_err();
//! assert_eq!(error.to_string(), "burst=1M: expected 1 to 65536 bytes");
//! ```

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A value as written, with its key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// Name of the key.
    pub key: &'a str,
    /// Text of the value.
    pub text: &'a str,
}

/// Reason why a value is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The value is none of those accepted by the key, which are described here.
    Expected(String),
    /// The value is syntactically valid but rejected for this reason.
    Because(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Expected(expected) => write!(f, "expected {expected}"),
            Why::Because(reason) => f.write_str(reason),
        }
    }
}

/// A rejected value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// Name of the key.
    pub key: String,
    /// Text of the value.
    pub value: String,
    /// Reason for the rejection.
    pub why: Why,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: {}", self.key, self.value, self.why)
    }
}

impl std::error::Error for ValueError {}

impl Value<'_> {
    /// Returns the error that says what was `expected` instead.
    pub fn wrong(&self, expected: impl fmt::Display) -> ValueError {
        self.error(Why::Expected(expected.to_string()))
    }

    /// Returns the error that rejects the value for `reason`.
    pub fn refuse(&self, reason: impl fmt::Display) -> ValueError {
        self.error(Why::Because(reason.to_string()))
    }

    fn error(&self, why: Why) -> ValueError {
        ValueError { key: self.key.to_owned(), value: self.text.to_owned(), why }
    }

    /// Parses the value with `read`, whose `None` is reported as an error naming what was `expected`.
    pub fn read<T>(&self, read: impl Fn(&str) -> Option<T>, expected: impl fmt::Display) -> Result<T, ValueError> {
        read(self.text).ok_or_else(|| self.wrong(expected))
    }

    /// Parses a time in ns within a range.
    pub fn time(&self, range: RangeInclusive<u64>, expected: impl fmt::Display) -> Result<u64, ValueError> {
        self.read(|text| crate::time(text).filter(|ns| range.contains(ns)), expected)
    }

    /// Parses a rate in bit/s within a range.
    pub fn rate(&self, range: RangeInclusive<u64>, expected: impl fmt::Display) -> Result<u64, ValueError> {
        self.read(|text| crate::rate(text).filter(|rate| range.contains(rate)), expected)
    }

    /// Parses a size in bytes within a range.
    pub fn size(&self, range: RangeInclusive<u64>, expected: impl fmt::Display) -> Result<u64, ValueError> {
        self.read(|text| crate::size(text).filter(|bytes| range.contains(bytes)), expected)
    }

    /// Parses a number within a range.
    pub fn number<T>(&self, range: RangeInclusive<T>, expected: impl fmt::Display) -> Result<T, ValueError>
    where
        T: FromStr + PartialOrd,
    {
        self.read(|text| text.parse().ok().filter(|number| range.contains(number)), expected)
    }

    /// Parses one of a set of words. The error lists them all.
    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, ValueError> {
        let found = words.iter().find(|(word, _)| *word == self.text).map(|(_, value)| *value);
        found.ok_or_else(|| self.wrong(words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ")))
    }

    /// Parses `on` or `off`.
    pub fn switch(&self) -> Result<bool, ValueError> {
        self.word(&SWITCH)
    }
}

/// The words of [`Value::switch`].
pub const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];

/// Returns the words of a table for [`Value::word`].
pub fn words<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
    table.iter().map(|(word, _)| *word).collect()
}

/// Splits `a=1, b=2` at commas into key-value pairs, trimming blanks. A part without an equals sign is returned as an
/// error, verbatim; so is an empty text.
pub fn pairs(text: &str) -> impl Iterator<Item = Result<Value<'_>, &str>> {
    text.split(',').map(|part| {
        let (key, text) = part.split_once('=').ok_or(part)?;
        Ok(Value { key: key.trim(), text: text.trim() })
    })
}

/// A key that configures a `C`: one row of the key table.
#[derive(Debug)]
pub struct Key<C: 'static, E: 'static = ValueError> {
    /// Name, as written by users.
    pub name: &'static str,
    /// Parses a value into a `C`.
    pub set: fn(&mut C, &Value<'_>) -> Result<(), E>,
}

impl<C, E> Key<C, E> {
    /// Returns the key with this name and setter.
    pub const fn new(name: &'static str, set: fn(&mut C, &Value<'_>) -> Result<(), E>) -> Key<C, E> {
        Key { name, set }
    }

    /// Returns the key of this name from a table.
    pub fn find<'t>(table: &'t [Key<C, E>], name: &str) -> Option<&'t Key<C, E>> {
        table.iter().find(|key| key.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_at_commas_and_at_the_first_equals_sign() {
        let split = |text| pairs(text).map(|p| p.map(|v| (v.key, v.text))).collect::<Vec<_>>();
        assert_eq!(split("a=1, b = x=y"), [Ok(("a", "1")), Ok(("b", "x=y"))]);
        assert_eq!(split("a=1,"), [Ok(("a", "1")), Err("")]);
        assert_eq!(split(" a"), [Err(" a")]);
    }

    #[test]
    fn errors_name_key_value_and_what_is_allowed() {
        let value = |text| Value { key: "k", text };
        for (error, said) in [
            (value("x").switch().err(), "k=x: expected on or off"),
            (value("x").word(&[("a", 1), ("b", 2), ("c", 3)]).err(), "k=x: expected a or b or c"),
            (value("9").number(0..=7u8, "0 to 7").err(), "k=9: expected 0 to 7"),
            (value("2").time(0..=9, "a time").err(), "k=2: expected a time"),
            (value("2KB").size(1..=9, "1 to 9 bytes").err(), "k=2KB: expected 1 to 9 bytes"),
            (Some(value("1G").refuse("too late")), "k=1G: too late"),
        ] {
            assert_eq!(error.map(|e| e.to_string()).as_deref(), Some(said));
        }
        assert_eq!(value("b").word(&[("a", 1), ("b", 2)]), Ok(2));
        assert_eq!((value("5us").time(0..=5_000, ""), value("1k").rate(1..=1_000, "")), (Ok(5_000), Ok(1_000)));
    }
}
