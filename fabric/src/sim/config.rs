//! What a run is made of.

use irnic_transports::config::TransportConfig;
use irnic_transports::wire::Mtu;

use super::Observe;
use crate::host::{MAX_FLOW, QpSetup};
use crate::switch::SwitchConfig;
use crate::topology::Topology;
use crate::workload::Flow;

/// How a switch chooses among equally short ways.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// By a hash of addresses and UDP source port: all packets of a queue pair go the same way.
    Ecmp,
    /// Each packet the next way.
    Spray,
    /// By the destination.
    Static,
}

/// Which flows share a queue pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum QpPolicy {
    /// Each has its own, made for it and destroyed after it.
    PerFlow,
    /// All of the same source and destination; they follow each other.
    Reused,
}

/// How long a packet is on the wire.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum HeaderBytes {
    /// As its headers are, with Ethernet, IPv4 and UDP.
    Real,
    /// Its payload and so many bytes, as simulators have it that do not model headers.
    Fixed(u32),
}

impl HeaderBytes {
    /// Returns the bytes on the wire of the longest packet that a queue pair can send.
    pub fn longest(self, setup: &QpSetup) -> u32 {
        let mtu = setup.mtu.bytes() as u32;
        let longest = match self {
            HeaderBytes::Fixed(bytes) => mtu + bytes,
            HeaderBytes::Real => mtu + irnic_transports::wire::Headers::MAX_LEN as u32 + 4 + super::ENCAPSULATION,
        };
        longest + setup.telemetry()
    }
}

/// Something that happens to a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It fails: what is on it and what waits for it is lost.
    Down,
    /// It works again.
    Up,
    /// Both directions have a new rate, bit/s.
    Rate(u64),
}

/// And when.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// ns.
    pub at: u64,
    /// Which, as the topology numbers them.
    pub link: u32,
    /// What.
    pub what: Change,
}

/// A flow that its sender gives up.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Quit {
    /// When, ns; after its start.
    pub at: u64,
    /// Which, by its place among the flows.
    pub flow: u32,
}

/// A way that a switch takes although others may be shorter, as an administrator can configure. Without a working link to `via`
/// the shortest ways hold.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Detour {
    /// The switch.
    pub node: u32,
    /// For packets to this host, and to all behind the same switch as it.
    pub dst: u32,
    /// The node that it hands them to, a neighbour.
    pub via: u32,
}

/// A run.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The network.
    pub topology: Topology,
    /// What is sent, in order of time.
    pub flows: Vec<Flow>,
    /// Its switches.
    pub switch: SwitchConfig,
    /// How queue pairs are set up: each flow names one of these by its index ([`Flow::setup`]), so that flows of several
    /// transports can share the network. At least one.
    pub setups: Vec<QpSetup>,
    /// Which flows share them.
    pub qps: QpPolicy,
    /// Choice among ways.
    pub routing: Routing,
    /// Exceptions from shortest ways.
    pub detours: Vec<Detour>,
    /// Length of packets.
    pub headers: HeaderBytes,
    /// Packets that a NIC sends of a queue pair before the next one's turn, 1 or more.
    pub quantum: u32,
    /// Resolution of the NICs' timers, ns.
    pub timer_tick: u64,
    /// Packets are real frames with real payload, which is checked at the end of each flow.
    pub carry_bytes: bool,
    /// ECN-capable transport: packets can be marked.
    pub ect: bool,
    /// How often queues are looked at, ns.
    pub sample: Option<u64>,
    /// What the ends of connections see, if it is wanted.
    pub observe: Option<Observe>,
    /// What happens to links, in order of time.
    pub changes: Vec<LinkChange>,
    /// Flows that do not go on to their end, in order of time; each has a queue pair of its own.
    pub quits: Vec<Quit>,
    /// The run ends then, ns.
    pub until: u64,
    /// Where all chance comes from.
    pub seed: u64,
}

impl SimConfig {
    /// A run of these flows with a transport, and everything else as usual.
    pub fn new(topology: Topology, flows: Vec<Flow>, switch: SwitchConfig, transport: TransportConfig) -> SimConfig {
        SimConfig {
            topology,
            flows,
            switch,
            setups: vec![QpSetup { transport, mtu: Mtu::B1024, depth: 1 }],
            qps: QpPolicy::PerFlow,
            routing: Routing::Ecmp,
            detours: Vec::new(),
            headers: HeaderBytes::Real,
            quantum: 1,
            timer_tick: 1_000,
            carry_bytes: false,
            ect: false,
            sample: None,
            observe: None,
            changes: Vec::new(),
            quits: Vec::new(),
            until: u64::MAX,
            seed: 1,
        }
    }

    /// Bytes on the wire of a full packet, or of the longest there can be.
    pub fn longest_packet(&self) -> u32 {
        self.setups.iter().map(|setup| self.headers.longest(setup)).max().unwrap_or(0)
    }

    /// The setup of a flow's queue pairs.
    ///
    /// # Panics
    /// If the flow names one that is not there, which [`super::Simulation::new`] refuses.
    pub fn setup_of(&self, flow: &Flow) -> &QpSetup {
        &self.setups[usize::from(flow.setup)]
    }

    /// The largest MTU of all setups.
    pub(super) fn longest_mtu(&self) -> Mtu {
        self.setups.iter().map(|setup| setup.mtu).max_by_key(|mtu| mtu.bytes()).unwrap_or(Mtu::B1024)
    }

    pub(super) fn check(&self) -> Result<(), SimError> {
        let hosts = self.topology.hosts;
        for (i, flow) in self.flows.iter().enumerate() {
            let what = if flow.src >= hosts || flow.dst >= hosts {
                "a host that is not there"
            } else if flow.src == flow.dst {
                "the same host at both ends"
            } else if flow.bytes > MAX_FLOW {
                "more bytes than 2^40"
            } else if usize::from(flow.setup) >= self.setups.len() {
                "a queue pair setup that is not there"
            } else if flow.priority > 7 {
                "a priority above 7"
            } else if i > 0 && self.flows[i - 1].start > flow.start {
                "a start before that of the flow before it"
            } else {
                continue;
            };
            return Err(SimError::Flow { flow: i, what });
        }
        for host in 0..hosts {
            let n = self.topology.ports(host).len();
            if n != 1 {
                return Err(SimError::Ports { host, n });
            }
        }
        if let Some(change) = self.changes.iter().find(|c| c.link as usize >= self.topology.links.len()) {
            return Err(SimError::Link(change.link));
        }
        if let Some(at) = self.changes.windows(2).position(|w| w[0].at > w[1].at) {
            return Err(SimError::Change { change: at + 1 });
        }
        let quits = self.quits.iter().enumerate();
        for (i, quit) in quits {
            let what = match self.flows.get(quit.flow as usize) {
                _ if self.qps == QpPolicy::Reused => "a queue pair with others",
                None => "no place among the flows",
                Some(flow) if flow.start >= quit.at => "not begun by then",
                _ if i > 0 && self.quits[i - 1].at > quit.at => "an earlier end than the one before it",
                _ => continue,
            };
            return Err(SimError::Quit { flow: quit.flow, what });
        }
        let linked = |d: &Detour| self.topology.ports(d.node).iter().any(|&(_, peer)| peer == d.via);
        if let Some(&Detour { node, via, .. }) =
            self.detours.iter().find(|d| d.dst >= hosts || d.node < hosts || !linked(d))
        {
            return Err(SimError::Detour { node, via });
        }
        Ok(())
    }
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// A flow that makes no sense.
    #[error("flow {flow} has {what}")]
    #[allow(missing_docs)]
    Flow { flow: usize, what: &'static str },
    /// A server needs exactly one link.
    #[error("host {host} has {n} links, expected one")]
    #[allow(missing_docs)]
    Ports { host: u32, n: usize },
    /// A change of a link that is not there.
    #[error("there is no link {0}")]
    Link(u32),
    /// A change of a link that is listed after a later one.
    #[error("link change {change} comes before the one listed before it")]
    #[allow(missing_docs)]
    Change { change: usize },
    /// A flow cannot be given up.
    #[error("flow {flow} is to be given up, but has {what}")]
    #[allow(missing_docs)]
    Quit { flow: u32, what: &'static str },
    /// A detour must lead from a switch to a neighbour, for a host.
    #[error("the detour from node {node} by {via} leads from no switch, to no neighbour, or to no host")]
    #[allow(missing_docs)]
    Detour { node: u32, via: u32 },
    /// A NIC refused something.
    #[error("NIC: {0}")]
    Nic(String),
    /// A flow ended with an error.
    #[error("flow {flow} ended with {status} at {at} ns")]
    #[allow(missing_docs)]
    Failed { flow: u32, status: String, at: u64 },
    /// Bytes arrived that were not sent.
    #[error("flow {0} arrived damaged")]
    Damaged(u32),
    /// What the end of a run must satisfy, and did not.
    #[error("broken invariant: {0}")]
    Invariant(String),
}
