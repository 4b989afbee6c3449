//! Settings files in TOML, with errors that name the line.

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

/// Parses a file's text; the error is the line, counted from 1, and a description.
pub fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, (usize, String)> {
    DeTable::parse(text).map_err(|error| {
        let why = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        (line(text, error.span().map_or(0, |span| span.start)), why)
    })
}

/// Returns the line of a byte offset in `text`, counted from 1.
pub fn line(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Returns a scalar value as an option or a variable would be written; `None` for lists, tables, times, and numbers
/// that are not decimal.
pub fn word(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(true) => "on".into(),
        DeValue::Boolean(false) => "off".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_on_a_line() {
        let text = "a\n\u{b5}\nc";
        for (offset, number) in [(0, 1), (1, 1), (2, 2), (4, 2), (5, 3), (6, 3), (99, 3)] {
            assert_eq!(line(text, offset), number, "{offset}");
        }
    }

    #[test]
    fn errors_are_a_line_and_one_line() {
        let (line, why) = parse("a = 1\nb = \n").unwrap_err();
        assert!(line == 2 && !why.is_empty() && !why.contains('\n'), "{line}: {why}");
    }

    #[test]
    fn single_values_are_words() {
        let table = parse("a = \"x y\"\nb = 12\nc = 0.5\nd = true\ne = false\nf = 0x10\ng = [1]\nh = {}\n").unwrap();
        let words: Vec<_> = table.get_ref().values().map(|value| word(value.get_ref())).collect();
        let expected = [Some("x y"), Some("12"), Some("0.5"), Some("on"), Some("off"), None, None, None];
        assert_eq!(words, expected.map(|word| word.map(str::to_owned)));
    }
}
