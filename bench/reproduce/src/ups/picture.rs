//! Figures 5.1 to 5.5 and 5.7, drawn from our runs.

use irnic_report::picture::{Axis, Plot, Scale, Series};

use super::cells::Cell;
use super::measure::Measured;
use super::scenario::Scenario;
use super::values::Line;
use crate::pictures::{Rows, files};

/// Runs of a scenario with results, by seed.
pub type Runs<'a> = dyn Fn(&Scenario) -> Vec<&'a Measured> + 'a;

/// Lines of figures of objectives, in the order of [`FIGURES`].
pub type Lines = [Vec<Line>; FIGURES.len()];

/// Figures of objectives, and the rows they are based on.
pub const FIGURES: [(&str, &str); 5] =
    [("5.2", "figure5.2"), ("5.3", "figure5.3"), ("5.4", "figure5.4"), ("5.5", "figure5.5"), ("5.7", "table5.2")];

/// Horizontal axis of Figure 5.1.
const RATIO: &str = "queueing in the replay over that in the original";

/// Names and contents of the files, of those figures for which there are cells.
pub fn all(cells: &[Cell], runs: &Runs<'_>, lines: Lines) -> Vec<(String, String)> {
    let own = cells.iter().filter(|cell| cell.scenarios.1.is_none() && cell.said.claimed.is_none());
    let rows = Rows::new(own.map(|cell| (cell.id.as_str(), &cell.scenarios.0)));
    let replay = |(name, scenario): (&str, &Scenario)| -> Option<Line> {
        let ratios = &runs(scenario).first()?.ratios;
        let last = ratios.len().saturating_sub(1).max(1) as f64;
        // The share far to the right of 1 shows by where the line ends.
        let points = ratios.iter().enumerate().map(|(at, ratio)| (*ratio, at as f64 / last));
        Some((name.to_owned(), points.filter(|(ratio, _)| *ratio <= 2.0).collect()))
    };
    let replays = rows.of("5.1").into_iter().filter_map(replay).collect();
    let series = |(of, (name, points))| Series { name, of, dashed: false, points, spread: Vec::new() };
    let plot = |x, y, lines: Vec<Line>| Plot { x, y, series: lines.into_iter().enumerate().map(series).collect() };
    let axis = |label| Axis { label, scale: Scale::Linear };
    let log = |label| Axis { label, scale: Scale::Log };
    let [completion, delay, index, newcomer, fairness] = lines;
    files(vec![
        ("5.1", "ratio of queueing delays", vec![plot(axis(RATIO), axis("share of packets"), replays)]),
        ("5.2", "mean completion time by size", vec![plot(log("KB of a flow"), log("s"), completion)]),
        ("5.3", "tails of delays", vec![plot(axis("s"), log("share of packets that take longer"), delay)]),
        ("5.4", "fairness of 90 flows over time", vec![plot(axis("ms"), axis("Jain's index"), index)]),
        ("5.5", "a flow that comes to twenty", vec![plot(axis("ms"), axis("Mbit/s of that flow"), newcomer)]),
        ("5.7", "completion times", vec![plot(log("s"), axis("share of flows"), fairness)]),
    ])
}
