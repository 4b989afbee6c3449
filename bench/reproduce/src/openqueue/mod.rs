//! `irnic reproduce openqueue`: the evaluation of OpenQueue (dissertation, chapter 2), compared with our results.
//!
//! [`scenario`] defines what is run, [`measure`] runs it, [`cells`] lists the results, [`cost`] measures the cost of
//! packets on this machine.

mod cells;
mod cost;
mod measure;
mod scenario;

use clap::Args;
use irnic_report::CommandError;
use irnic_units::Nanoseconds;
use serde::Serialize;

use crate::compared::Compared;
use crate::evaluation::Evaluation;
use crate::shared::{Common, time};
use crate::table;
use measure::Time;

/// OpenQueue's policies: throughput, weighted throughput, and the cost per packet.
///
/// Figures 2.17 and 2.19 have no numbers; compares irnic with the statements of the text about them. In the virtual
/// network policies take no time; their cost is measured separately, in ns of this machine. See
/// docs/reproduction-openqueue.md for the choices made.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce openqueue                          all cells, in a minute
  irnic reproduce openqueue --quick                  a fifth of the simulated time, and no costs
  irnic reproduce openqueue --only figure2.19ab      weighted throughput by load")]
pub struct OpenQueueArgs {
    /// Run only cells whose id starts with ID, such as figure2.19ab/A or table/shared-lqd; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Use a warm-up of 2 ms and measure 4 ms, and skip the costs
    #[arg(long, conflicts_with_all = ["warm_up", "time"])]
    quick: bool,
    /// Warm-up at the start of each run, not measured
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = time)]
    warm_up: u64,
    /// Measured time, after the warm-up
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    time: u64,
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

impl OpenQueueArgs {
    /// Runs what the arguments ask for.
    pub fn run(&self) -> Result<(), CommandError> {
        let time = match self.quick {
            true => Time { warm_up: 2_000_000, measured: 4_000_000 },
            false => Time { warm_up: self.warm_up, measured: self.time },
        };
        let evaluation = Evaluation {
            paper: "openqueue",
            cells: cells::openqueue(&cells::reference()),
            only: &self.only,
            svg: None,
            common: &self.common,
            settings: Settings { warm_up: time.warm_up, time: time.measured },
            estimate: &|_| 1.0,
            check: &|_| Ok(()),
            make: &|scenario, seed, _| measure::one(scenario, time, seed),
        };
        let print = |results: &[Compared], seeds: &[u64]| {
            let (warm_up, measured) = (Nanoseconds(time.warm_up), Nanoseconds(time.measured));
            println!(
                "{measured} after {warm_up}; seeds {seeds:?}. Rates in Gbit/s, weighted ones in values of 1500 bytes"
            );
            println!("a µs, delays in µs, shares of what was offered.");
            table::cells_and_claims(results);
            if !self.quick && self.only.is_empty() {
                cost::print();
            }
        };
        evaluation.run(print, |_, _| Vec::new())
    }
}

/// What the paper says of all cells, by their ids.
#[cfg(test)]
pub fn said() -> Vec<(String, crate::compared::Said)> {
    crate::points::said(cells::openqueue(&cells::reference()))
}
