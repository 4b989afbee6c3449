//! The carriers of whole packets: packet socket, TAP device, unix datagram socket.

mod dgram;
mod packet;
mod sys;
mod tap;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use irnic_transports::Time;

use self::dgram::Dgram;
use self::packet::Interface;
use self::tap::Tap;
use super::config::Carrier;
use super::error::FrameError;
use super::ethernet::Mac;
use super::queue::TxQueue;
use super::sent::Sent;
use crate::PortCounters;

pub(super) use sys::{RxBuffers, kernel_addresses};

/// An open carrier.
pub(super) enum Wire {
    Packet(Interface),
    Tap(Tap),
    Dgram(Dgram),
}

impl Wire {
    /// Opens a carrier for the station at `mac`.
    pub(super) fn open(carrier: &Carrier, mac: Mac, socket_buffer: usize) -> Result<Wire, FrameError> {
        let opened = match carrier {
            Carrier::Packet(interface) => Interface::open(interface, mac, socket_buffer).map(Wire::Packet),
            Carrier::Tap(name) => Tap::open(name).map(Wire::Tap),
            Carrier::Dgram { local, remote } => Dgram::open(local, remote, socket_buffer).map(Wire::Dgram),
        };
        opened.map_err(|e| FrameError::Open { carrier: carrier.clone(), error: explain(carrier, &e) })
    }

    /// Returns the longest IP packet in bytes; `None` where there is no limit but the port's own.
    pub(super) fn mtu(&self) -> Option<usize> {
        match self {
            Wire::Packet(interface) => Some(interface.mtu()),
            Wire::Tap(tap) => Some(tap.mtu()),
            Wire::Dgram(_) => None,
        }
    }

    /// Starts receiving packets to a group of this address.
    pub(super) fn join(&mut self, group: IpAddr) -> io::Result<()> {
        match self {
            Wire::Packet(interface) => interface.membership(Mac::of_group(group), true),
            Wire::Tap(_) | Wire::Dgram(_) => Ok(()),
        }
    }

    /// Stops receiving packets to a group.
    pub(super) fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        match self {
            Wire::Packet(interface) => interface.membership(Mac::of_group(group), false),
            Wire::Tap(_) | Wire::Dgram(_) => Ok(()),
        }
    }

    /// Returns the time of the next work of [`Wire::check_peer`].
    pub(super) fn next_deadline(&self) -> Time {
        match self {
            Wire::Dgram(dgram) => dgram.next_deadline(),
            Wire::Packet(_) | Wire::Tap(_) => Time::NEVER,
        }
    }

    /// Checks whether the peer has changed.
    pub(super) fn check_peer(&mut self, now: Time) {
        if let Wire::Dgram(dgram) = self {
            dgram.check_peer(now);
        }
    }

    /// Removes the socket's file, if there is one.
    pub(super) fn remove_file(&mut self) {
        if let Wire::Dgram(dgram) = self {
            dgram.remove_file();
        }
    }

    /// Sends the queue until it is empty or the carrier is full.
    pub(super) fn send(&mut self, queue: &mut TxQueue, counters: &mut PortCounters) -> Sent {
        match self {
            Wire::Packet(interface) => interface.send(queue, counters),
            Wire::Tap(tap) => tap.send(queue, counters),
            Wire::Dgram(dgram) => dgram.send(queue, counters),
        }
    }

    /// Fills at most `most` buffers. All earlier packets must have been taken. Returns the number received.
    pub(super) fn fill(&mut self, rx: &mut RxBuffers, most: usize, counters: &mut PortCounters) -> io::Result<usize> {
        match self {
            Wire::Tap(tap) => tap.fill(rx, most, counters),
            Wire::Packet(_) | Wire::Dgram(_) => rx.receive(self.as_fd(), most, counters),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Wire::Packet(interface) => interface.as_fd(),
            Wire::Tap(tap) => tap.as_fd(),
            Wire::Dgram(dgram) => dgram.as_fd(),
        }
    }
}

/// Returns the user's explanation of an error of opening a carrier.
fn explain(carrier: &Carrier, error: &io::Error) -> String {
    let hint = match (carrier, error.raw_os_error()) {
        (Carrier::Packet(_), Some(libc::EPERM)) => "; packet sockets need CAP_NET_RAW",
        (Carrier::Tap(_), Some(libc::EPERM)) => {
            "; a TAP device that is not yours needs CAP_NET_ADMIN: ip tuntap add dev NAME mode tap user YOU makes it yours"
        }
        (Carrier::Tap(_), Some(libc::EBUSY)) => "; another program has it open",
        (Carrier::Tap(_), Some(libc::EINVAL)) => "; an interface of this name is no TAP device",
        (Carrier::Dgram { .. }, Some(libc::EADDRINUSE)) => "; another program listens there, or it is no socket",
        _ => "",
    };
    format!("{error}{hint}")
}
