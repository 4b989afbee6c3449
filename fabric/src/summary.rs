//! Statistics of a run: flow completion times, overall, by size and by class, and counters of the network.
//!
//! Percentiles are exact, by nearest rank: p percent is the smallest value that at least p percent of the values do not
//! exceed.

use irnic_transports::qp::Counters;

use crate::sim::{ColourTotals, Ending, FlowRecord, Outcome};
use crate::switch::{BreakerCounters, EscapeCounters};
use crate::workload::Flow;

/// Statistics of a set of values. All zero if there are none.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Mean of the values.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

impl Distribution {
    /// Computes the statistics of these values, which it sorts. No value may be NaN.
    pub fn of(values: &mut [f64]) -> Distribution {
        values.sort_unstable_by(f64::total_cmp);
        let Some(&max) = values.last() else { return Distribution::default() };
        let at = |share| percentile(values, share).unwrap_or_default();
        Distribution {
            count: values.len() as u64,
            mean: values.iter().sum::<f64>() / values.len() as f64,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max,
        }
    }
}

/// The value at a quantile of 0 to 1 of sorted values; `None` if there are none.
pub fn percentile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    // 0.07 · 100 is a little more than 7: a rounding error must not select the next value.
    let rank = (share * sorted.len() as f64 - 1e-9).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// A group of flows.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Group {
    /// Number of flows that started or were to start.
    pub flows: u64,
    /// Number of flows that arrived completely.
    pub complete: u64,
    /// Payload of complete flows, bytes.
    pub bytes: u64,
    /// Completion times of complete flows, ns.
    pub fct: Distribution,
    /// Completion times of complete flows in units of those in an empty network.
    pub slowdown: Distribution,
}

impl Group {
    /// Computes the group of these flows.
    pub fn of<'a>(flows: impl Iterator<Item = (&'a Flow, &'a FlowRecord)>) -> Group {
        let (mut group, mut fcts, mut slowdowns) = (Group::default(), Vec::new(), Vec::new());
        for (flow, record) in flows {
            group.flows += 1;
            if let (Some(fct), Some(slowdown)) = (record.fct(flow), record.slowdown(flow)) {
                group.complete += 1;
                group.bytes += flow.bytes;
                fcts.push(fct as f64);
                slowdowns.push(slowdown);
            }
        }
        group.fct = Distribution::of(&mut fcts);
        group.slowdown = Distribution::of(&mut slowdowns);
        group
    }
}

/// Flows of a range of sizes.
#[derive(Copy, Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bucket {
    /// Lower limit, exclusive, bytes.
    pub above: u64,
    /// Upper limit, inclusive, bytes; `None` for the last.
    pub up_to: Option<u64>,
    /// The flows.
    pub group: Group,
}

/// Statistics of a run.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Summary {
    /// How the run ended.
    pub ending: Ending,
    /// Time at which the run ended, ns.
    pub ended: u64,
    /// All flows.
    pub all: Group,
    /// By size, including empty buckets.
    pub by_size: Vec<Bucket>,
    /// By class of the workload: the first is class 0.
    pub by_class: Vec<Group>,
    /// Times of complete calls, ns, from the start of the request to the end of the response, if there are any.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub calls: Option<Distribution>,
    /// Payload of complete flows, in bit/s, from the first start to the last delivery.
    pub goodput: f64,
    /// Flows with a timeout, among those with queue pairs of their own.
    pub timed_out: u64,
    /// Packets that NICs sent.
    pub sent: u64,
    /// Packets dropped by switches.
    pub dropped: u64,
    /// Packets trimmed by switches.
    pub trimmed: u64,
    /// Those of them that were trimmed on their way up, away from all hosts.
    pub trimmed_upwards: u64,
    /// Packets returned to their sender by switches.
    pub returned: u64,
    /// Packets lost on links.
    pub lost: u64,
    /// Packets marked with congestion experienced.
    pub marked: u64,
    /// Packets by colour, if switches use colours.
    pub colours: Option<ColourTotals>,
    /// Packets that left switches under a policy that had been replaced, if policies change.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub drained: Option<u64>,
    /// Counters of Escape, if switches have it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub escape: Option<EscapeCounters>,
    /// Counters of loop breakers, if switches have them.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub breaker: Option<BreakerCounters>,
    /// PFC frames that arrived.
    pub pfc_frames: u64,
    /// Total time for which ports were paused, ns.
    pub paused: u64,
    /// Number of ports, to relate `paused` to.
    pub ports: u64,
    /// Largest number of bytes queued for one port.
    pub peak_queue: u64,
    /// Sums of the counters of all NICs: retransmissions, timeouts, packets out of order.
    pub nics: Counters,
    /// Sum over packets of links crossed.
    pub packet_hops: u64,
    /// Events handled.
    pub events: u64,
}

/// Default bucket limits, bytes: one packet, and powers of ten.
pub fn size_edges(mtu: u64) -> Vec<u64> {
    let powers = [10_000, 100_000, 1_000_000, 10_000_000];
    std::iter::once(mtu).chain(powers.into_iter().filter(|edge| *edge > mtu)).collect()
}

impl Summary {
    /// Computes the statistics of a run, with a bucket for flows up to each of `edges` (bytes, ascending).
    pub fn of(outcome: &Outcome, edges: &[u64]) -> Summary {
        let flows = || outcome.flows.iter().zip(&outcome.records);
        let bounds = std::iter::once(0).chain(edges.iter().copied());
        let limits = edges.iter().copied().map(Some).chain([None]);
        let by_size = bounds.zip(limits).map(|(above, up_to)| Bucket {
            above,
            up_to,
            group: Group::of(flows().filter(|(f, _)| f.bytes > above && up_to.is_none_or(|limit| f.bytes <= limit))),
        });
        let classes = flows().map(|(f, _)| f.class).max().map_or(0, |last| usize::from(last) + 1);
        let all = Group::of(flows());
        let first = outcome.flows.first().map_or(0, |f| f.start);
        let last = outcome.records.iter().filter_map(|r| r.delivered).max().unwrap_or(first);
        let mut calls: Vec<f64> = outcome.records.iter().filter_map(|r| Some(r.call()? as f64)).collect();
        Summary {
            ending: outcome.ending.clone(),
            calls: (!calls.is_empty()).then(|| Distribution::of(&mut calls)),
            ended: outcome.ended,
            all,
            by_size: by_size.collect(),
            by_class: (0..classes).map(|c| Group::of(flows().filter(|(f, _)| usize::from(f.class) == c))).collect(),
            goodput: if last > first { all.bytes as f64 * 8e9 / (last - first) as f64 } else { 0.0 },
            timed_out: outcome.records.iter().filter(|record| record.timeouts > 0).count() as u64,
            sent: outcome.injected.0,
            dropped: outcome.dropped.0,
            trimmed: outcome.trimmed.0,
            trimmed_upwards: outcome.links.iter().filter(|l| l.upwards).map(|l| l.counters.trimmed).sum(),
            returned: outcome.links.iter().map(|l| l.counters.returned).sum(),
            lost: outcome.lost.0,
            marked: outcome.links.iter().map(|l| l.counters.marked).sum(),
            colours: outcome.colours,
            drained: outcome.drained.map(|(packets, _)| packets),
            escape: outcome.escape,
            breaker: outcome.breaker,
            pfc_frames: outcome.pfc_frames,
            paused: outcome.paused(),
            ports: outcome.links.len() as u64,
            peak_queue: outcome.links.iter().map(|l| l.counters.peak).max().unwrap_or(0),
            nics: outcome.nics,
            packet_hops: outcome.packet_hops(),
            events: outcome.events,
        }
    }

    /// Share of the packets sent that were dropped or lost, 0 to 1.
    pub fn loss_rate(&self) -> f64 {
        (self.dropped + self.lost) as f64 / self.sent.max(1) as f64
    }

    /// Share of the time of all ports for which they were paused, 0 to 1.
    pub fn paused_share(&self) -> f64 {
        self.paused as f64 / (self.ports * self.ended).max(1) as f64
    }
}

/// Mean of a few values and the half-width of its 95 % confidence interval, by Student's t; 0 for fewer than two.
pub fn mean_and_confidence(values: &[f64]) -> (f64, f64) {
    // Two-sided 95 % quantiles for 1, 2 … degrees of freedom; beyond, the normal distribution's is within 2 %.
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = T.get(values.len() - 2).copied().unwrap_or(1.96);
    (mean, t * (variance / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let hundred: Vec<u32> = (1..=100).collect();
        for (share, value) in
            [(0.0, 1), (0.005, 1), (0.07, 7), (0.5, 50), (0.501, 51), (0.99, 99), (0.999, 100), (1.0, 100)]
        {
            assert_eq!(percentile(&hundred, share), Some(value), "{share}");
        }
        assert_eq!(percentile(&[7], 0.5), Some(7));
        assert_eq!(percentile::<u32>(&[], 0.5), None);
    }

    #[test]
    fn distributions_do_not_depend_on_order() {
        let d = Distribution::of(&mut [3.0, 1.0, 2.0, 10.0]);
        assert_eq!((d.count, d.mean, d.p50, d.p95, d.max), (4, 4.0, 2.0, 10.0, 10.0));
        assert_eq!(Distribution::of(&mut []), Distribution::default());
    }

    #[test]
    fn groups_count_what_is_not_complete() {
        let flow = |bytes| Flow { src: 0, dst: 1, bytes, start: 100, priority: 0, class: 0, setup: 0 };
        let flows = [flow(10), flow(20)];
        let done = FlowRecord { delivered: Some(400), ideal: 100, ..FlowRecord::default() };
        let group = Group::of(flows.iter().zip(&[done, FlowRecord::default()]));
        assert_eq!((group.flows, group.complete, group.bytes), (2, 1, 10));
        assert_eq!((group.fct.mean, group.slowdown.mean), (300.0, 3.0));
    }

    #[test]
    fn edges_begin_with_one_packet() {
        assert_eq!(size_edges(1024), [1024, 10_000, 100_000, 1_000_000, 10_000_000]);
        assert_eq!(size_edges(16_384), [16_384, 100_000, 1_000_000, 10_000_000]);
    }

    #[test]
    fn confidence_intervals_are_students() {
        let (mean, half) = mean_and_confidence(&[1.0, 2.0, 3.0]);
        assert_eq!(mean, 2.0);
        // t(2) · 1 / √3.
        assert!((half - 4.303 / 3f64.sqrt()).abs() < 1e-12, "{half}");
        assert_eq!(mean_and_confidence(&[5.0]), (5.0, 0.0));
        assert_eq!(mean_and_confidence(&[]), (0.0, 0.0));
    }
}
