//! Merges the results of a folder, as if all runs had been performed by one process.

use std::path::Path;

use irnic_report::{CommandError, version};

use crate::args::Merging;
use crate::command_line::{self, quoted};
pub use crate::folder::Manifest;
use crate::folder::{Folder, State};
use crate::runs::{NoResult, Performed, Sweep, all_named, cost};

/// Prefix of messages on standard error.
const WHO: &str = "irnic merge";
/// Number of missing runs that are listed.
const NAMED: usize = 10;

/// Returns the description of a folder's sweep; `None` if it is not a folder of results.
pub fn manifest(out: &Path) -> Result<Option<Manifest>, CommandError> {
    Folder::open(out).read_only()?.manifest()
}

/// Returns the results of all runs.
pub fn results<S: Sweep>(sweep: &S, out: &Path, merging: &Merging) -> Result<Performed<S::Result>, CommandError> {
    let folder = Folder::open(out);
    let all = all_named(sweep)?;
    let by = |version: &str| -> Vec<State> { all.iter().map(|named| folder.state(named, version)).collect() };
    let missing = |states: &[State]| states.iter().filter(|state| matches!(state, State::Missing)).count();
    let mut versions = vec![(version::get().to_owned(), by(version::get()))];
    if missing(&versions[0].1) > 0 {
        let others = folder.versions().into_iter().filter(|version| version != version::get());
        versions.extend(others.map(|version| (version.clone(), by(&version))));
        // The version with most results, this one first if equal.
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
            command.extend(["--out".to_owned(), command_line::path(out)]);
            return Err(CommandError::Failed(format!(
                "{said}\n{} makes them; --partial does without",
                quoted(&command)
            )));
        }
        eprintln!("{WHO}: {said}");
    }
    eprintln!("{WHO}: {} of {} runs; {}", all.len() - gaps.len(), all.len(), cost(core_seconds));
    let mut irnic: Vec<&str> = used.iter().map(|(version, _)| *version).collect();
    irnic.sort_unstable();
    Ok(Performed { results, irnic: irnic.join("+") })
}
