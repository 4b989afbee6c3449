//! The words of a description of impairments, and errors that point at one.

use std::borrow::Cow;
use std::fmt;

/// A description of impairments that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// The offending token, empty if the text ended too early.
    pub token: String,
    /// Column of the token in characters, from 1.
    pub column: usize,
    /// What was expected instead.
    pub expected: Cow<'static, str>,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Long tokens are cut, and control characters escaped: the message is one line.
        let shown: String = self.token.chars().take(40).collect();
        let cut = if shown.len() < self.token.len() { "…" } else { "" };
        if shown.is_empty() {
            write!(f, "impairment ends at column {}: expected {}", self.column, self.expected)
        } else {
            write!(f, "impairment {shown:?}{cut} at column {}: expected {}", self.column, self.expected)
        }
    }
}

/// A word, and its column in characters, from 1.
#[derive(Copy, Clone)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) column: usize,
}

impl Token<'_> {
    pub(super) fn error(self, expected: impl Into<Cow<'static, str>>) -> ParseError {
        ParseError { token: self.text.to_owned(), column: self.column, expected: expected.into() }
    }
}

/// Splits a text into words, with `;` as a word of its own.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut begin = None;
    for (column, (at, c)) in text.char_indices().enumerate() {
        if c.is_whitespace() || c == ';' {
            if let Some((from, column)) = begin.take() {
                found.push(Token { text: &text[from..at], column });
            }
            if c == ';' {
                found.push(Token { text: &text[at..=at], column: column + 1 });
            }
        } else if begin.is_none() {
            begin = Some((at, column + 1));
        }
    }
    if let Some((from, column)) = begin {
        found.push(Token { text: &text[from..], column });
    }
    found
}

/// The tokens of one section, and the column where it ends.
pub(super) struct Section<'a> {
    pub(super) rest: &'a [Token<'a>],
    pub(super) end: usize,
}

impl<'a> Section<'a> {
    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    pub(super) fn next_is(&self, is: impl Fn(&str) -> bool) -> bool {
        self.rest.first().is_some_and(|token| is(token.text))
    }

    pub(super) fn take<T>(
        &mut self,
        expected: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ParseError> {
        let token = self.next().unwrap_or(Token { text: "", column: self.end });
        read(token.text).ok_or_else(|| token.error(expected))
    }

    /// Takes a value if the next token looks like a number.
    pub(super) fn take_if_number<T>(
        &mut self,
        expected: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ParseError> {
        let number = |t: &Token<'_>| t.text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
        if self.rest.first().is_some_and(number) { self.take(expected, read).map(Some) } else { Ok(None) }
    }
}
