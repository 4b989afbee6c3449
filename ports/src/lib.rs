//! Carriers of a NIC's frames in real time: memory, sockets, and wrappers that impair, pace and capture.
//!
//! ```text
//!   ┌─────┐    ┌─────────┐    ┌─────────────────────────────┐    ┌────────────────────────┐
//!   │ Nic ├────┤ NicPort ├────┤ Captured · Impaired · Paced ├────┤ a carrier, see below   │
//!   └─────┘    └─────────┘    └─────────────────────────────┘    └────────────────────────┘
//!   packets     packets to     any of these, in any order,        one of these: moves
//!   and time    frames, ICRC   each a Port around a Port          frames to the peer
//! ```
//!
//! A port moves *frames*: the bytes from the BTH to the ICRC, with the IP and UDP fields passed separately as a
//! [`Path`]. [`NicPort`] joins a NIC and a port. [`Port`] documents the requirements on a port, with a complete
//! implementation.
//!
//! | port | reaches | use it for |
//! |---|---|---|
//! | [`mem`] | another port of the same process | tests, examples, runs with impairments |
//! | [`shm`] | one other process, or thread, of the host | two processes that know each other |
//! | [`udp`] | any host that speaks RoCEv2 | other machines, hardware NICs, rxe |
//! | [`host`] | all processes of a device by shared memory, other hosts by UDP | verbs applications |
//! | [`frames`] | an Ethernet: virtual machines, TAP devices, interfaces | one process with addresses of its own |
//! | [`lab`] | hosts of an emulated network | unmodified applications on switches, losses and pauses |
//!
//! | wrapper | does |
//! |---|---|
//! | [`capture::Captured`] | records frames in a pcapng file |
//! | [`impair::Impaired`] | loses, delays, reorders, duplicates, corrupts, marks and trims frames, as `tc netem` and switches do |
//! | [`paced::Paced`] | limits sending to a link rate |
//!
//! [`output`] opens the files that settings name, such as captures, and never replaces a file of another kind.
//!
//! # What it does not do
//!
//! - Retransmit, order or acknowledge: a port may lose any frame, and the NIC recovers it.
//! - Compute or check ICRCs: the writer of a frame asks [`Port::wire_path`] for the addresses and ports that the ICRC
//!   covers.
//! - Hold any state of queue pairs. A port may read a frame's destination queue pair number to choose the process that
//!   receives it, and to decide whether it needs an ICRC.
//! - Start threads: the caller polls, or sleeps on [`Port::wait_fd`].
//! - Simulate networks with switches in virtual time: that is `irnic-fabric`.
//!
//! Linux only.

#![warn(unreachable_pub)]
// Models cover only a part of it.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

mod bell;
pub mod capture;
pub mod conformance;
mod control;
pub mod frames;
pub mod host;
pub mod impair;
pub mod lab;
mod link;
pub mod mem;
mod nic_port;
mod offset;
pub mod output;
pub mod paced;
mod pcapng;
mod prefix;
pub mod raw;
mod region;
mod ring;
pub mod sheet;
pub mod shm;
pub mod slices;
mod stamp;
mod sync;
mod timed;
mod timed_nic_port;
pub mod udp;
mod watched;

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use irnic_transports::qp::PeerProcess;
use irnic_transports::wire::RateNotice;
use irnic_transports::wire::ip::{ETHERNET_LEN, IPV4_LEN, IPV6_LEN, UDP_LEN};
use irnic_transports::{Gather, Path, Time};

pub use irnic_nic::Recall;
pub use irnic_nic::frame::{RxFrame, RxIcrc};
pub use link::LinkError;
pub use nic_port::NicPort;
pub use ring::Corrupt;
pub use stamp::host_now;
pub use timed::{Application, Timed, Turn};
pub use timed_nic_port::{Moved, TimedNicPort};
pub use watched::Watched;

/// The largest frame that ports carry, in bytes: 4096 of payload, the rest for BTH, extended headers, padding and ICRC.
pub const MAX_FRAME: usize = 4096 + 128;

const _: () = assert!(MAX_FRAME >= irnic_transports::wire::Headers::MAX_LEN + 4096 + 4);

/// Returns the length of a packet to `dst` with a frame of `frame_len` bytes, from its Ethernet header to its ICRC, as
/// counted by netem.
pub(crate) fn packet_len(dst: IpAddr, frame_len: usize) -> usize {
    ETHERNET_LEN + if dst.is_ipv4() { IPV4_LEN } else { IPV6_LEN } + UDP_LEN + frame_len
}

/// Returns an address in network order, IPv4 as mapped to IPv6.
pub(crate) fn mapped_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// The properties of a frame to be sent. Its bytes are written by the `fill` of [`Port::transmit`].
#[derive(Copy, Clone, Debug)]
pub struct TxFrame<'a> {
    /// Addresses, UDP source port, traffic class and hop limit.
    pub path: &'a Path,
    /// Destination queue pair number in the BTH, 24 bits. Several processes of a host may share the address in `path`.
    pub dest_qp: u32,
    /// Bytes from BTH to ICRC, at most [`Port::max_frame`].
    pub len: usize,
    /// Whether the last four bytes will be an ICRC. A frame without one may be sent only if [`Port::needs_icrc`] is
    /// false, or if the receiver ignores ICRCs.
    pub icrc: bool,
    /// Whether the frame is in irnic's own wire format (IRN). Only irnic understands it, and accepts any IPv4
    /// identification that the kernel writes.
    pub irn: bool,
}

irnic_units::counters! {
    /// Counters of a port since it was opened.
    pub struct PortCounters {
        /// Frames passed to the carrier.
        tx_frames,
        /// Units in which the carrier took them: datagrams before segmentation (UDP), non-empty flushes (rings).
        tx_batches,
        /// System calls that sent.
        tx_syscalls,
        /// Frames that can never be sent: too large, unreachable, wrong address family.
        tx_dropped,
        /// Frames passed to the receiver.
        rx_frames,
        /// Units in which they arrived: datagrams after coalescing (UDP), `receive` calls that found frames (rings).
        rx_batches,
        /// System calls that received, including those that found nothing.
        rx_syscalls,
        /// Frames lost on this host because the socket's buffer was full, or truncated. The kernel counts datagrams,
        /// each of which is assumed to have had as many frames as the one received after it.
        rx_dropped,
        /// ICMP "port unreachable" messages: the peer's port is not open (yet).
        refused,
    }
}

/// State of the way to a destination.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Frames can be sent.
    Ready,
    /// The neighbour was asked for its link-layer address. Call again after the port's next deadline or when something
    /// has arrived.
    Pending,
    /// The neighbour has not answered, or there is no route to such an address. Frames are dropped.
    Unreachable,
}

/// A carrier of frames between NICs.
///
/// # Requirements
///
/// - Deliver the bytes and the traffic class of a frame as they were sent, and the path that [`Port::wire_path`]
///   returns. A port may lose frames, but not for lack of room on this host: then [`Port::transmit`] returns false.
/// - Keep the order of frames, as far as its carrier does.
/// - Never block, except in [`Port::wait`].
/// - Return from [`Port::wait`] when a frame has arrived or there is room again.
/// - Count frames in [`Port::counters`].
///
/// The suite in [`conformance`] checks these. Every port of this crate passes it; run it on yours.
///
/// Closures are passed as `dyn`: an indirect call costs about a nanosecond per frame, and the port of a device can be
/// chosen at run time.
///
/// # A complete port
///
/// Two ends joined by a pair of queues:
///
/// ```
/// use std::collections::VecDeque;
/// use std::io;
/// use std::sync::{Arc, Mutex};
/// use std::time::{Duration, Instant};
///
/// use irnic_ports::{MAX_FRAME, Port, PortCounters, RxFrame, RxIcrc, TxFrame};
/// use irnic_transports::{Path, Time};
///
/// /// Path, time of sending, what is known of the ICRC, and bytes.
/// type Queue = Arc<Mutex<VecDeque<(Path, Time, RxIcrc, Vec<u8>)>>>;
/// const LIMIT: usize = 1024;
///
/// struct QueuePort { tx: Queue, rx: Queue, refused: bool, counters: PortCounters }
///
/// impl Port for QueuePort {
///     fn max_frame(&self) -> usize {
///         MAX_FRAME
///     }
///
///     fn needs_icrc(&self, _: &Path, _dest_qp: u32) -> bool {
///         false // this process's memory corrupts nothing
///     }
///
///     fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
///         assert!(frame.len <= MAX_FRAME);
///         let mut queue = self.tx.lock().unwrap();
///         self.refused = queue.len() == LIMIT;
///         if !self.refused {
///             let mut bytes = vec![0; frame.len];
///             fill(&mut bytes);
///             let icrc = if frame.icrc { RxIcrc::Exact } else { RxIcrc::Absent };
///             queue.push_back((*frame.path, now, icrc, bytes));
///             self.counters.tx_frames += 1;
///         }
///         !self.refused
///     }
///
///     fn flush(&mut self, _: Time) -> io::Result<()> {
///         Ok(()) // a port that batches system calls makes them here
///     }
///
///     fn receive(&mut self, _: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
///         for count in 0..budget {
///             let Some((path, arrived, icrc, bytes)) = self.rx.lock().unwrap().pop_front() else { return Ok(count) };
///             each(RxFrame { path, bytes: &bytes, arrived, icrc });
///             self.counters.rx_frames += 1;
///         }
///         Ok(budget)
///     }
///
///     fn wait(&mut self, timeout: Duration) -> io::Result<()> {
///         let start = Instant::now();
///         let arrived = || !self.rx.lock().unwrap().is_empty();
///         let useful = || arrived() || self.refused && self.tx.lock().unwrap().len() < LIMIT;
///         while !useful() && start.elapsed() < timeout {
///             std::thread::yield_now();
///         }
///         Ok(())
///     }
///
///     fn counters(&self) -> PortCounters {
///         self.counters
///     }
/// }
///
/// // It passes the suite:
/// use irnic_ports::conformance::{self, Pair};
///
/// conformance::suite(|| {
///     let (there, back) = (Queue::default(), Queue::default());
///     let end = |tx: &Queue, rx: &Queue| {
///         QueuePort { tx: tx.clone(), rx: rx.clone(), refused: false, counters: PortCounters::default() }
///     };
///     Pair::new(end(&there, &back), [10, 0, 0, 1].into(), end(&back, &there), [10, 0, 0, 2].into())
/// });
/// ```
pub trait Port {
    /// Returns the largest frame that can be sent, BTH to ICRC, in bytes: at most [`MAX_FRAME`].
    fn max_frame(&self) -> usize;

    /// Returns the path on the wire of a frame passed to [`Port::transmit`] with `path`, with the source address and
    /// UDP source port that the port really sends. The ICRC must be computed over this path, with DF set and an IPv4
    /// identification of 0. Default: `path` itself.
    fn wire_path(&self, path: &Path) -> Path {
        *path
    }

    /// Returns whether a frame to this queue pair at `path.dst` must carry an ICRC. One that stays within the host's
    /// memory needs none. Default: true.
    fn needs_icrc(&self, _path: &Path, _dest_qp: u32) -> bool {
        true
    }

    /// Returns whether frames to this queue pair stay in the host's memory, are read by an irnic of this version, and
    /// are recorded nowhere: a request may then carry an acknowledgement, in a format that is on no wire. Default:
    /// false.
    fn carries_acks(&self, _path: &Path, _dest_qp: u32) -> bool {
        false
    }

    /// Queues one frame of exactly `frame.len` bytes to `frame.path.dst`. `fill` is called once to write it, directly
    /// into the port's buffer, and must write every byte: the initial contents of the buffer are arbitrary.
    ///
    /// Returns false, without calling `fill`, if there is no room now: flush, and retry later. True means that the port
    /// has accepted the frame, which it may still lose, as any network may.
    ///
    /// # Panics
    /// If `frame.len` is above [`Port::max_frame`].
    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool;

    /// Queues one frame like [`Port::transmit`], but may leave its payload where it is: `fill` writes everything except
    /// the `payload`, which begins after the first `at` bytes. It may be given only these bytes of a frame without an
    /// ICRC, whose end is zeros then. Returns `None`, and does nothing, if the port has to copy such a frame: call
    /// [`Port::transmit`] then. Default: `None`.
    ///
    /// The payload's memory must not change until the packet is acknowledged, or what [`Port::recall`] returns was
    /// called; of a frame with an ICRC until [`Port::flush`] returns, or [`Port::flush_full`] reports that nothing
    /// remains queued.
    fn transmit_in_place(
        &mut self,
        _now: Time,
        _frame: &TxFrame<'_>,
        _at: usize,
        _payload: &Gather<'_>,
        _fill: &mut dyn FnMut(&mut [u8]),
    ) -> Option<bool> {
        None
    }

    /// Returns what the NIC calls before memory in use by [`Port::transmit_in_place`] may change; `None` if the
    /// port never leaves payloads in place for that long. Default: `None`.
    fn recall(&self) -> Option<Recall> {
        None
    }

    /// Passes what was queued to the carrier. Call it once per batch: when there is nothing more to send, or when
    /// [`Port::transmit`] had no room. Calling it every few frames costs bandwidth, most of all over UDP. What the
    /// carrier does not accept now stays queued for the next call.
    ///
    /// # Errors
    /// The first failure to send. It concerns single frames; the frames after them are still sent.
    fn flush(&mut self, now: Time) -> io::Result<()>;

    /// Passes to the carrier what gains nothing by waiting. What future frames may join, to share one system call,
    /// stays for the next call of this or of [`Port::flush`], as with MSG_MORE of send(2). Returns whether anything
    /// stays. Default: [`Port::flush`].
    ///
    /// # Errors
    /// As [`Port::flush`].
    fn flush_full(&mut self, now: Time) -> io::Result<bool> {
        self.flush(now).map(|()| false)
    }

    /// Passes arrived frames to `each`, about `budget` of them at most. Never blocks. Returns their number.
    ///
    /// # Errors
    /// The failure of the carrier or of its peer, such as a closed link. Frames that arrived before it have been
    /// delivered.
    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize>;

    /// Returns whether [`Port::receive`] may find something. False only if a look at memory shows that it would not,
    /// for callers that poll continuously and need only now and then do more than that. Default: true.
    fn may_receive(&mut self) -> bool {
        true
    }

    /// Returns a word that shows as much as the next `looks` calls of [`Port::may_receive`], while no other function of
    /// the port is called; `None` if there is no such word. Default: `None`.
    fn watched(&mut self, _looks: u32) -> Option<Watched> {
        None
    }

    /// Returns whether [`Port::take_notices`] ever returns any. Called once, when a NIC is put on the port. Default:
    /// false.
    fn gives_notices(&self) -> bool {
        false
    }

    /// Passes received notices of fair rates (RoCC) to `each`, with their times. Their ICMP messages are not frames, so
    /// [`Port::receive`] does not pass them. Default: nothing.
    fn take_notices(&mut self, _now: Time, _each: &mut dyn FnMut(Time, &RateNotice)) {}

    /// Returns when the port itself next has work to do, such as delivering a delayed frame; [`Time::NEVER`] for none.
    fn next_deadline(&self) -> Time {
        Time::NEVER
    }

    /// Sleeps until a frame may have arrived, until there may be room again after `transmit` or `flush` found the
    /// carrier full, or until `timeout` has passed. May return early.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Returns the descriptor that becomes readable when a port that is [prepared to sleep](Port::prepare_sleep) has
    /// work; `None` if only [`Port::wait`] can wait for the port.
    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    /// Makes [`Port::wait_fd`] readable when something arrives, until the next [`Port::receive`]. Returns false if
    /// there is work already. What was queued must have been flushed.
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// Ends [`Port::prepare_sleep`] after a wake-up: the next [`Port::receive`] polls every source.
    fn cancel_sleep(&mut self) {}

    /// Ends [`Port::prepare_sleep`] before a wake-up, for a caller that polls from now on: arrivals no longer wake a
    /// thread. Cheap if nothing was prepared.
    fn take_over(&mut self) {}

    /// Starts receiving frames that other hosts send to a multicast group.
    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }

    /// Stops receiving frames of a group that [`Port::join`] joined.
    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether frames to `dst` can be sent, and starts resolution if nothing is known: for rdma_resolve_addr(3)
    /// and its successors. The request leaves with the next [`Port::flush`]. Default: [`Resolution::Ready`], for ports
    /// without a link layer of their own.
    fn resolve(&mut self, _now: Time, _dst: IpAddr) -> Resolution {
        Resolution::Ready
    }

    /// Records that everything received so far is answered, and the answers flushed. A port whose frames go to
    /// processes of the same host shows it to their senders, who ask by [`Self::peer_process`]. The default does
    /// nothing.
    fn mark_answered(&mut self) {}

    /// Returns what is known of the destination process of frames to this queue pair at `path.dst`. May make a system
    /// call.
    fn peer_process(&mut self, _path: &Path, _dest_qp: u32) -> PeerProcess {
        PeerProcess::Unknown
    }

    /// Returns the counters since the port was opened.
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }

    /// Returns the port as one with its own clock for the times of frames; `None`, the default, for one that is driven
    /// by the caller's `now`.
    fn timed(&mut self) -> Option<&mut dyn Timed> {
        None
    }

    /// Returns the impairment reports of sent and of received frames, in this order; `None` if neither this port nor an
    /// inner one is impaired.
    fn impairments(&self) -> Option<[impair::Report; 2]> {
        None
    }
}

/// Implements the methods that a wrapper delegates to its inner port: sizes, addresses, waiting, groups, counters. Use
/// it as `forward_rest!(self => self.port)` inside the `impl`.
macro_rules! forward_rest {
    ($self:ident => $port:expr) => {
        irnic_units::delegate!(($port):
            fn max_frame(&$self) -> usize;
            fn wire_path(&$self, path: &irnic_transports::Path) -> irnic_transports::Path;
            fn wait(&mut $self, timeout: std::time::Duration) -> std::io::Result<()>;
            fn counters(&$self) -> $crate::PortCounters;
            fn mark_answered(&mut $self);
            fn peer_process(
                &mut $self,
                path: &irnic_transports::Path,
                dest_qp: u32,
            ) -> irnic_transports::qp::PeerProcess;
            fn resolve(&mut $self, now: irnic_transports::Time, dst: std::net::IpAddr) -> $crate::Resolution;
            fn wait_fd(&$self) -> Option<std::os::fd::RawFd>;
            fn prepare_sleep(&mut $self) -> bool;
            fn cancel_sleep(&mut $self);
            fn take_over(&mut $self);
            fn timed(&mut $self) -> Option<&mut dyn $crate::Timed>;
            fn join(&mut $self, group: std::net::IpAddr) -> std::io::Result<()>;
            fn leave(&mut $self, group: std::net::IpAddr) -> std::io::Result<()>;
        );
    };
}
pub(crate) use forward_rest;

impl<P: Port + ?Sized> Port for Box<P> {
    irnic_units::delegate!((**self):
        fn needs_icrc(&self, path: &Path, dest_qp: u32) -> bool;
        fn carries_acks(&self, path: &Path, dest_qp: u32) -> bool;
        fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool;
        fn transmit_in_place(
            &mut self,
            now: Time,
            frame: &TxFrame<'_>,
            at: usize,
            payload: &Gather<'_>,
            fill: &mut dyn FnMut(&mut [u8]),
        ) -> Option<bool>;
        fn recall(&self) -> Option<Recall>;
        fn flush(&mut self, now: Time) -> io::Result<()>;
        fn flush_full(&mut self, now: Time) -> io::Result<bool>;
        fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize>;
        fn may_receive(&mut self) -> bool;
        fn watched(&mut self, looks: u32) -> Option<Watched>;
        fn gives_notices(&self) -> bool;
        fn take_notices(&mut self, now: Time, each: &mut dyn FnMut(Time, &RateNotice));
        fn next_deadline(&self) -> Time;
        fn impairments(&self) -> Option<[impair::Report; 2]>;
    );

    forward_rest!(self => **self);
}
