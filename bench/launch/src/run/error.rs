//! Errors of starting a command.

use std::ffi::OsString;

/// Exit status if the command was found but cannot be executed, as in shells and env(1).
const CANNOT_EXECUTE: u8 = 126;
/// Exit status if the command was not found.
const NOT_FOUND: u8 = 127;

/// An error of starting a command.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Invalid options, variables or file.
    #[error("{0}")]
    Usage(String),
    /// The installation is incomplete, or there is no place for links.
    #[error("{0}")]
    Failed(String),
    /// The command could not be executed.
    #[error("{}: {error}", .command.display())]
    Exec {
        /// The command.
        command: OsString,
        /// Error of the system.
        error: std::io::Error,
    },
}

impl RunError {
    /// Returns the exit status for the error.
    pub fn status(&self) -> u8 {
        match self {
            RunError::Usage(_) => 2,
            RunError::Failed(_) => 1,
            RunError::Exec { error, .. } if error.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
            RunError::Exec { .. } => CANNOT_EXECUTE,
        }
    }
}
