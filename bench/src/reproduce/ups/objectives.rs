//! What least slack time first does for completion times and delays (§5.2.1 to §5.2.3): Figures 5.2 and 5.3 and Table
//! 5.2. A row of a table is one run, of all its schedulers one after the other: only flows that all of them complete
//! count.

use std::path::Path;

use irnic_fabric::experiment::{Experiment, Transport};
use irnic_fabric::schedule::{Detail, Schedule};
use irnic_fabric::sim::{HeaderBytes, Outcome, Routing, SimConfig};
use irnic_fabric::summary::percentile;
use irnic_fabric::switch::{Discipline, OutputQueuedConfig, SwitchConfig};
use irnic_fabric::topology::{Internet2, Topology};
use irnic_fabric::workload::cdf::{self, Reading};
use irnic_fabric::workload::poisson::{Pair, between};
use irnic_fabric::workload::{Flow, Sizes};
use irnic_transports::Slack;
use irnic_transports::qp::Service;

use super::parts::Values;
use super::scenario::{Network, SIZES};
use crate::reproduce::runs::simulate;
use crate::sweep::{NoResult, Watch};

const MS: u64 = 1_000_000;
const G: u64 = 1_000_000_000;
/// Payload of a packet, and bytes around it, which are all of an acknowledgement: as large a part of a packet as 40 of
/// 1460.
pub const PAYLOAD: u32 = 1_024;
pub const HEADER: u32 = 29;
/// Bytes on the wire of the text's packets.
pub const PAPERS: u64 = 1_460;
/// Buffers of a port in the wide area, in the datacenter, for fairness, and where nothing is to be dropped, bytes.
const WIDE: u64 = 5_000_000;
const DATACENTER: u64 = 500_000;
pub const FAIR: u64 = 50_000_000;
const ROOM: u64 = 1 << 40;
/// Slack that is more than any queue takes, ns.
const LONG: u64 = G;
/// Rates that packets of fair slack are spaced by, Mbit/s, of Table 5.2.
pub const RATES: [u64; 6] = [10, 50, 100, 200, 300, 500];
/// The longest of the flows that are called short, packets.
const SHORT: u64 = 72;
/// Most that is within "10 % of the best".
const REASONABLE: f64 = 1.1;

/// Bytes of the text, or bit/s, as packets here have them: each takes the time that it takes there.
pub fn scaled(papers: u64) -> u64 {
    (u128::from(papers) * u128::from(PAYLOAD + HEADER) / u128::from(PAPERS)) as u64
}

/// What switches do, and senders ask for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    Fifo,
    Fq,
    /// Shortest remaining first, packets of a flow in order.
    Srpt,
    /// Shortest job first, by priorities.
    Sjf,
    /// LSTF with slack by the flow's size.
    Size,
    /// LSTF with the same slack for all.
    Constant,
    /// LSTF with fair slack, of so many Mbit/s.
    Fair(u64),
}

impl Scheme {
    fn discipline(self) -> Discipline {
        match self {
            Scheme::Fifo => Discipline::Fifo,
            Scheme::Fq => Discipline::Fair,
            Scheme::Srpt => Discipline::ShortestFlow,
            Scheme::Sjf => Discipline::Rank,
            Scheme::Size | Scheme::Constant | Scheme::Fair(_) => Discipline::LeastSlack,
        }
    }

    /// Slack of a sender.
    pub fn slack(self) -> Slack {
        match self {
            Scheme::Fifo | Scheme::Fq => Slack::None,
            Scheme::Srpt => Slack::Remaining(LONG),
            Scheme::Sjf | Scheme::Size => Slack::Size(LONG),
            Scheme::Constant => Slack::Constant(LONG),
            // Slack goes by payload, all of a packet in the text.
            Scheme::Fair(mbps) => Slack::Fair(mbps * 1_000_000 * u64::from(PAYLOAD) / PAPERS),
        }
    }

    /// Switches with so many bytes of the text's for each port.
    pub fn switches(self, buffer: u64) -> SwitchConfig {
        let buffer = if buffer == ROOM { ROOM } else { scaled(buffer) };
        SwitchConfig::OutputQueued(OutputQueuedConfig::new(buffer, self.discipline()))
    }

    /// TCP, or what open loops have for a transport.
    pub fn transport(self, text: &str) -> Result<Transport, String> {
        let mut transport: Transport = text.parse().map_err(|e| format!("{text}: {e}"))?;
        transport.config.slack = self.slack();
        Ok(transport)
    }
}

/// TCP as the authors' scripts have it: two packets at first, 200 ms the least timeout.
pub const TCP: &str = "iwarp,cc.initial=2,rto-min=200ms,rto-max=60s";

/// What a row is of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Mean completion time (Figure 5.2).
    Completion,
    /// One-way delay of packets of open-loop flows (Figure 5.3).
    Delay,
    /// Completion time over bytes (Table 5.2, Figure 5.7).
    Fairness,
}

/// A row.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub goal: Goal,
    pub network: Network,
    /// Per cent of the core links.
    pub load: u32,
}

/// A flow's size in packets, and completion times by scheme, s.
type Done = (u64, Vec<f64>);

impl Row {
    fn schemes(&self) -> Vec<Scheme> {
        match self.goal {
            Goal::Completion => vec![Scheme::Fifo, Scheme::Srpt, Scheme::Sjf, Scheme::Size],
            Goal::Delay => vec![Scheme::Fifo, Scheme::Constant],
            Goal::Fairness => {
                let lstf = RATES.into_iter().map(Scheme::Fair);
                [Scheme::Fifo, Scheme::Fq].into_iter().chain(lstf).collect()
            }
        }
    }

    /// When flows begin to count, when they cease to, and when runs end, ns.
    pub fn times(&self, quick: bool) -> [u64; 3] {
        let ms = match (self.goal, self.network, quick) {
            (Goal::Delay, Network::FatTree, false) => [20, 80, 80],
            (Goal::Delay, Network::FatTree, true) => [5, 20, 20],
            (Goal::Delay, _, false) => [500, 2_000, 2_000],
            (Goal::Delay, _, true) => [200, 700, 700],
            (_, Network::FatTree, false) => [100, 500, 1_000],
            (_, Network::FatTree, true) => [20, 70, 300],
            (_, Network::Internet2(.., 10), false) => [4_000, 16_000, 26_000],
            (_, Network::Internet2(.., 10), true) => [2_000, 7_000, 12_000],
            (_, Network::Internet2(..), false) => [1_000, 7_000, 10_000],
            (_, Network::Internet2(..), true) => [500, 1_500, 2_500],
        };
        ms.map(|ms| ms * MS)
    }

    /// How long it takes beside the others.
    pub fn weight(&self, quick: bool) -> f64 {
        let rate = match self.network {
            Network::Internet2(_, _, by) => 1.0 / by as f64,
            Network::FatTree => 12.8,
        };
        self.times(quick)[2] as f64 / 1e9 * rate * f64::from(self.load) * self.schemes().len() as f64
    }

    fn topology(&self) -> Topology {
        match self.network {
            Network::Internet2(host, edge, by) => {
                let [rate, host, access] = [1, host, edge].map(|rate| scaled(rate * G) / by);
                Topology::internet2(&Internet2 { rate, host, access, ..Internet2::default() })
            }
            Network::FatTree => Topology::fat_tree(8, scaled(10 * G), 1_000),
        }
    }

    /// Poisson arrivals, to hosts at other cores.
    fn flows(&self, topology: &Topology, seed: u64, duration: u64) -> Result<Vec<Flow>, String> {
        let (group, nominal) = match self.network {
            Network::Internet2(_, _, by) => (10, G / by),
            Network::FatTree => (1, 10 * G),
        };
        let hosts = topology.hosts;
        let rate = scaled(nominal) as f64 * f64::from(self.load) / 100.0 / f64::from(hosts - group);
        let all = (0..hosts).flat_map(|src| (0..hosts).map(move |dst| (src, dst)));
        let apart = all.filter(|(src, dst)| src / group != dst / group);
        let pairs: Vec<Pair> = apart.map(|(src, dst)| Pair { src, dst, rate, class: 0 }).collect();
        let reading = Reading { unit: PAYLOAD.into(), discrete: true };
        let sizes: Sizes = cdf::parse(Path::new("ups"), SIZES, reading).map_err(|e| e.to_string())?;
        Ok(between(&sizes, &pairs, duration, seed, PAYLOAD, HEADER))
    }

    /// The run of a scheme with a seed, of flows that start before an end, ns.
    fn config(&self, scheme: Scheme, seed: u64, end: u64) -> Result<SimConfig, String> {
        let mut experiment = Experiment::default();
        experiment.topology = self.topology();
        experiment.flows = Some(self.flows(&experiment.topology, seed, end)?);
        if let Network::Internet2(..) = self.network {
            experiment.routing = Routing::Lowest;
        }
        experiment.headers = HeaderBytes::Fixed(HEADER);
        // A host is one queue, first come, first served.
        experiment.quantum = 65_536;
        if self.goal == Goal::Delay {
            experiment.service = Service::Uc;
            experiment.transports = vec![scheme.transport("irn")?];
        } else {
            // A handshake, which completion times of the text include.
            experiment.setup_rtts = 1;
            experiment.transports = vec![scheme.transport(TCP)?];
            experiment.until = Some(end);
        }
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        config.switch = scheme.switches(match (self.goal, self.network) {
            (Goal::Completion, Network::Internet2(..)) => WIDE,
            (Goal::Completion, Network::FatTree) => DATACENTER,
            (Goal::Fairness, _) => FAIR,
            (Goal::Delay, _) => ROOM,
        });
        config.schedule = (self.goal == Goal::Delay).then_some(Detail::Ends);
        Ok(config)
    }

    /// All runs with a seed.
    #[cfg(test)]
    pub fn configs(&self, seed: u64, end: u64) -> Result<Vec<SimConfig>, String> {
        self.schemes().into_iter().map(|scheme| self.config(scheme, seed, end)).collect()
    }

    /// Runs it with a seed.
    pub fn run(&self, quick: bool, seed: u64, watch: &Watch<'_>) -> Result<Values, NoResult> {
        let [from, to, end] = self.times(quick);
        let config = |scheme| self.config(scheme, seed, end).map_err(NoResult::Failed);
        if self.goal == Goal::Delay {
            let mut delays = Vec::new();
            for scheme in self.schemes() {
                let outcome = simulate(watch, config(scheme)?)?;
                if outcome.dropped.0 > 0 {
                    return Err(NoResult::Failed(format!("{} packets were dropped", outcome.dropped.0)));
                }
                let schedule = outcome.schedule.unwrap_or_default();
                delays.push(of_packets(&schedule, &outcome.flows, from, to));
            }
            return Ok(delays_of(&delays));
        }
        let mut flows: Vec<(u64, Vec<Option<f64>>)> = Vec::new();
        let mut dropped = Vec::new();
        for scheme in self.schemes() {
            let outcome = simulate(watch, config(scheme)?)?;
            dropped.push(outcome.dropped.0 as f64 / outcome.injected.0.max(1) as f64 * 100.0);
            add(&mut flows, &outcome, from, to);
        }
        let all = flows.len();
        let of = |(bytes, times): (u64, Vec<Option<f64>>)| -> Option<Done> {
            Some((bytes / u64::from(PAYLOAD), times.into_iter().collect::<Option<_>>()?))
        };
        let done: Vec<Done> = flows.into_iter().filter_map(of).collect();
        let mut values = match self.goal {
            Goal::Completion => completion_of(&done),
            Goal::Fairness | Goal::Delay => fairness_of(&done),
        };
        values.insert("left_out".to_owned(), (all - done.len()) as f64 / all.max(1) as f64 * 100.0);
        for (name, dropped) in [("fifo_dropped", dropped[0]), ("lstf_dropped", dropped[dropped.len() - 1])] {
            values.insert(name.to_owned(), dropped);
        }
        Ok(values)
    }
}

/// Adds the completion times of one more scheme to flows that started in a time.
fn add(flows: &mut Vec<(u64, Vec<Option<f64>>)>, outcome: &Outcome, from: u64, to: u64) {
    let counted = outcome.flows.iter().zip(&outcome.records).filter(|(flow, _)| (from..to).contains(&flow.start));
    let first = flows.is_empty();
    for (at, (flow, record)) in counted.enumerate() {
        if first {
            flows.push((flow.bytes, Vec::new()));
        }
        flows[at].1.push(record.fct(flow).map(|ns| ns as f64 / 1e9));
    }
}

/// Delays of packets of flows that started in a time, from when all of the flow was handed to its host, s, in order.
fn of_packets(schedule: &Schedule, flows: &[Flow], from: u64, to: u64) -> Vec<f64> {
    let delay = |packet: &irnic_fabric::schedule::Scheduled| {
        let start = flows[packet.flow as usize].start;
        (from..to).contains(&start).then(|| packet.left.saturating_sub(start) as f64 / 1e9)
    };
    let mut all: Vec<f64> = schedule.packets().iter().filter_map(delay).collect();
    all.sort_unstable_by(f64::total_cmp);
    all
}

fn delays_of(delays: &[Vec<f64>]) -> Values {
    let mut values = Values::new();
    let mut of = |name: &str, value: f64| values.insert(name.to_owned(), value);
    let [fifo, lstf] = [0, 1].map(|at| {
        let sorted = &delays[at];
        let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
        (mean, percentile(sorted, 0.99).unwrap_or(f64::NAN))
    });
    of("fifo_avg_s", fifo.0);
    of("lstf_avg_s", lstf.0);
    of("fifo_p99_s", fifo.1);
    of("lstf_p99_s", lstf.1);
    of("avg_over_fifo", lstf.0 / fifo.0);
    of("p99_over_fifo", lstf.1 / fifo.1);
    values
}

/// The mean of a scheme over flows, each with a weight.
fn mean(done: &[Done], scheme: usize, weight: impl Fn(u64) -> f64) -> f64 {
    let all: f64 = done.iter().map(|(packets, _)| weight(*packets)).sum();
    done.iter().map(|(packets, times)| weight(*packets) * times[scheme]).sum::<f64>() / all
}

fn completion_of(done: &[Done]) -> Values {
    let mut values = Values::new();
    let means: Vec<f64> = (0..4).map(|scheme| mean(done, scheme, |_| 1.0)).collect();
    for (at, name) in ["fifo", "srpt", "sjf", "lstf"].into_iter().enumerate() {
        values.insert(format!("{name}_s"), means[at]);
        values.insert(format!("{name}_short_s"), mean(done, at, |packets| f64::from(u8::from(packets <= SHORT))));
    }
    values.insert("lstf_over_sjf".to_owned(), means[3] / means[2]);
    values.insert("lstf_over_fifo".to_owned(), means[3] / means[0]);
    values.insert("srpt_over_fifo".to_owned(), means[1] / means[0]);
    values
}

fn fairness_of(done: &[Done]) -> Values {
    let mut values = Values::new();
    let schemes = 2 + RATES.len();
    let means: Vec<f64> = (0..schemes).map(|scheme| mean(done, scheme, |packets| packets as f64)).collect();
    let names = ["fifo".to_owned(), "fq".to_owned()].into_iter().chain(RATES.iter().map(|r| format!("lstf{r}")));
    for (at, name) in names.enumerate() {
        let mut sorted: Vec<f64> = done.iter().map(|(_, times)| times[at]).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        values.insert(format!("{name}_s"), means[at]);
        values.insert(format!("{name}_short_s"), mean(done, at, |packets| f64::from(u8::from(packets <= SHORT))));
        values.insert(format!("{name}_p99_s"), percentile(&sorted, 0.99).unwrap_or(f64::NAN));
    }
    let of = |name: &str| values[name];
    let ratios = [
        ("fq_short_over_fifo", of("fq_short_s") / of("fifo_short_s")),
        ("lstf10_p99_over_fq", of("lstf10_p99_s") / of("fq_p99_s")),
        ("lstf500_over_fifo", of("lstf500_s") / of("fifo_s")),
    ];
    for (name, value) in ratios {
        values.insert(name.to_owned(), value);
    }
    let lstf = &means[2..];
    let best = (0..lstf.len()).min_by(|a, b| lstf[*a].total_cmp(&lstf[*b])).unwrap_or(0);
    let within = |at: &usize| lstf[*at] <= REASONABLE * lstf[best];
    let least = (0..lstf.len()).find(within).unwrap_or(best);
    let most = (0..lstf.len()).rev().find(within).unwrap_or(best);
    for (name, value) in [
        ("lstf_s", lstf[best]),
        ("best_mbps", RATES[best] as f64),
        ("least_mbps", RATES[least] as f64),
        ("most_mbps", RATES[most] as f64),
        ("lstf_over_fq", lstf[best] / means[1]),
        ("lstf_over_fifo", lstf[best] / means[0]),
        ("fq_over_fifo", means[1] / means[0]),
    ] {
        values.insert(name.to_owned(), value);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_take_the_time_that_the_texts_take() {
        let times = [scaled(G), scaled(10 * G)].map(|rate| u64::from(PAYLOAD + HEADER) * 8 * G / rate);
        assert_eq!(times, [11_680, 1_168]);
        // As do packets of 1460 bytes at 100 Mbit/s.
        let Slack::Fair(bps) = Scheme::Fair(100).slack() else { panic!("no rate") };
        assert_eq!(u64::from(PAYLOAD) * 8 * G / bps, 116_800);
    }

    #[test]
    fn flows_that_a_scheme_does_not_complete_do_not_count() {
        let done: Vec<Done> = vec![(1, vec![3.0, 2.0, 1.0, 1.0]), (100, vec![5.0, 4.0, 3.0, 3.5])];
        let values = completion_of(&done);
        assert_eq!((values["fifo_s"], values["lstf_s"], values["fifo_short_s"]), (4.0, 2.25, 3.0));
        assert_eq!(values["lstf_over_sjf"], 1.125);
    }

    #[test]
    fn the_best_rate_is_that_of_the_lowest_mean_over_bytes() {
        let times = vec![9.0, 5.0, 8.0, 6.5, 6.0, 6.4, 7.0, 8.0];
        let values = fairness_of(&[(100, times.clone()), (300, times)]);
        let of = |name: &str| values[name];
        assert_eq!([of("best_mbps"), of("least_mbps"), of("most_mbps")], [100.0, 50.0, 200.0]);
        assert_eq!([of("fq_s"), of("lstf_s"), of("lstf_over_fq"), of("lstf10_p99_s")], [5.0, 6.0, 1.2, 8.0]);
    }
}
