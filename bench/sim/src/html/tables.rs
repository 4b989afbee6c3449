//! The tables: results, as on the terminal, and settings.

use std::borrow::Cow;
use std::fmt::Write as _;

use irnic_fabric::experiment::{Buffers, Case, Experiment, KEYS};
use irnic_report::picture::escaped;

use super::offers_load;
use crate::execute::{Batch, Run, replay};
use crate::results::{COLUMNS, Column, Report};

/// Writes the results: those of all flows and of the network, then for each case those of flows of a size, and of a
/// class.
pub fn results(page: &mut String, report: &Report<'_>) {
    page.push_str("<h2>Results</h2>\n<div class=\"scroll\"><table class=\"results\">");
    if report.columns.len() <= COLUMNS {
        column_by_case(page, report)
    } else {
        line_by_case(page, report)
    }
    page.push_str("</tbody></table></div>\n");
    by_part(page, report);
}

/// Writes the head of a column or a line of a case.
fn head(page: &mut String, case: usize, name: &str) {
    let _ = write!(page, "<th class=\"s{case}\">{}</th>", escaped(name));
}

/// Writes how the runs of a case ended.
fn ended(page: &mut String, column: &Column<'_>) {
    let endings = column.endings();
    let class = if endings == "complete" { "" } else { " class=\"bad\"" };
    let _ = write!(page, "<td{class}>{endings}</td>");
}

/// Writes a column for each case.
fn column_by_case(page: &mut String, Report { columns, names, rows, .. }: &Report<'_>) {
    page.push_str("<thead><tr><th></th>");
    names.iter().enumerate().for_each(|(case, name)| head(page, case, name));
    page.push_str("</tr></thead><tbody>\n<tr><th>ended</th>");
    columns.iter().for_each(|column| ended(page, column));
    page.push_str("</tr>\n");
    for row in rows {
        let cells = columns.iter().map(|column| format!("<td>{}</td>", column.cell(row.places, &row.of)));
        let _ = writeln!(page, "<tr><th>{}</th>{}</tr>", row.name, cells.collect::<String>());
    }
}

/// Writes a line for each case.
fn line_by_case(page: &mut String, Report { columns, names, rows, .. }: &Report<'_>) {
    let heads = rows.iter().map(|row| format!("<th>{}</th>", row.name));
    let _ = writeln!(page, "<thead><tr><th></th><th>ended</th>{}</tr></thead><tbody>", heads.collect::<String>());
    for ((case, name), column) in names.iter().enumerate().zip(columns) {
        page.push_str("<tr>");
        head(page, case, name);
        ended(page, column);
        let cells = rows.iter().map(|row| format!("<td>{}</td>", column.cell(row.places, &row.of)));
        let _ = writeln!(page, "{}</tr>", cells.collect::<String>());
    }
}

/// Writes a table for each case, with a line for each size and class.
fn by_part(page: &mut String, Report { columns, names, parts, .. }: &Report<'_>) {
    if parts.is_empty() {
        return;
    }
    page.push_str("<h3>FCT in ms</h3>\n");
    for ((case, name), column) in names.iter().enumerate().zip(columns) {
        let lines = column.by_part(name, parts);
        let Some((heads, lines)) = lines.split_first() else { continue };
        page.push_str("<div class=\"scroll\"><table class=\"parts\"><thead><tr>");
        head(page, case, name);
        let heads = heads.iter().skip(1).map(|head| format!("<th>{head}</th>"));
        let _ = writeln!(page, "{}</tr></thead><tbody>", heads.collect::<String>());
        for line in lines {
            let cells = line.iter().skip(1).map(|cell| format!("<td>{cell}</td>"));
            let _ = writeln!(page, "<tr><th>{}</th>{}</tr>", escaped(&line[0]), cells.collect::<String>());
        }
        page.push_str("</tbody></table></div>\n");
    }
}

/// Whether a setting has an effect on a case, by default or because it was given.
fn applies(key: &str, case: &Case, experiment: &Experiment) -> bool {
    if case.given(key).is_some() {
        return true;
    }
    let flow_file = case.given("flows").is_some();
    let queues = |of: fn(&Buffers) -> bool| experiment.policy.is_none() && of(&experiment.buffers);
    match key {
        "load" => offers_load(case),
        "workload" | "priority" => !flow_file,
        "pfc" => queues(|buffers| matches!(buffers, Buffers::InputQueued(_) | Buffers::Shared(_))),
        "scheduling" => queues(|buffers| !matches!(buffers, Buffers::Trimming(_) | Buffers::Custom(_))),
        _ => true,
    }
}

/// Writes the settings of all cases: those that apply, and those that follow from others.
pub fn settings(page: &mut String, batch: &Batch, runs: &[Run], names: &[String]) {
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
        let cases = batch.cases.iter().zip(&batch.experiments);
        let value = |(case, experiment): (&Case, &Experiment)| {
            case.get(key.name()).filter(|_| applies(key.name(), case, experiment)).map(|value| value.text)
        };
        let values: Vec<Option<String>> = cases.map(value).collect();
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
    line("irnic", &vec![batch.origin.irnic.clone(); commands.len()]);
    page.push_str("</tbody></table></div>\n");
}
