//! How to get a result again. Text, pages, pictures and files of results all say it.

use std::fmt;
use std::path::PathBuf;

use crate::{shell, version};

/// The command that repeats a result, and the irnic that made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The command line, for a shell.
    pub command: String,
    /// The version, with the commit and its date if they are known; several of merged results.
    pub irnic: String,
}

impl Origin {
    /// Returns the command line of this process and its version.
    pub fn of_process() -> Origin {
        let mut words = std::env::args_os();
        let program = words.next().map(PathBuf::from).unwrap_or_default();
        let program = program.file_name().map_or_else(|| "irnic".into(), |name| name.to_string_lossy().into_owned());
        let words: Vec<String> =
            std::iter::once(program).chain(words.map(|word| word.to_string_lossy().into_owned())).collect();
        Origin { command: shell::quoted(&words), irnic: version::get().to_owned() }
    }

    /// Returns it as the first lines of a CSV file, each of which begins with `#`.
    pub fn comment(&self) -> String {
        self.to_string().split(['\n', '\r']).map(|line| format!("# {line}\n")).collect()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "again: {} (irnic {})", self.command, self.irnic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_command_is_a_comment() {
        let origin = Origin { command: "irnic lab -- sh -c 'a\nb'".into(), irnic: "0.1.0 (5d0c 2026-01-31)".into() };
        let comment = origin.comment();
        assert_eq!(comment, "# again: irnic lab -- sh -c 'a\n# b' (irnic 0.1.0 (5d0c 2026-01-31))\n");
        let own = Origin::of_process();
        assert!(own.command.starts_with("irnic_report") && own.irnic == version::get(), "{own}");
    }
}
