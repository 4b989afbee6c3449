//! Fairness over time (§5.2.3): Figures 5.4, 5.5 and 5.6.

use irnic_fabric::experiment::Experiment;
use irnic_fabric::sim::{HeaderBytes, Observe, Observed, Routing, SimConfig};
use irnic_fabric::topology::{Internet2, LinkSpec, Topology};
use irnic_fabric::workload::Flow;
use irnic_sweep::{NoResult, Watch};
use irnic_transports::qp::Service;

use super::network::{G, PAPERS, PAYLOAD};
use super::objectives::FAIR;
use super::scheme::{HEADER, OTHERS, Scheme, TCP};
use super::values::Values;
use crate::random;
use crate::runs::simulate;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Delay of each link, ns: "10 µs for each link".
const DELAY: u64 = 10 * US;
/// Length of a flow that never ends, bytes.
const LONG: u64 = 1_000_000_000;
/// Start times of the flows of Figure 5.4, in 100 µs: those of each core, to the others in order. The text has "a
/// random jitter in the start times ranging from 0-5ms", which is [`Starts::Random`]; these are from
/// `workload-fq-5ms.txt` of github.com/NetSys/ups, whose topology (no edge switches, hosts 1 µs away) they require.
const STARTS: [[u64; 9]; 10] = [
    [10, 15, 47, 19, 32, 22, 48, 11, 7],
    [10, 8, 31, 46, 5, 4, 21, 27, 14],
    [29, 50, 17, 34, 17, 28, 11, 24, 23],
    [29, 7, 43, 26, 24, 36, 43, 40, 10],
    [1, 5, 28, 21, 3, 44, 26, 37, 1],
    [36, 15, 1, 31, 48, 50, 35, 8, 49],
    [8, 15, 17, 37, 19, 30, 9, 20, 7],
    [49, 28, 26, 34, 27, 34, 31, 13, 25],
    [18, 37, 41, 39, 15, 13, 8, 17, 1],
    [32, 45, 21, 40, 7, 8, 10, 49, 20],
];
/// Flows of Figure 5.5 that exist before the last, and its start, ns.
const OLD: u32 = 20;
const LAST: u64 = 5 * MS;
/// Rate of the last flow that exceeds its share of 47.6, Mbit/s.
const SPIKE: f64 = 60.0;
/// Jain's index from which shares count as equal.
const FAIRLY: f64 = 0.99;

/// When the flows of Figure 5.4 start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Starts {
    /// As in the authors' file.
    Authors,
    /// At random, by the seed, as in the text.
    Random,
}

/// A scenario.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Figure 5.4: a flow from each core to each other one.
    Internet2(Scheme, Starts),
    /// Figure 5.5: twenty flows, and one that starts later.
    Newcomer(Scheme),
    /// Figure 5.6: three flows with these rates, Mbit/s, two of which share each of two links.
    Weighted([u64; 3]),
}

impl Sharing {
    /// End of the run, ns.
    fn end(self) -> u64 {
        match self {
            Sharing::Internet2(..) | Sharing::Newcomer(_) => 20 * MS,
            Sharing::Weighted(_) => 30 * MS,
        }
    }

    fn topology(self) -> Topology {
        let spec = |a, b, gbps: u64| LinkSpec { a, b, rate: OTHERS.scaled(gbps * G), delay: DELAY, loss: 0.0 };
        match self {
            Sharing::Internet2(..) => {
                let [rate, fast] = [G, 10 * G].map(|rate| OTHERS.scaled(rate));
                let net = Internet2 { rate, access: fast, host: fast, core_delay: DELAY, delay: US, edge: false };
                Topology::internet2(&net)
            }
            Sharing::Newcomer(_) => {
                Topology::dumbbell(OLD + 1, OLD + 1, OTHERS.scaled(10 * G), OTHERS.scaled(G), DELAY)
            }
            // A and B enter at switch 6, A leaves at 7, where C enters, B and C leave at 8.
            Sharing::Weighted(_) => {
                let hosts = [(0, 6), (1, 6), (2, 7), (3, 7), (4, 8), (5, 8)].map(|(host, at)| spec(host, at, 10));
                let links = hosts.into_iter().chain([spec(6, 7, 5), spec(7, 8, 1)]).collect();
                Topology { name: "two-bottlenecks".to_owned(), hosts: 6, switches: 3, links, ids: Vec::new() }
            }
        }
    }

    fn flows(self, seed: u64) -> Vec<Flow> {
        let mut flows: Vec<Flow> = match self {
            Sharing::Internet2(_, when) => {
                // Each host sends to one other core; ten pairs of cores have the same start.
                let host = |core: u32, other: u32| core * 10 + other;
                let of = |(src, starts): (u32, &[u64; 9])| {
                    let others = (0..10).filter(move |dst| *dst != src);
                    let flow = move |(dst, start): (u32, u64)| {
                        let start = match when {
                            Starts::Authors => start * MS / 10,
                            Starts::Random => random::below(seed, host(src, dst), 5 * MS),
                        };
                        Flow::new(host(src, dst), host(dst, src), LONG, start)
                    };
                    others.zip(*starts).map(flow)
                };
                (0..10).zip(&STARTS).flat_map(of).collect()
            }
            Sharing::Newcomer(_) => {
                // The twenty are present when the measurement begins; text: "have started early".
                let start = |at| if at < OLD { random::below(seed, at, MS) } else { LAST };
                (0..=OLD).map(|at| Flow::new(at, OLD + 1 + at, LONG, start(at))).collect()
            }
            Sharing::Weighted(_) => [(0, 2), (1, 4), (3, 5)]
                .into_iter()
                .zip(0..)
                .map(|((src, dst), at)| Flow {
                    setup: at,
                    ..Flow::new(src, dst, LONG, random::below(seed, at.into(), MS))
                })
                .collect(),
        };
        flows.sort_by_key(|flow| flow.start);
        flows
    }

    /// The run with a seed.
    pub fn config(self, seed: u64) -> Result<SimConfig, String> {
        let mut experiment = Experiment::default();
        experiment.topology = self.topology();
        experiment.flows = Some(self.flows(seed));
        experiment.routing = Routing::Lowest;
        experiment.headers = HeaderBytes::Fixed(HEADER);
        experiment.quantum = 65_536;
        experiment.until = Some(self.end());
        let scheme = match self {
            Sharing::Internet2(scheme, _) | Sharing::Newcomer(scheme) => {
                experiment.transports = vec![scheme.transport(&format!("{TCP},window=65536"))?];
                scheme
            }
            Sharing::Weighted(rates) => {
                experiment.service = Service::Uc;
                let each = rates.map(|mbps| Scheme::Fair(mbps).transport("irn"));
                experiment.transports = each.into_iter().collect::<Result<_, _>>()?;
                Scheme::Fair(rates[0])
            }
        };
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        config.switch = scheme.switches(Some(FAIR));
        let (from, interval) = match self {
            Sharing::Weighted(_) => (self.end() / 2, 0),
            _ => (0, MS),
        };
        config.observe = Some(Observe { from, segment: 1, interval, to: Some(0), latencies: false, rounds: false });
        Ok(config)
    }

    /// Runs it with a seed. Also returns the values of the plot for each ms: Jain's index, or the last flow's Mbit/s.
    pub fn run(self, seed: u64, watch: &Watch<'_>) -> Result<(Values, Vec<f64>), NoResult> {
        let outcome = simulate(watch, self.config(seed).map_err(NoResult::Failed)?)?;
        let dropped = outcome.dropped.0 as f64 / outcome.injected.0.max(1) as f64 * 100.0;
        let observed = outcome.observed.unwrap_or_default();
        let (mut values, line) = self.values(&observed, &outcome.flows);
        values.insert("dropped".to_owned(), dropped);
        values.insert("timeouts".to_owned(), outcome.nics.local_ack_timeout_err as f64);
        Ok((values, line))
    }

    fn values(self, observed: &Observed, flows: &[Flow]) -> (Values, Vec<f64>) {
        let (mut values, mut line) = (Values::new(), Vec::new());
        let mut of = |name: &str, value: f64| values.insert(name.to_owned(), value);
        let count = (self.end() / MS) as usize;
        let bytes = |flow: usize, at: usize| observed.intervals[flow].get(at).copied().unwrap_or(0) as f64;
        let mbps = |flow: usize, ms: std::ops::Range<usize>| {
            let long = ms.len() as f64;
            ms.map(|at| bytes(flow, at)).sum::<f64>() * of_the_text() * 8.0 / 1e3 / long
        };
        match self {
            Sharing::Internet2(..) => {
                let index: Vec<f64> = (0..count).map(|at| jain((0..flows.len()).map(|flow| bytes(flow, at)))).collect();
                for at in [5, 7, 10, 15] {
                    of(&format!("jain_{at}ms"), index[at - 1]);
                }
                of("jain_end", index[count - 5..].iter().sum::<f64>() / 5.0);
                let reached = index.iter().position(|index| *index >= FAIRLY);
                of("reached_ms", reached.map_or(f64::INFINITY, |at| at as f64 + 1.0));
                line = index;
            }
            Sharing::Newcomer(_) => {
                let last = flows.iter().position(|flow| flow.src == OLD).unwrap_or(0);
                let old = flows.iter().position(|flow| flow.src == 0).unwrap_or(0);
                let first = (LAST / MS) as usize;
                let peak = (first..count).map(|at| mbps(last, at..at + 1)).fold(0.0, f64::max);
                of("peak_mbps", peak);
                of("new_mbps", mbps(last, count - 5..count));
                of("old_mbps", mbps(old, count - 5..count));
                let spike = (first..count).rev().find(|at| mbps(last, *at..*at + 1) > SPIKE);
                of("settled_ms", spike.map_or(first, |at| at + 1) as f64);
                line = (0..count).map(|at| mbps(last, at..at + 1)).collect();
            }
            Sharing::Weighted(_) => {
                let time = (observed.time.1 - observed.time.0).max(1) as f64;
                for (name, src) in [("a_gbps", 0), ("b_gbps", 1), ("c_gbps", 3)] {
                    let flow = flows.iter().position(|flow| flow.src == src).unwrap_or(0);
                    of(name, observed.bytes[flow] as f64 * of_the_text() * 8.0 / time);
                }
            }
        }
        (values, line)
    }
}

/// Bytes of the text's packets per byte of payload here.
fn of_the_text() -> f64 {
    f64::from(PAPERS) / f64::from(PAYLOAD)
}

/// Jain's fairness index.
fn jain(shares: impl Iterator<Item = f64> + Clone) -> f64 {
    let (n, sum) = (shares.clone().count() as f64, shares.clone().sum::<f64>());
    let squares: f64 = shares.map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (n * squares) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_flows_of_the_backbone_share_a_host() {
        let config = Sharing::Internet2(Scheme::Fq, Starts::Authors).config(1).expect("a configuration");
        assert_eq!(config.flows.len(), 90);
        for of in [|flow: &Flow| flow.src, |flow: &Flow| flow.dst] {
            let mut hosts: Vec<u32> = config.flows.iter().map(of).collect();
            hosts.sort_unstable();
            hosts.dedup();
            assert_eq!(hosts.len(), 90);
        }
        assert!(config.flows.iter().all(|flow| flow.src / 10 != flow.dst / 10 && flow.start <= 5 * MS));
        assert!(config.flows.iter().any(|flow| flow.start == 5 * MS));
    }

    #[test]
    fn random_starts_are_within_the_texts_five_milliseconds_and_depend_on_the_seed() {
        let starts = |when, seed| -> Vec<u64> {
            let config = Sharing::Internet2(Scheme::Fq, when).config(seed).expect("a configuration");
            config.flows.iter().map(|flow| flow.start).collect()
        };
        let (one, two) = (starts(Starts::Random, 1), starts(Starts::Random, 2));
        assert!(one != two && one.iter().all(|start| *start < 5 * MS) && one[89] > 4 * MS);
        assert_eq!(starts(Starts::Authors, 1), starts(Starts::Authors, 2));
    }

    #[test]
    fn jains_index_is_one_of_equal_shares_and_a_half_of_half_the_flows() {
        assert_eq!(jain([2.0; 8].into_iter()), 1.0);
        assert_eq!(jain([3.0, 0.0, 3.0, 0.0].into_iter()), 0.5);
        assert_eq!(jain([0.0; 4].into_iter()), 0.0);
    }

    #[test]
    fn flows_of_weights_have_setups_of_their_own() {
        let config = Sharing::Weighted([900, 100, 50]).config(7).expect("a configuration");
        let slack = |src: u32| {
            let flow = config.flows.iter().find(|flow| flow.src == src).expect("a flow");
            config.setup_of(flow).transport.slack
        };
        assert_eq!([0, 1, 3].map(slack), [900, 100, 50].map(|mbps| Scheme::Fair(mbps).slack()));
    }
}
