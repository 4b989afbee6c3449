//! `irnic sim`: a datacenter network of software NICs in virtual time.
//!
//! [`args`] and [`file`](mod@file) read what users write into a [`Grid`](irnic_fabric::experiment::Grid), whose
//! combinations are the cases; `irnic-fabric` makes runs of them, [`execute`] makes all runs in parallel. What came of
//! them is in [`results`], which [`table`] prints and [`html`] draws; [`summary_json`], [`per_flow`] and [`series`]
//! write it for machines.

mod args;
mod execute;
pub mod file;
mod heap;
pub mod html;
mod per_flow;
mod results;
pub mod series;
mod summary_json;
pub mod table;

use std::path::PathBuf;
use std::process::ExitCode;

pub use args::SimArgs;
pub use execute::{Batch, Progress, Run, SLICE, STEPS, all as run_all};

use execute::{NoResult, Reached};
use irnic_fabric::experiment::{Case, Experiment, TextError, Written};

use crate::output::OutFile;

/// Why there are no results, or only a part of them.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The command line or a file asks for something that cannot be: exit 2.
    #[error("{0}")]
    Usage(String),
    /// A run failed, or a result could not be written: exit 1.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C: exit 130.
    #[error("interrupted; the results are those up to then")]
    Interrupted,
    /// Ctrl-C among several runs: exit 130.
    #[error("interrupted: {0}; the results are those of runs that were done")]
    Reached(Reached),
}

/// How often a run is looked at whose queues are to be shown, ns.
const SAMPLE: u64 = 10_000;
/// Who speaks on standard error.
const WHO: &str = "irnic sim";
/// The most runs at a time: each has a thread.
const MAX_JOBS: usize = 1_024;
/// The most threads of one run.
const MAX_THREADS: usize = 255;
/// The most runs of one experiment.
const MAX_RUNS: usize = 100_000;

impl From<TextError> for SimError {
    fn from(error: TextError) -> SimError {
        SimError::Usage(error.to_string())
    }
}

/// Returns cases, seeds, and what is to be kept of each run.
fn batch(args: &SimArgs) -> Result<Batch, SimError> {
    let mut file = match &args.experiment {
        Some(path) => file::read(path)?,
        None => file::ExperimentFile::default(),
    };
    file.grid.override_with(args.values());
    let flags: Vec<Written> = args.seed.iter().map(|text| Written::flag("seed", text)).collect();
    let given = if flags.is_empty() { file.seed } else { flags };
    let several = args.seeds.as_ref().map(|text| Written::flag("seeds", text)).or(file.seeds);
    let seeds = seeds(&given, several.as_ref())?;
    let cases = file.grid.cases()?;
    if cases.len().saturating_mul(seeds.len()) > MAX_RUNS {
        return Err(SimError::Usage(format!(
            "more than {MAX_RUNS} runs: {} cases, {} seeds",
            cases.len(),
            seeds.len()
        )));
    }
    if args.pcap.pcap.is_some() && (cases.len() > 1 || seeds.len() > 1) {
        return Err(SimError::Usage("--pcap records one run: expected one case and one seed".into()));
    }
    let sample = (args.series.is_some() || args.html.is_some()).then_some(SAMPLE);
    let experiment = |case: &Case| -> Result<Experiment, TextError> {
        let mut experiment = case.experiment()?;
        experiment.sample = experiment.sample.or(sample);
        // What the first seed's flows show to make no sense is said before anything runs.
        experiment.config(seeds[0]).map_err(|error| case.error(error))?;
        Ok(experiment)
    };
    let experiments: Vec<Experiment> = cases.iter().map(experiment).collect::<Result<_, _>>()?;
    if let [alone] = &experiments[..] {
        args.pcap.check(&alone.topology).map_err(SimError::Usage)?;
    }
    let threads = args.threads.unwrap_or(1);
    Ok(Batch {
        experiments,
        cases,
        seeds,
        jobs: args.jobs.unwrap_or_else(|| jobs_beside(threads)),
        threads,
        keep_flows: args.per_flow.is_some() || args.html.is_some(),
        pcap: args.pcap.clone(),
    })
}

/// Returns how many runs of so many threads the cores are for; 0 for one for each core.
fn jobs_beside(threads: usize) -> usize {
    if threads == 1 {
        return 0;
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    (cores / threads).max(1)
}

/// Returns the seeds that were given, or so many from the one that was given.
fn seeds(given: &[Written], several: Option<&Written>) -> Result<Vec<u64>, SimError> {
    let number =
        |written: &Written| written.read(|value| value.number(0..=u64::MAX, "a seed, 0 to 18446744073709551615"));
    let given: Vec<u64> = given.iter().map(number).collect::<Result<_, _>>()?;
    let first = given.first().copied().unwrap_or(1);
    let Some(several) = several else {
        return Ok(if given.is_empty() { vec![first] } else { given });
    };
    let n = several.read(|value| value.number(1..=MAX_RUNS as u64, "a number of seeds, 1 to 100000"))?;
    if given.len() > 1 {
        return Err(several.refuse("several seeds are given already").into());
    }
    Ok((0..n).map(|i| first.wrapping_add(i)).collect())
}

fn run(args: &SimArgs) -> Result<(), SimError> {
    if let Some(jobs) = args.jobs.filter(|jobs| !(1..=MAX_JOBS).contains(jobs)) {
        return Err(SimError::Usage(format!("--jobs {jobs}: expected 1 to {MAX_JOBS} runs at a time")));
    }
    if let Some(threads) = args.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
        return Err(SimError::Usage(format!("--threads {threads}: expected 1 to {MAX_THREADS} threads for a run")));
    }
    let batch = batch(args)?;
    let interrupted = crate::interrupt::flag().map_err(|e| SimError::Failed(e.to_string()))?;
    let files = Files::open(args)?;
    let runs = execute::all(&batch, &interrupted)?;
    note_alone(&runs);
    // Files come before the table, whose reader may go away in its midst, and old ones are worth more than those of no
    // run.
    let mut failed = if runs.iter().any(|run| run.result.is_ok()) { files.write(&batch, &runs) } else { Vec::new() };
    table::print(&batch, &runs);
    failed.extend(runs.iter().filter_map(|run| match &run.result {
        Err(NoResult::Failed(why)) => Some(format!("{}: {why}", batch.name(run))),
        _ => None,
    }));
    let failed = if failed.is_empty() { Ok(()) } else { Err(SimError::Failed(failed.join("\n"))) };
    let cut = match &runs[..] {
        [Run { result: Ok(alone), .. }] => alone.interrupted.then_some(SimError::Interrupted),
        several => Some(Reached::by(several)).filter(Reached::is_short).map(SimError::Reached),
    };
    let Some(cut) = cut else { return failed };
    if let Err(failed) = failed {
        failed.report(WHO);
    }
    Err(cut)
}

/// Says what --threads could not do.
fn note_alone(runs: &[Run]) {
    let alone = runs.iter().filter_map(|run| run.result.as_ref().ok()?.alone);
    let mut reasons: Vec<&str> = alone.collect();
    reasons.sort_unstable();
    for same in reasons.chunk_by(|a, b| a == b) {
        let runs = if runs.len() == 1 { String::new() } else { format!("{} runs ", same.len()) };
        eprintln!("{WHO}: --threads: {runs}on one thread: {}", same[0]);
    }
}

/// Files of results.
struct Files {
    per_flow: Option<(OutFile, per_flow::Kind)>,
    json: Option<OutFile>,
    series: Option<OutFile>,
    html: Option<OutFile>,
}

impl Files {
    /// Opens the files, which finds out whether all can be written.
    fn open(args: &SimArgs) -> Result<Files, SimError> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OutFile::open).transpose().map_err(SimError::Usage);
        let kind = args.per_flow.as_deref().map(per_flow::Kind::of).transpose().map_err(SimError::Usage)?;
        Ok(Files {
            per_flow: open(&args.per_flow)?.zip(kind),
            json: open(&args.json)?,
            series: open(&args.series)?,
            html: open(&args.html)?,
        })
    }

    /// Writes all files. Returns what went wrong.
    fn write(self, batch: &Batch, runs: &[Run]) -> Vec<String> {
        let written = [
            self.per_flow.map(|(file, kind)| file.write(|to| per_flow::write(to, kind, batch, runs))),
            self.json.map(|file| file.write(|to| summary_json::write(to, batch, runs))),
            self.series.map(|file| file.write(|to| series::write(to, batch, runs))),
            self.html.map(|file| file.write(|to| html::write(to, batch, runs))),
        ];
        written.into_iter().flatten().filter_map(Result::err).collect()
    }
}

impl SimError {
    /// Prints the error as the command `who`, and returns the exit status.
    pub fn report(self, who: &str) -> ExitCode {
        for line in self.to_string().lines() {
            eprintln!("{who}: {line}");
        }
        ExitCode::from(match self {
            SimError::Usage(_) => 2,
            SimError::Failed(_) => 1,
            SimError::Interrupted | SimError::Reached(_) => 130,
        })
    }
}

/// Entry point of the subcommand.
pub fn main(args: &SimArgs) -> ExitCode {
    heap::prefer_large_pages();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(WHO),
    }
}
