//! Configuration and counters of a process's port of a device.

use std::net::IpAddr;

use super::slot::Slot;
use crate::udp::Segmentation;

/// Configuration of a process's port of a device. [`HostConfig::new`] makes one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostConfig {
    /// Identifies the device: all its processes, and no others, use the same text. 1 to 40 letters, digits, `-`, `_` or
    /// `.`; [`domain`](super::domain) makes one.
    pub domain: String,
    /// Addresses of the device. Frames to them stay on this host.
    pub addresses: Vec<IpAddr>,
    /// Slot to claim. Default: `None`, any free one.
    pub slot: Option<Slot>,
    /// Size of each ring that this process writes in bytes, clamped to 128 KiB to 64 MiB and rounded up to a power of
    /// two. Default: 512 KiB, which stays in the caches.
    pub ring_bytes: usize,
    /// Use of UDP. Default: [`HostUdp::On`].
    pub udp: HostUdp,
    /// Which frames share a send over UDP. Default: [`Segmentation::Auto`].
    pub segmentation: Segmentation,
    /// Socket buffer to request, in bytes per direction. Default: 8 MiB.
    pub socket_buffer: usize,
    /// Whether frames received by UDP carry the kernel's time stamp (see `kernel_stamps` of
    /// [`UdpConfig`](crate::udp::UdpConfig)). Frames forwarded by another process keep the time when it received them.
    /// Default: false.
    pub kernel_stamps: bool,
    /// Which payloads the receiver's process copies out of this one's memory. Default: [`CrossMemory::Auto`].
    pub cross_memory: CrossMemory,
}

/// Which large payloads to other processes of the host stay in the sender's memory, from where the receiver's process
/// copies them (cross memory attach, process_vm_readv(2)), instead of passing through a ring.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum CrossMemory {
    /// None, in either direction.
    Off,
    /// Those of messages of several packets, while copies into a ring are slow: where the processes run on cores that
    /// share no cache.
    #[default]
    Auto,
    /// All of messages of several packets, as far as the kernel allows it.
    On,
}

/// Use of UDP port 4791 by a [`HostPort`](super::HostPort).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum HostUdp {
    /// None: only processes of this host are reached.
    Off,
    /// Frames from and to addresses other than the device's.
    On,
    /// All frames except those of the process to itself, for experiments.
    Only,
}

impl HostConfig {
    /// Returns the default configuration of a device: any slot, rings of 512 KiB, UDP on.
    pub fn new(domain: impl Into<String>, addresses: Vec<IpAddr>) -> HostConfig {
        HostConfig {
            domain: domain.into(),
            addresses,
            slot: None,
            ring_bytes: 512 << 10,
            udp: HostUdp::On,
            segmentation: Segmentation::Auto,
            socket_buffer: 8 << 20,
            kernel_stamps: false,
            cross_memory: CrossMemory::Auto,
        }
    }

    /// Returns the configuration with a slot to claim; `None` takes any free one.
    #[must_use]
    pub fn with_slot(self, slot: Option<Slot>) -> HostConfig {
        HostConfig { slot, ..self }
    }

    /// Returns the configuration with another size of each ring in bytes (clamped to 128 KiB to 64 MiB and rounded up
    /// to a power of two).
    #[must_use]
    pub fn with_ring_bytes(self, ring_bytes: usize) -> HostConfig {
        HostConfig { ring_bytes, ..self }
    }

    /// Returns the configuration with another use of UDP.
    #[must_use]
    pub fn with_udp(self, udp: HostUdp) -> HostConfig {
        HostConfig { udp, ..self }
    }

    /// Returns the configuration with another choice of the frames that share a send over UDP.
    #[must_use]
    pub fn with_segmentation(self, segmentation: Segmentation) -> HostConfig {
        HostConfig { segmentation, ..self }
    }

    /// Returns the configuration with another size of the socket buffers to request, in bytes per direction.
    #[must_use]
    pub fn with_socket_buffer(self, socket_buffer: usize) -> HostConfig {
        HostConfig { socket_buffer, ..self }
    }

    /// Returns the configuration with the kernel's time stamps of frames received by UDP switched on or off.
    #[must_use]
    pub fn with_kernel_stamps(self, kernel_stamps: bool) -> HostConfig {
        HostConfig { kernel_stamps, ..self }
    }

    /// Returns the configuration with another choice of the payloads that other processes copy out of this one's
    /// memory.
    #[must_use]
    pub fn with_cross_memory(self, cross_memory: CrossMemory) -> HostConfig {
        HostConfig { cross_memory, ..self }
    }
}

irnic_units::counters! {
    /// Counters of links, and of frames without one. [`PortCounters`](crate::PortCounters) counts those frames among
    /// its drops.
    pub struct HostCounters {
        /// Frames dropped because no process has the slot.
        tx_absent,
        /// Frames dropped because the receiver's ring had been full for 100 ms without progress.
        tx_stalled,
        /// Frames dropped because no process can have the queue pair number, or the address cannot be reached.
        tx_unroutable,
        /// Frames from other hosts that were forwarded to other processes.
        forwarded,
        /// Frames sent whose payload stayed in this process's memory.
        tx_by_reference,
        /// Frames dropped because their payload could no longer be read from its sender's memory.
        rx_unreadable,
        /// Links opened to other processes.
        links_opened,
        /// Links to other processes that ended.
        links_lost,
        /// Connections in either direction that failed: another user, another version, no memory, no descriptors.
        links_refused,
        /// Links in either direction closed because the peer wrote an impossible value into the ring.
        links_corrupt,
        /// Sleeping processes woken, and wake-ups read: each one sent is taken by another process.
        wakeups_sent,
        /// See [`HostCounters::wakeups_sent`].
        wakeups_taken,
    }
}
