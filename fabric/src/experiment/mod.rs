//! Experiments: a network, its workload and transports, in one description for programs and for text.
//!
//! An [`Experiment`] is the description. Its defaults are those of the IRN paper's default case (dissertation §4.3.1),
//! and what a description leaves open is derived from the rest: PFC's headroom from rates and delays, marking and the
//! base round trip from congestion control, the window from the longest flow. [`Experiment::config`] turns it into a
//! run, or rejects it.
//!
//! ```
//! use irnic_fabric::experiment::Experiment;
//! use irnic_fabric::sim::{Ending, Simulation};
//! use irnic_fabric::summary::Summary;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut experiment = Experiment::default();
//! experiment.topology = "star:hosts=4,rate=10G".parse()?;
//! experiment.workload = "permutation:bytes=100KB".parse()?;
//! experiment.transports = vec!["roce".parse()?];
//! experiment.pfc = true;
//!
//! let mut simulation = Simulation::new(experiment.config(1)?)?;
//! while !simulation.run(100_000)? {}
//! let summary = Summary::of(&simulation.outcome()?, &[1024]);
//! assert_eq!((summary.ending, summary.all.complete), (Ending::Complete, 4));
//! # Ok(())
//! # }
//! ```
//!
//! As text, an experiment consists of keys and values, from the command line or a file: [`KEYS`] lists them, a [`Grid`]
//! has several values for some, and each combination is a [`Case`].

mod build;
mod checks;
mod differing;
mod extensions;
mod grid;
mod hol;
mod keys;
mod policies;
mod switches;
#[cfg(test)]
mod tests;
mod transport;
mod written;

pub use differing::Differing;
pub use extensions::{Extensions, NamedSwitch};
pub use grid::{Case, Grid, Run, Values};
pub use hol::{GfcGiven, LinkFlowControl};
pub use keys::{CATEGORIES, Category, KEYS, Key, find, link_named};
pub use switches::{Buffers, InputBuffers, QueueLength, SharedBuffers, TrimmingBuffers};
pub use transport::Transport;
pub use written::{Origin, TextError, Written};

use std::collections::BTreeMap;

use irnic_transports::qp::Service;
use irnic_transports::wire::Mtu;
use irnic_units::keys::{Value, ValueError};

use crate::sim::{Detour, HeaderBytes, LinkChange, QpPolicy, Routing};
use crate::switch::{Ecn, HolConfig, PolicySwitch, RoccConfig, Scheduling};
use crate::topology::Topology;
use crate::workload::{Flow, Workload};

/// Description of an experiment. `None` stands for a derived value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Experiment {
    /// Network. Default: a fat-tree of 54 hosts at 40 Gbit/s.
    pub topology: Topology,
    /// Generators of flows. Default: the heavy-tailed arrivals of the IRN paper.
    pub workload: Workload,
    /// Flows in order of their start, in place of those that the workload generates.
    pub flows: Option<Vec<Flow>>,
    /// Share of the hosts' rate that Poisson arrivals offer, unless their part of the workload sets it; above 0.
    pub load: f64,
    /// Period in which flows arrive, ns. Default: 10 ms, if their number is not limited.
    pub duration: Option<u64>,
    /// Maximum number of Poisson arrivals of each part of the workload.
    pub arrivals: Option<u64>,
    /// Priority of generated flows, 0 to 7.
    pub priority: u8,
    /// Type of the switches' buffers.
    pub buffers: Buffers,
    /// The policy that describes the switches' buffers, queues and schedulers, if they run one.
    pub policy: Option<PolicySwitch>,
    /// Policies that replace it, each with its time, ns.
    pub policy_changes: Vec<(u64, PolicySwitch)>,
    /// Switches that differ from the others, by node, each once.
    pub differing: Vec<(u32, Differing)>,
    /// With a policy: limit on the bytes of red packets in a queue, as [`SharedBuffers::colour`].
    pub policy_colour: Option<u64>,
    /// Buffer of each input, or of each switch, bytes. Default: 240 KB (IRN §4.3.1), or 9 MB (ConWeave).
    pub buffer: Option<u64>,
    /// Limit on the number of packets queued for an output, if any; for output-queued switches only.
    pub queue_limit: Option<u32>,
    /// Priority flow control.
    pub pfc: bool,
    /// Headroom for what arrives after XOFF, bytes. Default: from rate, delay and longest packet of the links.
    pub headroom: Option<u64>,
    /// Marking. Default: as the congestion control requires.
    pub ecn: Option<Ecn>,
    /// Congestion points of RoCC, which the switches have if a transport uses them. Default: the paper's, by the rates
    /// of links.
    pub rocc: Option<RoccConfig>,
    /// Link-level flow control, where PFC is on.
    pub flow_control: LinkFlowControl,
    /// Countermeasures against head-of-line blocking by PFC. Without PFC they have no effect.
    pub hol: Option<HolConfig>,
    /// Selection among priorities.
    pub scheduling: Scheduling,
    /// Whether outputs of output-queued switches interrupt a transmission for a packet that goes before it
    /// ([`crate::switch::OutputQueuedConfig::preempts`]).
    pub preempt: bool,
    /// Choice among equal-cost paths.
    pub routing: Routing,
    /// Exceptions from shortest paths.
    pub detours: Vec<Detour>,
    /// Whether the run continues after a deadlock is found. By default it ends.
    pub outlive_deadlocks: bool,
    /// Sharing of queue pairs by flows.
    pub qps: QpPolicy,
    /// Service of the queue pairs: reliable or unreliable connections ([`crate::sim::QpSetup::service`]).
    pub service: Service,
    /// Round trips of the empty network for setting up a connection, added to completion times, at most 100.
    pub setup_rtts: u32,
    /// Whether flows begin with a round trip through the network ([`crate::sim::SimConfig::handshake`]).
    pub handshake: bool,
    /// Packets that a NIC sends for a queue pair before it turns to the next, 1 or more.
    pub quantum: u32,
    /// Payload of a full packet.
    pub mtu: Mtu,
    /// Bytes on the wire around the payload.
    pub headers: HeaderBytes,
    /// Changes to links, in order of time.
    pub changes: Vec<LinkChange>,
    /// End of the run, ns. Default: when all flows are complete.
    pub until: Option<u64>,
    /// Interval at which queues and rates are sampled, ns. Default: no sampling.
    pub sample: Option<u64>,
    /// Whether packets are real frames with payload, all of it checked.
    pub verify: bool,
    /// Loss recovery, flow control, timers and congestion control of the queue pairs: of all flows, or of each part of
    /// the workload. [Flows](Experiment::flows) name their own.
    pub transports: Vec<Transport>,
    /// Congestion control and switches made outside of irnic.
    pub extensions: Extensions,
    /// Values of keys as written, for messages; `None` for an experiment built by a program.
    written: Option<BTreeMap<&'static str, String>>,
}

impl Default for Experiment {
    /// Returns the IRN paper's default case (dissertation §4.3.1).
    fn default() -> Experiment {
        Experiment {
            topology: Topology::fat_tree(6, 40_000_000_000, 2_000),
            workload: Workload::irn_heavy(),
            flows: None,
            load: 0.7,
            duration: None,
            arrivals: None,
            priority: 0,
            buffers: Buffers::InputQueued(InputBuffers::default()),
            policy: None,
            policy_changes: Vec::new(),
            differing: Vec::new(),
            policy_colour: None,
            buffer: None,
            queue_limit: None,
            pfc: false,
            headroom: None,
            ecn: None,
            rocc: None,
            flow_control: LinkFlowControl::Pfc,
            hol: None,
            scheduling: Scheduling::Strict,
            preempt: false,
            routing: Routing::Ecmp,
            detours: Vec::new(),
            outlive_deadlocks: false,
            qps: QpPolicy::PerFlow,
            service: Service::Rc,
            setup_rtts: 0,
            handshake: false,
            quantum: 1,
            mtu: Mtu::B1024,
            headers: HeaderBytes::Real,
            changes: Vec::new(),
            until: None,
            sample: None,
            verify: false,
            transports: vec![Transport::preset("irn").expect("a preset")],
            extensions: Extensions::default(),
            written: None,
        }
    }
}

impl Experiment {
    /// Returns whether the value of a key was given: written, or set to other than the default.
    fn is_given(&self, key: &str) -> bool {
        if let Some(written) = &self.written {
            return written.contains_key(key);
        }
        match key {
            "buffer" => self.buffer.is_some(),
            "queue-limit" => self.queue_limit.is_some(),
            "ecn" => self.ecn.is_some(),
            "detour" => !self.detours.is_empty(),
            "link-event" => !self.changes.is_empty(),
            "switch-at" => !self.differing.is_empty(),
            "policy-event" => !self.policy_changes.is_empty(),
            "colour-threshold" if self.policy_colour.is_some() => true,
            "pfc-headroom" => self.headroom.is_some(),
            "rocc" => self.rocc.is_some(),
            "sample" => self.sample.is_some(),
            "until" => self.until.is_some(),
            key => self.buffers.is_given(key),
        }
    }

    /// Returns the text of a key's value: as written, or its default, or as a program's value would be written.
    fn text(&self, key: &str) -> String {
        let written = self.written.as_ref().and_then(|written| written.get(key).cloned());
        written.unwrap_or_else(|| match key {
            "buffer" => self.buffer.map_or_else(String::new, |bytes| bytes.to_string()),
            "sample" => self.sample.map_or_else(String::new, |ns| format!("{ns}ns")),
            "until" => self.until.map_or_else(String::new, |ns| format!("{ns}ns")),
            "topology" => self.topology.name.clone(),
            "workload" => self.workload.name.clone(),
            "transport" if self.written.is_none() => {
                self.transports.iter().map(|t| t.config.to_string()).collect::<Vec<_>>().join("+")
            }
            _ => {
                self.buffers.text(key).or(find(key).and_then(|key| key.default.map(str::to_owned))).unwrap_or_default()
            }
        })
    }

    /// Returns the key that defines the flows, for messages.
    fn origin(&self) -> &'static str {
        if self.written.as_ref().is_some_and(|written| written.contains_key("flows")) { "flows" } else { "workload" }
    }

    /// Returns the error that the value of a key was expected to be different.
    fn wrong(&self, key: &str, expected: impl std::fmt::Display) -> ValueError {
        Value { key, text: &self.text(key) }.wrong(expected)
    }

    /// Returns the error that the value of a key is not allowed, for a `reason`.
    fn refuse(&self, key: &str, reason: impl std::fmt::Display) -> ValueError {
        Value { key, text: &self.text(key) }.refuse(reason)
    }
}
