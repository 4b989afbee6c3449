//! The paper's runs (§3.5.1 to §3.5.3), as experiments; [`super::datacenter`] has §3.5.4.

use irnic_fabric::experiment::{Buffers, Experiment, SharedBuffers};
use irnic_fabric::sim::{Quit, SimConfig};
use irnic_fabric::switch::{Ecn, PiConfig, RoccConfig};
use irnic_fabric::topology::{LinkSpec, Topology};
use irnic_fabric::workload::Flow;

use super::datacenter::Traffic;

pub const G: u64 = 1_000_000_000;
/// Delay of each link, ns.
pub const DELAY: u64 = 1_500;
/// Size of a flow, bytes: more than it sends in any run.
const ENDLESS: u64 = 1 << 38;
/// Buffer of a switch, bytes: nothing is dropped.
const BUFFER: u64 = 100_000_000;

/// Parts of a run, ns.
#[derive(Copy, Clone, Debug)]
pub struct Time {
    /// Warm-up, not measured.
    pub warm_up: u64,
    /// Measured time.
    pub measured: u64,
}

/// Congestion control.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Control {
    Rocc,
    /// Without fractional bits of the rate, as in the authors' code.
    RoccWhole,
    Dcqcn,
    /// With the steps of the authors' settings.
    DcqcnTheirs,
    /// Marked by a PI controller.
    DcqcnPi,
    Timely,
    Hpcc,
    /// With W_AI and T of the authors' settings.
    HpccTheirs,
}

impl Control {
    /// Returns the name in cells.
    pub fn name(self) -> &'static str {
        match self {
            Control::Rocc => "rocc",
            Control::RoccWhole => "rocc-whole",
            Control::Dcqcn => "dcqcn",
            Control::DcqcnTheirs => "dcqcn-theirs",
            Control::DcqcnPi => "dcqcn-pi",
            Control::Timely => "timely",
            Control::Hpcc => "hpcc",
            Control::HpccTheirs => "hpcc-theirs",
        }
    }

    /// Returns the transport without parameters derived from the network.
    pub fn transport(self) -> &'static str {
        match self {
            Control::Rocc | Control::RoccWhole => "roce,cc=rocc",
            Control::Dcqcn | Control::DcqcnPi => "roce,cc=dcqcn",
            // The rest of the authors' settings are irnic's defaults: steps of 400 Mbit/s, g 1/256, F 5, 55 µs, 10 MB.
            Control::DcqcnTheirs => "roce,cc=dcqcn,cc.ai=4M",
            Control::Timely => "roce,cc=timely",
            Control::Hpcc => "roce,cc=hpcc",
            // T 6 µs, and (1 − η)/N of the line for four flows.
            Control::HpccTheirs => "roce,cc=hpcc,cc.ai=line/80,base-rtt=6us",
        }
    }

    /// Returns whether switches notify.
    pub fn is_rocc(self) -> bool {
        matches!(self, Control::Rocc | Control::RoccWhole)
    }

    /// Returns the marking, unless it is the default of the control.
    pub fn ecn(self) -> Option<Ecn> {
        // The queue of Figure 3.8 for DCQCN. A longer one is marked as much more often as by RED of DCQCN's paper, 1 %
        // in 195 KB; the time is that of DCQCN's slowest state, α: 256 periods of 55 µs, since Hollot et al. place the
        // controller's zero at the slowest pole.
        (self == Control::DcqcnPi).then(|| Ecn::Pi(PiConfig::new(100_000, 0.005, 14_000_000)))
    }
}

/// A network, with senders and receivers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// This many senders to one receiver on links of this rate, Gbit/s, of which they offer this share, %.
    Star(u32, u64, u64),
    /// Figure 3.9a: D1 to D4 meet D0 on a link of 40 Gbit/s, D5 meets it on one of 10.
    Bottlenecks,
    /// Figure 3.9b: five senders of 40 Gbit/s and two of 100 to one of 100, which offer 90 % of that.
    Asymmetric,
    /// Figure 3.10: three senders to one of 10 Gbit/s, at line rate, or offering 10, 3 and 1 Gbit/s.
    Dpdk {
        /// Whether they offer 10, 3 and 1 Gbit/s.
        mix: bool,
    },
    /// Figure 3.11: three senders to one of 40 Gbit/s, at line rate, or offering 40, 30 and 10 Gbit/s.
    Tofino {
        /// Whether they offer 40, 30 and 10 Gbit/s.
        mix: bool,
    },
    /// Figure 3.6: 3 to 96 senders to one on links of 40 Gbit/s, a number that first grows, then shrinks, each 10 ms.
    Steps,
    /// §3.5.4.
    Datacenter(Traffic),
}

/// Number of senders in each step of Figure 3.6.
pub const STEPS: [u32; 11] = [3, 6, 12, 24, 48, 96, 48, 24, 12, 6, 3];
/// Length of a step, ns.
pub const STEP: u64 = 10_000_000;

/// Start and stop time of a sender of Figure 3.6, ns.
fn times_of(sender: u32) -> (u64, u64) {
    let takes_part = |step: &usize| sender < STEPS[*step];
    let first = (0..STEPS.len()).find(takes_part).unwrap_or(0);
    let last = (0..STEPS.len()).rfind(takes_part).unwrap_or(0);
    (first as u64 * STEP, (last as u64 + 1) * STEP)
}

/// A scenario.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scenario(pub Network, pub Control);

/// Parts of a network: hosts come before switches.
struct Parts {
    hosts: u32,
    switches: u32,
    /// Links: two nodes and Gbit/s.
    links: Vec<(u32, u32, u64)>,
    /// Flows: sender and receiver.
    flows: Vec<(u32, u32)>,
}

impl Network {
    fn parts(self) -> Parts {
        // The offered load is the rate of a sender's link.
        let star = |rates: &[u64], rate| {
            let n = rates.len() as u32;
            let senders = (0..n).zip(rates).map(|(host, &rate)| (host, n + 1, rate));
            let links = senders.chain([(n, n + 1, rate)]).collect();
            Parts { hosts: n + 1, switches: 1, links, flows: (0..n).map(|src| (src, n)).collect() }
        };
        match self {
            Network::Star(n, rate, percent) => star(&vec![rate * percent / 100; n as usize], rate),
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
            Network::Steps => star(&[40; STEPS[5] as usize], 40),
            Network::Datacenter(_) => Parts { hosts: 0, switches: 0, links: Vec::new(), flows: Vec::new() },
            Network::Asymmetric => {
                // "We run the experiment at 90% load".
                let senders = (0..7).map(|host| if host < 5 { (host, 8, 36) } else { (host, 9, 90) });
                let rest = [(7, 10, 100), (8, 10, 100), (9, 10, 100)];
                let flows = (0..7).map(|src| (src, 7)).collect();
                Parts { hosts: 8, switches: 3, links: senders.chain(rest).collect(), flows }
            }
        }
    }

    /// The congestion points, if they are not the paper's for the rate of the link, and the recovery timer that matches
    /// their period.
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
    /// Rate of the shared link, Gbit/s; for Figure 3.9a that of D0 and D5.
    pub fn rate(&self) -> u64 {
        match self.0 {
            Network::Star(_, rate, _) => rate,
            Network::Bottlenecks | Network::Dpdk { .. } => 10,
            Network::Asymmetric | Network::Datacenter(_) => 100,
            Network::Tofino { .. } | Network::Steps => 40,
        }
    }

    /// Reference length of the queue, bytes.
    pub fn qref(&self) -> u64 {
        self.0.points().0.of_link(self.rate() * G).qref
    }

    /// Returns the run with a seed, which ends at `until`, ns, and samples queues each `sample`, ns.
    pub fn config(&self, seed: u64, until: u64, sample: u64) -> Result<SimConfig, String> {
        if let Network::Datacenter(traffic) = self.0 {
            return traffic.config(self.1, seed, until);
        }
        let Parts { hosts, switches, links, flows } = self.0.parts();
        let link = |(a, b, rate)| LinkSpec { a, b, rate: rate * G, delay: DELAY, loss: 0.0 };
        // A NIC knows the rate of its own link.
        let rate_of = |host: u32| links.iter().find(|l| l.0 == host).map_or(0, |l| l.2);
        let mut lines: Vec<u64> = flows.iter().map(|flow| rate_of(flow.0)).collect();
        lines.sort_unstable();
        lines.dedup();
        let setup = |src| lines.iter().position(|line| *line == rate_of(src)).unwrap_or(0) as u16;
        let start = |src| if self.0 == Network::Steps { times_of(src).0 } else { 0 };
        let of = |(src, dst)| Flow { setup: setup(src), ..Flow::new(src, dst, ENDLESS, start(src)) };
        let flows = flows.iter().copied().map(of).collect();
        let links = links.iter().copied().map(link).collect();
        let (mut points, recovery) = self.0.points();
        if self.1 == Control::RoccWhole {
            points.fraction = Some(0);
        }
        let transport = format!("{}{}", self.1.transport(), if self.1.is_rocc() { recovery } else { "" });
        // Output queues, first in, first out. PFC of the evaluation: an input has 500 KB at 40 Gbit/s, 800 KB at 100;
        // here the equivalent share of a buffer of which little is used.
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
        experiment.rocc = self.1.is_rocc().then_some(points);
        experiment.ecn = self.1.ecn();
        experiment.until = Some(until);
        experiment.sample = Some(sample);
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        if self.0 == Network::Steps {
            let quits = config.flows.iter().map(|flow| times_of(flow.src).1).zip(0..);
            config.quits = quits.map(|(at, flow)| Quit { at, flow }).collect();
            config.quits.sort_by_key(|quit| quit.at);
        }
        Ok(config)
    }
}
