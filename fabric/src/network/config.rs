//! Configuration of a network.

use irnic_openqueue::NameError;

use crate::switch::{HolConfig, RoccConfig, SwitchConfig};
use crate::topology::{Topology, Wires};

/// How a switch chooses among equal-cost paths.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// By a hash of addresses and UDP source port: all packets of a queue pair take the same path.
    Ecmp,
    /// Round robin per packet.
    Spray,
    /// At random per packet.
    Random,
    /// The path that the sender has chosen: a packet's [`super::Packet::entropy`] is a number below
    /// [`crate::topology::Routes::ways`]. Each switch with `n` next hops to choose from takes it modulo `n`, and
    /// forwards the quotient.
    Source,
    /// By the destination.
    Static,
    /// The neighbour with the lowest number: all packets from one host to another take the same path.
    Lowest,
}

/// Something that happens to a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The link fails: frames on it and queued for it are lost.
    Down,
    /// The link works again.
    Up,
    /// Both directions have a new rate, bit/s.
    Rate(u64),
    /// The direction that leaves this node has a new rate, bit/s.
    RateFrom {
        /// The sending node, one of the link's ends.
        node: u32,
        /// Rate, bit/s.
        rate: u64,
    },
}

/// A change of a link at a time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// Time, ns.
    pub at: u64,
    /// Number of the link in the topology.
    pub link: u32,
    /// The change.
    pub what: Change,
}

impl LinkChange {
    /// Describes the change in a few words: `down h0-s0`, `h0-s0 at 10G`, or `s0>h0 at 10G` of one direction.
    pub fn describe(&self, topology: &Topology) -> String {
        let Some(link) = topology.links.get(self.link as usize) else { return String::new() };
        let (a, b) = (topology.label(link.a), topology.label(link.b));
        let gigabits = |rate: u64| rate as f64 / 1e9;
        match self.what {
            Change::Down => format!("down {a}-{b}"),
            Change::Up => format!("up {a}-{b}"),
            Change::Rate(rate) => format!("{a}-{b} at {}G", gigabits(rate)),
            Change::RateFrom { node, rate } => {
                let (from, to) = if node == link.a { (a, b) } else { (b, a) };
                format!("{from}>{to} at {}G", gigabits(rate))
            }
        }
    }
}

/// A path that a switch takes although others may be shorter, as an administrator can configure. Without a working link
/// to `via`, the shortest paths apply.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Detour {
    /// The switch.
    pub node: u32,
    /// For packets to this host, and to all behind the same switch as it.
    pub dst: u32,
    /// The next hop, a neighbour.
    pub via: u32,
}

/// Links, switches and the changes to links.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NetworkConfig {
    /// Nodes and links.
    pub topology: Topology,
    /// The type of the switches.
    pub switch: SwitchConfig,
    /// Exceptions from [`Self::switch`], by node, sorted; no node twice. Credits are those of [`Self::switch`] for all
    /// switches.
    pub differing: Vec<(u32, SwitchConfig)>,
    /// RoCC's congestion points in all switches, in addition to their type.
    pub rocc: Option<RoccConfig>,
    /// Countermeasures against head-of-line blocking by PFC.
    pub hol: Option<HolConfig>,
    /// Choice among equal-cost paths.
    pub routing: Routing,
    /// Exceptions from shortest paths.
    pub detours: Vec<Detour>,
    /// Changes to links, in order of time.
    pub changes: Vec<LinkChange>,
    /// Seed of all random numbers of links and switches.
    pub seed: u64,
}

impl NetworkConfig {
    /// These switches in this topology: no congestion points, ECMP, no detours, links that never fail, seed 1.
    pub fn new(topology: Topology, switch: SwitchConfig) -> NetworkConfig {
        NetworkConfig {
            topology,
            switch,
            differing: Vec::new(),
            rocc: None,
            hol: None,
            routing: Routing::Ecmp,
            detours: Vec::new(),
            changes: Vec::new(),
            seed: 1,
        }
    }

    /// Returns the type of the switch of a node.
    pub fn switch_at(&self, node: u32) -> &SwitchConfig {
        match self.differing.binary_search_by_key(&node, |(node, _)| *node) {
            Ok(place) => &self.differing[place].1,
            Err(_) => &self.switch,
        }
    }

    /// Returns what is incompatible with switches that interrupt packets, if there are such switches.
    fn uninterrupted(&self) -> Option<&'static str> {
        let mut all = std::iter::once(&self.switch).chain(self.differing.iter().map(|(_, switch)| switch));
        let slows = |switch: &SwitchConfig| matches!(switch, SwitchConfig::SharedBuffer(c) if c.gfc.is_some());
        if !all.clone().any(SwitchConfig::preempts) {
            return None;
        }
        let reasons = [
            (self.rocc.is_some(), "congestion points of RoCC"),
            (self.hol.is_some(), "means against head-of-line blocking"),
            (self.switch.credits().is_some(), "credits"),
            (all.any(slows), "rate-based flow control"),
        ];
        reasons.into_iter().find_map(|(there, what)| there.then_some(what))
    }

    pub(crate) fn check(&self) -> Result<(), NetworkError> {
        let hosts = self.topology.hosts;
        let wires = Wires::new(&self.topology);
        for host in 0..hosts {
            let n = wires.of(host).len();
            if n != 1 {
                return Err(NetworkError::Ports { host, n });
            }
        }
        for node in hosts..self.topology.nodes() {
            if let SwitchConfig::Policy(policy) = self.switch_at(node)
                && let Err(error) = policy.plan(wires.of(node).len())
            {
                return Err(NetworkError::Policy(error));
            }
        }
        if let Some(what) = self.uninterrupted() {
            return Err(NetworkError::Preemption(what));
        }
        if let Some(change) = self.changes.iter().find(|c| c.link as usize >= self.topology.links.len()) {
            return Err(NetworkError::Link(change.link));
        }
        if let Some(at) = self.changes.windows(2).position(|w| w[0].at > w[1].at) {
            return Err(NetworkError::Change { change: at + 1 });
        }
        let linked = |d: &Detour| self.topology.ports(d.node).iter().any(|&(_, peer)| peer == d.via);
        if let Some(&Detour { node, via, .. }) =
            self.detours.iter().find(|d| d.dst >= hosts || d.node < hosts || !linked(d))
        {
            return Err(NetworkError::Detour { node, via });
        }
        Ok(())
    }
}

/// An error in the construction or the accounts of a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The number of endpoints must be that of the hosts.
    #[error("{endpoints} endpoints for {hosts} hosts")]
    #[allow(missing_docs)]
    Endpoints { endpoints: usize, hosts: u32 },
    /// A server needs exactly one link.
    #[error("host {host} has {n} links, expected one")]
    #[allow(missing_docs)]
    Ports { host: u32, n: usize },
    /// A change of a link that does not exist.
    #[error("there is no link {0}")]
    Link(u32),
    /// A change of a link listed after a later one.
    #[error("link change {change} comes before the one listed before it")]
    #[allow(missing_docs)]
    Change { change: usize },
    /// A detour must lead from a switch to a neighbour, for a host.
    #[error("the detour from node {node} by {via} leads from no switch, to no neighbour, or to no host")]
    #[allow(missing_docs)]
    Detour { node: u32, via: u32 },
    /// The policy of the switches does not fit one of them.
    #[error(transparent)]
    Policy(NameError),
    /// An option that is incompatible with switches that interrupt packets.
    #[error("switches that interrupt packets do not go with {0}")]
    Preemption(&'static str),
    /// An invariant that was violated.
    #[error("broken invariant: {0}")]
    Invariant(String),
}
