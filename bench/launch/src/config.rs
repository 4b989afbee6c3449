//! `irnic config`: the configuration in force.

use std::process::ExitCode;

use clap::Args;
use irnic_verbs::config::{Config, Variables, keys};

/// Print the configuration in force as irnic.toml, with the origin of each value.
#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Keys, their variables and values:\n{}", keys::help()), disable_version_flag = true)]
pub struct ConfigArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `irnic config`.
pub fn main(args: &ConfigArgs) -> ExitCode {
    match Variables::from_environment().and_then(|variables| Config::load(&variables)) {
        Ok(config) => {
            config.report_ignored();
            let text = if args.json { format!("{:#}\n", config.to_json()) } else { config.to_toml() };
            irnic_report::output::print(&text);
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("irnic: {e}");
            ExitCode::from(2)
        }
    }
}
