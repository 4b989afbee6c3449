//! Errors of a frame port.

use std::io;
use std::net::IpAddr;

use super::config::Carrier;
use crate::host::Holder;

/// Why a frame port cannot be opened, or which frame it could not send. The port returns it inside an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The station has no address.
    #[error("a frame port needs addresses of its own, such as 10.77.0.2: the kernel gives it none")]
    NoAddress,
    /// The interface, whose kernel answers for its own addresses, has one of the station's.
    #[error(
        "{0} is the kernel's own address: it would answer ARP and refuse RoCE packets itself; choose another of the same \
         network"
    )]
    KernelAddress(IpAddr),
    /// Another process has the port.
    #[error(
        "frames:{carrier} is taken by {holder}: a frame port is one process's; several share an address with port = auto or \
         udp"
    )]
    Taken {
        /// The carrier.
        carrier: Carrier,
        /// The process that has it.
        holder: Holder,
    },
    /// The carrier cannot be opened.
    #[error("cannot open frames:{carrier}: {error}")]
    Open {
        /// The carrier.
        carrier: Carrier,
        /// System error message.
        error: String,
    },
    /// A frame does not fit into one packet.
    #[error(
        "a frame of {frame} bytes to {dst} does not fit the MTU of {mtu} bytes with its IP and UDP headers: \
         choose a smaller path MTU or raise the interface's"
    )]
    Mtu {
        /// Length of the frame from BTH to ICRC, in bytes.
        frame: usize,
        /// Destination address.
        dst: IpAddr,
        /// MTU in bytes.
        mtu: usize,
    },
    /// The station has no address of the destination's family, or the address cannot be a station's.
    #[error("{0} cannot be reached: it is no station's address, or this station has none of its family")]
    Address(IpAddr),
    /// The carrier refused a packet.
    #[error("cannot send a packet of {len} bytes: {error}")]
    Send {
        /// Length of the packet from its Ethernet header, in bytes.
        len: usize,
        /// System error message.
        error: String,
    },
}

impl From<FrameError> for io::Error {
    fn from(e: FrameError) -> io::Error {
        let kind = match e {
            FrameError::Taken { .. } => io::ErrorKind::AddrInUse,
            FrameError::Open { .. } => io::ErrorKind::NotConnected,
            FrameError::KernelAddress(_) => io::ErrorKind::AddrNotAvailable,
            FrameError::NoAddress | FrameError::Mtu { .. } | FrameError::Address(_) => io::ErrorKind::InvalidInput,
            FrameError::Send { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, e)
    }
}
