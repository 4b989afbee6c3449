//! `irnic reproduce ndp`: the simulations of NDP's paper, its numbers and those that its authors have committed beside
//! ours.
//!
//! [`reference`](mod@reference) reads what the paper and the authors' results say, [`scenario`] is what is run,
//! [`cells`] what of it is compared, [`measure`] runs it, [`table`] prints, [`picture`] draws.

mod cells;
mod measure;
mod picture;
mod reference;
mod scenario;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::Args;
use serde::Serialize;

use super::{Common, choose, time, write};
use crate::output::OutFile;
use crate::sim::SimError;
use scenario::{Scenario, Time};

/// What is measured of a quick look, ns.
const QUICK: Time = Time { from: 2_000_000, until: 5_000_000 };

/// §3.2, §5 and §6 of the NDP paper: permutations, incasts, links that fail, and short flows beside long ones.
///
/// What the text says and what the authors have committed with their simulator stand beside what comes out here, each
/// with the bounds between which it is a reproduction. MPTCP and pHost are not compared: there is neither here.
/// docs/reproduction-ndp.md tells what the paper leaves open and what was chosen.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce ndp --quick                            most of it in half a minute, roughly
  irnic reproduce ndp                                    all of it, a quarter of an hour on two cores
  irnic reproduce ndp --only figure16/ndp --seeds 5      one table, with confidence intervals
  irnic reproduce ndp --json ndp.json                    everything, for machines as well
  irnic reproduce ndp --only figure14 --svg .            Figure 14 as a picture, figure14.svg")]
pub struct NdpArgs {
    /// Only cells whose id begins so, such as figure14, figure16/ndp or uplink-trimming; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Rates of 2 to 5 ms instead of 5 to 20, and nothing that takes minutes
    #[arg(long, conflicts_with_all = ["warm_up", "until"])]
    quick: bool,
    /// What is not measured at the beginning of a run without end
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = time)]
    warm_up: u64,
    /// When such a run ends
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    until: u64,
    /// Draw the figures that some of the cells are of, as DIR/figure14.svg
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// What is written for machines.
#[derive(Serialize)]
struct Document<'a> {
    paper: &'static str,
    /// ns.
    from: u64,
    /// ns.
    until: u64,
    seeds: &'a [u64],
    cells: &'a [cells::Result],
}

/// Runs what the arguments ask for.
pub fn run(args: &NdpArgs) -> Result<(), SimError> {
    let time = if args.quick { QUICK } else { Time { from: args.warm_up, until: args.until } };
    if time.until < time.from + 2_000_000 {
        return Err(SimError::Usage("--until: expected at least 2 ms after --warm-up".to_owned()));
    }
    let mut cells = cells::ndp(&reference::ndp(), args.quick);
    choose(&mut cells, &args.only, |c| &c.id)?;
    let mut needed: Vec<Scenario> = Vec::new();
    for cell in &cells {
        for scenario in [Some(&cell.scenarios.0), cell.scenarios.1.as_ref().map(|(_, s)| s)].into_iter().flatten() {
            if !needed.contains(scenario) {
                needed.push(scenario.clone());
            }
        }
    }
    let json = args.common.open()?;
    if let Some(folder) = &args.svg {
        std::fs::create_dir_all(folder).map_err(|e| SimError::Usage(format!("--svg {}: {e}", folder.display())))?;
    }
    let seeds = args.common.seeds();
    let interrupted = crate::interrupt::flag().map_err(|e| SimError::Failed(e.to_string()))?;
    let runs = measure::all(&needed, time, &seeds, args.common.jobs(), &interrupted)?;
    let of = |scenario: &Scenario| -> Vec<Option<&measure::Measured>> {
        let at = needed.iter().position(|s| s == scenario);
        at.map_or(Vec::new(), |at| runs[at].iter().map(|run| run.as_ref().ok()).collect())
    };
    let results: Vec<cells::Result> = cells.iter().map(|cell| cell.result(of)).collect();
    table::print(&results, time, &seeds);
    if let Some(file) = json.filter(|_| runs.iter().flatten().any(Result::is_ok)) {
        write(file, &Document { paper: "ndp", from: time.from, until: time.until, seeds: &seeds, cells: &results })?;
    }
    if let Some(folder) = &args.svg {
        for (name, svg) in picture::all(&cells, &|scenario| of(scenario).into_iter().flatten().collect()) {
            let path = folder.join(name);
            let written = OutFile::open(&path).and_then(|file| file.write(|to| to.write_all(svg.as_bytes())));
            written.map_err(|e| SimError::Failed(format!("--svg {e}")))?;
        }
    }
    if interrupted.load(Ordering::Relaxed) {
        return Err(SimError::Interrupted);
    }
    let failed = needed.iter().zip(&runs).flat_map(|(scenario, runs)| {
        let name = cells.iter().find(|c| c.scenarios.0 == *scenario).map_or("", |c| c.id.as_str());
        let name = name.rsplit_once('/').map_or(name, |(name, _)| name);
        let of_seed = runs.iter().zip(&seeds).filter_map(|(run, seed)| Some((run.as_ref().err()?, seed)));
        of_seed.map(|(error, seed)| format!("{name} seed={seed}: {error}")).collect::<Vec<_>>()
    });
    let failed: Vec<String> = failed.collect();
    if failed.is_empty() { Ok(()) } else { Err(SimError::Failed(failed.join("\n"))) }
}
