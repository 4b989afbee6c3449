//! Errors in a policy, with their places.

use std::fmt;

/// A place in the text of a policy.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// An error in a policy. Displayed as `LINE:COLUMN: WHAT`, in one line; callers prepend the file name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct PolicyError {
    /// Place of the error.
    pub at: Place,
    /// What is wrong, and what was expected.
    pub what: String,
}

impl PolicyError {
    /// Returns an error at a place.
    pub(crate) fn new(at: Place, what: impl fmt::Display) -> PolicyError {
        PolicyError { at, what: what.to_string() }
    }
}

/// Result of parsing and compiling a policy.
pub(crate) type Result<T> = std::result::Result<T, PolicyError>;

/// Formats a list of names for a message: `a, b or c`.
pub(crate) fn alternatives<S: AsRef<str>>(names: &[S]) -> String {
    match names {
        [] => "nothing".into(),
        [one] => one.as_ref().into(),
        [first @ .., last] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} or {}", first.join(", "), last.as_ref())
        }
    }
}
