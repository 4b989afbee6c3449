//! Errors of commands.

use std::process::ExitCode;

/// The reason why there are no results, or only part of them.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line or a file is invalid: exit status 2.
    #[error("{0}")]
    Usage(String),
    /// A run failed, or a result could not be written: exit status 1.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C, with finished runs kept: exit status 130.
    #[error("interrupted; rerun the same command to resume")]
    Kept,
    /// Ctrl-C: exit status 130.
    #[error("interrupted; the results are those up to then")]
    Interrupted,
    /// Ctrl-C among several runs, with the number of those done: exit status 130.
    #[error("interrupted: {0}; the results are those of runs that were done")]
    Partial(String),
}

impl CommandError {
    /// Prints the error, each line prefixed with the name of the command, and returns the exit status.
    pub fn report(self, command: &str) -> ExitCode {
        for line in self.to_string().lines() {
            eprintln!("{command}: {line}");
        }
        ExitCode::from(match self {
            CommandError::Usage(_) => 2,
            CommandError::Failed(_) => 1,
            CommandError::Kept | CommandError::Interrupted | CommandError::Partial(_) => 130,
        })
    }
}
