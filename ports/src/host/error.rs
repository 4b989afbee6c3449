//! Warnings about a device, and errors of joining one.

use std::io;
use std::net::IpAddr;

use super::fault::SocketFault;
use super::hello::HELLO;
use super::holder::Holder;
use super::slot::Slot;

/// Error of joining a device. [`HostPort::open`](super::HostPort::open) returns it inside an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The domain is not a valid part of a socket's name.
    #[error("domain {domain:?} is not 1 to {longest} letters, digits, '-', '_' or '.'")]
    Domain {
        /// The domain given.
        domain: String,
        /// Longest domain in bytes.
        longest: usize,
    },
    /// Another process has the requested slot.
    #[error("slot {0} is taken by {1}")]
    SlotTaken(Slot, Holder),
    /// Every slot is taken.
    #[error("all {} slots of the device are taken, {others} of them by other users, one by {example}", Slot::MAX)]
    NoSlot {
        /// Slots held by processes of other users.
        others: usize,
        /// The holder of one slot: another user's process if there are any.
        example: Holder,
    },
}

impl From<HostError> for io::Error {
    fn from(e: HostError) -> io::Error {
        let kind = match e {
            HostError::Domain { .. } => io::ErrorKind::InvalidInput,
            HostError::SlotTaken(..) | HostError::NoSlot { .. } => io::ErrorKind::AddrInUse,
        };
        io::Error::new(kind, e)
    }
}

/// A part of an open port that does not work. The rest works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostWarning {
    /// Frames can be sent, but none arrive from other hosts: another program holds the UDP port.
    #[error("UDP port 4791 of {0} is taken by {1}: other hosts cannot reach this device")]
    PortTaken(IpAddr, Holder),
    /// Frames can be sent, but none arrive from other hosts: a process of another user holds the device. Processes of
    /// different users do not reach each other either.
    #[error(
        "{1} has UDP port 4791 of {0}: neither other hosts nor other users' processes on this one can reach this device; run \
         both ends as one user"
    )]
    OtherUser(IpAddr, Holder),
    /// Other hosts and this one do not reach each other: no socket can be opened at the address.
    #[error("no UDP socket can be opened at {0}, and other hosts cannot be reached: {1}")]
    NoSocket(IpAddr, SocketFault),
}

/// A process of the device runs a version of irnic with another shared memory layout. Frames pass in neither direction.
/// [`Port::flush`](crate::Port::flush) returns it inside an [`io::Error`], once per process, at both ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{process} has another version of irnic, whose shared memory is of version {theirs} and not {}: the two do not reach each \
     other; give all processes of a host one version",
    HELLO[7]
)]
pub struct OtherVersion {
    /// The other process.
    pub process: Holder,
    /// Version of its shared memory layout.
    pub theirs: u8,
}
