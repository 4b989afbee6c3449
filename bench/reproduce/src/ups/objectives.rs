//! Least slack time first for completion times and delays (§5.2.1 to §5.2.3): Figures 5.2 and 5.3 and Table 5.2. A row
//! of a table is one run of all its schedulers: only flows that complete under all of them count.

use std::collections::BTreeMap;

use irnic_fabric::experiment::{Buffers, Differing, Experiment};
use irnic_fabric::schedule::{Detail, Schedule};
use irnic_fabric::sim::{FlowRecord, HeaderBytes, Observe, Outcome, SimConfig};
use irnic_fabric::summary::percentile;
use irnic_fabric::switch::Discipline;
use irnic_fabric::workload::Flow;
use irnic_sweep::{NoResult, Watch};
use irnic_transports::Slack;
use irnic_transports::qp::Service;
use rayon::prelude::*;

use super::edge::{self, Edge};
use super::host;
use super::network::{Network, PAPERS, PAYLOAD};
use super::scheme::{HEADER, OTHERS, Scheme, TCPS};
use super::values::{Line, Values};
use crate::runs::simulate;

const MS: u64 = 1_000_000;
/// Buffer of a port in the wide area, in the datacenter, and for fairness, packets: 5 MB, 500 KB and 50 MB of full
/// ones, although acknowledgements count as well.
const WIDE: u32 = 3_425;
const DATACENTER: u32 = 342;
pub const FAIR: u32 = 34_250;
/// Rates of fair slack of Table 5.2, Mbit/s.
pub const RATES: [u64; 6] = [10, 50, 100, 200, 300, 500];
/// Maximum size of a short flow, packets.
const SHORT: u64 = 72;
/// Upper limit of "within 10 % of the best".
const REASONABLE: f64 = 1.1;

/// The objective of a row.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Mean completion time (Figure 5.2).
    Completion,
    /// One-way delay of packets of open-loop flows (Figure 5.3).
    Delay,
    /// Completion time over bytes (Table 5.2, Figure 5.7).
    Fairness,
    /// Queue management from the edge (§5.3).
    Edge(Edge),
}

/// A row.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub goal: Goal,
    pub network: Network,
    /// Load of the core links, %.
    pub load: u32,
    /// Whether TCP's handshake goes through the network; otherwise completion times include a round trip of the empty
    /// one.
    pub handshake: bool,
}

/// A flow's size in packets, and its completion times by scheme, s.
pub type Done = (u64, Vec<f64>);

/// Results of a scheme other than completion times of flows.
#[derive(Copy, Clone, Debug, Default)]
pub struct PacketStats {
    /// Packets dropped by switches, and by receiving NICs, % of all.
    pub dropped: f64,
    pub discarded: f64,
    /// Mean round trip over packets, ms, of [`Goal::Edge`].
    pub rtt: f64,
}

impl Row {
    fn schemes(&self) -> Vec<Scheme> {
        match self.goal {
            Goal::Completion => vec![Scheme::Fifo, Scheme::Srpt, Scheme::Sjf, Scheme::Size],
            Goal::Delay => vec![Scheme::Fifo, Scheme::Constant],
            Goal::Fairness => {
                let lstf = RATES.into_iter().map(Scheme::Fair);
                [Scheme::Fifo, Scheme::Fq].into_iter().chain(lstf).collect()
            }
            Goal::Edge(edge) => edge.schemes().into_iter().map(|(_, scheme)| scheme).collect(),
        }
    }

    /// Start and end of the flows that count, and end of the runs, ns.
    pub fn times(&self, quick: bool) -> [u64; 3] {
        let ms = match (self.goal, self.network, quick) {
            (Goal::Delay, Network::FatTree, false) => [20, 80, 80],
            (Goal::Delay, Network::FatTree, true) => [1, 4, 4],
            (_, Network::Internet2(.., 10), false) => [4_000, 16_000, 26_000],
            (_, Network::Internet2(.., 10), true) => [2_000, 7_000, 12_000],
            (Goal::Delay, _, false) => [500, 2_000, 2_000],
            (Goal::Delay, _, true) => [200, 700, 700],
            (Goal::Edge(_), Network::FatTree, false) => [50, 250, 400],
            (Goal::Edge(_), Network::FatTree, true) => [10, 40, 100],
            (_, Network::FatTree, false) => [100, 500, 1_000],
            (_, Network::FatTree, true) => [20, 70, 300],
            (_, Network::Internet2(..), false) => [1_000, 7_000, 10_000],
            (_, Network::Internet2(..), true) => [500, 1_500, 2_500],
        };
        ms.map(|ms| ms * MS)
    }

    /// Estimated relative run time.
    pub fn weight(&self, quick: bool) -> f64 {
        let rate = match self.network {
            Network::Internet2(_, _, by) => 1.0 / by as f64,
            Network::FatTree => 12.8,
        };
        self.times(quick)[2] as f64 / 1e9 * rate * f64::from(self.load) * self.schemes().len() as f64
    }

    /// The run of a scheme with a seed, with flows that start before `end`, ns.
    fn config(&self, scheme: Scheme, seed: u64, end: u64) -> Result<SimConfig, String> {
        let mut experiment = Experiment::default();
        let wire = if self.goal == Goal::Delay { OTHERS } else { TCPS };
        let (topology, queues) = self.network.with_host_queues(wire);
        experiment.topology = topology;
        experiment.flows = Some(self.network.flows(self.load, wire, seed, end)?);
        experiment.routing = self.network.routing();
        experiment.buffers = Buffers::OutputQueued(scheme.discipline());
        experiment.headers = HeaderBytes::Fixed(HEADER);
        // A host is a single FIFO queue, in which packets of LSTF lose no slack.
        experiment.differing = queues.map(|node| (node, Differing::Order(Discipline::Fifo))).collect();
        if self.goal == Goal::Delay {
            // A flow is handed over at once.
            experiment.quantum = 65_536;
            experiment.service = Service::Uc;
            experiment.transports = vec![scheme.transport("irn")?];
        } else {
            // Completion times of the text include a handshake.
            experiment.handshake = self.handshake;
            experiment.setup_rtts = u32::from(!self.handshake);
            experiment.transports = vec![scheme.tcp(self.handshake)?];
            if scheme.spacing().is_some() {
                // It is set by the hosts' queues.
                experiment.transports[0].config.slack = Slack::None;
            }
            experiment.until = Some(end);
        }
        if let Goal::Edge(edge) = self.goal {
            experiment.topology.links.iter_mut().for_each(|link| link.delay = edge.delay(link.delay));
        }
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        config.switch = scheme.switches(match (self.goal, self.network) {
            (Goal::Completion, Network::Internet2(..)) => Some(WIDE),
            (Goal::Completion | Goal::Edge(_), Network::FatTree) => Some(DATACENTER),
            (Goal::Fairness | Goal::Edge(_), _) => Some(FAIR),
            (Goal::Delay, _) => None,
        });
        for (_, switch) in &mut config.differing {
            *switch = host::queue(scheme);
        }
        if let Goal::Edge(_) = self.goal {
            let rounds = Observe { from: 0, segment: 1, interval: 0, to: None, latencies: false, rounds: false };
            config.observe = Some(rounds);
        }
        config.schedule = (self.goal == Goal::Delay).then_some(Detail::Ends);
        Ok(config)
    }

    /// All runs with a seed.
    #[cfg(test)]
    pub fn configs(&self, seed: u64, end: u64) -> Result<Vec<SimConfig>, String> {
        self.schemes().into_iter().map(|scheme| self.config(scheme, seed, end)).collect()
    }

    /// Runs it with a seed, with its schemes in parallel if there are cores.
    pub fn run(&self, quick: bool, seed: u64, watch: &Watch<'_>) -> Result<(Values, Vec<Line>), NoResult> {
        let [from, to, end] = self.times(quick);
        let schemes = self.schemes();
        let watch = watch.part(schemes.len());
        let simulated = |scheme: &Scheme| simulate(&watch, self.config(*scheme, seed, end).map_err(NoResult::Failed)?);
        if self.goal == Goal::Delay {
            let delays = each(&schemes, |scheme| {
                let outcome = simulated(scheme)?;
                if outcome.dropped.0 > 0 {
                    return Err(NoResult::Failed(format!("{} packets were dropped", outcome.dropped.0)));
                }
                let schedule = outcome.schedule.unwrap_or_default();
                Ok(of_packets(&schedule, &outcome.flows, from, to))
            })?;
            return Ok((delays_of(&delays), drawn(&schemes, |scheme| tail(&delays[scheme]))));
        }
        let (times, stats): (Vec<_>, Vec<PacketStats>) = each(&schemes, |scheme| {
            let outcome = simulated(scheme)?;
            Ok((completions(&outcome, from, to), PacketStats::of(&outcome)))
        })?
        .into_iter()
        .unzip();
        let all = times.first().map_or(0, Vec::len);
        let done = by_all(&times);
        let mut values = match self.goal {
            Goal::Completion => completion_of(&done),
            Goal::Fairness | Goal::Delay => fairness_of(&done),
            Goal::Edge(edge) => edge::values(edge, &done, &stats),
        };
        values.insert("left_out".to_owned(), (all - done.len()) as f64 / all.max(1) as f64 * 100.0);
        for (name, of) in [("fifo_dropped", stats.first()), ("lstf_dropped", stats.last())] {
            values.extend(of.map(|of| (name.to_owned(), of.dropped)));
        }
        let lines = match self.goal {
            Goal::Completion => drawn(&schemes, |scheme| by_size(&done, scheme)),
            Goal::Fairness => drawn(&schemes, |scheme| shares(&done, scheme)),
            Goal::Delay | Goal::Edge(_) => Vec::new(),
        };
        Ok((values, lines))
    }
}

/// The result of each scheme, in order.
fn each<T: Send>(
    schemes: &[Scheme],
    run: impl Fn(&Scheme) -> Result<T, NoResult> + Send + Sync,
) -> Result<Vec<T>, NoResult> {
    schemes.par_iter().with_max_len(1).map(run).collect()
}

impl PacketStats {
    fn of(outcome: &Outcome) -> PacketStats {
        let percent = |packets: u64| packets as f64 / outcome.injected.0.max(1) as f64 * 100.0;
        let trips = outcome.observed.as_ref().map_or(&[][..], |observed| &observed.round_trips);
        let rtt = trips.iter().map(|ns| *ns as f64 / 1e6).sum::<f64>() / trips.len().max(1) as f64;
        PacketStats { dropped: percent(outcome.dropped.0), discarded: percent(outcome.nics.rx_dropped), rtt }
    }
}

/// Sizes of the flows that started in a period, bytes, and their completion times, s.
fn completions(outcome: &Outcome, from: u64, to: u64) -> Vec<(u64, Option<f64>)> {
    let counted = outcome.flows.iter().zip(&outcome.records).filter(|(flow, _)| (from..to).contains(&flow.start));
    let time = |(flow, record): (&Flow, &FlowRecord)| {
        // In the authors' simulator, a flow ends when its sender knows that it has.
        let ns = record.acknowledged.map(|at| at - flow.start + record.setup);
        (flow.bytes, ns.map(|ns| ns as f64 / 1e9))
    };
    counted.map(time).collect()
}

/// The flows that complete under all schemes.
fn by_all(times: &[Vec<(u64, Option<f64>)>]) -> Vec<Done> {
    let flows = 0..times.first().map_or(0, Vec::len);
    let done = |at: usize| -> Option<Done> {
        let packets = times.first()?[at].0 / u64::from(PAYLOAD);
        Some((packets, times.iter().map(|scheme| scheme[at].1).collect::<Option<_>>()?))
    };
    flows.filter_map(done).collect()
}

/// Delays of packets of flows that started in a period, from when the whole flow was handed to its host, s, sorted.
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

/// A line for each scheme.
fn drawn(schemes: &[Scheme], line: impl Fn(usize) -> Vec<(f64, f64)>) -> Vec<Line> {
    schemes.iter().enumerate().map(|(at, scheme)| (scheme.name(), line(at))).collect()
}

/// The complementary distribution of delays, down to one in 10,000: twenty points per decade.
fn tail(sorted: &[f64]) -> Vec<(f64, f64)> {
    let longer = (0..=80).map(|step| 10f64.powf(-f64::from(step) / 20.0));
    let longer = longer.take_while(|share| share * sorted.len() as f64 >= 1.0);
    longer.filter_map(|share| Some((percentile(sorted, 1.0 - share)?, share))).collect()
}

/// Sizes of flows, KB, averaged between powers of two, and their mean completion time.
fn by_size(done: &[Done], scheme: usize) -> Vec<(f64, f64)> {
    let mut sums: BTreeMap<u32, (f64, f64, f64)> = BTreeMap::new();
    for (packets, times) in done {
        let sum = sums.entry(packets.max(&1).ilog2()).or_default();
        *sum = (sum.0 + 1.0, sum.1 + *packets as f64 * f64::from(PAPERS) / 1e3, sum.2 + times[scheme]);
    }
    sums.into_values().map(|(flows, kb, time)| (kb / flows, time / flows)).collect()
}

/// Completion times, sorted.
fn sorted(done: &[Done], scheme: usize) -> Vec<f64> {
    let mut all: Vec<f64> = done.iter().map(|(_, times)| times[scheme]).collect();
    all.sort_unstable_by(f64::total_cmp);
    all
}

/// The cumulative distribution of completion times.
fn shares(done: &[Done], scheme: usize) -> Vec<(f64, f64)> {
    let sorted = sorted(done, scheme);
    (0..=100).filter_map(|n| Some((percentile(&sorted, f64::from(n) / 100.0)?, f64::from(n) / 100.0))).collect()
}

/// The weighted mean of a scheme over flows.
pub fn mean(done: &[Done], scheme: usize, weight: impl Fn(u64) -> f64) -> f64 {
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
        let sorted = sorted(done, at);
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
    fn flows_that_a_scheme_does_not_complete_do_not_count() {
        let sizes = [1_024, 2_048, 102_400];
        let times = [[3.0, 2.5, 5.0], [2.0, 2.5, 4.0], [1.0, -1.0, 3.0], [1.0, 2.5, 3.5]].map(|scheme: [f64; 3]| {
            sizes.into_iter().zip(scheme.map(|time| (time > 0.0).then_some(time))).collect::<Vec<_>>()
        });
        let done = by_all(&times);
        assert_eq!(done, [(1, vec![3.0, 2.0, 1.0, 1.0]), (100, vec![5.0, 4.0, 3.0, 3.5])]);
        let values = completion_of(&done);
        assert_eq!((values["fifo_s"], values["lstf_s"], values["fifo_short_s"]), (4.0, 2.25, 3.0));
        assert_eq!(values["lstf_over_sjf"], 1.125);
    }

    #[test]
    fn lines_are_of_sizes_and_of_shares() {
        let done: Vec<Done> = vec![(2, vec![1.0]), (3, vec![3.0]), (100, vec![9.0])];
        assert_eq!(by_size(&done, 0), [(2.5 * 1.46, 2.0), (146.0, 9.0)]);
        assert_eq!(shares(&done, 0).first(), Some(&(1.0, 0.0)));
        assert_eq!(shares(&done, 0).last(), Some(&(9.0, 1.0)));
        let delays: Vec<f64> = (1..=1_000).map(f64::from).collect();
        let tail = tail(&delays);
        assert_eq!((tail[0], tail[20], tail.len()), ((1.0, 1.0), (900.0, 0.1), 61));
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
