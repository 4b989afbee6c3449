//! Cells on the terminal.

use crate::reproduce::compared::Compared;
use crate::reproduce::table::{number, paper};

/// Prints all cells, and which of the paper's words hold.
pub fn print(results: &[Compared], flows: u64, seeds: &[u64]) {
    println!("{flows} background flows; seeds {seeds:?}. Times in ms, queues in KB, timed_out and important in %.");
    let mut table = "";
    for result in results.iter().filter(|r| r.text.is_none()) {
        let (row, metric) = result.id.rsplit_once('/').unwrap_or((&result.id, ""));
        let (this_table, name) = row.split_once('/').unwrap_or((row, ""));
        if this_table != table {
            println!("\n{this_table}");
            println!("  {:28} {:14} {:>10} {:>10} {:>9} {:>7}", "row", "metric", "paper", "ours", "± 95 %", "ratio");
            table = this_table;
        }
        let ratio = result.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let (theirs, ours, half) = (paper(result.paper), ours(result), confidence(result, seeds));
        println!("  {name:28} {metric:14} {theirs:>10} {ours:>10} {half:>9} {ratio:>7}");
    }
    let claims: Vec<&Compared> = results.iter().filter(|r| r.text.is_some()).collect();
    if claims.is_empty() {
        return;
    }
    println!("\nwhat the text says, and what is accepted as that");
    for claim in &claims {
        let holds = match claim.holds {
            Some(true) => "holds",
            Some(false) => "no",
            None => "-",
        };
        println!(
            "  {:58} {:>12} {:>9} {:>8} {holds:>6}  {}",
            claim.id,
            paper(claim.paper),
            ours(claim),
            confidence(claim, seeds),
            claim.text.as_deref().unwrap_or_default()
        );
    }
    let held = claims.iter().filter(|c| c.holds == Some(true)).count();
    println!("what the text says: {held} of {} hold", claims.len());
}

fn ours(result: &Compared) -> String {
    match result.ours {
        Some(small) if small > 0.0 && small < 1e-4 => format!("{small:.2e}"),
        Some(value) => number(value),
        None => "-".to_owned(),
    }
}

fn confidence(result: &Compared, seeds: &[u64]) -> String {
    if seeds.len() > 1 { number(result.confidence) } else { "-".to_owned() }
}
