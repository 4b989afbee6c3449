//! Errors of a measurement.

use std::process::ExitCode;

/// The reason why a run ended without its results, or with part of them.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The command line is invalid: exit 2.
    #[error("{0}")]
    Usage(String),
    /// The run failed: exit 1.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C: exit 130.
    #[error("interrupted")]
    Interrupted,
    /// Ctrl-C at the other end: exit 130.
    #[error("the peer was interrupted")]
    PeerInterrupted,
}

impl PerfError {
    pub fn failed(what: impl std::fmt::Display) -> PerfError {
        PerfError::Failed(what.to_string())
    }
}

impl From<std::io::Error> for PerfError {
    fn from(e: std::io::Error) -> PerfError {
        PerfError::failed(e)
    }
}

/// Reports the outcome of a command.
pub fn exit(command: &str, outcome: Result<(), PerfError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(PerfError::Usage(what)) => {
            eprintln!("{command}: {what}");
            ExitCode::from(2)
        }
        Err(PerfError::Failed(what)) => {
            for line in what.lines() {
                eprintln!("{command}: {line}");
            }
            ExitCode::FAILURE
        }
        Err(why @ (PerfError::Interrupted | PerfError::PeerInterrupted)) => {
            eprintln!("{command}: {why}; the results are those up to then");
            ExitCode::from(130)
        }
    }
}
