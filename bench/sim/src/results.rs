//! Results in tables, on the terminal and in reports: a column for each case, a row for each statistic.

use irnic_fabric::experiment::{Case, Experiment};
use irnic_fabric::sim::{ColourTotals, Ending};
use irnic_fabric::summary::{Group, Summary, mean_and_confidence};
use irnic_sweep::NoResult;

use crate::execute::{Batch, Finished, Run};

/// Maximum number of cases with columns; more have a line each.
pub const COLUMNS: usize = 6;
/// Maximum length of a word in a column head.
pub const WORD: usize = 24;
/// Maximum length of a case's name in a table: cases with longer ones are numbered, with their names listed above.
const NAME: usize = 48;
/// ns of a millisecond.
pub const MS: f64 = 1e6;

/// The results of a batch, as shown in tables on the terminal and in a page.
pub struct Report<'a> {
    /// The cases and seeds.
    pub batch: &'a Batch,
    /// Their runs.
    pub runs: &'a [Run],
    /// A column for each case.
    pub columns: Vec<Column<'a>>,
    /// Heads of the columns: labels of the cases, or numbers where these are long.
    pub names: Vec<String>,
    /// Statistics of all flows and of the network.
    pub rows: Vec<Row>,
    /// Statistics of ranges of sizes and of classes.
    pub parts: Vec<Part>,
}

impl<'a> Report<'a> {
    /// The report of the runs of a batch.
    pub fn of(batch: &'a Batch, runs: &'a [Run]) -> Report<'a> {
        let columns = columns(batch, runs);
        let (names, rows, parts) = (names(&columns), rows(&columns), parts(&columns));
        Report { batch, runs, columns, names, rows, parts }
    }
}

/// The results of one case, one for each seed.
pub struct Column<'a> {
    /// Name of the case.
    pub label: &'a str,
    /// Runs with results.
    pub runs: Vec<&'a Finished>,
    /// Endings of the runs without results.
    without: Vec<&'static str>,
    /// Kinds of the parts of the workload, which are its classes.
    kinds: Vec<String>,
    /// Transports of its classes, if they differ.
    transports: Vec<String>,
}

/// Returns the columns of all cases.
fn columns<'a>(batch: &'a Batch, runs: &'a [Run]) -> Vec<Column<'a>> {
    let one = |(at, case): (usize, &'a Case)| Column {
        label: &case.label,
        runs: batch.of_case(at, runs).map(|(_, f)| f).collect(),
        without: runs.iter().filter(|r| r.case == at).filter_map(|r| Some(word(r.result.as_ref().err()?))).collect(),
        kinds: kinds(case),
        transports: transports(&batch.experiments[at]),
    };
    batch.cases.iter().enumerate().map(one).collect()
}

fn word(why: &NoResult) -> &'static str {
    match why {
        NoResult::Failed(_) => "failed",
        NoResult::Interrupted => "interrupted",
        NoResult::NeverBegun => "never begun",
        NoResult::Missing => "missing",
    }
}

/// Returns the kinds of the classes of a case: `cdf` and `foreground` of `cdf:WebSearch,load=0.2+foreground`.
fn kinds(case: &Case) -> Vec<String> {
    if case.given("flows").is_some() {
        return vec!["file".to_owned()];
    }
    let workload = case.text("workload");
    workload.split('+').map(|part| part.split(':').next().unwrap_or(part).trim().to_owned()).collect()
}

/// Returns the transports of the classes of an experiment; empty if they are equal.
fn transports(experiment: &Experiment) -> Vec<String> {
    match &experiment.transports[..] {
        [_] => Vec::new(),
        several => several.iter().map(|transport| transport.name().trim().to_owned()).collect(),
    }
}

impl Column<'_> {
    /// Returns the mean over the runs, with its confidence interval if there is one; a dash if there is nothing to
    /// average.
    pub fn cell(&self, places: usize, of: impl Fn(&Summary) -> f64) -> String {
        let values: Vec<f64> = self.runs.iter().map(|f| of(&f.summary)).filter(|value| !value.is_nan()).collect();
        let (mean, confidence) = mean_and_confidence(&values);
        match values.len() {
            0 => "-".to_owned(),
            1 => format!("{mean:.places$}"),
            _ => format!("{mean:.places$} ±{confidence:.places$}"),
        }
    }

    /// Returns a line of heads, and one of cells for each range of sizes and for each class.
    pub fn by_part(&self, title: &str, parts: &[Part]) -> Vec<Vec<String>> {
        // One per row: goodput is present only if transports share a network.
        let heads = ["flows", "slowdown", "average", "p50", "p95", "p99", "p99.9", "max", "Gbit/s"];
        let rows = parts.first().map_or(heads.len() - 1, |part| part.rows.len());
        let mut lines = vec![std::iter::once(title).chain(heads).take(1 + rows).map(str::to_owned).collect::<Vec<_>>()];
        for part in parts {
            let cells = part.rows.iter().map(|r| self.cell(r.places, &r.of));
            let transport = part.class.and_then(|class| self.transports.get(class));
            let name = transport.map_or_else(|| part.name.clone(), |transport| format!("{}, {transport}", part.name));
            lines.push(std::iter::once(name).chain(cells).collect());
        }
        lines
    }

    /// Returns the endings of the runs, in words.
    pub fn endings(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for word in self.runs.iter().map(|f| ending(f)).chain(self.without.iter().copied()) {
            match counts.iter_mut().find(|(w, _)| *w == word) {
                Some((_, n)) => *n += 1,
                None => counts.push((word, 1)),
            }
        }
        match &counts[..] {
            [(word, _)] => (*word).to_owned(),
            several => several.iter().map(|(w, n)| format!("{n} {w}")).collect::<Vec<_>>().join(", "),
        }
    }
}

/// A statistic with its own row.
pub struct Row {
    /// Name, with unit.
    pub name: String,
    /// Decimal places.
    pub places: usize,
    /// The value of a run; NaN if there is none.
    pub of: Box<dyn Fn(&Summary) -> f64>,
}

fn row(name: impl Into<String>, places: usize, of: impl Fn(&Summary) -> f64 + 'static) -> Row {
    Row { name: name.into(), places, of: Box::new(of) }
}

/// Returns a statistic of the complete flows of a group; NaN if there are none.
pub fn of_complete(group: &Group, statistic: f64) -> f64 {
    if group.complete == 0 { f64::NAN } else { statistic }
}

/// Rows of runs in which switches use colours.
const COLOURS: [&str; 5] =
    ["red dropped", "green dropped", "control dropped", "green data [% of bytes]", "longest red queue [KB]"];

/// The row of runs in which policies change.
const DRAINED: &str = "left by the old policy";

/// Names of rows, and whether a run has their values.
type Optional = (&'static [&'static str], fn(&Summary) -> bool);

/// Rows that are shown if a run has their values, even if 0.
const WHERE_THERE: [Optional; 3] = [
    (&COLOURS, |s| s.colours.is_some()),
    (&["calls complete", "p50 call [ms]", "p99 call [ms]"], |s| s.calls.is_some()),
    (&[DRAINED], |s| s.drained.is_some()),
];

/// Returns a statistic of runs in which switches use colours; NaN for others.
fn colour(of: fn(&ColourTotals) -> f64) -> impl Fn(&Summary) -> f64 {
    move |summary| summary.colours.as_ref().map_or(f64::NAN, of)
}

/// Returns the rows for these runs, without those that none of them has.
fn rows(columns: &[Column<'_>]) -> Vec<Row> {
    let mut rows = vec![
        row("flows", 0, |s| s.all.flows as f64),
        row("complete", 0, |s| s.all.complete as f64),
        row("average slowdown", 2, |s| of_complete(&s.all, s.all.slowdown.mean)),
        row("p99 slowdown", 2, |s| of_complete(&s.all, s.all.slowdown.p99)),
        row("average FCT [ms]", 4, |s| of_complete(&s.all, s.all.fct.mean / MS)),
        row("p50 FCT [ms]", 4, |s| of_complete(&s.all, s.all.fct.p50 / MS)),
        row("p95 FCT [ms]", 4, |s| of_complete(&s.all, s.all.fct.p95 / MS)),
        row("p99 FCT [ms]", 4, |s| of_complete(&s.all, s.all.fct.p99 / MS)),
        row("p99.9 FCT [ms]", 4, |s| of_complete(&s.all, s.all.fct.p999 / MS)),
        row("max FCT [ms]", 4, |s| of_complete(&s.all, s.all.fct.max / MS)),
        row("goodput [Gbit/s]", 2, |s| s.goodput / 1e9),
        row("packets sent", 0, |s| s.sent as f64),
        row("dropped", 0, |s| s.dropped as f64),
        row("trimmed", 0, |s| s.trimmed as f64),
        row("trimmed on uplinks [%]", 3, |s| 100.0 * s.trimmed_upwards as f64 / s.sent.max(1) as f64),
        row("headers returned", 0, |s| s.returned as f64),
        row(DRAINED, 0, |s| s.drained.map_or(f64::NAN, |packets| packets as f64)),
        row("lost on links", 0, |s| s.lost as f64),
        row("dropped or lost [%]", 3, |s| 100.0 * s.loss_rate()),
        row("retransmitted", 0, |s| s.nics.retransmitted_pkts as f64),
        row("timeouts", 0, |s| s.nics.local_ack_timeout_err as f64),
        row("out of order", 0, |s| s.nics.out_of_seq_request as f64),
        row("red dropped", 0, colour(|c| c.red_dropped as f64)),
        row("green dropped", 0, colour(|c| c.green_dropped as f64)),
        row("control dropped", 0, colour(|c| c.control_dropped as f64)),
        row("green data [% of bytes]", 3, colour(|c| 100.0 * c.green_share())),
        row("longest red queue [KB]", 1, colour(|c| c.red_peak as f64 / 1e3)),
        row("ECN marks", 0, |s| s.marked as f64),
        row("PFC frames", 0, |s| s.pfc_frames as f64),
        row("paused [ms]", 3, |s| s.paused as f64 / MS),
        row("paused [% of all ports]", 3, |s| 100.0 * s.paused_share()),
        row("longest queue [KB]", 1, |s| s.peak_queue as f64 / 1e3),
        row("ended at [ms]", 3, |s| s.ended as f64 / MS),
        row("calls complete", 0, |s| s.calls.map_or(0.0, |calls| calls.count as f64)),
        row("p50 call [ms]", 4, |s| s.calls.map_or(f64::NAN, |calls| calls.p50 / MS)),
        row("p99 call [ms]", 4, |s| s.calls.map_or(f64::NAN, |calls| calls.p99 / MS)),
    ];
    let any = |of: &dyn Fn(&Summary) -> f64| columns.iter().any(|c| c.runs.iter().any(|f| of(&f.summary) != 0.0));
    rows.retain(|r| {
        if let Some((_, has)) = WHERE_THERE.iter().find(|(names, _)| names.contains(&r.name.as_str())) {
            return columns.iter().any(|c| c.runs.iter().any(|f| has(&f.summary)));
        }
        ![
            "trimmed",
            "trimmed on uplinks [%]",
            "headers returned",
            "lost on links",
            "ECN marks",
            "PFC frames",
            "paused [ms]",
            "paused [% of all ports]",
        ]
        .contains(&r.name.as_str())
            || any(&r.of)
    });
    rows
}

/// Rows for a part of the flows.
pub struct Part {
    /// Name.
    pub name: String,
    /// The class of the flows; `None` for a range of sizes.
    pub class: Option<usize>,
    /// Rows.
    pub rows: Vec<Row>,
}

/// Returns rows for flows of a size, and of a class.
fn parts(columns: &[Column<'_>]) -> Vec<Part> {
    let Some(first) = columns.iter().find_map(|c| c.runs.first()) else { return Vec::new() };
    let goodput = columns.iter().any(|column| !column.transports.is_empty());
    let mut parts = Vec::new();
    for (at, bucket) in first.summary.by_size.iter().enumerate() {
        let same = |s: &Summary| s.by_size.get(at).is_some_and(|b| b.up_to == bucket.up_to);
        let all_same = columns.iter().flat_map(|c| &c.runs).all(|f| same(&f.summary));
        let flows =
            columns.iter().flat_map(|c| &c.runs).map(|f| f.summary.by_size.get(at).map_or(0, |b| b.group.flows));
        if !all_same || flows.sum::<u64>() == 0 {
            continue;
        }
        let name = match bucket.up_to {
            Some(up_to) => format!("up to {}", size(up_to)),
            None => format!("above {}", size(bucket.above)),
        };
        let rows = group_rows(goodput, move |s| s.by_size.get(at).map(|b| b.group));
        parts.push(Part { name, class: None, rows });
    }
    let classes = columns.iter().flat_map(|c| &c.runs).map(|f| f.summary.by_class.len()).max().unwrap_or(0);
    if classes > 1 {
        for class in 0..classes {
            let mut kinds: Vec<&String> = columns.iter().filter_map(|c| c.kinds.get(class)).collect();
            kinds.sort_unstable();
            kinds.dedup();
            let name = match kinds[..] {
                [kind] => format!("class {class}, {kind}"),
                _ => format!("class {class}"),
            };
            let rows = group_rows(goodput, move |s| s.by_class.get(class).copied());
            parts.push(Part { name, class: Some(class), rows });
        }
    }
    parts
}

/// Returns the rows of a group of flows; with `goodput`, including their share of the run's.
fn group_rows(goodput: bool, of: impl Fn(&Summary) -> Option<Group> + Copy + 'static) -> Vec<Row> {
    let statistic = |name, places, statistic: fn(&Group) -> f64| {
        row(name, places, move |s| of(s).map_or(f64::NAN, |group| of_complete(&group, statistic(&group))))
    };
    let mut rows = vec![
        row("flows", 0, move |s| of(s).unwrap_or_default().flows as f64),
        statistic("average slowdown", 2, |g| g.slowdown.mean),
        statistic("average FCT [ms]", 4, |g| g.fct.mean / MS),
        statistic("p50 FCT [ms]", 4, |g| g.fct.p50 / MS),
        statistic("p95 FCT [ms]", 4, |g| g.fct.p95 / MS),
        statistic("p99 FCT [ms]", 4, |g| g.fct.p99 / MS),
        statistic("p99.9 FCT [ms]", 4, |g| g.fct.p999 / MS),
        statistic("max FCT [ms]", 4, |g| g.fct.max / MS),
    ];
    if goodput {
        let share = move |s: &Summary| of(s).unwrap_or_default().bytes as f64 / s.all.bytes.max(1) as f64;
        rows.push(row("goodput [Gbit/s]", 2, move |s| s.goodput / 1e9 * share(s)));
    }
    rows
}

/// Formats bytes in the largest unit of which they are a whole number.
pub fn size(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB")];
    match units.iter().find(|(unit, _)| bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// Returns how a run ended, in a word.
pub fn ending(finished: &Finished) -> &'static str {
    match &finished.summary.ending {
        _ if finished.interrupted => "interrupted",
        Ending::Complete => "complete",
        Ending::TimeUp => "time-up",
        Ending::Deadlock(_) => "deadlock",
        Ending::Stuck => "stuck",
    }
}

/// Returns the names of cases in tables: their labels, or numbers if one is too long for a table that fits a screen.
fn names(columns: &[Column<'_>]) -> Vec<String> {
    let long = |label: &str| {
        let word = label.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
        word > WORD || label.chars().count() > NAME
    };
    if columns.len() > 1 && columns.iter().any(|c| long(c.label)) {
        (1..=columns.len()).map(|n| format!("[{n}]")).collect()
    } else {
        columns.iter().map(|c| c.label.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (bytes, text) in [(1_024, "1024 B"), (10_000, "10 KB"), (1_000_000, "1 MB"), (1_500_000, "1500 KB")] {
            assert_eq!(size(bytes), text);
        }
    }

    fn named<'a>(labels: &[&'a str]) -> Vec<Column<'a>> {
        labels
            .iter()
            .map(|label| Column {
                label,
                runs: Vec::new(),
                without: Vec::new(),
                kinds: Vec::new(),
                transports: Vec::new(),
            })
            .collect()
    }

    #[test]
    fn long_names_are_numbered_and_told_above() {
        let short = ["load=0.5 irn pfc=off", "load=0.5 roce pfc=on"];
        assert_eq!(names(&named(&short)), short);
        let word = "cdf:WebSearch,load=0.2+foreground";
        assert_eq!(names(&named(&[word, "irn"])), ["[1]", "[2]"]);
        let many = "load=0.5 headers=fixed:66 irn cap=110 rto-high=320us n=3 pfc=off";
        assert_eq!(names(&named(&["irn", many])), ["[1]", "[2]"]);
        // A single case needs no number.
        assert_eq!(names(&named(&[many])), [many]);
    }
}
