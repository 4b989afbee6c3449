//! `irnic reproduce openqueue`: what the chapter on OpenQueue (dissertation, chapter 2) evaluates, beside ours.
//!
//! [`scenario`] is what is run, [`measure`] runs it, [`cells`] is what of it, [`cost`] is what packets cost this
//! machine.

mod cells;
mod cost;
mod measure;
mod scenario;

use clap::Args;
use irnic_units::Nanoseconds;
use serde::Serialize;

use super::compared::Compared;
use super::runs::{Scenarios, once};
use super::table::{number, paper};
use super::{Common, choose, time};
use crate::sim::SimError;
use measure::Time;
use scenario::Scenario;

/// OpenQueue's policies: what they send and what it is worth, and what a packet costs.
///
/// Figures 2.17 and 2.19 are pictures; what the text says of them stands beside what comes out here. The virtual
/// network takes no time for a policy's work: that is measured apart, in ns of this machine.
/// docs/reproduction-openqueue.md tells what was chosen.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce openqueue                          all of it, in a minute
  irnic reproduce openqueue --quick                  a fifth of the time in the network, and no costs
  irnic reproduce openqueue --only figure2.19b       weighted throughput by load")]
pub struct OpenQueueArgs {
    /// Only cells whose id begins so, such as figure2.19b/A or table/shared-lqd; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// 2 ms that are not measured and 4 ms that are, and no costs
    #[arg(long, conflicts_with_all = ["warm_up", "time"])]
    quick: bool,
    /// What is not measured at the beginning of a run
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = time)]
    warm_up: u64,
    /// How long is measured then
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    time: u64,
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
pub fn run(args: &OpenQueueArgs) -> Result<(), SimError> {
    let time = match args.quick {
        true => Time { warm_up: 2_000_000, measured: 4_000_000 },
        false => Time { warm_up: args.warm_up, measured: args.time },
    };
    let mut cells = cells::openqueue(&cells::reference());
    choose(&mut cells, &args.only, |c| &c.id)?;
    let files = args.common.open(false)?;
    let seeds = args.common.seeds();
    let needed: Vec<Scenario> = once(cells.iter().flat_map(|cell| cell.needed().copied()));
    let name = |scenario: &Scenario| format!("{scenario:?}");
    let scenarios = Scenarios {
        command: "reproduce openqueue",
        scenarios: &needed,
        seeds: &seeds,
        settings: format!("{time:?}"),
        name: &name,
        cell: &|scenario| cells.iter().find(|c| c.needed().any(|s| s == scenario)).map(|c| c.id.as_str()),
        estimate: &|_| 1.0,
        make: &|scenario, seed, _| measure::one(scenario, time, seed),
    };
    let Some(runs) = scenarios.perform(&args.common.how())? else { return Ok(()) };
    let results: Vec<Compared> = cells.iter().map(|cell| cell.result(|scenario| runs.of(scenario))).collect();
    print(&results, time, &seeds);
    if !args.quick && args.only.is_empty() {
        cost::print();
    }
    if runs.any() {
        let Time { warm_up, measured } = time;
        let document = Document { paper: "openqueue", warm_up, time: measured, seeds: &seeds, cells: &results };
        files.write("openqueue", &document, &results)?;
    }
    runs.conclude(name)
}

/// Prints all cells, and which of the text's words hold.
fn print(results: &[Compared], time: Time, seeds: &[u64]) {
    let (warm_up, measured) = (Nanoseconds(time.warm_up), Nanoseconds(time.measured));
    println!(
        "{measured} after {warm_up}; seeds {seeds:?}. Rates in Gbit/s, weighted ones in values of 1500 bytes a µs,"
    );
    println!("delays in µs, shares of what was offered.");
    let (said, cells): (Vec<&Compared>, Vec<&Compared>) = results.iter().partition(|r| r.text.is_some());
    let mut figure = "";
    let ours = |result: &Compared| {
        let mean = result.ours.map_or("-".to_owned(), number);
        let half = if seeds.len() > 1 { number(result.confidence) } else { "-".to_owned() };
        format!("{mean:>10} {half:>9}")
    };
    for result in cells {
        let (this, name) = result.id.split_once('/').unwrap_or((&result.id, ""));
        if this != figure {
            println!("\n{this}");
            println!("  {:40} {:>10} {:>9}", "cell", "ours", "± 95 %");
            figure = this;
        }
        println!("  {name:40} {}", ours(result));
    }
    for (n, claim) in said.iter().enumerate() {
        if n == 0 {
            println!("\nwhat the text says, and what is accepted as that");
        }
        let holds = match claim.holds {
            Some(true) => "holds",
            Some(false) => "no",
            None => "-",
        };
        let text = claim.text.as_deref().unwrap_or_default();
        println!("  {:54} {:>9} {} {holds:>6}  {text}", claim.id, paper(claim.paper), ours(claim));
    }
    if !said.is_empty() {
        let held = said.iter().filter(|c| c.holds == Some(true)).count();
        println!("what the text says: {held} of {} hold", said.len());
    }
}
