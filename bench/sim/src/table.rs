//! Results on the terminal: a column for each case, or a line for each if there are many.

use std::fmt::Write;

use irnic_fabric::summary::Summary;
use irnic_report::table::align;

use crate::execute::Run;
use crate::results::{COLUMNS, Column, MS, Report, Row, WORD, of_complete};

/// Prints everything.
pub fn print(report: &Report<'_>) {
    irnic_report::output::print(&text(report));
}

fn text(report: &Report<'_>) -> String {
    let Report { batch, runs, columns, names, .. } = report;
    let mut out = String::new();
    if let Some((_, finished)) =
        runs.iter().find_map(|r| Some((r, r.result.as_ref().ok()?))).filter(|_| batch.cases.len() == 1)
    {
        for (key, value) in &finished.resolved {
            let _ = writeln!(out, "{key:<10}{value}");
        }
        out.push('\n');
    }
    let legend = legend(columns, names);
    if !legend.is_empty() {
        let _ = writeln!(out, "{legend}");
    }
    if columns.len() <= COLUMNS {
        column_by_case(&mut out, report)
    } else {
        line_by_case(&mut out, report)
    }
    for (run, finished) in runs.iter().filter_map(|r| Some((r, r.result.as_ref().ok()?))) {
        if !finished.deadlock.is_empty() {
            let nodes: Vec<String> =
                finished.deadlock.iter().chain(finished.deadlock.first()).map(u32::to_string).collect();
            let _ =
                writeln!(out, "\n{}: deadlock, each node waits for the next: {}", batch.name(run), nodes.join(" > "));
        }
    }
    let _ = writeln!(out, "\n{}", totals(runs));
    out
}

/// Returns the totals of all runs.
fn totals(runs: &[Run]) -> String {
    let finished = || runs.iter().filter_map(|r| r.result.as_ref().ok());
    let events: u64 = finished().map(|f| f.summary.events).sum();
    let hops: u64 = finished().map(|f| f.summary.packet_hops).sum();
    format!("{} of {} runs, {events} events, {hops} packet hops", finished().count(), runs.len())
}

/// Returns the speed of all runs together.
pub fn speed(runs: &[Run]) -> String {
    let finished = || runs.iter().filter_map(|r| r.result.as_ref().ok());
    let seconds: f64 = finished().map(|f| f.took.as_secs_f64()).sum();
    let rate = |of: fn(&Summary) -> u64| {
        let n: u64 = finished().map(|f| of(&f.summary)).sum();
        n as f64 / seconds.max(1e-9) / 1e6
    };
    let (events, hops) = (rate(|s| s.events), rate(|s| s.packet_hops));
    format!("{seconds:.2} s of core time: {events:.2} M events/s, {hops:.2} M hops/s")
}

/// Returns the numbers of cases with their names, if cases are numbered.
fn legend(columns: &[Column<'_>], names: &[String]) -> String {
    let longer = names.iter().zip(columns).filter(|(name, column)| *name != column.label);
    longer.map(|(name, column)| format!("{name} {}\n", column.label)).collect()
}

/// Returns the heads of columns: names, wrapped between words, bottom-aligned.
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

/// Writes lines of name and cells, aligned.
fn column_by_case(out: &mut String, Report { columns, names, rows, parts, .. }: &Report<'_>) {
    let mut lines = heads(names);
    let cells = |r: &Row| columns.iter().map(|c| c.cell(r.places, &r.of)).collect::<Vec<_>>();
    let mut line = |name: String, cells: Vec<String>| lines.push(std::iter::once(name).chain(cells).collect());
    line("ended".into(), columns.iter().map(Column::endings).collect());
    for r in rows {
        line(r.name.clone(), cells(r));
    }
    align(out, &lines);
    for (column, name) in columns.iter().zip(names) {
        let title = if columns.len() > 1 { name } else { "FCT in ms" };
        out.push('\n');
        align(out, &column.by_part(title, parts));
    }
}

/// Writes a line for each case.
fn line_by_case(out: &mut String, Report { columns, names, .. }: &Report<'_>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_columns_are_broken_between_words() {
        let names = ["load=0.5 irn cap=110 rto-high=320us".to_owned(), "IRN".to_owned()];
        let expected = [["", "load=0.5 irn cap=110", ""], ["", "rto-high=320us", "IRN"]];
        assert_eq!(heads(&names), expected.map(|line| line.map(str::to_owned).to_vec()));
    }
}
