//! The paper's figures, drawn from our runs.

use irnic_fabric::summary::Summary;
use irnic_report::picture::{Axis, Plot, Scale, Series};

use super::cells::{Cell, Metric};
use super::scenario::{Base, Scenario};
use crate::pictures::{Rows, files, mean, swept};
use crate::points::Metric as _;

/// Runs of a scenario with results, by seed.
pub type Runs<'a> = dyn Fn(&Scenario) -> Vec<&'a Summary> + 'a;

type Row<'a> = (&'a str, &'a Scenario);

const fn axis(label: &'static str, scale: Scale) -> Axis {
    Axis { label, scale }
}

const TAIL: Axis = axis("foreground, 99.9 % [ms]", Scale::Linear);
const MEAN: Axis = axis("background, mean [ms]", Scale::Linear);
const LOAD: Axis = axis("load [%]", Scale::Linear);

/// Names and contents of the files, of those figures for which there are cells.
pub fn all(cells: &[Cell], runs: &Runs<'_>) -> Vec<(String, String)> {
    let own = cells.iter().filter(|c| c.said.claimed.is_none());
    let rows = Rows::new(own.map(|c| (c.id.as_str(), &c.scenarios.0)));
    let over = |figure, x: Axis| {
        let rows = rows.of(figure);
        [(Metric::FgTail, TAIL), (Metric::BgMean, MEAN)]
            .map(|(metric, y)| Plot { x: x.clone(), y, series: lines(&rows, metric, runs) })
            .into()
    };
    let systems = |figure| grouped(&rows.of(figure), |_, s| s.base).iter().map(|rows| tradeoff(rows, runs)).collect();
    let workloads = grouped(&rows.of(15), |name, s| {
        let workload = name.split_once('/').map_or("", |(workload, _)| workload);
        (workload.to_owned(), matches!(s.base, Base::Tcp | Base::Dctcp))
    });
    let by_load = |rows: &Vec<Row<'_>>| Plot { x: LOAD, y: TAIL, series: lines(rows, Metric::FgTail, runs) };
    let pictures = vec![
        (5, "TCP and DCTCP, foreground and background", systems(5)),
        (6, "HPCC, IRN and DCQCN, foreground and background", systems(6)),
        (8, "DCTCP by the colour threshold", over(8, axis("threshold [KB]", Scale::Linear))),
        (9, "HPCC and DCTCP with PFC by load", over(9, LOAD)),
        (15, "foreground by workload, transport and load", workloads.iter().map(by_load).collect()),
    ];
    files(pictures.into_iter().filter(|(.., plots): &(_, _, Vec<Plot>)| !plots.is_empty()).collect())
}

/// Rows grouped by a key, in order.
fn grouped<'a, K: PartialEq>(rows: &[Row<'a>], key: impl Fn(&str, &Scenario) -> K) -> Vec<Vec<Row<'a>>> {
    let mut groups: Vec<(K, Vec<Row<'a>>)> = Vec::new();
    for &(name, scenario) in rows {
        let key = key(name, scenario);
        match groups.iter_mut().find(|(of, _)| *of == key) {
            Some((_, rows)) => rows.push((name, scenario)),
            None => groups.push((key, vec![(name, scenario)])),
        }
    }
    groups.into_iter().map(|(_, rows)| rows).collect()
}

fn value(metric: Metric, scenario: &Scenario, runs: &Runs<'_>) -> Option<f64> {
    mean(runs(scenario).into_iter().filter_map(|run| metric.of(run)))
}

/// A line for each system; x is the number in a row's name, `hpcc/10%-tlt`.
fn lines(rows: &[Row<'_>], metric: Metric, runs: &Runs<'_>) -> Vec<Series> {
    swept(rows, place, |scenario| value(metric, scenario, runs)).into_iter().enumerate().map(series).collect()
}

/// A point for each system: the foreground's tail over the background's mean.
fn tradeoff(rows: &[Row<'_>], runs: &Runs<'_>) -> Plot {
    let point = |(name, scenario): &Row<'_>| {
        let [x, y] = [Metric::BgMean, Metric::FgTail].map(|metric| value(metric, scenario, runs));
        Some((legend(name), vec![x.zip(y)?]))
    };
    Plot { x: MEAN, y: TAIL, series: rows.iter().filter_map(point).enumerate().map(series).collect() }
}

fn series((of, (name, points)): (usize, (String, Vec<(f64, f64)>))) -> Series {
    // Beyond the last, colours repeat.
    Series { name, of, dashed: false, points, spread: Vec::new() }
}

/// Parses the system and the number in a row's name: `400KB-pfc`, `hpcc/10%-tlt`, `web-search/20%/dctcp-200us`.
fn place(name: &str) -> Option<(String, f64)> {
    let at = name.split('/').find(|part| part.starts_with(|c: char| c.is_ascii_digit()))?;
    let number = at.split_once(['%', 'K']).map_or(at, |(number, _)| number);
    let of = at.trim_start_matches(number).trim_start_matches(['%', 'K', 'B']);
    let others = name.split('/').filter(|part| *part != at);
    let named = others.map(legend).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    let both = [named, legend(of)].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    Some((if both.is_empty() { "without PFC".to_owned() } else { both }, number.parse().ok()?))
}

/// A part of a row's name, as shown in the legend.
fn legend(name: &str) -> String {
    let word = |part: &str| match part {
        "200us" => "200 µs".to_owned(),
        "tlt" | "tlp" | "pfc" | "tcp" | "dctcp" | "hpcc" | "irn" | "dcqcn" => part.to_uppercase(),
        other => other.to_owned(),
    };
    let short =
        [("dcqcn-sack", "DCQCN+SACK"), ("web-search", "search"), ("web-server", "server"), ("cache-follower", "cache")];
    let whole = short.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to));
    whole.split('-').filter(|part| !part.is_empty()).map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use irnic_fabric::sim::Simulation;

    use super::super::cells::{reference, tlt};
    use super::*;

    #[test]
    fn rows_have_names_and_places() {
        let named = |name: &str| place(name).map(|(line, x)| format!("{line} {x}")).unwrap_or_default();
        assert_eq!(
            ["400KB", "1200KB-pfc", "hpcc/10%-tlt", "dctcp/60%", "web-search/20%/dctcp-200us"].map(named),
            ["without PFC 400", "PFC 1200", "HPCC, TLT 10", "DCTCP 60", "search, DCTCP, 200 µs 20"]
        );
        assert_eq!(legend("dcqcn-sack-tlt-pfc"), "DCQCN+SACK, TLT, PFC");
    }

    /// All points of a figure, and a line for each of the paper's.
    #[test]
    fn all_figures_are_drawn_whole() {
        let config = Scenario::new(Base::Irn, 5).experiment().config(1).unwrap();
        let mut summary = Summary::of(&Simulation::new(config).unwrap().finish().unwrap(), &[]);
        // With so few flows there is no incast.
        summary.by_class.resize(2, summary.all);
        let cells = tlt(&reference(), 10);
        let lines: Vec<(String, usize)> = all(&cells, &|_| vec![&summary])
            .into_iter()
            .map(|(name, svg)| (name, svg.matches("<polyline").count()))
            .collect();
        let expected = [(5, 16), (6, 14), (8, 4), (9, 8), (15, 42)];
        assert_eq!(lines, expected.map(|(figure, lines)| (format!("figure{figure}.svg"), lines)));
        assert!(all(&cells, &|_| Vec::new()).is_empty(), "nothing is drawn of runs without results");
        let only: Vec<Cell> = cells.into_iter().filter(|c| c.id.starts_with("figure9/hpcc")).collect();
        let [(name, svg)] = &all(&only, &|_| vec![&summary])[..] else { panic!("one figure") };
        // A mark at each point, and in the legend.
        let count = |what| svg.matches(what).count();
        assert_eq!((name.as_str(), count("<polyline"), count("\"translate(")), ("figure9.svg", 4, 28));
    }
}
