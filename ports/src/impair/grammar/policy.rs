//! A policy for the queues before a link.

use std::fmt;

use irnic_openqueue::NamedPolicy;

use super::tokens::{ParseError, Section, Token};

pub(super) const EXPECT_NAME: &str = "a policy: the name of one that comes with irnic, or FILE.oq";
pub(super) const NEED_RATE: &str = "rate beside policy: without it there is no queue";
pub(super) const ALONE: &str =
    "policy without trim, red, rocc, prio and ecn with a queue length: it says all of that itself";
const NO_NEIGHBOUR: &str = "a policy that asks no neighbour to stop: there is none";
const ONE_LEVEL: &str = "a policy whose port has the link: one that leads to queues goes with irnic sim only";

/// An OpenQueue description of the queues before a link, as given: `shared-lqd,buffer=480KB`.
#[derive(Clone, Debug)]
pub struct LinePolicy {
    text: String,
    policy: NamedPolicy,
}

impl LinePolicy {
    /// Returns the policy.
    pub fn policy(&self) -> &NamedPolicy {
        &self.policy
    }

    pub(super) fn read(section: &mut Section<'_>) -> Result<LinePolicy, ParseError> {
        let token = section.next().unwrap_or(Token { text: "", column: section.end });
        if token.text.is_empty() {
            return Err(token.error(EXPECT_NAME));
        }
        let policy: NamedPolicy = token.text.parse().map_err(|e| token.error(format!("a policy: {e}")))?;
        let plan = policy.policy.plan(1).map_err(|e| token.error(format!("a policy for one output: {e}")))?;
        if plan.pauses() {
            return Err(token.error(NO_NEIGHBOUR));
        }
        if plan.has_levels() {
            return Err(token.error(ONE_LEVEL));
        }
        Ok(LinePolicy { text: token.text.to_owned(), policy })
    }
}

/// Policies with the same text are equal if their files have the same content.
impl PartialEq for LinePolicy {
    fn eq(&self, other: &LinePolicy) -> bool {
        self.text == other.text && self.policy.text == other.policy.text
    }
}

impl Eq for LinePolicy {}

impl fmt::Display for LinePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy {}", self.text)
    }
}
