//! `irnic reproduce rocc`: the simulations of RoCC (CoNEXT 2020; dissertation §3.5), compared with our results.
//!
//! [`scenario`] and [`datacenter`] define what is run, [`measure`] runs it, [`cells`] lists the results, [`table`]
//! prints, [`picture`] draws.

mod cells;
mod datacenter;
mod measure;
mod picture;
mod scenario;
mod table;

use std::path::PathBuf;

use clap::Args;
use irnic_report::CommandError;
use serde::Serialize;

use crate::evaluation::Evaluation;
use crate::shared::{Common, time};
use scenario::Time;

/// RoCC's simulations: queues and shares at one and several bottlenecks, with asymmetric links, and on 90 hosts.
///
/// Compares irnic with Figures 3.5 to 3.15 and Table 3.3, as far as the text describes them in numbers or words,
/// including DCQCN, TIMELY and HPCC where the paper has them, both as in irnic and with the authors' settings. See
/// docs/reproduction-rocc.md for the choices made.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce rocc --only figure3.5 --quick      queues and shares at one bottleneck, in seconds
  irnic reproduce rocc --only table3.3               rates of 1,800 pairs on 90 hosts
  irnic reproduce rocc --svg .                       everything, an hour on two cores, with pictures
  irnic reproduce rocc --only figure3.9a             several bottlenecks
  irnic reproduce rocc --json rocc.json              everything, also as JSON")]
pub struct RoccArgs {
    /// Run only cells whose id starts with ID, such as figure3.5/40G or figure3.9a/rocc; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Use a warm-up of 20 ms and measure 10 ms
    #[arg(long, conflicts_with_all = ["warm_up", "time"])]
    quick: bool,
    /// Warm-up at the start of each run, not measured
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = time)]
    warm_up: u64,
    /// Measured time, after the warm-up
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = time)]
    time: u64,
    /// Draw the figures that the cells belong to, as DIR/figure3.5.svg
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Settings that results depend on.
#[derive(Serialize)]
struct Settings {
    /// Warm-up, ns.
    warm_up: u64,
    /// Measured time, ns.
    time: u64,
}

impl RoccArgs {
    /// Runs what the arguments ask for.
    pub fn run(&self) -> Result<(), CommandError> {
        let time = match self.quick {
            true => Time { warm_up: 20_000_000, measured: 10_000_000 },
            false => Time { warm_up: self.warm_up, measured: self.time },
        };
        let evaluation = Evaluation {
            paper: "rocc",
            cells: cells::rocc(&cells::reference()),
            only: &self.only,
            svg: self.svg.as_deref(),
            common: &self.common,
            settings: Settings { warm_up: time.warm_up, time: time.measured },
            estimate: &|scenario| scenario.rate() as f64,
            check: &|_| Ok(()),
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
    crate::points::said(cells::rocc(&cells::reference()))
}
