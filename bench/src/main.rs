//! `irnic`: an RDMA NIC in software, on the command line.

#[macro_use]
extern crate irnic_report;

mod conform;
mod footprint;
mod merge;
mod oq;
mod shell;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use irnic_decode as decode;
use irnic_lab::{self as lab, ctl};
use irnic_launch::{config, devinfo, doctor, ranks, rdma, run};
use irnic_perf::{self as perf, rtt};
use irnic_report::usage::parse;
use irnic_report::{output, version};
use irnic_reproduce as reproduce;
use irnic_sim as sim;

const AFTER_HELP: &str = "\
Exit status: 0 done, 1 failed (the reason is on stderr), 2 bad arguments, 130 interrupted; run has
the command's. Output that cannot be written is a failure. When the reader of a pipe goes away,
irnic ends at once and quietly, as by SIGPIPE (141 in a shell). Files of results are checked before
a run and replaced after it: one that fails leaves an old file as it was.";

/// An RDMA NIC in software.
#[derive(Parser)]
#[command(name = "irnic", version = version::get(), after_help = AFTER_HELP)]
enum Command {
    Completions(shell::CompletionsArgs),
    Config(config::ConfigArgs),
    Conform(conform::ConformArgs),
    Ctl(ctl::CtlArgs),
    Decode(decode::DecodeArgs),
    Devinfo(devinfo::DevinfoArgs),
    Doctor(doctor::DoctorArgs),
    Footprint(footprint::FootprintArgs),
    Host(lab::host::HostArgs),
    Launch(Box<ranks::LaunchArgs>),
    Lab(Box<lab::LabArgs>),
    Man(shell::ManArgs),
    Merge(merge::MergeArgs),
    Oq(oq::OqArgs),
    Perf(Box<perf::PerfArgs>),
    Reproduce(Box<reproduce::ReproduceArgs>),
    Rtt(Box<rtt::RttArgs>),
    Run(Box<run::RunArgs>),
    Sim(Box<sim::SimArgs>),
    Top(lab::top::TopArgs),
}

/// The embedded objects.
#[cfg(embedded)]
static OBJECTS: [run::embedded::Object; 3] = [
    ("libirnic_verbs.so", include_bytes!(concat!(env!("EMBEDDED_FROM"), "/libirnic_verbs.so"))),
    ("libirnic_sysfs.so", include_bytes!(concat!(env!("EMBEDDED_FROM"), "/libirnic_sysfs.so"))),
    ("libirnic_clock.so", include_bytes!(concat!(env!("EMBEDDED_FROM"), "/libirnic_clock.so"))),
];

fn main() -> ExitCode {
    version::set(env!("VERSION_WITH_COMMIT"));
    #[cfg(embedded)]
    run::embedded::carry(&OBJECTS);
    let arguments: Vec<_> = std::env::args_os().collect();
    if let [program, rest @ ..] = &arguments[..]
        && rdma::is_called(program)
    {
        output::watch();
        return output::finish(rdma::main(rest));
    }
    if let Some(status) = lab::started_by_lab() {
        return status;
    }
    let command = match parse::<Command>(&arguments, |error| perf::with_test(error, &arguments)) {
        Ok(command) => command,
        Err(status) => return status,
    };
    // The standard output of these belongs to the application.
    if !matches!(command, Command::Run(_) | Command::Launch(_) | Command::Lab(_) | Command::Host(_)) {
        output::watch();
    }
    output::finish(match command {
        Command::Completions(args) => shell::completions(&args, Command::command()),
        Command::Config(args) => config::main(&args),
        Command::Conform(args) => conform::main(&args),
        Command::Ctl(args) => ctl::main(&args),
        Command::Decode(args) => decode::main(&args),
        Command::Devinfo(args) => devinfo::main(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Footprint(args) => footprint::main(&args),
        Command::Host(args) => lab::host::main(args),
        Command::Launch(args) => ranks::main(&args),
        Command::Lab(args) => lab::main(&args),
        Command::Merge(args) => merge::main(&args),
        Command::Man(args) => shell::man(&args, Command::command()),
        Command::Oq(args) => oq::main(&args),
        Command::Perf(args) => perf::main(&args),
        Command::Reproduce(args) => reproduce::main(&args),
        Command::Rtt(args) => rtt::main(&args),
        Command::Run(args) => run::main(&args),
        Command::Sim(args) => sim::main(&args),
        Command::Top(args) => lab::top::main(&args),
    })
}
