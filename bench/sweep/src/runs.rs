//! The interface between a command and its runs.

use std::sync::atomic::{AtomicBool, Ordering};

use irnic_report::CommandError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::SweepArgs;
use crate::folder::{Named, digest};
use crate::progress::STEPS;

/// A set of runs: each case with each seed.
pub trait Sweep: Sync {
    /// Result of a run. It must survive serialization without loss.
    type Result: Serialize + DeserializeOwned + Send;

    /// Returns the name of the command.
    fn command(&self) -> &str;

    /// Returns the number of cases.
    fn cases(&self) -> usize;

    /// Returns the seeds of each case.
    fn seeds(&self) -> &[u64];

    /// Returns the name of a case.
    fn label(&self, case: usize) -> String;

    /// Returns everything that the results of a case depend on, except the seed and irnic's version.
    fn settings(&self, case: usize) -> Result<String, CommandError>;

    /// Rejects an invalid case before it is run.
    fn check(&self, case: usize) -> Result<(), CommandError>;

    /// Returns the estimated run time relative to other cases: the hosts' rate times load times duration, in bits.
    fn estimate(&self, case: usize) -> f64;

    /// Returns the command line that repeats a run.
    fn replay(&self, case: usize, seed: u64) -> String;

    /// Performs a run.
    fn make(&self, case: usize, seed: u64, watch: &Watch<'_>) -> Result<Self::Result, NoResult>;

    /// Drops unneeded parts of a result.
    fn trim(&self, _: &mut Self::Result) {}

    /// Returns the text of the experiment file, if there is one.
    fn experiment(&self) -> Option<&str> {
        None
    }
}

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoResult {
    /// It failed.
    #[error("{0}")]
    Failed(String),
    /// It was ended by Ctrl-C, and others have results: partial runs are not compared with complete ones.
    #[error("interrupted")]
    Interrupted,
    /// It had not begun at Ctrl-C.
    #[error("never begun")]
    NeverBegun,
    /// It has not been performed yet.
    #[error("missing")]
    Missing,
}

impl NoResult {
    /// Returns whether Ctrl-C is the reason.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, NoResult::Interrupted | NoResult::NeverBegun)
    }
}

/// Cancellation and progress of a run, or of a part of it.
pub struct Watch<'a> {
    interrupted: &'a AtomicBool,
    steps: &'a (dyn Fn(u64) + Sync),
    alone: bool,
    /// Steps of this part: [`STEPS`] for a run.
    all: u64,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(interrupted: &'a AtomicBool, steps: &'a (dyn Fn(u64) + Sync), alone: bool) -> Watch<'a> {
        Watch { interrupted, steps, alone, all: STEPS }
    }

    /// Returns the watch of one of `parts` of about the same length.
    pub fn part(&self, parts: usize) -> Watch<'a> {
        Watch { all: self.all / parts.max(1) as u64, ..*self }
    }

    /// Returns whether the run is to be cancelled.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns whether it is the only run, whose partial results are shown after Ctrl-C.
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Returns a progress reporter.
    pub fn begin(&self) -> Advance<'_> {
        Advance { watch: self, at: 0 }
    }
}

/// Progress of a run, or of a part of one; dropping it completes the part.
pub struct Advance<'a> {
    watch: &'a Watch<'a>,
    at: u64,
}

impl Advance<'_> {
    /// Sets the progress, from 0 to 1. It never decreases.
    pub fn to(&mut self, share: f64) {
        let at = ((share * self.watch.all as f64) as u64).clamp(self.at, self.watch.all);
        (self.watch.steps)(at - self.at);
        self.at = at;
    }
}

impl Drop for Advance<'_> {
    fn drop(&mut self) {
        self.to(1.0);
    }
}

/// Results of all runs.
pub struct Performed<T> {
    /// In the order of cases, and within a case of seeds.
    pub results: Vec<Result<T, NoResult>>,
    /// Version of irnic that produced them, or several.
    pub irnic: String,
}

/// How a command's runs are performed.
pub struct How<'a> {
    /// Options.
    pub args: &'a SweepArgs,
    /// Prefix of messages on standard error.
    pub who: &'static str,
    /// Number of concurrent runs; 0 for one per core.
    pub jobs: usize,
    /// Threads of a run.
    pub threads: usize,
}

/// Returns the case and the seed for an index in [`Performed::results`].
pub fn case_and_seed<S: Sweep>(sweep: &S, at: usize) -> (usize, u64) {
    let seeds = sweep.seeds();
    (at / seeds.len(), seeds[at % seeds.len()])
}

/// Returns the name of a run.
pub fn name<S: Sweep>(sweep: &S, case: usize, seed: u64) -> String {
    let label = sweep.label(case);
    if sweep.seeds().len() > 1 { format!("{label} seed={seed}") } else { label }
}

/// Returns the identity of a run, derived from its settings.
pub fn named<S: Sweep>(sweep: &S, case: usize, settings: &str, seed: u64) -> Named {
    let run = digest(&[sweep.command(), settings, &seed.to_string()]);
    Named { run, name: name(sweep, case, seed), seed }
}

/// Returns all runs, in order.
pub fn all_named<S: Sweep>(sweep: &S) -> Result<Vec<Named>, CommandError> {
    let mut all = Vec::with_capacity(sweep.cases() * sweep.seeds().len());
    for case in 0..sweep.cases() {
        let settings = digest(&[&sweep.settings(case)?]);
        all.extend(sweep.seeds().iter().map(|seed| named(sweep, case, &settings, *seed)));
    }
    Ok(all)
}

/// Performs a run; a panic counts as a failure of this run.
pub fn make<S: Sweep>(sweep: &S, case: usize, seed: u64, watch: &Watch<'_>) -> Result<S::Result, NoResult> {
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sweep.make(case, seed, watch)));
    made.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(NoResult::Failed(format!("panic: {text}")))
    })
}

/// Formats core time in words.
pub fn cost(core_seconds: f64) -> String {
    if core_seconds < 360.0 {
        format!("{core_seconds:.1} s of core time")
    } else {
        format!("{:.2} core-hours", core_seconds / 3_600.0)
    }
}
