//! Cells on the terminal.

use irnic_units::Nanoseconds;

use super::scenario::Time;
use crate::compared::Compared;
use crate::table::{confidence, ours, paper, print_claims};

/// Prints all cells, and which claims of the paper hold.
pub fn print(results: &[Compared], time: Time, seeds: &[u64]) {
    let (warm_up, measured) = (Nanoseconds(time.warm_up), Nanoseconds(time.measured));
    println!(
        "{measured} after {warm_up}; seeds {seeds:?}. Rates in Gbit/s with headers (table3.3: Mbit/s), notices in Mbit/s,"
    );
    println!("queues and buffers in KB, settle in ms, completion times in µs, used in %, pauses in XOFF frames a ms;");
    println!("least and most over the mean share.");
    let mut figure = "";
    for result in results.iter().filter(|r| r.claimed.is_none()) {
        let (this, name) = result.id.split_once('/').unwrap_or((&result.id, ""));
        if this != figure {
            println!("\n{this}");
            println!("  {:38} {:>10} {:>10} {:>9} {:>7}", "cell", "paper", "ours", "± 95 %", "ratio");
            figure = this;
        }
        let ratio = result.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        let (theirs, ours, half) = (paper(result.paper), ours(result), confidence(result));
        println!("  {name:38} {theirs:>10} {ours:>10} {half:>9} {ratio:>7}");
    }
    print_claims(results);
}
