//! `irnic reproduce tlt`: the simulations of TLT's paper (EuroSys 2021, §7 and Appendix B), compared with our results.
//!
//! [`scenario`] defines the paper's runs, [`cells`] lists the results, [`table`] prints, [`picture`] draws.

mod cells;
mod picture;
mod scenario;
mod table;

use std::path::PathBuf;

use clap::Args;
use irnic_report::CommandError;
use serde::Serialize;

use crate::evaluation::Evaluation;
use crate::runs::{check, summarized};
use crate::shared::Common;

/// Background flows of the paper, and of a quick run.
const FLOWS: u64 = 10_000;
const QUICK: u64 = 1_000;

/// §7 and Appendix B of the TLT paper: web search traffic and incasts of short flows on 96 hosts.
///
/// Compares irnic with the numbers in the text: with and without TLT, with and without PFC, for TCP, DCTCP, HPCC, IRN
/// and DCQCN. See docs/reproduction-tlt.md for what the paper leaves open and the choices made.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce tlt --only figure6/irn --quick     IRN with and without TLT, in a minute
  irnic reproduce tlt --only figure5 --only figure6  the main results, at full length
  irnic reproduce tlt --only table1 --seeds 5        one table, with confidence intervals
  irnic reproduce tlt --json tlt.json                everything, also as JSON
  irnic reproduce tlt --only figure9 --svg .         Figure 9 as a picture, figure9.svg")]
pub struct TltArgs {
    /// Run only cells whose id starts with ID, such as figure5, figure6/irn or table1/dctcp; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Use 1,000 background flows instead of 10,000: a tenth of the time, with too few incasts for tail latencies
    #[arg(long)]
    quick: bool,
    /// Number of background flows, 1 to 1000000
    #[arg(long, value_name = "N", conflicts_with = "quick", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    flows: Option<u64>,
    /// Draw the figures that the cells belong to, as DIR/figure9.svg
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Settings that results depend on.
#[derive(Serialize)]
struct Settings {
    flows: u64,
}

impl TltArgs {
    /// Runs what the arguments ask for.
    pub fn run(&self) -> Result<(), CommandError> {
        let flows = self.flows.unwrap_or(if self.quick { QUICK } else { FLOWS });
        let evaluation = Evaluation {
            paper: "tlt",
            cells: cells::tlt(&cells::reference(), flows),
            only: &self.only,
            svg: self.svg.as_deref(),
            common: &self.common,
            settings: Settings { flows },
            estimate: &|scenario| irnic_sim::estimate(&scenario.experiment()),
            check: &|scenario| check(&scenario.experiment(), self.common.seed),
            make: &|scenario, seed, watch| summarized(&scenario.experiment(), seed, watch),
        };
        evaluation.run(
            |results, seeds| table::print(results, flows, seeds),
            |cells, runs| picture::all(cells, &|scenario| runs.done(scenario)),
        )
    }
}

/// What the paper says of all cells, by their ids.
#[cfg(test)]
pub fn said() -> Vec<(String, crate::compared::Said)> {
    crate::points::said(cells::tlt(&cells::reference(), 10_000))
}
