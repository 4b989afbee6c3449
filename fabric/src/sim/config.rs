//! Configuration of a run.

use irnic_transports::config::TransportConfig;
use irnic_transports::qp::Service;
use irnic_transports::wire::Mtu;

use irnic_transports::telemetry::Int;

use super::Observe;
use super::endpoint::MAX_FLOW;
use crate::network::{Detour, LinkChange, NetworkConfig, NetworkError, Routing};
use crate::schedule::Detail;
use crate::switch::{HolConfig, RoccConfig, SwitchConfig};
use crate::topology::Topology;
use crate::workload::{Flow, Loops, Response};

/// Setup of the queue pairs of a run.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QpSetup {
    /// [`Service::Rc`], or [`Service::Uc`] for open-loop flows. Their packets leave as fast as the sender's link takes
    /// them; the sender is done when all have left, the flow is complete when the receiver's queue pair has all of it,
    /// which never happens if a packet is lost or reordered (IBA 9.8.2).
    pub service: Service,
    /// Loss recovery, flow control, timers, of a reliable connection.
    pub transport: TransportConfig,
    /// Payload bytes of a full packet.
    pub mtu: Mtu,
    /// Capacity of a send queue, messages.
    pub depth: u32,
}

impl QpSetup {
    /// Reliable connections with this transport: MTU 1024, send queues of one message.
    pub fn new(transport: TransportConfig) -> QpSetup {
        QpSetup { service: Service::Rc, transport, mtu: Mtu::B1024, depth: 1 }
    }

    /// Whether arrivals are not acknowledged: an unreliable connection.
    pub fn is_open_loop(&self) -> bool {
        self.service == Service::Uc
    }

    /// Bytes of telemetry on a request.
    pub fn telemetry(&self) -> u32 {
        if !self.is_open_loop() && self.transport.congestion.uses_telemetry() { Int::LEN } else { 0 }
    }
}

/// Sharing of queue pairs by flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum QpPolicy {
    /// Each flow has its own, created before and destroyed after it.
    PerFlow,
    /// All flows of the same source and destination share one, one after the other.
    Reused,
}

/// Length of a packet on the wire.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum HeaderBytes {
    /// The actual headers, with Ethernet, IPv4 and UDP.
    Real,
    /// The payload plus this many bytes, as in simulators that do not model headers.
    Fixed(u32),
}

impl HeaderBytes {
    /// Returns the bytes on the wire of the longest packet that a queue pair can send.
    pub fn longest(self, setup: &QpSetup) -> u32 {
        let mtu = setup.mtu.bytes() as u32;
        let longest = match self {
            HeaderBytes::Fixed(bytes) => mtu + bytes,
            HeaderBytes::Real => mtu + irnic_transports::wire::Headers::MAX_DATA_LEN as u32 + 4 + super::ENCAPSULATION,
        };
        longest + setup.telemetry()
    }
}

/// A flow that its sender aborts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Quit {
    /// Time of the abort, ns; after the start of the flow.
    pub at: u64,
    /// Index of the flow.
    pub flow: u32,
}

/// Configuration of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// The network.
    pub topology: Topology,
    /// Flows, in order of time.
    pub flows: Vec<Flow>,
    /// Connections on which flows start after others have ended.
    pub loops: Vec<Loops>,
    /// Flows that receivers return once a flow has arrived completely, by class; at most one per class.
    pub responses: Vec<Response>,
    /// The type of the switches.
    pub switch: SwitchConfig,
    /// Exceptions from [`Self::switch`], by node ([`crate::network::NetworkConfig::differing`]).
    pub differing: Vec<(u32, SwitchConfig)>,
    /// Congestion points of RoCC in all switches.
    pub rocc: Option<RoccConfig>,
    /// Countermeasures against head-of-line blocking by PFC.
    pub hol: Option<HolConfig>,
    /// Setups of queue pairs: each flow names one by its index ([`Flow::setup`]), so that flows of several transports
    /// can share the network. At least one.
    pub setups: Vec<QpSetup>,
    /// Sharing of queue pairs by flows.
    pub qps: QpPolicy,
    /// Choice among equal-cost paths.
    pub routing: Routing,
    /// Exceptions from shortest paths.
    pub detours: Vec<Detour>,
    /// Whether the run continues after a deadlock is found; by default it ends.
    pub outlive_deadlocks: bool,
    /// Length of packets.
    pub headers: HeaderBytes,
    /// Round trips of the empty network for setting up a connection, added to the completion time of each flow: a
    /// packet without payload in each direction. Queue pairs of simulations are connected when a flow starts.
    pub setup_rtts: u32,
    /// Whether flows begin with a packet without payload to the receiver and one back: an RDMA READ of no bytes,
    /// followed by a fence. Unlike [`Self::setup_rtts`], it waits in queues, can be lost, and counts towards windows.
    /// Each flow needs a reliable connection of its own.
    pub handshake: bool,
    /// Packets that a NIC sends for a queue pair before it turns to the next, 1 or more.
    pub quantum: u32,
    /// Resolution of the NICs' timers, ns.
    pub timer_tick: u64,
    /// Whether packets are real frames with payload, which is checked at the end of each flow.
    pub carry_bytes: bool,
    /// Whether packets are ECN-capable and can be marked.
    pub ect: bool,
    /// Sampling interval of queues, ns.
    pub sample: Option<u64>,
    /// Observations at the ends of connections, if requested.
    pub observe: Option<Observe>,
    /// Recording of packets, if requested: [`super::Outcome::schedule`].
    pub schedule: Option<Detail>,
    /// Changes to links, in order of time.
    pub changes: Vec<LinkChange>,
    /// Flows that are aborted, in order of time; each has a queue pair of its own.
    pub quits: Vec<Quit>,
    /// End of the run, ns.
    pub until: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl SimConfig {
    /// A run of these flows with a transport, and defaults for everything else.
    pub fn new(topology: Topology, flows: Vec<Flow>, switch: SwitchConfig, transport: TransportConfig) -> SimConfig {
        SimConfig {
            topology,
            flows,
            loops: Vec::new(),
            responses: Vec::new(),
            switch,
            rocc: None,
            hol: None,
            differing: Vec::new(),
            setups: vec![QpSetup::new(transport)],
            qps: QpPolicy::PerFlow,
            routing: Routing::Ecmp,
            detours: Vec::new(),
            outlive_deadlocks: false,
            headers: HeaderBytes::Real,
            setup_rtts: 0,
            handshake: false,
            quantum: 1,
            timer_tick: 1_000,
            carry_bytes: false,
            ect: false,
            sample: None,
            observe: None,
            schedule: None,
            changes: Vec::new(),
            quits: Vec::new(),
            until: u64::MAX,
            seed: 1,
        }
    }

    /// Length of a full packet on the wire, or the maximum length, bytes.
    pub fn longest_packet(&self) -> u32 {
        self.setups.iter().map(|setup| self.headers.longest(setup)).max().unwrap_or(0)
    }

    /// The setup of a flow's queue pairs.
    ///
    /// # Panics
    /// If the flow names a setup that does not exist, which [`super::Simulation::new`] rejects.
    pub fn setup_of(&self, flow: &Flow) -> &QpSetup {
        &self.setups[usize::from(flow.setup)]
    }

    /// Size of the response to a flow, bytes.
    pub(super) fn response_to(&self, flow: &Flow) -> Option<u64> {
        self.responses.iter().find(|response| response.class == flow.class).map(|response| response.bytes)
    }

    /// The setup and the size of each flow and its response, and of the longest flow of each closed loop.
    pub(crate) fn longest_flows(&self) -> impl Iterator<Item = (u16, u64)> {
        let loops = self.loops.iter().map(|loops| (loops.setup, loops.longest()));
        let bytes = |flow: &Flow| flow.bytes.max(self.response_to(flow).unwrap_or(0));
        self.flows.iter().map(move |flow| (flow.setup, bytes(flow))).chain(loops)
    }

    /// Returns links and switches of the run.
    pub fn network(&self) -> NetworkConfig {
        NetworkConfig {
            rocc: self.rocc,
            hol: self.hol.clone(),
            differing: self.differing.clone(),
            routing: self.routing,
            detours: self.detours.clone(),
            changes: self.changes.clone(),
            seed: self.seed,
            ..NetworkConfig::new(self.topology.clone(), self.switch.clone())
        }
    }

    /// All types of switches, those that differ included.
    pub(super) fn switches(&self) -> impl Iterator<Item = &SwitchConfig> {
        std::iter::once(&self.switch).chain(self.differing.iter().map(|(_, switch)| switch))
    }

    /// The largest MTU of all setups.
    pub(super) fn longest_mtu(&self) -> Mtu {
        self.setups.iter().map(|setup| setup.mtu).max_by_key(|mtu| mtu.bytes()).unwrap_or(Mtu::B1024)
    }

    /// Whether any flow may use an unreliable connection.
    pub(super) fn has_open_loops(&self) -> bool {
        self.setups.iter().any(QpSetup::is_open_loop)
    }

    pub(super) fn check(&self) -> Result<(), SimError> {
        if let Some(setup) = self.setups.iter().find(|setup| !matches!(setup.service, Service::Rc | Service::Uc)) {
            return Err(SimError::Service(setup.service));
        }
        if self.schedule.is_some() && (self.rocc.is_some() || self.hol.is_some()) {
            return Err(SimError::Schedule);
        }
        if self.schedule == Some(Detail::Hops) && self.switches().any(SwitchConfig::preempts) {
            return Err(SimError::Hops);
        }
        let hosts = self.topology.hosts;
        for (i, flow) in self.flows.iter().enumerate() {
            let what = if flow.src >= hosts || flow.dst >= hosts {
                "a host that is not there"
            } else if flow.src == flow.dst {
                "the same host at both ends"
            } else if flow.bytes.max(self.response_to(flow).unwrap_or(0)) > MAX_FLOW {
                "more bytes than 2^40"
            } else if usize::from(flow.setup) >= self.setups.len() {
                "a queue pair setup that is not there"
            } else if self.qps == QpPolicy::Reused && self.setup_of(flow).is_open_loop() {
                "an unreliable connection, which flows cannot share"
            } else if self.handshake && (self.qps == QpPolicy::Reused || self.setup_of(flow).is_open_loop()) {
                "no reliable connection of its own, which could begin with a handshake"
            } else if flow.priority > 7 {
                "a priority above 7"
            } else if i > 0 && self.flows[i - 1].start > flow.start {
                "a start before that of the flow before it"
            } else {
                continue;
            };
            return Err(SimError::Flow { flow: i, what });
        }
        for loops in &self.loops {
            let what = if loops.pairs().any(|(src, dst)| src >= hosts || dst >= hosts) {
                "a host that is not there"
            } else if loops.longest() > MAX_FLOW {
                "more bytes than 2^40"
            } else if usize::from(loops.setup) >= self.setups.len() {
                "a queue pair setup that is not there"
            } else if self.qps == QpPolicy::Reused && self.setups[usize::from(loops.setup)].is_open_loop() {
                "unreliable connections, which flows cannot share"
            } else if self.handshake
                && (self.qps == QpPolicy::Reused || self.setups[usize::from(loops.setup)].is_open_loop())
            {
                "no reliable connections of their own, which could begin with handshakes"
            } else if loops.priority > 7 {
                "a priority above 7"
            } else {
                continue;
            };
            return Err(SimError::Loop { class: loops.class, what });
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
        Ok(())
    }
}

/// An error of a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// An invalid flow.
    #[error("flow {flow} has {what}")]
    #[allow(missing_docs)]
    Flow { flow: usize, what: &'static str },
    /// Flows need connections.
    #[error("flows of service {0:?}; expected Rc or Uc")]
    Service(Service),
    /// Packets are recorded from host to host.
    #[error("a schedule of switches that make packets themselves; expected neither RoCC nor means against blocking")]
    Schedule,
    /// The times at which each switch began to send a packet are recorded.
    #[error("a schedule with its hops, of switches that interrupt packets; expected the schedule alone")]
    Hops,
    /// An invalid closed loop.
    #[error("the closed loop of class {class} has {what}")]
    #[allow(missing_docs)]
    Loop { class: u8, what: &'static str },
    /// An invalid network, or an error in it.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A flow that cannot be aborted.
    #[error("flow {flow} is to be given up, but has {what}")]
    #[allow(missing_docs)]
    Quit { flow: u32, what: &'static str },
    /// An error reported by a NIC.
    #[error("NIC: {0}")]
    Nic(String),
    /// A flow ended with an error.
    #[error("flow {flow} ended with {status} at {at} ns")]
    #[allow(missing_docs)]
    Failed { flow: u32, status: String, at: u64 },
    /// Bytes arrived that were not sent.
    #[error("flow {0} arrived damaged")]
    Damaged(u32),
    /// An invariant that did not hold at the end of a run.
    #[error("broken invariant: {0}")]
    Invariant(String),
}
