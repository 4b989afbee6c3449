//! A plot of the distributions: a line for each clock and load, over the logarithm of the round trip.

use irnic_report::origin::Origin;
use irnic_report::picture::{self, Axis, Plot, Scale, Series};

use super::RttPlan;
use super::measure::Case;
use super::report::name;

/// Draws the plot as SVG. Colours distinguish clocks; dashed lines are under load.
pub fn draw(plan: &RttPlan, cases: &[Case], origin: &Origin) -> String {
    let mut series = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        for (of, (clock, times)) in case.clocks().into_iter().enumerate() {
            let mut points = Vec::new();
            let mut seen = 0;
            for value in times.iter_recorded() {
                let us = value.value_iterated_to().max(1) as f64 / 1e3;
                points.push((us, seen as f64 / times.len() as f64));
                seen += value.count_since_last_iteration();
                points.push((us, seen as f64 / times.len() as f64));
            }
            let name = format!("{clock}, {}", name(case));
            series.push(Series { name, of, dashed: number > 0, points, spread: Vec::new() });
        }
    }
    let x = Axis { label: "round trip [µs]", scale: Scale::Log };
    let y = Axis { label: "share of round trips", scale: Scale::Linear };
    let svg = picture::draw(&format!("Round trips of {} bytes by three clocks", plan.size), &[Plot { x, y, series }]);
    picture::described(&svg, &origin.to_string())
}
