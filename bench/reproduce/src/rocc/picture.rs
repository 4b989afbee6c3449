//! The paper's figures, drawn from our runs.

use irnic_report::picture::{Axis, Plot, Scale, Series};

use super::cells::{Cell, Metric};
use super::datacenter::Sizes;
use super::measure::Measured;
use super::scenario::{Network, STEP, STEPS, Scenario};
use crate::pictures::{Rows, files, mean, swept};
use crate::points::Metric as _;

/// Runs of a scenario with results, by seed.
pub type Runs<'a> = dyn Fn(&Scenario) -> Vec<&'a Measured> + 'a;

type Row<'a> = (&'a str, &'a Scenario);

const fn axis(label: &'static str, scale: Scale) -> Axis {
    Axis { label, scale }
}

/// Names and contents of the files, of those figures for which there are cells.
pub fn all(cells: &[Cell], runs: &Runs<'_>) -> Vec<(String, String)> {
    let own = cells.iter().filter(|c| c.said.claimed.is_none());
    let rows = Rows::new(own.map(|c| (c.id.as_str(), &c.scenarios.0)));
    let by_size = |figure, metrics| loads(&rows.of(figure), metrics, runs);
    let pictures = vec![
        ("3.5", "queue and time to rest by flows", by_flows(&rows.of("3.5"), runs)),
        ("3.6", "flows that come and go", by_step(cells, runs)),
        ("3.12", "mean completion times by size", by_size("3.12", [0, 1, 2, 3].map(Metric::Mean))),
        ("3.13", "99 % completion times by size", by_size("3.13", [0, 1, 2, 3].map(Metric::P99))),
        ("3.15", "mean completion times without PFC", by_size("3.15", [0, 1, 2, 3].map(Metric::Mean))),
    ];
    files(pictures.into_iter().filter(|(.., plots)| !plots.is_empty()).collect())
}

fn value(metric: Metric, scenario: &Scenario, runs: &Runs<'_>) -> Option<f64> {
    mean(runs(scenario).into_iter().filter_map(|run| metric.of(run)))
}

fn series((of, (name, points)): (usize, (String, Vec<(f64, f64)>))) -> Series {
    Series { name, of, dashed: false, points, spread: Vec::new() }
}

/// A line for each rate of the links.
fn by_flows(rows: &[Row<'_>], runs: &Runs<'_>) -> Vec<Plot> {
    let place = |name: &str| {
        let (rate, flows) = name.split_once('/')?;
        Some((format!("{}bit/s", rate.replace('G', " G")), flows.parse().ok()?))
    };
    let plot = |(metric, y)| Plot {
        x: axis("flows", Scale::Log),
        y: axis(y, Scale::Linear),
        series: swept(rows, place, |s| value(metric, s, runs)).into_iter().enumerate().map(series).collect(),
    };
    if rows.is_empty() {
        Vec::new()
    } else {
        [(Metric::Queue, "queue [KB]"), (Metric::Settle, "at rest after [ms]")].map(plot).into()
    }
}

/// A metric of each step.
type OfStep = fn(usize) -> Metric;

/// Rates over time, and settling times of queues.
fn by_step(cells: &[Cell], runs: &Runs<'_>) -> Vec<Plot> {
    let Some(cell) = cells.iter().find(|cell| cell.scenarios.0.0 == Network::Steps) else { return Vec::new() };
    let plot = |(metric, y, scale): (OfStep, _, _)| {
        let point = |step: usize| {
            Some(((step as u64 + 1) as f64 * STEP as f64 / 1e6, value(metric(step), &cell.scenarios.0, runs)?))
        };
        let points: Vec<_> = (0..STEPS.len()).filter_map(point).collect();
        let line = (!points.is_empty()).then(|| series((0, ("RoCC".to_owned(), points))));
        Plot { x: axis("end of the step [ms]", Scale::Linear), y: axis(y, scale), series: line.into_iter().collect() }
    };
    let rate = plot((Metric::StepRate, "rate of a flow [Gbit/s]", Scale::Log));
    vec![rate, plot((Metric::StepSettle, "at rest after [ms]", Scale::Linear))]
}

/// For each load, the completion times of each control, by the bins of flow sizes.
fn loads(rows: &[Row<'_>], metrics: [Metric; 4], runs: &Runs<'_>) -> Vec<Plot> {
    let load = |name: &str| name.rsplit_once('/').map_or("", |(load, _)| load).to_owned();
    let mut names: Vec<String> = rows.iter().map(|(name, _)| load(name)).collect();
    names.dedup();
    let plot = |of: &String| {
        let lines = rows.iter().filter(|(name, _)| load(name) == *of);
        let line = |(name, scenario): &Row<'_>| {
            let Network::Datacenter(traffic) = scenario.0 else { return None };
            let point = |(metric, size): (Metric, f64)| Some((size, value(metric, scenario, runs)?));
            let points: Vec<_> = metrics.into_iter().zip(middles(traffic.sizes)).filter_map(point).collect();
            let control = name.rsplit_once('/').map_or(*name, |(_, control)| control);
            let name = if of.is_empty() { control.to_owned() } else { format!("{of}, {control}") };
            (!points.is_empty()).then_some((name, points))
        };
        Plot {
            x: axis("flow [bytes]", Scale::Log),
            y: axis("completion time [µs]", Scale::Log),
            series: lines.filter_map(line).enumerate().map(series).collect(),
        }
    };
    names.iter().map(plot).collect()
}

/// Horizontal positions of the bins of sizes, bytes.
fn middles(sizes: Sizes) -> [f64; 4] {
    match sizes {
        Sizes::WebSearch => [20e3, 80e3, 1e6, 10e6],
        Sizes::Hadoop => [75.0, 1e3, 10e3, 100e3],
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::{reference, rocc};
    use super::super::datacenter::{Bin, Datacenter};
    use super::*;

    /// All points of a figure, and a line for each of the paper's.
    #[test]
    fn all_figures_are_drawn_whole() {
        let bin = Bin { flows: 1, mean: 2.0, p99: 3.0 };
        let datacenter = Some(Datacenter { bins: [bin; 4], ..Datacenter::default() });
        let large = Measured { datacenter, ..Measured::default() };
        let small = Measured { queue: 150.0, settle: 7.0, steps: vec![(4.0, 1.0); STEPS.len()], ..Measured::default() };
        let cells = rocc(&reference());
        let of = |scenario: &Scenario| vec![if matches!(scenario.0, Network::Datacenter(_)) { &large } else { &small }];
        let lines: Vec<(String, usize)> =
            all(&cells, &of).into_iter().map(|(name, svg)| (name, svg.matches("<polyline").count())).collect();
        let expected = [("3.5", 4), ("3.6", 2), ("3.12", 30), ("3.13", 30), ("3.15", 6)];
        assert_eq!(lines, expected.map(|(figure, lines)| (format!("figure{figure}.svg"), lines)));
        assert!(all(&cells, &|_| Vec::new()).is_empty(), "nothing is drawn of runs without results");
    }
}
