//! `irnic reproduce`: repeats the scenarios of papers, and compares their numbers with ours, cell by cell.
//!
//! Each paper has a folder: its reference values, scenarios, and cells. `points` combines scenarios with the paper's
//! numbers and claims, `runs` performs the runs, `compared` computes the deviations, `claims` counts what holds, by
//! ranges that `words` makes of the text's, `table` prints, `pictures` draws.
//! `evaluation` is a command that does all of this, given the folder's parts.

#[macro_use]
extern crate irnic_report;

mod claims;
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
#[cfg(test)]
mod results;
mod rocc;
mod runs;
mod shared;
mod table;
mod timely;
mod tlt;
mod ups;
mod words;

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

/// Evaluates an expression with the arguments of whichever paper it is.
macro_rules! each {
    ($paper:expr, $args:ident => $value:expr) => {
        match $paper {
            Paper::Irn($args) => $value,
            Paper::Timely($args) => $value,
            Paper::Ndp($args) => $value,
            Paper::Tlt($args) => $value,
            Paper::Rc3($args) => $value,
            Paper::Rocc($args) => $value,
            Paper::Escape($args) => $value,
            Paper::Ups($args) => $value,
            Paper::OpenQueue($args) => $value,
        }
    };
}

impl ReproduceArgs {
    /// Returns the sweep options.
    pub fn sweep(&mut self) -> &mut SweepArgs {
        each!(&mut self.paper, args => &mut args.common.sweep)
    }
}

/// Runs what the arguments ask for.
pub fn run(args: &ReproduceArgs) -> Result<(), CommandError> {
    each!(&args.paper, args => args.run())
}

/// Entry point of the subcommand.
pub fn main(args: &ReproduceArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(WHO),
    }
}
