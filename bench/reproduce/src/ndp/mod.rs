//! `irnic reproduce ndp`: the simulations of NDP's paper, compared with its numbers and those committed by its authors.
//!
//! [`reference`](mod@reference) reads the values of the paper and the authors' results, [`scenario`] defines what is
//! run, [`cells`] what is compared, [`measure`] runs it, [`table`] prints, [`picture`] draws; [`matrix`] has other
//! traffic, for a comparison with htsim.

mod cells;
mod matrix;
mod measure;
mod picture;
mod reference;
mod scenario;
mod table;
mod unresponsive;

use std::path::PathBuf;

use clap::Args;
use irnic_report::CommandError;
use serde::Serialize;

use crate::evaluation::Evaluation;
use crate::shared::{Common, time};
use scenario::Time;

/// Measured time of a quick run, ns.
const QUICK: Time = Time { from: 2_000_000, until: 5_000_000 };

/// §3.2, §5 and §6 of the NDP paper: permutations, incasts, link failures, and short flows next to long ones.
///
/// Compares irnic with the text and with the results committed with the authors' simulator, each with the bounds within
/// which it counts as reproduced. MPTCP and pHost are not compared, since irnic has neither. See
/// docs/reproduction-ndp.md for what the paper leaves open and the choices made.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce ndp --quick                            most cells in half a minute, less accurate
  irnic reproduce ndp                                    all cells, 15 minutes on two cores
  irnic reproduce ndp --only figure16/ndp --seeds 5      one table, with confidence intervals
  irnic reproduce ndp --json ndp.json                    everything, also as JSON
  irnic reproduce ndp --only figure14 --svg .            Figure 14 as a picture, figure14.svg
  irnic reproduce ndp --matrix perm.cm --beside htsim:perm.txt   completion times beside those that htsim printed")]
pub struct NdpArgs {
    /// Run only cells whose id starts with ID, such as figure14, figure16/ndp or uplink-trimming; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Measure rates from 2 to 5 ms instead of 5 to 20, and skip cells that take minutes
    #[arg(long, conflicts_with_all = ["warm_up", "until"])]
    quick: bool,
    /// Warm-up at the start of runs with endless flows, not measured
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = time)]
    warm_up: u64,
    /// End of runs with endless flows
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    until: u64,
    /// Draw the figures that the cells belong to, as DIR/figure14.svg
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Instead of the cells, run NDP on a connection matrix of htsim, in the paper's fat-tree with as many hosts. The
    /// first line printed is the command `irnic sim` that does the same
    #[arg(long, value_name = "FILE.cm", conflicts_with_all = ["only", "list", "quick", "svg", "junit"])]
    matrix: Option<PathBuf>,
    /// With --matrix: print completion times beside those of another simulator: htsim:FILE, the output of htsim_ndp
    #[arg(long, value_name = "SIMULATOR:FILE", requires = "matrix")]
    beside: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Settings that results depend on.
#[derive(Serialize)]
struct Settings {
    /// Start of the measurement, ns.
    from: u64,
    /// End of the measurement, ns.
    until: u64,
}

impl NdpArgs {
    /// Runs what the arguments ask for.
    pub fn run(&self) -> Result<(), CommandError> {
        if let Some(path) = &self.matrix {
            return matrix::run(path, self.beside.as_deref(), &self.common);
        }
        let time = if self.quick { QUICK } else { Time { from: self.warm_up, until: self.until } };
        if time.until < time.from + 2_000_000 {
            return Err(CommandError::Usage("--until: expected at least 2 ms after --warm-up".to_owned()));
        }
        let evaluation = Evaluation {
            paper: "ndp",
            cells: cells::ndp(&reference::ndp(), self.quick),
            only: &self.only,
            svg: self.svg.as_deref(),
            common: &self.common,
            settings: Settings { from: time.from, until: time.until },
            estimate: &|scenario| scenario.estimate(time),
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
    cells::ndp(&reference::ndp(), false).into_iter().map(|cell| (cell.id, cell.said.into())).collect()
}
