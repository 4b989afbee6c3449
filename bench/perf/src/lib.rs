//! `irnic perf`: RDMA between two software NICs, measured as perftest measures hardware, every byte verified.
//!
//! A run has two *ends*, each a NIC with its queue pairs (`endpoint`) and what it does with them (`bandwidth`,
//! `latency`), connected by what they tell each other or by rdma_cm (`connector`). A *carrier* (`carrier`) moves
//! packets between them, in this process or to another; `run` drives ends and carrier in turn, on one thread.
//! `exchange` is what two processes tell each other over TCP.
//!
//! A command is a `sweep` of runs. `args` and `checked` make it of words, `local` and `remote` run it,
//! `results` has what came of it, which `report` and `table` print, `document` writes for machines and
//! `pictures` draws. `compare` is what `irnic perf` alone shows, `baseline` what the machine can do without a
//! NIC.

#[macro_use]
extern crate irnic_report;

mod args;
mod bandwidth;
mod baseline;
mod carrier;
mod checked;
mod clock;
mod compare;
mod connector;
mod cpu;
mod device;
mod document;
mod end;
mod endpoint;
mod error;
mod exchange;
mod figures;
mod intervals;
mod latency;
mod layout;
mod local;
mod pacing;
mod pattern;
mod peak;
mod pictures;
mod plan;
mod progress;
mod refused;
mod remote;
mod report;
mod results;
pub mod rtt;
mod run;
mod sweep;
mod table;
mod variable;
mod window;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;

pub use args::PerfArgs;
use document::Files;
use error::{PerfError, exit};
use plan::Test;
use results::Results;

/// Returns a command line with the test that is meant where options want one and none is named.
pub fn with_test(error: &clap::Error, words: &[OsString]) -> Option<Vec<OsString>> {
    let [program, command, rest @ ..] = words else { return None };
    let lacks_test = error.kind() == ErrorKind::MissingRequiredArgument && error.to_string().contains("<TEST>");
    let before = [program, command].map(Clone::clone).into_iter().chain([Test::WriteBw.name().into()]);
    (command == "perf" && lacks_test).then(|| before.chain(rest.iter().cloned()).collect())
}

/// Entry point of the subcommand.
pub fn main(args: &PerfArgs) -> ExitCode {
    let run = || -> Result<(), PerfError> {
        let interrupted = irnic_report::interrupt::flag()?;
        let sweep = args.sweep()?;
        let files = Files::open(args)?;
        if args.baseline {
            baseline::print()?;
        }
        let Some(sweep) = sweep else {
            return if args.baseline { Ok(()) } else { compare::main(args, files, &interrupted) };
        };
        let mut results = Results::new(&sweep);
        let outcome = match &sweep.first().place {
            plan::Place::Here => local::main(&sweep, &interrupted, &mut results),
            plan::Place::Server | plan::Place::Client(_) => remote::main(&sweep, &interrupted, &mut results),
        };
        // What was measured is told, however it ended.
        results.finish();
        files.write(&mut results, outcome)?;
        results.suffice()
    };
    exit("irnic perf", run())
}
