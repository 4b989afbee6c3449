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
use serde::Serialize;

use super::compared::Compared;
use super::runs::{Scenarios, once};
use super::{Common, choose, pictures, time};
use crate::sim::SimError;
use measure::Time;
use scenario::Scenario;

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

/// What is written for machines.
#[derive(Serialize)]
struct Document<'a> {
    paper: &'static str,
    /// ns.
    warm_up: u64,
    /// ns.
    time: u64,
    seeds: &'a [u64],
    cells: &'a [Compared],
}

/// Runs what the arguments ask for.
pub fn run(args: &RoccArgs) -> Result<(), SimError> {
    let time = match args.quick {
        true => Time { warm_up: 20_000_000, measured: 10_000_000 },
        false => Time { warm_up: args.warm_up, measured: args.time },
    };
    let mut cells = cells::rocc(&cells::reference());
    choose(&mut cells, &args.only, |c| &c.id)?;
    let files = args.common.open(args.svg.is_some())?;
    pictures::prepare(args.svg.as_deref())?;
    let seeds = args.common.seeds();
    let needed: Vec<Scenario> = once(cells.iter().flat_map(|cell| cell.needed().copied()));
    let name = |scenario: &Scenario| format!("{scenario:?}");
    let scenarios = Scenarios {
        command: "reproduce rocc",
        scenarios: &needed,
        seeds: &seeds,
        settings: format!("{time:?}"),
        name: &name,
        cell: &|scenario| cells.iter().find(|c| c.needed().any(|s| s == scenario)).map(|c| c.id.as_str()),
        estimate: &|scenario| scenario.rate() as f64,
        make: &|scenario, seed, watch| measure::one(scenario, time, seed, watch),
    };
    let Some(runs) = scenarios.perform(&args.common.how())? else { return Ok(()) };
    let results: Vec<Compared> = cells.iter().map(|cell| cell.result(|scenario| runs.of(scenario))).collect();
    table::print(&results, time, &seeds);
    if runs.any() {
        let Time { warm_up, measured } = time;
        let document = Document { paper: "rocc", warm_up, time: measured, seeds: &seeds, cells: &results };
        files.write("rocc", &document, &results)?;
    }
    if let Some(folder) = &args.svg {
        let files = picture::all(&cells, &|scenario| runs.of(scenario).into_iter().flatten().collect());
        pictures::write(folder, files)?;
    }
    runs.conclude(name)
}
