//! Which policy switches run, and what follows for each.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use irnic_openqueue::{ParameterError, Plan, Policy, PolicyError, Shipped};

use super::{Planned, known};
use crate::network::Port;
use crate::switch::{Ecn, InputQueued, Scheduling, SharedBuffer, Switch, Thresholds};

/// Switches that run a policy.
///
/// ```
/// use irnic_fabric::experiment::Experiment;
/// use irnic_fabric::sim::{Ending, Simulation};
/// use irnic_fabric::switch::PolicySwitch;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut experiment = Experiment::default();
/// experiment.topology = "star:hosts=4,rate=10G".parse()?;
/// experiment.workload = "incast:senders=3,bytes=100KB".parse()?;
/// experiment.policy = Some("shared-buffer,buffer=100KB".parse::<PolicySwitch>()?);
/// let outcome = Simulation::new(experiment.config(1)?)?.finish()?;
/// assert!(matches!(outcome.ending, Ending::Complete));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PolicySwitch {
    name: String,
    text: Arc<str>,
    policy: Policy,
    /// Parameters that were set by the description.
    given: Vec<String>,
    /// Whether a plan that a switch here knows by heart runs as any other.
    generic: bool,
    /// Bytes on the wire of the longest packet.
    longest: u32,
    /// Priorities in use.
    priorities: u8,
    /// Plans by numbers of ports.
    plans: Arc<Mutex<BTreeMap<usize, Arc<Plan>>>>,
}

/// Why a description of a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyRefused {
    /// There is no such file, and no policy of this name.
    #[error("{name}: expected {expected}")]
    Unknown {
        /// Name that was given.
        name: String,
        /// What there is.
        expected: String,
    },
    /// The policy itself is wrong.
    #[error("{name}:{error}")]
    Policy {
        /// Name of the policy or its file.
        name: String,
        /// What is wrong.
        error: PolicyError,
    },
    /// A parameter is wrong.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// What is after a comma is no parameter.
    #[error("{0:?}: expected PARAMETER=VALUE")]
    NoParameter(String),
}

impl PartialEq for PolicySwitch {
    fn eq(&self, other: &PolicySwitch) -> bool {
        self.policy == other.policy
            && (self.generic, self.longest, self.priorities) == (other.generic, other.longest, other.priorities)
    }
}

impl fmt::Debug for PolicySwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicySwitch({})", self.name)
    }
}

impl std::str::FromStr for PolicySwitch {
    type Err = PolicyRefused;

    /// Reads `FILE.oq` or the name of a policy that comes with irnic, and parameters: `shared-lqd,buffer=480KB`. The
    /// parameter `plan=generic` has plans that a switch here knows by heart run as any other.
    fn from_str(text: &str) -> Result<PolicySwitch, PolicyRefused> {
        let (name, parameters) = text.split_once(',').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let name = name.trim();
        let (text, policy) = read(name)?;
        let mut switch = PolicySwitch::new(name, policy);
        switch.text = text.into();
        for parameter in parameters.iter().flat_map(|all| all.split(',')) {
            match parameter.split_once('=') {
                Some(("plan", "generic")) => switch.generic = true,
                Some((name, value)) => switch.set(name.trim(), value.trim())?,
                None => return Err(PolicyRefused::NoParameter(parameter.into())),
            }
        }
        switch.check()?;
        Ok(switch)
    }
}

/// Reads the policy of a file, or of a name.
fn read(name: &str) -> Result<(String, Policy), PolicyRefused> {
    let path = Path::new(name);
    let is_file = path.extension().is_some_and(|extension| extension == "oq");
    let shipped = Shipped::named(name.strip_suffix(".oq").unwrap_or(name));
    let text = match (is_file.then(|| std::fs::read_to_string(path)), shipped) {
        (Some(Ok(text)), _) => text,
        (_, Some(shipped)) => shipped.text.to_owned(),
        (Some(Err(error)), None) => {
            return Err(PolicyRefused::Unknown { name: name.into(), expected: format!("a policy's file: {error}") });
        }
        (None, None) => {
            let expected = "input-queued, shared-buffer, trimming, FILE.oq, or a name that irnic oq list has".into();
            return Err(PolicyRefused::Unknown { name: name.into(), expected });
        }
    };
    let policy = text.parse().map_err(|error| PolicyRefused::Policy { name: name.into(), error })?;
    Ok((text, policy))
}

impl PolicySwitch {
    /// Switches that run a policy, by its name for messages.
    pub fn new(name: &str, policy: Policy) -> PolicySwitch {
        PolicySwitch {
            name: name.into(),
            text: Arc::default(),
            policy,
            given: Vec::new(),
            generic: false,
            longest: 0,
            priorities: 1,
            plans: Arc::default(),
        }
    }

    /// The text of the policy, if it was read from one.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Has plans that a switch here knows by heart run as any other.
    #[must_use]
    pub fn generic(mut self) -> PolicySwitch {
        self.generic = true;
        self
    }

    /// Sets a parameter of the policy.
    ///
    /// # Errors
    /// Says what was expected.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), PolicyRefused> {
        self.policy.set(name, value)?;
        self.given.push(name.into());
        self.plans = Arc::default();
        Ok(())
    }

    /// Whether the policy has a parameter.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.policy.parameters().iter().any(|parameter| parameter.name == name)
    }

    /// Sets a parameter that the description has left open, if the policy has it. Returns whether it has.
    pub(crate) fn fill(&mut self, name: &str, value: &str) -> bool {
        if self.given.iter().any(|given| given == name) {
            return true;
        }
        let set = self.has(name) && self.policy.set(name, value).is_ok();
        self.plans = Arc::default();
        set
    }

    /// Fills in marking, choice among priorities and thresholds where the policy has parameters for them. Returns the
    /// key of an experiment for which it has none.
    pub(crate) fn fill_all(
        &mut self,
        ecn: Ecn,
        scheduling: Scheduling,
        pfc: bool,
        at: Option<Thresholds>,
    ) -> Result<(), &'static str> {
        let marks = match ecn {
            Ecn::Off => true,
            // A controller is no condition.
            Ecn::Pi(_) => false,
            Ecn::Step { k } => self.fill("step", "on") && self.fill("k", &k.to_string()),
            Ecn::Red { kmin, kmax, pmax } => {
                self.fill("red", "on")
                    && self.fill("kmin", &kmin.to_string())
                    && self.fill("kmax", &kmax.to_string())
                    && self.fill("pmax", &pmax.to_string())
            }
        };
        if !marks {
            return Err("ecn");
        }
        if scheduling == Scheduling::RoundRobin && !self.fill("strict", "off") {
            return Err("scheduling");
        }
        if pfc && !self.fill("pfc", "on") {
            return Err("pfc");
        }
        if let Some(at) = at {
            self.fill("xoff", &at.xoff.to_string());
            self.fill("xon", &at.xon.to_string());
        }
        Ok(())
    }

    /// The same switches, for packets of `longest` bytes on the wire at most and so many priorities in use: what PFC
    /// sets aside follows from them. [`crate::experiment::Experiment::config`] sees to it.
    #[must_use]
    pub fn with_packets(mut self, longest: u32, priorities: u8) -> PolicySwitch {
        (self.longest, self.priorities) = (longest, priorities);
        self
    }

    /// Whether a switch here does what the policy says in a switch with so many ports, so that it runs in its stead.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn is_known(&self, ports: usize) -> Result<bool, PolicyRefused> {
        Ok(!self.generic && known::switch(self, &*self.plan(ports)?).is_some())
    }

    /// Number of priorities in use.
    pub(crate) fn set_priorities(&mut self, priorities: u8) {
        self.priorities = priorities;
    }

    /// Bytes on the wire of the longest packet.
    pub(crate) fn longest(&self) -> u32 {
        self.longest
    }

    /// Priorities in use.
    pub(super) fn priorities(&self) -> u8 {
        self.priorities
    }

    fn check(&self) -> Result<(), PolicyRefused> {
        self.plan(self.policy.fixed_ports().unwrap_or(3)).map(|_| ())
    }

    /// The plan for a switch with so many ports.
    ///
    /// # Errors
    /// Says where the policy is wrong.
    pub fn plan(&self, ports: usize) -> Result<Arc<Plan>, PolicyRefused> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans.get(&ports) {
            return Ok(plan.clone());
        }
        let plan = self.policy.plan(ports);
        let plan = Arc::new(plan.map_err(|error| PolicyRefused::Policy { name: self.name.clone(), error })?);
        plans.insert(ports, plan.clone());
        Ok(plan)
    }

    /// Builds a switch with these ports. One whose plan a switch here knows by heart is that switch.
    pub(crate) fn build(&self, ports: &[Port]) -> Box<dyn Switch> {
        let Ok(plan) = self.plan(ports.len()) else {
            // A policy that does not fit was refused before (`Experiment::config`).
            return Box::new(crate::switch::Elsewhere);
        };
        if !self.generic {
            match known::switch(self, &plan) {
                Some(known::Known::InputQueued(config)) => return Box::new(InputQueued::new(&config, ports)),
                Some(known::Known::SharedBuffer(config)) => return Box::new(SharedBuffer::new(&config, ports)),
                None => {}
            }
        }
        Box::new(Planned::new(&plan, ports, self.longest, self.priorities))
    }
}
