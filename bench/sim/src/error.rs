//! Errors of the experiment's text as errors of the command.

use irnic_fabric::experiment::TextError;
use irnic_report::CommandError;

/// An invalid value is an error of the command line.
pub fn usage(error: TextError) -> CommandError {
    CommandError::Usage(error.to_string())
}
