//! Performs runs in this process, by default as many at a time as there are cores.

use std::sync::atomic::{AtomicBool, Ordering};

use irnic_report::CommandError;
use rayon::prelude::*;

use crate::progress::{Progress, STEPS};
use crate::runs::{NoResult, Sweep, Watch, case_and_seed, make};

/// Performs all runs, `jobs` at a time or, with 0, one per core. Results are in the order of cases, and within a case
/// of seeds, regardless of the order of completion.
pub fn all<S: Sweep>(
    sweep: &S,
    jobs: usize,
    interrupted: &AtomicBool,
) -> Result<Vec<Result<S::Result, NoResult>>, CommandError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
    let pool = pool.map_err(|e| CommandError::Failed(format!("threads: {e}")))?;
    let runs = sweep.cases() * sweep.seeds().len();
    let progress = Progress::new(runs, runs as u64 * STEPS);
    let add = |more| progress.add(more);
    let watch = Watch::new(interrupted, &add, runs == 1);
    let results = pool.install(|| {
        let each = (0..runs).into_par_iter().with_max_len(1).map(|at| {
            if !watch.is_alone() && interrupted.load(Ordering::Relaxed) {
                return Err(NoResult::NeverBegun);
            }
            let (case, seed) = case_and_seed(sweep, at);
            make(sweep, case, seed, &watch)
        });
        each.collect()
    });
    progress.finish();
    Ok(results)
}
