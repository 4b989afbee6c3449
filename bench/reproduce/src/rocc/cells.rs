//! Cells: what is run and measured, and the values of the paper.

use std::borrow::Cow;

use super::datacenter::{Datacenter, Sizes, Sleep, Tier, Traffic};
use super::measure::Measured;
use super::scenario::{Control, Network, STEPS, Scenario};
use crate::points::{self, Reference};

/// A cell of the results.
pub type Cell = points::Cell<Scenario, Metric>;

type Point = points::Point<Scenario, Metric>;

/// A metric. Rates are in Gbit/s, queues in KB.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Mean rate of the flows in this index range.
    Rate(&'static str, usize, usize),
    /// Mean rate of all flows.
    Share,
    /// The smallest, and the largest rate over the mean.
    Least,
    /// See `Least`.
    Most,
    /// Mean of the longest queue.
    Queue,
    /// Longest queue of the whole run.
    Peak,
    /// Time at which the queue settles, ms.
    Settle,
    /// Time at which the rate of senders, which is the fair rate, settles, ms.
    SettleRate,
    /// Rate of notices, Mbit/s.
    Notices,
    /// PFC frames.
    PfcFrames,
    /// Rate of a flow in a step of Figure 3.6.
    StepRate(usize),
    /// Time at which the queue settles in a step, ms.
    StepSettle(usize),
    /// The longest of these times, ms.
    Slowest,
    /// Mean rate of pairs, and its standard deviation, Mbit/s.
    Rate333,
    /// See `Rate333`.
    Deviation,
    /// Pairs with something to send.
    Active,
    /// Utilization of the shared links, %.
    Used,
    /// Mean completion time of the flows of a bin, µs.
    Mean(usize),
    /// The 99th percentile, µs.
    P99(usize),
    /// Mean queue of a tier's ports, KB.
    QueueOf(Tier),
    /// XOFF frames of a tier's switches per ms.
    Pauses(Tier),
    /// Bytes in all switches, KB.
    Buffered,
    /// Packets dropped.
    Dropped,
}

use Metric::*;

const D0: Metric = Rate("d0", 0, 1);
const D1_4: Metric = Rate("d1-4", 1, 5);
const D5: Metric = Rate("d5", 5, 6);
const D0_4: Metric = Rate("d0-4", 0, 5);
const D5_6: Metric = Rate("d5-6", 5, 7);

/// Bins of flow sizes, from the smallest.
const MEANS: [&str; 4] = ["mean_small", "mean_medium", "mean_large", "mean_huge"];
const P99S: [&str; 4] = ["p99_small", "p99_medium", "p99_large", "p99_huge"];
/// Steps of Figure 3.6.
const STEP_RATES: [&str; STEPS.len()] = [
    "rate_3",
    "rate_6",
    "rate_12",
    "rate_24",
    "rate_48",
    "rate_96",
    "rate_48_down",
    "rate_24_down",
    "rate_12_down",
    "rate_6_down",
    "rate_3_down",
];
const STEP_SETTLES: [&str; STEPS.len()] = [
    "settle_3",
    "settle_6",
    "settle_12",
    "settle_24",
    "settle_48",
    "settle_96",
    "settle_48_down",
    "settle_24_down",
    "settle_12_down",
    "settle_6_down",
    "settle_3_down",
];

/// All metrics.
fn all() -> impl Iterator<Item = Metric> {
    let single = [
        D0, D1_4, D5, D0_4, D5_6, Share, Least, Most, Queue, Peak, Settle, SettleRate, Notices, PfcFrames, Slowest,
        Rate333, Deviation, Active, Used, Buffered, Dropped,
    ];
    let tiers = [Tier::Ingress, Tier::Core, Tier::Egress];
    let bins = (0..4).flat_map(|bin| [Mean(bin), P99(bin)]);
    let steps = (0..STEPS.len()).flat_map(|step| [StepRate(step), StepSettle(step)]);
    let tiers = tiers.into_iter().flat_map(|tier| [QueueOf(tier), Pauses(tier)]);
    single.into_iter().chain(bins).chain(steps).chain(tiers)
}

impl points::Metric for Metric {
    type Run = Measured;

    fn name(self) -> Cow<'static, str> {
        match self {
            Rate(name, ..) => name,
            Share => "share",
            Least => "least",
            Most => "most",
            Queue => "queue",
            Peak => "peak",
            Settle => "settle",
            SettleRate => "settle_rate",
            Notices => "notices",
            PfcFrames => "pfc_frames",
            StepRate(step) => STEP_RATES[step],
            StepSettle(step) => STEP_SETTLES[step],
            Slowest => "slowest",
            Rate333 => "rate",
            Deviation => "deviation",
            Active => "active",
            Used => "used",
            Mean(bin) => MEANS[bin],
            P99(bin) => P99S[bin],
            QueueOf(Tier::Ingress) => "queue_ingress",
            QueueOf(Tier::Core) => "queue_core",
            QueueOf(Tier::Egress) => "queue_egress",
            Pauses(Tier::Ingress) => "pauses_ingress",
            Pauses(Tier::Core) => "pauses_core",
            Pauses(Tier::Egress) => "pauses_egress",
            Buffered => "buffered",
            Dropped => "dropped",
        }
        .into()
    }

    fn named(name: &str) -> Option<Metric> {
        all().find(|metric| metric.name() == name)
    }

    fn of(self, run: &Measured) -> Option<f64> {
        if let Some(datacenter) = &run.datacenter {
            return self.of_datacenter(datacenter);
        }
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        Some(match self {
            StepRate(step) => run.steps.get(step)?.0,
            StepSettle(step) => run.steps.get(step)?.1,
            Slowest => run.steps.iter().map(|(_, settle)| *settle).reduce(f64::max)?,
            Rate(_, from, to) => mean(run.rates.get(from..to)?),
            Share => mean(&run.rates),
            Least => run.rates.iter().copied().reduce(f64::min)? / mean(&run.rates),
            Most => run.rates.iter().copied().reduce(f64::max)? / mean(&run.rates),
            Queue => run.queue,
            Peak => run.peak,
            Settle => run.settle,
            SettleRate => run.settle_rate,
            Notices => run.notices,
            PfcFrames => run.pfc_frames,
            _ => return None,
        })
    }
}

impl Metric {
    fn of_datacenter(self, run: &Datacenter) -> Option<f64> {
        let bin = |bin: usize| run.bins.get(bin).filter(|bin| bin.flows > 0);
        Some(match self {
            Rate333 => run.rate,
            Deviation => run.deviation,
            Active => run.active,
            Used => run.used,
            Notices => run.notices,
            Mean(at) => bin(at)?.mean,
            P99(at) => bin(at)?.p99,
            QueueOf(tier) => run.queues[tier as usize],
            Pauses(tier) => run.pauses[tier as usize],
            Buffered => run.buffered,
            Dropped => run.dropped,
            _ => return None,
        })
    }
}

/// All points.
fn points() -> Vec<Point> {
    const ALONE: &[Metric] = &[Queue, Share, Least, Most, Settle, SettleRate, Peak, Notices];
    const COMPARED: &[Metric] = &[Queue, Share, Least, Most, Peak, PfcFrames];
    const WHOLE: &[Metric] = &[Queue, Share];
    const STEPPED: &[Metric] = &STEPPED_METRICS;
    let mut all = Vec::new();
    for rate in [40, 100] {
        for n in [2, 10, 100] {
            let scenario = Scenario(Network::Star(n, rate, 90), Control::Rocc);
            all.push(points::Point(format!("figure3.5/{rate}G/{n}"), scenario, ALONE));
        }
    }
    let whole = Scenario(Network::Star(100, 40, 90), Control::RoccWhole);
    all.push(points::Point("figure3.5/40G/100-whole".to_owned(), whole, WHOLE));
    all.push(points::Point("figure3.6".to_owned(), Scenario(Network::Steps, Control::Rocc), STEPPED));
    for control in [
        Control::Rocc,
        Control::Dcqcn,
        Control::DcqcnTheirs,
        Control::DcqcnPi,
        Control::Timely,
        Control::Hpcc,
        Control::HpccTheirs,
    ] {
        let scenario = Scenario(Network::Star(10, 40, 100), control);
        all.push(points::Point(format!("figure3.8/{}", control.name()), scenario, COMPARED));
    }
    for (figure, network, metrics) in
        [("figure3.9a", Network::Bottlenecks, &[D0, D5, D1_4][..]), ("figure3.9b", Network::Asymmetric, &[D0_4, D5_6])]
    {
        let rivals = [Control::Dcqcn, Control::DcqcnTheirs, Control::Hpcc, Control::HpccTheirs];
        for control in [Control::Rocc].into_iter().chain(rivals) {
            let scenario = Scenario(network, control);
            all.push(points::Point(format!("{figure}/{}", control.name()), scenario, metrics));
        }
    }
    for (name, network) in [
        ("figure3.10/uni", Network::Dpdk { mix: false }),
        ("figure3.10/mix", Network::Dpdk { mix: true }),
        ("figure3.11/uni", Network::Tofino { mix: false }),
        ("figure3.11/mix", Network::Tofino { mix: true }),
    ] {
        all.push(points::Point(name.to_owned(), Scenario(network, Control::Rocc), &[Queue, D0]));
    }
    datacenter(&mut all);
    all
}

/// The metrics of each step of Figure 3.6.
const STEPPED_METRICS: [Metric; 2 * STEPS.len() + 1] = {
    let mut metrics = [Slowest; 2 * STEPS.len() + 1];
    let mut step = 0;
    while step < STEPS.len() {
        metrics[step] = StepRate(step);
        metrics[STEPS.len() + step] = StepSettle(step);
        step += 1;
    }
    metrics
};

/// Table 3.3 and Figures 3.12 to 3.15.
fn datacenter(all: &mut Vec<Point>) {
    const RATES: &[Metric] = &[Rate333, Deviation, Active, Used, Notices];
    const MEAN: &[Metric] = &[Mean(0), Mean(1), Mean(2), Mean(3)];
    const TAIL: &[Metric] = &[P99(0), P99(1), P99(2), P99(3)];
    const QUEUES: &[Metric] = &[
        QueueOf(Tier::Ingress),
        QueueOf(Tier::Core),
        QueueOf(Tier::Egress),
        Pauses(Tier::Ingress),
        Pauses(Tier::Core),
        Pauses(Tier::Egress),
        Used,
        Active,
    ];
    const UNLIMITED: &[Metric] = &[Mean(0), Mean(1), Mean(2), Mean(3), QueueOf(Tier::Core), Buffered, Used, Dropped];
    let controls =
        [Control::Rocc, Control::Dcqcn, Control::DcqcnTheirs, Control::Hpcc, Control::HpccTheirs, Control::Timely];
    let hadoop = Traffic::new(Sizes::Hadoop, Sleep::Load(70));
    let scenario = |traffic, control| Scenario(Network::Datacenter(traffic), control);
    for control in controls {
        all.push(points::Point(format!("table3.3/{}", control.name()), scenario(hadoop, control), RATES));
    }
    for control in [Control::Rocc, Control::Dcqcn, Control::Hpcc] {
        let fresh = scenario(Traffic { fresh: true, ..hadoop }, control);
        all.push(points::Point(format!("table3.3/{}-fresh", control.name()), fresh, RATES));
    }
    let loads = [
        ("web-search-70", Traffic::new(Sizes::WebSearch, Sleep::Load(70))),
        ("web-search-50", Traffic::new(Sizes::WebSearch, Sleep::Load(50))),
        ("web-search-38ms", Traffic::new(Sizes::WebSearch, Sleep::Time(38_027_800))),
        ("hadoop-70", hadoop),
        ("hadoop-50", Traffic::new(Sizes::Hadoop, Sleep::Load(50))),
    ];
    for (figure, metrics) in [("figure3.12", MEAN), ("figure3.13", TAIL), ("figure3.14", QUEUES)] {
        for (name, traffic) in loads {
            for control in controls {
                let name = format!("{figure}/{name}/{}", control.name());
                all.push(points::Point(name, scenario(traffic, control), metrics));
            }
        }
    }
    for control in controls {
        let unlimited = scenario(Traffic { unlimited: true, ..hadoop }, control);
        all.push(points::Point(format!("figure3.15/{}", control.name()), unlimited, UNLIMITED));
    }
}

/// Returns the values of the paper.
pub fn reference() -> Reference {
    Reference::read(include_str!("../../../../fixtures/reference/rocc.toml"))
}

/// All cells.
pub fn rocc(reference: &Reference) -> Vec<Cell> {
    points::cells(&points(), reference)
}

#[cfg(test)]
mod tests {
    use points::Metric as _;

    use super::*;
    use crate::evaluation::Entry as _;
    use crate::runs::once;

    #[test]
    fn no_number_or_claim_of_the_fixture_is_left_out() {
        let reference = reference();
        points::check(&rocc(&reference), &reference);
    }

    #[test]
    fn every_cell_can_be_run() {
        for scenario in once(rocc(&reference()).iter().flat_map(Cell::needed)) {
            let config = scenario.config(1, 120_000_000, 20_000).unwrap_or_else(|e| panic!("{scenario:?}: {e}"));
            assert!(config.flows.len() > 1 || config.loops[0].pairs().count() == 1_800);
            assert_eq!(config.rocc.is_some(), scenario.1.is_rocc());
        }
    }

    #[test]
    fn metrics_have_names() {
        assert!(all().all(|metric| Metric::named(&metric.name()) == Some(metric)));
        assert_eq!(Metric::named("d7"), None);
    }
}
