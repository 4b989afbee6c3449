//! `irnic reproduce rocc`: the simulations of RoCC (CoNEXT 2020; dissertation §3.5), their numbers beside ours.
//!
//! [`scenario`] and [`datacenter`] are what is run, [`measure`] runs it, [`cells`] is what of it, [`table`] prints,
//! [`picture`] draws.

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
use measure::Time;

/// RoCC's simulations: queues and shares at one bottleneck, at several, with asymmetric links, and on 90 hosts.
///
/// Figures 3.5 to 3.15 and Table 3.3, as far as the text has numbers or words for them, stand beside what comes out
/// here, with DCQCN, TIMELY and HPCC where the paper has them, as irnic has them and with its authors' settings.
/// docs/reproduction-rocc.md tells what was chosen.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce rocc --only figure3.5 --quick      queues and shares of one bottleneck, in seconds
  irnic reproduce rocc --only table3.3               rates of 1,800 pairs on 90 hosts
  irnic reproduce rocc --svg .                       everything, an hour on two cores, with pictures
  irnic reproduce rocc --only figure3.9a             several bottlenecks
  irnic reproduce rocc --json rocc.json              everything, for machines as well")]
pub struct RoccArgs {
    /// Only cells whose id begins so, such as figure3.5/40G or figure3.9a/rocc; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// 20 ms that are not measured and 10 ms that are
    #[arg(long, conflicts_with_all = ["warm_up", "time"])]
    quick: bool,
    /// What is not measured at the beginning of a run
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = time)]
    warm_up: u64,
    /// How long is measured then
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = time)]
    time: u64,
    /// Draw the figures that some of the cells are of, as DIR/figure3.5.svg
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What results depend on.
#[derive(Serialize)]
struct Settings {
    /// ns.
    warm_up: u64,
    /// ns.
    time: u64,
}

/// Runs what the arguments ask for.
pub fn run(args: &RoccArgs) -> Result<(), CommandError> {
    let time = match args.quick {
        true => Time { warm_up: 20_000_000, measured: 10_000_000 },
        false => Time { warm_up: args.warm_up, measured: args.time },
    };
    let evaluation = Evaluation {
        paper: "rocc",
        cells: cells::rocc(&cells::reference()),
        only: &args.only,
        svg: args.svg.as_deref(),
        common: &args.common,
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
