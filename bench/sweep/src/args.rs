//! The options of sweeps, shared by all commands that perform runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use irnic_report::CommandError;
use irnic_report::origin::Origin;
use irnic_units as units;

use crate::command_line::{Split, given, quoted};
use crate::shard::{self, Shard};

/// Who starts the shards.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Job array for sbatch (Slurm)
    Slurm,
    /// Script for GNU parallel
    Parallel,
    /// Indexed Job for Kubernetes
    K8s,
}

/// How results are merged.
#[derive(Clone, Debug)]
pub struct Merging {
    /// Whether runs may be missing.
    pub partial: bool,
    /// Whether results may be of several versions.
    pub mixed: bool,
    /// The original text of the experiment file.
    pub experiment: Option<String>,
    /// The arguments of the runs, without those for where and how they were performed.
    pub what: Vec<String>,
}

/// Runs in parts, on several machines, again and again until all are done.
#[derive(Args, Clone, Debug, Default)]
pub struct SweepArgs {
    /// Store the result of each run in this folder, and skip runs that have one there; `irnic merge DIR` merges the
    /// results
    #[arg(long, value_name = "DIR", help_heading = "Sweep")]
    pub out: Option<PathBuf>,
    /// Perform part I of N of the runs; I is 1 to N
    #[arg(long, value_name = "I/N", requires = "out", help_heading = "Sweep")]
    pub shard: Option<Shard>,
    /// Continue in the folder of a different sweep: reuse results of the same runs and leave the others in place
    #[arg(long, requires = "out", help_heading = "Sweep")]
    pub resume: bool,
    /// Retry failed runs; a run that failed twice with the same message is final
    #[arg(long, requires = "out", help_heading = "Sweep")]
    pub retry_failed: bool,
    /// Fail runs that take longer than this, such as 90s, 30min or 4h
    #[arg(long, value_name = "TIME", requires = "out", value_parser = patience, help_heading = "Sweep")]
    pub run_timeout: Option<Duration>,
    /// Fail runs that use more memory than this, such as 500MB or 8GB
    #[arg(long, value_name = "SIZE", requires = "out", value_parser = memory, help_heading = "Sweep")]
    pub run_memory: Option<u64>,
    /// Print a job that starts the shards: for sbatch (Slurm), GNU parallel or Kubernetes
    #[arg(long, value_name = "ENGINE", requires_all = ["out", "shards"], conflicts_with = "shard", help_heading = "Sweep")]
    pub print: Option<Engine>,
    /// With --print: number of shards, 1 to 100000
    #[arg(long, value_name = "N", requires = "print", value_parser = clap::value_parser!(u64).range(1..=shard::MAX as u64))]
    #[arg(help_heading = "Sweep")]
    pub shards: Option<u64>,
    /// Perform the runs listed on standard input
    #[arg(long, requires = "out", hide = true)]
    pub worker: bool,
    /// Only put results together, for `irnic merge`.
    #[arg(skip)]
    pub merging: Option<Merging>,
}

impl SweepArgs {
    /// Rejects result files if there will be no results: options, and whether they were given.
    pub fn check(&self, files: &[(&str, bool)]) -> Result<(), CommandError> {
        match files.iter().find(|(_, given)| *given) {
            Some((file, _)) if self.shard.is_some() => {
                Err(CommandError::Usage(format!("{file}: a shard has a part of the results; `irnic merge` writes all")))
            }
            Some((file, _)) if self.print.is_some() => {
                Err(CommandError::Usage(format!("{file}: shards write no files of results; `irnic merge` does")))
            }
            _ => Ok(()),
        }
    }

    /// Returns how to get the results of runs again, whether they were performed here or are only put together.
    /// `irnic`: the version that performed them.
    pub fn origin(&self, irnic: &str) -> Origin {
        let what = match &self.merging {
            Some(merging) => merging.what.clone(),
            None => Split::of(&given().unwrap_or_default()).what,
        };
        // What is stored of a run is no part of it.
        let words = std::iter::once("irnic".to_owned()).chain(what).filter(|word| word != "--summaries-only");
        Origin { command: quoted(&words.collect::<Vec<_>>()), irnic: irnic.to_owned() }
    }

    /// Returns the prefix of messages on standard error for a command called `who`.
    pub fn who(&self, who: &'static str) -> &'static str {
        if self.merging.is_some() { "irnic merge" } else { who }
    }
}

fn patience(text: &str) -> Result<Duration, String> {
    let long = [("min", 60), ("h", 3_600)].iter().find_map(|(unit, seconds)| {
        let n: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        n.checked_mul(*seconds).map(Duration::from_secs)
    });
    let time = long.or_else(|| units::time(text).map(Duration::from_nanos));
    time.filter(|time| !time.is_zero()).ok_or_else(|| "expected a time such as 90s, 30min or 4h".to_owned())
}

fn memory(text: &str) -> Result<u64, String> {
    units::size(text).filter(|bytes| *bytes > 0).ok_or_else(|| "expected a size such as 500MB or 8GB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_may_be_long() {
        let seconds = ["90s", "30min", "4h", "500ms"].map(|text| patience(text).map(|time| time.as_secs_f64()));
        assert_eq!(seconds, [Ok(90.0), Ok(1_800.0), Ok(14_400.0), Ok(0.5)]);
        for text in ["0s", "soon", "4", "-1h", "99999999999999999999h", "9999999999999999999h"] {
            assert_eq!(patience(text), Err("expected a time such as 90s, 30min or 4h".to_owned()), "{text}");
        }
    }
}
