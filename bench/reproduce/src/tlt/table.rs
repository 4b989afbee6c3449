//! Cells on the terminal.

use crate::compared::Compared;
use crate::table::{confidence, ours, paper, print_claims};

/// Prints all cells, and which claims of the paper hold.
pub fn print(results: &[Compared], flows: u64, seeds: &[u64]) {
    println!("{flows} background flows; seeds {seeds:?}. Times in ms, queues in KB, timed_out and important in %.");
    let mut table = "";
    for result in results.iter().filter(|r| r.claimed.is_none()) {
        let (row, metric) = result.id.rsplit_once('/').unwrap_or((&result.id, ""));
        let (this_table, name) = row.split_once('/').unwrap_or((row, ""));
        if this_table != table {
            println!("\n{this_table}");
            println!("  {:28} {:14} {:>10} {:>10} {:>9} {:>7}", "row", "metric", "paper", "ours", "± 95 %", "ratio");
            table = this_table;
        }
        let ratio = result.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let (theirs, ours, half) = (paper(result.paper), ours(result), confidence(result));
        println!("  {name:28} {metric:14} {theirs:>10} {ours:>10} {half:>9} {ratio:>7}");
    }
    print_claims(results);
}
