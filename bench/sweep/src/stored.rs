//! A sweep with stored results: performs the missing runs, and reports the state.

use std::collections::BTreeSet;
use std::path::Path;

use irnic_report::{CommandError, version};

use crate::command_line::{self, Split};
use crate::folder::{Folder, Manifest, Named, State};
use crate::progress::STEPS;
use crate::runs::{How, NoResult, Performed, Sweep, all_named, case_and_seed, cost};
use crate::shard::Shard;
use crate::supervise::{self, End, Job, Supervised, Team};
use crate::worker::{too_large, too_long};

/// Performs the runs of the shard, or all, that have no result in the folder yet.
pub fn perform<S: Sweep>(sweep: &S, how: &How<'_>, out: &Path) -> Result<Option<Performed<S::Result>>, CommandError> {
    let args = how.args;
    let split = Split::of(&command_line::given()?);
    let all = all_named(sweep)?;
    let estimates: Vec<f64> = (0..sweep.cases()).map(|case| sweep.estimate(case)).collect();
    let mine = mine(sweep, args.shard, &all, &estimates);
    // First of all, so that an invalid sweep leaves no folder.
    let cases: BTreeSet<usize> = mine.iter().map(|at| case_and_seed(sweep, *at).0).collect();
    cases.into_iter().try_for_each(|case| sweep.check(case))?;
    let folder = Folder::create(out)?;
    describe(sweep, &split, &folder, args.resume)?;

    let mut tally = Tally { runs: mine.len(), ..Tally::default() };
    let jobs = left(sweep, how, &folder, mine.into_iter().map(|at| (at, all[at].clone())), &estimates, &mut tally);
    let interrupted = irnic_report::interrupt::flag().map_err(|e| CommandError::Failed(e.to_string()))?;
    let mut arguments = split.what.clone();
    arguments.extend(split.keep(&["out", "threads", "run-memory"]));
    arguments.push("--worker".to_owned());
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let team = Team {
        arguments,
        workers: if how.jobs == 0 { cores() } else { how.jobs },
        timeout: args.run_timeout,
        memory: args.run_memory,
        folder: &folder,
        interrupted: &interrupted,
        who: how.who,
    };
    let Supervised { ends, stop } = supervise::all(jobs, &team);
    tally.add(&ends);
    eprintln!("{}: {}{tally}", how.who, args.shard.map_or(String::new(), |shard| format!("shard {shard}: ")));
    if let Some(why) = stop {
        return Err(CommandError::Failed(why));
    }
    if args.shard.is_some() {
        return tally.conclude().map(|()| None);
    }
    let cut: BTreeSet<usize> =
        ends.iter().filter(|(_, end)| matches!(end, End::Interrupted)).map(|(at, _)| *at).collect();
    let result = |(at, named): (usize, &Named)| match folder.state(named, version::get()) {
        State::Done(_) => {
            let mut result = folder.load(named, version::get()).map_err(NoResult::Failed)?;
            sweep.trim(&mut result);
            Ok(result)
        }
        State::Failed(failure) => Err(NoResult::Failed(failure.message)),
        State::Damaged(why) => Err(NoResult::Failed(why)),
        State::Missing if cut.contains(&at) => Err(NoResult::Interrupted),
        State::Missing => Err(NoResult::NeverBegun),
    };
    let results = all.iter().enumerate().map(result).collect();
    Ok(Some(Performed { results, irnic: version::get().to_owned() }))
}

/// Returns the indices of the runs of a shard, or of all: the longest first.
fn mine<S: Sweep>(sweep: &S, shard: Option<Shard>, all: &[Named], estimates: &[f64]) -> Vec<usize> {
    // Cases may differ in name only.
    let mut seen = BTreeSet::new();
    let distinct: Vec<usize> = (0..all.len()).filter(|at| seen.insert(&all[*at].run)).collect();
    let of_run: Vec<f64> = distinct.iter().map(|at| estimates[case_and_seed(sweep, *at).0]).collect();
    let shard = shard.unwrap_or(Shard { number: 1, of: 1 });
    shard.deal(&of_run).into_iter().map(|at| distinct[at]).collect()
}

/// Returns those of some runs that have to be performed, and counts the others.
fn left<S: Sweep>(
    sweep: &S,
    how: &How<'_>,
    folder: &Folder,
    runs: impl Iterator<Item = (usize, Named)>,
    estimates: &[f64],
    tally: &mut Tally,
) -> Vec<Job> {
    let longest = estimates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let limits = [how.args.run_timeout.map(too_long), how.args.run_memory.map(too_large)];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let job = |(at, named): (usize, Named)| {
        let before = match folder.state(&named, version::get()) {
            State::Done(core_seconds) => {
                tally.there += 1;
                tally.core_seconds += core_seconds;
                return None;
            }
            State::Failed(failure) if failure.is_final(&limits) || !how.args.retry_failed => {
                tally.failed += 1;
                tally.failed_twice += usize::from(failure.is_final(&limits));
                return None;
            }
            State::Failed(failure) => Some(failure),
            State::Damaged(why) => {
                eprintln!("{}: {why}; {} is made again", how.who, named.name);
                None
            }
            State::Missing => None,
        };
        let (case, seed) = case_and_seed(sweep, at);
        // Long runs take more of the bar, and no run takes nothing.
        let steps = STEPS + (STEPS as f64 * 1_000.0 * estimates[case] / longest) as u64;
        Some(Job { at, named, before, replay: sweep.replay(case, seed), steps, again: false })
    };
    runs.filter_map(job).collect()
}

/// Writes the description of the sweep to the folder.
fn describe<S: Sweep>(sweep: &S, split: &Split, folder: &Folder, resume: bool) -> Result<(), CommandError> {
    let directory = std::env::current_dir().map_err(|e| CommandError::Failed(format!("the working directory: {e}")))?;
    let ours = Manifest {
        irnic: version::get().to_owned(),
        arguments: split.what.clone(),
        experiment: sweep.experiment().map(str::to_owned),
        directory,
    };
    match folder.manifest() {
        Ok(Some(there)) if (&there.arguments, &there.experiment) == (&ours.arguments, &ours.experiment) => {
            return Ok(());
        }
        Ok(None) => {}
        Ok(Some(_)) if resume => {}
        Ok(Some(there)) => {
            return Err(CommandError::Usage(format!(
                "--out: the folder has runs of another sweep, irnic {}{}; --resume goes on with this one there",
                command_line::quoted(&there.arguments),
                if there.arguments == ours.arguments { " with another experiment file" } else { "" }
            )));
        }
        // Perhaps it is another program's.
        Err(e) => return Err(CommandError::Failed(format!("{e}; expected that of a sweep of irnic, or none"))),
    }
    folder.describe(&ours)
}

/// Outcomes of the runs of this process.
#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    there: usize,
    done: usize,
    failed: usize,
    /// Failed twice with the same message, so that they are not repeated.
    failed_twice: usize,
    interrupted: usize,
    never_begun: usize,
    /// Sum over all completed runs.
    core_seconds: f64,
}

impl Tally {
    fn add(&mut self, ends: &[(usize, End)]) {
        for (_, end) in ends {
            match end {
                End::Done(core_seconds) => {
                    self.done += 1;
                    self.core_seconds += core_seconds;
                }
                End::Failed(is_final) => {
                    self.failed += 1;
                    self.failed_twice += usize::from(*is_final);
                }
                End::Interrupted => self.interrupted += 1,
                End::NeverBegun => self.never_begun += 1,
            }
        }
    }

    /// The status of a shard is that of its worst run.
    fn conclude(&self) -> Result<(), CommandError> {
        if self.interrupted + self.never_begun > 0 {
            return Err(CommandError::Kept);
        }
        match self.failed {
            0 => Ok(()),
            1 => Err(CommandError::Failed("a run failed".to_owned())),
            n => Err(CommandError::Failed(format!("{n} runs failed"))),
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { runs, there, done, failed, failed_twice, interrupted, never_begun, core_seconds } = self;
        write!(f, "{runs} runs: {done} made")?;
        for (n, what) in [
            (there, "there before"),
            (failed, "failed"),
            (failed_twice, "of them twice with the same message"),
            (interrupted, "interrupted"),
            (never_begun, "never begun"),
        ] {
            if *n > 0 {
                write!(f, ", {n} {what}")?;
            }
        }
        write!(f, "; {}", cost(*core_seconds))?;
        match failed - failed_twice {
            0 => Ok(()),
            n => write!(f, "; --retry-failed makes {n} once more"),
        }
    }
}
