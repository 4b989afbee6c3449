//! `irnic sim`: a datacenter network of software NICs in virtual time. [`main_with`] runs it with congestion control
//! and switches of one's own.
//!
//! `args` and [`file`](mod@file) parse user input into a [`Grid`](irnic_fabric::experiment::Grid), whose combinations
//! are the cases; `irnic-fabric` turns them into runs, which `execute` performs as a [sweep](irnic_sweep). `results`
//! has the rows of the report, which `table` prints and `html` draws; `beside` compares flows with another simulator's;
//! `summary_json`, `csv`, `per_flow` and [`series`] write files for programs.

#[macro_use]
extern crate irnic_report;

mod args;
mod beside;
mod csv;
mod error;
mod execute;
pub mod file;
mod heap;
mod html;
pub mod key_args;
mod per_flow;
pub mod port_capture;
mod replay;
mod results;
mod schedule_file;
pub mod series;
mod stored;
mod summary_json;
mod table;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

pub use args::SimArgs;
pub use execute::{SLICE, estimate, resolved};

use error::usage;
use execute::{Batch, Reached, Run, Simulations};
use irnic_fabric::experiment::{Case, Experiment, Extensions, TextError, Written};
use irnic_fabric::schedule::Detail;
use irnic_report::CommandError;
use irnic_report::output::OutFile;
use results::Report;

use irnic_sweep::{How, NoResult};

/// Default sampling interval of queues, ns.
const SAMPLE: u64 = 10_000;
/// Prefix of messages on standard error.
const WHO: &str = "irnic sim";
/// Maximum number of concurrent runs: each has a thread.
const MAX_JOBS: usize = 1_024;
/// Maximum number of threads of one run.
const MAX_THREADS: usize = 255;
/// Maximum number of runs of one experiment.
const MAX_RUNS: usize = 100_000;

/// Returns the contents of the experiment file, empty if there is none, and its text.
fn experiment(args: &SimArgs) -> Result<(file::ExperimentFile, Option<String>), CommandError> {
    let Some(path) = &args.experiment else { return Ok(Default::default()) };
    // Results are merged by the original experiment.
    let text = match args.sweep.merging.as_ref().and_then(|merging| merging.experiment.clone()) {
        Some(text) => text,
        None => file::text(path)?,
    };
    Ok((file::parse(path, &text)?, Some(text)))
}

/// Returns the cases, the seeds, and what to keep of each run.
fn batch(args: &SimArgs, mut file: file::ExperimentFile, extensions: &Extensions) -> Result<Batch, CommandError> {
    file.grid.override_with(args.values());
    let flags: Vec<Written> = args.seed.iter().map(|text| Written::flag("seed", text)).collect();
    let given = if flags.is_empty() { file.seed } else { flags };
    let several = args.seeds.as_ref().map(|text| Written::flag("seeds", text)).or(file.seeds);
    let seeds = seeds(&given, several.as_ref())?;
    let cases = file.grid.cases().map_err(usage)?;
    if cases.len().saturating_mul(seeds.len()) > MAX_RUNS {
        return Err(CommandError::Usage(format!(
            "more than {MAX_RUNS} runs: {} cases, {} seeds",
            cases.len(),
            seeds.len()
        )));
    }
    if args.pcap.pcap.is_some() && (cases.len() > 1 || seeds.len() > 1) {
        return Err(CommandError::Usage("--pcap records one run: expected one case and one seed".into()));
    }
    let keeps_all = args.sweep.out.is_some() && !args.summaries_only;
    let sample = (args.series.is_some() || args.html.is_some() || keeps_all).then_some(SAMPLE);
    let experiment = |case: &Case| -> Result<Experiment, TextError> {
        let mut experiment = case.experiment_with(extensions)?;
        experiment.sample = experiment.sample.or(sample);
        Ok(experiment)
    };
    let experiments: Vec<Experiment> = cases.iter().map(experiment).collect::<Result<_, _>>().map_err(usage)?;
    if args.schedule.record.is_some() && (cases.len() > 1 || seeds.len() > 1) {
        return Err(CommandError::Usage("--record records one run: expected one case and one seed".into()));
    }
    if let [alone] = &experiments[..] {
        args.pcap.check(&alone.topology).map_err(CommandError::Usage)?;
    }
    let shows_flows = args.per_flow.is_some() || args.html.is_some() || args.beside.is_some();
    Ok(Batch {
        experiments,
        cases,
        seeds,
        origin: args.sweep.origin(irnic_report::version::get()),
        threads: args.threads.unwrap_or(1),
        // Stored runs may be asked for more by `irnic merge`.
        keep_flows: shows_flows || args.sweep.worker && keeps_all,
        schedule: args
            .schedule
            .record
            .as_ref()
            .map(|_| if args.schedule.record_hops { Detail::Hops } else { Detail::Ends }),
        pcap: args.pcap.clone(),
    })
}

/// Returns how many runs with this many threads fit the cores; 0 for one per core.
fn concurrent_jobs(threads: usize) -> usize {
    if threads == 1 {
        return 0;
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    (cores / threads).max(1)
}

/// Returns the given seeds, or several starting from the given one.
fn seeds(given: &[Written], several: Option<&Written>) -> Result<Vec<u64>, CommandError> {
    let number =
        |written: &Written| written.read(|value| value.number(0..=u64::MAX, "a seed, 0 to 18446744073709551615"));
    let given: Vec<u64> = given.iter().map(number).collect::<Result<_, _>>().map_err(usage)?;
    let first = given.first().copied().unwrap_or(1);
    let Some(several) = several else {
        return Ok(if given.is_empty() { vec![first] } else { given });
    };
    let n = several.read(|value| value.number(1..=MAX_RUNS as u64, "a number of seeds, 1 to 100000")).map_err(usage)?;
    if given.len() > 1 {
        return Err(usage(several.refuse("several seeds are given already")));
    }
    Ok((0..n).map(|i| first.wrapping_add(i)).collect())
}

/// Rejects options that are incompatible with stored results.
fn check_sweep(args: &SimArgs) -> Result<(), CommandError> {
    let sweep = &args.sweep;
    if sweep.out.is_none() {
        return Ok(());
    }
    let files = [
        ("--json", args.json.is_some()),
        ("--csv", args.csv.is_some()),
        ("--per-flow", args.per_flow.is_some()),
        ("--series", args.series.is_some()),
        ("--html", args.html.is_some()),
        ("--beside", args.beside.is_some()),
    ];
    sweep.check(&files)?;
    if let Some((file, _)) = files[2..].iter().find(|(_, given)| *given && args.summaries_only) {
        return Err(CommandError::Usage(format!("{file}: there are no flows and no samples with --summaries-only")));
    }
    if args.pcap.pcap.is_some() {
        return Err(CommandError::Usage("--pcap: packets are not kept in --out; expected one of the two".into()));
    }
    Ok(())
}

/// Runs what the arguments ask for.
pub fn run(args: &SimArgs) -> Result<(), CommandError> {
    run_with(args, &Extensions::default())
}

/// Runs what the arguments ask for, which may name extensions.
fn run_with(args: &SimArgs, extensions: &Extensions) -> Result<(), CommandError> {
    if let Some(jobs) = args.jobs.filter(|jobs| !(1..=MAX_JOBS).contains(jobs)) {
        return Err(CommandError::Usage(format!("--jobs {jobs}: expected 1 to {MAX_JOBS} runs at a time")));
    }
    if let Some(threads) = args.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
        return Err(CommandError::Usage(format!("--threads {threads}: expected 1 to {MAX_THREADS} threads for a run")));
    }
    check_sweep(args)?;
    replay::check(&args.schedule, &unscheduled(args))?;
    let (file, text) = experiment(args)?;
    let mut batch = batch(args, file, extensions)?;
    if args.schedule.replay.is_some() {
        let ([experiment], [seed]) = (&batch.experiments[..], &batch.seeds[..]) else {
            return Err(CommandError::Usage("--replay replays one run: expected one case and one seed".into()));
        };
        let json = args.json.as_deref().map(OutFile::open).transpose().map_err(CommandError::Usage)?;
        return replay::run(&args.schedule, experiment.clone(), *seed, &batch.origin, json);
    }
    let read = |other: &beside::Other| other.read().map_err(|e| CommandError::Usage(format!("--beside: {e}")));
    let others = args.beside.as_ref().map(read).transpose()?;
    let files = Files::open(args)?;
    let how = How {
        args: &args.sweep,
        who: args.sweep.who(WHO),
        jobs: args.jobs.unwrap_or_else(|| concurrent_jobs(batch.threads)),
        threads: batch.threads,
    };
    let simulations = Simulations {
        batch: &batch,
        command: if args.summaries_only { "sim, summaries" } else { "sim" },
        replay: &|case, seed| execute::replay(&batch.cases[case], seed),
        experiment: text.as_deref(),
    };
    let Some((runs, irnic)) = simulations.perform(&how)? else { return Ok(()) };
    batch.origin = args.sweep.origin(&irnic);
    note_alone(&runs);
    let report = Report::of(&batch, &runs);
    // Files are written before the table, whose reader may close its pipe, and existing ones are worth more than those
    // of no run.
    let mut failed = if runs.iter().any(|run| run.result.is_ok()) { files.write(&report) } else { Vec::new() };
    table::print(&report);
    println!("{}", batch.origin);
    if let Some((other, flows)) = args.beside.as_ref().zip(others) {
        irnic_report::output::print(&beside::text(other, &flows, &batch, &runs));
    }
    // This depends on the machine, unlike the results.
    if args.sweep.out.is_none() && std::io::stderr().is_terminal() {
        eprintln!("{WHO}: {}", table::speed(&runs));
    }
    failed.extend(runs.iter().filter_map(|run| match &run.result {
        Err(NoResult::Failed(why)) => Some(format!("{}: {why}", batch.name(run))),
        _ => None,
    }));
    let failed = if failed.is_empty() { Ok(()) } else { Err(CommandError::Failed(failed.join("\n"))) };
    let cut = match &runs[..] {
        [Run { result: Ok(alone), .. }] => alone.interrupted.then_some(CommandError::Interrupted),
        several => Some(Reached::by(several))
            .filter(Reached::is_short)
            .map(|reached| CommandError::Partial(reached.to_string())),
    };
    let Some(cut) = cut else { return failed };
    if let Err(failed) = failed {
        failed.report(WHO);
    }
    Err(cut)
}

/// Returns the options that are incompatible with schedules, and whether they were given.
fn unscheduled(args: &SimArgs) -> Vec<(&'static str, bool)> {
    let mut all = vec![("--out", args.sweep.out.is_some()), ("--pcap", args.pcap.pcap.is_some())];
    if args.schedule.replay.is_some() {
        let keys = ["workload", "flows", "load", "duration", "flows-count", "until", "sample", "service", "link-event"];
        let given = args.values();
        let flags = [
            "--workload",
            "--flows",
            "--load",
            "--duration",
            "--flows-count",
            "--until",
            "--sample",
            "--service",
            "--link-event",
        ];
        all.extend(flags.into_iter().zip(keys).map(|(flag, key)| (flag, given.contains_key(key))));
        let files = [
            ("--csv", args.csv.is_some()),
            ("--per-flow", args.per_flow.is_some()),
            ("--series", args.series.is_some()),
            ("--html", args.html.is_some()),
            ("--beside", args.beside.is_some()),
            ("--threads", args.threads.is_some()),
            ("--verify", given.contains_key("verify")),
        ];
        all.extend(files);
    }
    all
}

/// Reports runs that --threads could not parallelize.
fn note_alone(runs: &[Run]) {
    let alone = runs.iter().filter_map(|run| run.result.as_ref().ok()?.alone.as_deref());
    let mut reasons: Vec<&str> = alone.collect();
    reasons.sort_unstable();
    for same in reasons.chunk_by(|a, b| a == b) {
        let runs = if runs.len() == 1 { String::new() } else { format!("{} runs ", same.len()) };
        eprintln!("{WHO}: --threads: {runs}on one thread: {}", same[0]);
    }
}

/// Result files.
struct Files {
    per_flow: Option<(OutFile, per_flow::Kind)>,
    record: Option<(OutFile, per_flow::Kind)>,
    json: Option<OutFile>,
    csv: Option<OutFile>,
    series: Option<OutFile>,
    html: Option<OutFile>,
}

impl Files {
    /// Opens the files, which detects those that cannot be written.
    fn open(args: &SimArgs) -> Result<Files, CommandError> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OutFile::open).transpose().map_err(CommandError::Usage);
        let kind = |option, path: &Option<PathBuf>| {
            path.as_deref().map(|path| per_flow::Kind::of(option, path)).transpose().map_err(CommandError::Usage)
        };
        Ok(Files {
            per_flow: open(&args.per_flow)?.zip(kind("--per-flow", &args.per_flow)?),
            record: open(&args.schedule.record)?.zip(kind("--record", &args.schedule.record)?),
            json: open(&args.json)?,
            csv: open(&args.csv)?,
            series: open(&args.series)?,
            html: open(&args.html)?,
        })
    }

    /// Writes all files. Returns the errors.
    fn write(self, report: &Report<'_>) -> Vec<String> {
        let Report { batch, runs, .. } = report;
        let alone = runs.iter().find_map(|run| run.result.as_ref().ok());
        let schedule = alone.filter(|run| !run.interrupted).and_then(|run| run.schedule.as_ref());
        // Packets in flight would be missing, so that packets sent shortly after them could not be replayed.
        let cut = (self.record.is_some() && alone.is_some_and(|run| run.interrupted))
            .then(|| "--record: nothing is written of a run that was interrupted".to_owned());
        let written = [
            self.per_flow.map(|(file, kind)| file.write(|to| per_flow::write(to, kind, batch, runs))),
            self.record.zip(schedule).map(|((file, kind), schedule)| {
                file.write(|to| schedule_file::write(to, kind, &batch.origin, schedule))
            }),
            self.json.map(|file| file.write(|to| summary_json::write(to, batch, runs))),
            self.csv.map(|file| file.write(|to| csv::write(to, batch, runs))),
            self.series.map(|file| file.write(|to| series::write(to, batch, runs))),
            self.html.map(|file| file.write(|to| html::write(to, report))),
        ];
        written.into_iter().flatten().filter_map(Result::err).chain(cut).collect()
    }
}

/// Entry point of the subcommand.
pub fn main(args: &SimArgs) -> ExitCode {
    main_with(args, &Extensions::default())
}

/// Entry point of a program with congestion control or switches of its own: all of `irnic sim`, whose `--cc` and
/// `--switch` also accept the names of `extensions`. Results are printed and written as the arguments say. Returns the
/// exit status: 0 done, 1 failed, 2 bad arguments, 130 interrupted.
pub fn main_with(args: &SimArgs, extensions: &Extensions) -> ExitCode {
    heap::prefer_large_pages();
    match run_with(args, extensions) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(WHO),
    }
}
