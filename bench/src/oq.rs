//! `irnic oq`: switch policies written in OpenQueue.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use irnic_fabric::switch::PolicySwitch;
use irnic_openqueue::SHIPPED;

/// Arguments of `irnic oq`.
#[derive(Args)]
#[command(
    about = "Check and explain switch policies written in OpenQueue",
    after_help = "\
A policy is a file such as policy.oq, or a name from irnic oq list, with parameters as in
shared-lqd,buffer=480KB. irnic sim --switch accepts the same. See docs/openqueue.md for the language.

Examples:
  irnic oq list
  irnic oq check policy.oq --ports 6
  irnic oq explain shared-lqd > mine.oq"
)]
pub struct OqArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Check a policy and print its plan: data structures, their order, and the cost of each operation
    Check {
        /// File, or name of a built-in policy, with parameters
        policy: String,
        /// Number of ports of the switch, 1 to 1024 [default: 4, or as many as the policy has]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        ports: Option<u16>,
    },
    /// Print the source of a built-in policy and the values of its parameters
    Explain {
        /// Name of the policy, with parameters
        policy: String,
    },
    /// List built-in policies
    List,
}

/// Runs `irnic oq`.
pub fn main(args: &OqArgs) -> ExitCode {
    match &args.what {
        What::Check { policy, ports } => check(policy, *ports),
        What::Explain { policy } => explain(policy),
        What::List => list(),
    }
}

fn refused(what: &str, error: impl std::fmt::Display) -> ExitCode {
    eprintln!("irnic oq {what}: {error}");
    ExitCode::from(2)
}

fn check(policy: &str, ports: Option<u16>) -> ExitCode {
    const PORTS: usize = 4;
    let switch: PolicySwitch = match policy.parse() {
        Ok(switch) => switch,
        Err(error) => return refused("check", error),
    };
    let ports = ports.map_or_else(|| switch.policy().fixed_ports().unwrap_or(PORTS), usize::from);
    match switch.plan(ports) {
        Ok(plan) => println!("{}", plan.to_string().trim_end()),
        Err(error) => return refused("check", error),
    }
    for parameter in switch.policy().parameters() {
        println!("parameter {} = {}", parameter.name, parameter.value);
    }
    ExitCode::SUCCESS
}

fn explain(policy: &str) -> ExitCode {
    let switch: PolicySwitch = match policy.parse() {
        Ok(switch) => switch,
        Err(error) => return refused("explain", error),
    };
    println!("{}", switch.text().trim_end());
    for parameter in switch.policy().parameters() {
        println!("// {} = {}", parameter.name, parameter.value);
    }
    ExitCode::SUCCESS
}

fn list() -> ExitCode {
    let width = SHIPPED.iter().map(|shipped| shipped.name.len()).max().unwrap_or(0);
    for shipped in SHIPPED {
        println!("{:<width$}  {}", shipped.name, shipped.about());
    }
    ExitCode::SUCCESS
}
