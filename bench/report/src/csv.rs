//! CSV files (RFC 4180): comments that begin with `#`, a header, then a line for each record.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::origin::Origin;

/// Returns a text as a field: quoted if it contains a comma, a quote, a line break, or `#`, with which comments begin.
pub fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r', '#']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns a number as a field, in the shortest form that reads back as the same number; empty if it is not finite.
pub fn number(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}

/// Writes a line.
pub fn line(to: &mut impl Write, fields: impl IntoIterator<Item: AsRef<str>>) -> io::Result<()> {
    for (n, text) in fields.into_iter().enumerate() {
        let comma = if n > 0 { "," } else { "" };
        write!(to, "{comma}{}", field(text.as_ref()))?;
    }
    writeln!(to)
}

/// Writes JSON objects, after a comment that says how to get them again: a column for each key that any of them has,
/// those of `first` before the others. The members of an object `k` are `k_member`, the ends of a pair of numbers
/// `k_low` and `k_high`; `null` is empty, other lists are left out.
pub fn objects(to: &mut impl Write, origin: &Origin, first: &[&str], objects: &[Map<String, Value>]) -> io::Result<()> {
    to.write_all(origin.comment().as_bytes())?;
    let rows: Vec<Vec<(String, String)>> = objects.iter().map(flat).collect();
    let mut columns: Vec<&str> = Vec::new();
    for (column, _) in rows.iter().flatten() {
        if !columns.contains(&column.as_str()) {
            columns.push(column);
        }
    }
    columns.sort_by_key(|column| first.iter().position(|known| known == column).unwrap_or(first.len()));
    line(to, &columns)?;
    for row in &rows {
        let text = |column: &&str| row.iter().find(|(key, _)| key == column).map_or("", |(_, text)| text);
        line(to, columns.iter().map(text))?;
    }
    Ok(())
}

fn flat(object: &Map<String, Value>) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (key, value) in object {
        match value {
            Value::Null => fields.push((key.clone(), String::new())),
            Value::Bool(is) => fields.push((key.clone(), is.to_string())),
            Value::Number(n) => fields.push((key.clone(), n.to_string())),
            Value::String(text) => fields.push((key.clone(), text.clone())),
            Value::Array(ends) => {
                if let [Value::Number(low), Value::Number(high)] = &ends[..] {
                    fields.push((format!("{key}_low"), low.to_string()));
                    fields.push((format!("{key}_high"), high.to_string()));
                }
            }
            Value::Object(members) => {
                fields.extend(flat(members).into_iter().map(|(member, text)| (format!("{key}_{member}"), text)));
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_quoted_where_they_must_be() {
        for (text, expected) in
            [("a b", "a b"), ("a,b", "\"a,b\""), ("#1", "\"#1\""), ("say \"a\"", "\"say \"\"a\"\"\""), ("", "")]
        {
            assert_eq!(field(text), expected);
        }
    }

    #[test]
    fn numbers_that_there_are_not_are_empty() {
        assert_eq!([0.25, 3.0, f64::NAN, f64::INFINITY].map(number), ["0.25", "3", "", ""]);
    }

    #[test]
    fn objects_with_different_keys_share_a_header() {
        let all = [
            json!({ "id": "a,b", "paper": 1.5, "claim": { "text": "x", "place": "§2" }, "ours": null }),
            json!({ "id": "c", "paper": [0, 2.5], "ours": 7, "holds": true, "list": [1, 2, 3] }),
        ];
        let all: Vec<Map<String, Value>> =
            all.into_iter().map(|o| o.as_object().cloned().expect("an object")).collect();
        let mut to = Vec::new();
        let origin = Origin { command: "irnic x".into(), irnic: "1".into() };
        objects(&mut to, &origin, &["id", "paper"], &all).expect("written");
        let text = String::from_utf8(to).expect("UTF-8");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "# again: irnic x (irnic 1)",
                "id,paper,claim_place,claim_text,ours,holds,paper_low,paper_high",
                "\"a,b\",1.5,§2,x,,,,",
                "c,,,,7,true,0,2.5"
            ]
        );
    }
}
