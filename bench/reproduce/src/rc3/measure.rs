//! Runs scenarios, and measures them.

use irnic_fabric::sim::Outcome;
use irnic_sweep::{NoResult, Watch};
use serde::{Deserialize, Serialize};

use super::scenario::{MTU, Scenario};
use super::theory::SIZES;
use crate::runs::simulate;

/// Results of a run, for flows that started during the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Of the flows that were completed.
    pub means: Means,
    /// These flows, in order.
    pub flows: Vec<Done>,
    /// Flows incomplete at the end.
    pub incomplete: f64,
    /// Share of acknowledged data packets delivered early by low priority, %.
    pub low: f64,
    /// Share of packets sent that switches dropped, %.
    pub dropped: f64,
    /// Timeouts, sum over flows.
    pub timeouts: f64,
}

/// A flow.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Its number among all flows of the run.
    number: u32,
    /// Size, bytes.
    bytes: u64,
    class: u8,
    /// Completion time, s.
    fct: f64,
    /// Completion time without the round trip of a handshake, s.
    connected: f64,
}

/// Completion times of flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Means {
    /// Mean over flows, and over bytes, s.
    pub fct: Option<f64>,
    pub by_bytes: Option<f64>,
    /// Mean over flows without the round trip of a handshake, s.
    pub connected: Option<f64>,
    pub connected_by_bytes: Option<f64>,
    /// 99th percentile, s.
    pub p99: Option<f64>,
    /// Mean by size, for the packets of [`SIZES`], s.
    pub by_size: [Option<f64>; SIZES.len()],
    /// Mean of classes 0 and 1, s.
    pub by_class: [Option<f64>; 2],
}

/// Runs a scenario with a seed.
pub fn one(scenario: &Scenario, quick: bool, seed: u64, watch: &Watch<'_>) -> Result<Measured, NoResult> {
    let config = scenario.config(seed, quick).map_err(NoResult::Failed)?;
    let [from, to, _] = scenario.times(quick);
    Ok(Measured::of(&simulate(watch, config)?, from, to))
}

impl Measured {
    fn of(outcome: &Outcome, from: u64, to: u64) -> Measured {
        let all = (0..).zip(outcome.flows.iter().zip(&outcome.records));
        let counted = all.filter(|(_, (flow, _))| (from..to).contains(&flow.start));
        let mut incomplete = 0.0;
        let mut flows = Vec::new();
        for (number, (flow, record)) in counted {
            match record.fct(flow) {
                Some(fct) => flows.push(Done {
                    number,
                    bytes: flow.bytes,
                    class: flow.class,
                    fct: fct as f64 / 1e9,
                    connected: (fct - record.setup) as f64 / 1e9,
                }),
                None => incomplete += 1.0,
            }
        }
        let packets: u64 = outcome
            .flows
            .iter()
            .zip(&outcome.records)
            .filter(|(_, record)| record.delivered.is_some())
            .map(|(flow, _)| flow.bytes.div_ceil(MTU))
            .sum();
        Measured {
            means: Means::of(&flows),
            flows,
            incomplete,
            low: outcome.nics.rc3_low_acked as f64 / packets.max(1) as f64 * 100.0,
            dropped: outcome.dropped.0 as f64 / outcome.injected.0.max(1) as f64 * 100.0,
            timeouts: outcome.nics.local_ack_timeout_err as f64,
        }
    }

    /// Returns the completion times of those flows that were completed in another run as well.
    pub fn also_in(&self, other: &Measured) -> Means {
        let found = |flow: &Done| other.flows.binary_search_by_key(&flow.number, |other| other.number);
        let both = self.flows.iter().filter(|flow| found(flow).is_ok_and(|at| other.flows[at].bytes == flow.bytes));
        Means::of(&both.copied().collect::<Vec<Done>>())
    }
}

impl Means {
    fn of(flows: &[Done]) -> Means {
        let mean = |of: fn(&Done) -> f64, which: &dyn Fn(&Done) -> bool| mean(flows, of, |_| 1.0, which);
        let over_bytes = |of: fn(&Done) -> f64| self::mean(flows, of, |flow| flow.bytes as f64, &|_| true);
        let mut sorted: Vec<f64> = flows.iter().map(|flow| flow.fct).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Means {
            fct: mean(|flow| flow.fct, &|_| true),
            by_bytes: over_bytes(|flow| flow.fct),
            connected: mean(|flow| flow.connected, &|_| true),
            connected_by_bytes: over_bytes(|flow| flow.connected),
            p99: irnic_fabric::summary::percentile(&sorted, 0.99),
            by_size: SIZES.map(|(packets, _)| mean(|flow| flow.fct, &|flow| flow.bytes == packets * MTU)),
            by_class: [0, 1].map(|class| mean(|flow| flow.fct, &|flow| flow.class == class)),
        }
    }
}

/// The weighted mean over flows; `None` if there are none.
fn mean(flows: &[Done], of: fn(&Done) -> f64, weight: fn(&Done) -> f64, which: &dyn Fn(&Done) -> bool) -> Option<f64> {
    let some = || flows.iter().filter(|flow| which(flow));
    let all: f64 = some().map(weight).sum();
    (all > 0.0).then(|| some().map(|flow| weight(flow) * of(flow)).sum::<f64>() / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_compared_by_the_flows_that_both_complete() {
        let run = |fcts: &[(u32, f64)]| {
            let done = |&(number, fct): &(u32, f64)| Done { number, bytes: 1_460, class: 0, fct, connected: fct };
            let flows: Vec<Done> = fcts.iter().map(done).collect();
            Measured { means: Means::of(&flows), flows, ..Measured::default() }
        };
        let (slow, fast) = (run(&[(0, 2.0), (2, 4.0)]), run(&[(0, 1.0), (1, 9.0), (2, 2.0)]));
        assert_eq!((slow.means.fct, fast.means.fct), (Some(3.0), Some(4.0)));
        assert_eq!((slow.also_in(&fast).fct, fast.also_in(&slow).fct), (Some(3.0), Some(1.5)));
    }
}
