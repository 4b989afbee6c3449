//! The command line of `irnic lab`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use irnic_ports::frames::{FrameSpec, ParseFrameSpecError};
use irnic_sim::network_args::NetworkArgs;
use irnic_sim::port_capture::PcapArgs;

use crate::pace::{Pace, pace};

const AFTER_HELP: &str = "\
Each process that opens a device is a host of the network. Which one: IRNIC_LAB_HOST=N in its
environment, else its rank (PMI, Open MPI, Slurm), else the next that is free. Host N has the address
127.77.0.(N+1), which TCP can use as well. With --netns hosts are network namespaces, with the names
h0, h1 … and addresses 10.77.0.(N+1): irnic host N -- COMMAND, or ssh hN, goes there.

Times of the network are the lab's, which stands still while a process that has something to do has
no core: applications that read clocks find everything slower, and the summary says how much. Exit
status: the command's; 1 frames were later than --max-lag, or a host of the file failed; 2 bad options.

Examples:
  irnic lab -- ./run-my-test.sh                          a fat-tree of 54 hosts
  irnic lab --topology leaf-spine:leaves=2,spines=2,hosts=4,rate=1G,delay=20us --transport roce \\
            -- mpirun -n 8 ./app
  irnic lab --topology star:hosts=2 -- sh -c \\
            'ib_write_bw -d irnic0 & sleep 1; ib_write_bw -d irnic0 127.77.0.1'
  irnic lab --netns --topology star:hosts=4 -- mpirun --host h0,h1,h2,h3 ./app
  irnic lab clos.toml                                    hosts and their commands from a file
  irnic lab --clock dilated=100 --json lab.json -- ./app a hundred times slower than real time";

/// Run unmodified RDMA applications on an emulated network: switches, queues, pauses and losses, in real time.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct LabArgs {
    /// File with the network and its hosts (TOML)
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) network: NetworkArgs,

    /// How time goes: elastic, realtime, or dilated=K, K times slower; elastic=K is both; virtual jumps from event to
    /// event while all programs poll in vain or sleep (experimental)
    #[arg(long, value_name = "HOW", default_value = "elastic", value_parser = pace, help_heading = "Run")]
    pub clock: Pace,
    /// Virtual time goes on without a program that for so long neither posts nor polls: it may wait for something else
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time, help_heading = "Run")]
    pub virtual_patience: u64,
    /// Where all chance comes from
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Run")]
    pub seed: u64,
    /// Fail if a frame came later than this into the network [default: any]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Run")]
    pub max_lag: Option<u64>,
    /// Look at all ports so often, in the lab's time [default: 1ms with --series, --port-series or --html, else never]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Run")]
    pub sample: Option<u64>,

    /// Each host has a network namespace of its own, joined by a bridge, for TCP; as root, or in a user namespace
    #[arg(long, help_heading = "Run")]
    pub netns: bool,
    /// A host that is no process but a station on an Ethernet, such as a virtual machine, and what carries its packets:
    /// 2=dgram:local=PATH,remote=PATH, 2=tap:NAME or 2=packet:INTERFACE
    #[arg(long, value_name = "HOST=CARRIER", value_parser = guest, help_heading = "Run")]
    pub guest: Vec<(u32, FrameSpec)>,

    /// Where the control socket is, which `irnic ctl` talks to: a path, for this user only, or @NAME for an abstract
    /// one [default: an abstract name in IRNIC_LAB_CONTROL of the processes]
    #[arg(long, value_name = "PATH", help_heading = "Run")]
    pub control: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) pcap: PcapArgs,
    /// What happened: the network's ports, and what hosts sent each other; one of these files may be -, standard
    /// output: what commands print then goes to standard error
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// JUnit's XML: a test case for each command, which passes if it ends with status 0; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub junit: Option<PathBuf>,
    /// The whole network over time, as CSV: queues, rates, drops and pauses
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub series: Option<PathBuf>,
    /// Each port over time, as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub port_series: Option<PathBuf>,
    /// Report with plots, one file that needs nothing else
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,

    /// A page with the network as it is, for browsers: an address of this machine, such as 127.0.0.1:8080, or a port
    #[arg(long, value_name = "ADDR", value_parser = address, help_heading = "While it runs")]
    pub live: Option<SocketAddr>,
    /// Counters for Prometheus at /metrics of an address, likewise
    #[arg(long, value_name = "ADDR", value_parser = address, help_heading = "While it runs")]
    pub metrics: Option<SocketAddr>,
    /// --live and --metrics may have addresses that other machines reach: anybody can read them there
    #[arg(long, help_heading = "While it runs")]
    pub live_public: bool,

    /// Simulate the same flows afterwards, and put both side by side
    #[arg(long, help_heading = "Output")]
    pub compare: bool,
    /// No summary at the end
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,

    /// The application and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Reads a guest: the number of its host, and what carries its packets.
fn guest(text: &str) -> Result<(u32, FrameSpec), String> {
    let (host, carrier) = text.split_once('=').ok_or("expected HOST=CARRIER")?;
    let host = host.parse().map_err(|_| format!("{host:?}: expected the number of a host"))?;
    carrier.parse().map(|spec| (host, spec)).map_err(|e: ParseFrameSpecError| e.to_string())
}

/// Reads an address with a port, or the port of one of this machine's own.
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
