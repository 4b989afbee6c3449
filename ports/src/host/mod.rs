//! Several processes of a host behind one address, as behind a hardware NIC.
//!
//! The upper bits of the 24-bit queue pair number, the [`Slot`], identify the process. Between processes of the host,
//! and between queue pairs of one process, frames go through rings in shared memory: one ring for each direction of
//! each pair of processes, created when the first frame is sent. docs/processes.md describes the life of such a link.
//!
//! Only processes of one user share an address: both ends of every connection ask the kernel for the user of the other
//! (SO_PEERCRED).

mod bell;
mod config;
mod domain;
mod error;
mod fault;
mod fetch;
mod hello;
mod holder;
mod inbound;
mod links;
#[cfg(all(test, loom))]
mod model;
mod outbound;
mod reference;
pub(crate) mod services;
pub(crate) mod slot;
pub(crate) mod sys;
mod taken;
#[cfg(all(test, not(loom)))]
mod tests;
mod waiting;
mod wire;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use irnic_transports::qp::{MULTICAST_QPN, PeerProcess, Reader};
use irnic_transports::wire::mad::GSI_QPN;
use irnic_transports::{Gather, Path, Time};

pub use self::config::{CrossMemory, HostConfig, HostCounters, HostUdp};
use self::domain::Domain;
pub use self::domain::domain;
pub use self::error::{HostError, HostWarning, OtherVersion};
pub use self::fault::SocketFault;
pub use self::holder::Holder;
use self::links::{Links, Source};
pub use self::outbound::Stall;
pub use self::services::ServiceClaim;
use self::services::{Names, Receiver};
pub use self::slot::Slot;
pub(crate) use self::sys::sealed_len;
pub use self::taken::Taken;
use super::link::RING_BYTES;
use super::prefix::sent_icrc;
use super::udp::UdpPort;
use super::{MAX_FRAME, Port, PortCounters, Recall, RxFrame, TxFrame, Watched};
use wire::Wire;

/// The kernel is polled for events once every `SERVICE_POLLS` calls of [`Port::receive`], and at the latest after
/// `SERVICE_NS` ns.
const SERVICE_POLLS: u32 = 256;
const SERVICE_NS: u64 = 1_000_000;

/// A process's port of a device that it shares with other processes of its user.
///
/// A thread that polls calls [`Port::receive`]; senders then make no system call. A thread that wants to sleep calls
/// [`HostPort::prepare_sleep`], waits until [`HostPort::wait_fd`] is readable, and calls [`HostPort::cancel_sleep`].
/// [`Port::wait`] does the same.
pub struct HostPort {
    links: Links,
    /// `None` without UDP.
    wire: Option<Wire>,
    /// All frames except those to this process are sent by UDP.
    udp_only: bool,
    addresses: Vec<IpAddr>,
    /// Buffer of a frame whose receivers depend on its bytes: of a multicast group, or a management datagram.
    scratch: Box<[u8; MAX_FRAME]>,
    /// Calls of `receive` since the kernel was last polled for events, and the time of that.
    polls: u32,
    serviced: Time,
    /// The next `receive` polls the kernel for events.
    woken: bool,
    /// A thread sleeps on `wait_fd` and may consume events of the set.
    prepared: bool,
    /// Whether UDP is read before the rings; alternates.
    wire_first: bool,
    /// How many times `wait` polls before it sleeps.
    spin: u32,
}

impl HostPort {
    /// Default number of polls before [`Port::wait`] sleeps.
    pub const SPIN: u32 = 200;

    /// Joins a device: claims a slot and opens the UDP sockets.
    ///
    /// # Errors
    /// A [`HostError`] if the domain is invalid or no slot is free; otherwise the system's error, if there is no memory
    /// or no file descriptor. A UDP socket that cannot be opened is not an error but a [`HostWarning`].
    pub fn open(config: &HostConfig) -> io::Result<HostPort> {
        let ring_bytes = config.ring_bytes.clamp(*RING_BYTES.start(), *RING_BYTES.end()).next_power_of_two();
        let links = Links::new(Domain::new(&config.domain)?, config.slot, ring_bytes, config.cross_memory)?;
        let wire = (config.udp != HostUdp::Off).then(|| Wire::open(config, links.domain(), links.slot(), &links.epoll));
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

    /// Returns the slot of this process. Its queue pair numbers begin at [`Slot::first_qpn`]; frames to other numbers
    /// do not arrive here.
    pub fn slot(&self) -> Slot {
        self.links.slot()
    }

    /// Returns the counters of links, and of frames without one.
    pub fn host_counters(&self) -> HostCounters {
        self.links.host
    }

    /// Returns the warnings, each one once. Call it after [`HostPort::open`] and from time to time.
    pub fn take_warnings(&mut self) -> Vec<HostWarning> {
        self.wire.as_mut().map(|wire| std::mem::take(&mut wire.warnings)).unwrap_or_default()
    }

    /// Returns whether this process owns UDP port 4791 of `address`, and so forwards the frames of other processes.
    pub fn owns_udp(&self, address: IpAddr) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.owns(address))
    }

    /// Adds an address to the device, if it is new: frames to it stay on the host, and other hosts reach the device at
    /// it. A lost address need not be removed: the kernel refuses to send from it.
    pub fn add_address(&mut self, address: IpAddr) {
        if self.addresses.contains(&address) || self.wire.as_mut().is_some_and(|wire| !wire.add_address(address)) {
            return;
        }
        self.addresses.push(address);
        self.woken = true;
    }

    /// Receives frames that other hosts send to a multicast group, on `address` of the device. Frames that processes of
    /// this device send to groups arrive in any case. Does nothing without UDP.
    ///
    /// # Errors
    /// `AddrNotAvailable` if the device does not have the address, `QuotaExceeded` beyond 256 groups; otherwise the
    /// system's error.
    pub fn join(&mut self, address: IpAddr, group: IpAddr) -> io::Result<()> {
        self.wire.as_mut().map_or(Ok(()), |wire| wire.join(address, group, &self.links.epoll))
    }

    /// Stops receiving frames of a group that [`HostPort::join`] joined.
    pub fn leave(&mut self, address: IpAddr, group: IpAddr) {
        if let Some(wire) = &mut self.wire {
            wire.leave(address, group, &self.links.epoll);
        }
    }

    /// Returns whether processes of the device may have ended since the last call.
    pub fn take_lost(&mut self) -> bool {
        self.links.take_lost()
    }

    /// Has [`HostPort::take_lost`] return true once more: a process has become known that may have ended before.
    pub fn look_again(&mut self) {
        self.links.look_again();
    }

    /// Returns whether the process that a communication id of `address` belongs to had ended when
    /// [`HostPort::take_lost`] was last called. False if that is not known: on another host.
    pub fn peer_ended(&self, address: IpAddr, comm_id: u32) -> bool {
        let slot = Slot::of_comm_id(comm_id);
        self.addresses.contains(&address) && slot.is_some_and(|slot| self.links.process_ended(slot))
    }

    /// Claims a service id for this process: no other process of the device gets it until the claim is dropped.
    /// Connection requests for it (MADs that name it) are delivered here after [`ServiceClaim::listen`].
    ///
    /// # Errors
    /// `AddrInUse` if a process of the device has it; otherwise the system's error, for lack of descriptors.
    pub fn claim_service(&self, service: u64) -> io::Result<ServiceClaim> {
        Names::claim(self.links.domain(), service, self.slot()).map(ServiceClaim::new)
    }

    /// Returns the largest frame that reaches `path.dst` without fragmentation, in bytes.
    ///
    /// # Errors
    /// `NetworkUnreachable` if no address of the device can reach it; otherwise the system's error.
    pub fn max_frame_to(&self, path: &Path) -> io::Result<usize> {
        match &self.wire {
            Some(wire) if self.udp_only || !self.is_local(path) => wire.max_frame_to(path),
            _ => Ok(MAX_FRAME),
        }
    }

    /// Sets how many times [`Port::wait`] polls the rings before it sleeps (default [`HostPort::SPIN`]).
    pub fn set_spin(&mut self, polls: u32) {
        self.spin = polls;
    }

    /// Returns the descriptor of an epoll set, for `epoll_wait`, `poll` or another set. It becomes readable when there
    /// is work for a port that is [prepared to sleep](HostPort::prepare_sleep).
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.links.epoll.as_fd()
    }

    /// Makes [`HostPort::wait_fd`] readable whenever something arrives from now on. Returns false, and does nothing, if
    /// there is work already: frames to receive, or room after `transmit` found none. Queued frames must have been
    /// flushed.
    pub fn prepare_sleep(&mut self) -> bool {
        let wire_sleeps = self.wire.as_mut().is_none_or(|wire| wire.prepare_sleep(&self.links.epoll));
        self.prepared = wire_sleeps && self.links.prepare_sleep();
        self.prepared
    }

    /// Stops wake-ups, which saves the senders a system call, and makes the next [`Port::receive`] poll every source.
    /// [`Port::receive`] calls it, too. Cheap if nothing was prepared.
    #[inline]
    pub fn cancel_sleep(&mut self) {
        self.wake();
        if std::mem::take(&mut self.prepared)
            && let Some(wire) = &mut self.wire
        {
            wire.disarm_all();
        }
    }

    #[inline]
    fn wake(&mut self) {
        self.links.cancel_sleep();
        self.woken = true;
    }

    /// Handles kernel events: connections, ended processes, sockets.
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
        self.links.accept_late();
        // There may be more events than fit.
        self.woken = count == tokens.len();
    }

    fn is_local(&self, path: &Path) -> bool {
        self.addresses.contains(&path.dst)
    }

    /// Returns the process that a frame reaches through a ring; `None` if it leaves by UDP.
    #[inline]
    fn by_ring(&self, path: &Path, dest_qp: u32) -> Option<Slot> {
        let to = Slot::of(dest_qp).filter(|_| self.is_local(path))?;
        (!self.udp_only || to == self.links.slot()).then_some(to)
    }

    /// Returns the socket for a frame that does not go through a ring.
    #[inline]
    fn port_by_udp(&mut self, path: &Path) -> Option<&mut UdpPort> {
        let by_udp = self.udp_only || !self.is_local(path);
        self.wire.as_mut().filter(|_| by_udp)?.port_for_mut(path)
    }

    /// Sends a multicast frame: to every process of the device through its ring, and to other hosts by UDP.
    fn multicast(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        fill(&mut self.scratch[..frame.len]);
        // Its ICRC covers this path, in a ring as well.
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

    /// Sends a management datagram: within the host to its destination process, beyond it by UDP. Like any datagram it
    /// is dropped if there is no room.
    #[cold]
    fn transmit_mad(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) {
        fill(&mut self.scratch[..frame.len]);
        // Its ICRC covers this path, in a ring as well.
        let path = self.wire_path(frame.path);
        let local = self.is_local(frame.path);
        let bytes = &self.scratch[..frame.len];
        let to = if local { self.links.mad_receiver(bytes) } else { Receiver::None };
        let copy = &mut |out: &mut [u8]| out.copy_from_slice(bytes);
        let mut by_udp = !local;
        if let Receiver::One(to) = to {
            self.links.watch(to);
            by_udp = self.udp_only && to != self.links.slot();
        }
        let sent = match self.links.or_own(to) {
            Receiver::One(to) if !by_udp => self.links.push(now, to, (&path, sent_icrc(frame)), frame.len, copy),
            Receiver::All => {
                self.links.multicast(now, (&path, sent_icrc(frame)), bytes);
                true
            }
            _ => {
                let port = self.wire.as_mut().and_then(|wire| wire.port_for_mut(frame.path));
                port.is_some_and(|port| port.transmit(now, frame, copy))
            }
        };
        if !sent {
            self.links.counters.tx_dropped += 1;
        }
    }

    /// Sends what is queued, and forwards frames for other processes from this process's sockets. For the end of a
    /// process that does not drop the port, as is common: data in the sockets is lost with it.
    pub fn pass_on_rest(&mut self) {
        let now = self.serviced;
        // There is no caller left to report an error to.
        let _ = self.flush(now);
        if let Some(wire) = &mut self.wire {
            wire.pass_on(now, &mut self.links);
        }
    }

    fn take_error(&mut self) -> io::Result<()> {
        self.links.error.take().map_or(Ok(()), Err)
    }

    fn receive_wire(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let Some(wire) = &mut self.wire else { return Ok(0) };
        self.links.forward_waiting(now);
        wire.retry(now, self.links.domain(), &self.links.epoll);
        wire.receive(now, budget, &mut self.links, each)
    }
}

impl Drop for HostPort {
    fn drop(&mut self) {
        self.pass_on_rest();
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

    fn carries_acks(&self, path: &Path, dest_qp: u32) -> bool {
        self.by_ring(path, dest_qp).is_some()
    }

    fn peer_process(&mut self, path: &Path, dest_qp: u32) -> PeerProcess {
        if let Some(to) = self.by_ring(path, dest_qp) {
            return self.links.process(to);
        }
        // The owner of the UDP port forwards what it reads for another process of its address.
        let forwarded = Slot::of(dest_qp).filter(|_| self.is_local(path)).and_then(|to| self.links.progress(to));
        match self.port_by_udp(path).and_then(|port| port.progress(path.dst)) {
            Some(progress) => {
                let reader = match forwarded {
                    Some(_) => Reader::ForwarderThenPeer,
                    None => progress.reader(dest_qp),
                };
                let (more, more_answered) = forwarded.unwrap_or_default();
                let (handed, answered) = (progress.handed + more, progress.answered + more_answered);
                PeerProcess::Buffered { handed, answered, reader }
            }
            None => PeerProcess::Unknown,
        }
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        assert!(frame.len <= MAX_FRAME, "a frame of {} bytes, {MAX_FRAME} at the most", frame.len);
        if frame.dest_qp == MULTICAST_QPN {
            return self.multicast(now, frame, fill);
        }
        if let Some(to) = self.by_ring(frame.path, frame.dest_qp) {
            // An ICRC covers the UDP path, in a ring as well.
            let by_udp = (frame.icrc && self.udp_only).then(|| self.wire_path(frame.path));
            let path = by_udp.as_ref().unwrap_or(frame.path);
            return self.links.push(now, to, (path, sent_icrc(frame)), frame.len, fill);
        }
        if frame.dest_qp == GSI_QPN {
            self.transmit_mad(now, frame, fill);
            return true;
        }
        match self.port_by_udp(frame.path) {
            Some(port) => port.transmit(now, frame, fill),
            None => {
                self.links.host.tx_unroutable += 1;
                self.links.counters.tx_dropped += 1;
                true
            }
        }
    }

    fn transmit_in_place(
        &mut self,
        now: Time,
        frame: &TxFrame<'_>,
        at: usize,
        payload: &Gather<'_>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Option<bool> {
        if frame.dest_qp == MULTICAST_QPN {
            return None;
        }
        match self.by_ring(frame.path, frame.dest_qp) {
            Some(_) if frame.icrc => None,
            Some(to) => Some(self.links.push_payload(now, to, frame, (at, payload), fill)),
            None => self.port_by_udp(frame.path)?.transmit_in_place(now, frame, at, payload, fill),
        }
    }

    fn recall(&self) -> Option<Recall> {
        let recalls = self.links.recalls();
        Some(Recall::new(move || recalls.recall()))
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.links.flush();
        let sent = self.wire.as_mut().map_or(Ok(()), |wire| wire.flush(now));
        sent.and(self.take_error())
    }

    fn flush_full(&mut self, now: Time) -> io::Result<bool> {
        self.links.flush();
        let sent = self.wire.as_mut().map_or(Ok(false), |wire| wire.flush_full(now));
        self.take_error().and(sent)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.links.cancel_sleep();
        self.polls += 1;
        if self.woken || self.polls >= SERVICE_POLLS || now.since(self.serviced) >= SERVICE_NS {
            self.service(now);
        }
        if self.wire.is_none() {
            return Ok(self.links.receive(now, budget, each));
        }
        // Alternates which is read first, so that neither starves.
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

    fn may_receive(&mut self) -> bool {
        // The kernel is polled as often as by `receive`.
        self.polls += 1;
        self.woken
            || self.polls >= SERVICE_POLLS
            || self.links.may_receive()
            || self.wire.as_ref().is_some_and(Wire::is_polled)
    }

    fn watched(&mut self, looks: u32) -> Option<Watched> {
        if self.may_receive() {
            return None;
        }
        let watched = self.links.watched()?;
        self.polls += looks;
        Some(watched)
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
            // Sleeping takes no event out of the set.
            self.prepared = false;
            self.wake();
            slept?;
        }
        Ok(())
    }

    fn mark_answered(&mut self) {
        self.links.mark_answered();
        if let Some(wire) = &mut self.wire {
            wire.mark_answered();
        }
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

    fn take_over(&mut self) {
        if std::mem::take(&mut self.prepared) {
            self.links.cancel_sleep();
            if let Some(wire) = &mut self.wire {
                wire.take_over(&self.links.epoll);
            }
        }
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
