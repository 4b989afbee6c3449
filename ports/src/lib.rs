//! What carries frames of NICs in real time: memory, UDP sockets, shared-memory rings, all that several processes of a host need to
//! share an address, and wrappers around these that impair or capture. [`NicPort`] joins a NIC and a port.
//!
//! A port moves *frames*: the bytes from the BTH to the ICRC, with the IP and UDP fields beside them as a [`Path`]. It computes no
//! ICRC: whoever fills a frame asks [`Port::wire_path`] which addresses and ports the ICRC has to cover.

pub mod capture;
#[cfg(test)]
mod conformance;
pub mod host;
pub mod impair;
mod link;
pub mod mem;
mod nic_port;
mod offset;
pub mod paced;
mod pcapng;
mod prefix;
pub mod raw;
mod region;
mod ring;
pub mod shm;
mod stamp;
pub mod udp;

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use irnic_transports::qp::PeerProcess;
use irnic_transports::{Path, Time};

pub use irnic_nic::frame::{RxFrame, RxIcrc};
pub use link::LinkError;
pub use nic_port::NicPort;
pub use stamp::host_now;

/// The largest frame that ports carry, in bytes: 4096 of payload, the rest for BTH, extended headers,
/// padding and ICRC.
pub const MAX_FRAME: usize = 4096 + 128;

const _: () = assert!(MAX_FRAME >= irnic_transports::wire::Headers::MAX_LEN + 4096 + 4);

/// A frame to be sent, but for its bytes.
#[derive(Copy, Clone, Debug)]
pub struct TxFrame<'a> {
    /// Where it goes.
    pub path: &'a Path,
    /// Destination queue pair of its BTH, 24 bits: several processes of a host may share the address in `path`.
    pub dest_qp: u32,
    /// Bytes from BTH to ICRC, at most [`Port::max_frame`].
    pub len: usize,
    /// Whether its last four bytes will be an ICRC. Only a port that said [`Port::needs_icrc`] is false may get a frame
    /// without, or one whose other end ignores ICRCs.
    pub icrc: bool,
    /// Whether the frame is in irnic's own format (IRN), which only irnic understands: its receiver puts up with whatever IPv4
    /// identification the kernel writes.
    pub irn: bool,
}

/// What a port has done since it was opened.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames handed to the carrier.
    pub tx_frames: u64,
    /// Units in which the carrier took them: datagrams before segmentation (UDP), flushes with frames (rings).
    pub tx_batches: u64,
    /// System calls that sent.
    pub tx_syscalls: u64,
    /// Frames that the carrier refused for good: too large, unreachable, wrong address family.
    pub tx_dropped: u64,
    /// Frames given to the receiver.
    pub rx_frames: u64,
    /// Units in which they came: datagrams after coalescing (UDP), `receive` calls that found something (rings).
    pub rx_batches: u64,
    /// System calls that received, those that found nothing included.
    pub rx_syscalls: u64,
    /// Datagrams lost here for want of socket buffer, or cut short.
    pub rx_dropped: u64,
    /// ICMP "port unreachable" reports: the peer's port is not open (yet).
    pub refused: u64,
}

/// Something that carries frames between NICs.
///
/// Closures are passed as `dyn`: an indirect call costs about a nanosecond a frame, and the port of a device can be chosen
/// when the program runs.
pub trait Port {
    /// The largest frame in bytes, BTH to ICRC.
    fn max_frame(&self) -> usize;

    /// The path that a frame given to `transmit` with `path` will have on the wire: source address and UDP source port as
    /// the port sends them. The ICRC must be computed over this one. The IPv4 identification is 0 with DF set.
    fn wire_path(&self, path: &Path) -> Path {
        *path
    }

    /// Whether a frame to this queue pair at this address must carry an ICRC. One that stays within the host's memory needs none.
    fn needs_icrc(&self, _path: &Path, _dest_qp: u32) -> bool {
        true
    }

    /// Queues one frame of exactly `frame.len` bytes (at most `max_frame`, or it panics) to `frame.path.dst`; `fill` writes it
    /// straight into the port's own buffer, and must write all of it: what it finds there is arbitrary.
    /// Returns false, without calling `fill`, if there is no room now: flush, and try again later. True means that the
    /// frame is the port's matter now, which may still lose it, as any network may.
    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool;

    /// Hands what was queued to the carrier. Call once per batch: when there is nothing more to send now, or when `transmit`
    /// said that there is no room. A call for every few frames costs bandwidth, most of all over UDP. What the carrier does not take now stays queued for the
    /// next call. An error names the frame that could not be sent; the frames after it are sent nevertheless.
    fn flush(&mut self, now: Time) -> io::Result<()>;

    /// Takes frames that have arrived, about `budget` of them at the most, and gives each to `each`. Never blocks. Returns how many.
    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize>;

    /// When the port itself next has something to do (a delayed frame falls due), [`Time::NEVER`] if nothing.
    fn next_deadline(&self) -> Time {
        Time::NEVER
    }

    /// Sleeps until a frame may have arrived, or there may be room again after `transmit` or `flush` met a full carrier, or
    /// `timeout` has passed.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// What becomes readable when there is something to do for a port that is [prepared to sleep](Port::prepare_sleep); `None`
    /// if the port can only be waited for by [`Port::wait`].
    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    /// Has [`Port::wait_fd`] become readable when something arrives, until the next `receive`. False if there is something
    /// to do already. What was queued must have been flushed.
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// The sleeper was woken: the next `receive` looks at everything.
    fn cancel_sleep(&mut self) {}

    /// Receives frames to a multicast group from beyond the host.
    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }

    /// Undoes [`Port::join`].
    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }

    /// What is known of the process that frames for this queue pair at `path.dst` go to. May make a system call.
    fn peer_process(&mut self, _path: &Path, _dest_qp: u32) -> PeerProcess {
        PeerProcess::Unknown
    }

    /// What the port has done since it was opened.
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }

    /// What was done to frames sent and received, if the port or one behind it is impaired.
    fn impairments(&self) -> Option<[impair::Report; 2]> {
        None
    }
}

/// What a port that wraps another leaves to it: sizes, addresses, waiting, groups, counters. `forward_rest!(self => self.port)` inside
/// the `impl`.
macro_rules! forward_rest {
    ($self:ident => $port:expr) => {
        fn max_frame(&$self) -> usize {
            ($port).max_frame()
        }

        fn wire_path(&$self, path: &irnic_transports::Path) -> irnic_transports::Path {
            ($port).wire_path(path)
        }

        fn wait(&mut $self, timeout: std::time::Duration) -> std::io::Result<()> {
            ($port).wait(timeout)
        }

        fn counters(&$self) -> $crate::PortCounters {
            ($port).counters()
        }

        fn peer_process(&mut $self, path: &irnic_transports::Path, dest_qp: u32) -> irnic_transports::qp::PeerProcess {
            ($port).peer_process(path, dest_qp)
        }

        fn wait_fd(&$self) -> Option<std::os::fd::RawFd> {
            ($port).wait_fd()
        }

        fn prepare_sleep(&mut $self) -> bool {
            ($port).prepare_sleep()
        }

        fn cancel_sleep(&mut $self) {
            ($port).cancel_sleep();
        }

        fn join(&mut $self, group: std::net::IpAddr) -> std::io::Result<()> {
            ($port).join(group)
        }

        fn leave(&mut $self, group: std::net::IpAddr) -> std::io::Result<()> {
            ($port).leave(group)
        }
    };
}
pub(crate) use forward_rest;

impl<P: Port + ?Sized> Port for Box<P> {
    fn needs_icrc(&self, path: &Path, dest_qp: u32) -> bool {
        (**self).needs_icrc(path, dest_qp)
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        (**self).transmit(now, frame, fill)
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        (**self).flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        (**self).receive(now, budget, each)
    }

    fn next_deadline(&self) -> Time {
        (**self).next_deadline()
    }

    fn impairments(&self) -> Option<[impair::Report; 2]> {
        (**self).impairments()
    }

    forward_rest!(self => **self);
}
