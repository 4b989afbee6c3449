//! Policies of an experiment: parameters from its other keys, and changes of policy.

use irnic_openqueue::NameError;
use irnic_units as units;
use irnic_units::keys::{Value, ValueError};

use super::checks::in_kb;
use super::switches::PFC_RESUME;
use super::{Buffers, Experiment, InputBuffers, LinkFlowControl};
use crate::switch::{Ecn, PolicySwitch, SwitchConfig, Thresholds};

/// Values accepted by [`changes`], for messages.
const EXPECTED: &str = "POLICY@TIME, such as shared-lqd,buffer=480KB@5ms";

/// Parses `POLICY@TIME`, separated by commas, as are the parameters of a policy.
pub(super) fn changes(value: &Value<'_>) -> Result<Vec<(u64, PolicySwitch)>, ValueError> {
    let mut changes = Vec::new();
    let mut rest = value.text;
    while !rest.trim().is_empty() {
        let (policy, behind) = rest.split_once('@').ok_or_else(|| value.wrong(EXPECTED))?;
        let (time, others) = behind.split_once(',').unwrap_or((behind, ""));
        let at = units::time(time.trim()).filter(|ns| *ns <= units::MAX_NS);
        let at = at.ok_or_else(|| value.refuse(format_args!("{}: expected a time such as 5ms", time.trim())))?;
        let policy = policy.trim().parse().map_err(|error| match error {
            NameError::Unknown { name, expected } => value.refuse(format_args!("{name}: expected {expected}")),
            error => value.refuse(error),
        })?;
        changes.push((at, policy));
        rest = others;
    }
    if changes.is_empty() {
        return Err(value.wrong(EXPECTED));
    }
    changes.sort_by_key(|(at, _)| *at);
    Ok(changes)
}

const ONE_LEVEL: &str = "policies whose ports lead to queues do not change, and none changes to them";

impl Experiment {
    /// Returns switches that run a policy, possibly followed by others.
    pub(super) fn policy_switch(
        &self,
        policy: &PolicySwitch,
        ecn: Ecn,
        longest: u32,
    ) -> Result<SwitchConfig, ValueError> {
        if self.is_given("speedup") {
            return Err(self.refuse("speedup", "switches that run a policy have crossbars without limit"));
        }
        for (key, given) in [("hol", self.hol.is_some()), ("flow-control", self.flow_control != LinkFlowControl::Pfc)] {
            if given && self.pfc {
                return Err(self.refuse(key, "goes with --switch input-queued and shared-buffer only"));
            }
        }
        let mut switches = self.filled(policy, "switch", ecn, longest)?;
        for (at, next) in &self.policy_changes {
            switches = switches.then(*at, self.filled(next, "policy-event", ecn, longest)?);
        }
        Ok(SwitchConfig::Policy(switches))
    }

    /// Returns a policy with the parameters set by the experiment's keys. `key` is the key that names the policy.
    pub(super) fn filled(
        &self,
        policy: &PolicySwitch,
        key: &'static str,
        ecn: Ecn,
        longest: u32,
    ) -> Result<PolicySwitch, ValueError> {
        let mut policy = policy.clone();
        if let Some(buffer) = self.buffer
            && !policy.fill("buffer", &buffer.to_string())
        {
            return Err(self.refuse("buffer", format_args!("the policy of --{key} has no parameter buffer")));
        }
        let at = if self.pfc && policy.has("xoff") {
            let xoff = self.xoff(longest)?;
            let xon = match self.buffers {
                Buffers::InputQueued(InputBuffers { xon: Some(xon), .. }) => xon,
                _ => xoff.saturating_sub(PFC_RESUME),
            };
            Some(Thresholds { xoff, xon })
        } else {
            None
        };
        if let Some(red) = self.policy_colour
            && red < u64::from(longest)
        {
            let hint = in_kb(&self.text("colour-threshold"), longest.into());
            return Err(self.wrong("colour-threshold", format_args!("room for a packet of {longest} bytes{hint}")));
        }
        if let Err(lacking) = policy.fill_all(ecn, self.scheduling, self.pfc, at, self.policy_colour) {
            let lacking = if self.is_given(lacking) { lacking } else { "transport" };
            let parameters: Vec<String> = policy.policy().parameters().into_iter().map(|p| p.name).collect();
            let why =
                format!("the policy of --{key} has nothing for it; its parameters are: {}", parameters.join(", "));
            return Err(self.refuse(lacking, why));
        }
        let policy = policy.with_packets(longest, 1);
        for node in self.topology.hosts..self.topology.nodes() {
            let ports = self.topology.links.iter().filter(|link| link.a == node || link.b == node).count();
            let plan = policy.plan(ports).map_err(|error| self.refuse(key, error))?;
            if plan.has_levels() && !self.policy_changes.is_empty() {
                return Err(self.refuse("policy-event", ONE_LEVEL));
            }
        }
        Ok(policy)
    }
}
