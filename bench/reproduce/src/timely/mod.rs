//! `irnic reproduce timely`: the incasts of TIMELY's §2.2, §4.4 and §6.1, and the calls of §6.2, compared with our
//! results.
//!
//! [`incast`] models the paper's testbed, [`clos`] its larger network, [`cells`] lists runs and results, [`measure`]
//! runs them, [`table`] prints, [`picture`] draws.

mod cells;
mod clos;
mod incast;
mod measure;
mod picture;
mod table;

use std::path::PathBuf;

use clap::Args;
use irnic_report::CommandError;
use serde::Serialize;

use crate::evaluation::Evaluation;
use crate::shared::{Common, time};
use incast::Time;
use measure::Scenario;

/// §2.2 and §6 of the TIMELY paper: an incast of ten clients with four connections each to one server, and calls
/// between 250 hosts; measured on hardware in the paper, simulated by irnic.
///
/// Compares irnic with Table 1, and with Figures 2, 4 and 9 to 22 as far as the text describes them in numbers or
/// words. See docs/reproduction-timely.md for what the paper leaves open and the choices made.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce timely --only table1                 throughput and round trips in half a minute
  irnic reproduce timely                               all cells in a few minutes
  irnic reproduce timely --only figure17/10 --seeds 3  one row, with confidence intervals
  irnic reproduce timely --only table1/timely --timely gain=0.875
                                                       effect of a parameter that the paper leaves open
  irnic reproduce timely --json timely.json            everything, also as JSON
  irnic reproduce timely --only figure15 --svg .       Figure 15 as a picture, figure15.svg")]
pub struct TimelyArgs {
    /// Run only cells whose id starts with ID, such as table1, figure15/64KB or figure18; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Warm-up at the start of each run, not measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    warm_up: u64,
    /// Measured time, after the warm-up
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    time: u64,
    /// Parameters of TIMELY in addition to the paper's, as in --cc timely,gain=0.875
    #[arg(long, value_name = "PARAMETERS", default_value = "")]
    timely: String,
    /// Draw the figures that the cells belong to, as DIR/figure15.svg
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Settings that results depend on.
#[derive(Serialize)]
struct Settings<'a> {
    /// Warm-up, ns.
    warm_up: u64,
    /// Measured time, ns.
    time: u64,
    timely: &'a str,
}

impl TimelyArgs {
    /// Runs what the arguments ask for.
    pub fn run(&self) -> Result<(), CommandError> {
        let time = Time { warm_up: self.warm_up, measured: self.time };
        let evaluation = Evaluation {
            paper: "timely",
            cells: cells::timely(&cells::reference(), &self.timely),
            only: &self.only,
            svg: self.svg.as_deref(),
            common: &self.common,
            settings: Settings { warm_up: self.warm_up, time: self.time, timely: &self.timely },
            // All fill the same links for the same time, except for the larger network.
            estimate: &|scenario| if matches!(scenario, Scenario::Clos(_)) { 4.0 } else { 1.0 },
            check: &|scenario| {
                let config = scenario.config(time, self.common.seed);
                config.map(drop).map_err(|e| CommandError::Usage(format!("--timely: {e}")))
            },
            make: &|scenario, seed, watch| measure::one(scenario, time, seed, watch),
        };
        evaluation.run(
            |results, seeds| table::print(results, time, seeds),
            |cells, runs| picture::all(cells, &|scenario| runs.done(scenario)),
        )
    }
}

/// What the paper says of all cells, by their ids.
#[cfg(test)]
pub fn said() -> Vec<(String, crate::compared::Said)> {
    crate::points::said(cells::timely(&cells::reference(), ""))
}
