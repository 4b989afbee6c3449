//! All of `irnic lab`, with the switch of this package: `own-lab --switch own-trimming --transport ndp -- COMMAND`.

mod trimming;

use std::process::ExitCode;

use clap::Parser;
use irnic_fabric::experiment::Extensions;
use irnic_lab::LabArgs;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    lab: LabArgs,
}

fn main() -> ExitCode {
    if let Some(status) = irnic_lab::started_by_lab() {
        return status;
    }
    let own = Extensions::new().with_switch("own-trimming", trimming::factory());
    irnic_lab::main_with(&Arguments::parse().lab, &own)
}
