//! Figure 5.1 as a picture, from our runs.

use super::cells::Cell;
use super::measure::Measured;
use super::scenario::Scenario;
use crate::picture::{Axis, Plot, Scale, Series};
use crate::reproduce::pictures::{Rows, files};

/// Runs of a scenario that have a result, by seed.
pub type Runs<'a> = dyn Fn(&Scenario) -> Vec<&'a Measured> + 'a;

/// Names and contents of the files, of those figures that some of the cells are of.
pub fn all(cells: &[Cell], runs: &Runs<'_>) -> Vec<(String, String)> {
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
    let plot = Plot {
        x: axis("queueing in the replay over that in the original"),
        y: axis("share of packets"),
        series: rows.of("5.1").into_iter().enumerate().filter_map(line).collect(),
    };
    files(vec![("5.1", "ratio of queueing delays", vec![plot])])
}
