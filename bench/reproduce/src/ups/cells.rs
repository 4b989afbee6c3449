//! Cells: what is run and measured, and the values of the text.

use std::borrow::Cow;

use super::measure::Measured;
use super::network::Network;
use super::scenario::{By, Original, Scenario};
use super::schedulers::Order;
use crate::points::{self, Reference};

/// A cell of the results.
pub type Cell = points::Cell<Scenario, Metric>;

type Point = points::Point<Scenario, Metric>;

/// A metric.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Share of packets that were overdue.
    Overdue,
    /// Share of packets overdue by more than rounding.
    BeyondRounding,
    /// Share of packets overdue by more than a packet's transmission time on the bottleneck.
    Late,
    /// Largest delay of an overdue packet, µs.
    Worst,
    /// Share of packets with this many congestion points, %.
    Points(usize),
    /// Share of packets that waited in this many switches, %.
    Waits(usize),
    /// Queueing ratio at this percentile of the packets.
    Ratio(u32),
    /// Share of packets that waited no longer.
    NoLonger,
}

use Metric::*;

const POINTS: [Metric; 10] =
    [Points(0), Points(1), Points(2), Points(3), Points(4), Waits(0), Waits(1), Waits(2), Waits(3), Waits(4)];
const REPLAY: [Metric; 4] = [Overdue, BeyondRounding, Late, Worst];
const RATIOS: [Metric; 4] = [Ratio(10), Ratio(50), Ratio(90), NoLonger];

impl points::Metric for Metric {
    type Run = Measured;

    fn name(self) -> Cow<'static, str> {
        match self {
            Overdue => "overdue".into(),
            BeyondRounding => "beyond_rounding".into(),
            Late => "late".into(),
            Worst => "worst_us".into(),
            Points(n) => format!("points-{n}").into(),
            Waits(n) => format!("waits-{n}").into(),
            Ratio(percent) => format!("ratio-{percent}").into(),
            NoLonger => "no_longer".into(),
        }
    }

    fn named(name: &str) -> Option<Metric> {
        POINTS.into_iter().chain(REPLAY).chain(RATIOS).find(|metric| Self::name(*metric) == name)
    }

    fn of(self, run: &Measured) -> Option<f64> {
        let percent = |shares: &[f64], n: usize| 100.0 * shares.get(n).copied().unwrap_or(0.0);
        Some(match self {
            Overdue => run.overdue,
            BeyondRounding => run.beyond_rounding,
            Late => run.late,
            Worst => run.worst,
            Points(n) => percent(&run.points, n),
            Waits(n) => percent(&run.waits, n),
            Ratio(percent) => run.ratio(f64::from(percent) / 100.0)?,
            NoLonger => run.no_longer,
        })
    }
}

/// Internet-2 with default rates, with slow hosts, and with fast edge routers.
const DEFAULT: Network = Network::Internet2(10, 1, 1);
const SLOW: Network = Network::Internet2(1, 1, 1);
const FAST: Network = Network::Internet2(10, 10, 1);
const TENTH: Network = Network::Internet2(1, 1, 10);

/// The original schedulers other than the default.
const ORIGINALS: [(&str, Original); 6] = [
    ("fifo", Original::Order(Order::Fifo)),
    ("fq", Original::Order(Order::Fq)),
    ("sjf", Original::Sized(Order::Rank)),
    ("lifo", Original::Order(Order::Lifo)),
    ("half-fq", Original::Order(Order::HalfFq)),
    ("classes", Original::Sized(Order::Classes)),
];

/// All points.
fn points() -> Vec<Point> {
    let mut all = Vec::new();
    let mut add = |name: String, scenario, metrics| all.push(points::Point(name, scenario, metrics));
    let default = Scenario::new(DEFAULT, 70);
    add("congestion/default".to_owned(), default, &POINTS[..]);
    add("congestion/1G-1G".to_owned(), Scenario::new(SLOW, 70), &POINTS);
    add("table5.1/default".to_owned(), default, &REPLAY);
    for load in [10, 30, 50, 90] {
        add(format!("table5.1/{load}%"), Scenario::new(DEFAULT, load), &REPLAY);
    }
    for (name, network) in [("1G-1G", SLOW), ("10G-10G", FAST), ("tenth", TENTH), ("fat-tree", Network::FatTree)] {
        add(format!("table5.1/{name}"), Scenario::new(network, 70), &REPLAY);
    }
    for (name, original) in ORIGINALS {
        add(format!("table5.1/{name}"), Scenario { original, ..default }, &REPLAY);
    }
    for (name, original) in [("sjf", Original::Sized(Order::Rank)), ("lifo", Original::Order(Order::Lifo))] {
        let replayed = Scenario { original, by: By::PreemptiveLstf, ..default };
        add(format!("table5.1/{name}-preemptive"), replayed, &REPLAY);
    }
    add("table5.1/priorities".to_owned(), Scenario { by: By::Priorities, ..default }, &REPLAY);
    add("table5.1/edf".to_owned(), Scenario { by: By::Edf, ..default }, &REPLAY);
    add("table5.1/vector".to_owned(), Scenario { by: By::Vector, ..default }, &REPLAY);
    add("figure5.1/random".to_owned(), default, &RATIOS);
    for (name, original) in ORIGINALS {
        add(format!("figure5.1/{name}"), Scenario { original, ..default }, &RATIOS);
    }
    all
}

/// Returns the values of the text.
pub fn reference() -> Reference {
    Reference::read(include_str!("../../../../fixtures/reference/ups.toml"))
}

/// All cells.
pub fn ups(reference: &Reference) -> Vec<Cell> {
    points::cells(&points(), reference)
}

#[cfg(test)]
mod tests {
    use points::Metric as _;

    use super::*;
    use crate::evaluation::Entry as _;
    use crate::runs::once;

    #[test]
    fn every_cell_can_be_run() {
        for scenario in once(ups(&reference()).iter().flat_map(Cell::needed)) {
            let config = scenario.config(1, 20_000_000).unwrap_or_else(|e| panic!("{scenario:?}: {e}"));
            assert!(config.flows.len() > 10 && config.schedule.is_some(), "{scenario:?}");
        }
    }

    #[test]
    fn metrics_have_names() {
        let all = POINTS.into_iter().chain(REPLAY).chain(RATIOS);
        assert!(all.into_iter().all(|metric| Metric::named(&metric.name()) == Some(metric)));
        assert_eq!(Metric::named("points-9"), None);
    }
}
