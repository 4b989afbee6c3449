//! `irnic perf`: RDMA between two software NICs, measured as perftest measures hardware, every byte verified.
//!
//! A run has two *ends*, each a NIC with its queue pairs ([`endpoint`]) and what it does with them ([`bandwidth`],
//! [`latency`]), connected by what they tell each other or by rdma_cm ([`connector`]). A *carrier* ([`carrier`]) moves
//! packets between them, in this process or to another; [`run`] drives ends and carrier in turn, on one thread.
//! [`exchange`] is what two processes tell each other over TCP.
//!
//! A command is a [`sweep`] of runs. [`args`] and [`checked`] make it of words, [`local`] and [`remote`] run it,
//! [`results`] has what came of it, which [`report`] and [`table`] print, [`document`] writes for machines and
//! [`pictures`] draws. [`compare`] is what `irnic perf` alone shows, [`baseline`] what the machine can do without a
//! NIC.

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
pub(crate) mod endpoint;
mod exchange;
mod intervals;
mod latency;
mod layout;
pub(crate) mod local;
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
use plan::Test;
use results::Results;

/// Why a run ended without its results, or with part of them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PerfError {
    /// The command line asks for something that cannot be: exit 2.
    #[error("{0}")]
    Usage(String),
    /// The run failed: exit 1.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C: exit 130.
    #[error("interrupted")]
    Interrupted,
    /// Ctrl-C at the other end: exit 130.
    #[error("the peer was interrupted")]
    PeerInterrupted,
}

impl PerfError {
    pub(crate) fn failed(what: impl std::fmt::Display) -> PerfError {
        PerfError::Failed(what.to_string())
    }
}

impl From<std::io::Error> for PerfError {
    fn from(e: std::io::Error) -> PerfError {
        PerfError::failed(e)
    }
}

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

/// Tells how a command ended.
pub(crate) fn exit(command: &str, outcome: Result<(), PerfError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(PerfError::Usage(what)) => {
            eprintln!("{command}: {what}");
            ExitCode::from(2)
        }
        Err(PerfError::Failed(what)) => {
            for line in what.lines() {
                eprintln!("{command}: {line}");
            }
            ExitCode::FAILURE
        }
        Err(why @ (PerfError::Interrupted | PerfError::PeerInterrupted)) => {
            eprintln!("{command}: {why}; the results are those up to then");
            ExitCode::from(130)
        }
    }
}
