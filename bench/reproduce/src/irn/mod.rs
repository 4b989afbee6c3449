//! `irnic reproduce irn`: Chapter 4 of Mittal's dissertation, its tables compared with our results.
//!
//! [`reference`](mod@reference) reads the values of the paper, [`cells`] defines how each is computed, [`scenario`]
//! what has to be run, by `irnic sim`. [`table`] prints.

mod cells;
mod reference;
mod scenario;
mod table;

use clap::Args;
use irnic_fabric::workload::Workload;
use irnic_fabric::workload::spec::Part;
use irnic_report::CommandError;
use serde::Serialize;

use crate::evaluation::Evaluation;
use crate::runs::{check, summarized};
use crate::shared::{Common, time};
use scenario::Scenario;

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

impl IrnArgs {
    /// Runs what the arguments ask for.
    pub fn run(&self) -> Result<(), CommandError> {
        let arrivals = self.arrivals.unwrap_or(if self.quick { QUICK } else { ARRIVALS });
        let evaluation = Evaluation {
            paper: "irn",
            cells: cells::irn(&reference::irn(), &Scenario::default_case(&self.workload, arrivals)),
            only: &self.only,
            svg: None,
            common: &self.common,
            settings: Settings { workload: &self.workload.name, arrivals },
            estimate: &irnic_sim::estimate,
            check: &|experiment| check(experiment, self.common.seed),
            make: &summarized,
        };
        evaluation.run(|results, seeds| table::print(results, arrivals, seeds), |_, _| Vec::new())
    }
}

/// What the paper says of all cells, by their ids.
#[cfg(test)]
pub fn said() -> Vec<(String, crate::compared::Said)> {
    let default = Scenario::default_case(&scenario::WORKLOAD.parse().expect("the default"), ARRIVALS);
    crate::points::said(cells::irn(&reference::irn(), &default))
}

#[cfg(test)]
mod tests {
    use irnic_fabric::experiment::Experiment;

    use super::scenario::System;
    use super::*;
    use crate::evaluation::Entry;
    use crate::runs::once;

    #[test]
    fn every_cell_can_be_run() {
        let default = Scenario::default_case(&scenario::WORKLOAD.parse().unwrap(), QUICK / 100);
        let cells = cells::irn(&reference::irn(), &default);
        let needed: Vec<Experiment> = once(cells.iter().flat_map(Entry::needed).cloned());
        // The default case is in many tables and is run once; so are runs that do not depend on RTO_high.
        let times = |scenario: &Scenario, system| needed.iter().filter(|e| **e == scenario.experiment(system)).count();
        let late = Scenario::named("table4.7", "640us", &default).unwrap();
        assert_eq!([times(&default, System::Irn), times(&late, System::Irn), times(&late, System::RocePfc)], [1; 3]);
        assert_eq!(late.experiment(System::RocePfc), default.experiment(System::RocePfc));
        for experiment in needed {
            experiment.config(7).unwrap_or_else(|e| panic!("{experiment:?}: {e}"));
        }
    }
}
