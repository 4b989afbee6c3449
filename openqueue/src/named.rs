//! Policies as commands name them: a file, or one that comes with irnic, and parameters.

use std::path::Path;
use std::str::FromStr;

use crate::{ParameterError, Policy, PolicyError, Shipped};

/// A policy and where it comes from, as [`FromStr`] reads it: `FILE.oq` or the name of a policy that comes with irnic,
/// then parameters, such as `shared-lqd,buffer=480KB`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedPolicy {
    /// The name or file that was given.
    pub name: String,
    /// The text of the policy.
    pub text: String,
    /// The policy with its parameters set.
    pub policy: Policy,
    /// Names of the parameters that were set, in their order.
    pub given: Vec<String>,
}

/// Why such a description is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is no such file, and no policy of this name.
    #[error("{name}: expected {expected}")]
    Unknown {
        /// Name that was given.
        name: String,
        /// What there is.
        expected: String,
    },
    /// The policy is wrong.
    #[error("{name}:{error}")]
    Policy {
        /// Name of the policy or its file.
        name: String,
        /// What is wrong, and where.
        error: PolicyError,
    },
    /// A parameter is wrong.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// What stands between commas sets nothing.
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

/// The text of a file, or of a policy that comes with irnic.
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
