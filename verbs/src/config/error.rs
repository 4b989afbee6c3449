//! Errors of settings, each one line that names their place.

use std::fmt;
use std::path::PathBuf;

/// Origin of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An environment variable.
    Variable(String),
    /// The command line option of a variable.
    Flag(String),
    /// A line of a file, counted from 1.
    File(PathBuf, usize),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Variable(name) | Origin::Flag(name) => f.write_str(name),
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// An invalid value for the key.
    #[error("{origin}: {key} \"{value}\": {why}")]
    Value {
        /// Origin of the setting.
        origin: Origin,
        /// The key's name in the file.
        key: &'static str,
        /// The value.
        value: String,
        /// What is wrong, and what is expected.
        why: String,
    },
    /// A key or variable that does not exist.
    #[error("{origin}: there is no {what} \"{name}\"; {advice}")]
    Unknown {
        /// Origin of the setting.
        origin: Origin,
        /// "key" or "variable".
        what: &'static str,
        /// Name of the key or variable.
        name: String,
        /// The name that was probably meant, or all names.
        advice: String,
    },
    /// A file that cannot be read.
    #[error("{origin}: {path}: {error}")]
    Unreadable {
        /// Origin of its name.
        origin: Origin,
        /// The file.
        path: String,
        /// System error message.
        error: String,
    },
    /// A file with a syntax error.
    #[error("{origin}: {why}")]
    Syntax {
        /// Origin of the error.
        origin: Origin,
        /// What is wrong.
        why: String,
    },
}

/// Returns the advice for an unknown name: the one that was probably meant, or all.
pub(super) fn did_you_mean<'a>(name: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    // The common prefix of variables carries no information.
    let bare = |name: &'a str| name.trim_start_matches("IRNIC_");
    let nearest = irnic_units::nearest(name.trim_start_matches("IRNIC_"), names.clone().map(bare));
    match names.clone().find(|name| nearest == Some(bare(name))) {
        Some(name) => format!("did you mean \"{name}\"?"),
        None => format!("there are {}", names.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_or_all_are_listed() {
        let names = ["transport", "impair", "mtu"];
        assert_eq!(did_you_mean("tranpsort", names.into_iter()), "did you mean \"transport\"?");
        assert_eq!(did_you_mean("MTU", names.into_iter()), "did you mean \"mtu\"?");
        assert_eq!(did_you_mean("colour", names.into_iter()), "there are transport, impair, mtu");
    }
}
