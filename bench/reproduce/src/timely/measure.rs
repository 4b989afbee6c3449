//! Runs scenarios, and measures them.

use irnic_fabric::sim::{Observed, SimConfig};
use irnic_fabric::summary::percentile;
use irnic_sweep::{NoResult, Watch};
use serde::{Deserialize, Serialize};

use super::clos::{Calls, Clos};
use super::incast::{INTERVAL, Incast, LINK_RATE, Time};
use crate::runs::simulate;

/// Percentiles of the distribution of round trips, of 100.
pub const PERCENTILES: [f64; 9] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

/// Number of intervals over which oscillation is measured: at 500 Mbit/s a segment more or less is a twentieth of the
/// data sent in them.
const SMOOTH: usize = 5;

/// Rate at which a connection has reached its fair share of 2 Gbit/s, Gbit/s: 95 % of the payload in that.
const SHARE: f64 = 1.85;

/// Interval over which the rates of a sample of connections are averaged, ns.
pub const SAMPLE: u64 = SMOOTH as u64 * INTERVAL;
/// Number of connections of that sample, as in Figure 13.
const SAMPLED: usize = 4;
/// Number of points of the plotted distribution of round trips.
pub const QUANTILES: usize = 400;

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum Scenario {
    /// An incast of §2.2, §4.4 or §6.1.
    Incast(Incast),
    /// Calls of §6.2.
    Clos(Clos),
}

impl Scenario {
    /// Returns the run with a seed.
    pub fn config(&self, time: Time, seed: u64) -> Result<SimConfig, String> {
        match self {
            Scenario::Incast(incast) => incast.config(time, seed),
            Scenario::Clos(clos) => clos.config(clos.time(time), seed),
        }
    }
}

/// Results of a run. Times in µs, rates in Gbit/s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Payload received by the server.
    pub throughput: f64,
    /// Average round trip of segments.
    pub avg_rtt: f64,
    /// [`PERCENTILES`] of these round trips.
    pub rtt: [f64; 9],
    /// Jain's index of the connections' throughputs.
    pub jain: f64,
    /// Standard deviation of a connection's throughput over [`SMOOTH`] intervals, relative to its mean; mean over all
    /// connections.
    pub oscillation: f64,
    /// PFC frames that arrived during the measurement.
    pub pfc_frames: u64,
    /// Packets dropped in the whole run.
    pub dropped: u64,
    /// Times after which the staying connections have 1.5, and [`SHARE`] Gbit/s each on average, ms.
    pub reached: [Option<f64>; 2],
    /// The shortest round trip, and the upper end of each further part of [`QUANTILES`].
    pub quantiles: Vec<f64>,
    /// [`PERCENTILES`] of the longest queue's length, by samples, in µs at the rate of a link; if it was sampled.
    pub queue: Option<[f64; 9]>,
    /// Round trip of the empty network.
    pub base: f64,
    /// Rates of some of the staying connections, by intervals of [`SAMPLE`].
    pub sample: Vec<Vec<f64>>,
    /// Average rate of all of those, by intervals of [`INTERVAL`].
    pub mean: Vec<f64>,
    /// Senders' rounds: share of packets marked, and shortest round trip; if they were observed.
    pub rounds: Vec<(f64, f64)>,
    /// Results for calls, which exclude all others.
    pub calls: Option<Calls>,
}

/// Runs a scenario with a seed.
pub fn one(scenario: &Scenario, time: Time, seed: u64, watch: &Watch<'_>) -> Result<Measured, NoResult> {
    match scenario {
        Scenario::Incast(incast) => of_incast(incast, time, seed, watch),
        Scenario::Clos(clos) => {
            let outcome = simulate(watch, scenario.config(time, seed).map_err(NoResult::Failed)?)?;
            Ok(Measured { calls: Some(Calls::of(&outcome, clos.time(time))), ..Measured::default() })
        }
    }
}

fn of_incast(scenario: &Incast, time: Time, seed: u64, watch: &Watch<'_>) -> Result<Measured, NoResult> {
    let config = scenario.config(time, seed).map_err(NoResult::Failed)?;
    let quits = config.quits.clone();
    let outcome = simulate(watch, config)?;
    let Some(mut observed) = outcome.observed else { return Err(NoResult::Failed("nothing was observed".to_owned())) };
    let stay: Vec<bool> = (0..)
        .zip(&outcome.flows)
        .map(|(n, flow)| {
            let counts = scenario.server().is_none_or(|server| server == flow.dst);
            counts && quits.iter().all(|q| q.flow != n)
        })
        .collect();
    if scenario.server().is_some() {
        // The throughput only counts those connections as well.
        observed.bytes.iter_mut().zip(&stay).filter(|(_, stay)| !**stay).for_each(|(bytes, _)| *bytes = 0);
    }
    let mut queue: Vec<u64> =
        outcome.samples.iter().filter(|sample| sample.at >= time.warm_up).map(|sample| sample.longest).collect();
    queue.sort_unstable();
    let us = |bytes: u64| bytes as f64 * 8e6 / LINK_RATE as f64;
    let of_queue = || PERCENTILES.map(|p| us(percentile(&queue, p / 100.0).unwrap_or(0)));
    Ok(Measured {
        queue: (!queue.is_empty()).then(of_queue),
        base: scenario.base_rtt() as f64 / 1e3,
        ..Measured::of(observed, &stay, outcome.dropped.0)
    })
}

impl Measured {
    /// The 99th percentile of round trips.
    pub fn tail(&self) -> f64 {
        self.rtt[7]
    }

    /// `stay`: the connections that count.
    fn of(observed: Observed, stay: &[bool], dropped: u64) -> Measured {
        let (from, until) = observed.time;
        let elapsed = (until - from).max(1) as f64;
        let of_stay = || observed.bytes.iter().zip(stay).filter(|(_, stay)| **stay).map(|(bytes, _)| *bytes as f64);
        let (sum, squares) = of_stay().fold((0.0, 0.0), |(sum, squares), b| (sum + b, squares + b * b));
        let n = of_stay().count() as f64;
        let mut rtts = observed.round_trips;
        let avg_rtt = rtts.iter().sum::<u64>() as f64 / rtts.len().max(1) as f64 / 1e3;
        rtts.sort_unstable();
        let rounds = observed.rounds.iter();
        let rates = Rates { intervals: &observed.intervals, stay, from, until };
        Measured {
            throughput: observed.bytes.iter().sum::<u64>() as f64 * 8.0 / elapsed,
            avg_rtt,
            rtt: PERCENTILES.map(|p| percentile(&rtts, p / 100.0).unwrap_or(0) as f64 / 1e3),
            jain: if squares > 0.0 { sum * sum / (n * squares) } else { 0.0 },
            oscillation: rates.oscillation(),
            pfc_frames: observed.pfc_frames,
            dropped,
            reached: [1.5, SHARE].map(|gbps| rates.reached(gbps)),
            quantiles: (0..=QUANTILES)
                .filter_map(|n| Some(percentile(&rtts, n as f64 / QUANTILES as f64)? as f64 / 1e3))
                .collect(),
            queue: None,
            base: 0.0,
            sample: rates.sample(),
            mean: rates.mean(),
            rounds: rounds.map(|r| (f64::from(r.marked) / f64::from(r.packets), r.least as f64 / 1e3)).collect(),
            calls: None,
        }
    }

    /// Pearson's correlation of the marked share of rounds with their shortest round trips, if both vary.
    pub fn marks_tell(&self) -> Option<f64> {
        let n = self.rounds.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| self.rounds.iter().map(of).sum::<f64>() / n;
        let (share, trip) = (mean(|r| r.0), mean(|r| r.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| self.rounds.iter().map(|r| of(r.0 - share, r.1 - trip)).sum::<f64>();
        let (both, shares, trips) = (sum(&|s, t| s * t), sum(&|s, _| s * s), sum(&|_, t| t * t));
        (shares > 0.0 && trips > 0.0).then(|| both / (shares * trips).sqrt())
    }
}

/// Throughputs by intervals.
struct Rates<'a> {
    intervals: &'a [Vec<u64>],
    stay: &'a [bool],
    from: u64,
    until: u64,
}

impl Rates<'_> {
    /// Bytes of each connection that counts, by complete interval.
    fn of_each(&self) -> impl Iterator<Item = Vec<f64>> {
        let (first, end) = ((self.from.div_ceil(INTERVAL)) as usize, (self.until / INTERVAL) as usize);
        let staying = self.intervals.iter().zip(self.stay).filter(|(_, stay)| **stay);
        staying.map(move |(all, _)| (first..end).map(|n| all.get(n).copied().unwrap_or(0) as f64).collect())
    }

    fn oscillation(&self) -> f64 {
        let of_one = |rates: Vec<f64>| {
            let rates: Vec<f64> = rates.chunks_exact(SMOOTH).map(|some| some.iter().sum()).collect();
            let n = rates.len().max(1) as f64;
            let mean = rates.iter().sum::<f64>() / n;
            let variance = rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / n;
            if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
        };
        let all: Vec<f64> = self.of_each().map(of_one).collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    }

    fn sample(&self) -> Vec<Vec<f64>> {
        let smooth = |rates: Vec<f64>| -> Vec<f64> {
            rates.chunks_exact(SMOOTH).map(|some| some.iter().sum::<f64>() * 8.0 / SAMPLE as f64).collect()
        };
        self.of_each().take(SAMPLED).map(smooth).collect()
    }

    fn mean(&self) -> Vec<f64> {
        let each: Vec<Vec<f64>> = self.of_each().collect();
        let length = each.first().map_or(0, Vec::len);
        let bytes = |n: usize| each.iter().map(|rates| rates[n]).sum::<f64>();
        (0..length).map(|n| bytes(n) * 8.0 / INTERVAL as f64 / each.len() as f64).collect()
    }

    fn reached(&self, gbps: f64) -> Option<f64> {
        let at = self.mean().iter().position(|mean| *mean >= gbps)?;
        Some((at + 1) as f64 * INTERVAL as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use irnic_fabric::sim::Round;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Two connections of 1 Gbit/s (125 KB per millisecond) and 2, from 10 to 20 ms.
    fn observed() -> Observed {
        Observed {
            rounds: vec![Round { packets: 4, marked: 1, least: 9_000 }],
            time: (10 * MS, 20 * MS),
            bytes: vec![1_250_000, 2_500_000],
            intervals: vec![vec![125_000; 20], vec![250_000; 20]],
            round_trips: (1..=100).rev().map(|us| us * 1_000).collect(),
            latencies: Vec::new(),
            pfc_frames: 7,
        }
    }

    #[test]
    fn numbers_are_those_of_the_measured_time() {
        let m = Measured::of(observed(), &[true; 2], 3);
        assert_eq!((m.throughput, m.avg_rtt, m.pfc_frames, m.dropped), (3.0, 50.5, 7, 3));
        assert_eq!(m.rtt, [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0]);
        // (1 + 2)² / (2 · (1 + 4)).
        assert!((m.jain - 0.9).abs() < 1e-12 && m.oscillation == 0.0, "{m:?}");
        // 1.5 each on average from the beginning; never 1.85.
        assert_eq!(m.reached, [Some(1.0), None]);
        assert_eq!(m.rounds, [(0.25, 9.0)]);
        assert_eq!((m.quantiles.len(), m.quantiles[0], m.quantiles[QUANTILES / 2]), (QUANTILES + 1, 1.0, 50.0));
    }

    #[test]
    fn marks_tell_round_trips_as_far_as_both_go_together() {
        let of = |rounds: &[(f64, f64)]| Measured { rounds: rounds.to_vec(), ..Measured::default() }.marks_tell();
        assert_eq!(of(&[(0.0, 10.0), (0.5, 20.0), (1.0, 30.0)]), Some(1.0));
        assert_eq!(of(&[(0.0, 10.0), (1.0, 10.0), (0.0, 30.0), (1.0, 30.0)]), Some(0.0));
        assert_eq!((of(&[]), of(&[(1.0, 10.0), (1.0, 20.0)])), (None, None));
    }

    #[test]
    fn rates_of_five_milliseconds_make_the_oscillation() {
        // 3, 1 and 2 times as much in 5 ms each, of which the first is not measured: 1.5 on average, a deviation of
        // 0.5.
        let mut o = observed();
        o.time = (5 * MS, 15 * MS);
        o.intervals = vec![[3, 1, 2].iter().flat_map(|n| [n * 1_000; 5]).collect()];
        let m = Measured::of(Observed { bytes: vec![15_000], ..o }, &[true], 0);
        assert!((m.oscillation - 1.0 / 3.0).abs() < 1e-12, "{m:?}");
    }

    #[test]
    fn connections_that_end_count_for_the_throughput_alone() {
        let mut o = observed();
        // The staying one doubles at 15 ms.
        o.intervals[0][15..].fill(250_000);
        let m = Measured::of(o, &[true, false], 0);
        assert_eq!((m.throughput, m.jain, m.reached), (3.0, 1.0, [Some(6.0), Some(6.0)]));
        assert_eq!((m.mean, m.sample), ([[1.0; 5], [2.0; 5]].concat(), vec![vec![1.0, 2.0]]));
    }

    #[test]
    fn nothing_is_no_number_that_is_not_one() {
        let m = Measured::of(Observed { time: (5, 5), ..Observed::default() }, &[], 0);
        assert_eq!((m.throughput, m.avg_rtt, m.jain, m.oscillation), (0.0, 0.0, 0.0, 0.0));
        assert_eq!(m.reached, [None, None]);
    }
}
