//! Plots of results: bandwidth or latency over loss, over size or over time, a line for each transport, with minimum
//! and maximum of its repetitions.

use std::fmt::Write as _;
use std::io::{self, Write};

use irnic_report::html::{self, plot};
use irnic_report::looks::looks;
use irnic_report::picture::{self, Axis, Scale, Series, escaped};
use serde_json::Value;

use crate::document::percent;
use crate::figures::{Line, Unit};
use crate::plan::{Length, Plan};
use crate::results::{Ran, Results};
use crate::sweep::Spread;
use crate::table;

const LOSS: Axis = Axis { label: "packets lost each way [%]", scale: Scale::Linear };
const SIZE: Axis = Axis { label: "message size [bytes]", scale: Scale::Log };
const TIME: Axis = Axis { label: "time since the start of the run [s]", scale: Scale::Linear };
const AGAIN: Axis = Axis { label: "packets sent again [%]", scale: Scale::Linear };
const LATENCY: Axis = Axis { label: "latency [usec]", scale: Scale::Linear };
/// Maximum number of runs plotted over time.
const RUNS: usize = 12;

/// A line of a chart.
struct Curve {
    /// Index in the legend, and of the colour.
    case: usize,
    dashed: bool,
    points: Vec<(f64, Spread)>,
}

/// One chart, independent of the output format.
struct Chart {
    id: String,
    title: String,
    caption: String,
    x: Axis,
    y: Axis,
    curves: Vec<Curve>,
}

/// The axis of bandwidth in a unit.
fn bandwidth(unit: Unit) -> Axis {
    let label = match unit {
        Unit::Mebibytes => "payload delivered [MiB/sec]",
        Unit::Gigabits => "payload delivered [Gb/sec]",
    };
    Axis { label, scale: Scale::Linear }
}

/// Names of lines, and the charts.
fn charts(results: &Results<'_>) -> (Vec<String>, Vec<Chart>) {
    let sweep = results.sweep;
    let (losses, sizes, labels) = (sweep.losses(), sweep.sizes(), sweep.labels());
    let over_time = over_time(results);
    if let (1, 1, 1, Some((names, chart))) = (losses.len(), sizes.len(), labels.len(), over_time) {
        return (names, vec![chart]);
    }
    let mut charts = Vec::new();
    if losses.len() == 1 && sizes.len() > 1 {
        charts.extend(over(results, SIZE, &|plan| f64::from(plan.size), &|_| true, ""));
    } else {
        for size in &sizes {
            let of = if sizes.len() > 1 { format!(", messages of {size} B") } else { String::new() };
            charts.extend(over(results, LOSS, &percent, &|plan| plan.size == *size, &of));
        }
    }
    (labels.into_iter().map(str::to_owned).collect(), charts)
}

/// Charts of the plans that are `wanted`, with the x value of each by `x`.
fn over(
    results: &Results<'_>,
    axis: Axis,
    x: &dyn Fn(&Plan) -> f64,
    wanted: &dyn Fn(&Plan) -> bool,
    of: &str,
) -> Vec<Chart> {
    let sweep = results.sweep;
    let unit = sweep.show.unit();
    let curves = |dashed: bool, value: &dyn Fn(usize, &Ran) -> f64| -> Vec<Curve> {
        let curve = |(number, label): (usize, &str)| {
            let plans = sweep.plans.iter().enumerate().filter(|(_, plan)| plan.label == label && wanted(plan));
            let point = |(case, plan): (usize, &Plan)| Some((x(plan), results.spread(case, |ran| value(case, ran))?));
            let mut points: Vec<(f64, Spread)> = plans.filter_map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve { case: number, dashed, points }
        };
        sweep.labels().into_iter().enumerate().map(curve).collect()
    };
    let what = if axis.label == SIZE.label { "size" } else { "loss" };
    let id = |name: &str| format!("{name}{}", of.replace(|c: char| !c.is_ascii_alphanumeric(), ""));
    let repeats = sweep.repeat > 1;
    let bars = if repeats { "; bars go from the least to the most" } else { "" };
    let median = if repeats { format!("Medians of {} runs", sweep.repeat) } else { "One run each".to_owned() };
    if sweep.first().test.is_latency() {
        let of_lat = |pick: fn(&crate::figures::Lat) -> f64| {
            move |_: usize, ran: &Ran| if let Line::Lat(lat) = &ran.line { pick(lat) } else { 0.0 }
        };
        let lines = curves(false, &of_lat(|lat| lat.typical)).into_iter().chain(curves(true, &of_lat(|lat| lat.p99)));
        return vec![Chart {
            id: id("latency"),
            title: format!("Latency over {what}{of}"),
            caption: format!("{median}: the typical latency, and the 99th percentile dashed{bars}."),
            x: axis,
            y: LATENCY,
            curves: lines.collect(),
        }];
    }
    let bw = |case: usize, ran: &Ran| {
        if let Line::Bw(bw) = ran.line { unit.of(bw.average, sweep.plans[case].size) } else { 0.0 }
    };
    let again = |_: usize, ran: &Ran| 100.0 * ran.retransmitted_share();
    vec![
        Chart {
            id: id("bandwidth"),
            title: format!("Goodput over {what}{of}"),
            caption: format!("{median}: payload that was delivered{bars}."),
            x: axis.clone(),
            y: bandwidth(unit),
            curves: curves(false, &bw),
        },
        Chart {
            id: id("again"),
            title: format!("Packets sent again{of}"),
            caption: format!("{median}: share of the packets that both ends sent, acknowledgements apart{bars}."),
            x: axis,
            y: AGAIN,
            curves: curves(false, &again),
        },
    ]
}

/// A chart of the runs' intervals, and the runs' names, if there are intervals.
fn over_time(results: &Results<'_>) -> Option<(Vec<String>, Chart)> {
    let sweep = results.sweep;
    let unit = sweep.show.unit();
    let is_latency = sweep.first().test.is_latency();
    let runs = results.runs.iter().filter_map(|(turn, outcome)| Some((*turn, outcome.as_ref().ok()?)));
    let runs: Vec<_> = runs.filter(|(_, ran)| !ran.intervals.is_empty()).take(RUNS).collect();
    if runs.is_empty() {
        return None;
    }
    let curve = |number: usize, size: u32, ran: &Ran| {
        let point = |interval: &super::intervals::Interval| {
            let value = match interval.lat {
                Some(lat) => lat.typical,
                None => unit.of(interval.rate(), size),
            };
            (f64::midpoint(interval.from, interval.to), Spread { median: value, min: value, max: value })
        };
        Curve { case: number, dashed: false, points: ran.intervals.iter().map(point).collect() }
    };
    let curves =
        runs.iter().enumerate().map(|(number, (turn, ran))| curve(number, sweep.plans[turn.case].size, ran)).collect();
    let what = if is_latency { "Typical latency" } else { "Goodput" };
    let chart = Chart {
        id: "time".into(),
        title: format!("{what} over time"),
        caption: "A point is a stretch of the run, and stands at its middle.".into(),
        x: TIME,
        y: if is_latency { LATENCY } else { bandwidth(unit) },
        curves,
    };
    Some((runs.iter().map(|(turn, _)| sweep.name(*turn)).collect(), chart))
}

/// A one-line description of the runs.
fn title(results: &Results<'_>) -> String {
    let sweep = results.sweep;
    let plan = sweep.first();
    let sizes = match &sweep.sizes()[..] {
        [one] => format!(", messages of {one} B"),
        _ => String::new(),
    };
    let network = if plan.impair_text.is_empty() { String::new() } else { format!(", {}", plan.impair_text) };
    format!("irnic perf {}{sizes}{network}", plan.test.name())
}

/// x and y, or minimum and maximum of y.
type Pairs = Vec<(f64, f64)>;

/// Points without their spread, and the spread if there is any.
fn split(points: &[(f64, Spread)]) -> (Pairs, Pairs) {
    let is_wide = points.iter().any(|(_, spread)| spread.min < spread.max);
    let spread = if is_wide { points.iter().map(|(_, s)| (s.min, s.max)).collect() } else { Vec::new() };
    (points.iter().map(|(x, spread)| (*x, spread.median)).collect(), spread)
}

/// Draws the picture, with the settings and how to get it again in its description.
pub fn svg(results: &Results<'_>) -> String {
    let (names, charts) = charts(results);
    let series = |curve: &Curve| {
        let (points, spread) = split(&curve.points);
        let name = if curve.dashed { format!("{}, 99 %", names[curve.case]) } else { names[curve.case].clone() };
        Series { name, of: curve.case, dashed: curve.dashed, points, spread }
    };
    let plots: Vec<(String, picture::Plot)> = charts
        .into_iter()
        .map(|chart| {
            let series = chart.curves.iter().filter(|curve| !curve.points.is_empty()).map(series).collect();
            (chart.title, picture::Plot { x: chart.x, y: chart.y, series })
        })
        .collect();
    let settings = results.test_info.iter().map(|(name, value)| format!("\n{name}: {}", shown(value)));
    let text = format!("{}{}", results.origin, settings.collect::<String>());
    picture::described(&picture::draw_titled(&title(results), &plots), &text)
}

/// A setting as text: elements of lists one after the other.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(shown).collect::<Vec<_>>().join("; "),
        other => other.to_string(),
    }
}

/// Writes the report: plots, and the numbers.
pub fn html(out: &mut impl Write, results: &Results<'_>) -> io::Result<()> {
    let (names, charts) = charts(results);
    let sweep = results.sweep;
    let plan = sweep.first();
    let mut page = String::new();
    let looks = looks(names.iter().map(String::as_str));
    html::begin(&mut page, &title(results), &looks);
    let length = match plan.length {
        Length::Messages(n) => format!("{n} messages a queue pair"),
        Length::Time { duration, .. } => format!("{} s", duration.as_secs_f64()),
        Length::Endless => "until Ctrl-C".to_owned(),
    };
    let repeat = if sweep.repeat > 1 { format!(", {} times in turn", sweep.repeat) } else { String::new() };
    let _ = writeln!(page, "<p>{length}{repeat}</p>");
    for (turn, outcome) in &results.runs {
        if let Err(why) = outcome {
            let _ = writeln!(page, "<p class=\"bad\">{}</p>", escaped(&format!("{}: {why}", sweep.name(*turn))));
        }
    }
    html::buttons(&mut page, names, &looks);
    let line = |curve: &Curve| {
        let (points, spread) = split(&curve.points);
        plot::Line { case: curve.case, dashed: curve.dashed, points, spread }
    };
    let plots: Vec<plot::Plot> = charts
        .into_iter()
        .map(|chart| plot::Plot {
            id: chart.id.into(),
            title: chart.title.into(),
            caption: chart.caption.into(),
            x: chart.x,
            y: chart.y,
            lines: chart.curves.iter().map(line).collect(),
            events: Vec::new(),
        })
        .collect();
    html::figures(&mut page, &plots);
    let lines = table::lines(results);
    if let Some((head, rows)) = lines.split_first() {
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        html::table(&mut page, "Results", &head, rows.iter().cloned());
    }
    page.push_str("<h2>Settings</h2>\n<div class=\"scroll\"><table class=\"settings\"><tbody>\n");
    for (name, value) in &results.test_info {
        let _ = writeln!(page, "<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(&shown(value)));
    }
    page.push_str("</tbody></table></div>\n");
    html::end(&mut page, &results.origin, &plots)?;
    out.write_all(page.as_bytes())
}
