//! Parsing of the command line.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::output;

/// Returns a command line error in one line: clap's message without its usage.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let about =
        text.split("\nUsage:").next().unwrap_or_default().split("\nFor more information").next().unwrap_or_default();
    about.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Parses the command line. If there is nothing to run, because help was requested or the arguments are invalid, prints
/// that and returns the exit status. `amended` may return replacements for rejected arguments.
pub fn parse<C: Parser>(
    arguments: &[OsString],
    amended: impl FnOnce(&clap::Error) -> Option<Vec<OsString>>,
) -> Result<C, ExitCode> {
    let parsed = C::try_parse_from(arguments).or_else(|error| match amended(&error) {
        Some(arguments) => C::try_parse_from(arguments),
        None => Err(error),
    });
    parsed.map_err(|e| {
        if !e.use_stderr() {
            output::note(e.print());
            return output::finish(ExitCode::SUCCESS);
        }
        if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            let _ = e.print();
        } else {
            eprintln!("irnic: {}; see --help", one_line(&e));
        }
        ExitCode::from(2)
    })
}
