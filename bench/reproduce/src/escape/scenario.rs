//! Scenarios (§4.6), as experiments. docs/reproduction-escape.md lists what the text leaves open.

use irnic_fabric::experiment::{Buffers, Experiment, GfcGiven, LinkFlowControl, SharedBuffers};
use irnic_fabric::sim::{ENCAPSULATION, QpPolicy, SimConfig};
use irnic_fabric::switch::{BreakerConfig, EscapeConfig, HolConfig, Remedy};
use irnic_fabric::workload::poisson::{Pair, between};
use irnic_fabric::workload::{Flow, cdf};

use super::networks::{self, Wired};

/// Size of a flow, bytes: more than it sends in any run.
const ENDLESS: u64 = 1 << 38;
/// Buffer of a switch, bytes: nothing is dropped.
const BUFFER: u64 = 1 << 34;
const MS: u64 = 1_000_000;
/// Timeout where frames are dropped, ns: longer than draining all buffers of a path takes at 40 Gbit/s.
const TIMEOUT: u64 = 4 * MS;
/// Number of classes: heavy and innocent flows.
const CLASSES: u8 = 2;
/// Length of a packet's headers, without IRN's, bytes.
const HEADER: u32 = ENCAPSULATION + 16;

/// Mechanism of the switches.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Means {
    /// Unlimited buffers without pauses.
    Ideal,
    /// PFC alone.
    Pfc,
    /// PFC and Escape.
    Escape,
    /// Escape without answers to tokens, which are reclaimed by a timer.
    EscapeTimer,
    /// PFC and LB as evaluated: frames in a loop are dropped until it moves again.
    Lb,
    /// PFC and DLB: the frames in a loop move on one at a time.
    Dlb,
    /// GFC: the first stage at XOFF's threshold, and the default room for all of them.
    Gfc,
}

impl Means {
    /// Returns the name in cells.
    pub fn name(self) -> &'static str {
        match self {
            Means::Ideal => "ideal",
            Means::Pfc => "pfc",
            Means::Escape => "escape",
            Means::EscapeTimer => "escape-timer",
            Means::Lb => "lb",
            Means::Dlb => "dlb",
            Means::Gfc => "gfc",
        }
    }
}

/// Traffic on the ring of Figure 4.6.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// Each host at the rate of its link.
    Line,
    /// Flows of web search, with a load of 96 % on the links of the ring.
    WebSearch,
}

/// A network with its traffic.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Figures 4.7 and 4.8.
    Ring(Load),
    /// Figure 4.9: HPCC, two flows from each host, and fourteen more at 50 ms; measured before those, or with them.
    RingHpcc {
        /// Whether it is measured with them.
        late: bool,
    },
    /// Figures 4.12 and 4.13: HPCC, ten flows from each of eight hosts, with or without the failed links.
    FatTree {
        /// Whether two links are missing.
        failed: bool,
    },
    /// Figure 4.15: 70 % load on the links of the cycle, for the two pairs on each together, or for each alone.
    TwoLevels(Traffic, Share),
    /// Figure 4.17: 80 % and 40 % load on the receivers' links, in total or from each sender.
    Incast(Traffic, Share),
}

/// Traffic between pairs of hosts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Poisson arrivals of flows of this distribution, each with its own queue pair.
    Arrivals(&'static str),
    /// Poisson arrivals of flows of this distribution from this many generators per pair, each of which uses one queue
    /// pair for all its flows.
    Generators(&'static str, u16),
}

/// Reference of the loads of Figures 4.15 and 4.17.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// The shared link, for both senders together.
    Both,
    /// The shared link, for each sender alone.
    Each,
}

/// A scenario.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub network: Network,
    pub means: Means,
    /// XOFF threshold of an input, KB; XON at a fiftieth (§3.5.1's 500 and 10 KB).
    pub xoff: u64,
}

impl Scenario {
    /// With the PFC thresholds of RoCC's evaluation.
    pub fn new(network: Network, means: Means) -> Scenario {
        Scenario { network, means, xoff: 500 }
    }

    /// The network.
    pub fn wired(&self) -> Wired {
        match self.network {
            Network::Ring(_) | Network::RingHpcc { .. } => networks::ring(),
            Network::FatTree { failed } => networks::fat_tree(failed),
            Network::TwoLevels(..) => networks::two_levels(),
            Network::Incast(..) => networks::incast(),
        }
    }

    /// Start of the measurement and end of the run, ns. Runs with arrivals end when all flows have.
    pub fn times(&self, quick: bool) -> [u64; 2] {
        match (self.network, quick) {
            (Network::Ring(_), false) => [0, 500 * MS],
            (Network::Ring(_), true) => [0, 50 * MS],
            (Network::RingHpcc { late: false }, _) => [40 * MS, 50 * MS],
            (Network::RingHpcc { late: true }, false) => [110 * MS, 150 * MS],
            (Network::RingHpcc { late: true }, true) => [80 * MS, 90 * MS],
            (Network::FatTree { .. }, false) => [60 * MS, 80 * MS],
            (Network::FatTree { .. }, true) => [30 * MS, 40 * MS],
            (Network::TwoLevels(..) | Network::Incast(..), _) => [0, 10_000 * MS],
        }
    }

    /// Period in which flows arrive, ns.
    fn arrivals(&self, quick: bool) -> u64 {
        match self.network {
            Network::Ring(_) => self.times(quick)[1],
            _ if quick => 10 * MS,
            _ => 50 * MS,
        }
    }

    /// Flows that share the link of each sender.
    pub fn per_sender(&self) -> f64 {
        match self.network {
            Network::RingHpcc { late: false } => 2.0,
            Network::RingHpcc { late: true } => 16.0,
            Network::FatTree { .. } => 10.0,
            _ => 1.0,
        }
    }

    fn flows(&self, wired: &Wired, quick: bool, seed: u64) -> Vec<Flow> {
        let arrivals = |sizes: &str, pairs: &[Pair]| {
            let sizes = cdf::builtin(sizes, None).expect("a distribution");
            between(&sizes, pairs, self.arrivals(quick), seed, 1024, HEADER)
        };
        let rate = |share: f64, of: f64| {
            let pair = |&(src, dst): &(u32, u32)| Pair { src, dst, rate: share * of, class: 0 };
            wired.pairs.iter().map(pair).collect::<Vec<_>>()
        };
        let each = |n: u32, start: u64| {
            let of = move |&(src, dst): &(u32, u32)| (0..n).map(move |_| Flow::new(src, dst, ENDLESS, start));
            wired.pairs.iter().flat_map(of).collect::<Vec<_>>()
        };
        match self.network {
            Network::Ring(Load::Line) => each(1, 0),
            // Two pairs share each link of the ring.
            Network::Ring(Load::WebSearch) => arrivals("WebSearch", &rate(0.48, 40e9)),
            Network::RingHpcc { .. } => [each(2, 0), each(14, 50 * MS)].concat(),
            Network::FatTree { .. } => each(10, 0),
            Network::TwoLevels(Traffic::Arrivals(sizes), _) | Network::Incast(Traffic::Arrivals(sizes), _) => {
                arrivals(sizes, &self.loads(wired))
            }
            Network::TwoLevels(Traffic::Generators(sizes, each), _)
            | Network::Incast(Traffic::Generators(sizes, each), _) => {
                let part = |pair: Pair, generator: u16| Pair {
                    rate: pair.rate / f64::from(each),
                    class: generator as u8 * CLASSES + pair.class,
                    ..pair
                };
                let parts = self.loads(wired).into_iter().flat_map(|pair| (0..each).map(move |n| part(pair, n)));
                let mut flows = arrivals(sizes, &parts.collect::<Vec<_>>());
                for flow in &mut flows {
                    (flow.setup, flow.class) = (u16::from(flow.class / CLASSES), flow.class % CLASSES);
                }
                flows
            }
        }
    }

    /// Traffic of pairs with random arrivals, bit/s. Innocent ones are class 1.
    fn loads(&self, wired: &Wired) -> Vec<Pair> {
        let part = |share| if share == Share::Each { 1.0 } else { 0.5 };
        let load = |at: usize| match self.network {
            Network::Incast(_, share) if at >= 2 => (0.4 * part(share), 1),
            Network::Incast(_, share) => (0.8 * part(share), 0),
            Network::TwoLevels(_, share) => (0.7 * part(share), 0),
            _ => (0.0, 0),
        };
        let pair = |(at, &(src, dst)): (usize, &(u32, u32))| {
            let (load, class) = load(at);
            Pair { src, dst, rate: load * 40e9, class }
        };
        wired.pairs.iter().enumerate().map(pair).collect()
    }

    /// Returns the run with a seed.
    pub fn config(&self, seed: u64, quick: bool, until: u64) -> Result<SimConfig, String> {
        let wired = self.wired();
        let hpcc = matches!(self.network, Network::RingHpcc { .. } | Network::FatTree { .. });
        let transport = match self.means {
            _ if hpcc => format!("roce,cc=hpcc,base-rtt={}ns", wired.round_trip()),
            // A loss at the end of the flow is only detected by a timeout.
            Means::Lb => format!("roce,rto={TIMEOUT}ns"),
            _ => "roce".to_owned(),
        };
        // Output queues, first in, first out; a counter for each input (§4.6).
        let mut shared = SharedBuffers::default();
        let ideal = self.means == Means::Ideal;
        shared.xoff = Some(if ideal { BUFFER / 2 } else { self.xoff * 1_000 });
        shared.xon = Some(self.xoff * 1_000 / 50);
        let mut experiment = Experiment::default();
        let transport = transport.parse().map_err(|e| format!("{transport}: {e}"))?;
        experiment.flows = Some(self.flows(&wired, quick, seed));
        let mut generators = 1;
        if let Network::TwoLevels(Traffic::Generators(_, each), _) | Network::Incast(Traffic::Generators(_, each), _) =
            self.network
        {
            // Flows of the same pair and setup share a queue pair.
            generators = usize::from(each);
            experiment.qps = QpPolicy::Reused;
        }
        experiment.transports = vec![transport; generators];
        experiment.topology = wired.topology;
        experiment.detours = wired.detours;
        experiment.buffers = Buffers::Shared(shared);
        experiment.buffer = Some(BUFFER);
        experiment.pfc = true;
        if self.means == Means::Gfc {
            experiment.flow_control = LinkFlowControl::Gfc(GfcGiven::default());
        }
        let mut escape = EscapeConfig::default();
        escape.nack = self.means != Means::EscapeTimer;
        experiment.hol = match self.means {
            Means::Ideal | Means::Pfc | Means::Gfc => None,
            Means::Escape | Means::EscapeTimer => Some(HolConfig::Escape(escape)),
            Means::Lb => Some(HolConfig::Breaker(BreakerConfig::new(Remedy::Drop))),
            Means::Dlb => Some(HolConfig::Breaker(BreakerConfig::new(Remedy::Rotate))),
        };
        experiment.until = Some(until);
        experiment.sample = Some(50_000);
        experiment.config(seed).map_err(|e| e.to_string())
    }
}
