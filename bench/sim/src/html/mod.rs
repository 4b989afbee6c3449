//! The report: one self-contained HTML file with plots and tables.

mod plots;
mod tables;

use std::fmt::Write as _;
use std::io::{self, Write};

use irnic_fabric::experiment::Case;
use irnic_report::html::{begin, buttons, end, figures};
use irnic_report::looks::{Look, looks};
use irnic_report::picture::escaped;
use irnic_sweep::NoResult;

use crate::execute::{Batch, Finished, Reached, Run};
use crate::results::{Column, Report};

/// Writes the report.
pub fn write(out: &mut impl Write, report: &Report<'_>) -> io::Result<()> {
    let Report { batch, runs, columns, names, .. } = report;
    let mut page = String::new();
    let transports: Vec<String> = batch.cases.iter().map(|case| case.text("transport")).collect();
    let looks = looks(transports.iter().map(String::as_str));
    head(&mut page, batch, runs, &looks);
    legend(&mut page, columns, names, &looks);
    let plots = plots::all(batch, runs);
    figures(&mut page, &plots);
    tables::results(&mut page, report);
    notes(&mut page, batch, runs);
    tables::settings(&mut page, batch, runs, names);
    end(&mut page, &batch.origin, &plots)?;
    out.write_all(page.as_bytes())
}

fn head(page: &mut String, batch: &Batch, runs: &[Run], looks: &[Look]) {
    begin(page, &subject(batch), looks);
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
fn legend(page: &mut String, columns: &[Column<'_>], names: &[String], looks: &[Look]) {
    let long = |(column, name): (&Column<'_>, &String)| {
        if name == column.label { name.clone() } else { format!("{name} {}", column.label) }
    };
    buttons(page, columns.iter().zip(names).map(long), looks);
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

#[cfg(test)]
mod tests {
    use super::*;

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
                origin: Default::default(),
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
    fn labels_cannot_break_the_page() {
        assert_eq!(escaped("<b>&\""), "&lt;b&gt;&amp;&quot;");
    }
}
