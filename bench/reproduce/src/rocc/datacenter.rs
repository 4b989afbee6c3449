//! The large network (§3.5.4): two leaves of 30 senders each, 30 receivers behind a third, three spines between them,
//! and its measurements.

use irnic_fabric::experiment::{Buffers, Experiment, SharedBuffers};
use irnic_fabric::network::{Network, PortId};
use irnic_fabric::sim::{NicEndpoint, Outcome, QpPolicy, Routing, SimConfig};
use irnic_fabric::summary::percentile;
use irnic_fabric::switch::{RoccConfig, SharedBuffer, SwitchConfig};
use irnic_fabric::topology::{LinkSpec, Topology};
use irnic_fabric::workload::cdf;
use irnic_sweep::{NoResult, Watch};
use serde::{Deserialize, Serialize};

use super::scenario::{Control, DELAY, G, Time};
use crate::runs::watched;

/// Hosts of a leaf, and numbers of leaves and spines.
const HOSTS: u32 = 30;
const LEAVES: u32 = 3;
const SPINES: u32 = 3;
/// The first leaf's node, and the first spine's.
const LEAF: u32 = HOSTS * LEAVES;
const SPINE: u32 = LEAF + LEAVES;
/// The leaf of the receivers.
const LAST: u32 = SPINE - 1;
/// Buffer of a switch, bytes, mostly unused because of PFC, and of one without a limit.
const BUFFER: u64 = 100_000_000;
const UNLIMITED: u64 = 100_000_000_000;
/// Bytes of an input at which its neighbour is resumed: from the authors' settings.
const XON: u64 = 10_000;
/// Number of samples of rates and queues during the measurement.
const SAMPLES: u64 = 200;
/// Events between checks whether a sample is due.
const SLICE: u64 = 5_000;

/// Traffic.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Distribution of flow sizes.
    pub sizes: Sizes,
    /// Pause of a pair between two flows.
    pub sleep: Sleep,
    /// Whether buffers are unlimited, without PFC (Figure 3.15).
    pub unlimited: bool,
    /// Whether each flow has its own queue pair, starting at line rate, instead of its pair's.
    pub fresh: bool,
}

impl Traffic {
    /// Returns the traffic of the evaluation.
    pub fn new(sizes: Sizes, sleep: Sleep) -> Traffic {
        Traffic { sizes, sleep, unlimited: false, fresh: false }
    }
}

/// Distributions of the evaluation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    WebSearch,
    Hadoop,
}

/// Mean pause of a pair between two flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Such that a host offers this share of its link, %.
    Load(u32),
    /// Fixed mean, ns.
    Time(u64),
}

impl Sizes {
    /// Returns the distribution's name.
    pub fn name(self) -> &'static str {
        match self {
            Sizes::WebSearch => "WebSearch",
            Sizes::Hadoop => "RoccHadoop",
        }
    }

    /// Returns the upper limits of the bins of flow sizes except the last, bytes.
    fn edges(self) -> [u64; 3] {
        match self {
            Sizes::WebSearch => [30_000, 200_000, 2_000_000],
            Sizes::Hadoop => [350, 6_326, 25_000],
        }
    }
}

impl Traffic {
    /// Returns the mean pause, ns.
    fn sleep(self) -> u64 {
        const LINE: f64 = 40e9;
        match self.sleep {
            Sleep::Time(ns) => ns,
            Sleep::Load(percent) => {
                let bits = 8.0 * cdf::builtin(self.sizes.name(), Some(true)).map_or(0.0, |sizes| sizes.mean());
                // An unhindered flow leaves at the rate of the link.
                let period = bits * f64::from(HOSTS) / (LINE * f64::from(percent) / 100.0);
                ((period - bits / LINE) * 1e9) as u64
            }
        }
    }

    /// Returns the times of a run: for web search those required by large flows, for the other those required by many.
    pub fn time(self, Time { warm_up, measured }: Time) -> Time {
        let (before, during) = match self.sizes {
            Sizes::WebSearch => (2.0, 3.0),
            // Tens of thousands of queue pairs are slow.
            Sizes::Hadoop if self.fresh => (0.05, 0.05),
            Sizes::Hadoop => (0.2, 0.2),
        };
        Time { warm_up: (warm_up as f64 * before) as u64, measured: (measured as f64 * during) as u64 }
    }

    /// Returns the run with a seed, which ends at `until`, ns.
    pub fn config(self, control: Control, seed: u64, until: u64) -> Result<SimConfig, String> {
        let parse = |text: String| text.parse().map_err(|e| format!("{text}: {e}"));
        let mut experiment = Experiment::default();
        experiment.topology = topology();
        let (sleep, sizes) = (self.sleep(), self.sizes.name());
        let (senders, receivers) = (2 * HOSTS - 1, LEAF - 1);
        let workload = format!(
            "closed-loop:from=0-{senders},to={}-{receivers},after=sent,mean={sleep}ns,cdf={sizes},discrete=on",
            senders + 1
        );
        experiment.workload = workload.parse().map_err(|e| format!("{workload}: {e}"))?;
        experiment.duration = Some(until);
        experiment.until = Some(until);
        experiment.transports = vec![parse(format!("{},line-rate=40G", control.transport()))?];
        // By destination, the numbers of flows on links are as in the text: 150 up, 300 down.
        experiment.routing = Routing::Static;
        experiment.qps = if self.fresh { QpPolicy::PerFlow } else { QpPolicy::Reused };
        experiment.rocc = control.is_rocc().then(RoccConfig::default);
        experiment.pfc = !self.unlimited;
        let mut shared = SharedBuffers::default();
        // Without PFC: a queue may take all free space.
        shared.alpha = 1e6;
        experiment.buffer = Some(if self.unlimited { UNLIMITED } else { BUFFER });
        experiment.buffers = Buffers::Shared(shared);
        experiment.ecn = control.ecn();
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        if !self.unlimited {
            by_link(&mut config);
        }
        Ok(config)
    }

    /// Runs it with a seed.
    pub fn run(self, control: Control, time: Time, seed: u64, watch: &Watch<'_>) -> Result<Datacenter, NoResult> {
        let time = self.time(time);
        let until = time.warm_up + time.measured;
        let config = self.config(control, seed, until).map_err(NoResult::Failed)?;
        let mut samples = Samples::default();
        let every = (time.measured / SAMPLES).max(1);
        let mut next = time.warm_up;
        let outcome = watched(watch, config, SLICE, |simulation| {
            if simulation.now() >= next {
                samples.sample(simulation.network());
                next += every;
            }
        })?;
        Ok(samples.conclude(self.sizes, time, &outcome))
    }
}

fn topology() -> Topology {
    let link = |a, b, rate| LinkSpec { a, b, rate: rate * G, delay: DELAY, loss: 0.0 };
    let hosts = (0..LEAF).map(|host| link(host, LEAF + host / HOSTS, 40));
    let up = (LEAF..SPINE).flat_map(|leaf| (SPINE..SPINE + SPINES).map(move |spine| (leaf, spine)));
    let up = up.flat_map(|(leaf, spine)| [link(leaf, spine, 100); 2]);
    let links = hosts.chain(up).collect();
    Topology { name: "rocc".to_owned(), hosts: LEAF, switches: LEAVES + SPINES, links, ids: Vec::new() }
}

/// PFC by the rate of the incoming links: 500 KB of an input of 40 Gbit/s, 800 KB of one of 100.
fn by_link(config: &mut SimConfig) {
    let SwitchConfig::SharedBuffer(base) = &config.switch else { return };
    let with = |xoff: u64| {
        let mut switch = base.clone();
        if let Some(pfc) = &mut switch.pfc {
            (pfc.alpha, pfc.resume) = (xoff as f64 / BUFFER as f64, xoff - XON);
        }
        switch
    };
    let (slow, fast) = (with(500_000), with(800_000));
    config.switch = SwitchConfig::custom(move |node, ports| {
        let senders = (LEAF..LAST).contains(&node);
        Box::new(SharedBuffer::new(if senders { &slow } else { &fast }, ports))
    });
}

/// Ports of one kind: from leaves to spines, from spines to the receivers' leaf, and from that to its hosts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Tier {
    Ingress,
    Core,
    Egress,
}

impl Tier {
    fn of(from: u32, to: u32) -> Option<Tier> {
        match (from, to) {
            (LEAF..LAST, SPINE..) => Some(Tier::Ingress),
            (SPINE.., LAST) => Some(Tier::Core),
            (LAST, ..LEAF) => Some(Tier::Egress),
            _ => None,
        }
    }
}

/// Sum, sum of squares and count.
#[derive(Copy, Clone, Debug, Default)]
struct Moments([f64; 3]);

impl Moments {
    fn add(&mut self, value: f64) {
        let more = [value, value * value, 1.0];
        self.0.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }

    fn mean_and_deviation(&self) -> (f64, f64) {
        let [sum, squares, n] = self.0;
        let mean = sum / n.max(1.0);
        (mean, (squares / n.max(1.0) - mean * mean).max(0.0).sqrt())
    }
}

/// Samples taken during the run.
#[derive(Debug, Default)]
struct Samples {
    /// Rates of pairs with something to send, Mbit/s.
    rates: Moments,
    count: f64,
    /// Queues by tier, bytes.
    queues: [Moments; 3],
    /// Bytes in all switches.
    buffered: Moments,
    /// Time of the first sample, ns; bytes sent to the receivers' leaf, XOFF frames by tier, and bytes of packets
    /// created by switches until then.
    began: Option<(u64, u64, [u64; 3], u64)>,
}

impl Samples {
    fn sample(&mut self, network: &Network<NicEndpoint>) {
        const LINE: f64 = 40_000.0;
        self.count += 1.0;
        if self.began.is_none() {
            let links: Vec<_> = network.links().map(|link| (link.from, link.to, link.counters)).collect();
            let (bytes, pauses) = sent(links.iter().map(|(from, to, c)| (*from, *to, c.bytes, c.pauses)));
            self.began = Some((network.now(), bytes, pauses, network.totals().emitted_bytes));
        }
        for qp in (0..2 * HOSTS).flat_map(|host| network.endpoint(host).nic().qps()) {
            if qp.send_queue_len() > 0
                && let Some(metrics) = qp.controller_metrics()
            {
                self.rates.add(if metrics.rate == 0 { LINE } else { metrics.rate as f64 / 1e6 });
            }
        }
        for port in 0..network.ports().len() as PortId {
            let (from, to) = network.nodes_of(port);
            if let Some(tier) = Tier::of(from, to) {
                self.queues[tier as usize].add(network.backlog_of(port) as f64);
            }
        }
        self.buffered.add(network.backlog().0 as f64);
    }

    fn conclude(self, sizes: Sizes, time: Time, outcome: &Outcome) -> Datacenter {
        let (from, before, pauses, notices) = self.began.unwrap_or_default();
        let links = outcome.links.iter().map(|link| (link.from, link.to, link.counters.bytes, link.counters.pauses));
        let (bytes, paused) = sent(links);
        let ns = outcome.ended.saturating_sub(from).max(1) as f64;
        let per_ms = |tier: usize| (paused[tier] - pauses[tier]) as f64 * 1e6 / ns;
        let (rate, deviation) = self.rates.mean_and_deviation();
        let core = f64::from(SPINES) * 200e9;
        let mut bins: [Vec<f64>; 4] = Default::default();
        for (flow, record) in outcome.flows.iter().zip(&outcome.records) {
            let ended = record.delivered.filter(|at| *at > time.warm_up);
            if let Some(at) = ended {
                let bin = sizes.edges().partition_point(|edge| *edge < flow.bytes);
                bins[bin].push((at - flow.start) as f64 / 1e3);
            }
        }
        Datacenter {
            rate,
            deviation,
            active: self.rates.0[2] / self.count.max(1.0),
            used: (bytes - before) as f64 * 8.0 / (ns * 1e-9) / core * 100.0,
            queues: self.queues.map(|queue| queue.mean_and_deviation().0 / 1e3),
            buffered: self.buffered.mean_and_deviation().0 / 1e3,
            pauses: [0, 1, 2].map(per_ms),
            notices: (outcome.emitted.1 - notices) as f64 * 8e3 / ns,
            dropped: outcome.dropped.0 as f64,
            bins: bins.map(Bin::of),
        }
    }
}

/// Bytes sent by spines to the receivers' leaf, and XOFF frames by the tier of the switches whose inputs were full.
fn sent(links: impl Iterator<Item = (u32, u32, u64, u64)>) -> (u64, [u64; 3]) {
    let mut all = (0, [0; 3]);
    for (from, to, bytes, pauses) in links {
        if Tier::of(from, to) == Some(Tier::Core) {
            all.0 += bytes;
        }
        let tier = match from {
            LEAF..LAST => Tier::Ingress,
            LAST => Tier::Egress,
            SPINE.. => Tier::Core,
            _ => continue,
        };
        all.1[tier as usize] += pauses;
    }
    all
}

/// Completion times of flows in a range of sizes, µs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    pub flows: u64,
    pub mean: f64,
    pub p99: f64,
}

impl Bin {
    fn of(mut times: Vec<f64>) -> Bin {
        times.sort_unstable_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
        Bin { flows: times.len() as u64, mean, p99: percentile(&times, 0.99).unwrap_or(0.0) }
    }
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Datacenter {
    /// Mean rate of senders of pairs with something to send, and its standard deviation, Mbit/s.
    pub rate: f64,
    /// See `rate`.
    pub deviation: f64,
    /// Mean number of pairs with something to send.
    pub active: f64,
    /// Utilization of the links to the receivers' leaf, %.
    pub used: f64,
    /// Mean queues of ports by tier, KB.
    pub queues: [f64; 3],
    /// Mean bytes in all switches, KB.
    pub buffered: f64,
    /// XOFF frames of switches by tier per ms.
    pub pauses: [f64; 3],
    /// Rate of notices, Mbit/s.
    pub notices: f64,
    /// Packets dropped.
    pub dropped: f64,
    /// Completion times of the flows that ended, by size.
    pub bins: [Bin; 4],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_shares_of_the_senders_links() {
        // 30 pairs, 2.43 MB and 487 bytes on average, minus the time in which a flow leaves at 40 Gbit/s.
        let sleep = |sizes, percent| Traffic::new(sizes, Sleep::Load(percent)).sleep() as f64;
        assert!((sleep(Sizes::WebSearch, 70) - 20.3e6).abs() < 0.1e6, "{}", sleep(Sizes::WebSearch, 70));
        assert!((sleep(Sizes::Hadoop, 70) - 4_077.0).abs() < 5.0, "{}", sleep(Sizes::Hadoop, 70));
        assert_eq!(Traffic::new(Sizes::Hadoop, Sleep::Time(7)).sleep(), 7);
    }

    #[test]
    fn each_pair_crosses_four_links_and_tiers_are_told_apart() {
        let topology = topology();
        assert_eq!((topology.links.len(), topology.nodes()), (90 + 18, 96));
        let tiers = |from, to| Tier::of(from, to).map(|tier| tier as usize);
        assert_eq!((tiers(90, 93), tiers(95, 92), tiers(92, 60)), (Some(0), Some(1), Some(2)));
        assert_eq!((tiers(0, 90), tiers(92, 93), tiers(93, 90), tiers(90, 0)), (None, None, None, None));
    }

    #[test]
    fn moments_are_those_of_all_values() {
        let mut moments = Moments::default();
        [1.0, 3.0].into_iter().for_each(|value| moments.add(value));
        assert_eq!(moments.mean_and_deviation(), (2.0, 1.0));
        let bin = Bin::of((1..=200).rev().map(f64::from).collect());
        assert_eq!((bin.flows, bin.mean, bin.p99), (200, 100.5, 198.0));
    }
}
