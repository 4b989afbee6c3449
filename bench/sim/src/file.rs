//! Experiment files: the keys of experiments in TOML, lists for grids, and `[[run]]` for individual runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use irnic_fabric::experiment::{Grid, KEYS, Origin, Run, Values, Written, find};
use irnic_units::{did_you_mean, files, toml as lines};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use irnic_report::CommandError;

/// Contents of an experiment file.
#[derive(Debug, Default)]
pub struct ExperimentFile {
    /// Keys and runs.
    pub grid: Grid,
    /// Values of `seed`, several if it is a list.
    pub seed: Vec<Written>,
    /// Value of `seeds`.
    pub seeds: Option<Written>,
}

const SEED: &str = "seed";
const SEEDS: &str = "seeds";
const RUN: &str = "run";
const NAME: &str = "name";

/// Parses a table that does not belong to experiments, given its name and contents. Returns whether it is known.
pub type Other<'a> = &'a mut dyn FnMut(&Reader<'_>, &str, &Spanned<DeValue<'_>>) -> Result<bool, CommandError>;

/// Reads a file that contains more than an experiment: what has one of `others` for a name, `[[NAME]]` for tables, goes
/// to `other`.
pub fn read_with(
    path: &Path,
    others: &'static [&'static str],
    other: Other<'_>,
) -> Result<ExperimentFile, CommandError> {
    parse_with(path, &text(path)?, others, other)
}

/// Returns the text of a file, which no output may replace from now on.
pub fn text(path: &Path) -> Result<String, CommandError> {
    files::read(path).map_err(|e| CommandError::Usage(format!("{}: {e}", path.display())))
}

/// A file being read.
pub struct Reader<'a> {
    path: Arc<PathBuf>,
    text: &'a str,
    /// Names that are no keys of experiments, for messages.
    others: &'static [&'static str],
}

/// Parses `text`; `path` is for messages.
pub fn parse(path: &Path, text: &str) -> Result<ExperimentFile, CommandError> {
    parse_with(path, text, &["[[run]]"], &mut |_, _, _| Ok(false))
}

/// Parses `text` like [`read_with`]; `path` is for messages.
pub fn parse_with(
    path: &Path,
    text: &str,
    others: &'static [&'static str],
    other: Other<'_>,
) -> Result<ExperimentFile, CommandError> {
    let reader = Reader { path: Arc::new(path.to_owned()), text, others };
    let table = lines::parse(text).map_err(|(line, why)| reader.error_in(line, why))?;
    let mut file = ExperimentFile::default();
    for (name, value) in table.get_ref() {
        let at = name.span().start;
        match name.get_ref().as_ref() {
            RUN => {
                let tables = reader.error(at, "runs are tables: write [[run]]");
                let DeValue::Array(runs) = value.get_ref() else { return Err(tables) };
                for run in runs.iter() {
                    let DeValue::Table(run) = run.get_ref() else { return Err(tables) };
                    file.grid.runs.push(reader.run(run)?);
                }
            }
            SEED => file.seed = reader.values(SEED, at, value)?,
            SEEDS => file.seeds = reader.values(SEEDS, at, value)?.into_iter().next(),
            name if other(&reader, name, value)? => {}
            _ => reader.setting(name, value, &mut file.grid.common)?,
        }
    }
    Ok(file)
}

impl Reader<'_> {
    /// Returns an error for a byte offset in the file.
    pub fn error(&self, at: usize, why: impl std::fmt::Display) -> CommandError {
        self.error_in(lines::line(self.text, at), why)
    }

    fn error_in(&self, line: usize, why: impl std::fmt::Display) -> CommandError {
        CommandError::Usage(format!("{}:{line}: {why}", self.path.display()))
    }

    fn run(&self, table: &DeTable<'_>) -> Result<Run, CommandError> {
        let mut run = Run::default();
        for (name, value) in table {
            if name.get_ref() == NAME {
                let DeValue::String(text) = value.get_ref() else {
                    return Err(self.error(value.span().start, "the name of a run is a string"));
                };
                run.name = Some(text.to_string());
            } else {
                self.setting(name, value, &mut run.values)?;
            }
        }
        Ok(run)
    }

    fn setting(
        &self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        into: &mut Values,
    ) -> Result<(), CommandError> {
        let at = name.span().start;
        let Some(key) = find(name.get_ref()) else {
            let known: Vec<&str> =
                KEYS.iter().map(|k| k.name()).chain([SEED, SEEDS]).chain(self.others.iter().copied()).collect();
            let meant = did_you_mean(name.get_ref(), known.iter().map(|name| name.trim_matches(['[', ']'])));
            let why = format!("unknown key \"{}\"; known are {}{meant}", name.get_ref(), known.join(", "));
            return Err(self.error(at, why));
        };
        into.insert(key.name(), self.values(key.name(), at, value)?);
        Ok(())
    }

    /// Reads one value, or those of a list.
    fn values(&self, key: &'static str, at: usize, value: &Spanned<DeValue<'_>>) -> Result<Vec<Written>, CommandError> {
        let one = |value: &Spanned<DeValue<'_>>| {
            let text = lines::word(value.get_ref())
                .ok_or_else(|| self.error(at, format!("{key} is a string, a number, on or off, or a list of them")))?;
            Ok(Written {
                key,
                text,
                origin: Origin::Line(self.path.clone(), lines::line(self.text, value.span().start)),
            })
        };
        match value.get_ref() {
            DeValue::Array(items) if items.is_empty() => Err(self.error(at, format!("{key} is an empty list"))),
            DeValue::Array(items) => items.iter().map(one).collect(),
            _ => Ok(vec![one(value)?]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<ExperimentFile, CommandError> {
        parse(Path::new("e.toml"), text)
    }

    #[test]
    fn a_file_says_what_flags_say() {
        let text = "load = [0.5, 0.7]\nverify = true\nseed = 4\nseeds = 2\n\
                    [[run]]\nname = \"IRN\"\ntransport = \"irn\"\n[[run]]\ntransport = \"roce\"\npfc = \"on\"\n";
        let file = parse_text(text).unwrap();
        let labels: Vec<String> = file.grid.cases().unwrap().into_iter().map(|c| c.label).collect();
        assert_eq!(labels, ["IRN load=0.5", "IRN load=0.7", "load=0.5 roce pfc=on", "load=0.7 roce pfc=on"]);
        let load = &file.grid.common["load"][1];
        assert_eq!((load.text.as_str(), &load.origin), ("0.7", &Origin::Line(Arc::new("e.toml".into()), 1)));
        assert_eq!(file.grid.common["verify"][0].text, "on");
        assert_eq!((file.seed[0].text.as_str(), file.seeds.unwrap().text.as_str()), ("4", "2"));
    }

    #[test]
    fn several_values_are_a_list() {
        let value = &parse_text("\nload = \"0.5, 0.7\"\n").unwrap().grid.common["load"][0];
        let error = value.read(|value| value.number(0.0..=1.0, "a share")).unwrap_err().to_string();
        assert_eq!(error, "e.toml:2: load = \"0.5, 0.7\": expected one value; several are load = [\"0.5\", \"0.7\"]");
    }

    #[test]
    fn errors_name_file_line_and_what_was_expected() {
        for (text, said) in [
            ("load = 1\nlaod = 2\n", "e.toml:2: unknown key \"laod\"; known are topology, "),
            ("\nload = []\n", "e.toml:2: load is an empty list"),
            ("load = {a = 1}\n", "e.toml:1: load is a string, a number, on or off, or a list of them"),
            ("run = 1\n", "e.toml:1: runs are tables: write [[run]]"),
            ("[[run]]\nname = 1\n", "e.toml:2: the name of a run is a string"),
            ("[[run]]\nload = 1\ncolour = 2\n", "e.toml:3: unknown key \"colour\""),
            ("load = 1\nload = 2\n", "e.toml:2: "),
            ("load = \n", "e.toml:1: "),
        ] {
            let error = parse_text(text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{text:?}: {error}");
        }
    }
}
