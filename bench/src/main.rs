//! `irnic`: an RDMA NIC in software, on the command line.

mod capture_file;
mod decode;

use std::process::ExitCode;

use clap::Parser;

/// An RDMA NIC in software.
#[derive(Parser)]
#[command(name = "irnic", version)]
enum Command {
    Decode(decode::DecodeArgs),
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Decode(args) => decode::main(&args),
    }
}
