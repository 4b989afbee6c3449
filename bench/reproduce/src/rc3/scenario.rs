//! Scenarios (§2.4, §2.5), as experiments. docs/reproduction-rc3.md lists what the text leaves open.

use std::path::Path;

use irnic_fabric::experiment::{Differing, Experiment};
use irnic_fabric::sim::{HeaderBytes, SimConfig};
use irnic_fabric::switch::PolicySwitch;
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::cdf::{self, Reading};
use irnic_fabric::workload::poisson::{Pair, between};
use irnic_fabric::workload::{Flow, Sizes};

use super::networks::{self, HEADER, scaled};
use super::theory::SIZES;

const MS: u64 = 1_000_000;
const G: u64 = 1_000_000_000;
/// Payload of a full packet.
pub const MTU: u64 = 1_024;
/// Buffer of each port, bytes of the paper's packets.
const BUFFER: u64 = 5_000_000;
/// Bytes around the payload of packets in datacenters.
const DATACENTER_HEADER: u32 = 62;
/// Senders of an incast, and bytes of each.
const INCAST: (u32, u64) = (30, 100_000);
/// Priority of packets within the window: the highest.
const PRIORITY: u8 = 7;

/// A network.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Internet-2: rate of hosts' links in Mbit/s, and factor of delays.
    Internet2 {
        /// 1000 or 100.
        mbps: u64,
        /// 1 or 10.
        stretch: u64,
    },
    /// A fat-tree of 16 hosts, 100 Gbit/s.
    FatTree,
    /// Hosts at one switch, with a buffer per port in halves of the bandwidth-delay product: Poisson arrivals, or
    /// without load an incast.
    Star {
        /// Rate of links, Gbit/s.
        gbps: u64,
        /// Buffer, in halves of the bandwidth-delay product.
        halves: u64,
    },
}

/// Transport of a host.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// TCP with this initial window, packets.
    Tcp(u32),
    /// TCP with an initial window of 4 packets, and RC3 with this many packets at its first priority, and this many
    /// priorities.
    Rc3(u32, u8),
    /// IRN with a cap of the bandwidth-delay product.
    Irn,
}

/// Transports of hosts or flows. The groups are classes 0 and 1.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Senders {
    /// All alike.
    All(Sender),
    /// Every other host with TCP, the rest with RC3.
    Half,
    /// TCP; every tenth flow is critical, and is treated equally, has a higher priority, or uses RC3.
    Critical(Critical),
}

/// Treatment of critical flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Critical {
    Nothing,
    Priority,
    Rc3,
}

/// A scenario.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub network: Network,
    /// Load offered by flows on hosts' links, %.
    pub load: u32,
    /// Loss rate of each link, packets in a hundred thousand.
    pub loss: u32,
    pub senders: Senders,
    /// Every n-th switch has no priorities: it drops the newest packet, and low priority competes with the rest; 0: all
    /// switches have priorities.
    pub without: u32,
}

impl Sender {
    /// RC3 as in §2.1.1.
    pub const RC3: Sender = Sender::Rc3(40, 3);
    /// TCP of §2.4.1.
    pub const TCP: Sender = Sender::Tcp(4);

    /// The transport; `timeout`: its minimum, and `cap`: the bandwidth-delay product in packets.
    fn transport(self, timeout: u64, cap: u64) -> String {
        let tcp = |initial: u32| format!("iwarp,cc.initial={initial},rto-min={timeout}ns,rto-max=60s");
        match self {
            Sender::Tcp(initial) => tcp(initial),
            Sender::Rc3(slots, levels) => format!("{},rc3={slots},rc3-levels={levels}", tcp(4)),
            Sender::Irn => format!("irn,cap={cap}"),
        }
    }
}

impl Scenario {
    /// The default of §2.4.1.
    pub fn internet2(senders: Senders) -> Scenario {
        Scenario { network: Network::Internet2 { mbps: 1000, stretch: 1 }, load: 30, loss: 0, senders, without: 0 }
    }

    /// Start and end of the flows that count, and end of the run, ns. An incast runs to completion.
    pub fn times(&self, quick: bool) -> [u64; 3] {
        let ms = match (self.network, quick) {
            (Network::Internet2 { mbps: 1000, .. }, false) => [2_000, 4_000, 5_000],
            (Network::Internet2 { mbps: 1000, .. }, true) => [800, 1_500, 2_200],
            (Network::Internet2 { stretch: 1, .. }, false) => [4_000, 10_000, 13_000],
            (Network::Internet2 { stretch: 1, .. }, true) => [2_000, 4_000, 6_500],
            (Network::Internet2 { .. }, false) => [10_000, 20_000, 28_000],
            (Network::Internet2 { .. }, true) => [6_000, 9_000, 15_000],
            (Network::FatTree, false) => [4, 16, 24],
            (Network::FatTree, true) => [1, 4, 7],
            (Network::Star { .. }, _) if self.load == 0 => [0, 10_000, 10_000],
            (Network::Star { gbps, .. }, _) => {
                let long = if quick { 40 } else { 200 };
                [long / gbps, 5 * long / gbps, 8 * long / gbps]
            }
        };
        ms.map(|ms| ms * MS)
    }

    /// Estimated relative run time.
    pub fn weight(&self, quick: bool) -> f64 {
        let seconds = self.times(quick)[2] as f64 / 1e9;
        let bits = match self.network {
            Network::Internet2 { mbps, .. } => mbps as f64 * 1e6 * f64::from(networks::HOSTS),
            Network::FatTree => 1.6e12,
            Network::Star { gbps, .. } => gbps as f64 * 16e9,
        };
        if self.load == 0 { 1e7 } else { seconds * bits * f64::from(self.load) / 100.0 }
    }

    fn topology(&self) -> (Topology, Vec<irnic_fabric::sim::Detour>) {
        match self.network {
            Network::Internet2 { mbps, stretch } => {
                networks::internet2(mbps * 1_000_000, stretch, f64::from(self.loss) / 1e5)
            }
            Network::FatTree => (Topology::fat_tree(4, 100 * G, 2_000), Vec::new()),
            Network::Star { gbps, .. } => (Topology::star(self.hosts(), gbps * G, 5_000), Vec::new()),
        }
    }

    fn hosts(&self) -> u32 {
        match self.network {
            Network::Star { .. } if self.load == 0 => INCAST.0 + 1,
            _ => 16,
        }
    }

    /// Bandwidth-delay product of a star, packets: four links of 5 µs.
    fn product(&self) -> u64 {
        match self.network {
            Network::Star { gbps, .. } => (gbps * 20_000 / 8).div_ceil(MTU + u64::from(DATACENTER_HEADER)),
            _ => 0,
        }
    }

    /// Buffer of a port, bytes.
    fn buffer(&self) -> u64 {
        match self.network {
            Network::Internet2 { .. } => scaled(BUFFER),
            Network::FatTree => BUFFER,
            Network::Star { halves, .. } => halves * self.product() * (MTU + u64::from(DATACENTER_HEADER)) / 2,
        }
    }

    /// The minimum timeout, ns: ns-3's, or ten times that for slower networks.
    fn timeout(&self) -> u64 {
        match self.network {
            Network::Internet2 { stretch, .. } => 200 * MS * stretch,
            Network::FatTree | Network::Star { .. } => MS,
        }
    }

    /// The distribution of sizes, in packets of irnic's.
    fn sizes() -> Sizes {
        let line = |(packets, share): (u64, f64)| format!("{packets} {share}\n");
        let text: String = SIZES.into_iter().map(line).collect();
        let reading = Reading { unit: MTU, discrete: true };
        cdf::parse(Path::new("rc3"), &text, reading).expect("a distribution")
    }

    fn flows(&self, quick: bool, seed: u64) -> Vec<Flow> {
        let load = f64::from(self.load) / 100.0;
        let arrivals =
            |pairs: &[Pair], header| between(&Self::sizes(), pairs, self.times(quick)[2], seed, MTU as u32, header);
        let among = |hosts: u32, gbps: u64| {
            let rate = load * gbps as f64 * 1e9 / f64::from(hosts - 1);
            let all = (0..hosts).flat_map(|src| (0..hosts).map(move |dst| (src, dst)));
            let pair = |(src, dst)| Pair { src, dst, rate, class: 0 };
            arrivals(&all.filter(|(src, dst)| src != dst).map(pair).collect::<Vec<_>>(), DATACENTER_HEADER)
        };
        let mut flows = match self.network {
            Network::Internet2 { mbps, .. } => arrivals(&networks::pairs(mbps * 1_000_000, load), HEADER),
            Network::FatTree => among(16, 100),
            Network::Star { .. } if self.load == 0 => {
                (1..=INCAST.0).map(|src| Flow::new(src, 0, INCAST.1, u64::from(src) * 10 * (1 + seed % 50))).collect()
            }
            Network::Star { gbps, .. } => among(16, gbps),
        };
        for (at, flow) in flows.iter_mut().enumerate() {
            let class = match self.senders {
                Senders::All(_) => 0,
                Senders::Half => (flow.src % 2) as u8,
                Senders::Critical(_) => u8::from(at % 10 == 0),
            };
            flow.class = class;
            flow.priority = match self.senders {
                Senders::Critical(Critical::Priority) if class == 0 => PRIORITY - 1,
                _ => PRIORITY,
            };
            flow.setup = match self.senders {
                Senders::Half | Senders::Critical(Critical::Rc3) => class.into(),
                _ => 0,
            };
        }
        flows
    }

    /// Returns the run with a seed.
    pub fn config(&self, seed: u64, quick: bool) -> Result<SimConfig, String> {
        let wide = matches!(self.network, Network::Internet2 { .. });
        let senders = match self.senders {
            Senders::All(sender) => vec![sender],
            Senders::Half | Senders::Critical(Critical::Rc3) => vec![Sender::TCP, Sender::RC3],
            Senders::Critical(_) => vec![Sender::TCP],
        };
        let read = |sender: Sender| {
            let text = sender.transport(self.timeout(), self.product());
            text.parse().map_err(|e| format!("{text}: {e}"))
        };
        let switch = format!("strict-push-out,buffer={}B", self.buffer());
        let mut experiment = Experiment::default();
        (experiment.topology, experiment.detours) = self.topology();
        experiment.flows = Some(self.flows(quick, seed));
        experiment.transports = senders.into_iter().map(read).collect::<Result<_, String>>()?;
        experiment.policy = Some(switch.parse().map_err(|e| format!("{switch}: {e}"))?);
        if self.without > 0 {
            let plain = format!("tail-drop,buffer={}B", self.buffer());
            let plain: PolicySwitch = plain.parse().map_err(|e| format!("{plain}: {e}"))?;
            let switches = experiment.topology.hosts..experiment.topology.nodes();
            let every = switches.step_by(self.without as usize);
            experiment.differing = every.map(|node| (node, Differing::Policy(plain.clone()))).collect();
        }
        if wide {
            experiment.headers = HeaderBytes::Fixed(HEADER);
        }
        // Completion times of the paper include a handshake.
        experiment.setup_rtts = u32::from(!matches!(self.network, Network::Star { .. }));
        experiment.until = Some(self.times(quick)[2]);
        experiment.config(seed).map_err(|e| e.to_string())
    }
}
