//! Shared parts of the commands for papers: options, result files, cells by name.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use irnic_report::CommandError;
use irnic_report::csv;
use irnic_report::junit;
use irnic_report::origin::Origin;
use irnic_report::output::OutFile;
use irnic_sweep::{self as sweep, How, SweepArgs};
use serde::Serialize;
use serde_json::{Map, Value};

/// Program name prefixed to error messages.
pub const WHO: &str = "irnic reproduce";

/// Options of all papers.
#[derive(Args)]
pub struct Common {
    /// Print the ids of the cells (with --only, of the selected ones) and run nothing
    #[arg(long)]
    pub list: bool,
    /// Repetitions of each run, 1 to 1000, with different seeds: different flows or start times, and other random
    /// choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// First random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of parallel runs, 1 to 1024 [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: Option<u64>,
    /// Write the cells as JSON to this file; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a line per cell, with its settings, as CSV to this file; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write JUnit XML to this file, a test case per cell; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub sweep: SweepArgs,
}

impl Common {
    /// Returns the seeds, one per repetition.
    pub fn seeds(&self) -> Vec<u64> {
        (0..self.seeds).map(|i| self.seed.wrapping_add(i)).collect()
    }

    /// Returns the options of the sweep.
    pub fn how(&self) -> How<'_> {
        let jobs = self.jobs.map_or(0, |n| n as usize);
        How { args: &self.sweep, who: self.sweep.who(WHO), jobs, threads: 1 }
    }

    /// Opens the result files, which are checked before anything runs. `pictures`: whether there will be pictures.
    pub fn open(&self, pictures: bool) -> Result<Files, CommandError> {
        let files = [
            ("--json", self.json.is_some()),
            ("--csv", self.csv.is_some()),
            ("--junit", self.junit.is_some()),
            ("--svg", pictures),
        ];
        self.sweep.check(&files)?;
        let usage = |option| move |e| CommandError::Usage(format!("{option} {e}"));
        let json = self.json.as_deref().map(OutFile::open).transpose().map_err(usage("--json"))?;
        let csv = self.csv.as_deref().map(OutFile::open).transpose().map_err(usage("--csv"))?;
        let junit = self.junit.as_deref().map(junit::File::open).transpose().map_err(usage("--junit"))?;
        Ok(Files { json, csv, junit })
    }
}

/// Result files.
pub struct Files {
    pub json: Option<OutFile>,
    pub csv: Option<OutFile>,
    pub junit: Option<junit::File>,
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a, S, C> {
    paper: &'a str,
    irnic: &'a str,
    command: &'a str,
    #[serde(flatten)]
    settings: &'a S,
    seeds: &'a [u64],
    cells: &'a [C],
}

impl Files {
    /// Writes the result files: cells of a paper, and the settings they depend on.
    pub fn write<'a, C: Serialize>(
        self,
        paper: &str,
        origin: &Origin,
        settings: &impl Serialize,
        seeds: &[u64],
        cells: &'a [C],
    ) -> Result<(), CommandError>
    where
        junit::Case: From<&'a C>,
    {
        let Origin { command, irnic } = origin;
        let all = |to: &mut dyn Write| {
            serde_json::to_writer_pretty(&mut *to, &Document { paper, irnic, command, settings, seeds, cells })?;
            writeln!(to)
        };
        let failed = |option| move |e| CommandError::Failed(format!("{option} {e}"));
        if let Some(file) = self.json {
            file.write(|to| all(to)).map_err(failed("--json"))?;
        }
        if let Some(file) = self.csv {
            let rows = rows(paper, settings, seeds, cells).map_err(|e| CommandError::Failed(e.to_string()))?;
            file.write(|to| csv::objects(to, origin, &FIRST, &rows)).map_err(failed("--csv"))?;
        }
        if let Some(file) = self.junit {
            file.write(&format!("{WHO} {paper}"), cells.iter().map(Into::into)).map_err(failed("--junit"))?;
        }
        Ok(())
    }
}

/// The first columns of the CSV file.
const FIRST: [&str; 7] = ["id", "ours", "confidence", "paper", "paper_low", "paper_high", "answer"];

/// Returns the rows of the CSV file: the cells, each with the settings and seeds that they have in common.
fn rows(
    paper: &str,
    settings: &impl Serialize,
    seeds: &[u64],
    cells: &[impl Serialize],
) -> serde_json::Result<Vec<Map<String, Value>>> {
    let object = |value: Value| match value {
        Value::Object(members) => members,
        other => Map::from_iter([("value".to_owned(), other)]),
    };
    let mut common = Map::from_iter([("reproduces".to_owned(), paper.into())]);
    common.insert("first_seed".to_owned(), seeds.first().copied().into());
    common.insert("seeds".to_owned(), seeds.len().into());
    common.extend(
        object(serde_json::to_value(settings)?).into_iter().map(|(key, value)| (format!("setting_{key}"), value)),
    );
    let row = |cell| {
        let mut row = object(serde_json::to_value(cell)?);
        row.extend(common.clone());
        Ok(row)
    };
    cells.iter().map(row).collect()
}

/// Returns the command line that repeats the run of a cell with a seed.
pub fn replay(cell: Option<&str>, seed: u64) -> String {
    let only = cell.iter().flat_map(|cell| ["--only", cell]).map(str::to_owned);
    let seed = ["--seed".to_owned(), seed.to_string()];
    sweep::again(&["only", "seed", "seeds"], only.chain(seed))
}

pub fn time(text: &str) -> Result<u64, String> {
    use irnic_units as units;
    units::time(text).filter(|ns| *ns > 0).ok_or_else(|| format!("expected {}", units::TIME))
}

/// Prints the ids of cells.
pub fn list<'a>(ids: impl Iterator<Item = &'a str>) {
    ids.for_each(|id| println!("{id}"));
}

/// Keeps the cells whose id starts with one of `only`, or all if it is empty.
pub fn choose<C>(cells: &mut Vec<C>, only: &[String], id: impl Fn(&C) -> &str) -> Result<(), CommandError> {
    if only.is_empty() {
        return Ok(());
    }
    if let Some(unknown) = only.iter().find(|only| !cells.iter().any(|c| id(c).starts_with(only.as_str()))) {
        return Err(CommandError::Usage(format!(
            "--only {unknown}: no cell matches; ids are such as {}, {}; see --list",
            id(&cells[0]),
            id(&cells[cells.len() - 1])
        )));
    }
    cells.retain(|c| only.iter().any(|only| id(c).starts_with(only.as_str())));
    Ok(())
}
