//! Cells: what is run and measured, and what the paper says of it.

use std::borrow::Cow;

use super::measure::Measured;
use super::scenario::{Control, Network, Scenario};
use crate::reproduce::points::{self, Reference};

/// A number of the results.
pub type Cell = points::Cell<Scenario, Metric>;

type Point = points::Point<Scenario, Metric>;

/// What is measured. Rates are in Gbit/s, queues in KB.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Mean rate of the flows from this place up to that.
    Rate(&'static str, usize, usize),
    /// Mean rate of all flows.
    Share,
    /// The smallest rate and the largest over the mean.
    Least,
    /// See `Least`.
    Most,
    /// Mean of the longest queue.
    Queue,
    /// Longest queue of all the run.
    Peak,
    /// When the queue comes to rest, ms.
    Settle,
    /// Rate of notices, Mbit/s.
    Notices,
    /// PFC frames.
    PfcFrames,
}

use Metric::*;

const D0: Metric = Rate("d0", 0, 1);
const D1_4: Metric = Rate("d1-4", 1, 5);
const D5: Metric = Rate("d5", 5, 6);
const D0_4: Metric = Rate("d0-4", 0, 5);
const D5_6: Metric = Rate("d5-6", 5, 7);

const ALL: [Metric; 13] = [D0, D1_4, D5, D0_4, D5_6, Share, Least, Most, Queue, Peak, Settle, Notices, PfcFrames];

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
            Notices => "notices",
            PfcFrames => "pfc_frames",
        }
        .into()
    }

    fn named(name: &str) -> Option<Metric> {
        ALL.into_iter().find(|metric| metric.name() == name)
    }

    fn of(self, run: &Measured) -> Option<f64> {
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        Some(match self {
            Rate(_, from, to) => mean(run.rates.get(from..to)?),
            Share => mean(&run.rates),
            Least => run.rates.iter().copied().reduce(f64::min)? / mean(&run.rates),
            Most => run.rates.iter().copied().reduce(f64::max)? / mean(&run.rates),
            Queue => run.queue,
            Peak => run.peak,
            Settle => run.settle,
            Notices => run.notices,
            PfcFrames => run.pfc_frames,
        })
    }
}

/// All that is run.
fn points() -> Vec<Point> {
    const ALONE: &[Metric] = &[Queue, Share, Least, Most, Settle, Peak, Notices];
    const BESIDE: &[Metric] = &[Queue, Share, Least, Most, Peak, PfcFrames];
    const WHOLE: &[Metric] = &[Queue, Share];
    let mut all = Vec::new();
    for rate in [40, 100] {
        for n in [2, 10, 100] {
            let scenario = Scenario(Network::Star(n, rate), Control::Rocc);
            all.push(points::Point(format!("figure3.5/{rate}G/{n}"), scenario, ALONE));
        }
    }
    let whole = Scenario(Network::Star(100, 40), Control::RoccWhole);
    all.push(points::Point("figure3.5/40G/100-whole".to_owned(), whole, WHOLE));
    for control in [Control::Rocc, Control::Dcqcn, Control::Timely, Control::Hpcc] {
        let scenario = Scenario(Network::Star(10, 40), control);
        all.push(points::Point(format!("figure3.8/{}", control.name()), scenario, BESIDE));
    }
    for (figure, network, metrics) in
        [("figure3.9a", Network::Bottlenecks, &[D0, D5, D1_4][..]), ("figure3.9b", Network::Asymmetric, &[D0_4, D5_6])]
    {
        for control in [Control::Rocc, Control::Dcqcn, Control::Hpcc] {
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
    all
}

/// Returns what the paper says.
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
    use crate::reproduce::runs::once;

    #[test]
    fn no_number_or_claim_of_the_fixture_is_left_out() {
        let reference = reference();
        points::check(&rocc(&reference), &reference);
    }

    #[test]
    fn every_cell_can_be_run() {
        for scenario in once(rocc(&reference()).iter().flat_map(Cell::needed)) {
            let config = scenario.config(1, 1_000_000, 20_000).unwrap_or_else(|e| panic!("{scenario:?}: {e}"));
            assert!(config.flows.len() > 1);
            let notified = matches!(scenario.1, Control::Rocc | Control::RoccWhole);
            assert_eq!(config.rocc.is_some(), notified);
        }
    }

    #[test]
    fn metrics_have_names() {
        assert!(ALL.iter().all(|metric| Metric::named(&metric.name()) == Some(*metric)));
        assert_eq!(Metric::named("d7"), None);
    }
}
