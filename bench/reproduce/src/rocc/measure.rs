//! Runs scenarios, and measures them.

use irnic_fabric::sim::{Outcome, Sample};
use irnic_sweep::{NoResult, Watch};
use serde::{Deserialize, Serialize};

use super::datacenter::Datacenter;
use super::scenario::{Network, STEP, STEPS, Scenario, Time};
use crate::runs::{simulate, watched};

/// Sampling interval of queues, ns.
const SAMPLE: u64 = 20_000;
/// Samples over which a queue is averaged to detect that it has settled.
const SMOOTH: usize = 25;
/// Maximum deviation of a settled queue, as a share of Q_ref, and of a settled rate.
const SETTLED: f64 = 0.1;
/// Time over which rates are averaged to detect that they have settled, ns.
const RATE: u64 = 500_000;
/// Events between two observations of senders.
const SLICE: u64 = 2_000;

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Mean of the longest queue during the measurement, KB.
    pub queue: f64,
    /// Longest queue of the whole run, KB.
    pub peak: f64,
    /// Time from which the queue stays near Q_ref, ms; the whole run if it never does.
    pub settle: f64,
    /// Time from which senders together stay near their rate at rest, ms: that of the fair rate, which they obey.
    pub settle_rate: f64,
    /// Rates of the flows on their senders' links during the measurement, including headers, Gbit/s.
    pub rates: Vec<f64>,
    /// Rate of all notices during the measurement, on the links of one hop, Mbit/s.
    pub notices: f64,
    /// PFC frames during the measurement.
    pub pfc_frames: f64,
    /// For Figure 3.6: mean rate of a flow in the second half of each step, Gbit/s, and time at which the queue settles
    /// in it, ms.
    pub steps: Vec<(f64, f64)>,
    /// Results of §3.5.4.
    pub datacenter: Option<Datacenter>,
}

/// Runs a scenario with a seed: the warm-up, and the measurement.
pub fn one(scenario: &Scenario, time: Time, seed: u64, watch: &Watch<'_>) -> Result<Measured, NoResult> {
    let to =
        |until, parts| simulate(&watch.part(parts), scenario.config(seed, until, SAMPLE).map_err(NoResult::Failed)?);
    match scenario.0 {
        Network::Datacenter(traffic) => {
            let datacenter = Some(traffic.run(scenario.1, time, seed, watch)?);
            return Ok(Measured { datacenter, ..Measured::default() });
        }
        Network::Steps => {
            let steps = steps(&to(STEP * STEPS.len() as u64, 1)?.samples, scenario.qref() as f64);
            return Ok(Measured { steps, ..Measured::default() });
        }
        _ => {}
    }
    let before = to(time.warm_up, 2)?;
    let config = scenario.config(seed, time.warm_up + time.measured, SAMPLE).map_err(NoResult::Failed)?;
    let hosts = config.topology.hosts;
    let mut sent = Vec::new();
    let after = watched(&watch.part(2), config, SLICE, |simulation| {
        let links = simulation.network().links().filter(|link| link.from < hosts);
        sent.push((simulation.now(), links.map(|link| link.counters.bytes).sum()));
    })?;
    let settle_rate = rates_settled(&sent, time.warm_up) as f64 / 1e6;
    Ok(Measured { settle_rate, ..Measured::of(scenario, time, &before, &after) })
}

/// Time from which senders stay near the rate that they have from a time on, ns. `sent`: times and bytes sent until
/// then.
fn rates_settled(sent: &[(u64, u64)], rest: u64) -> u64 {
    let rate = |a: (u64, u64), b: (u64, u64)| (b.1 - a.1) as f64 / (b.0 - a.0).max(1) as f64;
    let (Some(first), Some(last)) = (sent.iter().find(|(at, _)| *at >= rest), sent.last()) else { return 0 };
    let at_rest = rate(*first, *last);
    let mut end = 0;
    let mut settled = 0;
    for from in sent {
        while end < sent.len() && sent[end].0 < from.0 + RATE {
            end += 1;
        }
        let Some(to) = sent.get(end) else { break };
        if (rate(*from, *to) / at_rest - 1.0).abs() > SETTLED {
            settled = to.0;
        }
    }
    settled
}

impl Measured {
    fn of(scenario: &Scenario, time: Time, before: &Outcome, after: &Outcome) -> Measured {
        let sent = |outcome: &Outcome, host: u32| {
            let link = outcome.links.iter().find(|link| link.from == host);
            link.map_or(0, |link| link.counters.bytes)
        };
        let gbps = |bytes: u64| bytes as f64 * 8.0 / time.measured as f64;
        let rate = |flow: &irnic_fabric::workload::Flow| gbps(sent(after, flow.src) - sent(before, flow.src));
        let measured: Vec<&Sample> = after.samples.iter().filter(|s| s.at > time.warm_up).collect();
        let queues = measured.iter().map(|s| s.longest as f64);
        Measured {
            queue: queues.sum::<f64>() / measured.len().max(1) as f64 / 1e3,
            peak: after.links.iter().map(|l| l.counters.peak).max().unwrap_or(0) as f64 / 1e3,
            settle: settled(&after.samples, scenario.qref() as f64) / 1e6,
            rates: after.flows.iter().map(rate).collect(),
            notices: gbps(after.emitted.1 - before.emitted.1) * 1e3,
            pfc_frames: (after.pfc_frames - before.pfc_frames) as f64,
            ..Measured::default()
        }
    }
}

/// Rate of a flow and settling time of the queue in each step.
fn steps(samples: &[Sample], rest: f64) -> Vec<(f64, f64)> {
    // Bytes on the wire per byte of payload.
    const WIRE: f64 = 1086.0 / 1024.0;
    let of = |(n, senders): (u64, u32)| {
        let within = |from: u64, to: u64| {
            let first = samples.partition_point(|s| s.at < from);
            &samples[first..samples.partition_point(|s| s.at < to)]
        };
        let (begins, ends) = (n * STEP, (n + 1) * STEP);
        let late = within(begins + STEP / 2, ends);
        let [first, .., last] = late else { return (0.0, 0.0) };
        let bits = (last.delivered - first.delivered) as f64 * 8.0 * WIRE;
        let rate = bits / (last.at - first.at) as f64 / f64::from(senders);
        (rate, (settled(within(begins, ends), rest) - begins as f64).max(0.0) / 1e6)
    };
    (0..).zip(STEPS).map(of).collect()
}

/// Time from which a queue stays near its reference, ns.
fn settled(samples: &[Sample], rest: f64) -> f64 {
    let mean = |some: &[Sample]| some.iter().map(|s| s.longest as f64).sum::<f64>() / some.len() as f64;
    let away = |some: &[Sample]| (mean(some) / rest - 1.0).abs() > SETTLED;
    let last = samples.windows(SMOOTH).rfind(|some| away(some)).and_then(|some| some.last());
    last.map_or(0.0, |sample| sample.at as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_settled_after_they_were_away_last() {
        // 10 bytes a µs, 2 until 3 ms.
        let sent = |until: u64| -> Vec<(u64, u64)> {
            (0..1_000).map(|n| (n * 10_000, n.min(until) * 20 + n.saturating_sub(until) * 100)).collect()
        };
        assert_eq!(rates_settled(&sent(0), 5_000_000), 0);
        // 45 of 50 intervals at rest, and 5 at a fifth, are 0.92 of it.
        assert_eq!(rates_settled(&sent(300), 5_000_000), 3_430_000);
    }

    #[test]
    fn a_queue_has_settled_after_it_was_away_last() {
        let sample = |n: u64, longest| Sample { at: n * 20, longest, ..Sample::default() };
        let at = |f: fn(u64) -> u64| settled(&(1..=100).map(|n| sample(n, f(n))).collect::<Vec<_>>(), 100.0);
        assert_eq!(at(|_| 105), 0.0);
        assert_eq!(at(|_| 0), 2_000.0);
        // 13 of 25 that are a fifth too long exceed a tenth.
        assert_eq!(at(|n| if n <= 50 { 120 } else { 100 }), 62.0 * 20.0);
    }
}
