//! Cells on the terminal.

use super::scenario::Cc;
use crate::claims::{Distances, Judged as _, Tally};
use crate::compared::{Compared, Paper};
use crate::table::{number, paper};

/// Splits an id into its row and its name there.
fn row_of(id: &str) -> (&str, &str) {
    id.rsplit_once('/').unwrap_or((id, ""))
}

/// Prints all cells and their deviation from the paper's.
pub fn print(results: &[Compared], arrivals: u64, seeds: &[u64]) {
    println!("Flows start during {} ms (at 40 Gbit/s); seeds {seeds:?}; FCTs in seconds.", arrivals as f64 / 1e6);
    let mut table = "";
    let mut row = "";
    for result in results {
        let (this_row, metric) = row_of(&result.id);
        let this_table = this_row.split('/').next().unwrap_or_default();
        if this_table != table {
            println!("\n{this_table}");
            println!("  {:52} {:20} {:>12} {:>12} {:>9} {:>7}", "row", "metric", "paper", "ours", "± 95 %", "ratio");
            (table, row) = (this_table, "");
        }
        let name = if this_row == row { "" } else { this_row.split_once('/').map_or(this_row, |(_, rest)| rest) };
        row = this_row;
        let ours = result.ours.map_or("-".to_owned(), number);
        let verdict = match (result.ratio, result.answer) {
            (Some(ratio), _) => format!("{ratio:.2}"),
            (_, Some(answer)) => answer.word().to_owned(),
            _ => "-".to_owned(),
        };
        let confidence = result.confidence.map_or_else(|| "-".to_owned(), number);
        println!("  {name:52} {metric:20} {:>12} {ours:>12} {confidence:>9} {verdict:>7}", paper(result.paper));
    }
    println!();
    summarize(results);
}

/// Checks the chapter's conclusions over all cells.
fn summarize(results: &[Compared]) {
    let questions = [("irn-over-roce-pfc", "IRN beats RoCE with PFC"), ("irn-over-irn-pfc", "PFC does not help IRN")];
    for (cc, (name, what)) in Cc::names().flat_map(|cc| questions.map(|question| (cc, question))) {
        let of_row = |r: &&Compared| {
            let parts: Vec<&str> = r.id.split('/').collect();
            parts.get(2) == Some(&cc) && parts.get(3) == Some(&name) && matches!(r.paper, Paper::Number(_))
        };
        let ours: Vec<&Compared> = results.iter().filter(of_row).filter(|r| r.ours.is_some()).collect();
        if ours.is_empty() {
            continue;
        }
        // "less than 1.1, i.e. close enough to 1" (§4.3.4).
        let limit = if name == "irn-over-irn-pfc" { 1.1 } else { 1.0 };
        let below = ours.iter().filter(|r| r.ours.is_some_and(|o| o < limit)).count();
        let mut distances: Vec<f64> = ours.iter().filter_map(|r| Some((r.ratio? - 1.0).abs())).collect();
        distances.sort_by(f64::total_cmp);
        let far = distances.iter().filter(|d| **d > 0.5).count();
        let count = |fitted: Option<bool>| {
            let some = ours.iter().filter(|r| fitted.is_none_or(|fitted| r.fitted.is_some() == fitted));
            Distances::of(some.filter_map(|r| r.number()))
        };
        let [all, others] = [None, Some(false)].map(count);
        println!(
            "{what} ({cc}): {below} of {} cells below {limit}; median distance from the paper's {:.0} %, {far} beyond 50 %",
            ours.len(),
            100.0 * distances[distances.len() / 2],
        );
        println!(
            "  {} distinct ratios, {} within 25 %; without what was fitted {} of {}",
            all.all, all.within, others.within, others.all
        );
    }
    println!("what the text says of the figures: {}", Tally::of(results).sentence());
}
