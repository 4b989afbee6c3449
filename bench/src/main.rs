//! `irnic`: an RDMA NIC in software, on the command line.

mod capture_file;
mod conform;
mod decode;

use std::process::ExitCode;

use clap::Parser;

/// An RDMA NIC in software.
#[derive(Parser)]
#[command(name = "irnic", version)]
enum Command {
    Conform(conform::ConformArgs),
    Decode(decode::DecodeArgs),
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Conform(args) => conform::main(&args),
        Command::Decode(args) => decode::main(&args),
    }
}
