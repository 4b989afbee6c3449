//! Sweeps: many runs, each a case with a seed, performed by one process or by many, at once or in stages.
//!
//! A command describes its runs by [`Sweep`], and gets all results from [`perform`], in the order of cases and seeds.
//! Without `--out`, all runs are performed in this process (`local`). With it, each result is a file in a folder
//! (`folder`); `stored` finds the missing ones, and `supervise` has worker processes perform them (`worker`): a run
//! that panics, hangs or takes too much memory does not affect others. A shard (`shard`) is a part of the runs; `print`
//! writes scripts that start all shards. [`merge`] only reads results.

#[macro_use]
extern crate irnic_report;

mod args;
mod command_line;
mod folder;
mod local;
pub mod merge;
mod print;
mod progress;
mod runs;
mod shard;
mod stored;
mod supervise;
mod worker;

use irnic_report::{CommandError, version};

pub use args::{Engine, Merging, SweepArgs};
pub use command_line::{again, quoted};
pub use folder::digest;
pub use progress::Progress;
pub use runs::{Advance, How, NoResult, Performed, Sweep, Watch};
pub use shard::Shard;

/// Performs all runs, or loads their results. Returns `None` if there is nothing to show.
pub fn perform<S: Sweep>(sweep: &S, how: &How<'_>) -> Result<Option<Performed<S::Result>>, CommandError> {
    let args = how.args;
    let Some(out) = &args.out else {
        for case in 0..sweep.cases() {
            sweep.check(case)?;
        }
        let interrupted = irnic_report::interrupt::flag().map_err(|e| CommandError::Failed(e.to_string()))?;
        let results = local::all(sweep, how.jobs, &interrupted)?;
        return Ok(Some(Performed { results, irnic: version::get().to_owned() }));
    };
    if args.worker {
        return worker::work(sweep, out, args.run_memory).map(|()| None);
    }
    if let Some(merging) = &args.merging {
        return merge::results(sweep, out, merging).map(Some);
    }
    if let Some(engine) = args.print {
        return print::job(sweep, how, engine, out).map(|()| None);
    }
    stored::perform(sweep, how, out)
}

#[cfg(test)]
mod tests;
