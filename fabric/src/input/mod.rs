//! Parsing of user input: descriptions such as `star:hosts=4,rate=10G`, and files of numbers, independent of their
//! meaning.

mod keys;
mod lines;

pub use keys::Keys;
pub use lines::{Line, Lines};

use std::path::PathBuf;

use irnic_units::did_you_mean;
use irnic_units::keys::{Value, ValueError};

/// An error in a description or a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A malformed line of a file.
    #[error("{}:{line}: expected {expected}, found {found}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// Expected content.
        expected: String,
        /// Actual content.
        found: String,
    },
    /// An unknown name.
    #[error("unknown {what} `{name}`; known are {known}{}", did_you_mean(name, known.split(", ")))]
    Name {
        /// Kind of thing.
        what: &'static str,
        /// The name as written.
        name: String,
        /// Known names.
        known: String,
    },
    /// A key that this kind of thing does not have.
    #[error("{of}: unknown key `{key}`; it takes {allowed}")]
    Key {
        /// The thing described.
        of: String,
        /// The key as written.
        key: String,
        /// Allowed keys.
        allowed: String,
    },
    /// An invalid value.
    #[error("{of}: {error}")]
    Value {
        /// The thing described.
        of: String,
        /// Key, value, and what is wrong.
        error: ValueError,
    },
    /// A part that is not `KEY=VALUE`.
    #[error("{of}: `{part}`: expected KEY=VALUE")]
    Part {
        /// The thing described.
        of: String,
        /// The part as written.
        part: String,
    },
}

impl Error {
    /// Returns the error that a value was `expected` to be different, where it may not have been written explicitly.
    pub(crate) fn value(
        of: impl Into<String>,
        key: &str,
        value: impl ToString,
        expected: impl std::fmt::Display,
    ) -> Error {
        let error = Value { key, text: &value.to_string() }.wrong(expected);
        Error::Value { of: of.into(), error }
    }
}
