//! Formatting of cells on the terminal.

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
        Paper::Range([least, most]) if most.is_infinite() => format!("> {least}"),
        Paper::Range([0.0, most]) => format!("< {most}"),
        Paper::Range([least, most]) => format!("{least} to {most}"),
        Paper::Silent => "-".to_owned(),
    }
}

/// Formats our value.
pub fn ours(result: &Compared) -> String {
    match result.ours {
        Some(small) if small > 0.0 && small < 1e-4 => format!("{small:.2e}"),
        Some(value) => number(value),
        None => "-".to_owned(),
    }
}

/// Formats half of the confidence interval, if there are several seeds.
pub fn confidence(result: &Compared, seeds: &[u64]) -> String {
    if seeds.len() > 1 { number(result.confidence) } else { "-".to_owned() }
}

/// Prints a description of the cells, and [`cells_and_claims`]. `quick`: whether runs are shortened; `units`: a
/// sentence.
pub fn all(results: &[Compared], seeds: &[u64], quick: bool, units: &str) {
    let quickly = if quick { " Runs are shortened." } else { "" };
    println!("Seeds {seeds:?}.{quickly} {units}");
    cells_and_claims(results, seeds);
}

/// Prints cells, figure by figure, and which claims of the paper hold.
pub fn cells_and_claims(results: &[Compared], seeds: &[u64]) {
    let mut figure = "";
    for result in results.iter().filter(|r| r.text.is_none()) {
        let (this, name) = result.id.split_once('/').unwrap_or((&result.id, ""));
        if this != figure {
            println!("\n{this}");
            println!("  {:36} {:>10} {:>10} {:>9} {:>7}", "cell", "paper", "ours", "± 95 %", "ratio");
            figure = this;
        }
        let (theirs, ours, half) = (paper(result.paper), ours(result), confidence(result, seeds));
        let ratio = result.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        println!("  {name:36} {theirs:>10} {ours:>10} {half:>9} {ratio:>7}");
    }
    print_claims(results, seeds);
}

/// Prints the claims of a paper, if there are any, and which of them hold.
pub fn print_claims(results: &[Compared], seeds: &[u64]) {
    let claims: Vec<&Compared> = results.iter().filter(|r| r.text.is_some()).collect();
    if claims.is_empty() {
        return;
    }
    let width = claims.iter().map(|claim| claim.id.len()).max().unwrap_or(0);
    println!("\nwhat the text says, and what is accepted as that");
    for claim in &claims {
        let holds = match claim.holds {
            Some(true) => "holds",
            Some(false) => "no",
            None => "-",
        };
        let (theirs, ours, half) = (paper(claim.paper), ours(claim), confidence(claim, seeds));
        let text = claim.text.as_deref().unwrap_or_default();
        println!("  {:width$} {theirs:>12} {ours:>9} {half:>8} {holds:>6}  {text}", claim.id);
    }
    let held = claims.iter().filter(|c| c.holds == Some(true)).count();
    println!("what the text says: {held} of {} hold", claims.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_matter() {
        let printed: Vec<String> = [8.24, 0.0009, 0.269, 18.93, 312.4].map(number).into();
        assert_eq!(printed, ["8.240", "0.00090", "0.269", "18.9", "312"]);
    }
}
