//! Values as written by users, with their place, and errors that refer to it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use irnic_units::keys::{Value, ValueError, Why};

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default value.
    Default,
    /// On the command line.
    Flag,
    /// In a line of a file, counted from 1.
    Line(Arc<PathBuf>, usize),
}

/// A value as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Name of the key.
    pub key: &'static str,
    /// Text of the value.
    pub text: String,
    /// Where it was written.
    pub origin: Origin,
}

impl Written {
    /// Returns a value given on the command line.
    pub fn flag(key: &'static str, text: &str) -> Written {
        Written { key, text: text.to_owned(), origin: Origin::Flag }
    }

    /// Returns key and text, for parsing.
    pub fn value(&self) -> Value<'_> {
        Value { key: self.key, text: &self.text }
    }

    /// Parses the value. If it should be given as several values, the error says how to write them.
    pub fn read<T>(&self, read: impl Fn(&Value<'_>) -> Result<T, ValueError>) -> Result<T, TextError> {
        read(&self.value()).map_err(|error| self.error(error.why, |value| read(value).is_ok()))
    }

    /// Returns the error that the value is not allowed, for a `reason`.
    pub fn refuse(&self, reason: impl fmt::Display) -> TextError {
        TextError::Value { written: self.clone(), why: Why::Because(reason.to_string()) }
    }

    /// Returns the error for this value; `fits` says whether a part of it would be valid.
    pub(super) fn error(&self, why: Why, fits: impl Fn(&Value<'_>) -> bool) -> TextError {
        let parts: Vec<&str> = self.text.split(',').map(str::trim).collect();
        let several = parts.len() > 1 && parts.iter().all(|text| fits(&Value { key: self.key, text }));
        let why = match why {
            Why::Expected(_) if several => Why::Expected(format!("one value; several are {}", self.several(&parts))),
            why => why,
        };
        TextError::Value { written: self.clone(), why }
    }

    /// Returns several values of the key in the syntax of the place where it was written.
    fn several(&self, values: &[&str]) -> String {
        let key = self.key;
        match self.origin {
            Origin::Line(..) => format!("{key} = [\"{}\"]", values.join("\", \"")),
            _ => values.iter().map(|value| format!("--{key} {value}")).collect::<Vec<_>>().join(" "),
        }
    }
}

/// An error in a written description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextError {
    /// An invalid value.
    Value {
        /// The value.
        written: Written,
        /// What is wrong with it.
        why: Why,
    },
    /// Several values of several keys have more than this many combinations.
    TooManyCases(usize),
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Written { key, text, origin }, why) = match self {
            TextError::Value { written, why } => (written, why),
            TextError::TooManyCases(most) => return write!(f, "more than {most} combinations of values"),
        };
        match (origin, why) {
            (Origin::Line(path, line), Why::Expected(_)) => write!(f, "{}:{line}: {key} = \"{text}\"", path.display())?,
            (Origin::Line(path, line), Why::Because(_)) => write!(f, "{}:{line}: {key}", path.display())?,
            (_, Why::Expected(_)) => write!(f, "--{key} {text}")?,
            (_, Why::Because(_)) => write!(f, "--{key}")?,
        }
        write!(f, ": {why}")
    }
}

impl std::error::Error for TextError {}
