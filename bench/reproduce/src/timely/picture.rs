//! The paper's figures, drawn from our runs.

use irnic_report::picture::{Axis, Plot, Scale, Series};
use irnic_units as units;

use super::cells::Cell;
use super::clos::Calls;
use super::incast::{INTERVAL, LINK_RATE};
use super::measure::{Measured, PERCENTILES, QUANTILES, SAMPLE, Scenario};
use crate::pictures::{self, Rows, files, mean};

/// Runs of a scenario with results, by seed.
pub type Runs<'a> = dyn Fn(&Scenario) -> Vec<&'a Measured> + 'a;

/// A figure over one parameter: its number, title, and the parameter's axis.
struct Swept(u32, &'static str, Axis);

const fn linear(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Linear }
}

const THROUGHPUT: Axis = linear("throughput [Gbit/s]");
const RATE: Axis = linear("rate [Gbit/s]");
const TIME: Axis = linear("time [ms]");

const SWEPT: [Swept; 4] = [
    Swept(12, "throughput with noise on round trips", linear("noise up to [µs]")),
    Swept(15, "throughput and round trips by T_low and segment", linear("T_low [µs]")),
    Swept(
        16,
        "throughput and round trips by the pacing of 64 KB segments",
        Axis { label: "pacing [Gbit/s], 10 is line rate", scale: Scale::Log },
    ),
    Swept(17, "throughput and round trips by T_high and connections of a client", linear("T_high [µs]")),
];

/// A plotted value of a run, with the suffix of its line's name.
type Value = (&'static str, fn(&Measured) -> f64);

/// Figures of calls over the load: number, title, vertical axis.
const CALLS: [(u32, &str, &str, &[Value]); 3] = [
    (
        19,
        "accepted versus offered load",
        "accepted load [% of links]",
        &[("", |m| of_calls(m, |c| 100.0 * c.accepted))],
    ),
    (
        20,
        "round trips of pingers: median, and 99 % dashed",
        "round trip [µs]",
        &[("", |m| of_calls(m, |c| c.ping[0])), (", 99 %", |m| of_calls(m, |c| c.ping[1]))],
    ),
    (
        21,
        "times of calls: median, and 99 % dashed",
        "time of a call [µs]",
        &[("", |m| of_calls(m, |c| c.call[0])), (", 99 %", |m| of_calls(m, |c| c.call[1]))],
    ),
];

fn of_calls(run: &Measured, value: fn(&Calls) -> f64) -> f64 {
    run.calls.as_ref().map_or(f64::NAN, value)
}

/// Names and contents of the files, of those figures for which there are cells.
pub fn all(cells: &[Cell], runs: &Runs<'_>) -> Vec<(String, String)> {
    let own = cells.iter().filter(|c| c.said.claimed.is_none());
    let rows = Rows::new(own.map(|c| (c.id.as_str(), &c.scenarios.0)));
    let of = |figure| rows.of(figure);
    let mut pictures = vec![
        (2, "round trips less that of the empty network, and the queue", vec![queue(&of(2), runs)]),
        (
            3,
            "shortest round trips of rounds by the share of packets marked: median, quartiles",
            vec![marks(&of(3), runs)],
        ),
        (4, "round trips with and without congestion on the way back", vec![distribution(&of(4), runs)]),
        (10, "rate of one connection, by the gradient and by queue size", vec![one_of_each(&of(9), runs)]),
        (13, "rates of four connections", vec![sample(&of(13), runs)]),
        (14, "distribution of round trips", vec![distribution(&of(14), runs)]),
        (18, "average rate of the connections that are left", vec![left(&of(18), runs)]),
    ];
    for Swept(figure, title, x) in &SWEPT {
        let curves = |value: fn(&Measured) -> f64| swept(&of(*figure), runs, value);
        let mut plots = vec![Plot { x: x.clone(), y: THROUGHPUT, series: curves(|m| m.throughput) }];
        if *figure != 12 {
            plots.push(Plot { x: x.clone(), y: linear("99 % round trip [µs]"), series: curves(Measured::tail) });
        }
        pictures.push((*figure, *title, plots));
    }
    for (figure, title, y, values) in CALLS {
        let offered = linear("offered load [% of links]");
        let lines = |&(name, value): &Value| {
            let lines = swept(&of(figure), runs, value).into_iter();
            lines.map(move |line| Series { dashed: !name.is_empty(), name: format!("{}{name}", line.name), ..line })
        };
        let series = values.iter().flat_map(lines).collect();
        pictures.push((figure, title, vec![Plot { x: offered, y: linear(y), series }]));
    }
    files(pictures)
}

/// A part of a cell's name, as shown in the legend.
fn legend(name: &str) -> String {
    let named = match name {
        "timely" => "TIMELY",
        "pfc" => "PFC alone",
        "timely-early" => "TIMELY, early",
        "pfc-early" => "PFC alone, early",
        "dctcp" => "DCTCP",
        "hai" => "hyperactive",
        "alone" => "no congestion on the way back",
        "congested" => "congestion on the way back",
        "acks-first" => "acknowledgements first",
        "1" => return "1 connection".into(),
        "4" | "7" | "10" => return format!("{name} connections"),
        other => other,
    };
    let spaced = [
        ("target-", "T_target "),
        ("hai-", "hyperactive-"),
        ("-t-low-", ", T_low "),
        ("t-low-", "T_low "),
        ("us", " µs"),
        ("KB", " KB"),
    ];
    spaced.iter().fold(named.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// A line with its name in cells.
fn series(name: &str, of: usize, points: Vec<(f64, f64)>) -> Series {
    Series { name: legend(name), of, dashed: false, points, spread: Vec::new() }
}

/// Values of intervals of this length, ns, over ms.
fn over_time(values: &[f64], interval: u64) -> Vec<(f64, f64)> {
    let middle = |n: usize| (n as f64 + 0.5) * interval as f64 / 1e6;
    values.iter().enumerate().map(|(n, value)| (middle(n), *value)).collect()
}

/// One connection of the first seed for each name.
fn one_of_each(points: &[(&str, &Scenario)], runs: &Runs<'_>) -> Plot {
    let one = |(of, (name, scenario)): (usize, &(&str, &Scenario))| {
        Some(series(name, of, over_time(runs(scenario).first()?.sample.first()?, SAMPLE)))
    };
    Plot { x: TIME, y: RATE, series: points.iter().enumerate().filter_map(one).collect() }
}

/// Connections of the first seed.
fn sample(points: &[(&str, &Scenario)], runs: &Runs<'_>) -> Plot {
    let first = points.first().and_then(|(_, scenario)| runs(scenario).first().copied());
    let rates = first.into_iter().flat_map(|m| &m.sample).enumerate();
    let one = |(n, rates): (usize, &Vec<f64>)| series(&format!("connection {}", n + 1), n, over_time(rates, SAMPLE));
    Plot { x: TIME, y: RATE, series: rates.map(one).collect() }
}

/// The distribution of round trips of the first seed.
fn distribution(points: &[(&str, &Scenario)], runs: &Runs<'_>) -> Plot {
    let one = |(of, (name, scenario)): (usize, &(&str, &Scenario))| {
        let run = *runs(scenario).first()?;
        let shares = (0..).map(|n| f64::from(n) / QUANTILES as f64);
        Some(series(name, of, run.quantiles.iter().copied().zip(shares).collect()))
    };
    let x = Axis { label: "round trip [µs]", scale: Scale::Log };
    Plot { x, y: linear("share of round trips"), series: points.iter().enumerate().filter_map(one).collect() }
}

/// Round trips, and dashed, the queue of each, of the first seed.
fn queue(points: &[(&str, &Scenario)], runs: &Runs<'_>) -> Plot {
    let mut lines = Vec::new();
    for (of, (name, scenario)) in points.iter().enumerate() {
        let Some(run) = runs(scenario).first().copied() else { continue };
        let shares = (0..).map(|n| f64::from(n) / QUANTILES as f64);
        let trips = run.quantiles.iter().map(|rtt| (rtt - run.base).max(0.0)).zip(shares).collect();
        lines.push(series(name, of, trips));
        let of_queue = run.queue.into_iter().flatten().zip(PERCENTILES.map(|p| p / 100.0)).collect();
        lines.push(Series { dashed: true, ..series(&format!("{}, queue", legend(name)), of, of_queue) });
    }
    Plot { x: linear("[µs]"), y: linear("share"), series: lines }
}

/// For the first seed: of rounds with about the same share of marked packets, the median of the shortest round trips,
/// with their interquartile range.
fn marks(points: &[(&str, &Scenario)], runs: &Runs<'_>) -> Plot {
    const PARTS: usize = 10;
    let mut lines = Vec::new();
    for (of, (name, scenario)) in points.iter().enumerate() {
        let Some(run) = runs(scenario).first().copied() else { continue };
        let mut parts = vec![Vec::new(); PARTS + 1];
        run.rounds.iter().for_each(|(share, trip)| parts[(share * PARTS as f64).round() as usize].push(*trip));
        parts.iter_mut().for_each(|trips| trips.sort_by(f64::total_cmp));
        let parts = || parts.iter().enumerate().filter(|(_, trips)| !trips.is_empty());
        let at = |trips: &[f64], share: f64| trips[((trips.len() - 1) as f64 * share).round() as usize];
        let middle = parts().map(|(part, trips)| (100.0 * part as f64 / PARTS as f64, at(trips, 0.5))).collect();
        let spread = parts().map(|(_, trips)| (at(trips, 0.25), at(trips, 0.75))).collect();
        lines.push(Series { spread, ..series(&name.replace("dctcp/", ""), of, middle) });
    }
    Plot { x: linear("packets of the round that were marked [%]"), y: linear("round trip [µs]"), series: lines }
}

/// Rates of the staying connections of the first seed.
fn left(points: &[(&str, &Scenario)], runs: &Runs<'_>) -> Plot {
    let one = |(of, (name, scenario)): (usize, &(&str, &Scenario))| {
        let rates: Vec<f64> = runs(scenario).first()?.mean.iter().copied().take((SHOWN / INTERVAL) as usize).collect();
        Some(series(name, of, over_time(&rates, INTERVAL)))
    };
    let x = linear("time since nine of ten connections ended [ms]");
    Plot { x, y: RATE, series: points.iter().enumerate().filter_map(one).collect() }
}

/// Length of the part of Figure 18 that is shown, ns.
const SHOWN: u64 = 200_000_000;

/// A line for each name without its last part, which is the parameter; means over all seeds.
fn swept(points: &[(&str, &Scenario)], runs: &Runs<'_>, value: fn(&Measured) -> f64) -> Vec<Series> {
    let parts = |name: &str| name.rsplit_once('/').and_then(|(line, at)| Some((line.to_owned(), place(at)?)));
    let lines = pictures::swept(points, parts, |scenario| mean(runs(scenario).into_iter().map(value)));
    lines.into_iter().enumerate().map(|(of, (name, points))| series(&name, of, points)).collect()
}

/// Parses a time in µs, or a rate in Gbit/s.
fn place(parameter: &str) -> Option<f64> {
    let rate = if parameter == "line" { Some(LINK_RATE) } else { units::rate(parameter) };
    units::time(parameter).map(|ns| ns as f64 / 1e3).or(rate.map(|bps| bps as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::super::cells::{reference, timely};
    use super::*;

    #[test]
    fn parameters_have_places_and_lines_names() {
        assert_eq!(["0us", "400us", "700M", "line"].map(place), [Some(0.0), Some(400.0), Some(0.7), Some(10.0)]);
        assert_eq!(
            ["target-50us", "16KB", "hai-t-low-0us", "7"].map(legend),
            ["T_target 50 µs", "16 KB", "hyperactive, T_low 0 µs", "7 connections"]
        );
    }

    /// No NaN, all points of the figure, and a line for each of the paper's.
    #[test]
    fn all_figures_are_drawn_whole() {
        let measured = Measured {
            throughput: 19.0,
            quantiles: vec![17.0; QUANTILES + 1],
            queue: Some([1.0; 9]),
            sample: vec![vec![0.5; 9]; 4],
            mean: vec![0.2; 9],
            rounds: vec![(0.0, 20.0), (1.0, 80.0), (0.96, 60.0), (0.5, 40.0)],
            ..Measured::default()
        };
        let cells = timely(&reference(), "");
        let lines: Vec<(String, usize)> = all(&cells, &|_| vec![&measured])
            .into_iter()
            .map(|(name, svg)| (name, svg.matches("<polyline").count()))
            .collect();
        let expected = [
            (2, 4),
            (3, 3),
            (4, 3),
            (10, 3),
            (13, 4),
            (14, 3),
            (18, 4),
            (12, 2),
            (15, 6),
            (16, 4),
            (17, 6),
            (19, 4),
            (20, 8),
            (21, 8),
        ];
        assert_eq!(lines, expected.map(|(figure, lines)| (format!("figure{figure}.svg"), lines)));
        assert!(all(&cells, &|_| Vec::new()).is_empty(), "nothing is drawn of runs without results");
        let only: Vec<Cell> = cells.into_iter().filter(|c| c.id.starts_with("figure15/64KB")).collect();
        let [(name, svg)] = &all(&only, &|_| vec![&measured])[..] else { panic!("one figure") };
        // A mark at each point, and in the legend.
        assert_eq!(
            (name.as_str(), svg.matches("<polyline").count(), svg.matches("\"translate(").count()),
            ("figure15.svg", 2, 14)
        );
    }
}
