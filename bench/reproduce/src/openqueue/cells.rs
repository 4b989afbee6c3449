//! Cells: what is run and measured, and the values of the text.

use std::borrow::Cow;

use super::measure::Measured;
use super::scenario::{Algorithm, Scenario};
use crate::points::{self, Reference};

/// A cell of the results.
pub type Cell = points::Cell<Scenario, Metric>;

type Point = points::Point<Scenario, Metric>;

/// A metric.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Throughput, Gbit/s.
    Throughput,
    /// Value per µs.
    Weighted,
    /// Share of packets dropped.
    Lost,
    /// Mean time in the network, µs.
    Delay,
}

use Metric::*;

const ALL: [Metric; 4] = [Throughput, Weighted, Lost, Delay];

impl points::Metric for Metric {
    type Run = Measured;

    fn name(self) -> Cow<'static, str> {
        match self {
            Throughput => "throughput",
            Weighted => "weighted",
            Lost => "lost",
            Delay => "delay",
        }
        .into()
    }

    fn named(name: &str) -> Option<Metric> {
        ALL.into_iter().find(|metric| metric.name() == name)
    }

    fn of(self, run: &Measured) -> Option<f64> {
        Some(match self {
            Throughput => run.throughput,
            Weighted => run.weighted,
            Lost => run.lost,
            Delay => run.delay,
        })
    }
}

/// irnic's policies in which three outputs share a buffer.
const POLICIES: [&str; 8] = [
    "static-partition",
    "shared-buffer",
    "shared-lqd",
    "tail-drop",
    "most-value-first",
    "weighted-round-robin",
    "random-early-drop",
    "least-slack",
];

/// All points.
fn points() -> Vec<Point> {
    const RATES: &[Metric] = &[Throughput, Weighted];
    let mut all = Vec::new();
    for (name, algorithm) in [("A", Algorithm::A), ("B", Algorithm::B), ("C", Algorithm::C)] {
        for load in [100, 125, 150, 175, 200] {
            let scenario = Scenario::TwoSources(algorithm, 1, load);
            all.push(points::Point(format!("figure2.19ab/{name}/{load}"), scenario, RATES));
        }
    }
    for (name, algorithm) in [("A", Algorithm::A), ("B", Algorithm::B), ("C", Algorithm::C)] {
        for k in [2, 4, 8] {
            let scenario = Scenario::TwoSources(algorithm, k, 150);
            all.push(points::Point(format!("figure2.19cd/{name}/{k}"), scenario, RATES));
        }
    }
    for (name, heap) in [("list", false), ("heap", true)] {
        all.push(points::Point(format!("figure2.17/{name}"), Scenario::Fifo { heap }, &[Throughput, Delay]));
    }
    for policy in POLICIES {
        all.push(points::Point(format!("table/{policy}"), Scenario::ThreeOutputs(policy), &[Lost, Weighted, Delay]));
    }
    all
}

/// Returns the values of the text.
pub fn reference() -> Reference {
    Reference::read(include_str!("../../../../fixtures/reference/openqueue.toml"))
}

/// All cells.
pub fn openqueue(reference: &Reference) -> Vec<Cell> {
    points::cells(&points(), reference)
}

#[cfg(test)]
mod tests {
    use points::Metric as _;

    use super::*;
    use crate::evaluation::Entry as _;
    use crate::openqueue::measure::{Time, one};
    use crate::runs::once;

    #[test]
    fn no_claim_of_the_fixture_is_left_out() {
        let reference = reference();
        points::check(&openqueue(&reference), &reference);
    }

    #[test]
    fn every_cell_can_be_run() {
        let time = Time { warm_up: 50_000, measured: 200_000 };
        for scenario in once(openqueue(&reference()).iter().flat_map(Cell::needed)) {
            let run = one(scenario, time, 1).unwrap_or_else(|error| panic!("{scenario:?}: {error}"));
            assert!(run.throughput > 5.0, "{scenario:?}: {run:?}");
        }
    }

    #[test]
    fn first_in_first_out_is_the_same_by_a_heap() {
        let time = Time { warm_up: 50_000, measured: 2_000_000 };
        let [list, heap] = [false, true].map(|heap| one(&Scenario::Fifo { heap }, time, 3).expect("a run"));
        assert_eq!(list, heap);
    }

    #[test]
    fn metrics_have_names() {
        assert!(ALL.iter().all(|metric| Metric::named(&metric.name()) == Some(*metric)));
    }
}
