//! `irnic merge`: shows the results of a folder as if they were from one process.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser};
use irnic_report::CommandError;
use irnic_report::output::DASH;
use irnic_report::usage::one_line;
use irnic_sweep::{Merging, quoted};

use irnic_reproduce as reproduce;
use irnic_sim as sim;

use crate::Command;

/// Prefix of messages on standard error.
const WHO: &str = "irnic merge";

const AFTER_HELP: &str = "\
The output is what one process that performs all runs would write, byte for byte. Files named on the
command line of the runs are looked up from the directory in which it was given.
Exit status: 0 done, 1 runs are missing, damaged or failed, 2 bad arguments or files.

Examples:
  irnic sim --experiment grid.toml --out runs/ --shard 1/2    on one machine
  irnic sim --experiment grid.toml --out runs/ --shard 2/2    on another
  irnic merge runs/ --json summary.json --html report.html --per-flow flows.csv
  irnic merge runs/ --partial                                 the results so far";

/// Merge the results of a sharded sweep, from the folder of --out.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct MergeArgs {
    /// Folder with the results
    dir: PathBuf,
    /// Ignore missing runs
    #[arg(long)]
    partial: bool,
    /// Accept results of different versions of irnic
    #[arg(long)]
    mixed_versions: bool,
    /// Write summaries of all runs, or cells, as JSON; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
    /// Write a line per case and seed, or per cell, as CSV; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    csv: Option<PathBuf>,
    /// irnic sim: write every flow as CSV or Parquet; - writes CSV to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    per_flow: Option<PathBuf>,
    /// irnic sim: write queues and rates over time as CSV; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    series: Option<PathBuf>,
    /// irnic sim: write an HTML report with plots; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// irnic reproduce: write JUnit XML, a test case per cell; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    junit: Option<PathBuf>,
    /// irnic reproduce: write the figures to this folder
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    svg: Option<PathBuf>,
}

/// Runs `irnic merge`.
pub fn main(args: &MergeArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(WHO),
    }
}

/// Has the command of the folder's runs process the results.
fn run(args: &MergeArgs) -> Result<(), CommandError> {
    let whole =
        |path: &Path| std::path::absolute(path).map_err(|e| CommandError::Usage(format!("{}: {e}", path.display())));
    let dir = whole(&args.dir)?;
    let none = || CommandError::Usage(format!("{}: no sweep.json; expected a folder of --out", args.dir.display()));
    let manifest = irnic_sweep::merge::manifest(&dir)?.ok_or_else(none)?;
    let mut arguments = vec!["irnic".into()];
    // Result files are determined by the command line of the merge.
    arguments.extend(manifest.what().into_iter().map(std::ffi::OsString::from));
    let files = [
        ("--out", Some(&dir)),
        ("--json", args.json.as_ref()),
        ("--csv", args.csv.as_ref()),
        ("--junit", args.junit.as_ref()),
        ("--per-flow", args.per_flow.as_ref()),
        ("--series", args.series.as_ref()),
        ("--html", args.html.as_ref()),
        ("--svg", args.svg.as_ref()),
    ];
    for (option, path) in files.iter().filter_map(|(option, path)| Some((option, (*path)?))) {
        // A new file's directory cannot be resolved from the file itself; standard output has none either.
        let path = if path.as_os_str() == DASH { path.clone() } else { whole(path)? };
        arguments.extend([(*option).into(), path.into_os_string()]);
    }
    // On another machine the folder may not exist, and the files named may not be needed.
    let _ = std::env::set_current_dir(&manifest.directory);
    let merging = Merging {
        partial: args.partial,
        mixed: args.mixed_versions,
        experiment: manifest.experiment.clone(),
        what: manifest.what(),
    };
    let of = || format!("{}: of irnic {}", args.dir.display(), quoted(&manifest.arguments));
    match Command::try_parse_from(arguments) {
        Ok(Command::Sim(mut sim)) => {
            sim.sweep().merging = Some(merging);
            sim::run(&sim)
        }
        Ok(Command::Reproduce(mut reproduce)) => {
            reproduce.sweep().merging = Some(merging);
            reproduce::run(&reproduce)
        }
        Ok(_) => Err(CommandError::Usage(format!("{}, which has no runs", of()))),
        Err(e) => Err(CommandError::Usage(format!("{}; {}", one_line(&e), of()))),
    }
}
