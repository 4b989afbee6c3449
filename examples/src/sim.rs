//! All of `irnic sim`, with the switch and the congestion controller of this package: `own-sim --switch own-trimming
//! --cc halving`. Grids, seeds, threads, JSON, HTML and CSV are those of `irnic sim`.

mod controller;
mod trimming;

use std::process::ExitCode;

use clap::Parser;
use controller::HalvingFactory;
use irnic_fabric::experiment::Extensions;
use irnic_sim::SimArgs;

static HALVING: HalvingFactory = HalvingFactory { initial: 16 };

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    sim: SimArgs,
}

fn main() -> ExitCode {
    let own = Extensions::new().with_controller(&HALVING).with_switch("own-trimming", trimming::factory());
    irnic_sim::main_with(&Arguments::parse().sim, &own)
}
