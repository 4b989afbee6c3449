//! What a command says of its runs, and what becomes of them.

use std::sync::atomic::{AtomicBool, Ordering};

use irnic_report::CommandError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::SweepArgs;
use crate::folder::{Named, digest};
use crate::progress::STEPS;

/// Runs that belong together: each case with each seed.
pub trait Sweep: Sync {
    /// What comes of a run. It is stored and read again without a loss.
    type Result: Serialize + DeserializeOwned + Send;

    /// Returns the command that they are of.
    fn command(&self) -> &str;

    /// Returns how many cases there are.
    fn cases(&self) -> usize;

    /// Returns the seeds of each case.
    fn seeds(&self) -> &[u64];

    /// Returns what a case is called.
    fn label(&self, case: usize) -> String;

    /// Returns all that the results of a case depend on, apart from the seed and irnic's version.
    fn settings(&self, case: usize) -> Result<String, CommandError>;

    /// Finds what makes no sense before the case is run.
    fn check(&self, case: usize) -> Result<(), CommandError>;

    /// Returns how long a run may take beside those of other cases: the hosts' rate times load times duration, in bits.
    fn estimate(&self, case: usize) -> f64;

    /// Returns the command line that makes a run alone.
    fn replay(&self, case: usize, seed: u64) -> String;

    /// Makes a run.
    fn make(&self, case: usize, seed: u64, watch: &Watch<'_>) -> Result<Self::Result, NoResult>;

    /// Drops of a result what nobody asked for.
    fn trim(&self, _: &mut Self::Result) {}

    /// Returns the text of the experiment file, if there is one.
    fn experiment(&self) -> Option<&str> {
        None
    }
}

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoResult {
    /// It went wrong.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C ended it, and others have results: a part of a run is not compared with whole ones.
    #[error("interrupted")]
    Interrupted,
    /// Ctrl-C came before its turn.
    #[error("never begun")]
    NeverBegun,
    /// Nobody has made it yet.
    #[error("missing")]
    Missing,
}

impl NoResult {
    /// Returns whether Ctrl-C is why.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, NoResult::Interrupted | NoResult::NeverBegun)
    }
}

/// Who watches over a run, or a part of it: Ctrl-C, and the bar.
pub struct Watch<'a> {
    interrupted: &'a AtomicBool,
    steps: &'a (dyn Fn(u64) + Sync),
    alone: bool,
    /// Steps of what is watched: [`STEPS`] of a run.
    all: u64,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(interrupted: &'a AtomicBool, steps: &'a (dyn Fn(u64) + Sync), alone: bool) -> Watch<'a> {
        Watch { interrupted, steps, alone, all: STEPS }
    }

    /// Returns who watches over one of `parts` of about the same length.
    pub fn part(&self, parts: usize) -> Watch<'a> {
        Watch { all: self.all / parts.max(1) as u64, ..*self }
    }

    /// Returns whether the run is to end now.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns whether it is the only run, of which what there is until Ctrl-C is shown.
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Returns what takes note of how far it is.
    pub fn begin(&self) -> Advance<'_> {
        Advance { watch: self, at: 0 }
    }
}

/// How far a run is, or a part of one, which is over when this is dropped.
pub struct Advance<'a> {
    watch: &'a Watch<'a>,
    at: u64,
}

impl Advance<'_> {
    /// It is so far, from 0 to 1. Going back counts as standing still.
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
    /// Version of irnic that made them, or several.
    pub irnic: String,
}

/// How a command has its runs made.
pub struct How<'a> {
    /// Options.
    pub args: &'a SweepArgs,
    /// Who speaks on standard error.
    pub who: &'static str,
    /// Runs at a time; 0 for one for each core.
    pub jobs: usize,
    /// Threads of a run.
    pub threads: usize,
}

/// Returns a run's place in [`Performed::results`] as a case and a seed.
pub fn case_and_seed<S: Sweep>(sweep: &S, at: usize) -> (usize, u64) {
    let seeds = sweep.seeds();
    (at / seeds.len(), seeds[at % seeds.len()])
}

/// Returns what a run is called.
pub fn name<S: Sweep>(sweep: &S, case: usize, seed: u64) -> String {
    let label = sweep.label(case);
    if sweep.seeds().len() > 1 { format!("{label} seed={seed}") } else { label }
}

/// Returns what a run is by its settings.
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

/// Makes a run; a panic is a failure of this run.
pub fn make<S: Sweep>(sweep: &S, case: usize, seed: u64, watch: &Watch<'_>) -> Result<S::Result, NoResult> {
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sweep.make(case, seed, watch)));
    made.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(NoResult::Failed(format!("panic: {text}")))
    })
}

/// Returns core time in words.
pub fn cost(core_seconds: f64) -> String {
    if core_seconds < 360.0 {
        format!("{core_seconds:.1} s of core time")
    } else {
        format!("{:.2} core-hours", core_seconds / 3_600.0)
    }
}
