//! `irnic reproduce irn`: Chapter 4 of Mittal's dissertation, its tables compared with our results.
//!
//! [`reference`](mod@reference) reads the values of the paper, [`cells`] defines how each is computed, [`scenario`]
//! what has to be run, by `irnic sim`. [`table`] prints.

mod cells;
mod reference;
mod scenario;
mod table;

use clap::Args;
use irnic_fabric::experiment::{Case, Experiment};
use irnic_fabric::workload::Workload;
use irnic_fabric::workload::spec::Part;
use irnic_report::CommandError;
use irnic_sim::{Batch, Simulations};
use serde::Serialize;

use crate::runs::{conclude_batch, summaries};
use crate::shared::{Common, choose, list, time};
use cells::Cell;
use scenario::{Scenario, System};

/// Period in which flows start at 40 Gbit/s, ns. Not given by the paper; FCTs grow with it until the network is in
/// equilibrium.
const ARRIVALS: u64 = 50_000_000;
/// Period in which flows start at 40 Gbit/s with `--quick`, ns.
const QUICK: u64 = 5_000_000;

/// IRN, Chapter 4 of Mittal's dissertation: Tables 4.2 to 4.8 and statements of the text about the figures.
///
/// Prints the paper's numbers and irnic's side by side, with their ratio. See docs/reproduction.md for what the paper
/// leaves open and the choices made.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce irn --quick                        all cells in a few minutes, less accurate
  irnic reproduce irn --only table4.2                one table
  irnic reproduce irn --only table4.2/70% --seeds 5  one row, with confidence intervals
  irnic reproduce irn --only table4.2/70%/timely     the same with one congestion control
  irnic reproduce irn --json irn.json                everything, also as JSON")]
pub struct IrnArgs {
    /// Run only cells whose id starts with ID, such as table4.2, table4.2/70% or figure4.9; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Start flows for 5 ms instead of 50: a tenth of the time, and shorter queues than the paper's
    #[arg(long)]
    quick: bool,
    /// Start flows for this time (at 40 Gbit/s; the same number of bytes at other rates)
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "quick")]
    arrivals: Option<u64>,
    /// Flow sizes of the heavy-tailed workload, as for `irnic sim --workload`: irn-heavy, irn-imc10, cdf:FILE
    #[arg(long, value_name = "SPEC", value_parser = poisson, default_value = scenario::WORKLOAD)]
    workload: Workload,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Parses a workload of one part with Poisson arrivals, to which the rest of a scenario is added.
fn poisson(text: &str) -> Result<Workload, String> {
    let workload: Workload = text.parse().map_err(|e: irnic_fabric::input::Error| e.to_string())?;
    match workload.parts[..] {
        [Part::Poisson { .. }] => Ok(workload),
        _ => Err("expected Poisson arrivals of one kind, such as irn-heavy or irn-imc10".to_owned()),
    }
}

/// Settings that results depend on.
#[derive(Serialize)]
struct Settings<'a> {
    /// The heavy-tailed workload.
    workload: &'a str,
    /// Period of arrivals, ns.
    arrivals: u64,
}

/// Runs what the arguments ask for.
pub fn run(args: &IrnArgs) -> Result<(), CommandError> {
    let arrivals = args.arrivals.unwrap_or(if args.quick { QUICK } else { ARRIVALS });
    let mut cells = cells::irn(&reference::irn(), &Scenario::default_case(&args.workload, arrivals));
    choose(&mut cells, &args.only, |c| c.id.as_str())?;
    if args.common.list {
        list(cells.iter().map(|cell| cell.id.as_str()));
        return Ok(());
    }
    let files = args.common.open(false)?;
    let batch = batch(args, &cells);
    let replay = |case: usize, seed| {
        let of = |cell: &&Cell| cell.needed().any(|system| cell.scenario.experiment(system) == batch.experiments[case]);
        crate::shared::replay(cells.iter().find(of).map(|cell| cell.id.as_str()), seed)
    };
    let simulations = Simulations { batch: &batch, command: "reproduce irn", replay: &replay, experiment: None };
    let Some((runs, _)) = simulations.perform(&args.common.how())? else { return Ok(()) };
    let of = |scenario: &Scenario, system: System| {
        let experiment = scenario.experiment(system);
        summaries(&runs, batch.experiments.iter().position(|e| *e == experiment))
    };
    let results: Vec<_> = cells.iter().map(|cell| cell.result(of)).collect();
    table::print(&results, arrivals, &batch.seeds);
    if runs.iter().any(|run| run.result.is_ok()) {
        let settings = Settings { workload: &args.workload.name, arrivals };
        files.write("irn", &settings, &batch.seeds, &results)?;
    }
    conclude_batch(&batch, &runs)
}

/// Returns the distinct runs needed by some cells: a scenario may not affect a system, as RTO_high does not affect
/// those with PFC.
fn batch(args: &IrnArgs, cells: &[Cell]) -> Batch {
    let (mut cases, mut experiments): (Vec<Case>, Vec<Experiment>) = Default::default();
    for cell in cells {
        for system in cell.needed() {
            let experiment = cell.scenario.experiment(system);
            if !experiments.contains(&experiment) {
                experiments.push(experiment);
                cases.push(Case::named(cell.scenario.label(system)));
            }
        }
    }
    Batch {
        cases,
        experiments,
        seeds: args.common.seeds(),
        irnic: env!("CARGO_PKG_VERSION").to_owned(),
        threads: 1,
        keep_flows: false,
        schedule: None,
        pcap: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_can_be_run() {
        let common =
            Common { list: false, seeds: 2, seed: 7, jobs: None, json: None, junit: None, sweep: Default::default() };
        let workload: Workload = scenario::WORKLOAD.parse().unwrap();
        let default = Scenario::default_case(&workload, QUICK / 100);
        let args = IrnArgs { only: Vec::new(), quick: true, arrivals: None, workload, common };
        let cells = cells::irn(&reference::irn(), &default);
        let batch = batch(&args, &cells);
        // The default case is in many tables and is run once; so are runs that do not depend on RTO_high.
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
