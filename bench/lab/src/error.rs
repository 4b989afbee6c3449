//! Why there was no lab, or it failed.

use irnic_fabric::network::NetworkError;
use irnic_launch::run::RunError;
use irnic_report::CommandError;

/// Why there was no lab, or it failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Options, file or network make no sense.
    #[error("{0}")]
    Usage(String),
    /// Something else went wrong.
    #[error("{0}")]
    Failed(String),
    /// A command was not started.
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

/// An error of the system as one of the lab.
pub fn failed(e: std::io::Error) -> LabError {
    LabError::Failed(e.to_string())
}
