//! Errors of a lab.

use irnic_fabric::network::NetworkError;
use irnic_launch::run::RunError;
use irnic_report::CommandError;

/// An error of a lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Invalid options, file or network.
    #[error("{0}")]
    Usage(String),
    /// Any other failure.
    #[error("{0}")]
    Failed(String),
    /// A command could not be started.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<CommandError> for LabError {
    fn from(e: CommandError) -> LabError {
        match e {
            CommandError::Usage(why) => LabError::Usage(why),
            other => LabError::Failed(other.to_string()),
        }
    }
}

impl From<NetworkError> for LabError {
    fn from(e: NetworkError) -> LabError {
        LabError::Usage(e.to_string())
    }
}

impl LabError {
    /// Returns the exit status.
    pub fn status(&self) -> u8 {
        match self {
            LabError::Usage(_) => 2,
            LabError::Failed(_) => 1,
            LabError::Run(e) => e.status(),
        }
    }
}

/// Wraps an error of the system.
pub fn failed(e: std::io::Error) -> LabError {
    LabError::Failed(e.to_string())
}
