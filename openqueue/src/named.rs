//! Policies as given to commands: a file, or one shipped with irnic, and parameters.

use std::path::Path;
use std::str::FromStr;

use crate::{ParameterError, Policy, PolicyError, Shipped};

/// A policy and its origin, parsed by [`FromStr`]: `FILE.oq` or the name of a policy shipped with irnic, then
/// parameters, such as `shared-lqd,buffer=480KB`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedPolicy {
    /// The name or file as given.
    pub name: String,
    /// The text of the policy.
    pub text: String,
    /// The policy with its parameters set.
    pub policy: Policy,
    /// Names of the parameters that were set, in order.
    pub given: Vec<String>,
}

/// An error in such a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is no such file, and no policy of this name.
    #[error("{name}: expected {expected}")]
    Unknown {
        /// The name as given.
        name: String,
        /// What was expected.
        expected: String,
    },
    /// The policy is wrong.
    #[error("{name}:{error}")]
    Policy {
        /// Name of the policy or its file.
        name: String,
        /// The error in the policy.
        error: PolicyError,
    },
    /// An invalid parameter.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// A part between commas that sets no parameter.
    #[error("{0:?}: expected a parameter of the policy and its value, NAME=VALUE")]
    NoParameter(String),
}

impl FromStr for NamedPolicy {
    type Err = NameError;

    fn from_str(description: &str) -> Result<NamedPolicy, NameError> {
        let (name, parameters) =
            description.split_once(',').map_or((description, None), |(name, rest)| (name, Some(rest)));
        let name = name.trim();
        let text = text_of(name)?;
        let mut policy: Policy = text.parse().map_err(|error| NameError::Policy { name: name.into(), error })?;
        let mut given = Vec::new();
        for parameter in parameters.iter().flat_map(|all| all.split(',')) {
            let (name, value) = parameter.split_once('=').ok_or_else(|| NameError::NoParameter(parameter.into()))?;
            policy.set(name.trim(), value.trim())?;
            given.push(name.trim().to_owned());
        }
        Ok(NamedPolicy { name: name.into(), text, policy, given })
    }
}

/// The text of a file, or of a policy shipped with irnic.
fn text_of(name: &str) -> Result<String, NameError> {
    let is_file = Path::new(name).extension().is_some_and(|extension| extension == "oq");
    let shipped = Shipped::named(name.strip_suffix(".oq").unwrap_or(name));
    let unknown = |expected| NameError::Unknown { name: name.into(), expected };
    match (is_file.then(|| std::fs::read_to_string(name)), shipped) {
        (Some(Ok(text)), _) => Ok(text),
        (_, Some(shipped)) => Ok(shipped.text.to_owned()),
        (Some(Err(error)), None) => Err(unknown(format!("a policy's file: {error}"))),
        (None, None) => Err(unknown("FILE.oq, or a name that irnic oq list has".to_owned())),
    }
}
