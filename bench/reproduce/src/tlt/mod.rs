//! `irnic reproduce tlt`: the simulations of TLT's paper (EuroSys 2021, §7 and Appendix B), compared with our results.
//!
//! [`scenario`] defines the paper's runs, [`cells`] lists the results, [`table`] prints, [`picture`] draws.

mod cells;
mod picture;
mod scenario;
mod table;

use std::path::PathBuf;

use clap::Args;
use irnic_fabric::experiment::Case;
use irnic_report::CommandError;
use irnic_sim::{Batch, Simulations};
use serde::Serialize;

use crate::compared::Compared;
use crate::evaluation::Entry as _;
use crate::pictures;
use crate::runs::{conclude_batch, once, summaries};
use crate::shared::{Common, choose, list};
use scenario::Scenario;

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

/// Runs what the arguments ask for.
pub fn run(args: &TltArgs) -> Result<(), CommandError> {
    let flows = args.flows.unwrap_or(if args.quick { QUICK } else { FLOWS });
    let mut cells = cells::tlt(&cells::reference(), flows);
    choose(&mut cells, &args.only, |c| c.id.as_str())?;
    if args.common.list {
        list(cells.iter().map(|cell| cell.id.as_str()));
        return Ok(());
    }
    let files = args.common.open(args.svg.is_some())?;
    pictures::prepare(args.svg.as_deref())?;
    let needed: Vec<&Scenario> = once(cells.iter().flat_map(|cell| cell.needed()));
    let name = |scenario: &Scenario| cells.iter().find(|c| c.needed().any(|s| s == scenario)).map(|c| c.id.clone());
    let batch = Batch {
        threads: 1,
        cases: needed.iter().map(|scenario| Case::named(name(scenario).unwrap_or_default())).collect(),
        experiments: needed.iter().map(|scenario| scenario.experiment()).collect(),
        seeds: args.common.seeds(),
        irnic: env!("CARGO_PKG_VERSION").to_owned(),
        keep_flows: false,
        schedule: None,
        pcap: Default::default(),
    };
    let replay = |case: usize, seed| crate::shared::replay(name(needed[case]).as_deref(), seed);
    let simulations = Simulations { batch: &batch, command: "reproduce tlt", replay: &replay, experiment: None };
    let Some((runs, _)) = simulations.perform(&args.common.how())? else { return Ok(()) };
    let of = |scenario: &Scenario| summaries(&runs, needed.iter().position(|s| *s == scenario));
    let results: Vec<Compared> = cells.iter().map(|cell| cell.result(of)).collect();
    table::print(&results, flows, &batch.seeds);
    if runs.iter().any(|run| run.result.is_ok()) {
        files.write("tlt", &Settings { flows }, &batch.seeds, &results)?;
    }
    if let Some(folder) = &args.svg {
        let files = picture::all(&cells, &|scenario| of(scenario).into_iter().flatten().collect());
        pictures::write(folder, files)?;
    }
    conclude_batch(&batch, &runs)
}
