//! What a run is made of.

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

/// How queue pairs of a run are set up.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QpSetup {
    /// [`Service::Rc`], or [`Service::Uc`]: then flows are open-loop. Their packets leave as fast as the sender's link
    /// takes them, whatever becomes of them; the sender is done when all have left, the flow is complete when the
    /// receiver's queue pair has all of it. It never has if a packet is lost or overtaken (IBA 9.8.2).
    pub service: Service,
    /// Loss recovery, flow control, timers, of a reliable connection.
    pub transport: TransportConfig,
    /// Payload bytes of a full packet.
    pub mtu: Mtu,
    /// Most messages in a send queue.
    pub depth: u32,
}

impl QpSetup {
    /// Reliable connections with this transport: MTU 1024, one message in a send queue.
    pub fn new(transport: TransportConfig) -> QpSetup {
        QpSetup { service: Service::Rc, transport, mtu: Mtu::B1024, depth: 1 }
    }

    /// Whether nobody says what has arrived: an unreliable connection.
    pub fn is_open_loop(&self) -> bool {
        self.service == Service::Uc
    }

    /// Bytes of telemetry on a request.
    pub fn telemetry(&self) -> u32 {
        if !self.is_open_loop() && self.transport.congestion.uses_telemetry() { Int::LEN } else { 0 }
    }
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
    /// The packet's payload and so many bytes, as simulators have it that do not model headers.
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

/// A flow that its sender gives up.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Quit {
    /// When the flow is given up, ns; after its start.
    pub at: u64,
    /// Place of the flow among all.
    pub flow: u32,
}

/// A run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// The network.
    pub topology: Topology,
    /// What is sent, in order of time.
    pub flows: Vec<Flow>,
    /// Connections on which flows start when others have ended.
    pub loops: Vec<Loops>,
    /// What the receivers of flows return when they have all of them, by class: flows that follow. At most one a class.
    pub responses: Vec<Response>,
    /// What switches do.
    pub switch: SwitchConfig,
    /// Switches that do something else, by node ([`crate::network::NetworkConfig::differing`]).
    pub differing: Vec<(u32, SwitchConfig)>,
    /// Congestion points of RoCC in all switches.
    pub rocc: Option<RoccConfig>,
    /// What switches do against head-of-line blocking by PFC.
    pub hol: Option<HolConfig>,
    /// How queue pairs are set up: each flow names one of these by its index ([`Flow::setup`]), so that flows of
    /// several transports can share the network. At least one.
    pub setups: Vec<QpSetup>,
    /// Which flows share them.
    pub qps: QpPolicy,
    /// Choice among ways.
    pub routing: Routing,
    /// Exceptions from shortest ways.
    pub detours: Vec<Detour>,
    /// Whether the run goes on when a deadlock is found; by default it ends.
    pub outlive_deadlocks: bool,
    /// Length of packets.
    pub headers: HeaderBytes,
    /// Round trips of an empty network that setting up a connection takes, which add to the completion time of each
    /// flow: a packet without payload there, and as much back. Queue pairs of simulations are connected when a flow
    /// starts.
    pub setup_rtts: u32,
    /// Flows begin once a packet without payload has been to the receiver and one is back: an RDMA READ of no bytes,
    /// behind whose fence the rest waits. Unlike [`Self::setup_rtts`] it waits in queues, can be lost, and counts for
    /// windows. Each needs a reliable connection of its own.
    pub handshake: bool,
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
    /// What is recorded of each packet, if something is: [`super::Outcome::schedule`].
    pub schedule: Option<Detail>,
    /// What happens to links, in order of time.
    pub changes: Vec<LinkChange>,
    /// Flows that do not go on to their end, in order of time; each has a queue pair of its own.
    pub quits: Vec<Quit>,
    /// The run ends then, ns.
    pub until: u64,
    /// Where all random numbers come from.
    pub seed: u64,
}

impl SimConfig {
    /// A run of these flows with a transport, and everything else as usual.
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

    /// What a flow is answered with, bytes.
    pub(super) fn response_to(&self, flow: &Flow) -> Option<u64> {
        self.responses.iter().find(|response| response.class == flow.class).map(|response| response.bytes)
    }

    /// The setup and the bytes of each flow and its response, and of the longest of each closed loop.
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

    /// What switches do, the others' and those that differ.
    pub(super) fn switches(&self) -> impl Iterator<Item = &SwitchConfig> {
        std::iter::once(&self.switch).chain(self.differing.iter().map(|(_, switch)| switch))
    }

    /// The largest MTU of all setups.
    pub(super) fn longest_mtu(&self) -> Mtu {
        self.setups.iter().map(|setup| setup.mtu).max_by_key(|mtu| mtu.bytes()).unwrap_or(Mtu::B1024)
    }

    /// Whether any flow may be of an unreliable connection.
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

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// A flow that makes no sense.
    #[error("flow {flow} has {what}")]
    #[allow(missing_docs)]
    Flow { flow: usize, what: &'static str },
    /// Flows go over connections.
    #[error("flows of service {0:?}; expected Rc or Uc")]
    Service(Service),
    /// Packets are recorded from host to host.
    #[error("a schedule of switches that make packets themselves; expected neither RoCC nor means against blocking")]
    Schedule,
    /// Of each switch it is recorded when it began to send a packet.
    #[error("a schedule with its hops, of switches that interrupt packets; expected the schedule alone")]
    Hops,
    /// A closed loop that makes no sense.
    #[error("the closed loop of class {class} has {what}")]
    #[allow(missing_docs)]
    Loop { class: u8, what: &'static str },
    /// Links and switches that make no sense, or did something wrong.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A flow cannot be given up.
    #[error("flow {flow} is to be given up, but has {what}")]
    #[allow(missing_docs)]
    Quit { flow: u32, what: &'static str },
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
