//! What the paper runs (§3.5.1 to §3.5.3), as experiments.

use irnic_fabric::experiment::{Buffers, Experiment, SharedBuffers};
use irnic_fabric::sim::SimConfig;
use irnic_fabric::switch::RoccConfig;
use irnic_fabric::topology::{LinkSpec, Topology};
use irnic_fabric::workload::Flow;

const G: u64 = 1_000_000_000;
/// ns of each link.
const DELAY: u64 = 1_500;
/// Bytes of a flow: more than it sends in any run.
const ENDLESS: u64 = 1 << 38;
/// Bytes of a switch's buffer: nothing is dropped.
const BUFFER: u64 = 100_000_000;

/// Congestion control.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Control {
    Rocc,
    /// Without bits of the rate behind the point, as the authors' code.
    RoccWhole,
    Dcqcn,
    Timely,
    Hpcc,
}

impl Control {
    /// Returns the name in cells.
    pub fn name(self) -> &'static str {
        match self {
            Control::Rocc => "rocc",
            Control::RoccWhole => "rocc-whole",
            Control::Dcqcn => "dcqcn",
            Control::Timely => "timely",
            Control::Hpcc => "hpcc",
        }
    }
}

/// A network, and who sends to whom.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// So many senders to one receiver on links of this rate, Gbit/s.
    Star(u32, u64),
    /// Figure 3.9a: D1 to D4 meet D0 on a link of 40 Gbit/s, D5 meets it on one of 10.
    Bottlenecks,
    /// Figure 3.9b: five senders of 40 Gbit/s and two of 100 to one of 100.
    Asymmetric,
    /// Figure 3.10: three senders to one of 10 Gbit/s, at line rate, or offering 10, 3 and 1 Gbit/s.
    Dpdk {
        /// The latter.
        mix: bool,
    },
    /// Figure 3.11: three senders to one of 40 Gbit/s, at line rate, or offering 40, 30 and 10 Gbit/s.
    Tofino {
        /// The latter.
        mix: bool,
    },
}

/// What is run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scenario(pub Network, pub Control);

/// What a network is made of: hosts come before switches.
struct Parts {
    hosts: u32,
    switches: u32,
    /// Two nodes and Gbit/s each.
    links: Vec<(u32, u32, u64)>,
    /// Sender and receiver each.
    flows: Vec<(u32, u32)>,
}

impl Network {
    fn parts(self) -> Parts {
        // What is offered is what a sender's link carries.
        let star = |rates: &[u64], rate| {
            let n = rates.len() as u32;
            let senders = (0..n).zip(rates).map(|(host, &rate)| (host, n + 1, rate));
            let links = senders.chain([(n, n + 1, rate)]).collect();
            Parts { hosts: n + 1, switches: 1, links, flows: (0..n).map(|src| (src, n)).collect() }
        };
        match self {
            Network::Star(n, rate) => star(&vec![rate; n as usize], rate),
            Network::Dpdk { mix: false } => star(&[10; 3], 10),
            Network::Dpdk { mix: true } => star(&[10, 3, 1], 10),
            Network::Tofino { mix: false } => star(&[40; 3], 40),
            Network::Tofino { mix: true } => star(&[40, 30, 10], 40),
            Network::Bottlenecks => {
                // A0 to A4 are 0 to 4, B0 to B5 are 5 to 10.
                let hosts = (0..11).map(|host| (host, if host < 5 { 11 } else { 12 }, 10));
                let flows = (0..5).map(|n| (n, 5 + n)).chain([(10, 5)]).collect();
                Parts { hosts: 11, switches: 2, links: hosts.chain([(11, 12, 40)]).collect(), flows }
            }
            Network::Asymmetric => {
                let senders = (0..7).map(|host| if host < 5 { (host, 8, 40) } else { (host, 9, 100) });
                let rest = [(7, 10, 100), (8, 10, 100), (9, 10, 100)];
                let flows = (0..7).map(|src| (src, 7)).collect();
                Parts { hosts: 8, switches: 3, links: senders.chain(rest).collect(), flows }
            }
        }
    }

    /// The congestion points, where they are not the paper's for the rate of the link, and the recovery timer that goes
    /// with their period.
    fn points(self) -> (RoccConfig, &'static str) {
        let mut points = RoccConfig::default();
        match self {
            Network::Dpdk { .. } => {
                points.period = Some(100_000);
                (points, ",cc.recovery=137500ns")
            }
            Network::Tofino { .. } => {
                (points.qref, points.qmid, points.qmax) = (Some(75_000), Some(150_000), Some(210_000));
                (points.period, points.chunk) = (Some(20_000), Some(80));
                (points, ",cc.recovery=27500ns")
            }
            _ => (points, ""),
        }
    }
}

impl Scenario {
    /// Rate of the link that all share, Gbit/s; of Figure 3.9a that of D0 and D5.
    pub fn rate(&self) -> u64 {
        match self.0 {
            Network::Star(_, rate) => rate,
            Network::Bottlenecks | Network::Dpdk { .. } => 10,
            Network::Asymmetric => 100,
            Network::Tofino { .. } => 40,
        }
    }

    /// Bytes at which the queue is to rest.
    pub fn qref(&self) -> u64 {
        self.0.points().0.of_link(self.rate() * G).qref
    }

    /// Returns the run with a seed, which ends at `until`, ns, and looks at queues each `sample`, ns.
    pub fn config(&self, seed: u64, until: u64, sample: u64) -> Result<SimConfig, String> {
        let Parts { hosts, switches, links, flows } = self.0.parts();
        let link = |(a, b, rate)| LinkSpec { a, b, rate: rate * G, delay: DELAY, loss: 0.0 };
        // A NIC knows the rate of its own link.
        let rate_of = |host: u32| links.iter().find(|l| l.0 == host).map_or(0, |l| l.2);
        let mut lines: Vec<u64> = flows.iter().map(|flow| rate_of(flow.0)).collect();
        lines.sort_unstable();
        lines.dedup();
        let setup = |src| lines.iter().position(|line| *line == rate_of(src)).unwrap_or(0) as u16;
        let of = |(src, dst)| Flow { setup: setup(src), ..Flow::new(src, dst, ENDLESS, 0) };
        let flows = flows.iter().copied().map(of).collect();
        let links = links.iter().copied().map(link).collect();
        let (mut points, recovery) = self.0.points();
        let transport = match self.1 {
            Control::Rocc => format!("roce,cc=rocc{recovery}"),
            Control::RoccWhole => {
                points.fraction = Some(0);
                format!("roce,cc=rocc{recovery}")
            }
            rival => format!("roce,cc={}", rival.name()),
        };
        // Queues of outputs, first in, first out. PFC of the evaluation: an input has 500 KB at 40 Gbit/s, 800 KB at 100;
        // here what that is of a buffer of which little is used.
        let mut shared = SharedBuffers::default();
        shared.pfc_alpha = (if self.rate() == 100 { 800_000.0 } else { 500_000.0 }) / BUFFER as f64;
        let mut experiment = Experiment::default();
        experiment.topology = Topology { name: "rocc".to_owned(), hosts, switches, links, ids: Vec::new() };
        experiment.flows = Some(flows);
        let transports = lines.iter().map(|line| format!("{transport},line-rate={line}G"));
        experiment.transports =
            transports.map(|text| text.parse().map_err(|e| format!("{text}: {e}"))).collect::<Result<_, _>>()?;
        experiment.buffers = Buffers::Shared(shared);
        experiment.buffer = Some(BUFFER);
        experiment.pfc = true;
        experiment.rocc = matches!(self.1, Control::Rocc | Control::RoccWhole).then_some(points);
        experiment.until = Some(until);
        experiment.sample = Some(sample);
        experiment.config(seed).map_err(|e| e.to_string())
    }
}
