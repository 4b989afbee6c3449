//! `irnic reproduce`: repeats the scenarios of papers, and compares their numbers with ours, cell by cell.
//!
//! Each paper has a folder: its reference values, scenarios, and cells. `points` combines scenarios with the paper's
//! numbers and claims, `runs` performs the runs, `compared` computes the deviations, `table` prints, `pictures` draws.
//! `evaluation` is a command that does all of this, given the folder's parts.

#[macro_use]
extern crate irnic_report;

mod compared;
mod escape;
mod evaluation;
mod irn;
mod ndp;
mod openqueue;
mod pictures;
mod points;
mod random;
mod rc3;
mod rocc;
mod runs;
mod shared;
mod table;
mod timely;
mod tlt;
mod ups;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use irnic_report::CommandError;
use irnic_sweep::SweepArgs;

use shared::WHO;

/// Reproduce the results of a paper: compare its numbers with irnic's, cell by cell.
#[derive(Parser)]
pub struct ReproduceArgs {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand)]
enum Paper {
    Irn(irn::IrnArgs),
    Timely(timely::TimelyArgs),
    Ndp(Box<ndp::NdpArgs>),
    Tlt(tlt::TltArgs),
    Rc3(rc3::Rc3Args),
    Rocc(rocc::RoccArgs),
    Escape(escape::EscapeArgs),
    Ups(ups::UpsArgs),
    #[command(name = "openqueue")]
    OpenQueue(openqueue::OpenQueueArgs),
}

impl ReproduceArgs {
    /// Returns the sweep options.
    pub fn sweep(&mut self) -> &mut SweepArgs {
        match &mut self.paper {
            Paper::Irn(args) => &mut args.common.sweep,
            Paper::Timely(args) => &mut args.common.sweep,
            Paper::Ndp(args) => &mut args.common.sweep,
            Paper::Tlt(args) => &mut args.common.sweep,
            Paper::Rc3(args) => &mut args.common.sweep,
            Paper::Rocc(args) => &mut args.common.sweep,
            Paper::Escape(args) => &mut args.common.sweep,
            Paper::Ups(args) => &mut args.common.sweep,
            Paper::OpenQueue(args) => &mut args.common.sweep,
        }
    }
}

/// Runs what the arguments ask for.
pub fn run(args: &ReproduceArgs) -> Result<(), CommandError> {
    match &args.paper {
        Paper::Irn(args) => irn::run(args),
        Paper::Timely(args) => timely::run(args),
        Paper::Ndp(args) => ndp::run(args),
        Paper::Tlt(args) => tlt::run(args),
        Paper::Rc3(args) => rc3::run(args),
        Paper::Rocc(args) => rocc::run(args),
        Paper::Escape(args) => escape::run(args),
        Paper::Ups(args) => ups::run(args),
        Paper::OpenQueue(args) => openqueue::run(args),
    }
}

/// Entry point of the subcommand.
pub fn main(args: &ReproduceArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(WHO),
    }
}
