//! The paper's figures, drawn from our runs.

use irnic_report::picture::{Axis, Plot, Scale, Series};

use super::cells::{Cell, Metric};
use super::measure::Measured;
use super::scenario::{INTERVAL, Scenario};
use crate::pictures::{Rows, files};

/// Runs of a scenario with results, by seed.
pub type Runs<'a> = dyn Fn(&Scenario) -> Vec<&'a Measured> + 'a;

const fn axis(label: &'static str, scale: Scale) -> Axis {
    Axis { label, scale }
}

/// A figure whose rows are `figure/line/x`: its number, title, x axis, and the metrics plotted over it.
struct Swept(u32, &'static str, Axis, &'static [(Metric, Axis)]);

const SWEPT: [Swept; 5] = [
    Swept(
        2,
        "senders that never react",
        axis("senders", Scale::Linear),
        &[
            (Metric::FairShare, axis("of the fair share, mean [%]", Scale::Linear)),
            (Metric::WorstTenth, axis("slowest tenth [%]", Scale::Linear)),
        ],
    ),
    Swept(
        11,
        "two hosts back to back by initial window",
        axis("initial window [packets]", Scale::Linear),
        &[(Metric::Wire, axis("of the link, with headers [%]", Scale::Linear))],
    ),
    Swept(
        16,
        "incast of 50 packets each by its senders",
        axis("senders", Scale::Log),
        &[
            (Metric::Late, axis("above the optimum [%]", Scale::Linear)),
            (Metric::Spread, axis("last over first flow", Scale::Linear)),
        ],
    ),
    Swept(
        17,
        "permutation throughput by initial window and queue",
        axis("initial window [packets]", Scale::Linear),
        &[(Metric::Mean, axis("throughput [Gbit/s]", Scale::Linear))],
    ),
    Swept(
        20,
        "incast of 30 packets each by its senders",
        axis("senders", Scale::Log),
        &[
            (Metric::Late, axis("above the optimum [%]", Scale::Linear)),
            (Metric::Again, axis("sent again, per packet", Scale::Linear)),
            (Metric::AgainReturned, axis("sent back, per packet", Scale::Linear)),
        ],
    ),
];

/// Names and contents of the files, of those figures for which there are cells.
pub fn all(cells: &[Cell], runs: &Runs<'_>) -> Vec<(String, String)> {
    let own = cells.iter().filter(|c| c.scenarios.1.is_none());
    let rows = Rows::new(own.map(|c| (c.id.as_str(), &c.scenarios.0)));
    let of = |figure| rows.of(figure);
    let mut pictures = vec![
        (14, "throughput of the hosts of a permutation", vec![sorted(&of(14), runs)]),
        (19, "a long flow beside an incast", vec![over_time(&of(19), runs)]),
        (22, "a permutation with a slow link", vec![sorted(&of(22), runs)]),
    ];
    for Swept(figure, title, x, drawn) in &SWEPT {
        let plot = |(metric, y): &(Metric, Axis)| Plot {
            x: x.clone(),
            y: y.clone(),
            series: swept(&of(*figure), *metric, runs),
        };
        pictures.push((*figure, *title, drawn.iter().map(plot).collect()));
    }
    files(pictures)
}

fn series(name: &str, of: usize, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.replace('/', ", "), of, dashed: false, points, spread: Vec::new() }
}

/// Throughput of the hosts of the first seed, sorted.
fn sorted(points: &[(&str, &Scenario)], runs: &Runs<'_>) -> Plot {
    let one = |(of, (name, scenario)): (usize, &(&str, &Scenario))| {
        let rates = runs(scenario).first()?.sorted();
        let last = rates.len().saturating_sub(1).max(1) as f64;
        let place = |(n, rate): (usize, f64)| (100.0 * n as f64 / last, rate);
        Some(series(name, of, rates.into_iter().enumerate().map(place).collect()))
    };
    Plot {
        x: axis("hosts, the slowest first [%]", Scale::Linear),
        y: axis("throughput [Gbit/s]", Scale::Linear),
        series: points.iter().enumerate().filter_map(one).collect(),
    }
}

/// The first flow of the first seed, over time.
fn over_time(points: &[(&str, &Scenario)], runs: &Runs<'_>) -> Plot {
    let middle = |n: usize| (n as f64 + 0.5) * INTERVAL as f64 / 1e6;
    let one = |(of, (name, scenario)): (usize, &(&str, &Scenario))| {
        let rates = runs(scenario).first()?.first.iter().enumerate();
        Some(series(name, of, rates.map(|(n, rate)| (middle(n), *rate)).collect()))
    };
    Plot {
        x: axis("time [ms]", Scale::Linear),
        y: axis("throughput [Gbit/s]", Scale::Linear),
        series: points.iter().enumerate().filter_map(one).collect(),
    }
}

/// A line for each name without its last part, which is x; means over all seeds.
fn swept(points: &[(&str, &Scenario)], metric: Metric, runs: &Runs<'_>) -> Vec<Series> {
    let mut all: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    for (name, scenario) in points {
        let Some((line, place)) = name.rsplit_once('/') else { continue };
        let Ok(x) = place.trim_start_matches("iw-").parse::<f64>() else { continue };
        let values: Vec<f64> = runs(scenario).into_iter().filter_map(|run| metric.of(run)).collect();
        if values.is_empty() {
            continue;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        match all.iter_mut().find(|(of, _)| *of == line) {
            Some((_, points)) => points.push((x, mean)),
            None => all.push((line, vec![(x, mean)])),
        }
    }
    all.retain(|(_, points)| points.len() > 1);
    all.into_iter().enumerate().map(|(of, (name, points))| series(name, of, points)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{cells, measure::Short, reference};
    use super::*;

    #[test]
    fn all_figures_are_drawn_whole() {
        let flow = Short { class: 0, fct: Some(2_000), ideal: 1_000 };
        let measured = Measured {
            rates: vec![9.2; 9],
            first: vec![9.0; 30],
            short: vec![flow; 3],
            optimum: 1_900,
            packets: 10,
            trimmed: 7,
            ..Measured::default()
        };
        let cells = cells::ndp(&reference::ndp(), false);
        let lines: Vec<(String, usize)> = all(&cells, &|_| vec![&measured])
            .into_iter()
            .map(|(name, svg)| (name, svg.matches("<polyline").count()))
            .collect();
        let expected = [(14, 4), (19, 1), (22, 6), (2, 8), (11, 1), (16, 6), (17, 3), (20, 9)];
        assert_eq!(lines, expected.map(|(figure, lines)| (format!("figure{figure}.svg"), lines)));
        assert!(all(&cells, &|_| Vec::new()).is_empty(), "nothing is drawn of runs without results");
    }
}
