//! The distributions as a picture: a line for each clock and load, over the round trip's magnitude.

use std::fmt::Write;

use super::Plan;
use super::measure::Case;
use super::report::name;

/// Size of the picture and of the plot in it, in its units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 380.0;
/// Colours of the clocks; a dashed line is under load.
const COLOURS: [&str; 3] = ["#0b6e4f", "#1f5fb4", "#b3261e"];

/// The picture as SVG.
pub fn draw(plan: &Plan, cases: &[Case]) -> String {
    let all = || cases.iter().flat_map(|case| case.clocks().map(|(_, times)| times));
    let least = all().map(|t| t.min().max(1)).min().unwrap_or(1) as f64;
    let most = all().map(|t| t.max()).max().unwrap_or(1).max(2) as f64;
    let (first, last) = (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0));
    let x = |ns: f64| LEFT + (ns.max(1.0).log10() - first) / (last - first) * (RIGHT - LEFT);
    let y = |share: f64| BOTTOM - share * (BOTTOM - TOP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">Round trips of {} bytes by three clocks</text>\n",
        plan.size
    );
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y(share);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{share}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for decade in first as i32..=last as i32 {
        let ns = 10f64.powi(decade);
        let at = x(ns);
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 18.0,
            ns / 1e3
        );
    }
    let _ = writeln!(out, "<text x=\"{RIGHT}\" y=\"{:.1}\" text-anchor=\"end\">round trip [us]</text>", BOTTOM + 38.0);
    for (number, case) in cases.iter().enumerate() {
        let dash = if number == 0 { "" } else { " stroke-dasharray=\"6 4\"" };
        for (row, ((clock, times), colour)) in case.clocks().into_iter().zip(COLOURS).enumerate() {
            let mut points = String::new();
            let mut seen = 0;
            for value in times.iter_recorded() {
                let ns = value.value_iterated_to() as f64;
                let _ = write!(points, "{:.1},{:.1} ", x(ns), y(seen as f64 / times.len() as f64));
                seen += value.count_since_last_iteration();
                let _ = write!(points, "{:.1},{:.1} ", x(ns), y(seen as f64 / times.len() as f64));
            }
            let points = points.trim_end();
            let _ = writeln!(
                out,
                "<polyline fill=\"none\" stroke=\"{colour}\"{dash} stroke-width=\"1.5\" points=\"{points}\"/>"
            );
            let at = TOP + 20.0 + 18.0 * (number * 3 + row) as f64;
            let _ = writeln!(
                out,
                "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{colour}\"{dash} stroke-width=\"1.5\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{clock}, {}</text>",
                RIGHT - 190.0,
                RIGHT - 160.0,
                RIGHT - 152.0,
                at + 4.0,
                name(case)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}
