//! Cells on the terminal.

use super::incast::Time;
use crate::compared::Compared;
use crate::table::{confidence, ours, paper, print_claims};

/// Prints all cells, and which claims of the paper hold.
pub fn print(results: &[Compared], time: Time, seeds: &[u64]) {
    let ms = |ns: u64| ns as f64 / 1e6;
    println!(
        "Measured for {} ms after {} ms; seeds {seeds:?}. Gbit/s, µs; the time to reach a rate in ms.",
        ms(time.measured),
        ms(time.warm_up)
    );
    let (mut table, mut row) = ("", "");
    for result in results.iter().filter(|r| r.claimed.is_none()) {
        let (this_row, metric) = result.id.rsplit_once('/').unwrap_or((&result.id, ""));
        let this_table = this_row.split('/').next().unwrap_or_default();
        if this_table != table {
            println!("\n{this_table}");
            println!("  {:24} {:12} {:>10} {:>10} {:>9} {:>7}", "row", "metric", "paper", "ours", "± 95 %", "ratio");
            (table, row) = (this_table, "");
        }
        let name = if this_row == row { "" } else { this_row.split_once('/').map_or(this_row, |(_, rest)| rest) };
        row = this_row;
        let verdict = match (result.ratio, result.answer) {
            (Some(ratio), _) => format!("{ratio:.2}"),
            (_, Some(answer)) => answer.word().to_owned(),
            _ => String::new(),
        };
        let theirs = paper(result.paper);
        println!("  {name:24} {metric:12} {theirs:>10} {:>10} {:>9} {verdict:>7}", ours(result), confidence(result));
    }
    print_claims(results);
}
