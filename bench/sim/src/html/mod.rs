//! The report: one self-contained HTML file with plots and tables.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;

use irnic_fabric::experiment::{Case, KEYS};
use irnic_fabric::sim::Sample;
use irnic_fabric::summary::percentile;
use irnic_report::html::plot::{Line, Plot};
use irnic_report::html::{POINTS, begin, buttons, end, figures, peaks};
use irnic_report::picture::{Axis, Scale, escaped};
use irnic_sweep::NoResult;

use crate::execute::{Batch, Finished, Reached, Run, replay};
use crate::results::{Column, Report, Row};
use crate::series::rate;

/// Maximum number of flow sizes with a point each; beyond that, sizes are grouped into this many ranges with about the
/// same number of flows.
const SIZES: usize = 20;
/// Caption of the plot of slowdowns.
const SLOWDOWN: &str = "FCT in units of that in an empty network; mean, and 99th percentile dashed. A point is all \
     flows of a size, or of sizes that are together as many as others; it stands at their median.";

/// Writes the report.
pub fn write(out: &mut impl Write, report: &Report<'_>) -> io::Result<()> {
    let Report { batch, runs, columns, names, .. } = report;
    let mut page = String::new();
    head(&mut page, batch, runs);
    legend(&mut page, columns, names);
    let mut plots = plots(batch, runs);
    plots.retain(|p| p.lines.iter().any(|l| !l.points.is_empty()));
    figures(&mut page, &plots);
    results(&mut page, report);
    notes(&mut page, batch, runs);
    settings(&mut page, batch, runs, names);
    end(&mut page, &plots)?;
    out.write_all(page.as_bytes())
}

fn head(page: &mut String, batch: &Batch, runs: &[Run]) {
    begin(page, &subject(batch), batch.cases.len());
    let (cases, seeds) = (batch.cases.len(), batch.seeds.len());
    let seeds = match &batch.seeds[..] {
        [one] => format!("seed {one}"),
        _ => format!(
            "{seeds} seeds{}",
            of_seed(batch, runs).map_or_else(String::new, |of| format!("; plots over time are of {of}"))
        ),
    };
    let plural = if cases == 1 { "" } else { "s" };
    let _ = writeln!(page, "<p>irnic sim: {cases} case{plural}, {}</p>", escaped(&seeds));
}

/// Describes the simulation: network, workload, and load, as far as they are common to the cases.
fn subject(batch: &Batch) -> String {
    let common = |what: &str, of: &dyn Fn(&Case) -> Option<String>| {
        let mut all: Vec<String> = batch.cases.iter().filter_map(of).collect();
        all.sort_unstable();
        all.dedup();
        match all.len() {
            0 => None,
            1..=3 => Some(all.join(" and ")),
            n => Some(format!("{n} {what}")),
        }
    };
    let parts = [
        common("topologies", &|case| Some(case.text("topology"))),
        common("workloads", &|case| {
            Some(case.given("flows").map_or_else(|| case.text("workload"), |f| f.text.clone()))
        }),
        common("loads", &|case| Some(case.text("load")).filter(|_| offers_load(case)))
            .map(|load| if load.ends_with("loads") { load } else { format!("load {load}") }),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns whether `load` affects a part of the workload: arrivals without a load of their own, and shares of it.
fn offers_load(case: &Case) -> bool {
    let (workload, shares) = (case.text("workload"), ["foreground", "share="]);
    case.given("flows").is_none()
        && workload.split('+').any(|part| {
            let without = ["file:", "permutation", "incast"].iter().any(|kind| part.trim_start().starts_with(kind));
            shares.iter().any(|share| part.contains(share)) || !without && !part.contains("load=")
        })
}

/// Returns the seed of each case's plots over time, in words; `None` if there are none.
fn of_seed(batch: &Batch, runs: &[Run]) -> Option<String> {
    let shown: Vec<(usize, u64)> =
        (0..batch.cases.len()).filter_map(|case| Some((case, sampled(batch, runs, case)?.0.seed))).collect();
    let (_, first) = *shown.first()?;
    if shown.iter().all(|(_, seed)| *seed == first) {
        return Some(format!("seed {first}"));
    }
    let each = shown.iter().map(|(case, seed)| format!("seed {seed} of {}", batch.cases[*case].label));
    Some(each.collect::<Vec<_>>().join(", "))
}

/// The run plotted over time: of several seeds, the first one with samples.
fn sampled<'a>(batch: &Batch, runs: &'a [Run], case: usize) -> Option<(&'a Run, &'a Finished)> {
    batch.of_case(case, runs).find(|(_, finished)| !finished.samples.is_empty())
}

/// Writes the names of cases, with the numbers that stand for long ones in tables.
fn legend(page: &mut String, columns: &[Column<'_>], names: &[String]) {
    let long = |(column, name): (&Column<'_>, &String)| {
        if name == column.label { name.clone() } else { format!("{name} {}", column.label) }
    };
    buttons(page, columns.iter().zip(names).map(long));
}

fn results(page: &mut String, Report { columns, names, rows, parts, .. }: &Report<'_>) {
    page.push_str("<h2>Results</h2>\n<div class=\"scroll\"><table class=\"results\"><thead><tr><th></th>");
    for (case, name) in names.iter().enumerate() {
        let _ = write!(page, "<th class=\"s{case}\">{}</th>", escaped(name));
    }
    page.push_str("</tr></thead><tbody>\n<tr><th>ended</th>");
    for column in columns {
        let endings = column.endings();
        let class = if endings == "complete" { "" } else { " class=\"bad\"" };
        let _ = write!(page, "<td{class}>{endings}</td>");
    }
    page.push_str("</tr>\n");
    for r in rows {
        result(page, columns, r);
    }
    for part in parts {
        let cells = "<td></td>".repeat(columns.len());
        let _ = writeln!(page, "<tr class=\"part\"><th>{}</th>{cells}</tr>", part.name);
        for r in &part.rows {
            result(page, columns, r);
        }
    }
    page.push_str("</tbody></table></div>\n");
}

fn result(page: &mut String, columns: &[Column<'_>], r: &Row) {
    let _ = write!(page, "<tr><th>{}</th>", r.name);
    for column in columns {
        let _ = write!(page, "<td>{}</td>", column.cell(r.places, &r.of));
    }
    page.push_str("</tr>\n");
}

/// Writes the errors.
fn notes(page: &mut String, batch: &Batch, runs: &[Run]) {
    let reached = Reached::by(runs);
    if reached.is_short() {
        let _ = writeln!(page, "<p class=\"bad\">interrupted: {reached}</p>");
    }
    for run in runs {
        let name = escaped(&batch.name(run));
        match &run.result {
            Err(NoResult::Failed(why)) => {
                let _ = writeln!(page, "<p class=\"bad\">{name}: {}</p>", escaped(why));
            }
            Ok(finished) if !finished.deadlock.is_empty() => {
                let nodes: Vec<String> = finished.deadlock.iter().map(u32::to_string).collect();
                let _ = writeln!(page, "<p class=\"bad\">{name}: deadlock of the nodes {}</p>", nodes.join(", "));
            }
            _ => {}
        }
    }
}

fn settings(page: &mut String, batch: &Batch, runs: &[Run], names: &[String]) {
    page.push_str("<h2>Settings</h2>\n<div class=\"scroll\"><table class=\"settings\"><tbody>\n");
    let mut line = |name: &str, values: &[String]| {
        let _ = write!(page, "<tr><th>{name}</th>");
        // Common values are written once.
        if values.iter().all(|v| *v == values[0]) {
            let _ = write!(page, "<td colspan=\"{}\">{}</td>", values.len(), escaped(&values[0]));
        } else {
            values.iter().for_each(|value| {
                let _ = write!(page, "<td>{}</td>", escaped(value));
            });
        }
        page.push_str("</tr>\n");
    };
    if names.len() > 1 {
        line("", names);
    }
    for key in KEYS.iter() {
        let values: Vec<Option<String>> = batch.cases.iter().map(|c| c.get(key.name()).map(|v| v.text)).collect();
        if values.iter().any(Option::is_some) {
            line(key.name(), &values.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>());
        }
    }
    let resolved: Vec<_> =
        (0..batch.cases.len()).map(|at| batch.of_case(at, runs).next().map(|(_, f)| &f.resolved)).collect();
    for name in ["network", "transport", "buffer", "ecn", "pfc"] {
        let value = |r: &Option<&Vec<(Cow<'static, str>, String)>>| {
            r.and_then(|r| r.iter().find(|(key, _)| *key == name)).map_or_else(String::new, |(_, text)| text.clone())
        };
        let values: Vec<String> = resolved.iter().map(value).collect();
        if values.iter().any(|v| !v.is_empty()) {
            line(&format!("{name}, resolved"), &values);
        }
    }
    let commands: Vec<String> = batch.cases.iter().map(|case| replay(case, batch.seeds[0])).collect();
    line("command", &commands);
    line("irnic", &vec![batch.irnic.clone(); commands.len()]);
    page.push_str("</tbody></table></div>\n");
}

/// Returns all plots, those without points included.
fn plots(batch: &Batch, runs: &[Run]) -> Vec<Plot> {
    let lines = Lines { batch, runs };
    let mut all = flow_plots(lines);
    all.extend(network_plots(lines));
    all
}

/// Returns the plots of flows' completion times.
fn flow_plots(lines: Lines<'_>) -> Vec<Plot> {
    vec![
        Plot {
            id: "fct-cdf".into(),
            title: "Flow completion time".into(),
            caption: "Share of flows that took at most so long.".into(),
            x: axis("FCT [ms]", Scale::Log),
            y: axis("share of flows", Scale::Linear),
            lines: lines.each(|case| cdf(lines.batch, lines.runs, case)),
        },
        Plot {
            id: "slowdown".into(),
            title: "Slowdown by size".into(),
            caption: SLOWDOWN.into(),
            x: axis("flow size [bytes]", Scale::Log),
            y: axis("slowdown", Scale::Log),
            lines: lines.by_size(),
        },
    ]
}

/// Returns the plots of the network over time; that of paused ports only if there were any.
fn network_plots(lines: Lines<'_>) -> Vec<Plot> {
    let time = || axis("time since the first flow [ms]", Scale::Linear);
    let mut all = vec![
        Plot {
            id: "delivered".into(),
            title: "Delivered".into(),
            caption: "Payload that reached NICs, repetitions included.".into(),
            x: time(),
            y: axis("Gbit/s", Scale::Linear),
            lines: lines.each(|case| rates(lines.samples(case).0, lines.samples(case).1)),
        },
        Plot {
            id: "longest".into(),
            title: "Longest queue".into(),
            caption: "Bytes that wait for the port for which most wait.".into(),
            x: time(),
            y: axis("KB", Scale::Linear),
            lines: lines.over_time(|s| s.longest as f64 / 1e3),
        },
        Plot {
            id: "buffered".into(),
            title: "Queued in all switches".into(),
            caption: "Bytes in all buffers together.".into(),
            x: time(),
            y: axis("KB", Scale::Linear),
            lines: lines.over_time(|s| s.buffered as f64 / 1e3),
        },
        Plot {
            id: "active".into(),
            title: "Flows under way".into(),
            caption: "Begun, and not known to be complete.".into(),
            x: time(),
            y: axis("flows", Scale::Linear),
            lines: lines.over_time(|s| f64::from(s.active)),
        },
    ];
    if lines.cases().any(|case| lines.samples(case).1.iter().any(|s| s.stopped > 0)) {
        all.push(Plot {
            id: "paused".into(),
            title: "Paused ports".into(),
            caption: "Ports that PFC has stopped.".into(),
            x: time(),
            y: axis("ports", Scale::Linear),
            lines: lines.over_time(|s| f64::from(s.stopped)),
        });
    }
    all
}

/// Returns an axis.
fn axis(label: &'static str, scale: Scale) -> Axis {
    Axis { label, scale }
}

/// The runs whose results become lines of plots.
#[derive(Copy, Clone)]
struct Lines<'a> {
    batch: &'a Batch,
    runs: &'a [Run],
}

impl<'a> Lines<'a> {
    /// Returns the numbers of the cases.
    fn cases(self) -> Range<usize> {
        0..self.batch.cases.len()
    }

    /// Returns a line of each case, with the points that `of` returns for it.
    fn each(self, of: impl Fn(usize) -> Vec<(f64, f64)>) -> Vec<Line> {
        self.cases().map(|case| Line { case, dashed: false, points: of(case), spread: Vec::new() }).collect()
    }

    /// Returns the samples of a case, and the start of its first flow, ns.
    fn samples(self, case: usize) -> (u64, &'a [Sample]) {
        sampled(self.batch, self.runs, case).map_or((0, &[][..]), |(_, f)| (f.begins, &f.samples[..]))
    }

    /// Returns a line of each case over ms since its first flow: the peaks of what `of` returns for its samples.
    fn over_time(self, of: impl Fn(&Sample) -> f64) -> Vec<Line> {
        self.each(|case| {
            let (begins, samples) = self.samples(case);
            peaks(samples.iter().map(|s| ((s.at - begins) as f64 / 1e6, of(s))).collect())
        })
    }

    /// Returns lines of slowdowns over sizes: the mean of each case, then the 99th percentile of each, dashed.
    fn by_size(self) -> Vec<Line> {
        let line = |case: usize, dashed: bool| {
            let bins = slowdowns(self.batch, self.runs, case).into_iter();
            let points = bins.map(|(size, mean, p99)| (size, if dashed { p99 } else { mean })).collect();
            Line { case, dashed, points, spread: Vec::new() }
        };
        self.cases().map(|case| line(case, false)).chain(self.cases().map(|case| line(case, true))).collect()
    }
}

/// The distribution over the flows of all seeds, in ms.
fn cdf(batch: &Batch, runs: &[Run], case: usize) -> Vec<(f64, f64)> {
    let flows = batch.of_case(case, runs).flat_map(|(_, f)| &f.flows);
    let mut fcts: Vec<u64> = flows.filter_map(|(flow, record)| record.fct(flow)).collect();
    fcts.sort_unstable();
    let share = |i: usize| i as f64 / POINTS as f64;
    let mut points: Vec<(f64, f64)> =
        (1..=POINTS).filter_map(|i| Some((percentile(&fcts, share(i))? as f64 / 1e6, share(i)))).collect();
    if let Some(first) = fcts.first() {
        points.insert(0, (*first as f64 / 1e6, 0.0));
    }
    points
}

/// For each size, or for ranges of sizes if there are many: the median size, mean slowdown, 99th percentile.
fn slowdowns(batch: &Batch, runs: &[Run], case: usize) -> Vec<(f64, f64, f64)> {
    let flows = batch.of_case(case, runs).flat_map(|(_, f)| &f.flows);
    let mut all: Vec<(u64, f64)> =
        flows.filter_map(|(flow, record)| Some((flow.bytes, record.slowdown(flow)?))).collect();
    all.sort_unstable_by_key(|(size, _)| *size);
    let bin = |flows: &[(u64, f64)]| {
        let mut slowdowns: Vec<f64> = flows.iter().map(|f| f.1).collect();
        slowdowns.sort_by(f64::total_cmp);
        let mean = slowdowns.iter().sum::<f64>() / slowdowns.len() as f64;
        (flows[flows.len() / 2].0 as f64, mean, percentile(&slowdowns, 0.99).unwrap_or(mean))
    };
    ranges(&all).into_iter().map(bin).collect()
}

/// Splits flows, sorted by size, into ranges with about the same number of flows, without dividing a size. A
/// sufficiently frequent size has its own range, as does each size if there are few.
fn ranges(flows: &[(u64, f64)]) -> Vec<&[(u64, f64)]> {
    let few = flows.chunk_by(|a, b| a.0 == b.0).count() <= SIZES;
    let enough = if few { 1 } else { flows.len().div_ceil(SIZES) };
    let mut ranges = Vec::new();
    let (mut from, mut at) = (0, 0);
    for same in flows.chunk_by(|a, b| a.0 == b.0) {
        if same.len() >= enough && from < at {
            ranges.push(&flows[from..at]);
            from = at;
        }
        at += same.len();
        if at - from >= enough {
            ranges.push(&flows[from..at]);
            from = at;
        }
    }
    if from < at {
        ranges.push(&flows[from..]);
    }
    ranges
}

/// Gbit/s over ms since `begins`, averaged over intervals.
fn rates(begins: u64, samples: &[Sample]) -> Vec<(f64, f64)> {
    let stretch = samples.len().div_ceil(POINTS).max(1);
    let mut before = (begins, 0);
    let ends = samples.chunks(stretch).filter_map(|c| c.last()).map(|s| {
        let rate = rate(before, (s.at, s.delivered));
        let middle = (before.0 - begins + s.at - begins) as f64 / 2e6;
        before = (s.at, s.delivered);
        (middle, rate / 1e9)
    });
    ends.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_in_one_point_however_often_it_occurs() {
        let flows = |sizes: &[(u64, usize)]| -> Vec<(u64, f64)> {
            sizes.iter().flat_map(|&(size, n)| (0..n).map(move |i| (size, i as f64))).collect()
        };
        let shown = |sizes: &[(u64, usize)]| -> Vec<(u64, u64, usize)> {
            let flows = flows(sizes);
            ranges(&flows).iter().map(|r| (r[0].0, r[r.len() - 1].0, r.len())).collect()
        };
        assert_eq!(shown(&[]), []);
        assert_eq!(shown(&[(1_000, 500)]), [(1_000, 1_000, 500)]);
        assert_eq!(shown(&[(64, 90), (1_000, 1), (9_000, 9)]), [(64, 64, 90), (1_000, 1_000, 1), (9_000, 9_000, 9)]);
        // A size with half of all flows, among a thousand that occur once.
        let mut many: Vec<(u64, usize)> = (1..=1_000).map(|size| (size, 1)).collect();
        many[499].1 = 1_001;
        let shown = shown(&many);
        assert!(shown.contains(&(500, 500, 1_001)), "{shown:?}");
        assert!((SIZES / 2..=SIZES + 2).contains(&shown.len()), "{shown:?}");
        assert!(shown.windows(2).all(|w| w[0].1 < w[1].0), "{shown:?}");
        assert_eq!(shown.iter().map(|r| r.2).sum::<usize>(), 2_000);
    }

    #[test]
    fn the_heading_says_what_was_simulated() {
        use irnic_fabric::experiment::{Grid, Written};

        let case = |values: &[(&'static str, &str)]| {
            let common = values.iter().map(|(key, text)| (*key, vec![Written::flag(key, text)])).collect();
            Grid { common, runs: Vec::new() }.cases().unwrap().remove(0)
        };
        let heading = |cases: Vec<Case>| {
            subject(&Batch {
                threads: 1,
                cases,
                experiments: Vec::new(),
                seeds: vec![1],
                irnic: String::new(),
                keep_flows: false,
                schedule: None,
                pcap: Default::default(),
            })
        };
        let star = ("topology", "star");
        assert_eq!(heading(vec![case(&[])]), "fat-tree:k=6,rate=40G,delay=2us, irn-heavy, load 0.7");
        assert_eq!(
            heading(vec![case(&[star, ("load", "0.5")]), case(&[star, ("load", "0.7")])]),
            "star, irn-heavy, load 0.5 and 0.7"
        );
        assert_eq!(heading(vec![case(&[star, ("flows", "f.txt")])]), "star, f.txt");
        for (workload, has_load) in [
            ("permutation", false),
            ("incast:senders=3+file:f.txt", false),
            ("irn-heavy:load=0.6", false),
            ("irn-heavy:load=0.6+fixed:1MB", true),
            ("incast:senders=3,share=0.1", true),
            ("cdf:WebSearch+foreground", true),
        ] {
            let heading = heading(vec![case(&[star, ("workload", workload)])]);
            assert_eq!(heading.contains("load 0.7"), has_load, "{heading}");
        }
        let many = (1..=4).map(|n| case(&[star, ("load", &format!("0.{n}"))])).collect();
        assert_eq!(heading(many), "star, irn-heavy, 4 loads");
    }

    #[test]
    fn rates_are_differences() {
        let sample = |at, delivered| Sample { at, delivered, ..Sample::default() };
        assert_eq!(rates(500, &[sample(1_500, 1_000), sample(2_500, 4_000)]), [(0.0005, 8.0), (0.0015, 24.0)]);
    }

    #[test]
    fn labels_cannot_break_the_page() {
        assert_eq!(escaped("<b>&\""), "&lt;b&gt;&amp;&quot;");
    }
}
