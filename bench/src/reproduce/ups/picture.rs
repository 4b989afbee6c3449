//! Figures 5.1, 5.4 and 5.5 as pictures, from our runs.

use super::cells::Cell;
use super::measure::Measured;
use super::scenario::Scenario;
use crate::picture::{Axis, Plot, Scale, Series};
use crate::reproduce::pictures::{Rows, files};

/// Runs of a scenario that have a result, by seed.
pub type Runs<'a> = dyn Fn(&Scenario) -> Vec<&'a Measured> + 'a;

/// What a run shows of each ms, by the name of its line.
pub type OverTime<'a> = (&'a str, &'a [f64]);

/// Names and contents of the files, of those figures that some of the cells are of; Figures 5.4 and 5.5 are of `over_time`.
pub fn all(cells: &[Cell], runs: &Runs<'_>, over_time: [Vec<OverTime<'_>>; 2]) -> Vec<(String, String)> {
    let own = cells.iter().filter(|cell| cell.scenarios.1.is_none() && cell.text.is_none());
    let rows = Rows::new(own.map(|cell| (cell.id.as_str(), &cell.scenarios.0)));
    let line = |(colour, (name, scenario)): (usize, (&str, &Scenario))| {
        let ratios = &runs(scenario).first()?.ratios;
        let last = ratios.len().saturating_sub(1).max(1) as f64;
        // What is far to the right of 1 is a share that the line shows by where it ends.
        let points = ratios.iter().enumerate().map(|(at, ratio)| (*ratio, at as f64 / last));
        let points = points.filter(|(ratio, _)| *ratio <= 2.0).collect();
        Some(Series { name: name.to_owned(), colour, dashed: false, points, spread: Vec::new() })
    };
    let axis = |label| Axis { label, scale: Scale::Linear };
    let first = Plot {
        x: axis("queueing in the replay over that in the original"),
        y: axis("share of packets"),
        series: rows.of("5.1").into_iter().enumerate().filter_map(line).collect(),
    };
    let [index, newcomer] = over_time;
    let line = |(colour, (name, values)): (usize, OverTime<'_>)| {
        let points = values.iter().enumerate().map(|(at, value)| (at as f64 + 1.0, *value)).collect();
        Series { name: name.to_owned(), colour, dashed: false, points, spread: Vec::new() }
    };
    let plot = |label, lines: Vec<OverTime<'_>>| Plot {
        x: axis("ms"),
        y: axis(label),
        series: lines.into_iter().enumerate().map(line).collect(),
    };
    files(vec![
        ("5.1", "ratio of queueing delays", vec![first]),
        ("5.4", "fairness of 90 flows over time", vec![plot("Jain's index", index)]),
        ("5.5", "a flow that comes to twenty", vec![plot("Mbit/s of that flow", newcomer)]),
    ])
}
