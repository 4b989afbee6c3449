//! Reading what users write: descriptions such as `star:hosts=4,rate=10G`, and files of numbers. What they mean is
//! elsewhere.

mod keys;
mod lines;

pub use keys::Keys;
pub use lines::{Line, Lines};

use std::path::PathBuf;

use irnic_units::keys::{Value, ValueError};

/// What is wrong with a description or a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line of a file.
    #[error("{}:{line}: expected {expected}, found {found}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What should have been there.
        expected: String,
        /// What was there.
        found: String,
    },
    /// A name that is none of those that are known.
    #[error("unknown {what} `{name}`; known are {known}")]
    Name {
        /// Kind of thing.
        what: &'static str,
        /// What was written.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A key that this kind of thing does not have.
    #[error("{of}: unknown key `{key}`; it takes {allowed}")]
    Key {
        /// The thing described.
        of: String,
        /// What was written.
        key: String,
        /// The keys there are.
        allowed: String,
    },
    /// A value that cannot be.
    #[error("{of}: {error}")]
    Value {
        /// The thing described.
        of: String,
        /// Key, value, and what is wrong.
        error: ValueError,
    },
    /// A part that is no `KEY=VALUE`.
    #[error("{of}: `{part}`: expected KEY=VALUE")]
    Part {
        /// The thing described.
        of: String,
        /// What was written.
        part: String,
    },
}

impl Error {
    /// Returns the error that a value of something was `expected` to be another, where nobody need have written it.
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
