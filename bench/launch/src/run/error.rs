//! Why a command was not started.

use std::ffi::OsString;

/// The command was found and cannot be executed, as shells and env(1) have it.
const CANNOT_EXECUTE: u8 = 126;
/// The command was not found.
const NOT_FOUND: u8 = 127;

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The options, the variables or the file are wrong.
    #[error("{0}")]
    Usage(String),
    /// The installation is not complete, or there is no place for links.
    #[error("{0}")]
    Failed(String),
    /// The command does not start.
    #[error("{}: {error}", .command.display())]
    Exec {
        /// The command.
        command: OsString,
        /// What the system said.
        error: std::io::Error,
    },
}

impl RunError {
    /// Returns the exit status that says so.
    pub fn status(&self) -> u8 {
        match self {
            RunError::Usage(_) => 2,
            RunError::Failed(_) => 1,
            RunError::Exec { error, .. } if error.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
            RunError::Exec { .. } => CANNOT_EXECUTE,
        }
    }
}
