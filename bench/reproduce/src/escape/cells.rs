//! Cells: what is run and measured, and the values of the text.

use std::borrow::Cow;

use super::measure::{Measured, jain};
use super::scenario::{Load, Means, Network, Scenario, Share, Traffic};
use crate::points::{self, Reference};

/// A cell of the results.
pub type Cell = points::Cell<Scenario, Metric>;

type Point = points::Point<Scenario, Metric>;

/// A metric.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Time of the last delivery before a deadlock, ms.
    Deadlock,
    /// Longest time without a delivery, ms.
    Gap,
    /// Share of the time for which links of the cycle were transmitting, %.
    Utilization,
    /// XOFFs on each of these links.
    Xoffs,
    /// Largest number of bytes queued for a port, KB.
    Peak,
    /// Packets dropped, retransmitted or out of order.
    Harm,
    /// Frames that escaped.
    Escaped,
    /// Tokens per frame that escaped.
    Tokens,
    /// Loops found.
    Loops,
    /// Frames per loop that were dropped, or moved on.
    Touched,
    /// Mean rate of a flow, Gbit/s.
    PerFlow,
    /// Fairness among senders, Jain's index.
    Jain,
    /// Rate of the senders in this index range on their links, Gbit/s.
    Rate(&'static str, usize, usize),
    /// Mean completion time of flows up to a size, by index, µs.
    Fct(usize),
    /// 99th percentile of the completion time, µs.
    P99(usize),
    /// Incomplete flows.
    Incomplete,
}

use Metric::*;

const TO_H16: Metric = Rate("h1-h3", 0, 2);
const TO_H4: Metric = Rate("h13-h15", 2, 4);
const H7: Metric = Rate("h7", 4, 5);
const H11: Metric = Rate("h11", 5, 6);

const ALL: [Metric; 23] = [
    Deadlock,
    Gap,
    Utilization,
    Xoffs,
    Peak,
    Harm,
    Escaped,
    Tokens,
    Loops,
    Touched,
    PerFlow,
    Jain,
    TO_H16,
    TO_H4,
    H7,
    H11,
    Fct(0),
    Fct(1),
    Fct(2),
    P99(0),
    P99(1),
    P99(2),
    Incomplete,
];

impl points::Metric for Metric {
    type Run = Measured;

    fn name(self) -> Cow<'static, str> {
        const SIZES: [&str; 3] = ["-to-10KB", "-to-1MB", ""];
        match self {
            Deadlock => "deadlock_ms".into(),
            Gap => "gap_ms".into(),
            Utilization => "utilization".into(),
            Xoffs => "xoffs".into(),
            Peak => "peak_kb".into(),
            Harm => "harm".into(),
            Escaped => "escaped".into(),
            Tokens => "tokens".into(),
            Loops => "loops".into(),
            Touched => "touched".into(),
            PerFlow => "per_flow".into(),
            Jain => "jain".into(),
            Rate(name, ..) => name.into(),
            Fct(at) => format!("fct{}", SIZES[at]).into(),
            P99(at) => format!("p99{}", SIZES[at]).into(),
            Incomplete => "incomplete".into(),
        }
    }

    fn named(name: &str) -> Option<Metric> {
        ALL.into_iter().find(|metric| metric.name() == name)
    }

    fn of(self, run: &Measured) -> Option<f64> {
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        Some(match self {
            Deadlock => run.deadlock?,
            Gap => run.gap,
            Utilization => run.utilization,
            Xoffs => run.xoffs,
            Peak => run.peak,
            Harm => run.harm,
            Escaped => run.escaped,
            Tokens => run.tokens / run.escaped.max(1.0),
            Loops => run.loops,
            Touched => run.touched,
            PerFlow => mean(&run.rates) / run.per_sender,
            Jain => jain(&run.rates),
            Rate(_, from, to) => mean(run.rates.get(from..to)?),
            Fct(at) => run.fct[at]?,
            P99(at) => run.p99[at]?,
            Incomplete => run.incomplete,
        })
    }
}

/// Traffic of Figures 4.15 and 4.17: with the text's ten generators per source, and as separate flows. Hadoop's sizes
/// are those of HPCC's simulator, which the text refers to by its paper, and those in the author's repository for RoCC.
const TRAFFIC: [(&str, Traffic); 5] = [
    ("web-search", Traffic::Generators("WebSearch", 10)),
    ("hadoop", Traffic::Generators("FbHdp2015", 10)),
    ("hadoop-author", Traffic::Generators("RoccHadoop", 10)),
    ("web-search-fresh", Traffic::Arrivals("WebSearch")),
    ("hadoop-fresh", Traffic::Arrivals("FbHdp2015")),
];

/// All points.
fn points() -> Vec<Point> {
    const STOPS: &[Metric] = &[Deadlock, Utilization, Xoffs];
    const GOES: &[Metric] = &[Gap, Utilization, Xoffs, Peak, Escaped, Tokens, Harm];
    let mut all = Vec::new();
    let mut add = |name: String, scenario, metrics| all.push(points::Point(name, scenario, metrics));
    for (load, name) in [(Load::Line, "line-rate"), (Load::WebSearch, "web-search")] {
        let of = |means| Scenario::new(Network::Ring(load), means);
        add(format!("figure4.8/{name}/pfc"), of(Means::Pfc), STOPS);
        add(format!("figure4.8/{name}/escape"), of(Means::Escape), &[Gap, Harm]);
        add(format!("figure4.7/{name}/ideal"), of(Means::Ideal), &[Utilization, Peak]);
        add(format!("figure4.7/{name}/escape"), of(Means::Escape), GOES);
        add(format!("figure4.7/{name}/escape-timer"), of(Means::EscapeTimer), GOES);
    }
    // HPCC causes no pauses below 200 KB or so: the second column has what is left to resolve with less.
    for xoff in [500, 100] {
        for means in [Means::Pfc, Means::Escape] {
            let of = |late| Scenario { xoff, ..Scenario::new(Network::RingHpcc { late }, means) };
            let metrics: &[Metric] =
                if means == Means::Pfc { &[Deadlock, PerFlow] } else { &[PerFlow, Jain, Gap, Xoffs, Escaped, Harm] };
            add(format!("figure4.9/{xoff}KB/{}/before", means.name()), of(false), metrics);
            add(format!("figure4.9/{xoff}KB/{}/after", means.name()), of(true), metrics);
        }
    }
    for xoff in [500, 100] {
        let tree = |failed, means| Scenario { xoff, ..Scenario::new(Network::FatTree { failed }, means) };
        let before = tree(false, Means::Escape);
        add(format!("figure4.12/{xoff}KB/escape"), before, &[TO_H16, TO_H4, H7, H11, PerFlow, Harm]);
        add(format!("figure4.13/{xoff}KB/pfc"), tree(true, Means::Pfc), &[TO_H16, TO_H4, H7, H11]);
        let after: &[Metric] = &[TO_H16, TO_H4, H7, H11, Gap, Xoffs, Peak, Escaped, Harm];
        add(format!("figure4.13/{xoff}KB/escape"), tree(true, Means::Escape), after);
    }
    for (name, traffic) in TRAFFIC {
        for (base, share) in [("", Share::Both), ("-each", Share::Each)] {
            for xoff in [500, 100] {
                for means in [Means::Pfc, Means::Lb, Means::Dlb, Means::Gfc, Means::Escape] {
                    let scenario = Scenario { xoff, ..Scenario::new(Network::TwoLevels(traffic, share), means) };
                    let metrics: &[Metric] = match means {
                        Means::Pfc => &[Deadlock, P99(0), P99(2), Incomplete],
                        Means::Lb | Means::Dlb => &[P99(0), P99(1), P99(2), Gap, Loops, Touched, Incomplete, Harm],
                        _ => &[P99(0), P99(1), P99(2), Gap, Escaped, Incomplete, Harm],
                    };
                    add(format!("figure4.15/{name}{base}/{xoff}KB/{}", means.name()), scenario, metrics);
                }
            }
        }
        for (base, share) in [("", Share::Both), ("-each", Share::Each)] {
            for xoff in [500, 100] {
                for means in [Means::Pfc, Means::Gfc, Means::Escape] {
                    let scenario = Scenario { xoff, ..Scenario::new(Network::Incast(traffic, share), means) };
                    let metrics: &[Metric] = match means {
                        Means::Escape => &[Fct(0), Fct(1), Fct(2), Xoffs, Escaped, Tokens, Incomplete, Harm],
                        _ => &[Fct(0), Fct(1), Fct(2), Incomplete, Harm],
                    };
                    add(format!("figure4.17/{name}{base}/{xoff}KB/{}", means.name()), scenario, metrics);
                }
            }
        }
    }
    all
}

/// Returns the values of the text.
pub fn reference() -> Reference {
    Reference::read(include_str!("../../../../fixtures/reference/escape.toml"))
}

/// All cells.
pub fn escape(reference: &Reference) -> Vec<Cell> {
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
        points::check(&escape(&reference), &reference);
    }

    #[test]
    fn every_cell_can_be_run() {
        for scenario in once(escape(&reference()).iter().flat_map(Cell::needed)) {
            let until = scenario.times(true)[1];
            let config = scenario.config(1, true, until).unwrap_or_else(|e| panic!("{scenario:?}: {e}"));
            assert!(config.flows.len() + config.loops.len() > 2);
            let without = matches!(scenario.means, Means::Ideal | Means::Pfc | Means::Gfc);
            assert_eq!(config.hol.is_none(), without, "{scenario:?}");
        }
    }

    #[test]
    fn metrics_have_names() {
        assert!(ALL.iter().all(|metric| Metric::named(&metric.name()) == Some(*metric)));
        assert_eq!(Metric::named("h2"), None);
    }
}
