//! Parsing of `KEY=VALUE,KEY=VALUE` after the name of a thing.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use irnic_units::keys::{self, Value, ValueError};
use irnic_units::{RATE, SIZE, TIME};

use super::Error;

/// The keys and values of one description.
#[derive(Debug)]
pub struct Keys<'a> {
    of: &'a str,
    values: Vec<Value<'a>>,
}

impl<'a> Keys<'a> {
    /// Parses `text`, all keys of which must be in `allowed`, each at most once. `of` names what they describe, for
    /// messages.
    pub fn parse(of: &'a str, text: &'a str, allowed: &[&str]) -> Result<Keys<'a>, Error> {
        let mut keys = Keys { of, values: Vec::new() };
        for pair in keys::pairs(text).filter(|_| !text.is_empty()) {
            let value = pair.map_err(|part| Error::Part { of: of.to_owned(), part: part.to_owned() })?;
            if !allowed.contains(&value.key) {
                let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                return Err(Error::Key { of: of.to_owned(), key: value.key.to_owned(), allowed });
            }
            if keys.text(value.key).is_some() {
                return Err(keys.wrong(value.key, "each key once"));
            }
            keys.values.push(value);
        }
        Ok(keys)
    }

    fn value(&self, key: &str) -> Option<Value<'a>> {
        self.values.iter().find(|value| value.key == key).copied()
    }

    /// Returns the value of a key as written.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.value(key).map(|value| value.text)
    }

    /// Returns an error for the value of a given key.
    pub fn wrong(&self, key: &str, expected: impl Display) -> Error {
        let text = self.text(key).unwrap_or_default();
        self.error(Value { key, text }.wrong(expected))
    }

    fn error(&self, error: ValueError) -> Error {
        Error::Value { of: self.of.to_owned(), error }
    }

    /// Parses a rate in bit/s.
    pub fn rate(&self, key: &str, default: u64) -> Result<u64, Error> {
        self.read(key, default, |value| value.rate(0..=u64::MAX, RATE))
    }

    /// Parses a time in ns.
    pub fn time(&self, key: &str, default: u64) -> Result<u64, Error> {
        self.read(key, default, |value| value.time(0..=u64::MAX, TIME))
    }

    /// Parses a size in bytes.
    pub fn size(&self, key: &str, default: u64) -> Result<u64, Error> {
        self.read(key, default, |value| value.size(0..=u64::MAX, SIZE))
    }

    /// Parses a number within a range.
    pub fn number<T>(&self, key: &str, default: T, range: RangeInclusive<T>) -> Result<T, Error>
    where
        T: FromStr + PartialOrd + Display,
    {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.read(key, default, |value| value.number(range, &expected))
    }

    fn read<T>(
        &self,
        key: &str,
        default: T,
        read: impl FnOnce(&Value<'_>) -> Result<T, ValueError>,
    ) -> Result<T, Error> {
        self.value(key).map_or(Ok(default), |value| read(&value).map_err(|error| self.error(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        let keys = match Keys::parse("star", text, &["hosts", "rate"]) {
            Err(error) => return error.to_string(),
            Ok(keys) => keys,
        };
        match (keys.number("hosts", 2, 1..=9), keys.rate("rate", 7)) {
            (Err(error), _) | (_, Err(error)) => error.to_string(),
            (Ok(hosts), Ok(rate)) => format!("{hosts} {rate}"),
        }
    }

    #[test]
    fn defaults_and_errors_name_what_is_meant() {
        for (text, said) in [
            ("", "2 7"),
            ("hosts=3", "3 7"),
            ("rate=1k,hosts=1", "1 1000"),
            ("size=3", "star: unknown key `size`; it takes hosts, rate"),
            ("hosts", "star: `hosts`: expected KEY=VALUE"),
            ("hosts=1,", "star: ``: expected KEY=VALUE"),
            ("hosts=10", "star: hosts=10: expected a number from 1 to 9"),
            ("hosts=x", "star: hosts=x: expected a number from 1 to 9"),
            ("hosts=1,hosts=2", "star: hosts=1: expected each key once"),
            ("rate=fast", "star: rate=fast: expected a rate such as 40G, 100Gbps or 2500Mbit, up to 1000T"),
        ] {
            assert_eq!(message(text), said, "{text}");
        }
    }
}
