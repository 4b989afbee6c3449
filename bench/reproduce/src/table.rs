//! Formatting of cells on the terminal.

use crate::claims::{Claimed, Source, Tally};
use crate::compared::{Compared, Paper};

/// Formats numbers like the paper: with three or four digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// Formats the value of a paper.
pub fn paper(paper: Paper) -> String {
    match paper {
        Paper::Number(n) => number(n),
        Paper::Range(bounds) => range(bounds),
        Paper::Silent => "-".to_owned(),
    }
}

/// Formats a range.
pub fn range([least, most]: [f64; 2]) -> String {
    match [least, most] {
        [least, most] if least == most => digits(least).to_string(),
        [least, most] if most.is_infinite() => format!("> {}", digits(least)),
        [0.0, most] => format!("< {}", digits(most)),
        [least, most] => format!("{} to {}", digits(least), digits(most)),
    }
}

/// Rounds a bound to four digits.
fn digits(bound: f64) -> f64 {
    let scale = 10f64.powi(4 - bound.abs().max(1e-12).log10().ceil() as i32);
    (bound * scale).round() / scale
}

/// Formats our value.
pub fn ours(result: &Compared) -> String {
    match result.ours {
        Some(small) if small > 0.0 && small < 1e-4 => format!("{small:.2e}"),
        Some(value) => number(value),
        None => "-".to_owned(),
    }
}

/// Formats half of the confidence interval, if there is one.
pub fn confidence(result: &Compared) -> String {
    result.confidence.map_or_else(|| "-".to_owned(), number)
}

/// Formats the sentence of a claim, and whose range it is held against.
fn quoted(claimed: &Claimed) -> String {
    let place = claimed.place.as_deref().map_or(String::new(), |place| format!(" ({place})"));
    let ours = if claimed.source == Source::Ours { " [range: ours]" } else { "" };
    format!("{}{place}{ours}", claimed.text)
}

/// Prints a description of the cells, and [`cells_and_claims`]. `quick`: whether runs are shortened; `units`: a
/// sentence.
pub fn all(results: &[Compared], seeds: &[u64], quick: bool, units: &str) {
    let quickly = if quick { " Runs are shortened." } else { "" };
    println!("Seeds {seeds:?}.{quickly} {units}");
    cells_and_claims(results);
}

/// Prints cells, figure by figure, and which claims of the paper hold.
pub fn cells_and_claims(results: &[Compared]) {
    let mut figure = "";
    for result in results.iter().filter(|r| r.claimed.is_none()) {
        let (this, name) = result.id.split_once('/').unwrap_or((&result.id, ""));
        if this != figure {
            println!("\n{this}");
            println!("  {:36} {:>10} {:>10} {:>9} {:>7}", "cell", "paper", "ours", "± 95 %", "ratio");
            figure = this;
        }
        let (theirs, ours, half) = (paper(result.paper), ours(result), confidence(result));
        let ratio = result.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        println!("  {name:36} {theirs:>10} {ours:>10} {half:>9} {ratio:>7}");
    }
    print_claims(results);
}

/// Prints the claims of a paper, if there are any, and which of them hold.
pub fn print_claims(results: &[Compared]) {
    let claims: Vec<&Compared> = results.iter().filter(|r| r.claimed.is_some()).collect();
    if claims.is_empty() {
        return;
    }
    let width = claims.iter().map(|claim| claim.id.len()).max().unwrap_or(0);
    println!("\nwhat the text says, and what is accepted as that");
    for claim in &claims {
        let answer = claim.answer.map_or("-", |answer| answer.word());
        let (theirs, ours, half) = (paper(claim.paper), ours(claim), confidence(claim));
        let text = claim.claimed.as_ref().map_or(String::new(), quoted);
        println!("  {:width$} {theirs:>12} {ours:>9} {half:>8} {answer:>6}  {text}", claim.id);
    }
    println!("what the text says: {}", Tally::of(results).sentence());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_rounded() {
        let ranges =
            [[0.0, 0.0], [1.0 + f64::EPSILON, f64::INFINITY], [0.0, 1.0 / 3.0], [0.455, 17.1234], [1.325e-7, 0.5]];
        let printed: Vec<String> = ranges.map(|range| paper(Paper::Range(range))).into();
        assert_eq!(printed, ["0", "> 1", "< 0.3333", "0.455 to 17.12", "0.0000001325 to 0.5"]);
    }

    #[test]
    fn numbers_have_as_many_digits_as_matter() {
        let printed: Vec<String> = [8.24, 0.0009, 0.269, 18.93, 312.4].map(number).into();
        assert_eq!(printed, ["8.240", "0.00090", "0.269", "18.9", "312"]);
    }
}
