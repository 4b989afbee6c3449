//! All parts of the chapter: replays (§5.1.3), and least slack time first for objectives (§5.2) and for queue
//! management from the edge (§5.3).

use std::borrow::Cow;

use irnic_sweep::{NoResult, Watch};
use serde::{Deserialize, Serialize};

use super::cells::{self, Cell as Replay};
use super::edge::{self, Edge};
use super::fairness::{Sharing, Starts};
use super::measure::{self, Measured};
use super::network::Network;
use super::objectives::{Goal, RATES, Row};
use super::scenario::Scenario;
use super::scheme::Scheme;
use super::values::{Line, Values};
use crate::points::{self, Point, Reference};

/// A unit of work.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Work {
    Replay(Scenario),
    Row(Row),
    Sharing(Sharing),
}

/// Results of a unit of work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ran {
    Replay(Measured),
    /// Values, and lines of a plot.
    Values(Values, Vec<Line>),
}

impl Ran {
    /// The results of a replay.
    pub fn replay(&self) -> Option<&Measured> {
        match self {
            Ran::Replay(run) => Some(run),
            Ran::Values(..) => None,
        }
    }

    /// Lines of a plot.
    pub fn lines(&self) -> &[Line] {
        match self {
            Ran::Replay(_) => &[],
            Ran::Values(_, lines) => lines,
        }
    }
}

/// A metric: of replays, or a named value.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Metric {
    Replay(cells::Metric),
    Value(&'static str),
}

/// A cell of the results.
pub type Cell = points::Cell<Work, Metric>;

impl points::Metric for Metric {
    type Run = Ran;

    fn name(self) -> Cow<'static, str> {
        match self {
            Metric::Replay(metric) => metric.name(),
            Metric::Value(name) => name.into(),
        }
    }

    fn named(name: &str) -> Option<Metric> {
        let value = VALUES.into_iter().flatten().copied().find(|metric| metric.name() == name);
        value.or_else(|| cells::Metric::named(name).map(Metric::Replay))
    }

    fn of(self, run: &Ran) -> Option<f64> {
        match (self, run) {
            (Metric::Replay(metric), Ran::Replay(run)) => metric.of(run),
            (Metric::Value(name), Ran::Values(values, _)) => values.get(name).copied(),
            _ => None,
        }
    }
}

use Metric::Value;

const COMPLETION: &[Metric] = &[
    Value("fifo_s"),
    Value("srpt_s"),
    Value("sjf_s"),
    Value("lstf_s"),
    Value("fifo_short_s"),
    Value("lstf_short_s"),
    Value("lstf_over_sjf"),
    Value("lstf_over_fifo"),
    Value("srpt_over_fifo"),
    Value("fifo_dropped"),
    Value("lstf_dropped"),
    Value("left_out"),
];
const DELAY: &[Metric] = &[
    Value("fifo_avg_s"),
    Value("lstf_avg_s"),
    Value("fifo_p99_s"),
    Value("lstf_p99_s"),
    Value("avg_over_fifo"),
    Value("p99_over_fifo"),
];
const FAIRNESS: &[Metric] = &[
    Value("fifo_s"),
    Value("fq_s"),
    Value("lstf_s"),
    Value("best_mbps"),
    Value("least_mbps"),
    Value("most_mbps"),
    Value("lstf10_s"),
    Value("lstf50_s"),
    Value("lstf100_s"),
    Value("lstf200_s"),
    Value("lstf300_s"),
    Value("lstf500_s"),
    Value("fifo_short_s"),
    Value("fq_short_s"),
    Value("lstf10_short_s"),
    Value("lstf100_short_s"),
    Value("lstf500_short_s"),
    Value("fifo_p99_s"),
    Value("fq_p99_s"),
    Value("lstf10_p99_s"),
    Value("lstf100_p99_s"),
    Value("lstf500_p99_s"),
    Value("lstf_over_fq"),
    Value("lstf_over_fifo"),
    Value("fq_over_fifo"),
    Value("fq_short_over_fifo"),
    Value("lstf10_p99_over_fq"),
    Value("lstf500_over_fifo"),
    Value("fifo_dropped"),
    Value("left_out"),
];
const OVER_TIME: &[Metric] = &[
    Value("jain_5ms"),
    Value("jain_7ms"),
    Value("jain_10ms"),
    Value("jain_15ms"),
    Value("jain_end"),
    Value("reached_ms"),
    Value("dropped"),
    Value("timeouts"),
];
const NEWCOMER: &[Metric] = &[Value("peak_mbps"), Value("new_mbps"), Value("old_mbps"), Value("settled_ms")];
const EDGE_CODEL: &[Metric] = &[
    Value("fifo_s"),
    Value("fq_s"),
    Value("fq_codel_s"),
    Value("fq_edge_s"),
    Value("lstf_edge_s"),
    Value("fifo_rtt_ms"),
    Value("fq_rtt_ms"),
    Value("fq_codel_rtt_ms"),
    Value("fq_edge_rtt_ms"),
    Value("lstf_edge_rtt_ms"),
    Value("fq_rtt_over_fifo"),
    Value("fq_edge_rtt_over_fq_codel"),
    Value("lstf_edge_rtt_over_fq_codel"),
    Value("lstf_edge_rtt_over_fq"),
    Value("lstf_edge_over_fifo"),
    Value("fifo_dropped"),
    Value("fq_codel_dropped"),
    Value("fq_edge_discarded"),
    Value("lstf_edge_discarded"),
    Value("left_out"),
];
const EDGE_REFRESH: &[Metric] = &[
    Value("10ms_s"),
    Value("20ms_s"),
    Value("30ms_s"),
    Value("40ms_s"),
    Value("10ms_rtt_ms"),
    Value("20ms_rtt_ms"),
    Value("30ms_rtt_ms"),
    Value("40ms_rtt_ms"),
    Value("40ms_over_10ms"),
    Value("40ms_rtt_over_10ms"),
    Value("10ms_discarded"),
    Value("40ms_discarded"),
    Value("left_out"),
];
const EDGE_MARKS: &[Metric] = &[
    Value("no_ecn_s"),
    Value("ecn_s"),
    Value("edge_ecn_s"),
    Value("no_ecn_rtt_ms"),
    Value("ecn_rtt_ms"),
    Value("edge_ecn_rtt_ms"),
    Value("edge_ecn_over_ecn"),
    Value("edge_ecn_rtt_over_ecn"),
    Value("edge_ecn_over_no_ecn"),
    Value("edge_ecn_rtt_over_no_ecn"),
    Value("no_ecn_dropped"),
    Value("left_out"),
];
const WEIGHTED: &[Metric] = &[Value("a_gbps"), Value("b_gbps"), Value("c_gbps")];

const VALUES: [&[Metric]; 9] =
    [COMPLETION, DELAY, FAIRNESS, OVER_TIME, NEWCOMER, WEIGHTED, EDGE_CODEL, EDGE_REFRESH, EDGE_MARKS];

/// The points for objectives, with a [`Row::handshake`] or without.
fn points(handshake: bool) -> Vec<Point<Work, Metric>> {
    let mut all = Vec::new();
    let default = Network::Internet2(10, 1, 1);
    let rows = [
        ("default", default, 70),
        ("30%", default, 30),
        ("50%", default, 50),
        ("1G-1G", Network::Internet2(1, 1, 1), 70),
        ("tenth", Network::Internet2(1, 1, 10), 70),
        ("fat-tree", Network::FatTree, 70),
    ];
    let goals = [
        ("figure5.2", Goal::Completion, COMPLETION),
        ("figure5.3", Goal::Delay, DELAY),
        ("table5.2", Goal::Fairness, FAIRNESS),
    ];
    for (of, goal, metrics) in goals {
        // Table 5.2 has no datacenter row.
        let datacenter = goal != Goal::Fairness;
        for (name, network, load) in rows.into_iter().filter(|row| datacenter || row.1 != Network::FatTree) {
            all.push(Point(format!("{of}/{name}"), Work::Row(Row { goal, network, load, handshake }), metrics));
        }
    }
    let lstf = |rates: &[u64]| -> Vec<(String, Scheme)> {
        let each = rates.iter().map(|mbps| (format!("lstf-{mbps}M"), Scheme::Fair(*mbps)));
        std::iter::once(("fq".to_owned(), Scheme::Fq)).chain(each).collect()
    };
    for (name, scheme) in lstf(&[1_000, 500, 100, 50, 10]) {
        for (suffix, starts) in [("", Starts::Authors), ("-random", Starts::Random)] {
            let sharing = Sharing::Internet2(scheme, starts);
            all.push(Point(format!("figure5.4/{name}{suffix}"), Work::Sharing(sharing), OVER_TIME));
        }
    }
    for (name, scheme) in lstf(&[50, 25, 10, 5]) {
        all.push(Point(format!("figure5.5/{name}"), Work::Sharing(Sharing::Newcomer(scheme)), NEWCOMER));
    }
    for rates in [[900, 100, 100], [100, 100, 100], [300, 100, 300]] {
        let [a, b, c] = rates;
        all.push(Point(format!("figure5.6/{a}-{b}-{c}"), Work::Sharing(Sharing::Weighted(rates)), WEIGHTED));
    }
    for (name, row) in edge::rows(handshake) {
        let metrics = match row.goal {
            Goal::Edge(Edge::Refresh) => EDGE_REFRESH,
            Goal::Edge(Edge::Marks) => EDGE_MARKS,
            _ => EDGE_CODEL,
        };
        all.push(Point(name, Work::Row(row), metrics));
    }
    debug_assert!(RATES.iter().all(|mbps| FAIRNESS.iter().any(|m| *m.name() == format!("lstf{mbps}_s"))));
    all
}

use points::Metric as _;

/// The cells of replays.
pub fn replays(reference: &Reference) -> Vec<Replay> {
    cells::ups(reference)
}

/// All cells: replays, then objectives, with a [`Row::handshake`] or without.
pub fn all(replays: &[Replay], reference: &Reference, handshake: bool) -> Vec<Cell> {
    let of = |cell: &Replay| {
        let (over, under) = cell.scenarios;
        Cell {
            id: cell.id.clone(),
            said: cell.said.clone(),
            scenarios: (Work::Replay(over), under.map(Work::Replay)),
            metric: Metric::Replay(cell.metric),
        }
    };
    replays.iter().map(of).chain(points::cells(&points(handshake), reference)).collect()
}

impl Work {
    /// Estimated relative run time.
    pub fn weight(&self, arrivals: u64, quick: bool) -> f64 {
        match self {
            Work::Replay(scenario) => 2.0 * f64::from(scenario.load) * arrivals as f64 / 1e9,
            Work::Row(row) => 2.0 * row.weight(quick),
            Work::Sharing(_) => 3.0,
        }
    }

    /// Runs it with a seed; flows of replays arrive for `arrivals` ns.
    pub fn run(&self, arrivals: u64, quick: bool, seed: u64, watch: &Watch<'_>) -> Result<Ran, NoResult> {
        match self {
            Work::Replay(scenario) => measure::one(scenario, arrivals, seed, watch).map(Ran::Replay),
            Work::Row(row) => row.run(quick, seed, watch).map(|(values, lines)| Ran::Values(values, lines)),
            Work::Sharing(sharing) => sharing.run(seed, watch).map(|(values, line)| {
                let by_ms = line.iter().enumerate().map(|(at, value)| (at as f64 + 1.0, *value)).collect();
                Ran::Values(values, vec![(String::new(), by_ms)])
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::Entry as _;
    use crate::runs::once;

    #[test]
    fn no_number_or_claim_of_the_fixture_is_left_out() {
        let reference = cells::reference();
        points::check(&all(&replays(&reference), &reference, false), &reference);
    }

    #[test]
    fn every_cell_of_objectives_can_be_run() {
        let reference = cells::reference();
        let both = [false, true].map(|handshake| all(&[], &reference, handshake));
        for work in once(both.iter().flatten().flat_map(Cell::needed)) {
            let configs = match work {
                Work::Replay(_) => Vec::new(),
                Work::Row(row) => row.configs(1, 20_000_000).unwrap_or_else(|e| panic!("{row:?}: {e}")),
                Work::Sharing(sharing) => vec![sharing.config(1).unwrap_or_else(|e| panic!("{sharing:?}: {e}"))],
            };
            assert!(!configs.is_empty() && configs.iter().all(|config| config.flows.len() > 2), "{work:?}");
        }
    }

    #[test]
    fn metrics_have_names() {
        for metrics in VALUES {
            assert!(metrics.iter().all(|metric| Metric::named(&metric.name()) == Some(*metric)));
        }
        assert!(matches!(Metric::named("overdue"), Some(Metric::Replay(_))));
        assert_eq!(Metric::named("overdone"), None);
    }
}
