//! Lexer.

use std::fmt;

use crate::error::{Place, PolicyError, Result};
use crate::number::{self, Dimension, Ratio};

/// A token of a policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Name(String),
    Number(Ratio, Dimension),
    /// Punctuation and operators.
    Sign(&'static str),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Name(name) => write!(f, "'{name}'"),
            Token::Number(..) => f.write_str("a number"),
            Token::Sign(sign) => write!(f, "'{sign}'"),
            Token::End => f.write_str("the end of the policy"),
        }
    }
}

/// Longer ones first.
const SIGNS: [&str; 30] = [
    ":=", "->", "==", "!=", "<=", ">=", "&&", "||", "..", "(", ")", "[", "]", "{", "}", ",", ";", ".", "=", "<", ">",
    "+", "-", "*", "/", "%", "!", ":", "\u{b7}", "@",
];

/// Maximum length of a policy, bytes.
const LONGEST: usize = 1 << 20;

/// Splits a text into tokens, each with its place; the last is [`Token::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<(Token, Place)>> {
    if text.len() > LONGEST {
        return Err(PolicyError::new(Place { line: 1, column: 1 }, "a policy has at most 1 MiB"));
    }
    let mut lexer = Lexer { rest: text, at: Place { line: 1, column: 1 } };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let token = lexer.next()?;
        let ends = token == Token::End;
        tokens.push((token, at));
        if ends {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    rest: &'t str,
    at: Place,
}

impl<'t> Lexer<'t> {
    /// Consumes this many bytes.
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        for character in taken.chars() {
            if character == '\n' {
                self.at = Place { line: self.at.line + 1, column: 1 };
            } else {
                self.at.column += 1;
            }
        }
        self.rest = rest;
        taken
    }

    /// Length in bytes of the longest prefix of `wanted` characters.
    fn span(&self, wanted: impl Fn(char) -> bool) -> usize {
        self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len())
    }

    fn skip_blanks(&mut self) {
        loop {
            let bytes = match self.span(char::is_whitespace) {
                0 if self.rest.starts_with("//") => self.span(|c| c != '\n'),
                0 => return,
                blanks => blanks,
            };
            self.take(bytes);
        }
    }

    fn next(&mut self) -> Result<Token> {
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        if first.is_ascii_alphabetic() || first == '_' {
            let name = self.take(self.span(|c| c.is_ascii_alphanumeric() || c == '_'));
            return Ok(Token::Name(name.into()));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if let Some(sign) = SIGNS.iter().find(|sign| self.rest.starts_with(**sign)) {
            self.take(sign.len());
            return Ok(Token::Sign(sign));
        }
        Err(PolicyError::new(self.at, format_args!("{first:?} means nothing here")))
    }

    fn number(&mut self) -> Result<Token> {
        let at = self.at;
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let mut bytes = digits(self.rest);
        if let Some(fraction) = self.rest[bytes..].strip_prefix('.').filter(|rest| digits(rest) > 0) {
            bytes += 1 + digits(fraction);
        }
        let unit = &self.rest[bytes..];
        let is_unit = |c: char| c.is_alphanumeric() || c == '/' && unit.starts_with(['b', 'B', 'G', 'M', 'k', 'K']);
        bytes += match unit.find(|c| !is_unit(c)).unwrap_or(unit.len()) {
            0 if unit.starts_with('%') => 1,
            // A slash is part of a unit only in 10Gb/s.
            end if unit[..end].contains('/') && !unit[..end].ends_with("b/s") => unit.find('/').unwrap_or(end),
            end => end,
        };
        let text = self.take(bytes);
        match number::read(text) {
            Some((value, dimension)) => Ok(Token::Number(value, dimension)),
            None => Err(PolicyError::new(at, format_args!("{text}: expected {}", number::NUMBER))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_their_places() {
        let tokens = tokens("a1 // b\n  >= 0.95*x..3").expect("a text");
        let shown: Vec<String> = tokens.iter().map(|(token, at)| format!("{token} {at}")).collect();
        assert_eq!(
            shown,
            [
                "'a1' 1:1",
                "'>=' 2:3",
                "a number 2:6",
                "'*' 2:10",
                "'x' 2:11",
                "'..' 2:12",
                "a number 2:14",
                "the end of the policy 2:15"
            ]
        );
    }

    #[test]
    fn a_slash_divides_unless_it_is_a_rate_s() {
        let texts = |text| tokens(text).map(|tokens| tokens.len() - 1);
        assert_eq!((texts("10Gb/s"), texts("10/4"), texts("2K/x"), texts("1..2")), (Ok(1), Ok(3), Ok(3), Ok(3)));
    }
}
