//! Numbers of cells on the terminal.

use super::compared::Paper;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_matter() {
        let printed: Vec<String> = [8.24, 0.0009, 0.269, 18.93, 312.4].map(number).into();
        assert_eq!(printed, ["8.240", "0.00090", "0.269", "18.9", "312"]);
    }
}
