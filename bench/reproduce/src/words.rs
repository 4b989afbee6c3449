//! Words of a text as the range that a value has to lie in: `about 2 times less`, `at least 10 % more`, `the same`.
//!
//! A number stands for itself ± half a unit of its last printed digit. [`QUALIFIERS`] and [`PHRASES`] are all words
//! there are; docs/reproduction.md lists them for readers, and a test compares.

use std::fmt::{self, Display, Formatter};

use serde::Deserialize;

/// Words before a number.
pub const QUALIFIERS: [&str; 8] =
    ["about", "almost", "up to", "at least", "more than", "at most", "less than", "a few"];

/// Words without a number, as ratios. What is open at 1 begins next to it.
pub const PHRASES: [(&str, [f64; 2]); 18] = [
    ("more", [MORE, f64::INFINITY]),
    ("less", [0.0, LESS]),
    ("much more", [1.5, f64::INFINITY]),
    ("much less", [0.0, 1.0 / 1.5]),
    ("slightly more", [MORE, 1.2]),
    ("slightly less", [0.8, LESS]),
    ("only slightly more", [0.0, 1.2]),
    ("comparable or less", [0.0, 1.1]),
    ("the same", [0.95, 1.05]),
    ("comparable", [0.9, 1.1]),
    ("not more", [0.0, 1.0]),
    ("not less", [1.0, f64::INFINITY]),
    ("most", [0.5 + f64::EPSILON, 1.0]),
    ("none", [0.0, 0.0]),
    ("some", [f64::MIN_POSITIVE, f64::INFINITY]),
    ("a weak correlation", [-0.5, 0.5]),
    ("an order of magnitude more", [3.162, 31.62]),
    ("an order of magnitude less", [0.03162, 0.3162]),
];

const MORE: f64 = 1.0 + f64::EPSILON;
const LESS: f64 = 1.0 - f64::EPSILON;
/// "About" a number is within this share of it, "almost" within half of this below it.
const ABOUT: f64 = 0.2;
/// "A few".
const FEW: [f64; 2] = [2.0, 5.0];

/// A range, and the words that it comes from, if it does.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Range {
    /// Smallest and largest value.
    pub bounds: [f64; 2],
    /// Words of the text.
    pub words: Option<String>,
}

/// A range in a file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    /// By the words of the text.
    Words(String),
    /// By numbers, which are ours.
    Bounds([f64; 2]),
}

impl TryFrom<Written> for Range {
    type Error = Unknown;

    fn try_from(written: Written) -> Result<Range, Unknown> {
        match written {
            Written::Bounds([least, most]) if least <= most => Ok(Range { bounds: [least, most], words: None }),
            Written::Bounds(bounds) => Err(Unknown(format!("{bounds:?}"))),
            Written::Words(words) => Ok(Range { bounds: bounds(&words)?, words: Some(words) }),
        }
    }
}

/// Words that are in no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(String);

impl Display for Unknown {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected a range such as `about 2 times less`, or two numbers", self.0)
    }
}

impl std::error::Error for Unknown {}

/// Returns the range that words stand for.
pub fn bounds(words: &str) -> Result<[f64; 2], Unknown> {
    if let Some((_, range)) = PHRASES.iter().find(|(phrase, _)| *phrase == words) {
        return Ok(*range);
    }
    amount(words).filter(|[least, most]| least <= most).ok_or_else(|| Unknown(words.to_owned()))
}

/// Qualifiers, numbers, a unit and a direction.
fn amount(words: &str) -> Option<[f64; 2]> {
    let mut rest = words;
    let mut qualifiers = Vec::new();
    while let Some(qualifier) = QUALIFIERS.iter().find(|q| rest.starts_with(**q)) {
        qualifiers.push(*qualifier);
        rest = rest[qualifier.len()..].trim_start();
    }
    let (rest, direction) = match rest.strip_suffix(" more").or(rest.strip_suffix(" less")) {
        Some(before) => (before, Some(rest.ends_with("more"))),
        None => (rest, None),
    };
    let (numbers, percent) = rest.strip_suffix('%').map_or((rest, false), |numbers| (numbers, true));
    let (numbers, times) = numbers.strip_suffix(" times").map_or((numbers, false), |numbers| (numbers, true));
    let mut range = match numbers.trim() {
        "" if qualifiers.last() == Some(&"a few") => FEW,
        numbers => match numbers.split_once(" to ") {
            Some((least, most)) => [printed(least)?[0], printed(most)?[1]],
            None => share(numbers)?,
        },
    };
    if direction.is_some() && !times && !percent {
        return None;
    }
    for qualifier in qualifiers.iter().rev() {
        range = qualified(qualifier, range, direction.is_some().then_some(if times { 1.0 } else { 0.0 }));
    }
    Some(match (direction, percent) {
        (None, false) => range,
        (None, true) => range.map(|n| n / 100.0),
        (Some(true), true) => range.map(|n| 1.0 + n / 100.0),
        (Some(false), true) => [1.0 - (range[1] / 100.0).min(1.0), 1.0 - range[0] / 100.0],
        (Some(true), false) => range,
        (Some(false), false) => [1.0 / range[1], 1.0 / range[0]],
    })
}

/// A printed number, or one of another: `0.078 of 0.126`.
fn share(numbers: &str) -> Option<[f64; 2]> {
    let Some((part, whole)) = numbers.split_once(" of ") else { return printed(numbers) };
    let (part, whole) = (printed(part)?, printed(whole)?);
    (whole[0] > 0.0).then(|| [part[0] / whole[1], part[1] / whole[0]])
}

/// A printed number ± half a unit of its last digit.
fn printed(number: &str) -> Option<[f64; 2]> {
    let number = number.trim();
    let value: f64 = number.parse().ok()?;
    let (mantissa, exponent) = match number.split_once('e') {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
    let half = 0.5 * 10f64.powi(exponent - decimals);
    Some([value - half, value + half])
}

/// Applies a word to a range. `none`: the amount that would be no effect, if it is an effect.
fn qualified(qualifier: &str, [least, most]: [f64; 2], none: Option<f64>) -> [f64; 2] {
    let value = f64::midpoint(least, most);
    match qualifier {
        "about" => [least.min(value * (1.0 - ABOUT)), most.max(value * (1.0 + ABOUT))],
        "almost" => [least.min(value * (1.0 - ABOUT / 2.0)), most],
        "at least" => [least, f64::INFINITY],
        "more than" => [value, f64::INFINITY],
        "up to" | "at most" => [none.unwrap_or(0.0), most],
        "less than" => [none.unwrap_or(0.0), value],
        _ => [least, most],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(words: &str, range: [f64; 2]) {
        let ours = bounds(words).unwrap_or_else(|e| panic!("{e}"));
        let same = |a: f64, b: f64| a == b || (a - b).abs() < 1e-9;
        assert!(same(ours[0], range[0]) && same(ours[1], range[1]), "{words}: {ours:?} instead of {range:?}");
    }

    #[test]
    fn numbers_are_as_precise_as_they_are_printed() {
        near("96", [95.5, 96.5]);
        near("1.25", [1.245, 1.255]);
        near("1.33e-7", [1.325e-7, 1.335e-7]);
        near("0.21 %", [0.00205, 0.00215]);
        near("13 to 54 % less", [1.0 - 0.545, 1.0 - 0.125]);
        near("2 times less", [1.0 / 2.5, 1.0 / 1.5]);
        near("2 times more", [1.5, 2.5]);
        near("30 % more", [1.295, 1.305]);
        near("1.84 of 13.06", [1.835 / 13.065, 1.845 / 13.055]);
    }

    #[test]
    fn words_widen_and_open_ranges() {
        near("about 2 times less", [1.0 / 2.5, 1.0 / 1.5]);
        near("about 50 % more", [1.4, 1.6]);
        near("almost 13 times more", [11.7, 13.5]);
        near("up to about 10 times more", [1.0, 12.0]);
        near("up to 29.6 % less", [1.0 - 0.2965, 1.0]);
        near("less than 1 % less", [0.99, 1.0]);
        near("at least about 10 % more", [1.08, f64::INFINITY]);
        near("at most 1.025", [0.0, 1.0255]);
        near("more than 10 times more", [10.0, f64::INFINITY]);
        near("a few %", [0.02, 0.05]);
        near("the same", [0.95, 1.05]);
    }

    #[test]
    fn what_is_open_at_one_leaves_one_out() {
        for (words, has) in [("more", false), ("less", false), ("not more", true), ("not less", true)] {
            let [least, most] = bounds(words).unwrap();
            assert_eq!((least..=most).contains(&1.0), has, "{words}");
        }
    }

    /// The table of docs/reproduction.md: words and the range that they stand for.
    #[test]
    fn the_page_lists_all_words_with_their_ranges() {
        let page = include_str!("../../../docs/reproduction.md");
        let table = page.split("| words | range |").nth(1).expect("the table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let mut listed = Vec::new();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [words, range] = cells[..] else { panic!("{row}") };
            for words in words.split(", ") {
                let words = words.trim_matches('`');
                let bounds = bounds(words).unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(crate::table::range(bounds), range, "{words}");
                listed.push(words);
            }
        }
        for (phrase, _) in PHRASES {
            assert!(listed.contains(&phrase), "{phrase}");
        }
        for qualifier in QUALIFIERS {
            assert!(listed.iter().any(|words| words.starts_with(qualifier)), "{qualifier}");
        }
    }

    #[test]
    fn unknown_words_are_refused() {
        for words in ["", "roughly 3", "3 fewer", "about", "to 4", "4 to", "5 to 3", "10 more", "3 of 0"] {
            assert_eq!(bounds(words), Err(Unknown(words.to_owned())));
        }
        let written = |text: &str| toml::from_str::<std::collections::BTreeMap<String, Range>>(text);
        assert!(written("range = [2, 1]").is_err() && written("range = 'often'").is_err());
        assert_eq!(written("range = [1, inf]").unwrap()["range"].words, None);
        assert_eq!(written("range = 'less'").unwrap()["range"].words.as_deref(), Some("less"));
    }
}
