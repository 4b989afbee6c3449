//! `irnic reproduce escape`: Escape's evaluation (Menikkumbura, dissertation at Purdue University, §4.6), compared with
//! our results.
//!
//! [`networks`] and [`scenario`] define what is run, [`measure`] runs it, [`cells`] lists the results.

mod cells;
mod measure;
mod networks;
mod scenario;

use clap::Args;
use irnic_report::CommandError;
use serde::Serialize;

use crate::evaluation::Evaluation;
use crate::shared::Common;
use crate::table;

/// Escape's evaluation: deadlocks resolved, the cost, and flows that are no longer blocked.
///
/// Compares irnic with Figures 4.7 to 4.9, 4.12, 4.13, 4.15 and 4.17 of the dissertation, as far as the text describes
/// them in numbers or words. See docs/reproduction-escape.md for what the text leaves open and the choices made.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce escape --quick                     everything, a tenth as long
  irnic reproduce escape --only figure4.8            the ring that deadlocks, and does not with Escape
  irnic reproduce escape --only figure4.17 --seeds 5 innocent flows, with confidence intervals
  irnic reproduce escape --json escape.json          everything, also as JSON")]
pub struct EscapeArgs {
    /// Run only cells whose id starts with ID, such as figure4.8 or figure4.17/hadoop; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Shorter runs: a tenth of the ring's 500 ms, a fifth of the arrivals' 50 ms
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Settings that results depend on.
#[derive(Serialize)]
struct Settings {
    quick: bool,
}

impl EscapeArgs {
    /// Runs what the arguments ask for.
    pub fn run(&self) -> Result<(), CommandError> {
        let quick = self.quick;
        let evaluation = Evaluation {
            paper: "escape",
            cells: cells::escape(&cells::reference()),
            only: &self.only,
            svg: None,
            common: &self.common,
            settings: Settings { quick },
            estimate: &|scenario| scenario.times(quick)[1] as f64,
            check: &|_| Ok(()),
            make: &|scenario, seed, watch| measure::one(scenario, quick, seed, watch),
        };
        let units = "Rates in Gbit/s with headers, utilization in %, completion times in us.";
        evaluation.run(|results, seeds| table::all(results, seeds, quick, units), |_, _| Vec::new())
    }
}

/// What the paper says of all cells, by their ids.
#[cfg(test)]
pub fn said() -> Vec<(String, crate::compared::Said)> {
    crate::points::said(cells::escape(&cells::reference()))
}
