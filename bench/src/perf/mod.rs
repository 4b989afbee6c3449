//! `irnic perf`: RDMA between two software NICs, measured as perftest measures hardware, every byte verified.
//!
//! A run has two *ends*, each a NIC with its queue pairs ([`endpoint`]) and what it does with them ([`bandwidth`],
//! [`latency`]). A *carrier* ([`carrier`]) moves packets between them, in this process or to another; [`run`] drives
//! ends and carrier in turn, on one thread. [`exchange`] is what two processes tell each other over TCP. [`compare`] is
//! what `irnic perf` alone shows, [`baseline`] what the machine can do without a NIC.

mod args;
mod bandwidth;
mod baseline;
mod carrier;
mod clock;
mod compare;
pub(crate) mod endpoint;
mod exchange;
mod latency;
mod layout;
pub(crate) mod local;
mod pacing;
mod pattern;
mod peak;
mod plan;
mod progress;
mod remote;
mod report;
mod run;
mod variable;

use std::process::ExitCode;

pub use args::PerfArgs;
use report::{Results, write_json};

use crate::output::OutFile;

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

/// Entry point of the subcommand.
pub fn main(args: &PerfArgs) -> ExitCode {
    let run = || -> Result<(), PerfError> {
        let interrupted = crate::interrupt::flag()?;
        let plan = args.plan()?;
        let json = args.json().map(|path| OutFile::open_or_stdout(&path)).transpose().map_err(PerfError::Usage)?;
        if args.baseline {
            baseline::print()?;
        }
        let Some(plan) = plan else {
            return if args.baseline { Ok(()) } else { compare::main(args, json, &interrupted) };
        };
        let mut results = Results::new(&plan);
        let outcome = match &plan.place {
            plan::Place::Here => local::main(&plan, &interrupted, &mut results),
            plan::Place::Server | plan::Place::Client(_) => remote::main(&plan, &interrupted, &mut results),
        };
        // What was measured is told, however it ended.
        write_json(json, &results.finish(), outcome)
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
            eprintln!("{command}: {what}");
            ExitCode::FAILURE
        }
        Err(PerfError::Interrupted) => {
            eprintln!("{command}: interrupted; the results are those up to then");
            ExitCode::from(130)
        }
    }
}
