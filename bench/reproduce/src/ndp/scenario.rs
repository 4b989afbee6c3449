//! The NDP paper's simulations as runs of `irnic sim`'s network. What the paper leaves open is chosen here, once for
//! all cells, with the reasons.

use irnic_fabric::experiment::{Buffers, Experiment, QueueLength, SharedBuffers, Transport, TrimmingBuffers};
use irnic_fabric::sim::{Change, HeaderBytes, LinkChange, Observe, QpSetup, Routing, SimConfig, packets};
use irnic_fabric::switch::{Cut, Ecn};
use irnic_fabric::topology::{LinkSpec, Topology};
use irnic_fabric::workload::{ENDLESS, Flow};
use irnic_transports::config::TransportConfig;
use irnic_transports::recovery::Penalty;
use irnic_transports::wire::Mtu;

use crate::random;

/// Rate of all links, bit/s (§6).
pub const LINK_RATE: u64 = 10_000_000_000;
/// Propagation delay of each link, ns: 1 µs as in the mains of the authors' simulator. Not given by the paper.
const DELAY: u64 = 1_000;
/// Payload of a packet. The paper's have 9,000 bytes; this is the largest supported here. Flows have as many packets as
/// in the paper, so that windows and queues, which are counted in packets, are equivalent; their times are 0.91 of the
/// paper's.
pub const MTU: Mtu = Mtu::B8192;
/// Initial window, packets: that of most of the authors' scripts. The paper gives 30 where it mentions it (§6.2).
pub const WINDOW: u32 = 23;
/// Packets with payload that an output of a trimming switch holds, including the one in transmission (§3.1).
pub const QUEUE: u64 = 8;
/// Packets that an output holds for the other systems (§6.1), and marking thresholds, for DCTCP and for DCQCN.
const DROP_TAIL: u64 = 200;
const MARK_DCTCP: u64 = 30;
const MARK_DCQCN: u64 = 20;
/// Rate of the slow link of Figure 22, bit/s.
const SLOW: u64 = 1_000_000_000;
/// Size of the repeated transfers of Figure 15, packets (90 kB), and their interval, ns.
const TRANSFER: u64 = 10;
const EVERY: u64 = 1_000_000;
/// Flows from each of the other hosts in that figure.
const BUSY: u32 = 4;
/// The incast of Figure 19 (64 flows of 900 kB), and its start, ns; the paper's begins at 80 ms.
const COLLATERAL: (u32, u64, u64) = (64, 100, 10_000_000);
/// Figure 10: long flows to the host, size of the concurrent short flow, packets (200 kB), and its start, ns.
const CONCURRENT: (u32, u64, u64) = (6, 23, 3_000_000);

/// One-way delay between the hosts of Figure 11, ns. Not given by the paper. With 6 µs, a packet of 1,024 bytes and its
/// pull take as long as 14.6 packets, so that 15 fill the link, as in the paper's simulator.
const CABLE: u64 = 6_000;
/// Figure 23: hosts below a switch per link up.
const OVERSUBSCRIPTION: u32 = 4;

/// The systems compared.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// NDP, on switches that trim.
    Ndp,
    /// DCTCP: a TCP with its window, all packets of a flow on the same path, queues of 200 packets marked above 30.
    Dctcp,
    /// DCQCN with PFC: the same number of packets in shared buffers, marked above 20.
    Dcqcn,
}

/// Traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// Each host sends to one other, endlessly.
    Permutation,
    /// The last `senders` hosts send to host 0, as in the authors' simulator: those in its rack, whose packets arrive
    /// before the others', only if all send.
    Incast {
        /// Number of sending hosts.
        senders: u32,
        /// Packets of each.
        packets: u64,
        /// Whether the receiver pulls one of them before all others.
        preferred: bool,
    },
    /// Each host sends to a random other, endlessly (Figure 4).
    Anywhere,
    /// A number of hosts send at their links' rate to one, regardless of losses, through a switch (Figure 2). They have
    /// no transport.
    Unresponsive {
        /// Number of sending hosts.
        senders: u32,
        /// What the switch trims.
        cut: Cut,
        /// Arrival times of their packets, relative to each other.
        phases: Phases,
    },
    /// One host sends to another over a cable, endlessly (Figure 11).
    BackToBack,
    /// Each host keeps a number of connections with a sequence of web server flows, in an oversubscribed tree (Figure
    /// 23).
    Web {
        /// Connections of a host.
        connections: u32,
    },
    /// A sends to B, C, D and E, and F also sends to E (Figure 21).
    InAndOut,
    /// A long flow, and an incast to a host next to its receiver (Figure 19).
    Collateral,
    /// A permutation, and in addition all hosts send to host 0 (§6.1.1).
    Everybody,
    /// Short transfers between two otherwise idle hosts; all others send to any but these (Figure 15).
    Idle,
    /// A short flow to a host that receives six long ones (Figure 10).
    Concurrent {
        /// Whether the host pulls it first.
        preferred: bool,
    },
}

/// Arrival times of packets of senders at line rate, relative to each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Phases {
    /// Evenly spaced, in the same order in each packet time.
    Even,
    /// Random within the first packet time, and constant from then on.
    Random,
}

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Number of ports of a switch of the fat-tree.
    pub arity: u32,
    /// Traffic.
    pub traffic: Traffic,
    /// System.
    pub system: System,
    /// NDP's initial window, packets.
    pub window: u32,
    /// NDP's queues, packets.
    pub queue: u64,
    /// Payload of a packet.
    pub mtu: Mtu,
    /// The choice of paths.
    pub routing: Routing,
    /// How NDP avoids lossy paths.
    pub penalty: Penalty,
    /// Whether NDP retransmits packets without an answer for 1 ms (§3.2). The authors' simulator does not.
    pub timeouts: bool,
    /// Whether the time until each packet is acknowledged is recorded.
    pub latencies: bool,
    /// Whether one link down from a core switch has a tenth of the rate.
    pub slow_link: bool,
}

/// Measured time of an endless run, ns.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Time {
    /// Start; what comes before is not measured.
    pub from: u64,
    /// End of the run.
    pub until: u64,
}

impl Scenario {
    /// NDP with the default parameters of all cells, in the tree of switches with this many ports.
    pub fn ndp(arity: u32, traffic: Traffic) -> Scenario {
        Scenario {
            arity,
            traffic,
            system: System::Ndp,
            window: WINDOW,
            queue: QUEUE,
            mtu: MTU,
            routing: Routing::Source,
            penalty: Penalty::Skip,
            timeouts: true,
            latencies: false,
            slow_link: false,
        }
    }

    /// Returns a scenario with this traffic and another system, which routes by ECMP.
    pub fn of(self, system: System) -> Scenario {
        Scenario { system, routing: Routing::Ecmp, ..self }
    }

    /// Whether the run ends by itself.
    pub fn ends(&self) -> bool {
        matches!(self.traffic, Traffic::Incast { .. } | Traffic::Web { .. })
    }

    /// The network.
    pub fn topology(&self) -> Topology {
        match self.traffic {
            Traffic::BackToBack => {
                let cable = LinkSpec { a: 0, b: 1, rate: LINK_RATE, delay: CABLE, loss: 0.0 };
                Topology { name: "back-to-back".into(), hosts: 2, switches: 0, links: vec![cable], ids: Vec::new() }
            }
            Traffic::Unresponsive { senders, .. } => Topology::star(senders + 1, LINK_RATE, DELAY),
            Traffic::Web { .. } => Topology::oversubscribed_fat_tree(self.arity, OVERSUBSCRIPTION, LINK_RATE, DELAY),
            _ => Topology::fat_tree(self.arity, LINK_RATE, DELAY),
        }
    }

    /// Number of hosts.
    pub fn hosts(&self) -> u32 {
        match self.traffic {
            Traffic::BackToBack => 2,
            Traffic::Unresponsive { senders, .. } => senders + 1,
            Traffic::Web { .. } => self.arity * self.arity * self.arity / 4 * OVERSUBSCRIPTION,
            _ => self.arity * self.arity * self.arity / 4,
        }
    }

    /// The measured time: some scenarios need their own.
    pub fn time(&self, time: Time) -> Time {
        match self.traffic {
            // Flows that start by then are completed.
            Traffic::Web { .. } => Time { from: time.from, until: time.from + 2 * (time.until - time.from) },
            _ if self.ends() => Time { from: 0, until: u64::MAX },
            // So that randomness alone leaves the worst tenth of 200 senders within 12 % of the mean.
            Traffic::Unresponsive { .. } => Time { from: 10_000_000, until: 310_000_000 },
            // The incast takes 51 ms.
            Traffic::Collateral => Time { from: COLLATERAL.2 / 2, until: COLLATERAL.2 + 12_000_000 },
            Traffic::Concurrent { .. } => Time { from: 0, until: CONCURRENT.2 + 3_000_000 },
            // The scoreboard learns for 20 ms and more, as in the authors' simulator, which measures from 190 to 200
            // ms.
            _ if self.slow_link => Time { from: time.until * 19 / 2, until: time.until * 10 },
            // One transfer per millisecond.
            Traffic::Idle => Time { from: time.from, until: time.from + 2 * (time.until - time.from) },
            _ => time,
        }
    }

    /// Returns the number of bits to be sent, possibly until the end.
    pub fn estimate(&self, time: Time) -> f64 {
        let until = |time: Time| f64::from(self.hosts()) * LINK_RATE as f64 * time.until as f64 / 1e9;
        match self.traffic {
            Traffic::Incast { senders, packets, .. } => f64::from(senders) * (packets * self.full_packet() * 8) as f64,
            _ => until(self.time(time)),
        }
    }

    /// Returns the run with a seed.
    pub fn config(&self, time: Time, seed: u64) -> Result<SimConfig, String> {
        let time = self.time(time);
        let mut experiment = Experiment::default();
        experiment.topology = self.topology();
        experiment.mtu = self.mtu;
        experiment.routing = self.routing;
        experiment.transports = vec![self.transport()?];
        if !self.ends() {
            experiment.until = Some(time.until);
        }
        experiment.duration = matches!(self.traffic, Traffic::Web { .. }).then_some(time.until);
        match self.workload() {
            Some(text) => experiment.workload = text.parse().map_err(|e| format!("{e}"))?,
            None => experiment.flows = Some(self.flows(time, seed)),
        }
        self.switches(&mut experiment);
        if self.slow_link {
            experiment.changes = vec![slow_link(&experiment.topology)];
        }
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        config.observe = Some(Observe {
            from: time.from,
            segment: 1,
            interval: INTERVAL,
            to: None,
            latencies: self.latencies,
            rounds: false,
        });
        self.prefer(&mut config);
        Ok(config)
    }

    fn transport(&self) -> Result<Transport, String> {
        let text = match self.system {
            System::Ndp => {
                let rto = if self.timeouts { "" } else { ",rto=10s" };
                format!("ndp,iw={}{rto}", self.window)
            }
            // The initial window and the minimum timeout are those of the authors' simulator (`sim/tcp.cpp`).
            System::Dctcp => "iwarp,cc=dctcp,cc.initial=10,rto-min=1ms".to_owned(),
            System::Dcqcn => "roce,cc=dcqcn".to_owned(),
        };
        let mut transport: Transport = text.parse().map_err(|e| format!("{text}: {e}"))?;
        if let Some(pull) = transport.config.discipline.pull_mut() {
            pull.penalty = self.penalty;
        }
        Ok(transport)
    }

    fn switches(&self, experiment: &mut Experiment) {
        let packet = self.full_packet();
        match self.system {
            System::Ndp => {
                let mut trimming = TrimmingBuffers::default();
                trimming.data = Some(QueueLength::Packets(self.queue));
                experiment.buffers = Buffers::Trimming(trimming);
            }
            System::Dctcp => {
                // A limit for each queue: such a small share of such a large buffer that the other queues do not affect
                // it.
                let mut shared = SharedBuffers::default();
                shared.alpha = 1.0 / f64::from(1 << 20);
                experiment.buffers = Buffers::Shared(shared);
                experiment.buffer = Some((DROP_TAIL * packet) << 20);
                experiment.ecn = Some(Ecn::Step { k: MARK_DCTCP * packet });
            }
            System::Dcqcn => {
                experiment.buffers = Buffers::Shared(SharedBuffers::default());
                experiment.buffer = Some(DROP_TAIL * u64::from(self.arity) * packet);
                experiment.pfc = true;
                experiment.ecn = Some(Ecn::Step { k: MARK_DCQCN * packet });
            }
        }
    }

    /// Length of a full packet of NDP's on the wire, bytes, by which the queues of all systems are dimensioned.
    pub fn full_packet(&self) -> u64 {
        let mut setup = QpSetup::new(TransportConfig::preset("ndp").expect("a preset"));
        setup.mtu = self.mtu;
        let trains = packets(self.mtu.bytes() as u64 * 3, &setup, HeaderBytes::Real);
        trains.iter().map(|(wire, _)| u64::from(*wire)).min().unwrap_or(0)
    }

    /// The traffic in the workload syntax of simulations, if it can be expressed there.
    fn workload(&self) -> Option<String> {
        match self.traffic {
            Traffic::Permutation => Some("permutation:bytes=endless".to_owned()),
            Traffic::Anywhere => Some("random:flows=1,bytes=endless".to_owned()),
            Traffic::Web { connections } => Some(format!("closed-loop:connections={connections},gap=1ms,cdf=NdpWeb")),
            // More for each than the time allows.
            Traffic::Everybody => Some("permutation:bytes=endless+incast:senders=all,each=1GB,to=0".to_owned()),
            _ => None,
        }
    }

    fn flows(&self, time: Time, seed: u64) -> Vec<Flow> {
        let hosts = self.hosts();
        let payload = self.mtu.bytes() as u64;
        let pod = hosts / self.arity;
        match self.traffic {
            Traffic::Incast { senders, packets, .. } => {
                (hosts - senders..hosts).map(|host| Flow::new(host, 0, packets * payload, 0)).collect()
            }
            Traffic::BackToBack => vec![Flow::new(0, 1, ENDLESS, 0)],
            Traffic::InAndOut => {
                // Each in its own pod.
                let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|n| n * pod);
                [(a, b), (a, c), (a, d), (a, e), (f, e)].map(|(from, to)| Flow::new(from, to, ENDLESS, 0)).into()
            }
            Traffic::Collateral => {
                let (senders, packets, start) = COLLATERAL;
                // From other pods; the receivers are hosts 0 and 1.
                let others = (0..senders).map(|n| Flow {
                    class: 1,
                    ..Flow::new(pod + 1 + n * ((hosts - pod - 1) / senders), 1, packets * payload, start)
                });
                std::iter::once(Flow::new(hosts - 1, 0, ENDLESS, 0)).chain(others).collect()
            }
            Traffic::Concurrent { .. } => {
                let (long, packets, start) = CONCURRENT;
                let long = (0..long).map(|n| Flow::new((n + 1) * pod, 0, ENDLESS, 0));
                long.chain([Flow { class: 1, ..Flow::new(pod + 1, 0, packets * payload, start) }]).collect()
            }
            Traffic::Idle => {
                // Two hosts in different pods.
                let (one, other) = (0, hosts / 2);
                let mut flows = Vec::new();
                for host in (0..hosts).filter(|host| ![one, other].contains(host)) {
                    for n in 0..BUSY {
                        let others = (0..hosts).filter(|to| ![one, other, host].contains(to));
                        let at = random::below(seed, host * BUSY + n, u64::from(hosts) - 3);
                        let to = others.clone().nth(at as usize).unwrap_or(hosts - 1);
                        flows.push(Flow::new(host, to, ENDLESS, 0));
                    }
                }
                for (n, start) in (time.from..time.until - EVERY).step_by(EVERY as usize).enumerate() {
                    let (from, to) = if n % 2 == 0 { (one, other) } else { (other, one) };
                    flows.push(Flow { class: 1, ..Flow::new(from, to, TRANSFER * payload, start) });
                }
                flows
            }
            _ => Vec::new(),
        }
    }

    /// Gives the preferred flow a class of pulls ahead of the others.
    fn prefer(&self, config: &mut SimConfig) {
        let preferred = match self.traffic {
            Traffic::Incast { preferred: true, .. } => 0,
            Traffic::Concurrent { preferred: true } => config.flows.len() - 1,
            _ => return,
        };
        let first = config.setups[0];
        if let Some(pull) = config.setups[0].transport.discipline.pull_mut() {
            pull.class = 1;
        }
        config.setups.push(first);
        config.flows[preferred].setup = 1;
    }
}

/// Interval of rates over time, ns.
pub const INTERVAL: u64 = 100_000;

/// A change that slows the link from the first core switch to the first pod.
fn slow_link(topology: &Topology) -> LinkChange {
    let core = topology.tiers().iter().position(|tier| *tier == 3).unwrap_or(0) as u32;
    let link = topology.ports(core).first().map_or(0, |(link, _)| *link as u32);
    LinkChange { at: 0, link, what: Change::RateFrom { node: core, rate: SLOW } }
}
