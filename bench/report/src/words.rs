//! Options whose values are, or begin with, one of a few words: shells complete them.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};

/// A parser that takes any text, and offers words for completion. The option has to have `hide_possible_values`, since
/// they are not all there is.
#[derive(Clone, Debug)]
pub struct Words(Vec<&'static str>);

/// Returns the parser that offers `words`.
pub fn words(words: impl IntoIterator<Item = &'static str>) -> Words {
    Words(words.into_iter().collect())
}

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}
