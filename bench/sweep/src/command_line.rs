//! Command lines: classification of sweep options, and quoting for a shell.

use std::path::Path;

use irnic_report::CommandError;
pub use irnic_report::shell::quoted;

/// Options that determine where and how runs are performed, without affecting results; all take a value except
/// [`FLAGS`].
const HOW: [&str; 8] = ["out", "shard", "shards", "print", "jobs", "threads", "run-timeout", "run-memory"];
/// Options without a value.
const FLAGS: [&str; 2] = ["resume", "retry-failed"];
/// Options that name result files.
const RESULTS: [&str; 7] = ["json", "csv", "junit", "html", "per-flow", "series", "svg"];

/// Returns the arguments of this process, without the program.
pub fn given() -> Result<Vec<String>, CommandError> {
    let word = |word: std::ffi::OsString| {
        word.into_string().map_err(|word| CommandError::Usage(format!("{}: expected UTF-8", word.display())))
    };
    std::env::args_os().skip(1).map(word).collect()
}

/// Returns the program of this process, for another shell of the same user.
pub fn program() -> String {
    let called = std::env::args_os().next().map(std::path::PathBuf::from).unwrap_or_default();
    // A name without a directory is found by PATH.
    let path = if called.components().count() > 1 { std::path::absolute(&called).unwrap_or(called) } else { called };
    quoted(&[path.to_str().unwrap_or("irnic")])
}

/// A command line, divided into what is run and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Split {
    /// The arguments that determine what is run.
    pub what: Vec<String>,
    /// Other options, with their values.
    pub how: Vec<(String, Option<String>)>,
}

impl Split {
    /// Splits arguments that clap has accepted.
    pub fn of(arguments: &[String]) -> Split {
        let mut split = Split::default();
        let mut arguments = arguments.iter();
        while let Some(word) = arguments.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            match name.strip_prefix("--") {
                Some(flag) if FLAGS.contains(&flag) => split.how.push((flag.to_owned(), None)),
                Some(option) if HOW.contains(&option) || RESULTS.contains(&option) => {
                    split.how.push((option.to_owned(), value.or_else(|| arguments.next().cloned())));
                }
                _ => split.what.push(word.clone()),
            }
        }
        split
    }

    /// Returns those of the named options that were given, as arguments.
    pub fn keep(&self, names: &[&str]) -> Vec<String> {
        let kept = self.how.iter().filter(|(name, _)| names.contains(&name.as_str()));
        kept.flat_map(|(name, value)| [Some(format!("--{name}")), value.clone()]).flatten().collect()
    }
}

/// Returns this process's command line without the options for where and how runs are performed and without some
/// options with values, plus the given arguments.
pub fn again(without: &[&str], with: impl Iterator<Item = String>) -> String {
    let mut all = vec!["irnic".to_owned()];
    let mut arguments = Split::of(&given().unwrap_or_default()).what.into_iter();
    while let Some(word) = arguments.next() {
        match word.strip_prefix("--").map(|option| option.split_once('=').unwrap_or((option, ""))) {
            Some((option, value)) if without.contains(&option) => {
                if value.is_empty() {
                    arguments.next();
                }
            }
            _ => all.push(word),
        }
    }
    all.extend(with);
    quoted(&all)
}

/// Formats a path as a word.
pub fn path(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_run_is_told_from_how() {
        let arguments =
            "sim --experiment g.toml --out=runs --load 0.5 --jobs 2 --resume --verify --json a.json --shard 1/2";
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let split = Split::of(&arguments);
        assert_eq!(split.what.join(" "), "sim --experiment g.toml --load 0.5 --verify");
        assert_eq!(split.keep(&["jobs", "out", "threads", "resume"]), ["--out", "runs", "--jobs", "2", "--resume"]);
    }

    #[test]
    fn a_shell_reads_what_was_written() {
        let words = ["plain", "two words", "it's", "$HOME;`x`", "", "red:1,2=3", "é*"];
        let script = format!("printf '%s\\n' {}", quoted(&words));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().collect::<Vec<_>>(), words);
    }
}
