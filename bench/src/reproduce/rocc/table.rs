//! Cells on the terminal.

use irnic_units::Nanoseconds;

use super::measure::Time;
use crate::reproduce::compared::Compared;
use crate::reproduce::table::{number, paper};

/// Prints all cells, and which of the paper's words hold.
pub fn print(results: &[Compared], time: Time, seeds: &[u64]) {
    let (warm_up, measured) = (Nanoseconds(time.warm_up), Nanoseconds(time.measured));
    println!(
        "{measured} after {warm_up}; seeds {seeds:?}. Rates in Gbit/s with headers, notices in Mbit/s, queues in KB,"
    );
    println!("settle in ms; least and most over the mean share.");
    let (said, cells): (Vec<&Compared>, Vec<&Compared>) = results.iter().partition(|r| r.text.is_some());
    let mut figure = "";
    for result in cells {
        let (this, name) = result.id.split_once('/').unwrap_or((&result.id, ""));
        if this != figure {
            println!("\n{this}");
            println!("  {:28} {:>10} {:>10} {:>9} {:>7}", "cell", "paper", "ours", "± 95 %", "ratio");
            figure = this;
        }
        let ratio = result.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        println!("  {name:28} {:>10} {} {ratio:>7}", paper(result.paper), ours(result, seeds));
    }
    if said.is_empty() {
        return;
    }
    println!("\nwhat the text says, and what is accepted as that");
    for claim in &said {
        let holds = match claim.holds {
            Some(true) => "holds",
            Some(false) => "no",
            None => "-",
        };
        let text = claim.text.as_deref().unwrap_or_default();
        println!("  {:34} {:>14} {} {holds:>6}  {text}", claim.id, paper(claim.paper), ours(claim, seeds));
    }
    let held = said.iter().filter(|c| c.holds == Some(true)).count();
    println!("what the text says: {held} of {} hold", said.len());
}

/// Mean, and half of the confidence interval.
fn ours(result: &Compared, seeds: &[u64]) -> String {
    let mean = result.ours.map_or("-".to_owned(), number);
    let half = if seeds.len() > 1 { number(result.confidence) } else { "-".to_owned() };
    format!("{mean:>10} {half:>9}")
}
