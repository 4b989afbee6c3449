//! The command line of `irnic lab`.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use irnic_ports::frames::{FrameSpec, ParseFrameSpecError};
use irnic_report::words::words;
use irnic_sim::key_args::{KeyArgs, Network};
use irnic_sim::port_capture::PcapArgs;
use serde::Serialize;

use crate::pace::{Pace, clocks, pace};

const AFTER_HELP: &str = "\
Each process that opens a device is a host of the network. Its number is IRNIC_LAB_HOST=N in its
environment, else its rank (PMI, Open MPI, Slurm), else that of the host with the fewest processes.
Host N has the address 127.77.0.(N+1), which TCP can use as well. With --netns, hosts are network
namespaces with the names h0, h1 … and addresses 10.77.0.(N+1); run commands there with irnic host N
-- COMMAND or ssh hN.

The network runs in lab time, which stops while a process with work to do has no core: applications
that read clocks see everything slower, and the summary reports by how much. Exit status: that of
the command, or of the first command of the file that failed; 1 if frames were later than --max-lag;
2 for bad options.

Examples:
  irnic lab -- ./run-my-test.sh                          a fat-tree of 54 hosts
  irnic lab --topology leaf-spine:leaves=2,spines=2,hosts=4,rate=1G,delay=20us --transport roce \\
            -- mpirun -n 8 ./app
  irnic lab --topology star:hosts=2 -- sh -c \\
            'ib_write_bw -d irnic0 & sleep 1; ib_write_bw -d irnic0 127.77.0.1'
  irnic lab --netns --topology star:hosts=4 -- mpirun --host h0,h1,h2,h3 ./app
  irnic lab clos.toml                                    hosts and their commands from a file
  irnic lab --shell --netns --tcp emulated --topology star:hosts=2    a prompt; then, for example: h0 ping h1
  irnic lab --clock dilated=100 --json lab.json -- ./app a hundred times slower than real time";

/// Path of the IP packets of hosts with network namespaces.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tcp {
    /// A bridge outside the emulated network
    Bridge,
    /// The emulated network
    Emulated,
}

/// The time that programs see.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ProgramTime {
    /// The machine's
    Machine,
    /// The lab's
    Lab,
}

impl fmt::Display for ProgramTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProgramTime::Machine => "machine",
            ProgramTime::Lab => "lab",
        })
    }
}

/// Run unmodified RDMA applications on an emulated network: switches, queues, pauses and losses, in real time.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct LabArgs {
    /// File with the network and its hosts (TOML)
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) network: KeyArgs<Network>,

    /// Clock mode: elastic; realtime; dilated=K, K times slower; elastic=K, both; or virtual, which jumps from event to
    /// event while all programs poll in vain or sleep (experimental)
    #[arg(long, value_name = "HOW", default_value = "elastic", help_heading = "Run")]
    #[arg(value_parser = words(clocks()).try_map(|text| pace(&text)), hide_possible_values = true)]
    pub clock: Pace,
    /// With --clock virtual: advance time without a program that has neither posted nor polled for this long, since it
    /// may be waiting for something else
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time, help_heading = "Run")]
    pub virtual_patience: u64,
    /// Time that programs see: the machine's; or the lab's (lab), in which the rates that they print are those of the
    /// network: clocks of the C library, absolute timeouts, on x86 the time stamp counter
    #[arg(long, value_name = "WHOSE", default_value = "machine", help_heading = "Run")]
    pub program_time: ProgramTime,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Run")]
    pub seed: u64,
    /// Fail if any frame enters the network later than this [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Run")]
    pub max_lag: Option<u64>,
    /// Sampling interval of all ports, in lab time [default: 1ms with --series, --port-series or --html, else never]
    #[arg(long, value_name = "TIME", value_parser = interval, help_heading = "Run")]
    pub sample: Option<u64>,

    /// Give each host its own network namespace, joined by a bridge, for TCP; requires root or a user namespace
    #[arg(long, help_heading = "Run")]
    pub netns: bool,
    /// With --netns: path of the hosts' other IP packets, as of TCP and ping: a bridge outside the emulated network; or
    /// the emulated network (emulated), with its rates, delays, losses and faults
    #[arg(long, value_name = "PATH", help_heading = "Run")]
    pub tcp: Option<Tcp>,
    /// Attach an Ethernet station, such as a virtual machine, as a host, with the carrier of its packets:
    /// 2=dgram:local=PATH,remote=PATH, 2=tap:NAME or 2=packet:INTERFACE
    #[arg(long, value_name = "HOST=CARRIER", value_parser = guest, help_heading = "Run")]
    pub guest: Vec<(u32, FrameSpec)>,

    /// Control socket for `irnic ctl`: a path, for this user only, or @NAME for an abstract socket [default: an
    /// abstract name, in IRNIC_LAB_CONTROL of the processes]
    #[arg(long, value_name = "PATH", help_heading = "Run")]
    pub control: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) pcap: PcapArgs,
    /// Write statistics of the ports and of the traffic between hosts as JSON; one output file may be -, standard
    /// output, in which case the output of commands goes to standard error
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write the statistics of the whole network as a line of CSV, with all settings as columns; - writes to standard
    /// output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// Write JUnit XML, a test case per command, which passes if the exit status is 0; - writes to standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub junit: Option<PathBuf>,
    /// Write queues, rates, drops and pauses of the whole network over time as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub series: Option<PathBuf>,
    /// Write the same for each port over time as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub port_series: Option<PathBuf>,
    /// Write a self-contained HTML report with plots
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,

    /// Serve a web page with the current state of the network, at an address of this machine, such as 127.0.0.1:8080,
    /// or a port
    #[arg(long, value_name = "ADDR", value_parser = address, help_heading = "Monitoring")]
    pub live: Option<SocketAddr>,
    /// Serve counters for Prometheus at /metrics of such an address or port
    #[arg(long, value_name = "ADDR", value_parser = address, help_heading = "Monitoring")]
    pub metrics: Option<SocketAddr>,
    /// Allow addresses for --live and --metrics that other machines can reach; anyone there can read them
    #[arg(long, help_heading = "Monitoring")]
    pub live_public: bool,

    /// Simulate the same flows afterwards, and print both results side by side
    #[arg(long, help_heading = "Output")]
    pub compare: bool,
    /// Print no summary at the end
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,

    /// Prompt for commands on hosts and for faults; help lists them
    #[arg(long, conflicts_with = "command", help_heading = "Run")]
    pub shell: bool,

    /// Application and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Parses a guest: the number of its host, and the carrier of its packets.
fn guest(text: &str) -> Result<(u32, FrameSpec), String> {
    let (host, carrier) = text.split_once('=').ok_or("expected HOST=CARRIER")?;
    let host = host.parse().map_err(|_| format!("{host:?}: expected the number of a host"))?;
    carrier.parse().map(|spec| (host, spec)).map_err(|e: ParseFrameSpecError| e.to_string())
}

/// Parses an address with a port, or a port of the loopback address.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    let named =
        || text.strip_prefix("localhost:")?.parse().ok().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    let whole = || port.ok().or_else(named).or_else(|| text.parse().ok());
    whole().ok_or_else(|| "expected an address and a port such as 127.0.0.1:8080 or [::1]:8080, or a port".into())
}

fn time(text: &str) -> Result<u64, String> {
    irnic_units::time(text).ok_or_else(|| format!("expected {}", irnic_units::TIME))
}

fn interval(text: &str) -> Result<u64, String> {
    Some(time(text)?).filter(|interval| *interval > 0).ok_or_else(|| "expected a time of at least 1 ns".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_this_machines_own_if_only_the_port_is_given() {
        for (text, read) in [
            ("8080", "127.0.0.1:8080"),
            (":0", "127.0.0.1:0"),
            ("localhost:9", "127.0.0.1:9"),
            ("[::1]:80", "[::1]:80"),
            ("0.0.0.0:80", "0.0.0.0:80"),
        ] {
            assert_eq!(address(text).map(|a| a.to_string()), Ok(read.to_owned()), "{text}");
        }
        for text in ["", "127.0.0.1", "70000", "example.org:80", "localhost:"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
