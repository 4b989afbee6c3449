//! Files of whitespace-separated columns, with errors that name file and line.

use std::path::Path;
use std::str::FromStr;

use super::Error;

/// A file, line by line.
#[derive(Debug)]
pub struct Lines<'a> {
    path: &'a Path,
    rest: std::iter::Enumerate<std::str::Lines<'a>>,
    last: usize,
}

/// A non-blank line.
#[derive(Debug)]
pub struct Line<'a> {
    path: &'a Path,
    /// Line number, counted from 1.
    pub number: usize,
    text: &'a str,
    /// Whitespace-separated columns.
    pub columns: Vec<&'a str>,
}

impl<'a> Lines<'a> {
    /// A reader of `text`; `path` is for messages.
    pub fn new(path: &'a Path, text: &'a str) -> Lines<'a> {
        Lines { path, rest: text.lines().enumerate(), last: 0 }
    }

    /// Reads an entire file, which no output of this process may replace.
    pub fn read(path: &Path) -> Result<String, Error> {
        irnic_units::files::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
    }

    /// The next non-blank line; if there is none, an error with what was `expected`.
    pub fn expect(&mut self, expected: &str) -> Result<Line<'a>, Error> {
        self.next().ok_or_else(|| Error::Line {
            path: self.path.to_owned(),
            line: self.last + 1,
            expected: expected.to_owned(),
            found: "the end of the file".to_owned(),
        })
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        for (at, text) in self.rest.by_ref() {
            self.last = at + 1;
            let columns: Vec<&str> = text.split_whitespace().collect();
            if !columns.is_empty() {
                return Some(Line { path: self.path, number: at + 1, text, columns });
            }
        }
        None
    }
}

impl Line<'_> {
    /// An error for this line: what was `expected` in place of `found`.
    pub fn wrong(&self, expected: impl Into<String>, found: &str) -> Error {
        let found = format!("`{}`", found.trim());
        Error::Line { path: self.path.to_owned(), line: self.number, expected: expected.into(), found }
    }

    /// An error for the line as a whole.
    pub fn wrong_line(&self, expected: impl Into<String>) -> Error {
        self.wrong(expected, self.text)
    }

    /// Parses one column, which must exist.
    pub fn column<T>(&self, at: usize, read: impl Fn(&str) -> Option<T>, expected: &str) -> Result<T, Error> {
        let text = self.columns[at];
        read(text).ok_or_else(|| self.wrong(expected, text))
    }

    /// Parses a number below `limit`.
    pub fn below<T: FromStr + PartialOrd>(&self, at: usize, limit: T, expected: &str) -> Result<T, Error> {
        self.column(at, |text| text.parse().ok().filter(|number| *number < limit), expected)
    }
}
