//! `irnic reproduce`: the scenarios of papers, and their numbers beside ours, cell by cell.
//!
//! Each paper has a folder: what it prints, what is run for it, and what of that is a cell. [`points`] puts scenarios
//! and the paper's numbers and words together, [`runs`] makes the runs, [`compared`] says how far apart the two are,
//! [`table`] prints, [`pictures`] draws. [`evaluation`] is a command that does all of this, given the folder's parts.

mod chance;
mod compared;
mod escape;
mod evaluation;
mod irn;
mod ndp;
mod openqueue;
mod pictures;
mod points;
mod rc3;
mod rocc;
mod runs;
mod table;
mod timely;
mod tlt;
mod ups;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use irnic_report::CommandError;
use irnic_report::junit;
use irnic_report::output::OutFile;
use serde::Serialize;

use irnic_sweep::{self as sweep, How, SweepArgs};

/// Reproduce the results of a paper: its numbers beside ours, cell by cell.
#[derive(Parser)]
pub struct ReproduceArgs {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand)]
enum Paper {
    Irn(irn::IrnArgs),
    Timely(timely::TimelyArgs),
    Ndp(Box<ndp::NdpArgs>),
    Tlt(tlt::TltArgs),
    Rc3(rc3::Rc3Args),
    Rocc(rocc::RoccArgs),
    Escape(escape::EscapeArgs),
    Ups(ups::UpsArgs),
    #[command(name = "openqueue")]
    OpenQueue(openqueue::OpenQueueArgs),
}

/// What all papers' runs can be told.
#[derive(Args)]
struct Common {
    /// Print the ids of the cells, of those that --only names if it is given, and run nothing
    #[arg(long)]
    list: bool,
    /// Repetitions of each run, with other flows or times at which they begin, and other chance
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs at a time [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
    /// Write the cells to this file; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write JUnit's XML to this file: a test case for each cell; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    sweep: SweepArgs,
}

/// Who speaks on standard error.
const WHO: &str = "irnic reproduce";

impl ReproduceArgs {
    /// Returns how runs are made.
    pub fn sweep(&mut self) -> &mut SweepArgs {
        match &mut self.paper {
            Paper::Irn(args) => &mut args.common.sweep,
            Paper::Timely(args) => &mut args.common.sweep,
            Paper::Ndp(args) => &mut args.common.sweep,
            Paper::Tlt(args) => &mut args.common.sweep,
            Paper::Rc3(args) => &mut args.common.sweep,
            Paper::Rocc(args) => &mut args.common.sweep,
            Paper::Escape(args) => &mut args.common.sweep,
            Paper::Ups(args) => &mut args.common.sweep,
            Paper::OpenQueue(args) => &mut args.common.sweep,
        }
    }
}

impl Common {
    /// Returns the seeds, one for each repetition.
    fn seeds(&self) -> Vec<u64> {
        (0..self.seeds).map(|i| self.seed.wrapping_add(i)).collect()
    }

    /// Returns how runs are made.
    fn how(&self) -> How<'_> {
        let jobs = self.jobs.map_or(0, |n| n as usize);
        How { args: &self.sweep, who: self.sweep.who(WHO), jobs, threads: 1 }
    }

    /// Opens the files of results, which are checked before anything runs. `pictures`: whether there are to be some.
    fn open(&self, pictures: bool) -> Result<Files, CommandError> {
        let files = [("--json", self.json.is_some()), ("--junit", self.junit.is_some()), ("--svg", pictures)];
        self.sweep.check(&files)?;
        let usage = |option| move |e| CommandError::Usage(format!("{option} {e}"));
        let json = self.json.as_deref().map(OutFile::open).transpose().map_err(usage("--json"))?;
        let junit = self.junit.as_deref().map(junit::File::open).transpose().map_err(usage("--junit"))?;
        Ok(Files { json, junit })
    }
}

/// Files of results.
struct Files {
    json: Option<OutFile>,
    junit: Option<junit::File>,
}

/// What is written for machines.
#[derive(Serialize)]
struct Document<'a, S, C> {
    paper: &'a str,
    #[serde(flatten)]
    settings: &'a S,
    seeds: &'a [u64],
    cells: &'a [C],
}

impl Files {
    /// Writes what there are files for: cells of a paper, and what they depend on.
    fn write<'a, C: Serialize>(
        self,
        paper: &str,
        settings: &impl Serialize,
        seeds: &[u64],
        cells: &'a [C],
    ) -> Result<(), CommandError>
    where
        junit::Case: From<&'a C>,
    {
        let all = |to: &mut dyn Write| {
            serde_json::to_writer_pretty(&mut *to, &Document { paper, settings, seeds, cells })?;
            writeln!(to)
        };
        let failed = |option| move |e| CommandError::Failed(format!("{option} {e}"));
        if let Some(file) = self.json {
            file.write(|to| all(to)).map_err(failed("--json"))?;
        }
        if let Some(file) = self.junit {
            file.write(&format!("{WHO} {paper}"), cells.iter().map(Into::into)).map_err(failed("--junit"))?;
        }
        Ok(())
    }
}

/// Returns the command line that makes the run of a cell with a seed alone.
fn replay(cell: Option<&str>, seed: u64) -> String {
    let only = cell.iter().flat_map(|cell| ["--only", cell]).map(str::to_owned);
    let seed = ["--seed".to_owned(), seed.to_string()];
    sweep::again(&["only", "seed", "seeds"], only.chain(seed))
}

fn time(text: &str) -> Result<u64, String> {
    use irnic_units as units;
    units::time(text).filter(|ns| *ns > 0).ok_or_else(|| format!("expected {}", units::TIME))
}

/// Prints the ids of cells.
fn list<'a>(ids: impl Iterator<Item = &'a str>) {
    ids.for_each(|id| println!("{id}"));
}

/// Leaves the cells whose id begins as one of `only` does, or all if there are none.
fn choose<C>(cells: &mut Vec<C>, only: &[String], id: impl Fn(&C) -> &str) -> Result<(), CommandError> {
    if only.is_empty() {
        return Ok(());
    }
    if let Some(unknown) = only.iter().find(|only| !cells.iter().any(|c| id(c).starts_with(only.as_str()))) {
        return Err(CommandError::Usage(format!(
            "--only {unknown}: no cell begins so; ids are such as {}, {}; --list tells all",
            id(&cells[0]),
            id(&cells[cells.len() - 1])
        )));
    }
    cells.retain(|c| only.iter().any(|only| id(c).starts_with(only.as_str())));
    Ok(())
}

/// Runs what the arguments ask for.
pub fn run(args: &ReproduceArgs) -> Result<(), CommandError> {
    match &args.paper {
        Paper::Irn(args) => irn::run(args),
        Paper::Timely(args) => timely::run(args),
        Paper::Ndp(args) => ndp::run(args),
        Paper::Tlt(args) => tlt::run(args),
        Paper::Rc3(args) => rc3::run(args),
        Paper::Rocc(args) => rocc::run(args),
        Paper::Escape(args) => escape::run(args),
        Paper::Ups(args) => ups::run(args),
        Paper::OpenQueue(args) => openqueue::run(args),
    }
}

/// Entry point of the subcommand.
pub fn main(args: &ReproduceArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(WHO),
    }
}
