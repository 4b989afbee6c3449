//! Numbers of cells on the terminal.

use super::compared::{Compared, Paper};

/// Numbers as the paper prints them: three or four digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// What a paper has.
pub fn paper(paper: Paper) -> String {
    match paper {
        Paper::Number(n) => number(n),
        Paper::Range([least, most]) if most.is_infinite() => format!("> {least}"),
        Paper::Range([0.0, most]) => format!("< {most}"),
        Paper::Range([least, most]) => format!("{least} to {most}"),
        Paper::Silent => "-".to_owned(),
    }
}

/// Prints cells, figure by figure, and which of the paper's words hold.
pub fn cells_and_claims(results: &[Compared], seeds: &[u64]) {
    let (said, cells): (Vec<&Compared>, Vec<&Compared>) = results.iter().partition(|r| r.text.is_some());
    let mut figure = "";
    for result in cells {
        let (this, name) = result.id.split_once('/').unwrap_or((&result.id, ""));
        if this != figure {
            println!("\n{this}");
            println!("  {:36} {:>10} {:>10} {:>9} {:>7}", "cell", "paper", "ours", "± 95 %", "ratio");
            figure = this;
        }
        let ratio = result.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        println!("  {name:36} {:>10} {} {ratio:>7}", paper(result.paper), ours(result, seeds));
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
        println!("  {:46} {:>14} {} {holds:>6}  {text}", claim.id, paper(claim.paper), ours(claim, seeds));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_matter() {
        let printed: Vec<String> = [8.24, 0.0009, 0.269, 18.93, 312.4].map(number).into();
        assert_eq!(printed, ["8.240", "0.00090", "0.269", "18.9", "312"]);
    }
}
