//! Switches that differ from the others.

use irnic_openqueue::NameError;
use irnic_units::keys::{Value, ValueError};

use super::Experiment;
use crate::switch::{Discipline, Ecn, OutputQueuedConfig, PolicySwitch, SwitchConfig};
use crate::topology::Topology;

/// Values accepted by [`read`], for messages.
const EXPECTED: &str = "SWITCHES=HOW, such as s0-s3=tail-drop or s2=fq";

/// How a switch differs from the others.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Differing {
    /// It runs a policy.
    Policy(PolicySwitch),
    /// It is output-queued like the others, with another order.
    Order(Discipline),
}

/// Parses `SWITCHES=HOW`, separated by commas, as are the parameters of a policy. Switches are given by their ids, or
/// by their names in results, as one or a range.
pub(super) fn read(value: &Value<'_>, topology: &Topology) -> Result<Vec<(u32, Differing)>, ValueError> {
    let mut given: Vec<(Vec<u32>, String)> = Vec::new();
    for piece in value.text.split(',') {
        let named = piece.split_once('=').and_then(|(names, how)| Some((switches(names.trim(), topology)?, how)));
        match (named, given.last_mut()) {
            (Some((nodes, how)), _) => given.push((nodes, how.trim().to_owned())),
            (None, Some((_, how))) => *how = format!("{how},{piece}"),
            (None, None) => return Err(value.wrong(EXPECTED)),
        }
    }
    let mut all = Vec::new();
    for (nodes, how) in given {
        let order = Discipline::NAMES.into_iter().find(|(name, _)| *name == how);
        let differing = match (order, how.parse()) {
            (Some((_, order)), _) => Differing::Order(order),
            (None, Ok(policy)) => Differing::Policy(policy),
            (None, Err(NameError::Unknown { name, expected })) => {
                let orders = Discipline::NAMES.map(|(name, _)| name).join(", ");
                return Err(value.refuse(format_args!("{name}: expected {orders}, {expected}")));
            }
            (None, Err(error)) => return Err(value.refuse(error)),
        };
        all.extend(nodes.into_iter().map(|node| (node, differing.clone())));
    }
    all.sort_by_key(|(node, _)| *node);
    match all.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => {
            Err(value
                .refuse(format_args!("switch {} is there twice; expected each switch once", topology.id(pair[0].0))))
        }
        None => Ok(all),
    }
}

/// The switches of a name or range.
fn switches(names: &str, topology: &Topology) -> Option<Vec<u32>> {
    let node = |name: &str| topology.node_named(name).filter(|node| !topology.is_host(*node));
    let (first, last) = match names.split_once('-') {
        None => (node(names)?, node(names)?),
        Some((first, last)) => (node(first)?, node(last)?),
    };
    (first <= last).then(|| (first..=last).collect())
}

impl Experiment {
    /// Returns the switches that differ, by node; `others` is the type of the rest.
    pub(super) fn differing_switches(
        &self,
        others: &SwitchConfig,
        ecn: Ecn,
        longest: u32,
    ) -> Result<Vec<(u32, SwitchConfig)>, ValueError> {
        if self.differing.is_empty() {
            return Ok(Vec::new());
        }
        if self.pfc {
            return Err(self.refuse("pfc", "goes with switches that are all alike, without --switch-at"));
        }
        if !self.policy_changes.is_empty() {
            return Err(self.refuse("policy-event", "goes with switches that are all alike, without --switch-at"));
        }
        let each = self.differing.iter().map(|(node, differing)| {
            let switch = match (differing, others) {
                (Differing::Policy(_), _) if self.preempt => {
                    return Err(self.refuse("switch-at", "policies send packets in one piece, without --preempt"));
                }
                (Differing::Policy(policy), _) => {
                    SwitchConfig::Policy(self.filled(policy, "switch-at", ecn, longest)?)
                }
                (Differing::Order(order), SwitchConfig::OutputQueued(others)) => {
                    let mut config = OutputQueuedConfig::new(others.buffer, order.clone());
                    (config.ecn, config.preempts, config.packets) = (others.ecn, others.preempts, others.packets);
                    if others.preempts {
                        self.has_ranks(order)?;
                    }
                    SwitchConfig::OutputQueued(config)
                }
                (Differing::Order(_), _) => {
                    let why = "orders go with --switch output-queued; with others, name a policy";
                    return Err(self.refuse("switch-at", why));
                }
            };
            Ok((*node, switch))
        });
        each.collect()
    }
}
