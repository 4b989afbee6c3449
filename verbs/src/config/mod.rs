//! What devices there are and what they are made of: `irnic.toml`, and `IRNIC_*` variables that win over it.
//!
//! [`keys`] is the one table of names, defaults, values and meanings, `file` reads the file ([`irnic_units::toml`])
//! unless others can have written it (`trust`), `layers` puts both together, `report` prints what came out.

mod error;
mod file;
pub mod keys;
mod layers;
mod report;
#[cfg(test)]
mod tests;
mod trust;
mod value;
mod variables;

use std::net::IpAddr;
use std::path::PathBuf;

use irnic_nic::clock::Clock;
use irnic_ports::frames::FrameSpec;
use irnic_ports::impair::Impairments;
use irnic_ports::lab::LabSpec;
use irnic_ports::udp::Segmentation;
use irnic_transports::config::TransportConfig;
use irnic_transports::wire::Mtu;

pub use error::{ConfigError, Origin};

pub use trust::{Distrusted, Ignored, open_trusted};
pub(crate) use value::file_of;
pub use variables::{Given, Variables};

/// What carries packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Shared memory within the host, UDP beyond it.
    Auto,
    /// Shared memory only.
    Shm,
    /// UDP, within the host as well.
    Udp,
    /// Whole Ethernet packets, with addresses of the device's own.
    Frames(FrameSpec),
    /// An emulated network, with addresses of its own.
    Lab(LabSpec),
}

/// Where statistics go when the application ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stats {
    /// Nowhere.
    Off,
    /// As text to standard error.
    Text,
    /// As JSON to a file, in whose name `%p` is the process id.
    Json(PathBuf),
}

/// Most processing units of a device.
pub(crate) const MAX_UNITS: usize = 16;

/// How many processing units a device may have.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Units {
    /// One for each thread that has queues of its own, as many as there are processors at the most.
    Auto,
    /// As many at the most, which completion queues take in turn.
    Number(usize),
}

/// At which indices of the GID table a device's addresses are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum GidLayout {
    /// From 0 on.
    Dense,
    /// At odd indices, as RoCE v2 is with mlx5, whose entries for RoCE v1 are at even ones: the link-local IPv6 address
    /// at 1, whether there is one or not, the others from 3 on.
    Mlx5,
}

/// One device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceConfig {
    /// Name, such as `irnic0`.
    pub name: String,
    /// The network interface whose addresses it has; `None`: the first that is up.
    pub interface: Option<String>,
    /// Addresses in place of the interface's.
    pub addresses: Vec<IpAddr>,
    /// What carries packets.
    pub port: PortKind,
    /// The largest path MTU; `None`: what the interface carries.
    pub mtu: Option<Mtu>,
    /// The link's rate in bit/s.
    pub rate: Option<u64>,
    /// The transport of RC queue pairs.
    pub transport: TransportConfig,
    /// What the emulated network does to packets.
    pub impair: Impairments,
    /// Seed of what is drawn at random.
    pub seed: u64,
    /// Where to write a capture; `%p` in it is the process id.
    pub pcap: Option<PathBuf>,
    /// Which packets share a send over UDP.
    pub segmentation: Segmentation,
    /// Bytes of UDP socket buffer to ask for, each way.
    pub socket_buffer: usize,
    /// Bytes of each ring to another process of the host.
    pub ring: usize,
    /// How long the background thread polls after the last packet before it sleeps, in ns; `None`: as long as it is
    /// worth it.
    pub spin: Option<u64>,
    /// How many processing units it may have.
    pub units: Units,
    /// At which indices of the GID table the addresses are.
    pub gid_layout: GidLayout,
    /// The NIC's clock.
    pub clock: Clock,
    /// Tells whether packets from UDP bear the kernel's time.
    pub kernel_stamps: bool,
    /// What was said, and where.
    pub given: Given,
}

/// All that is configured.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// In the order in which applications see them.
    pub devices: Vec<DeviceConfig>,
    /// Where statistics go.
    pub stats: Stats,
    /// Tells whether the reasons of refused calls are printed.
    pub explain: bool,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// What was said of the process as a whole, and where.
    pub given: Given,
    /// What was found and does not count: files that others can have written, variables of somebody with fewer rights.
    pub ignored: Vec<Ignored>,
}

impl Config {
    /// Says on standard error what does not count, a line each.
    pub fn tell_ignored(&self) {
        self.ignored.iter().for_each(|ignored| eprintln!("irnic: {ignored}"));
    }

    /// Reads what file and environment say.
    pub fn from_environment() -> Result<Config, ConfigError> {
        Config::load(&Variables::from_environment()?)
    }
}
