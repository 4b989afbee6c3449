//! `irnic reproduce tlt`: the simulations of TLT's paper (EuroSys 2021, §7 and Appendix B), its numbers beside ours.
//!
//! [`reference`](mod@reference) reads what the paper prints, [`scenario`] is what it runs, [`cells`] what of it, [`table`]
//! prints.

mod cells;
mod reference;
mod scenario;
mod table;

use std::sync::atomic::Ordering;

use clap::Args;
use irnic_fabric::experiment::{Case, Experiment};
use irnic_fabric::summary::Summary;
use serde::Serialize;

use super::compared::Compared;
use super::{Common, choose, write};
use crate::sim::{self, Batch, SimError};
use scenario::Scenario;

/// Background flows of the paper, and of a quick look.
const FLOWS: u64 = 10_000;
const QUICK: u64 = 1_000;

/// §7 and Appendix B of TLT's paper: web search traffic and incasts of short flows on 96 hosts.
///
/// What the text has in numbers stands beside what comes out here: with TLT and without, with PFC and without, on TCP,
/// DCTCP, HPCC, IRN and DCQCN. docs/reproduction-tlt.md tells what the paper leaves open and what was chosen.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce tlt --only figure6/irn --quick     IRN with TLT and without, in a minute
  irnic reproduce tlt --only figure5 --only figure6  the main results, at full length
  irnic reproduce tlt --only table1 --seeds 5        one table, with confidence intervals
  irnic reproduce tlt --json tlt.json                everything, for machines as well")]
pub struct TltArgs {
    /// Only cells whose id begins so, such as figure5, figure6/irn or table1/dctcp; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// 1,000 background flows instead of 10,000: a tenth of the time, and fewer incasts than a tail needs
    #[arg(long)]
    quick: bool,
    /// So many background flows
    #[arg(long, value_name = "N", conflicts_with = "quick", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    flows: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// What is written for machines.
#[derive(Serialize)]
struct Document<'a> {
    paper: &'static str,
    flows: u64,
    seeds: &'a [u64],
    cells: &'a [Compared],
}

/// Runs what the arguments ask for.
pub fn run(args: &TltArgs) -> Result<(), SimError> {
    let flows = args.flows.unwrap_or(if args.quick { QUICK } else { FLOWS });
    let mut cells = cells::tlt(&reference::tlt(), flows);
    choose(&mut cells, &args.only, |c| &c.id)?;
    let json = args.common.open()?;
    let (mut needed, mut cases, mut experiments): (Vec<Scenario>, Vec<Case>, Vec<Experiment>) = Default::default();
    for cell in &cells {
        for scenario in [Some(&cell.scenarios.0), cell.scenarios.1.as_ref()].into_iter().flatten() {
            if !needed.contains(scenario) {
                needed.push(scenario.clone());
                cases.push(Case::named(cell.id.clone()));
                experiments.push(scenario.experiment());
            }
        }
    }
    let (seeds, jobs) = (args.common.seeds(), args.common.jobs());
    let batch = Batch { cases, experiments, seeds, jobs, keep_flows: false };
    let interrupted = crate::interrupt::flag().map_err(|e| SimError::Failed(e.to_string()))?;
    let runs = sim::run_all(&batch, &interrupted)?;
    let of = |scenario: &Scenario| -> Vec<Option<&Summary>> {
        let case = needed.iter().position(|s| s == scenario);
        let of_case = runs.iter().filter(|r| Some(r.case) == case);
        of_case.map(|r| r.result.as_ref().ok().filter(|f| f.complete()).map(|f| &f.summary)).collect()
    };
    let results: Vec<Compared> = cells.iter().map(|cell| cell.result(of)).collect();
    table::print(&results, flows, &batch.seeds);
    if let Some(file) = json.filter(|_| runs.iter().any(|run| run.result.is_ok())) {
        write(file, &Document { paper: "tlt", flows, seeds: &batch.seeds, cells: &results })?;
    }
    if interrupted.load(Ordering::Relaxed) {
        return Err(SimError::Interrupted);
    }
    let failed = runs.iter().filter_map(|r| match &r.result {
        Err(e) => Some(format!("{}: {e}", batch.name(r))),
        Ok(f) if !f.complete() => Some(format!("{}: not all flows were completed", batch.name(r))),
        Ok(_) => None,
    });
    let failed: Vec<String> = failed.collect();
    if failed.is_empty() { Ok(()) } else { Err(SimError::Failed(failed.join("\n"))) }
}
