//! `irnic merge`: the results of a folder, as one process would have shown them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser};
use irnic_report::CommandError;
use irnic_report::output::DASH;

use super::folder::{Folder, State, VERSION};
use super::words::{self, Split, quoted};
use super::{NoResult, Performed, Sweep, all_named, cost};
use crate::Command;

/// Who speaks on standard error.
const WHO: &str = "irnic merge";
/// Missing runs that are named.
const NAMED: usize = 10;

const AFTER_HELP: &str = "\
What comes out is what one process that makes all runs would write, byte for byte. Files that the
command line of the runs names are looked for from where that was given.
Exit status: 0 done, 1 runs are missing, damaged or failed, 2 bad arguments or files.

Examples:
  irnic sim --experiment grid.toml --out runs/ --shard 1/2    here
  irnic sim --experiment grid.toml --out runs/ --shard 2/2    there
  irnic merge runs/ --json summary.json --html report.html --per-flow flows.csv
  irnic merge runs/ --partial                                 what there is so far";

/// Put the results of a sweep together, from the folder of --out.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct MergeArgs {
    /// Folder of results
    dir: PathBuf,
    /// Do without runs that are missing
    #[arg(long)]
    partial: bool,
    /// Take results of several versions of irnic
    #[arg(long)]
    mixed_versions: bool,
    /// Summaries of all runs, or cells; - is standard output, in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
    /// irnic sim: every flow, as CSV or Parquet; - is standard output, as CSV, in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    per_flow: Option<PathBuf>,
    /// irnic sim: queues and rates over time, as CSV; - is standard output, in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    series: Option<PathBuf>,
    /// irnic sim: report with plots; - is standard output, in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// irnic reproduce: JUnit's XML, a test case for each cell; - is standard output, in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    junit: Option<PathBuf>,
    /// irnic reproduce: draw the figures there
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    svg: Option<PathBuf>,
}

/// How results are put together.
#[derive(Clone, Debug)]
pub struct Merging {
    /// Runs may be missing.
    partial: bool,
    /// Results may be of several versions.
    mixed: bool,
    /// The text of the experiment file, as it was.
    pub experiment: Option<String>,
}

/// Runs `irnic merge`.
pub fn main(args: &MergeArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(WHO),
    }
}

/// Has the command whose runs they are take the results.
fn run(args: &MergeArgs) -> Result<(), CommandError> {
    let whole =
        |path: &Path| std::path::absolute(path).map_err(|e| CommandError::Usage(format!("{}: {e}", path.display())));
    let dir = whole(&args.dir)?;
    let none = || CommandError::Usage(format!("{}: no sweep.json; expected a folder of --out", args.dir.display()));
    let manifest = Folder::open(&dir).manifest()?.ok_or_else(none)?;
    let mut words = vec!["irnic".into()];
    // Where results go, the one who merges says.
    words.extend(Split::of(&manifest.arguments).what.into_iter().map(std::ffi::OsString::from));
    let files = [
        ("--out", Some(&dir)),
        ("--json", args.json.as_ref()),
        ("--junit", args.junit.as_ref()),
        ("--per-flow", args.per_flow.as_ref()),
        ("--series", args.series.as_ref()),
        ("--html", args.html.as_ref()),
        ("--svg", args.svg.as_ref()),
    ];
    for (option, path) in files.iter().filter_map(|(option, path)| Some((option, (*path)?))) {
        // A name that is not there yet has no folder of its own to be found in; standard output has none either.
        let path = if path.as_os_str() == DASH { path.clone() } else { whole(path)? };
        words.extend([(*option).into(), path.into_os_string()]);
    }
    // On another machine there may be no such folder, and no such files need be named.
    let _ = std::env::set_current_dir(&manifest.directory);
    let merging =
        Merging { partial: args.partial, mixed: args.mixed_versions, experiment: manifest.experiment.clone() };
    let of = || format!("{}: of irnic {}", args.dir.display(), quoted(&manifest.arguments));
    match Command::try_parse_from(words) {
        Ok(Command::Sim(mut sim)) => {
            sim.sweep.merging = Some(merging);
            crate::sim::run(&sim)
        }
        Ok(Command::Reproduce(mut reproduce)) => {
            reproduce.sweep().merging = Some(merging);
            crate::reproduce::run(&reproduce)
        }
        Ok(_) => Err(CommandError::Usage(format!("{}, which has no runs", of()))),
        Err(e) => Err(CommandError::Usage(format!("{}; {}", crate::one_line(&e), of()))),
    }
}

/// Returns the results of all runs.
pub fn results<S: Sweep>(sweep: &S, out: &Path, merging: &Merging) -> Result<Performed<S::Result>, CommandError> {
    let folder = Folder::open(out);
    let all = all_named(sweep)?;
    let by = |version: &str| -> Vec<State> { all.iter().map(|named| folder.state(named, version)).collect() };
    let missing = |states: &[State]| states.iter().filter(|state| matches!(state, State::Missing)).count();
    let mut versions = vec![(VERSION.to_owned(), by(VERSION))];
    if missing(&versions[0].1) > 0 {
        let others = folder.versions().into_iter().filter(|version| version != VERSION);
        versions.extend(others.map(|version| (version.clone(), by(&version))));
        // The version that has most, this one before others.
        versions.sort_by_key(|(_, states)| missing(states));
    }

    let mut results = Vec::with_capacity(all.len());
    let mut used: Vec<(&str, usize)> = Vec::new();
    let (mut gaps, mut core_seconds) = (Vec::new(), 0.0);
    for (at, named) in all.iter().enumerate() {
        let found = versions.iter().find(|(_, states)| !matches!(states[at], State::Missing));
        let Some((version, states)) = found else {
            gaps.push(named.name.as_str());
            results.push(Err(NoResult::Missing));
            continue;
        };
        results.push(match &states[at] {
            State::Done(took) => {
                core_seconds += took;
                let mut result = folder.load(named, version).map_err(CommandError::Failed)?;
                sweep.trim(&mut result);
                Ok(result)
            }
            State::Failed(failure) => Err(NoResult::Failed(failure.message.clone())),
            State::Damaged(why) => {
                eprintln!("{WHO}: {why}");
                gaps.push(named.name.as_str());
                Err(NoResult::Missing)
            }
            State::Missing => Err(NoResult::Missing),
        });
        match used.iter_mut().find(|(of, _)| of == version) {
            Some((_, n)) => *n += 1,
            None => used.push((version, 1)),
        }
    }
    if used.len() > 1 && !merging.mixed {
        used.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let each: Vec<String> = used.iter().map(|(version, n)| format!("{n} by irnic {version}")).collect();
        return Err(CommandError::Failed(format!(
            "results are of several versions, {}: --mixed-versions takes them all",
            each.join(", ")
        )));
    }
    if !gaps.is_empty() {
        let more = gaps.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = gaps[..gaps.len().min(NAMED)].join("; ");
        let said = format!("{} of {} runs are missing: {named}{more}", gaps.len(), all.len());
        if !merging.partial {
            let mut command = vec!["irnic".to_owned()];
            command.extend(folder.manifest()?.map_or(Vec::new(), |manifest| manifest.arguments));
            command.extend(["--out".to_owned(), words::path(out)]);
            return Err(CommandError::Failed(format!(
                "{said}\n{} makes them; --partial does without",
                quoted(&command)
            )));
        }
        eprintln!("{WHO}: {said}");
    }
    eprintln!("{WHO}: {} of {} runs; {}", all.len() - gaps.len(), all.len(), cost(core_seconds));
    // What one process of that version calls itself.
    let mut irnic: Vec<&str> = used.iter().filter_map(|(version, _)| version.split(' ').next()).collect();
    irnic.sort_unstable();
    irnic.dedup();
    Ok(Performed { results, irnic: irnic.join("+") })
}
