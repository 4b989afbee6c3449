//! Configuration of switches that run a policy.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use irnic_openqueue::{NameError, NamedPolicy, Plan, Policy};

use super::known::{self, Known};
use super::{Planned, Successive};
use crate::network::Port;
use crate::switch::{Ecn, Scheduling, Switch, Thresholds};

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
    /// Parameters set by the description.
    given: Vec<String>,
    /// Whether plans with a hard-coded switch are interpreted like any other.
    generic: bool,
    /// Length of the longest packet on the wire, bytes.
    longest: u32,
    /// Priorities in use.
    priorities: u8,
    /// Policies that replace it, each with its time, ns.
    next: Vec<(u64, PolicySwitch)>,
    /// Plans by number of ports.
    plans: Arc<Mutex<BTreeMap<usize, Prepared>>>,
}

/// The plan for a number of ports, and the equivalent hard-coded switch, if there is one; it is looked up when the
/// first such switch is built.
#[derive(Clone)]
struct Prepared {
    plan: Arc<Plan>,
    known: Arc<OnceLock<Option<Known>>>,
}

impl Prepared {
    fn known(&self, policy: &Policy) -> Option<&Known> {
        self.known.get_or_init(|| known::switch(policy, &self.plan)).as_ref()
    }
}

impl PartialEq for PolicySwitch {
    fn eq(&self, other: &PolicySwitch) -> bool {
        self.policy == other.policy
            && (self.generic, self.longest, self.priorities) == (other.generic, other.longest, other.priorities)
            && self.next == other.next
    }
}

impl fmt::Debug for PolicySwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicySwitch({})", self.name)
    }
}

impl std::str::FromStr for PolicySwitch {
    type Err = NameError;

    /// Reads `FILE.oq` or the name of a policy shipped with irnic, and parameters: `shared-lqd,buffer=480KB`. With
    /// `plan=generic`, plans that have a hard-coded switch are interpreted like any other.
    fn from_str(text: &str) -> Result<PolicySwitch, NameError> {
        let generic = |part: &&str| part.trim() == "plan=generic";
        let described: Vec<&str> = text.split(',').filter(|part| !generic(part)).collect();
        let NamedPolicy { name, text: policy_text, policy, given } = described.join(",").parse()?;
        let mut switch = PolicySwitch::new(&name, policy);
        (switch.text, switch.given, switch.generic) = (policy_text.into(), given, text.split(',').any(|p| generic(&p)));
        switch.check()?;
        Ok(switch)
    }
}

impl PolicySwitch {
    /// Switches that run a policy; `name` is used in messages.
    pub fn new(name: &str, policy: Policy) -> PolicySwitch {
        PolicySwitch {
            name: name.into(),
            text: Arc::default(),
            policy,
            given: Vec::new(),
            generic: false,
            longest: 0,
            priorities: 1,
            next: Vec::new(),
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

    /// Has plans that have a hard-coded switch interpreted like any other.
    #[must_use]
    pub fn generic(mut self) -> PolicySwitch {
        self.generic = true;
        self
    }

    /// Replaces this policy by another at a time, ns: packets that arrive from then on fall under it. Those already
    /// queued go first, in the order of the policy under which they arrived. Policies that change are always
    /// interpreted, never run by a hard-coded switch.
    #[must_use]
    pub fn then(mut self, at: u64, next: PolicySwitch) -> PolicySwitch {
        self.next.push((at, next));
        self
    }

    /// Whether another policy replaces this one later.
    pub fn changes(&self) -> bool {
        !self.next.is_empty()
    }

    /// Sets a parameter of the policy.
    ///
    /// # Errors
    /// The error states what was expected.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), NameError> {
        self.policy.set(name, value)?;
        self.given.push(name.into());
        self.plans = Arc::default();
        Ok(())
    }

    /// Whether the policy has a parameter.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.policy.parameters().iter().any(|parameter| parameter.name == name)
    }

    /// Sets a parameter that the description left open. Returns whether the policy has it.
    pub(crate) fn fill(&mut self, name: &str, value: &str) -> bool {
        if self.given.iter().any(|given| given == name) {
            return true;
        }
        let set = self.has(name) && self.policy.set(name, value).is_ok();
        self.plans = Arc::default();
        set
    }

    /// Sets marking, scheduling, thresholds, and the threshold of red packets where the policy has parameters for them.
    /// Returns the key of an experiment for which it has none.
    pub(crate) fn fill_all(
        &mut self,
        ecn: Ecn,
        scheduling: Scheduling,
        pfc: bool,
        at: Option<Thresholds>,
        red: Option<u64>,
    ) -> Result<(), &'static str> {
        let marks = match ecn {
            Ecn::Off => true,
            // A controller cannot be written as a condition.
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
        if let Some(red) = red
            && !(self.fill("colours", "on") && self.fill("threshold", &red.to_string()))
        {
            return Err("colour-threshold");
        }
        Ok(())
    }

    /// Returns these switches for packets of at most `longest` bytes on the wire, with this number of priorities in
    /// use; the headroom of PFC depends on both. [`crate::experiment::Experiment::config`] calls it.
    #[must_use]
    pub fn with_packets(mut self, longest: u32, priorities: u8) -> PolicySwitch {
        (self.longest, self.priorities) = (longest, priorities);
        self.next.iter_mut().for_each(|(_, next)| (next.longest, next.priorities) = (longest, priorities));
        self
    }

    /// Whether a hard-coded switch does what the policy says in a switch with this many ports, and so runs in its
    /// place.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn is_known(&self, ports: usize) -> Result<bool, NameError> {
        Ok(!self.generic && !self.changes() && self.prepared(ports)?.known(&self.policy).is_some())
    }

    /// Whether the policy counts red packets, which are then reported by colour.
    pub(crate) fn counts_red(&self) -> bool {
        let plan = self.plan(self.policy.fixed_ports().unwrap_or(3));
        plan.is_ok_and(|plan| plan.reads_red_sizes()) || self.next.iter().any(|(_, next)| next.counts_red())
    }

    /// Number of priorities in use.
    pub(crate) fn set_priorities(&mut self, priorities: u8) {
        self.priorities = priorities;
        self.next.iter_mut().for_each(|(_, next)| next.priorities = priorities);
    }

    fn check(&self) -> Result<(), NameError> {
        self.plan(self.policy.fixed_ports().unwrap_or(3)).map(|_| ())
    }

    /// The plan for a switch with this many ports.
    ///
    /// # Errors
    /// The error states where the policy is wrong.
    pub fn plan(&self, ports: usize) -> Result<Arc<Plan>, NameError> {
        self.prepared(ports).map(|prepared| prepared.plan)
    }

    fn prepared(&self, ports: usize) -> Result<Prepared, NameError> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = plans.get(&ports) {
            return Ok(prepared.clone());
        }
        let plan = self.policy.plan(ports);
        let plan = Arc::new(plan.map_err(|error| NameError::Policy { name: self.name.clone(), error })?);
        let prepared = Prepared { plan, known: Arc::default() };
        plans.insert(ports, prepared.clone());
        Ok(prepared)
    }

    /// Builds a switch with these ports: the hard-coded one if the plan has one.
    pub(crate) fn build(&self, ports: &[Port]) -> Box<dyn Switch> {
        let Ok(prepared) = self.prepared(ports.len()) else {
            // A policy that does not fit was rejected earlier (`Experiment::config`).
            return Box::new(crate::switch::RemoteSwitch);
        };
        if self.changes() {
            // Policies that do not fit were rejected as well.
            let next = self.next.iter().filter_map(|(at, next)| Some((*at, next.plan(ports.len()).ok()?)));
            return Box::new(Successive::new(&prepared.plan, next, ports, self.longest, self.priorities));
        }
        if !self.generic
            && let Some(known) = prepared.known(&self.policy)
        {
            return known.build(ports, self.longest, self.priorities);
        }
        Box::new(Planned::new(&prepared.plan, ports, self.longest, self.priorities))
    }
}
