//! Several processes of a host behind one address, as behind a hardware NIC.
//!
//! The 24-bit queue pair number says which process: its upper bits are a [`Slot`]. Between processes of the host, and between
//! queue pairs of one process, frames go through rings in shared memory, one ring for each direction and pair of processes,
//! made when the first frame goes. docs/architecture.md tells the life of such a link.
//!
//! Only processes of one user share an address: both ends of every connection ask the kernel who the other is.

mod bell;
mod fault;
mod holder;
mod inbound;
mod links;
mod outbound;
mod slot;
mod sys;
#[cfg(test)]
mod tests;
mod wire;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use irnic_transports::qp::PeerProcess;
use irnic_transports::{Path, Time};

pub use self::fault::SocketFault;
pub use self::holder::Holder;
use self::links::{Links, Source};
pub use self::outbound::Stall;
pub use self::slot::{Slot, domain};
use super::link::RING_BYTES;
use super::prefix::{PREFIX, sent_icrc};
use super::region::{self, PAGE, SEALS};
use super::udp::Segmentation;
use super::{MAX_FRAME, Port, PortCounters, RxFrame, TxFrame};
use slot::Domain;
use wire::Wire;

/// What both ends of a connection say first, with the ring or the bell beside it: what this is, and the version of all that lies
/// in the memory passed.
const HELLO: [u8; 8] = *b"IRNICHL\x03";

/// Longest record in a ring.
const RECORD: usize = PREFIX + MAX_FRAME;

/// The destination queue pair of multicast frames (IBA).
const MULTICAST_QP: u32 = 0xff_ffff;

/// Calls of [`Port::receive`] after which the kernel is asked for news once, and the time after which it is in any case, in ns.
const SERVICE_POLLS: u32 = 256;
const SERVICE_NS: u64 = 1_000_000;

/// How a process joins a device.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Which device: what all its processes, and nobody else, have in common. At most 40 letters, digits, `-`, `_`, `.`; see
    /// [`domain`].
    pub domain: String,
    /// The device's addresses: frames to them stay on this host.
    pub addresses: Vec<IpAddr>,
    /// The slot to have; `None` takes a free one.
    pub slot: Option<Slot>,
    /// Bytes of each ring that this process writes, raised to a power of two from 128 KiB to 64 MiB. Default 512 KiB: it
    /// stays in the caches.
    pub ring_bytes: usize,
    /// What goes by UDP.
    pub udp: HostUdp,
    /// Which frames share a send over UDP.
    pub segmentation: Segmentation,
    /// Bytes of socket buffer to ask for, each way.
    pub socket_buffer: usize,
    /// Whether what comes by UDP bears the kernel's time ([`UdpConfig::kernel_stamps`](super::udp::UdpConfig)). What another process
    /// passes on keeps the time that it had there.
    pub kernel_stamps: bool,
}

/// What a [`HostPort`] uses UDP port 4791 for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum HostUdp {
    /// Nothing: only processes of this host are reached.
    Off,
    /// Frames from and to other addresses than the device's.
    On,
    /// All frames but those to the process itself, for experiments.
    Only,
}

/// What does not work though the port is open. The rest does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostWarning {
    /// Frames can be sent from here, but none arrive from other hosts.
    #[error("UDP port 4791 of {0} is taken by {1}: other hosts cannot reach this device")]
    PortTaken(IpAddr, Holder),
    /// Frames can be sent from here, but none arrive from other hosts: a process of another user has the device. Processes of
    /// different users do not reach each other either.
    #[error(
        "{1} has UDP port 4791 of {0}: neither other hosts nor other users' processes on this one can reach this device; run \
         both ends as one user"
    )]
    OtherUser(IpAddr, Holder),
    /// Nothing goes to or from other hosts.
    #[error("no UDP socket can be opened at {0}, and other hosts cannot be reached: {1}")]
    NoSocket(IpAddr, SocketFault),
}

impl HostConfig {
    /// The defaults for a device.
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
        }
    }
}

/// Why a device could not be joined. Inside the [`io::Error`] that [`HostPort::open`] returns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The domain cannot be part of a socket's name.
    #[error("domain {domain:?} is not 1 to {longest} letters, digits, '-', '_' or '.'")]
    Domain {
        /// The domain.
        domain: String,
        /// The most bytes it may have.
        longest: usize,
    },
    /// Another process has the slot asked for.
    #[error("slot {0} is taken by {1}")]
    SlotTaken(Slot, Holder),
    /// Every slot is taken.
    #[error("all {} slots of the device are taken, {others} of them by other users, one by {example}", Slot::MAX)]
    NoSlot {
        /// How many slots processes of other users have.
        others: usize,
        /// Who has one: another user's process if there are any.
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

/// What became of links and of frames that did not find one, beside the [`PortCounters`], which count those frames among
/// their drops.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Frames to slots that no process has.
    pub tx_absent: u64,
    /// Frames to processes whose ring had stood full for 100 ms without any progress.
    pub tx_stalled: u64,
    /// Frames to queue pair numbers that no process can have, or to addresses that cannot be reached.
    pub tx_unroutable: u64,
    /// Frames that came from other hosts and were passed on to other processes.
    pub forwarded: u64,
    /// Links made to other processes.
    pub links_opened: u64,
    /// Links to other processes that ended.
    pub links_lost: u64,
    /// Connections, either way, that came to nothing: another user, another version, no memory, no descriptors.
    pub links_refused: u64,
    /// Links, either way, given up because the other end wrote into the ring what cannot be.
    pub links_corrupt: u64,
}

/// Size of a file that a peer passed, if it is this user's and its size is sealed.
fn sealed_len(file: BorrowedFd<'_>) -> Option<usize> {
    let seals = region::seals(file);
    let (owner, len) = sys::owner_and_size(file).ok()?;
    let len = usize::try_from(len).ok()?;
    (sys::is_own_user(owner) && seals >= 0 && seals & SEALS == SEALS && len >= PAGE && len.is_multiple_of(PAGE))
        .then_some(len)
}

/// A process's port of a device that it shares with others.
///
/// A thread that polls calls [`Port::receive`] and costs nobody a system call. One that wants to sleep calls
/// [`HostPort::prepare_sleep`], sleeps until [`HostPort::wait_fd`] is readable, and calls [`HostPort::cancel_sleep`]; [`Port::wait`]
/// does just that.
pub struct HostPort {
    links: Links,
    /// `None` without UDP.
    wire: Option<Wire>,
    /// Every frame but those to this process goes by UDP.
    udp_only: bool,
    addresses: Vec<IpAddr>,
    /// A multicast frame, to be copied to several rings.
    scratch: Box<[u8; MAX_FRAME]>,
    /// Calls of `receive` since the kernel was last asked for news, and when that was.
    polls: u32,
    serviced: Time,
    /// The next `receive` asks the kernel.
    woken: bool,
    /// Somebody sleeps on `wait_fd`, and may take events out of the set.
    prepared: bool,
    /// Whose turn it is to be asked first.
    wire_first: bool,
    /// How often `wait` looks before it sleeps.
    spin: u32,
}

impl HostPort {
    /// Looks at the rings before [`Port::wait`] sleeps.
    pub const SPIN: u32 = 200;

    /// Joins a device. Fails with a [`HostError`] if the domain is none or the slot is taken.
    pub fn open(config: &HostConfig) -> io::Result<HostPort> {
        let ring_bytes = config.ring_bytes.clamp(*RING_BYTES.start(), *RING_BYTES.end()).next_power_of_two();
        let links = Links::new(Domain::new(&config.domain)?, config.slot, ring_bytes)?;
        let wire = (config.udp != HostUdp::Off).then(|| Wire::open(config, links.domain(), &links.epoll));
        Ok(HostPort {
            links,
            wire,
            udp_only: config.udp == HostUdp::Only,
            addresses: config.addresses.clone(),
            scratch: Box::new([0; MAX_FRAME]),
            polls: 0,
            serviced: Time::ZERO,
            woken: true,
            prepared: false,
            wire_first: false,
            spin: HostPort::SPIN,
        })
    }

    /// The slot of this process: its queue pair numbers begin at [`Slot::first_qpn`], and frames to others do not come here.
    pub fn slot(&self) -> Slot {
        self.links.slot()
    }

    /// What became of links and of frames without one.
    pub fn host_counters(&self) -> HostCounters {
        self.links.host
    }

    /// What does not work, each told once. Ask after [`HostPort::open`], and now and then later.
    pub fn take_warnings(&mut self) -> Vec<HostWarning> {
        self.wire.as_mut().map(|wire| std::mem::take(&mut wire.warnings)).unwrap_or_default()
    }

    /// Whether this process owns UDP port 4791 of an address and passes on what is for others.
    pub fn owns_udp(&self, address: IpAddr) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.owns(address))
    }

    /// Receives frames to a multicast group that other hosts send, on one of the device's addresses. What processes of this
    /// device send to groups arrives in any case.
    pub fn join(&mut self, address: IpAddr, group: IpAddr) -> io::Result<()> {
        self.wire.as_mut().map_or(Ok(()), |wire| wire.join(address, group, &self.links.epoll))
    }

    /// Ends what [`HostPort::join`] began.
    pub fn leave(&mut self, address: IpAddr, group: IpAddr) {
        if let Some(wire) = &mut self.wire {
            wire.leave(address, group, &self.links.epoll);
        }
    }

    /// The largest frame that reaches `path.dst` without fragments, in bytes.
    pub fn max_frame_to(&self, path: &Path) -> io::Result<usize> {
        match &self.wire {
            Some(wire) if self.udp_only || !self.is_local(path) => wire.max_frame_to(path),
            _ => Ok(MAX_FRAME),
        }
    }

    /// How often [`Port::wait`] looks at the rings before it sleeps.
    pub fn set_spin(&mut self, looks: u32) {
        self.spin = looks;
    }

    /// What becomes readable when there is something to do for a port that is prepared to sleep: an epoll set, for `epoll_wait`,
    /// `poll` or another set.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.links.epoll.as_fd()
    }

    /// Has others wake this process from now on. False, and then they do not, if there is something to do already: frames to
    /// receive, or room after `transmit` found none. What was queued must have been flushed.
    pub fn prepare_sleep(&mut self) -> bool {
        let wire_sleeps = self.wire.as_mut().is_none_or(|wire| wire.lie_down(&self.links.epoll));
        self.prepared = wire_sleeps && self.links.lie_down();
        self.prepared
    }

    /// Has others not wake this process any more, which saves them a system call, and looks at everything in the next
    /// [`Port::receive`], which also calls this. Cheap where nothing was prepared.
    #[inline]
    pub fn cancel_sleep(&mut self) {
        self.wake();
        if std::mem::take(&mut self.prepared)
            && let Some(wire) = &mut self.wire
        {
            wire.suspect_all();
        }
    }

    #[inline]
    fn wake(&mut self) {
        self.links.get_up();
        self.woken = true;
    }

    /// Asks the kernel for news: connections, deaths, sockets.
    #[cold]
    fn service(&mut self, now: Time) {
        self.polls = 0;
        self.woken = false;
        self.serviced = now;
        let mut tokens = [0; sys::EVENTS];
        self.links.counters.rx_syscalls += 1;
        let count = self.links.epoll.ready(&mut tokens);
        for (source, index) in tokens[..count].iter().filter_map(|token| Source::of(*token)) {
            match (source, &mut self.wire) {
                (Source::Udp, Some(wire)) => wire.on_event(index, now, self.links.domain(), &self.links.epoll),
                _ => self.links.on_event(source, index),
            }
        }
        // There is more than was asked for.
        self.woken = count == tokens.len();
    }

    fn is_local(&self, path: &Path) -> bool {
        self.addresses.contains(&path.dst)
    }

    /// The process that a frame goes to by ring; `None` if it leaves by UDP.
    #[inline]
    fn by_ring(&self, path: &Path, dest_qp: u32) -> Option<Slot> {
        let to = Slot::of(dest_qp).filter(|_| self.is_local(path))?;
        (!self.udp_only || to == self.links.slot()).then_some(to)
    }

    /// A frame to all: to every process of the device by ring, and to other hosts by UDP.
    fn multicast(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        fill(&mut self.scratch[..frame.len]);
        // Its ICRC covers this path, wherever it goes.
        let path = self.wire_path(frame.path);
        let bytes = &self.scratch[..frame.len];
        self.links.multicast(now, (&path, sent_icrc(frame)), bytes);
        if let Some(port) = self.wire.as_mut().and_then(|wire| wire.port_for_mut(frame.path))
            && !port.transmit(now, frame, &mut |out| out.copy_from_slice(bytes))
        {
            self.links.counters.tx_dropped += 1;
        }
        true
    }

    fn receive_wire(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let Some(wire) = &mut self.wire else { return Ok(0) };
        if now >= wire.next_deadline() {
            wire.retry(now, self.links.domain(), &self.links.epoll);
        }
        wire.receive(now, budget, &mut self.links, each)
    }
}

impl AsFd for HostPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wait_fd()
    }
}

impl Port for HostPort {
    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    fn wire_path(&self, path: &Path) -> Path {
        match &self.wire {
            Some(wire) if self.udp_only || !self.is_local(path) => wire.wire_path(path),
            _ => *path,
        }
    }

    fn needs_icrc(&self, path: &Path, dest_qp: u32) -> bool {
        self.wire.is_some() && self.by_ring(path, dest_qp).is_none()
    }

    fn peer_process(&mut self, path: &Path, dest_qp: u32) -> PeerProcess {
        self.by_ring(path, dest_qp).map_or(PeerProcess::Unknown, |to| self.links.process(to))
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        assert!(frame.len <= MAX_FRAME, "a frame of {} bytes, {MAX_FRAME} at the most", frame.len);
        if frame.dest_qp == MULTICAST_QP {
            return self.multicast(now, frame, fill);
        }
        if let Some(to) = self.by_ring(frame.path, frame.dest_qp) {
            return self.links.push(now, to, (frame.path, sent_icrc(frame)), frame.len, fill);
        }
        let by_udp = self.udp_only || !self.is_local(frame.path);
        match self.wire.as_mut().filter(|_| by_udp).and_then(|wire| wire.port_for_mut(frame.path)) {
            Some(port) => port.transmit(now, frame, fill),
            None => {
                self.links.host.tx_unroutable += 1;
                self.links.counters.tx_dropped += 1;
                true
            }
        }
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.links.flush();
        let sent = self.wire.as_mut().map_or(Ok(()), |wire| wire.flush(now));
        sent.and(self.links.stall.take().map_or(Ok(()), |stall| Err(io::Error::new(io::ErrorKind::TimedOut, stall))))
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.links.get_up();
        self.polls += 1;
        if self.woken || self.polls >= SERVICE_POLLS || now.since(self.serviced) >= SERVICE_NS {
            self.service(now);
        }
        if self.wire.is_none() {
            return Ok(self.links.receive(now, budget, each));
        }
        // Each comes first every other time, so that neither starves.
        self.wire_first = !self.wire_first;
        let mut frames = 0;
        if self.wire_first {
            frames = self.receive_wire(now, budget, each)?;
        }
        frames += self.links.receive(now, budget.saturating_sub(frames), each);
        if !self.wire_first {
            frames += self.receive_wire(now, budget.saturating_sub(frames), each)?;
        }
        Ok(frames)
    }

    fn next_deadline(&self) -> Time {
        self.links.next_deadline().min(self.wire.as_ref().map_or(Time::NEVER, Wire::next_deadline))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        for _ in 0..self.spin {
            if self.links.has_work() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if self.prepare_sleep() {
            self.links.counters.rx_syscalls += 1;
            let slept = self.links.epoll.sleep(timeout);
            // That takes no event out of the set.
            self.prepared = false;
            self.wake();
            slept?;
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        let mut total = self.links.counters;
        if let Some(wire) = &self.wire {
            wire.count(&mut total);
        }
        total
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.links.epoll.as_fd().as_raw_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        HostPort::prepare_sleep(self)
    }

    fn cancel_sleep(&mut self) {
        HostPort::cancel_sleep(self);
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        for address in self.addresses.clone().into_iter().filter(|a| a.is_ipv4() == group.is_ipv4()) {
            HostPort::join(self, address, group)?;
        }
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        for address in self.addresses.clone().into_iter().filter(|a| a.is_ipv4() == group.is_ipv4()) {
            HostPort::leave(self, address, group);
        }
        Ok(())
    }
}
