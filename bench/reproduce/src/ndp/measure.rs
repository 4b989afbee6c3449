//! Runs scenarios, and measures them.

use irnic_fabric::sim::{HeaderBytes, LinkRecord, Outcome, packets};
use irnic_fabric::summary::percentile;
use irnic_fabric::workload::ENDLESS;
use irnic_sweep::{NoResult, Watch};
use serde::{Deserialize, Serialize};

use super::scenario::{INTERVAL, LINK_RATE, Scenario, Time, Traffic};
use super::unresponsive;
use crate::runs::simulate;

/// A flow is disturbed below this share of its rate (Figure 19).
const HELD_UP: f64 = 0.9;

/// A finite flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Short {
    /// Class of the workload.
    pub class: u8,
    /// Completion time at the receiver, ns.
    pub fct: Option<u64>,
    /// Completion time in an empty network, ns.
    pub ideal: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Payload rate of each endless flow during the measurement, by flow number, Gbit/s.
    pub rates: Vec<f64>,
    /// Payload received by all hosts during the measurement, Gbit/s.
    pub received: f64,
    /// Number of hosts.
    pub hosts: u32,
    /// Bytes on the wire per byte of payload, for full packets.
    pub overhead: f64,
    /// Finite flows.
    pub short: Vec<Short>,
    /// Time at which a link that is never idle would have carried all finite flows to host 0, ns: bytes on the wire of
    /// every packet once, after the path of the first.
    pub optimum: u64,
    /// Time for which the first flow was disturbed, ms.
    pub held_up: f64,
    /// Rate of the first flow, by intervals of [`INTERVAL`], Gbit/s.
    pub first: Vec<f64>,
    /// Packets with payload that NICs sent, including retransmissions.
    pub sent: u64,
    /// Number of packets of finite flows.
    pub packets: u64,
    /// Packets trimmed by switches; those trimmed on links away from hosts; those returned.
    pub trimmed: u64,
    /// See [`Measured::trimmed`].
    pub trimmed_upwards: u64,
    /// See [`Measured::trimmed`].
    pub returned: u64,
    /// For packets of finite flows: number of transmissions; number trimmed in the first switch, and further on.
    pub by_tier: [u64; 3],
    /// Utilization of links up from the first switches, %.
    pub uplinks: f64,
    /// Time until packets were acknowledged, ns, at quantiles in steps of a thousandth.
    pub latencies: Vec<f64>,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets sent again because no answer came in time.
    pub timeouts: u64,
}

/// Runs a scenario with a seed.
pub fn one(scenario: &Scenario, time: Time, seed: u64, watch: &Watch<'_>) -> Result<Measured, NoResult> {
    if let Traffic::Unresponsive { senders, cut, phases } = scenario.traffic {
        let run = unresponsive::run(scenario, (senders, cut, phases), scenario.time(time), seed);
        return run.map_err(NoResult::Failed);
    }
    let config = scenario.config(time, seed).map_err(NoResult::Failed)?;
    let setup = config.setups[0];
    let outcome = simulate(watch, config)?;
    let of_flow = |bytes: u64| -> u64 {
        packets(bytes, &setup, HeaderBytes::Real).iter().map(|(wire, n)| u64::from(*wire) * n).sum()
    };
    Measured::of(&outcome, scenario, of_flow).map_err(NoResult::Failed)
}

impl Measured {
    /// `wire`: bytes on the wire of a flow by its payload.
    fn of(outcome: &Outcome, scenario: &Scenario, wire: impl Fn(u64) -> u64) -> Result<Measured, String> {
        let Some(observed) = &outcome.observed else { return Err("nothing was observed".to_owned()) };
        let (from, until) = observed.time;
        let gbps = |bytes: u64, ns: u64| bytes as f64 * 8.0 / ns.max(1) as f64;
        let mtu = scenario.mtu.bytes() as u64;
        let flows = || outcome.flows.iter().zip(&outcome.records);
        let ending: Vec<_> = flows().filter(|(flow, _)| flow.bytes < ENDLESS).collect();
        if scenario.ends() && ending.iter().any(|(_, record)| record.delivered.is_none()) {
            return Err(format!("not all flows were completed ({:?})", outcome.ending));
        }
        let packets = ending.iter().map(|(flow, _)| flow.bytes.div_ceil(mtu).max(1)).sum();
        // Flows that start before the measurement serve to fill the network.
        let ending: Vec<_> = ending.into_iter().filter(|(flow, _)| flow.start >= from).collect();
        let tiers = scenario.topology().tiers();
        let up = |l: &&LinkRecord| tiers[l.from as usize] == 1 && tiers[l.to as usize] == 2;
        let at_first: u64 = outcome.links.iter().filter(up).map(|l| l.counters.trimmed).sum();
        let (up_bytes, up_links) =
            outcome.links.iter().filter(up).fold((0, 0), |(bytes, n), l| (bytes + l.counters.bytes, n + 1));
        let endless = outcome.flows.iter().zip(&observed.bytes).filter(|(flow, _)| flow.bytes == ENDLESS);
        let first: Vec<f64> =
            observed.intervals.first().map_or(&[][..], Vec::as_slice).iter().map(|b| gbps(*b, INTERVAL)).collect();
        let way = ending.iter().map(|(flow, record)| record.ideal.saturating_sub(sending(wire(flow.bytes)))).min();
        let payload: u64 = observed.bytes.iter().sum();
        Ok(Measured {
            rates: endless.map(|(_, bytes)| gbps(*bytes, until - from)).collect(),
            received: gbps(payload, until - from),
            hosts: scenario.hosts(),
            overhead: scenario.full_packet() as f64 / mtu as f64,
            short: ending
                .iter()
                .map(|(flow, record)| Short { class: flow.class, fct: record.fct(flow), ideal: record.ideal })
                .collect(),
            optimum: way.unwrap_or(0) + sending(ending.iter().map(|(flow, _)| wire(flow.bytes)).sum()),
            held_up: held_up(&first, from, until),
            first,
            sent: outcome.nics.sent_bytes / mtu,
            packets,
            by_tier: [packets + outcome.nics.retransmitted_pkts, at_first, outcome.trimmed.0 - at_first],
            uplinks: 100.0 * sending(up_bytes) as f64 / (up_links * outcome.ended).max(1) as f64,
            latencies: thousandths(&observed.latencies),
            trimmed: outcome.trimmed.0,
            trimmed_upwards: outcome.links.iter().filter(|l| l.upwards).map(|l| l.counters.trimmed).sum(),
            returned: outcome.links.iter().map(|l| l.counters.returned).sum(),
            dropped: outcome.dropped.0,
            timeouts: outcome.nics.local_ack_timeout_err,
        })
    }

    /// Rates, ascending.
    pub fn sorted(&self) -> Vec<f64> {
        let mut rates = self.rates.clone();
        rates.sort_unstable_by(f64::total_cmp);
        rates
    }

    /// The rate at a quantile of the flows, Gbit/s.
    pub fn rate(&self, share: f64) -> Option<f64> {
        percentile(&self.sorted(), share)
    }

    /// Completion times of a class of flows, ns, ascending; `None` if one of them has none.
    pub fn fcts(&self, class: u8) -> Option<Vec<u64>> {
        let mut fcts: Vec<u64> =
            self.short.iter().filter(|s| s.class == class).map(|s| s.fct).collect::<Option<_>>()?;
        fcts.sort_unstable();
        Some(fcts).filter(|fcts| !fcts.is_empty())
    }

    /// Completion times of a class of flows relative to those in an empty network, ascending, without flows cut off by
    /// the end of the run.
    pub fn slowdowns(&self, class: u8) -> Vec<f64> {
        let complete = self.short.iter().filter(|s| s.class == class);
        let mut all: Vec<f64> = complete.filter_map(|s| Some(s.fct? as f64 / s.ideal.max(1) as f64)).collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    }
}

/// The quantiles in steps of a thousandth, ascending; empty if there are no values.
fn thousandths(values: &[u64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    (1..=1_000).filter_map(|n| percentile(&sorted, f64::from(n) / 1e3)).map(|ns| ns as f64).collect()
}

/// Transmission time of this many bytes on a link, ns.
fn sending(bytes: u64) -> u64 {
    bytes * 8 / (LINK_RATE / 1_000_000_000)
}

/// Part of the measured time in which a flow had less than [`HELD_UP`] of its median rate, ms.
fn held_up(rates: &[f64], from: u64, until: u64) -> f64 {
    let rates =
        &rates[((from.div_ceil(INTERVAL)) as usize).min(rates.len())..((until / INTERVAL) as usize).min(rates.len())];
    let mut sorted = rates.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let usual = percentile(&sorted, 0.5).unwrap_or(0.0);
    let held = rates.iter().filter(|rate| **rate < HELD_UP * usual).count();
    held as f64 * INTERVAL as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_held_up_below_nine_tenths_of_its_usual_rate() {
        let mut rates = vec![9.0; 100];
        rates[..10].fill(1.0);
        rates[50..53].fill(8.0);
        // What is before the measured time does not count.
        assert_eq!(held_up(&rates, 10 * INTERVAL, 100 * INTERVAL), 0.3);
        assert_eq!(held_up(&[], 0, 5), 0.0);
    }

    #[test]
    fn flows_are_counted_by_class_and_only_if_they_are_complete() {
        let short = |class, fct| Short { class, fct, ideal: 100 };
        let measured = Measured {
            short: vec![short(0, Some(300)), short(0, Some(200)), short(1, None), short(1, Some(150))],
            rates: vec![3.0, 1.0, 2.0],
            ..Measured::default()
        };
        assert_eq!((measured.fcts(0), measured.fcts(1), measured.fcts(2)), (Some(vec![200, 300]), None, None));
        assert_eq!((measured.slowdowns(0), measured.slowdowns(1)), (vec![2.0, 3.0], vec![1.5]));
        assert_eq!((measured.rate(0.0), measured.rate(0.5), measured.rate(1.0)), (Some(1.0), Some(2.0), Some(3.0)));
    }
}
