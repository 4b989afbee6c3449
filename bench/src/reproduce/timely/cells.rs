//! Cells: what is run and measured, and what the paper says of it.

use super::incast::Incast;
use super::measure::{Measured, PERCENTILES};
use super::reference::Reference;
use crate::reproduce::compared::{Compared, Paper, PerSeed};

/// What is measured. Times are in µs but those of [`Metric::Reached`] in ms, rates in Gbit/s.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    Throughput,
    AvgRtt,
    /// A place in [`PERCENTILES`].
    Rtt(usize),
    Jain,
    Oscillation,
    PfcFrames,
    Dropped,
    /// A place in [`Measured::reached`].
    Reached(usize),
}

use Metric::*;

/// The tail, as Table 1 has it.
const TAIL: Metric = Rtt(7);

impl Metric {
    /// Returns the name in cells.
    pub fn name(self) -> String {
        match self {
            Throughput => "throughput".into(),
            AvgRtt => "avg_rtt".into(),
            Rtt(at) => format!("p{}_rtt", PERCENTILES[at]),
            Jain => "jain".into(),
            Oscillation => "oscillation".into(),
            PfcFrames => "pfc_frames".into(),
            Dropped => "dropped".into(),
            Reached(at) => format!("reached_{}", ["1.5", "2"][at]),
        }
    }

    fn named(name: &str) -> Option<Metric> {
        let rtts = (0..PERCENTILES.len()).map(Rtt);
        let others = [Throughput, AvgRtt, Jain, Oscillation, PfcFrames, Dropped, Reached(0), Reached(1)];
        others.into_iter().chain(rtts).find(|m| m.name() == name)
    }

    fn of(self, run: &Measured) -> Option<f64> {
        Some(match self {
            Throughput => run.throughput,
            AvgRtt => run.avg_rtt,
            Rtt(at) => run.rtt[at],
            Jain => run.jain,
            Oscillation => run.oscillation,
            PfcFrames => run.pfc_frames as f64,
            Dropped => run.dropped as f64,
            Reached(at) => return run.reached[at],
        })
    }
}

/// A number of the results.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Where it stands: `table1/timely/avg_rtt`.
    pub id: String,
    /// What the paper has.
    pub paper: Paper,
    /// Incast, and the one that it is divided by.
    pub scenarios: (Incast, Option<Incast>),
    /// What of it.
    pub metric: Metric,
    /// The words of the paper, for a claim.
    pub text: Option<String>,
}

impl Cell {
    /// The result, from the runs of a scenario: one for each seed.
    pub fn result<'a>(&self, runs: impl Fn(&Incast) -> Vec<Option<&'a Measured>>) -> Compared {
        let of = |scenario| -> PerSeed { runs(scenario).into_iter().map(|run| self.metric.of(run?)).collect() };
        let (over, under) = &self.scenarios;
        Compared::new(&self.id, self.paper, self.text.as_deref(), of(over), under.as_ref().map(of))
    }
}

/// A scenario, what it is called, and what of it there are cells for.
struct Point(String, Incast, &'static [Metric]);

/// All that is run. `more`: parameters of TIMELY's besides the paper's.
fn points(more: &str) -> Vec<Point> {
    const FIGURE: &[Metric] = &[Throughput, AvgRtt, TAIL];
    let timely = |segment, with: &str| {
        let parts: Vec<&str> = [more, with].into_iter().filter(|p| !p.is_empty()).collect();
        Incast::timely(segment, &parts.join(","))
    };
    const WHOLE: &[Metric] = &[Throughput, AvgRtt, TAIL, Jain, PfcFrames, Dropped];
    let mut all = vec![
        Point("table1/timely".into(), timely(16, ""), WHOLE),
        Point("table1/pfc".into(), Incast::pfc(), WHOLE),
        Point("table1/dctcp".into(), Incast::dctcp(), WHOLE),
    ];
    for alpha in ["10M", "50M", "100M"] {
        all.push(Point(format!("table1/fast-{alpha}"), Incast::fast(alpha), &[Throughput, AvgRtt, TAIL, Jain]));
    }
    const APPROACHES: &[Metric] = &[Throughput, AvgRtt, TAIL, Oscillation];
    all.push(Point("figure9/gradient".into(), timely(16, ""), APPROACHES));
    for target in ["50us", "500us"] {
        let both = format!("t-low={target},t-high={target}");
        all.push(Point(format!("figure9/target-{target}"), timely(16, &both), APPROACHES));
    }
    for t_low in ["50us", "0us"] {
        for noise in ["0us", "50us", "100us", "150us", "200us"] {
            let with = format!("t-low={t_low},noise={noise}");
            all.push(Point(format!("figure12/t-low-{t_low}/{noise}"), timely(16, &with), &[Throughput]));
        }
    }
    all.push(Point("figure13/timely".into(), timely(16, ""), &[Jain, Oscillation]));
    const DISTRIBUTION: &[Metric] = &[Rtt(0), Rtt(1), Rtt(2), Rtt(3), Rtt(4), Rtt(5), Rtt(6), Rtt(7), Rtt(8)];
    for (name, scenario) in [("timely", timely(16, "")), ("pfc", Incast::pfc()), ("dctcp", Incast::dctcp())] {
        all.push(Point(format!("figure14/{name}"), scenario, DISTRIBUTION));
    }
    for segment in [16, 32, 64] {
        for t_low in ["0us", "50us", "100us", "200us", "300us", "400us"] {
            let scenario = timely(segment, &format!("t-low={t_low}"));
            all.push(Point(format!("figure15/{segment}KB/{t_low}"), scenario, FIGURE));
        }
    }
    for t_low in ["50us", "0us"] {
        for pacing in ["500M", "600M", "700M", "1G", "2G", "5G", "line"] {
            let scenario = timely(64, &format!("t-low={t_low},pacing={pacing}"));
            all.push(Point(format!("figure16/t-low-{t_low}/{pacing}"), scenario, FIGURE));
        }
    }
    for connections in [4, 7, 10] {
        for t_high in ["50us", "100us", "200us", "500us", "1000us"] {
            let scenario = Incast { connections, ..timely(16, &format!("t-high={t_high}")) };
            all.push(Point(format!("figure17/{connections}/{t_high}"), scenario, FIGURE));
        }
    }
    for (name, with) in
        [("hai", ""), ("additive", "hai=1"), ("hai-t-low-0us", "t-low=0"), ("additive-t-low-0us", "t-low=0,hai=1")]
    {
        let scenario = Incast { connections: 10, quit: true, ..timely(16, with) };
        all.push(Point(format!("figure18/{name}"), scenario, &[Reached(0), Reached(1)]));
    }
    all
}

/// All cells.
pub fn timely(reference: &Reference, more: &str) -> Vec<Cell> {
    let points = points(more);
    let mut cells = Vec::new();
    for Point(name, scenario, metrics) in &points {
        for &metric in *metrics {
            let id = format!("{name}/{}", metric.name());
            let number = reference.number.iter().find(|n| n.id == id);
            let paper = number.map_or(Paper::Silent, |n| Paper::Number(n.value));
            cells.push(Cell { id, paper, scenarios: (scenario.clone(), None), metric, text: None });
        }
    }
    for claim in &reference.claim {
        let named = |name: &str| points.iter().find(|p| p.0 == name).map(|p| p.1.clone());
        let (Some(over), Some(under), Some(metric)) =
            (named(&claim.over), named(&claim.under), Metric::named(&claim.metric))
        else {
            continue;
        };
        let (figure, of) = claim.over.split_once('/').unwrap_or((&claim.over, ""));
        let (_, to) = claim.under.split_once('/').unwrap_or(("", &claim.under));
        cells.push(Cell {
            id: format!("{figure}/{of}-over-{}/{}", to.replace('/', "-"), metric.name()),
            paper: Paper::Range(claim.range),
            scenarios: (over, Some(under)),
            metric,
            text: Some(claim.text.clone()),
        });
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::super::incast::Time;
    use super::super::reference;
    use super::*;

    #[test]
    fn no_number_or_claim_of_the_fixture_is_left_out() {
        let reference = reference::timely();
        let cells = timely(&reference, "");
        for number in &reference.number {
            let cell = cells.iter().find(|c| c.id == number.id).unwrap_or_else(|| panic!("no {}", number.id));
            assert_eq!(cell.paper, Paper::Number(number.value));
        }
        let claims: Vec<&Cell> = cells.iter().filter(|c| c.text.is_some()).collect();
        assert_eq!(claims.len(), reference.claim.len());
        assert!(reference.claim.iter().all(|c| c.range[0] <= c.range[1]));
        let mut ids: Vec<&str> = cells.iter().map(|c| c.id.as_str()).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|w| w[0] != w[1]), "{ids:?}");
    }

    #[test]
    fn every_cell_can_be_run() {
        let time = Time { warm_up: 1_000_000, measured: 1_000_000 };
        for cell in timely(&reference::timely(), "min-rtt=17us") {
            for scenario in [Some(&cell.scenarios.0), cell.scenarios.1.as_ref()].into_iter().flatten() {
                scenario.config(time, 1).unwrap_or_else(|e| panic!("{}: {e}", cell.id));
            }
        }
    }

    #[test]
    fn metrics_have_names() {
        for name in ["throughput", "avg_rtt", "p1_rtt", "p50_rtt", "p99_rtt", "p99.9_rtt", "jain", "reached_2"] {
            assert_eq!(Metric::named(name).map(Metric::name).as_deref(), Some(name));
        }
        assert_eq!((TAIL.name().as_str(), Metric::named("p98_rtt")), ("p99_rtt", None));
    }

    #[test]
    fn what_a_point_varies_holds_against_parameters_that_are_given() {
        let cells = timely(&reference::timely(), "hai=7,gain=0.5");
        let additive = cells.iter().find(|c| c.id.starts_with("figure18/additive/")).map(|c| &c.scenarios.0.cc);
        let config: irnic_transports::congestion::CongestionConfig = additive.unwrap().parse().unwrap();
        assert_eq!((config.get("hai").as_deref(), config.get("gain").as_deref()), (Some("1"), Some("0.5")));
    }
}
