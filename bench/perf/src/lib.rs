//! `irnic perf`: RDMA between two software NICs, measured as perftest measures hardware, every byte verified.
//!
//! A run has two *ends*, each a NIC with its queue pairs (`endpoint`) and their use (`bandwidth`, `latency`), connected
//! by an exchange of parameters or by rdma_cm (`connector`). A *carrier* (`carrier`) moves packets between them, in
//! this process or to another; `run` drives ends and carrier in turn, on one thread. `exchange` is the protocol of two
//! processes over TCP.
//!
//! A command is a `sweep` of runs. `args` and `checked` parse it, `local` and `remote` run it, `results` has the
//! results, which `report` and `table` print, `document` writes in machine-readable form and `pictures` draws.
//! `compare` is the default comparison of `irnic perf` without a test, `baseline` the performance of the machine
//! without a NIC.

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
mod settings;
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

/// Returns the command line completed by the implied test, if options require a test and none is named.
pub fn with_test(error: &clap::Error, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let [program, command, rest @ ..] = arguments else { return None };
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
        // Whatever was measured is reported, however the run ended.
        results.finish();
        files.write(&mut results, outcome)?;
        results.suffice()
    };
    exit("irnic perf", run())
}
