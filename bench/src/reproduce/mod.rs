//! `irnic reproduce`: the scenarios of a paper, and its tables beside ours, cell by cell.
//!
//! [`reference`](mod@reference) reads what the paper prints, [`cells`] says how each of its numbers is computed,
//! [`scenario`] what has to be run for it; the running is that of `irnic sim`. [`compared`] puts the paper's beside
//! ours, [`table`] prints.

mod cells;
mod chance;
mod compared;
mod ndp;
mod reference;
mod scenario;
mod table;
mod timely;
mod tlt;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use crate::output::OutFile;
use crate::sim::{self, Batch, SimError};
use cells::Cell;
use irnic_fabric::experiment::{Case, Experiment};
use irnic_fabric::summary::Summary;
use irnic_fabric::workload::Workload;
use irnic_fabric::workload::spec::Part;
use scenario::{Scenario, System};

/// Time in which flows start at 40 Gbit/s, ns. The paper does not say; FCTs grow with it until a network is in
/// equilibrium.
const ARRIVALS: u64 = 50_000_000;
/// Time in which flows start at 40 Gbit/s of a quick look, ns.
const QUICK: u64 = 5_000_000;

/// The results of a paper, reproduced: its numbers beside ours, cell by cell.
#[derive(Parser)]
pub struct ReproduceArgs {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand)]
enum Paper {
    Irn(IrnArgs),
    Timely(timely::TimelyArgs),
    Ndp(Box<ndp::NdpArgs>),
    Tlt(tlt::TltArgs),
}

/// Chapter 4 of Mittal's dissertation: Tables 4.2 to 4.8 and what the text says of the figures.
///
/// The paper's numbers and ours stand side by side, with their ratio. docs/reproduction.md tells what the paper leaves
/// open and what was chosen.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce irn --quick                        all cells in some minutes, roughly
  irnic reproduce irn --only table4.2                one table
  irnic reproduce irn --only table4.2/70% --seeds 5  one row, with confidence intervals
  irnic reproduce irn --only table4.2/70%/timely     the same of one congestion control
  irnic reproduce irn --json irn.json                everything, for machines as well")]
struct IrnArgs {
    /// Only cells whose id begins so, such as table4.2, table4.2/70% or figure4.9; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Flows start during 5 ms instead of 50: a tenth of the time, and shorter queues than the paper's
    #[arg(long)]
    quick: bool,
    /// Flows start during this time (at 40 Gbit/s; the same number of bytes at other rates)
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "quick")]
    arrivals: Option<u64>,
    /// Flow sizes of the heavy-tailed workload, as `irnic sim --workload` takes them: irn-heavy, irn-imc10, cdf:FILE
    #[arg(long, value_name = "SPEC", value_parser = poisson, default_value = scenario::WORKLOAD)]
    workload: Workload,
    #[command(flatten)]
    common: Common,
}

/// What all papers' runs can be told.
#[derive(Args)]
struct Common {
    /// Repetitions of each run, with other flows or times at which they begin, and other chance
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs at a time [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
    /// Write the cells to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Common {
    /// Returns the seeds, one for each repetition.
    fn seeds(&self) -> Vec<u64> {
        (0..self.seeds).map(|i| self.seed.wrapping_add(i)).collect()
    }

    /// Returns the runs at a time, 0 for one for each core.
    fn jobs(&self) -> usize {
        self.jobs.map_or(0, |n| n as usize)
    }

    /// Opens the file of `--json`, which is checked before anything runs.
    fn open(&self) -> Result<Option<OutFile>, SimError> {
        let opened = self.json.as_deref().map(OutFile::open).transpose();
        opened.map_err(|e| SimError::Usage(format!("--json {e}")))
    }
}

fn time(text: &str) -> Result<u64, String> {
    use irnic_units as units;
    units::time(text).filter(|ns| *ns > 0).ok_or_else(|| format!("expected {}", units::TIME))
}

/// Reads a workload of one part, which Poisson arrivals are: the rest of a scenario is added to it.
fn poisson(text: &str) -> Result<Workload, String> {
    let workload: Workload = text.parse().map_err(|e: irnic_fabric::input::Error| e.to_string())?;
    match workload.parts[..] {
        [Part::Poisson { .. }] => Ok(workload),
        _ => Err("expected Poisson arrivals of one kind, such as irn-heavy or irn-imc10".to_owned()),
    }
}

/// Results for machines.
#[derive(Serialize)]
struct Document<'a> {
    paper: &'static str,
    /// The heavy-tailed one.
    workload: &'a str,
    /// ns.
    arrivals: u64,
    seeds: &'a [u64],
    cells: &'a [compared::Compared],
}

/// Leaves the cells whose id begins as one of `only` does, or all if there are none.
fn choose<C>(cells: &mut Vec<C>, only: &[String], id: impl Fn(&C) -> &String) -> Result<(), SimError> {
    if only.is_empty() {
        return Ok(());
    }
    if let Some(unknown) = only.iter().find(|only| !cells.iter().any(|c| id(c).starts_with(only.as_str()))) {
        return Err(SimError::Usage(format!(
            "--only {unknown}: no cell begins so; ids are such as {}, {}",
            id(&cells[0]),
            id(&cells[cells.len() - 1])
        )));
    }
    cells.retain(|c| only.iter().any(|only| id(c).starts_with(only.as_str())));
    Ok(())
}

/// Writes results for machines.
fn write(file: OutFile, document: &impl Serialize) -> Result<(), SimError> {
    let all = |to: &mut dyn Write| {
        serde_json::to_writer_pretty(&mut *to, document)?;
        writeln!(to)
    };
    file.write(|to| all(to)).map_err(|e| SimError::Failed(format!("--json {e}")))
}

fn run(args: &IrnArgs) -> Result<(), SimError> {
    let arrivals = args.arrivals.unwrap_or(if args.quick { QUICK } else { ARRIVALS });
    let mut cells = cells::irn(&reference::irn(), &Scenario::default_case(&args.workload, arrivals));
    choose(&mut cells, &args.only, |c| &c.id)?;
    let json = args.common.open()?;
    let batch = batch(args, &cells);
    let interrupted = crate::interrupt::flag().map_err(|e| SimError::Failed(e.to_string()))?;
    let runs = sim::run_all(&batch, &interrupted)?;
    let of = |scenario: &Scenario, system: System| -> Vec<Option<&Summary>> {
        let experiment = scenario.experiment(system);
        let case = batch.experiments.iter().position(|e| *e == experiment);
        let of_case = runs.iter().filter(|r| Some(r.case) == case);
        of_case.map(|r| r.result.as_ref().ok().filter(|f| f.complete()).map(|f| &f.summary)).collect()
    };
    let results: Vec<_> = cells.iter().map(|cell| cell.result(of)).collect();
    table::print(&results, arrivals, &batch.seeds);
    let failed = runs.iter().filter_map(|r| {
        let name = batch.name(r);
        match &r.result {
            Err(e) => Some(format!("{name}: {e}")),
            Ok(f) if !f.complete() => Some(format!("{name}: not all flows were completed ({:?})", f.summary.ending)),
            Ok(_) => None,
        }
    });
    let failed: Vec<String> = failed.collect();
    if let Some(file) = json.filter(|_| runs.iter().any(|run| run.result.is_ok())) {
        write(
            file,
            &Document { paper: "irn", workload: &args.workload.name, arrivals, seeds: &batch.seeds, cells: &results },
        )?;
    }
    if interrupted.load(Ordering::Relaxed) {
        return Err(SimError::Interrupted);
    }
    if failed.is_empty() { Ok(()) } else { Err(SimError::Failed(failed.join("\n"))) }
}

/// Returns what has to be run for some cells, each once: a scenario may change nothing for a system, as RTO_high for
/// those with PFC.
fn batch(args: &IrnArgs, cells: &[Cell]) -> Batch {
    let (mut cases, mut experiments): (Vec<Case>, Vec<Experiment>) = Default::default();
    for cell in cells {
        for system in [Some(cell.systems.0), cell.systems.1].into_iter().flatten() {
            let experiment = cell.scenario.experiment(system);
            if !experiments.contains(&experiment) {
                experiments.push(experiment);
                cases.push(Case::named(cell.scenario.label(system)));
            }
        }
    }
    let (seeds, jobs) = (args.common.seeds(), args.common.jobs());
    Batch { cases, experiments, seeds, jobs, keep_flows: false }
}

/// Entry point of the subcommand.
pub fn main(args: &ReproduceArgs) -> ExitCode {
    let result = match &args.paper {
        Paper::Irn(args) => run(args),
        Paper::Timely(args) => timely::run(args),
        Paper::Ndp(args) => ndp::run(args),
        Paper::Tlt(args) => tlt::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report("irnic reproduce"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_can_be_run() {
        let common = Common { seeds: 2, seed: 7, jobs: None, json: None };
        let workload: Workload = scenario::WORKLOAD.parse().unwrap();
        let default = Scenario::default_case(&workload, QUICK / 100);
        let args = IrnArgs { only: Vec::new(), quick: true, arrivals: None, workload, common };
        let cells = cells::irn(&reference::irn(), &default);
        let batch = batch(&args, &cells);
        // The default case stands in many tables and is run once; so is what RTO_high does not matter to.
        let times = |scenario: &Scenario, system| {
            batch.experiments.iter().filter(|e| **e == scenario.experiment(system)).count()
        };
        let late = Scenario::named("table4.7", "640us", &default).unwrap();
        assert_eq!([times(&default, System::Irn), times(&late, System::Irn), times(&late, System::RocePfc)], [1; 3]);
        assert_eq!(late.experiment(System::RocePfc), default.experiment(System::RocePfc));
        assert_eq!((batch.seeds.as_slice(), batch.cases.len()), (&[7, 8][..], batch.experiments.len()));
        for (case, experiment) in batch.cases.iter().zip(&batch.experiments) {
            experiment.config(7).unwrap_or_else(|e| panic!("{}: {e}", case.label));
        }
    }
}
