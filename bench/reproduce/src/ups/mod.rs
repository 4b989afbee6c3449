//! `irnic reproduce ups`: how well least slack time first replays schedules (Mittal, UCB/EECS-2018-103, §5.1.3) and
//! serves objectives (§5.2), compared with the text.
//!
//! [`network`] is shared by all parts. [`schedulers`] and [`scenario`] define what is replayed, [`measure`] runs and
//! replays it, [`cells`] lists the results. [`scheme`], [`objectives`] and [`fairness`] use slack for completion times,
//! delays and shares (§5.2), [`edge`] is queue management by receiving NICs (§5.3); [`parts`] combines all.

mod cells;
mod edge;
mod fairness;
mod host;
mod measure;
mod network;
mod objectives;
mod parts;
mod picture;
mod scenario;
mod schedulers;
mod scheme;
mod values;

use std::path::PathBuf;

use clap::Args;
use irnic_report::CommandError;
use serde::Serialize;

use crate::evaluation::{Evaluation, RunsOf};
use crate::pictures::Rows;
use crate::shared::{Common, time};
use crate::table;
use parts::{Cell, Ran, Work};
use scenario::Scenario;
use values::Line;

/// Universal Packet Scheduling: packets overdue when least slack time first replays other schedulers, and its effect on
/// completion times, delays and fairness.
///
/// Compares irnic with the congestion points of §5.1.3, Tables 5.1 to 5.4 and Figures 5.1 to 5.9 of the dissertation.
/// See docs/reproduction-ups.md and docs/reproduction-ups-objectives.md for what the text leaves open and the choices
/// made.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce ups --quick                       everything, a twentieth as long
  irnic reproduce ups --only congestion             check of topology and workload
  irnic reproduce ups --only table5.1/fifo          one row
  irnic reproduce ups --only figure5.2/default --quick   mean completion times of four schedulers
  irnic reproduce ups --only figure5.4              fairness over time
  irnic reproduce ups --svg plots --json ups.json   everything, and Figures 5.1 to 5.5 and 5.7")]
pub struct UpsArgs {
    /// Run only cells whose id starts with ID, such as table5.1/30% or figure5.1; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Shorten runs: flows arrive for 50 ms instead of 1 s; with TCP, for 2.5 s instead of 10 s
    #[arg(long)]
    quick: bool,
    /// Duration of arrivals of the flows to replay [default: 1s, or 50ms with --quick]
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "quick")]
    arrivals: Option<u64>,
    /// Send TCP's handshakes through the network, instead of adding an idle round trip to each completion time
    #[arg(long)]
    handshake: bool,
    /// Write Figures 5.1 to 5.5 and 5.7, of the cells run, to this folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Time for which flows arrive, ns.
const FULL: u64 = 1_000_000_000;
/// Time for which flows arrive with `--quick`, ns.
const QUICK: u64 = 50_000_000;

/// Settings that results depend on.
#[derive(Serialize)]
struct Settings {
    arrivals_ns: u64,
    quick: bool,
    handshake: bool,
}

impl UpsArgs {
    /// Runs what the arguments ask for.
    pub fn run(&self) -> Result<(), CommandError> {
        let quick = self.quick;
        let arrivals = self.arrivals.unwrap_or(if quick { QUICK } else { FULL });
        let reference = cells::reference();
        let replays = parts::replays(&reference);
        let evaluation = Evaluation {
            paper: "ups",
            cells: parts::all(&replays, &reference, self.handshake),
            only: &self.only,
            svg: self.svg.as_deref(),
            common: &self.common,
            settings: Settings { arrivals_ns: arrivals, quick, handshake: self.handshake },
            estimate: &|work| work.weight(arrivals, quick),
            check: &|_| Ok(()),
            make: &|work, seed, watch| work.run(arrivals, quick, seed, watch),
        };
        let print = |results: &[_], seeds: &[u64]| {
            let ms = arrivals as f64 / 1e6;
            let quickly = if quick { " Runs are shortened." } else { "" };
            println!("Seeds {seeds:?}, arrivals of what is replayed for {ms} ms.{quickly}");
            println!("Shares of packets; of congestion points, drops and flows left out in %; the worst in us.");
            table::cells_and_claims(results);
        };
        let draw = |cells: &[Cell], runs: &RunsOf<'_, Cell>| {
            let of =
                |scenario: &Scenario| runs.done(&Work::Replay(*scenario)).into_iter().filter_map(Ran::replay).collect();
            let own = cells.iter().filter(|cell| cell.scenarios.1.is_none() && cell.said.claimed.is_none());
            let rows = Rows::new(own.map(|cell| (cell.id.as_str(), &cell.scenarios.0)));
            let lines = picture::FIGURES.map(|(figure, rows_of)| lines(&rows.below(rows_of), figure, runs));
            let shown = replays.iter().filter(|replay| cells.iter().any(|cell| cell.id == replay.id)).cloned();
            picture::all(&shown.collect::<Vec<_>>(), &of, lines)
        };
        evaluation.run(print, draw)
    }
}

/// The lines of a figure: either each of its rows has one over time, or the row of the default network, or the first
/// one that was run, has all.
fn lines(rows: &[(&str, &Work)], figure: &str, runs: &RunsOf<'_, Cell>) -> Vec<Line> {
    let drawn = |work: &Work| runs.done(work).first().map_or_else(Vec::new, |ran| ran.lines().to_vec());
    if matches!(figure, "5.4" | "5.5") {
        let line = |(name, work): &(&str, &Work)| Some(((*name).to_owned(), drawn(work).pop()?.1));
        return rows.iter().filter_map(line).collect();
    }
    let default = rows.iter().filter(|(name, _)| *name == "default");
    default.chain(rows).map(|(_, work)| drawn(work)).find(|lines| !lines.is_empty()).unwrap_or_default()
}

/// What the paper says of all cells, by their ids.
#[cfg(test)]
pub fn said() -> Vec<(String, crate::compared::Said)> {
    let reference = cells::reference();
    crate::points::said(parts::all(&parts::replays(&reference), &reference, false))
}
