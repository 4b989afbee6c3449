//! What the terminal shows: a column for each case, or a line for each if there are many.

use std::fmt::Write;

use irnic_fabric::summary::{Group, Summary, mean_and_confidence};

use super::execute::{Finished, NoResult};
use super::summary_json::ending;
use super::{Plan, Run};

/// More cases than this have a line each.
const COLUMNS: usize = 6;
/// The longest word at the head of a column.
const WORD: usize = 24;
/// The longest name of a case in a table: cases with longer ones have numbers there, and their names above.
const NAME: usize = 48;
/// ns of a millisecond.
const MS: f64 = 1e6;

/// The results of one case, one for each seed.
pub struct Column<'a> {
    /// What it is called.
    pub label: &'a str,
    /// Its runs.
    pub runs: Vec<&'a Finished>,
    /// Of the others, what became of them.
    without: Vec<&'static str>,
    /// Kinds of the parts of its workload: what its classes are.
    kinds: Vec<String>,
}

/// Columns of all cases.
pub fn columns<'a>(plan: &'a Plan, runs: &'a [Run]) -> Vec<Column<'a>> {
    let one = |(at, case): (usize, &'a super::Case)| Column {
        label: &case.label,
        runs: plan.of_case(at, runs).map(|(_, f)| f).collect(),
        without: runs.iter().filter(|r| r.case == at).filter_map(|r| Some(word(r.result.as_ref().err()?))).collect(),
        kinds: kinds(case),
    };
    plan.cases.iter().enumerate().map(one).collect()
}

fn word(why: &NoResult) -> &'static str {
    match why {
        NoResult::Failed(_) => "failed",
        NoResult::Interrupted => "interrupted",
        NoResult::NeverBegun => "never begun",
    }
}

/// `cdf` and `foreground` of `cdf:WebSearch,load=0.2+foreground`.
fn kinds(case: &super::Case) -> Vec<String> {
    if case.given("flows").is_some() {
        return vec!["file".to_owned()];
    }
    let workload = case.value("workload").text;
    workload.split('+').map(|part| part.split(':').next().unwrap_or(part).trim().to_owned()).collect()
}

impl Column<'_> {
    /// The mean, with its confidence interval if there is one; a dash if there is nothing to average.
    pub fn cell(&self, places: usize, of: impl Fn(&Summary) -> f64) -> String {
        let values: Vec<f64> = self.runs.iter().map(|f| of(&f.summary)).filter(|value| !value.is_nan()).collect();
        let (mean, confidence) = mean_and_confidence(&values);
        match values.len() {
            0 => "-".to_owned(),
            1 => format!("{mean:.places$}"),
            _ => format!("{mean:.places$} ±{confidence:.places$}"),
        }
    }

    /// How the runs ended, in words.
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

/// A statistic in a row of its own.
pub struct Row {
    /// Name, with unit.
    pub name: String,
    /// Decimal places.
    pub places: usize,
    /// Of a run; not a number if it has nothing to be averaged.
    pub of: Box<dyn Fn(&Summary) -> f64>,
}

fn row(name: impl Into<String>, places: usize, of: impl Fn(&Summary) -> f64 + 'static) -> Row {
    Row { name: name.into(), places, of: Box::new(of) }
}

/// A statistic of the complete flows of a group, if there are any.
fn of_complete(group: &Group, statistic: f64) -> f64 {
    if group.complete == 0 { f64::NAN } else { statistic }
}

/// The rows that these runs need: without what none of them has.
pub fn rows(columns: &[Column<'_>]) -> Vec<Row> {
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
        row("lost on links", 0, |s| s.lost as f64),
        row("dropped or lost [%]", 3, |s| 100.0 * s.loss_rate()),
        row("retransmitted", 0, |s| s.nics.retransmitted_pkts as f64),
        row("timeouts", 0, |s| s.nics.local_ack_timeout_err as f64),
        row("out of order", 0, |s| s.nics.out_of_seq_request as f64),
        row("ECN marks", 0, |s| s.marked as f64),
        row("PFC frames", 0, |s| s.pfc_frames as f64),
        row("paused [ms]", 3, |s| s.paused as f64 / MS),
        row("paused [% of all ports]", 3, |s| 100.0 * s.paused_share()),
        row("longest queue [KB]", 1, |s| s.peak_queue as f64 / 1e3),
        row("ended at [ms]", 3, |s| s.ended as f64 / MS),
    ];
    let any = |of: &dyn Fn(&Summary) -> f64| columns.iter().any(|c| c.runs.iter().any(|f| of(&f.summary) != 0.0));
    rows.retain(|r| {
        !["lost on links", "ECN marks", "PFC frames", "paused [ms]", "paused [% of all ports]"]
            .contains(&r.name.as_str())
            || any(&r.of)
    });
    rows
}

/// Rows about flows of a size, or of a class.
pub fn parts(columns: &[Column<'_>]) -> Vec<(String, Vec<Row>)> {
    let Some(first) = columns.iter().find_map(|c| c.runs.first()) else { return Vec::new() };
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
        parts.push((name, group_rows(move |s| s.by_size.get(at).map(|b| b.group))));
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
            parts.push((name, group_rows(move |s| s.by_class.get(class).copied())));
        }
    }
    parts
}

fn group_rows(of: impl Fn(&Summary) -> Option<Group> + Copy + 'static) -> Vec<Row> {
    let statistic = |name, places, statistic: fn(&Group) -> f64| {
        row(name, places, move |s| of(s).map_or(f64::NAN, |group| of_complete(&group, statistic(&group))))
    };
    vec![
        row("flows", 0, move |s| of(s).unwrap_or_default().flows as f64),
        statistic("average slowdown", 2, |g| g.slowdown.mean),
        statistic("average FCT [ms]", 4, |g| g.fct.mean / MS),
        statistic("p50 FCT [ms]", 4, |g| g.fct.p50 / MS),
        statistic("p95 FCT [ms]", 4, |g| g.fct.p95 / MS),
        statistic("p99 FCT [ms]", 4, |g| g.fct.p99 / MS),
        statistic("p99.9 FCT [ms]", 4, |g| g.fct.p999 / MS),
        statistic("max FCT [ms]", 4, |g| g.fct.max / MS),
    ]
}

/// Bytes, in the largest unit of which they are a whole number.
pub fn size(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB")];
    match units.iter().find(|(unit, _)| bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// Prints everything.
pub fn print(plan: &Plan, runs: &[Run]) {
    crate::output::print(&text(plan, runs));
}

fn text(plan: &Plan, runs: &[Run]) -> String {
    let columns = columns(plan, runs);
    let mut out = String::new();
    if let Some((_, finished)) =
        runs.iter().find_map(|r| Some((r, r.result.as_ref().ok()?))).filter(|_| plan.cases.len() == 1)
    {
        for (key, value) in &finished.resolved {
            let _ = writeln!(out, "{key:<10}{value}");
        }
        out.push('\n');
    }
    let names = names(&columns);
    let legend = legend(&columns, &names);
    if !legend.is_empty() {
        let _ = writeln!(out, "{legend}");
    }
    if columns.len() <= COLUMNS {
        beside(&mut out, &columns, &names)
    } else {
        below(&mut out, &columns, &names)
    }
    for (run, finished) in runs.iter().filter_map(|r| Some((r, r.result.as_ref().ok()?))) {
        if !finished.deadlock.is_empty() {
            let nodes: Vec<String> =
                finished.deadlock.iter().chain(finished.deadlock.first()).map(u32::to_string).collect();
            let _ =
                writeln!(out, "\n{}: deadlock, each node waits for the next: {}", plan.name(run), nodes.join(" > "));
        }
    }
    let _ = writeln!(out, "\n{}", speed(runs));
    out
}

/// How fast it went, all runs together.
fn speed(runs: &[Run]) -> String {
    let finished = || runs.iter().filter_map(|r| r.result.as_ref().ok());
    let seconds: f64 = finished().map(|f| f.took.as_secs_f64()).sum();
    let events: u64 = finished().map(|f| f.summary.events).sum();
    let hops: u64 = finished().map(|f| f.summary.packet_hops).sum();
    let rate = |n: u64| n as f64 / seconds.max(1e-9) / 1e6;
    format!(
        "{} of {} runs, {events} events, {hops} packet hops in {seconds:.2} s of core time: {:.2} M events/s, {:.2} M hops/s",
        finished().count(),
        runs.len(),
        rate(events),
        rate(hops)
    )
}

/// Numbers and what they stand for, if cases have numbers.
fn legend(columns: &[Column<'_>], names: &[String]) -> String {
    let longer = names.iter().zip(columns).filter(|(name, column)| *name != column.label);
    longer.map(|(name, column)| format!("{name} {}\n", column.label)).collect()
}

/// What cases are called in tables: their labels, or numbers if one is too long for a table that fits a screen.
pub fn names(columns: &[Column<'_>]) -> Vec<String> {
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

/// Heads of columns: names, broken between words, each ending in the last line.
fn heads(names: &[String]) -> Vec<Vec<String>> {
    let broken: Vec<Vec<String>> = names.iter().map(|name| broken(name)).collect();
    let height = broken.iter().map(Vec::len).max().unwrap_or(0);
    let line = |at: usize| {
        let of = |lines: &Vec<String>| (at + lines.len()).checked_sub(height).map(|at| lines[at].clone());
        std::iter::once(String::new()).chain(broken.iter().map(|lines| of(lines).unwrap_or_default())).collect()
    };
    (0..height).map(line).collect()
}

fn broken(name: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WORD => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Lines of name and cells, aligned.
fn beside(out: &mut String, columns: &[Column<'_>], names: &[String]) {
    let mut lines = heads(names);
    let cells = |r: &Row| columns.iter().map(|c| c.cell(r.places, &r.of)).collect::<Vec<_>>();
    let mut line = |name: String, cells: Vec<String>| lines.push(std::iter::once(name).chain(cells).collect());
    line("ended".into(), columns.iter().map(Column::endings).collect());
    for r in rows(columns) {
        line(r.name.clone(), cells(&r));
    }
    align(out, &lines);
    let parts = parts(columns);
    for (column, name) in columns.iter().zip(names) {
        let title = if columns.len() > 1 { name } else { "FCT in ms" };
        by_part(out, column, title, &parts);
    }
}

/// A line for each range of sizes and for each class.
fn by_part(out: &mut String, column: &Column<'_>, title: &str, parts: &[(String, Vec<Row>)]) {
    let heads = ["flows", "slowdown", "average", "p50", "p95", "p99", "p99.9", "max"];
    let mut lines = vec![std::iter::once(title).chain(heads).map(str::to_owned).collect::<Vec<_>>()];
    for (name, rows) in parts {
        let cells = rows.iter().map(|r| column.cell(r.places, &r.of));
        lines.push(std::iter::once(name.clone()).chain(cells).collect());
    }
    out.push('\n');
    align(out, &lines);
}

/// A line for each case.
fn below(out: &mut String, columns: &[Column<'_>], names: &[String]) {
    let head = [
        "",
        "ended",
        "slowdown",
        "FCT [ms]",
        "p99 [ms]",
        "p99.9 [ms]",
        "Gbit/s",
        "lost %",
        "retransm.",
        "timeouts",
        "PFC",
        "paused %",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for (c, name) in columns.iter().zip(names) {
        lines.push(vec![
            name.clone(),
            c.endings(),
            c.cell(2, |s| of_complete(&s.all, s.all.slowdown.mean)),
            c.cell(4, |s| of_complete(&s.all, s.all.fct.mean / MS)),
            c.cell(3, |s| of_complete(&s.all, s.all.fct.p99 / MS)),
            c.cell(3, |s| of_complete(&s.all, s.all.fct.p999 / MS)),
            c.cell(1, |s| s.goodput / 1e9),
            c.cell(3, |s| 100.0 * s.loss_rate()),
            c.cell(0, |s| s.nics.retransmitted_pkts as f64),
            c.cell(0, |s| s.nics.local_ack_timeout_err as f64),
            c.cell(0, |s| s.pfc_frames as f64),
            c.cell(3, |s| 100.0 * s.paused_share()),
        ]);
    }
    align(out, &lines);
}

/// The first column to the left, the others to the right.
fn align(out: &mut String, lines: &[Vec<String>]) {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |at: usize| lines.iter().map(|l| l[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines {
        let mut text = String::new();
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            if at == 0 {
                let _ = write!(text, "{cell:<width$}");
            } else {
                let _ = write!(text, "  {cell:>width$}");
            }
        }
        let _ = writeln!(out, "{}", text.trim_end());
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
        labels.iter().map(|label| Column { label, runs: Vec::new(), without: Vec::new(), kinds: Vec::new() }).collect()
    }

    #[test]
    fn long_names_are_numbered_and_told_above() {
        let short = ["load=0.5 irn pfc=off", "load=0.5 roce pfc=on"];
        assert_eq!(names(&named(&short)), short);
        let word = "cdf:WebSearch,load=0.2+foreground";
        assert_eq!(names(&named(&[word, "irn"])), ["[1]", "[2]"]);
        let many = "load=0.5 headers=fixed:66 irn cap=110 rto-high=320us n=3 pfc=off";
        assert_eq!(names(&named(&["irn", many])), ["[1]", "[2]"]);
        // Nobody has to tell one from another.
        assert_eq!(names(&named(&[many])), [many]);
    }

    #[test]
    fn heads_of_columns_are_broken_between_words() {
        let names = ["load=0.5 irn cap=110 rto-high=320us".to_owned(), "IRN".to_owned()];
        let expected = [["", "load=0.5 irn cap=110", ""], ["", "rto-high=320us", "IRN"]];
        assert_eq!(heads(&names), expected.map(|line| line.map(str::to_owned).to_vec()));
    }

    #[test]
    fn numbers_stand_below_each_other() {
        let mut out = String::new();
        let line = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        align(&mut out, &[line(["", "a", "long name"]), line(["sizes", "", ""]), line(["x", "12", "3"])]);
        assert_eq!(out, "        a  long name\nsizes\nx      12          3\n");
    }
}
