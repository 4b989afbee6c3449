//! Runs scenarios, and measures them.

use irnic_fabric::sim::{Ending, Outcome};
use irnic_sweep::{NoResult, Watch};
use serde::{Deserialize, Serialize};

use super::scenario::Scenario;
use crate::runs::simulate;

/// Upper limits of flow sizes with separate means, bytes.
pub const EDGES: [u64; 3] = [10_000, 1_000_000, u64::MAX];

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Time of the last delivery before a deadlock that ended the run, ms.
    pub deadlock: Option<f64>,
    /// Longest time without a delivery, ms.
    pub gap: f64,
    /// Share of the measured time for which the links of the cycle were transmitting, %.
    pub utilization: f64,
    /// Mean number of XOFFs on a link of the cycle.
    pub xoffs: f64,
    /// Largest number of bytes queued for a port, KB.
    pub peak: f64,
    /// Packets dropped, retransmitted or out of order.
    pub harm: f64,
    /// Frames that escaped, and tokens sent per frame.
    pub escaped: f64,
    pub tokens: f64,
    /// Loops found by LB or DLB, and frames per loop dropped or moved on.
    pub loops: f64,
    pub touched: f64,
    /// Rates of hosts on their links during the measurement, Gbit/s, by pair.
    pub rates: Vec<f64>,
    /// Flows of each of these.
    pub per_sender: f64,
    /// Mean completion time of innocent flows, or of all if there are none, by [`EDGES`], and 99th percentile of all,
    /// µs; of complete flows only.
    pub fct: [Option<f64>; 3],
    pub p99: [Option<f64>; 3],
    /// Incomplete flows.
    pub incomplete: f64,
}

/// Runs a scenario with a seed: the warm-up, and the measurement.
pub fn one(scenario: &Scenario, quick: bool, seed: u64, watch: &Watch<'_>) -> Result<Measured, NoResult> {
    let [from, until] = scenario.times(quick);
    let watch = watch.part(if from > 0 { 2 } else { 1 });
    let to = |until| simulate(&watch, scenario.config(seed, quick, until).map_err(NoResult::Failed)?);
    let before = if from > 0 { Some(to(from)?) } else { None };
    Ok(Measured::of(scenario, before.as_ref(), &to(until)?))
}

impl Measured {
    fn of(scenario: &Scenario, before: Option<&Outcome>, after: &Outcome) -> Measured {
        let wired = scenario.wired();
        let bytes = |outcome: &Outcome, from: u32, to: Option<u32>| {
            let link = outcome.links.iter().find(|link| link.from == from && to.is_none_or(|to| link.to == to));
            link.map_or(0, |link| link.counters.bytes)
        };
        let time = after.ended - before.map_or(0, |before| before.ended);
        let gbps = |from, to| {
            let sent = bytes(after, from, to) - before.map_or(0, |before| bytes(before, from, to));
            sent as f64 * 8.0 / time.max(1) as f64
        };
        let cycle = wired.cycle.len() as f64;
        let link = |from: u32, to: u32| after.links.iter().find(move |link| (link.from, link.to) == (from, to));
        let share =
            |&(from, to): &(u32, u32)| gbps(from, Some(to)) * 1e9 / link(from, to).map_or(1.0, |link| link.rate as f64);
        let xoffs = |&(from, to): &(u32, u32)| link(to, from).map_or(0, |link| link.counters.pauses);
        let innocents = after.flows.iter().any(|flow| flow.class == 1);
        let flows = after.flows.iter().zip(&after.records).filter(|(flow, _)| flow.class == u8::from(innocents));
        let fcts: Vec<(u64, f64)> =
            flows.filter_map(|(flow, record)| Some((flow.bytes, record.fct(flow)? as f64 / 1e3))).collect();
        let escape = after.escape.unwrap_or_default();
        let breaker = after.breaker.unwrap_or_default();
        let harm = after.dropped.0 + after.nics.retransmitted_pkts + after.nics.out_of_seq_request;
        let (gap, last) = stands(after);
        Measured {
            deadlock: matches!(after.ending, Ending::Deadlock(_)).then_some(last),
            gap,
            utilization: wired.cycle.iter().map(share).sum::<f64>() / cycle * 100.0,
            xoffs: wired.cycle.iter().map(xoffs).sum::<u64>() as f64 / cycle,
            peak: after.links.iter().map(|l| l.counters.peak).max().unwrap_or(0) as f64 / 1e3,
            harm: harm as f64,
            escaped: escape.frames as f64,
            tokens: escape.tokens as f64,
            loops: breaker.loops as f64,
            touched: (breaker.dropped + breaker.moved) as f64,
            rates: wired.pairs.iter().map(|&(src, _)| gbps(src, None)).collect(),
            per_sender: scenario.per_sender(),
            fct: EDGES.map(|edge| mean(&fcts, edge)),
            p99: EDGES.map(|edge| percentile(&fcts, edge)),
            incomplete: after.records.iter().filter(|record| record.delivered.is_none()).count() as f64,
        }
    }
}

fn mean(fcts: &[(u64, f64)], most: u64) -> Option<f64> {
    let some: Vec<f64> = fcts.iter().filter(|(bytes, _)| *bytes <= most).map(|(_, fct)| *fct).collect();
    (!some.is_empty()).then(|| some.iter().sum::<f64>() / some.len() as f64)
}

fn percentile(fcts: &[(u64, f64)], most: u64) -> Option<f64> {
    let mut some: Vec<f64> = fcts.iter().filter(|(bytes, _)| *bytes <= most).map(|(_, fct)| *fct).collect();
    some.sort_unstable_by(f64::total_cmp);
    irnic_fabric::summary::percentile(&some, 0.99)
}

/// The longest time without a delivery while flows were in progress, and the time of the last delivery, ms.
fn stands(outcome: &Outcome) -> (f64, f64) {
    let (mut gap, mut last, mut delivered) = (0, 0, 0);
    for sample in &outcome.samples {
        if sample.delivered > delivered || sample.active == 0 {
            (last, delivered) = (sample.at, sample.delivered);
        } else {
            gap = gap.max(sample.at - last);
        }
    }
    (gap as f64 / 1e6, last as f64 / 1e6)
}

/// Jain's index.
pub fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = (rates.iter().sum::<f64>(), rates.iter().map(|r| r * r).sum::<f64>());
    if squares == 0.0 { 0.0 } else { sum * sum / (rates.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals() {
        assert_eq!((jain(&[2.0, 2.0]), jain(&[1.0, 0.0]), jain(&[])), (1.0, 0.5, 0.0));
    }

    #[test]
    fn means_and_percentiles_are_of_flows_up_to_a_size() {
        let fcts: Vec<(u64, f64)> = (1..=200).map(|n| (n, n as f64)).collect();
        assert_eq!((mean(&fcts, 100), percentile(&fcts, 100), mean(&fcts, 0)), (Some(50.5), Some(99.0), None));
    }
}
