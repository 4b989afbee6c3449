//! The command line of `irnic run`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use irnic_ports::output::{CAPTURE, Output, OutputError};
use irnic_report::words::{Words, words};
use irnic_transports::config::TransportConfig;
use irnic_verbs::config::{Config, ConfigError, Given, Origin, PortKind, Stats, Variables};
use irnic_verbs::device::{self, DeviceInfo};
use irnic_verbs::stats::STATISTICS;

use super::error::RunError;

const AFTER_HELP: &str = "\
Options set IRNIC_* variables and override those in the environment; see `irnic config --help` for all settings, including those
without an option. Values are checked before the command starts. Exit status: the command's; 2 bad options or settings, 126 the
command cannot be executed, 127 it does not exist, 1 any other error.

Examples:
  irnic run -- ibv_devinfo
  irnic run --impair 'loss 1%' --stats -- ib_write_bw -d irnic0      one process …
  irnic run --impair 'loss 1%' -- ib_write_bw -d irnic0 localhost    … and the other
  irnic run --transport irn,cap=256 --pcap app-%p.pcapng -- ./app    %p is the process id
  irnic run --explain -- ./app                                       if it only reports Invalid argument
  irnic run --sysfs -- ucx_info -d                                   for programs that read /sys and /dev
  irnic run --interface eth0 --rate 40G -- ibv_rc_pingpong -g 1";

/// Run an unmodified RDMA application on a software NIC.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct RunArgs {
    /// Transport: roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto, iwarp or ndp, with parameters: irn,cap=110
    #[arg(long, value_name = "PRESET[,KEY=VALUE…]")]
    #[arg(value_parser = words(TransportConfig::PRESETS), hide_possible_values = true)]
    transport: Option<String>,
    /// Impair the network, in tc netem syntax: 'loss 1% delay 50us'
    #[arg(long, value_name = "TEXT")]
    impair: Option<String>,
    /// Packet carrier: auto, shm, udp, or frames: with a carrier, such as frames:tap:tap0 (docs/frames.md)
    #[arg(long, value_name = "KIND")]
    #[arg(value_parser = ports(), hide_possible_values = true)]
    port: Option<String>,
    /// Record packets for Wireshark; %p in the name is the process id
    #[arg(long, value_name = "FILE")]
    pcap: Option<String>,
    /// Name of the device; with a configuration file, the one of its devices to use
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Configuration file [default: ./irnic.toml, else ~/.config/irnic/irnic.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Print statistics when the application exits, to standard error, or as JSON to FILE (%p is the process id)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    stats: Option<String>,
    /// Explain rejected calls of the application on standard error: the attribute and its valid values
    #[arg(long)]
    explain: bool,
    /// Network interface whose addresses the device uses
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Address of the device, instead of the interface's; separate several by commas, or repeat the option
    #[arg(long = "address", value_name = "ADDR", value_delimiter = ',')]
    addresses: Vec<String>,
    /// Largest path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES")]
    mtu: Option<String>,
    /// Link rate, such as 40G: reported to applications, and a limit on sending
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Random seed of the impairments
    #[arg(long, value_name = "N")]
    seed: Option<String>,
    /// Provide the files under /sys and /dev that a kernel driver would have, for applications that read them, such as
    /// UCX
    #[arg(long)]
    sysfs: bool,

    /// Application and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Completes ports, without that of a lab, which `irnic lab` sets.
fn ports() -> Words {
    words(PortKind::words().into_iter().filter(|word| *word != "lab:"))
}

/// Returns an absolute path, valid in any working directory of the application.
fn absolute(path: &Path) -> Result<String, RunError> {
    let absolute = std::path::absolute(path).map_err(|e| RunError::Usage(format!("{}: {e}", path.display())))?;
    let text = absolute.into_os_string().into_string();
    text.map_err(|path| RunError::Usage(format!("{}: expected a path in UTF-8", path.display())))
}

fn usage(error: &ConfigError) -> RunError {
    RunError::Usage(error.to_string())
}

impl RunArgs {
    /// Program and arguments.
    pub fn command(&self) -> (&OsString, &[OsString]) {
        // At least one, says the parser.
        (&self.command[0], &self.command[1..])
    }

    /// The variables that the application would have, including those set by options.
    pub fn variables(&self) -> Result<Variables, RunError> {
        let mut variables = Variables::from_environment().map_err(|e| usage(&e))?;
        let explain = self.explain.then(|| "on".to_owned());
        let addresses = (!self.addresses.is_empty()).then(|| self.addresses.join(","));
        for (name, flag, value) in [
            ("IRNIC_TRANSPORT", "--transport", &self.transport),
            ("IRNIC_IMPAIR", "--impair", &self.impair),
            ("IRNIC_PORT", "--port", &self.port),
            ("IRNIC_PCAP", "--pcap", &self.pcap),
            ("IRNIC_DEVICE", "--device", &self.device),
            ("IRNIC_CONFIG", "--config", &self.config),
            ("IRNIC_STATS", "--stats", &self.stats),
            ("IRNIC_EXPLAIN", "--explain", &explain),
            ("IRNIC_INTERFACE", "--interface", &self.interface),
            ("IRNIC_ADDRESSES", "--address", &addresses),
            ("IRNIC_MTU", "--mtu", &self.mtu),
            ("IRNIC_RATE", "--rate", &self.rate),
            ("IRNIC_SEED", "--seed", &self.seed),
        ] {
            if let Some(value) = value {
                variables.set(name, value, Origin::Flag(flag.into()));
            }
        }
        Ok(variables)
    }

    /// Checks all settings, as the library does when the application starts.
    pub fn check(&self, variables: &Variables) -> Result<(Config, Vec<DeviceInfo>), RunError> {
        let config = Config::load(variables).map_err(|e| usage(&e))?;
        config.report_ignored();
        let infos = device::infos(&config).map_err(RunError::Usage)?;
        Ok((config, infos))
    }

    /// Whether the application is shown sysfs files.
    pub fn sysfs(&self) -> bool {
        self.sysfs
    }

    /// Truncates captures of earlier runs, which this one overwrites, after checking that the files are captures. Names
    /// with a process id refer to no existing file.
    pub fn prepare_outputs(&self, config: &Config) -> Result<(), RunError> {
        let refused = |given: &Given, key, error: OutputError| {
            let why = error.to_string();
            RunError::Usage(given.error(key, why.as_str()).map_or(why, |e| e.to_string()))
        };
        let fixed = |path: &&PathBuf| !path.to_string_lossy().contains("%p");
        if let Stats::Json(path) = &config.stats
            && fixed(&path)
        {
            Output::check(path, &STATISTICS).map_err(|e| refused(&config.given, "stats", e))?;
        }
        let captures = || config.devices.iter().filter_map(|d| Some((d, d.pcap.as_ref().filter(fixed)?)));
        for (device, path) in captures() {
            Output::check(path, &CAPTURE).map_err(|e| refused(&device.given, "pcap", e))?;
        }
        for (device, path) in captures() {
            Output::clear(path, &CAPTURE).map_err(|e| refused(&device.given, "pcap", e))?;
        }
        Ok(())
    }

    /// The additions to the application's environment.
    pub fn environment(&self, variables: &Variables, config: &Config) -> Result<BTreeMap<String, String>, RunError> {
        let mut environment = BTreeMap::new();
        for (name, (value, origin)) in variables.iter() {
            if matches!(origin, Origin::Flag(_)) {
                environment.insert(name.to_owned(), value.to_owned());
            }
        }
        // The checked settings apply in any working directory of the application: the file that was read, or none.
        let file = config.file.as_deref().unwrap_or(Path::new("/dev/null"));
        environment.insert("IRNIC_CONFIG".into(), absolute(file)?);
        // Applications may change their working directory before they open a device.
        if let (Some(_), Some(path)) =
            (variables.get("IRNIC_PCAP"), config.devices.first().and_then(|d| d.pcap.as_ref()))
        {
            environment.insert("IRNIC_PCAP".into(), absolute(path)?);
        }
        if let (Some(_), Stats::Json(path)) = (variables.get("IRNIC_STATS"), &config.stats) {
            environment.insert("IRNIC_STATS".into(), absolute(path)?);
        }
        Ok(environment)
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn what_is_completed_is_accepted() {
        let mut completed = Vec::new();
        for option in Line::command().get_arguments().filter(|option| option.is_hide_possible_values_set()) {
            let name = option.get_long().expect("a long option");
            for word in option.get_possible_values() {
                let rest = if word.get_name().ends_with(':') { "tap:tap0" } else { "" };
                let value = format!("--{name}={}{rest}", word.get_name());
                let line = Line::try_parse_from(["run", "--config=/dev/null", &value, "true"]);
                let variables = line.unwrap_or_else(|e| panic!("{e}")).args.variables().expect("variables");
                Config::load(&variables).unwrap_or_else(|e| panic!("{value}: {e}"));
                completed.push(value);
            }
        }
        for value in ["--port=auto", "--port=frames:tap:tap0", "--transport=irn"] {
            assert!(completed.iter().any(|known| known == value), "{value}: {completed:?}");
        }
    }
}
