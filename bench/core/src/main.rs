//! `irnic-core`: the commands of `irnic` that need neither emulated nor simulated networks.
//!
//! It builds in a third of the time, and is what `cargo run` runs. For other commands it executes `irnic`, if that has
//! been built.

#[macro_use]
extern crate irnic_report;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use clap::Parser;
use irnic_decode as decode;
use irnic_launch::{config, devinfo, doctor, rdma, run};
use irnic_perf::{self as perf, rtt};
use irnic_report::usage::parse;
use irnic_report::{output, version};

const AFTER_HELP: &str = "\
`cargo build --release` builds irnic with all commands: lab, sim, reproduce and others.";

/// An RDMA NIC in software: the commands that need no emulated network.
#[derive(Parser)]
#[command(name = "irnic-core", version = version::get(), after_help = AFTER_HELP)]
enum Command {
    Config(config::ConfigArgs),
    Decode(decode::DecodeArgs),
    Devinfo(devinfo::DevinfoArgs),
    Doctor(doctor::DoctorArgs),
    Perf(Box<perf::PerfArgs>),
    Rtt(Box<rtt::RttArgs>),
    Run(Box<run::RunArgs>),
    /// A command of `irnic`.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// Executes `irnic`, if it is next to this program.
fn become_irnic(arguments: &[OsString]) -> ExitCode {
    let irnic = std::env::current_exe().map(|own| own.with_file_name("irnic"));
    let Some(irnic) = irnic.ok().filter(|path| path.is_file()) else {
        let name = arguments.join(OsStr::new(" "));
        eprintln!(
            "irnic-core: {}: not a command of this program; irnic, which cargo build --release builds, has more",
            name.display()
        );
        return ExitCode::from(2);
    };
    let error = std::process::Command::new(&irnic).args(arguments).exec();
    eprintln!("irnic-core: {}: {error}", irnic.display());
    ExitCode::FAILURE
}

fn main() -> ExitCode {
    version::set(env!("VERSION_WITH_COMMIT"));
    let arguments: Vec<_> = std::env::args_os().collect();
    if let [program, rest @ ..] = &arguments[..]
        && rdma::is_called(program)
    {
        output::watch();
        return output::finish(rdma::main(rest));
    }
    let command = match parse::<Command>(&arguments, |error| perf::with_test(error, &arguments)) {
        Ok(command) => command,
        Err(status) => return status,
    };
    // The standard output of an application is left to it.
    if !matches!(command, Command::Run(_)) {
        output::watch();
    }
    output::finish(match command {
        Command::Config(args) => config::main(&args),
        Command::Decode(args) => decode::main(&args),
        Command::Devinfo(args) => devinfo::main(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Perf(args) => perf::main(&args),
        Command::Rtt(args) => rtt::main(&args),
        Command::Run(args) => run::main(&args),
        Command::Other(arguments) => return become_irnic(&arguments),
    })
}
