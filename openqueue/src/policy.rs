//! Policies: a text, and values of its parameters.

use std::sync::Arc;

use crate::ast::{Expr, Statement};
use crate::compile::{About, Compiler, Constant, Constants};
use crate::elaborate::{self, Settings};
use crate::error::{PolicyError, Result};
use crate::number::Dimension;
use crate::parse::parse;
use crate::plan::Plan;

/// A policy: layout and behaviour of the buffers, queues and schedulers of switches.
///
/// ```
/// use irnic_openqueue::Policy;
///
/// let mut policy: Policy = "
///     param size = 64KB;
///     q = Queue(size);
///     out = Port(100%, q);
///     q.procPrio(p1, p2) = p1.arrival < p2.arrival;
///     q.congestion() = (currSize > 0.5 * size, drop(0.1));
/// ".parse()?;
/// policy.set("size", "128KB")?;
/// assert_eq!(policy.plan(6)?.queues(), 6);
///
/// let error = "q = Queue(64KB); out = Port(q); q.prio = fifo;".parse::<Policy>().unwrap_err();
/// assert!(error.to_string().starts_with("1:35: a Queue has no attribute prio to set; expected procPrio"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    statements: Arc<[Statement]>,
    settings: Settings,
}

impl PartialEq for Policy {
    /// Two policies are equal if one is a clone of the other, with the same parameter values.
    fn eq(&self, other: &Policy) -> bool {
        Arc::ptr_eq(&self.statements, &other.statements) && self.settings == other.settings
    }
}

/// An error in setting a parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// There is no such parameter.
    #[error("the policy has no parameter {name}; expected {}", crate::error::alternatives(expected))]
    Unknown {
        /// The name as given.
        name: String,
        /// Known names.
        expected: Vec<String>,
    },
    /// An invalid value.
    #[error("{name}={text}: expected {expected}")]
    Value {
        /// Name of the parameter.
        name: String,
        /// Text of the value.
        text: String,
        /// Expected value.
        expected: &'static str,
    },
}

/// A parameter of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name.
    pub name: String,
    /// Value, in the syntax of policies.
    pub value: String,
}

/// Number of ports of the switch for which a policy is checked.
const SAMPLE: usize = 3;

impl std::str::FromStr for Policy {
    type Err = PolicyError;

    /// Parses a policy and checks it for a switch with three ports, or its fixed number of ports.
    fn from_str(text: &str) -> Result<Policy> {
        let policy = Policy { statements: parse(text)?.into(), settings: Settings::new() };
        policy.plan(policy.fixed_ports().unwrap_or(SAMPLE))?;
        Ok(policy)
    }
}

impl Policy {
    /// Sets a parameter. Values are written as in policies.
    ///
    /// # Errors
    /// The error states what was expected.
    pub fn set(&mut self, name: &str, text: &str) -> std::result::Result<(), ParameterError> {
        let parameters = self.declared();
        let Some((_, default)) = parameters.iter().find(|(known, _)| *known == name) else {
            let expected = parameters.into_iter().map(|(name, _)| name.to_owned()).collect();
            return Err(ParameterError::Unknown { name: name.into(), expected });
        };
        let wrong = |expected| ParameterError::Value { name: name.into(), text: text.into(), expected };
        let value = match default {
            Constant::Bool(_) => match text {
                "on" | "true" => Constant::Bool(true),
                "off" | "false" => Constant::Bool(false),
                _ => return Err(wrong("on or off")),
            },
            Constant::Number(_, counts) => {
                let expected = match counts {
                    Dimension::Plain => "a number such as 0.5, 1/16 or 75%",
                    Dimension::Bytes => irnic_units::SIZE,
                    Dimension::Time => irnic_units::TIME,
                    Dimension::Rate => irnic_units::RATE,
                };
                quotient(text)
                    .filter(|(_, given)| *given == *counts || *given == Dimension::Plain)
                    .map(|(number, _)| Constant::Number(number, *counts))
                    .ok_or_else(|| wrong(expected))?
            }
        };
        self.settings.insert(name.into(), value);
        Ok(())
    }

    /// The parameters, in order, with their current values.
    pub fn parameters(&self) -> Vec<Parameter> {
        let show = |(name, default): (&str, Constant)| {
            let value = match self.settings.get(name).copied().unwrap_or(default) {
                Constant::Bool(true) => "on".into(),
                Constant::Bool(false) => "off".into(),
                Constant::Number(number, Dimension::Time) => format!("{number}ns"),
                Constant::Number(number, _) => number.to_string(),
            };
            Parameter { name: name.into(), value }
        };
        self.declared().into_iter().map(show).collect()
    }

    /// The parameters and their defaults.
    fn declared(&self) -> Vec<(&str, Constant)> {
        let mut constants = Constants::new();
        let mut declared = Vec::new();
        for statement in self.statements.iter() {
            let Statement::Param(name, value) = statement else { continue };
            let Ok(default) = constant(value, &constants) else { continue };
            constants.insert(name.text.clone(), self.settings.get(&name.text).copied().unwrap_or(default));
            declared.push((name.text.as_str(), default));
        }
        declared
    }

    /// Number of ports of a policy that does not adapt to the switch.
    pub fn fixed_ports(&self) -> Option<usize> {
        elaborate::fixed_ports(&self.statements, &self.settings)
    }

    /// The plan for a switch with this many ports.
    ///
    /// # Errors
    /// The error states where the policy is wrong, and what was expected.
    pub fn plan(&self, ports: usize) -> Result<Plan> {
        elaborate::plan(&self.statements, &self.settings, ports)
    }
}

fn constant(expr: &Expr, constants: &Constants) -> Result<Constant> {
    Compiler::new(constants, About::Nothing).constant(expr)
}

/// Parses a number, or a quotient of two.
fn quotient(text: &str) -> Option<(crate::number::Ratio, Dimension)> {
    let read = |text: &str| crate::number::read(text.trim());
    match text.split_once('/') {
        Some((above, below)) if !text.ends_with("b/s") => {
            let ((above, counts), (below, _)) = (read(above)?, read(below)?);
            Some((above.over(below)?, counts))
        }
        _ => read(text.trim()),
    }
}
