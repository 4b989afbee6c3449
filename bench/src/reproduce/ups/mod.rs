//! `irnic reproduce ups`: how well least slack time first replays schedules (Mittal, UCB/EECS-2018-103, §5.1.3), its
//! numbers beside ours.
//!
//! [`schedulers`] and [`scenario`] are what is run, [`measure`] runs and replays it, [`cells`] is what of it;
//! [`edge`] is queue management by receiving NICs (§5.3).

mod cells;
mod edge;
mod measure;
mod picture;
mod scenario;
mod schedulers;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::compared::Compared;
use super::runs::{Scenarios, once};
use super::{Common, choose, pictures, table, time};
use crate::sim::SimError;
use scenario::Scenario;

/// Universal Packet Scheduling: how many packets are overdue when least slack time first replays other schedulers.
///
/// The congestion points of §5.1.3, Table 5.1 and Figure 5.1 of the dissertation stand beside what comes out here.
/// docs/reproduction-ups.md tells what the text leaves open and what was chosen.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce ups --quick                       all of it, a twentieth as long
  irnic reproduce ups --only congestion             the check of topology and workload
  irnic reproduce ups --only table5.1/fifo          one row
  irnic reproduce ups --svg plots --json ups.json   everything, and the figure")]
pub struct UpsArgs {
    /// Only cells whose id begins so, such as table5.1/30% or figure5.1; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Shorter runs: flows arrive for 50 ms instead of 1 s
    #[arg(long)]
    quick: bool,
    /// Time in which flows arrive [default: 1s, or 50ms with --quick]
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "quick")]
    arrivals: Option<u64>,
    /// Write the figure, of those cells that are run, into this folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Time in which flows arrive, ns.
const FULL: u64 = 1_000_000_000;
/// With `--quick`.
const QUICK: u64 = 50_000_000;

/// What is written for machines.
#[derive(Serialize)]
struct Document<'a> {
    paper: &'static str,
    arrivals_ns: u64,
    seeds: &'a [u64],
    cells: &'a [Compared],
}

/// Runs what the arguments ask for.
pub fn run(args: &UpsArgs) -> Result<(), SimError> {
    let arrivals = args.arrivals.unwrap_or(if args.quick { QUICK } else { FULL });
    let mut cells = cells::ups(&cells::reference());
    choose(&mut cells, &args.only, |c| &c.id)?;
    let files = args.common.open(args.svg.is_some())?;
    pictures::prepare(args.svg.as_deref())?;
    let seeds = args.common.seeds();
    let needed: Vec<Scenario> = once(cells.iter().flat_map(|cell| cell.needed().copied()));
    let name = |scenario: &Scenario| format!("{scenario:?}");
    let scenarios = Scenarios {
        command: "reproduce ups",
        scenarios: &needed,
        seeds: &seeds,
        settings: format!("arrivals={arrivals}"),
        name: &name,
        cell: &|scenario| cells.iter().find(|c| c.needed().any(|s| s == scenario)).map(|c| c.id.as_str()),
        estimate: &|scenario| f64::from(scenario.load),
        make: &|scenario, seed, watch| measure::one(scenario, arrivals, seed, watch),
    };
    let Some(runs) = scenarios.perform(&args.common.how())? else { return Ok(()) };
    let results: Vec<Compared> = cells.iter().map(|cell| cell.result(|scenario| runs.of(scenario))).collect();
    let ms = arrivals as f64 / 1e6;
    println!("Seeds {seeds:?}, arrivals for {ms} ms. Shares of packets, of congestion points in %; the worst in us.");
    table::cells_and_claims(&results, &seeds);
    if runs.any() {
        files.write(
            "ups",
            &Document { paper: "ups", arrivals_ns: arrivals, seeds: &seeds, cells: &results },
            &results,
        )?;
        if let Some(folder) = &args.svg {
            let runs = |scenario: &Scenario| runs.of(scenario).into_iter().flatten().collect();
            pictures::write(folder, picture::all(&cells, &runs))?;
        }
    }
    runs.conclude(name)
}
