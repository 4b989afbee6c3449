//! What is run (§4.6), as experiments. docs/reproduction-escape.md tells what the text leaves open.

use std::f64::consts::LN_2;

use irnic_fabric::experiment::{Buffers, Experiment, GfcGiven, LinkFlowControl, SharedBuffers};
use irnic_fabric::sim::{ENCAPSULATION, QpPolicy, SimConfig};
use irnic_fabric::switch::{BreakerConfig, EscapeConfig, HolConfig, Remedy};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::closed_loop::{After, ClosedLoop, Gaps};
use irnic_fabric::workload::poisson::{Pair, between};
use irnic_fabric::workload::{Flow, Loops, Setting, cdf};

use super::networks::{self, Wired};

/// Bytes of a flow: more than it sends in any run.
const ENDLESS: u64 = 1 << 38;
/// Bytes of a switch's buffer: nothing is dropped.
const BUFFER: u64 = 1 << 34;
const MS: u64 = 1_000_000;
/// Timeout where frames are dropped, ns: longer than what is in all buffers of a way takes at 40 Gbit/s.
const TIMEOUT: u64 = 4 * MS;
/// Bytes of headers of a packet, IRN's apart.
const HEADER: u32 = ENCAPSULATION + 16;

/// What the switches do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Means {
    /// Room for everything: nobody is paused.
    Ideal,
    /// PFC alone.
    Pfc,
    /// PFC and Escape.
    Escape,
    /// Escape without answers to tokens.
    EscapeTimer,
    /// PFC and LB as it is evaluated: what is in a loop is dropped until it moves again.
    Lb,
    /// PFC and DLB: what is in a loop moves on by a frame at a time.
    Dlb,
    /// GFC: the first stage where XOFF would be, and room for all of them by default.
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

/// What is sent on the ring of Figure 4.6.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// Each host at the rate of its link.
    Line,
    /// Flows of web search, so that the links of the ring are asked for 96 %.
    WebSearch,
}

/// A network with its traffic.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Figures 4.7 and 4.8.
    Ring(Load),
    /// Figure 4.9: HPCC, two flows from each host, and fourteen more at 50 ms: before those, or with them.
    RingHpcc {
        /// The latter.
        late: bool,
    },
    /// Figures 4.12 and 4.13: HPCC, ten flows from each of eight hosts, without the failed links or with.
    FatTree {
        /// Two links are missing.
        failed: bool,
    },
    /// Figure 4.15: 70 % of the links of the cycle, two pairs on each together or each alone.
    TwoLevels(Traffic, Share),
    /// Figure 4.17: 80 % and 40 % of the receivers' links, or of those from each sender.
    Incast(Traffic, Share),
}

/// What pairs of hosts send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Poisson arrivals of flows of this distribution, each with a queue pair of its own.
    Arrivals(&'static str),
    /// So many generators a pair, as in RoCC's evaluation by the same author: each keeps its queue pair, on which it sends
    /// a flow of this distribution, sleeps when that has left, and sends the next.
    Generators(&'static str, u16),
}

/// What the loads of Figures 4.15 and 4.17 are shares of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// The link that two share, both senders together.
    Both,
    /// That link, each sender alone.
    Each,
}

/// What is run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub network: Network,
    pub means: Means,
    /// XOFF above so many KB of an input, XON at a fiftieth (§3.5.1's 500 and 10 KB).
    pub xoff: u64,
}

impl Scenario {
    /// With PFC's thresholds of RoCC's evaluation.
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

    /// When what is measured begins and the run ends, ns. Runs of arrivals end when all flows have.
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

    /// Time in which flows arrive, ns.
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
            Network::TwoLevels(..) | Network::Incast(..) => Vec::new(),
        }
    }

    /// What pairs send where flows come by chance, bit/s. Innocent ones are class 1.
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
            // Frames that nothing follows are missed by nobody.
            Means::Lb => format!("roce,rto={TIMEOUT}ns"),
            _ => "roce".to_owned(),
        };
        // Queues of outputs, first in, first out; a counter for each input (§4.6).
        let mut shared = SharedBuffers::default();
        let ideal = self.means == Means::Ideal;
        shared.xoff = Some(if ideal { BUFFER / 2 } else { self.xoff * 1_000 });
        shared.xon = Some(self.xoff * 1_000 / 50);
        let mut experiment = Experiment::default();
        let transport = transport.parse().map_err(|e| format!("{transport}: {e}"))?;
        experiment.flows = Some(self.flows(&wired, quick, seed));
        experiment.transports = vec![transport];
        experiment.topology = wired.topology.clone();
        experiment.detours = wired.detours.clone();
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
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        if let Network::TwoLevels(Traffic::Generators(sizes, each), _)
        | Network::Incast(Traffic::Generators(sizes, each), _) = self.network
        {
            config.loops = generators(&wired.topology, &self.loads(&wired), sizes, each, self.arrivals(quick), seed)?;
            // Queue pairs that differ in nothing but whose they are.
            config.setups = vec![config.setups[0]; each as usize];
            config.qps = QpPolicy::Reused;
        }
        Ok(config)
    }
}

/// So many generators of each pair, which send what the pair is to send.
fn generators(
    topology: &Topology,
    pairs: &[Pair],
    sizes: &str,
    each: u16,
    until: u64,
    seed: u64,
) -> Result<Vec<Loops>, String> {
    let sizes = cdf::builtin(sizes, Some(true)).expect("a distribution");
    let bits = 8.0 * sizes.mean();
    let setting = Setting {
        topology,
        seed,
        load: 1.0,
        duration: Some(until),
        flows: None,
        mtu: 1024,
        header: HEADER,
        priority: 0,
    };
    let mut all = Vec::new();
    for &Pair { src, dst, rate, class } in pairs {
        let link = topology.links.iter().find(|link| link.a == src).map_or(1, |link| link.rate) as f64;
        // A flow that nothing holds up leaves at the rate of the sender's link.
        let sleep = (bits * f64::from(each) / rate - bits / link) * 1e9;
        let of = ClosedLoop {
            from: Some(src..=src),
            to: Some(dst..=dst),
            connections: 1,
            after: After::Sent,
            gap: (sleep * LN_2) as u64,
            gaps: Gaps::Exponential,
            sizes: sizes.clone(),
        };
        for generator in 0..each {
            let mut loops = Loops::new(&of, &setting, generator as u8).map_err(|e| e.to_string())?;
            (loops.class, loops.setup) = (class, generator);
            all.push(loops);
        }
    }
    Ok(all)
}
