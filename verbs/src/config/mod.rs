//! Configuration of devices: `irnic.toml`, and `IRNIC_*` variables that override it.
//!
//! [`keys`] is the table of names, defaults, values and meanings, `file` reads the file ([`irnic_units::toml`]) unless
//! other users can have written it (`trust`), `layers` combines both, `report` prints the result.

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
use irnic_ports::host::CrossMemory;
use irnic_ports::impair::Impairments;
use irnic_ports::lab::LabSpec;
use irnic_ports::udp::Segmentation;
use irnic_transports::config::TransportConfig;
use irnic_transports::wire::Mtu;

pub use error::{ConfigError, Origin};

pub use trust::{Distrusted, Ignored, open_trusted};
pub(crate) use value::file_of;
pub use variables::{Given, Variables};

/// The port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Shared memory within the host, UDP beyond it.
    Auto,
    /// Shared memory only.
    Shm,
    /// UDP, within the host as well.
    Udp,
    /// Whole Ethernet packets, with the device's own addresses.
    Frames(FrameSpec),
    /// An emulated network, with its own addresses.
    Lab(LabSpec),
}

impl PortKind {
    /// Returns the words that ports are or, with a colon, begin with.
    pub fn words() -> Vec<&'static str> {
        irnic_units::keys::words(&value::PORTS)
    }
}

/// Destination of statistics when the application ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stats {
    /// None.
    Off,
    /// As text to standard error.
    Text,
    /// As JSON to a file, in whose name `%p` is the process id.
    Json(PathBuf),
}

/// Maximum number of processing units of a device.
pub(crate) const MAX_UNITS: usize = 16;

/// Number of processing units that a device may have.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Units {
    /// One for each thread that has its own queues, at most one per processor.
    Auto,
    /// At most this many, assigned to completion queues in turn.
    Number(usize),
}

/// Indices of a device's addresses in the GID table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum GidLayout {
    /// From 0 on.
    Dense,
    /// At odd indices, like RoCE v2 in mlx5, which has RoCE v1 at the even ones: the link-local IPv6 address at 1,
    /// whether there is one or not, the others from 3 on.
    Mlx5,
}

/// Whether memory of GPUs can be registered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// No.
    Off,
    /// Yes, and programs that look for a kernel module which does it find one.
    On,
    /// As on, if this host has a GPU's driver.
    Auto,
}

impl Gpu {
    /// Returns whether it is on for this host.
    pub fn is_on(self) -> bool {
        let drivers = ["/proc/driver/nvidia/version", "/dev/kfd"];
        self == Gpu::On || self == Gpu::Auto && drivers.iter().any(|path| std::path::Path::new(path).exists())
    }
}

/// One device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceConfig {
    /// Name, such as `irnic0`.
    pub name: String,
    /// The network interface whose addresses the device has; `None`: the first that is up.
    pub interface: Option<String>,
    /// Addresses instead of the interface's.
    pub addresses: Vec<IpAddr>,
    /// The port.
    pub port: PortKind,
    /// The largest path MTU; `None`: the interface's.
    pub mtu: Option<Mtu>,
    /// The link's rate in bit/s.
    pub rate: Option<u64>,
    /// The transport of RC queue pairs.
    pub transport: TransportConfig,
    /// Impairments of packets by the emulated network.
    pub impair: Impairments,
    /// Seed of random numbers.
    pub seed: u64,
    /// File of a packet capture; `%p` in it is the process id.
    pub pcap: Option<PathBuf>,
    /// Which packets share a send over UDP.
    pub segmentation: Segmentation,
    /// Bytes of UDP socket buffer to request, per direction.
    pub socket_buffer: usize,
    /// Bytes of each ring to another process of the host.
    pub ring: usize,
    /// Which payloads to processes of this host stay in place.
    pub cross_memory: CrossMemory,
    /// How long the background thread polls after the last packet before it sleeps, in ns; `None`: adaptive.
    pub spin: Option<u64>,
    /// Number of processing units.
    pub units: Units,
    /// Indices of the addresses in the GID table.
    pub gid_layout: GidLayout,
    /// The NIC's clock.
    pub clock: Clock,
    /// Whether packets from UDP carry the kernel's time stamps.
    pub kernel_stamps: bool,
    /// Whether memory of GPUs can be registered.
    pub gpu: Gpu,
    /// Explicit settings and their origins.
    pub given: Given,
}

/// The whole configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Devices in the order in which applications see them.
    pub devices: Vec<DeviceConfig>,
    /// Destination of statistics.
    pub stats: Stats,
    /// Whether the reasons of failed calls are printed.
    pub explain: bool,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Explicit settings of the process as a whole and their origins.
    pub given: Given,
    /// Ignored sources: files that other users can have written, variables of a caller with fewer rights.
    pub ignored: Vec<Ignored>,
}

impl Config {
    /// Reports ignored sources on standard error, one line each.
    pub fn report_ignored(&self) {
        self.ignored.iter().for_each(|ignored| eprintln!("irnic: {ignored}"));
    }

    /// Loads the configuration from the environment and the file.
    pub fn from_environment() -> Result<Config, ConfigError> {
        Config::load(&Variables::from_environment()?)
    }
}
