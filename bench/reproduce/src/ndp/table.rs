//! Cells on the terminal.

use super::cells::Result;
use super::scenario::Time;
use crate::claims::{Answer, Tally};
use crate::table::number;

/// Prints all cells, and which of them are within their bounds.
pub fn print(results: &[Result], time: Time, seeds: &[u64]) {
    let ms = |ns: u64| ns as f64 / 1e6;
    println!(
        "Rates of {} to {} ms; seeds {seeds:?}. Gbit/s of payload, %, ms; extra in µs.",
        ms(time.from),
        ms(time.until)
    );
    let (mut table, mut row) = ("", "");
    for result in results {
        let (this_row, metric) = result.id.rsplit_once('/').unwrap_or((&result.id, ""));
        let this_table = this_row.split('/').next().unwrap_or_default();
        if this_table != table {
            println!("\n{this_table}");
            println!(
                "  {:30} {:18} {:>8} {:>8} {:>14} {:>9} {:>8} {:>6}",
                "row", "metric", "paper", "authors", "accepted", "ours", "± 95 %", ""
            );
            (table, row) = (this_table, "");
        }
        let name = if this_row == row { "" } else { this_row.split_once('/').map_or(this_row, |(_, rest)| rest) };
        row = this_row;
        let verdict = result.answer.map_or("", Answer::word);
        let confidence = result.confidence.map_or_else(|| "-".to_owned(), number);
        println!(
            "  {name:30} {metric:18} {:>8} {:>8} {:>14} {:>9} {confidence:>8} {verdict:>6}",
            or_dash(result.said.paper),
            or_dash(result.said.authors),
            result.said.accept.map_or("-".to_owned(), bounds),
            or_dash(result.ours),
        );
    }
    println!("\nwhat the paper says: {}", Tally::of(results).sentence());
    for result in results.iter().filter(|r| r.answer == Some(Answer::Fails)) {
        let accept = result.said.accept.map_or_else(String::new, bounds);
        println!("  {}: {} instead of {accept}", result.id, or_dash(result.ours));
    }
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), short)
}

/// Formats whole numbers without decimals.
fn short(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e6 { format!("{value:.0}") } else { number(value) }
}

fn bounds([least, most]: [f64; 2]) -> String {
    match (least.is_infinite(), most.is_infinite()) {
        (true, _) => format!("<= {}", short(most)),
        (_, true) => format!(">= {}", short(least)),
        _ if least == most => short(least),
        _ => format!("{} to {}", short(least), short(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_written_as_one_says_them() {
        let inf = f64::INFINITY;
        let written = [[9.0, inf], [-inf, 0.1], [0.0, 0.0], [3.3, 5.5]].map(bounds);
        assert_eq!(written, [">= 9", "<= 0.100", "0", "3.300 to 5.500"]);
    }
}
