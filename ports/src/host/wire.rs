//! Frames from and to other hosts: UDP sockets, and which process owns port 4791 of an address.
//!
//! One process at a time owns UDP port 4791 of each address. It forwards frames for the others through their rings. The
//! others send from a port of their own, since RoCEv2 leaves the source port free, and keep a connection to the owner's
//! abstract socket. When that breaks, all of them try to become the next owner.
//!
//! Multicast groups need no owner: every process that joins has a socket of its own bound to the group, and the kernel
//! gives each socket a copy.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use irnic_transports::wire::ROCE_PORT;
use irnic_transports::wire::mad::GSI_QPN;
use irnic_transports::{Path, Time};

use super::config::HostConfig;
use super::domain::Domain;
use super::error::HostWarning;
use super::fault::SocketFault;
use super::holder::Holder;
use super::links::{Links, Source};
use super::services::Receiver;
use super::slot::Slot;
use super::sys::{self, Epoll};
use crate::impair::frame_trim::receiver_qp;
use crate::udp::{UdpConfig, UdpPort};
use crate::{Port, PortCounters, RxFrame};

/// How long after its last frame a socket is polled without consulting the epoll set, in ns.
const POLL_NS: u64 = 2_000_000;
/// Interval between attempts to bind port 4791 of an address, in ns: while the socket of an ended owner may not be
/// closed yet, and after [`RETRIES`] attempts, when the port seems to belong to another program.
const RETRY_NS: u64 = 10_000_000;
const RETRIES: u32 = 10;
const SLOW_RETRY_NS: u64 = 1_000_000_000;
/// Number and interval of attempts when the port is opened, when there is no clock yet.
const OPEN_RETRIES: u32 = 5;
const OPEN_RETRY: Duration = Duration::from_millis(2);
/// Maximum number of groups that a process joins: several times the kernel's limit per socket
/// (net.ipv4.igmp_max_memberships is 20).
const MAX_GROUPS: usize = 256;

/// Number of reads, and frames per read, of the sockets of a closing port: enough to empty their buffers.
const LAST_READS: usize = 64;
const LAST_BUDGET: usize = 256;

/// First event indices of connections to owners and of sockets of groups. Sockets of addresses begin at 0.
const OWNERS: u32 = 1 << 8;
const GROUPS: u32 = 1 << 16;

/// A socket that is polled while frames arrive, and otherwise watched by the epoll set.
struct Watched {
    port: UdpPort,
    token: u64,
    /// Polled at every call until this time.
    poll_until: Time,
    /// Whether the epoll set watches the socket, one-shot; `Some(true)` also for room.
    armed: Option<bool>,
}

impl Watched {
    fn new(port: UdpPort, epoll: &Epoll, token: u64) -> io::Result<Watched> {
        epoll.add(port.as_fd(), Watched::events(false), token)?;
        Ok(Watched { port, token, poll_until: Time::ZERO, armed: Some(false) })
    }

    fn events(room: bool) -> libc::c_int {
        libc::EPOLLIN | libc::EPOLLONESHOT | if room { libc::EPOLLOUT } else { 0 }
    }

    /// Records that the set reported the socket, or may have reported it to another thread.
    fn reported(&mut self, now: Time) {
        self.armed = None;
        self.poll_until = Time(now.0.saturating_add(POLL_NS));
    }

    /// Makes the set report the socket, at once if it is ready.
    fn arm(&mut self, epoll: &Epoll) -> io::Result<()> {
        let room = self.port.wants_room();
        if self.armed != Some(room) {
            epoll.modify(self.port.as_fd(), Watched::events(room), self.token)?;
            self.armed = Some(room);
        }
        Ok(())
    }

    /// Stops the set from reporting the socket, which is polled from now on.
    fn take_over(&mut self, epoll: &Epoll) {
        if self.armed.is_some() && epoll.modify(self.port.as_fd(), libc::EPOLLONESHOT, self.token).is_ok() {
            self.armed = None;
        }
    }

    /// Takes frames if there may be some. Returns their number.
    #[inline]
    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        if self.armed.is_some() { Ok(0) } else { self.port.receive(now, budget, each) }
    }

    /// Arms the set for the socket after [`POLL_NS`] without frames. `frames` is the number just received.
    #[inline]
    fn arm_when_idle(&mut self, now: Time, frames: usize, epoll: &Epoll) -> io::Result<()> {
        if self.armed.is_some() {
            return Ok(());
        }
        if frames > 0 {
            self.poll_until = Time(now.0.saturating_add(POLL_NS));
        } else if now >= self.poll_until && !self.port.has_work() {
            return self.arm(epoll);
        }
        Ok(())
    }
}

/// One address of the device.
struct End {
    /// The address with port 4791 and, for IPv6, its interface.
    address: SocketAddr,
    index: u32,
    socket: Option<Watched>,
    /// The listening socket that holds the name of this address's owner.
    name: Option<OwnedFd>,
    /// The socket is bound to port 4791.
    bound: bool,
    /// The connection to the owner, if that is another process.
    owner: Option<OwnedFd>,
    /// Time of the next attempt to become the owner, or to bind port 4791 as the owner.
    next_try: Time,
    failures: u32,
    /// The user was warned of the fault.
    warned: bool,
}

impl End {
    /// Returns the end of an address, without a socket.
    fn new(index: u32, address: IpAddr) -> End {
        End {
            address: match address {
                IpAddr::V4(_) => SocketAddr::new(address, ROCE_PORT),
                IpAddr::V6(v6) => SocketAddrV6::new(v6, ROCE_PORT, 0, sys::interface_of(v6)).into(),
            },
            index,
            socket: None,
            name: None,
            bound: false,
            owner: None,
            next_try: Time::ZERO,
            failures: 0,
            warned: false,
        }
    }

    /// Connects to the owner of this address. When that connection ends, this process tries to become the owner.
    fn follow(&mut self, name: &str, epoll: &Epoll) {
        if self.owner.is_some() {
            return;
        }
        let Ok(connection) = sys::connect(name) else { return };
        let ours = sys::peer_user(connection.as_fd()).is_ok_and(sys::is_own_user);
        let token = Source::Udp.token(OWNERS + self.index);
        if ours && epoll.add(connection.as_fd(), libc::EPOLLIN, token).is_ok() {
            self.owner = Some(connection);
        }
    }

    /// Replaces the socket. Returns false, and keeps the old one, if the new one cannot be opened.
    fn replace(&mut self, config: &UdpConfig, slot: Slot, epoll: &Epoll, closed: &mut PortCounters) -> bool {
        let token = Source::Udp.token(self.index);
        let Ok(mut new) = UdpPort::open(config).and_then(|port| Watched::new(port, epoll, token)) else { return false };
        new.port.set_reader(slot.number());
        if let Some(mut old) = self.socket.replace(new) {
            // What the kernel does not accept at once is lost, as on any network.
            let _ = old.port.flush(Time::ZERO);
            epoll.remove(old.port.as_fd());
            closed.add(&old.port.counters());
        }
        true
    }
}

/// Returns the processes of the device that receive a frame from outside.
fn receiver(frame: &RxFrame<'_>, links: &mut Links) -> Receiver {
    let Some(qpn) = receiver_qp(&frame.path, frame.bytes) else { return Receiver::None };
    match Slot::of(qpn) {
        Some(slot) => Receiver::One(slot),
        None if qpn == GSI_QPN => {
            let to = links.mad_receiver(frame.bytes);
            links.or_own(to)
        }
        None => Receiver::None,
    }
}

/// A multicast group that this process has joined on one address.
struct Group {
    address: IpAddr,
    group: IpAddr,
    socket: Watched,
}

pub(super) struct Wire {
    ends: Vec<End>,
    groups: Vec<Group>,
    /// Frames may wait in sockets' queues.
    unflushed: bool,
    template: UdpConfig,
    /// The slot of this process.
    slot: Slot,
    /// The earliest `next_try`.
    next_try: Time,
    /// Counters of closed sockets.
    closed: PortCounters,
    pub(super) warnings: Vec<HostWarning>,
}

impl Wire {
    /// Opens the sockets of all addresses.
    pub(super) fn open(config: &HostConfig, domain: &Domain, slot: Slot, epoll: &Epoll) -> Wire {
        let template = UdpConfig {
            segmentation: config.segmentation,
            socket_buffer: config.socket_buffer,
            kernel_stamps: config.kernel_stamps,
            ..UdpConfig::new(IpAddr::from([127, 0, 0, 1]))
        };
        let mut wire = Wire {
            ends: (0..OWNERS).zip(&config.addresses).map(|(index, address)| End::new(index, *address)).collect(),
            groups: Vec::new(),
            unflushed: false,
            template,
            slot,
            next_try: Time::ZERO,
            closed: PortCounters::default(),
            warnings: Vec::new(),
        };
        for at in 0..wire.ends.len() {
            for attempt in 1..=OPEN_RETRIES {
                wire.claim_or_follow(at, Time::ZERO, domain, epoll);
                if wire.ends[at].next_try == Time::NEVER {
                    break;
                }
                if attempt == OPEN_RETRIES {
                    // Warned now rather than later, when the user may no longer check.
                    wire.warn(at, domain);
                    wire.ends[at].next_try = Time::ZERO;
                } else {
                    std::thread::sleep(OPEN_RETRY);
                }
            }
        }
        wire.update_next_try();
        wire
    }

    /// Adds an address of the device. Its socket is opened by the next [`Wire::retry`]. Returns whether there was room
    /// for it.
    pub(super) fn add_address(&mut self, address: IpAddr) -> bool {
        let index = self.ends.len() as u32;
        if index == OWNERS {
            return false;
        }
        self.ends.push(End::new(index, address));
        self.next_try = Time::ZERO;
        true
    }

    fn update_next_try(&mut self) {
        self.next_try = self.ends.iter().map(|end| end.next_try).min().unwrap_or(Time::NEVER);
    }

    /// Returns the time of the next work that needs no arrival: retries of what failed, and checks for room.
    pub(super) fn next_deadline(&self) -> Time {
        let sockets = self.ends.iter().filter_map(|end| end.socket.as_ref());
        sockets.map(|socket| socket.port.next_deadline()).min().unwrap_or(Time::NEVER).min(self.next_try)
    }

    /// Retries what failed and is due.
    #[inline]
    pub(super) fn retry(&mut self, now: Time, domain: &Domain, epoll: &Epoll) {
        if now < self.next_try {
            return;
        }
        for at in 0..self.ends.len() {
            if self.ends[at].next_try <= now {
                self.claim_or_follow(at, now, domain, epoll);
                if self.ends[at].failures >= RETRIES {
                    self.warn(at, domain);
                }
            }
        }
        self.update_next_try();
    }

    /// Makes this process the owner of an address, or a client of its owner. Sets `next_try` to the time of the next
    /// attempt.
    fn claim_or_follow(&mut self, at: usize, now: Time, domain: &Domain, epoll: &Epoll) {
        let end = &mut self.ends[at];
        if end.name.is_none() {
            let name = domain.udp_name(end.address.ip());
            match sys::listen(&name) {
                Ok(listener) => end.name = Some(listener),
                Err(_) => end.follow(&name, epoll),
            }
        }
        if end.name.is_some() && !end.bound {
            let config = UdpConfig { local: end.address, ..self.template };
            end.bound = end.replace(&config, self.slot, epoll, &mut self.closed);
        }
        if end.socket.is_none() {
            let mut any = end.address;
            any.set_port(0);
            end.replace(&UdpConfig { local: any, ..self.template }, self.slot, epoll, &mut self.closed);
        }
        if (end.bound || end.owner.is_some()) && end.socket.is_some() {
            end.failures = 0;
            end.next_try = Time::NEVER;
        } else {
            end.failures += 1;
            let delay = if end.failures < RETRIES { RETRY_NS } else { SLOW_RETRY_NS };
            end.next_try = Time(now.0.saturating_add(delay));
        }
    }

    /// Adds a warning about an address, once.
    fn warn(&mut self, at: usize, domain: &Domain) {
        let end = &mut self.ends[at];
        if !std::mem::replace(&mut end.warned, true) {
            let address = end.address.ip();
            self.warnings.push(match (&end.socket, &end.name) {
                (None, _) => HostWarning::NoSocket(address, SocketFault::of(end.address)),
                (Some(_), Some(_)) => HostWarning::PortTaken(address, Holder::of_udp(end.address)),
                (Some(_), None) => HostWarning::OtherUser(address, Holder::of_name(&domain.udp_name(address))),
            });
        }
    }

    /// Handles an event that the epoll set reported under `index`.
    pub(super) fn on_event(&mut self, index: u32, now: Time, domain: &Domain, epoll: &Epoll) {
        if index >= GROUPS {
            if let Some(group) = self.groups.get_mut((index - GROUPS) as usize) {
                group.socket.reported(now);
            }
        } else if index >= OWNERS {
            let at = (index - OWNERS) as usize;
            // Owners send nothing: the only event is their end.
            if let Some(connection) = self.ends.get_mut(at).and_then(|end| end.owner.take()) {
                epoll.remove(connection.as_fd());
                drop(connection);
                self.claim_or_follow(at, now, domain, epoll);
                self.update_next_try();
            }
        } else if let Some(socket) = self.ends.get_mut(index as usize).and_then(|end| end.socket.as_mut()) {
            socket.reported(now);
        }
    }

    /// Polls all sockets once more: another thread may have consumed the events of the set.
    pub(super) fn disarm_all(&mut self) {
        for socket in self.sockets() {
            socket.armed = None;
        }
    }

    /// Stops the set from reporting any socket; all are polled from now on.
    pub(super) fn take_over(&mut self, epoll: &Epoll) {
        for socket in self.sockets() {
            socket.take_over(epoll);
        }
    }

    fn sockets(&mut self) -> impl Iterator<Item = &mut Watched> {
        let ends = self.ends.iter_mut().filter_map(|end| end.socket.as_mut());
        ends.chain(self.groups.iter_mut().map(|group| &mut group.socket))
    }

    /// Makes the set report all sockets. Returns false if there is work already.
    pub(super) fn prepare_sleep(&mut self, epoll: &Epoll) -> bool {
        self.sockets().all(|socket| !socket.port.has_work() && socket.arm(epoll).is_ok())
    }

    fn end_for(&self, path: &Path) -> Option<usize> {
        let link_local = |ip: IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let fits = |end: &End| {
            let own = end.address.ip();
            own.is_ipv4() == path.dst.is_ipv4() && (path.dst.is_multicast() || link_local(own) == link_local(path.dst))
        };
        let named = self.ends.iter().position(|end| end.address.ip() == path.src && fits(end));
        named.or_else(|| self.ends.iter().position(fits))
    }

    fn port_for(&self, path: &Path) -> Option<&UdpPort> {
        self.ends[self.end_for(path)?].socket.as_ref().map(|socket| &socket.port)
    }

    /// Returns the socket by which a frame leaves; `None` if no address of the device can reach its destination.
    pub(super) fn port_for_mut(&mut self, path: &Path) -> Option<&mut UdpPort> {
        let at = self.end_for(path)?;
        self.unflushed = true;
        self.ends[at].socket.as_mut().map(|socket| &mut socket.port)
    }

    /// Returns the path that a frame has when sent by UDP.
    pub(super) fn wire_path(&self, path: &Path) -> Path {
        self.port_for(path).map_or(*path, |port| port.wire_path(path))
    }

    /// Returns the largest frame that can be sent on this path, in bytes.
    pub(super) fn max_frame_to(&self, path: &Path) -> io::Result<usize> {
        let port = self.port_for(path).ok_or(io::ErrorKind::NetworkUnreachable)?;
        port.max_frame_to(path.dst)
    }

    /// Sends what is queued. Returns the first of several errors.
    #[inline]
    pub(super) fn flush(&mut self, now: Time) -> io::Result<()> {
        if self.unflushed { self.flush_all(now) } else { Ok(()) }
    }

    fn flush_all(&mut self, now: Time) -> io::Result<()> {
        let mut result = Ok(());
        self.unflushed = false;
        for socket in self.ends.iter_mut().filter_map(|end| end.socket.as_mut()) {
            result = result.and(socket.port.flush(now));
            self.unflushed |= !socket.port.is_flushed();
        }
        result
    }

    /// Sends what gains nothing by waiting. Returns whether anything remains, and the first of several errors.
    pub(super) fn flush_full(&mut self, now: Time) -> io::Result<bool> {
        let mut result = Ok(false);
        for end in &mut self.ends {
            if let Some(socket) = &mut end.socket {
                let stays = socket.port.flush_full(now);
                result = result.and_then(|before| stays.map(|stays| before || stays));
            }
        }
        result
    }

    /// Records that everything received so far is answered.
    #[inline]
    pub(super) fn mark_answered(&mut self) {
        for socket in self.ends.iter_mut().filter_map(|end| end.socket.as_mut()) {
            socket.port.mark_answered();
        }
    }

    /// Returns whether a socket has to be polled: the kernel does not report its frames.
    #[inline]
    pub(super) fn is_polled(&self) -> bool {
        let polled = |end: &End| end.socket.as_ref().is_some_and(|socket| socket.armed.is_none());
        !self.groups.is_empty() || self.ends.iter().any(polled)
    }

    /// Takes about `budget` frames at most, none while too many wait for rings. Passes those for this process to
    /// `each`, and writes those for others into their rings.
    pub(super) fn receive(
        &mut self,
        now: Time,
        budget: usize,
        links: &mut Links,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        if !self.is_polled() || links.is_full() {
            return Ok(0);
        }
        let own = links.slot();
        let (mut frames, mut forwarded, mut failed) = (0, false, None);
        let Wire { ends, groups, .. } = self;
        for socket in ends.iter_mut().filter_map(|end| end.socket.as_mut()) {
            let mut deliver = |frame: RxFrame<'_>| match receiver(&frame, links) {
                Receiver::One(to) if to != own => {
                    forwarded = true;
                    links.forward(now, to, &frame);
                }
                Receiver::All => {
                    forwarded = true;
                    links.multicast(now, (&frame.path, frame.icrc), frame.bytes);
                }
                // Frames for no process are counted by this process's NIC.
                Receiver::One(_) | Receiver::None => each(frame),
            };
            let count = socket.receive(now, budget.saturating_sub(frames), &mut deliver);
            let count = count.and_then(|n| socket.arm_when_idle(now, n, &links.epoll).map(|()| n));
            match count {
                Ok(count) => frames += count,
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        // Flushed before an error is returned, which a sleeping thread would not learn of.
        if forwarded {
            links.flush();
        }
        if let Some(e) = failed {
            return Err(e);
        }
        for group in groups {
            let ends = &*ends;
            // Frames to the group from processes of the device arrive by ring.
            let mut deliver = |frame: RxFrame<'_>| {
                if !ends.iter().any(|end| end.address.ip() == frame.path.src) {
                    each(frame);
                }
            };
            let count = group.socket.receive(now, budget.saturating_sub(frames), &mut deliver)?;
            frames += count;
            group.socket.arm_when_idle(now, count, &links.epoll)?;
        }
        Ok(frames)
    }

    /// Forwards the frames for other processes that are in the sockets now.
    pub(super) fn pass_on(&mut self, now: Time, links: &mut Links) {
        self.disarm_all();
        for _ in 0..LAST_READS {
            if !matches!(self.receive(now, LAST_BUDGET, links, &mut |_| {}), Ok(1..)) {
                break;
            }
            links.forward_waiting(now);
        }
    }

    /// Joins a multicast group on one of the device's addresses.
    pub(super) fn join(&mut self, address: IpAddr, group: IpAddr, epoll: &Epoll) -> io::Result<()> {
        if self.groups.iter().any(|g| (g.address, g.group) == (address, group)) {
            return Ok(());
        }
        let end = self.ends.iter().find(|end| end.address.ip() == address);
        let end = end.ok_or(io::ErrorKind::AddrNotAvailable)?;
        if self.groups.len() == MAX_GROUPS {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "a process joins 256 groups at the most"));
        }
        let port = UdpPort::open(&UdpConfig { local: end.address, group: Some(group), ..self.template })?;
        let socket = Watched::new(port, epoll, Source::Udp.token(GROUPS + self.groups.len() as u32))?;
        self.groups.push(Group { address, group, socket });
        Ok(())
    }

    /// Leaves a multicast group.
    pub(super) fn leave(&mut self, address: IpAddr, group: IpAddr, epoll: &Epoll) {
        let Some(at) = self.groups.iter().position(|g| (g.address, g.group) == (address, group)) else { return };
        let removed = self.groups.swap_remove(at);
        epoll.remove(removed.socket.port.as_fd());
        self.closed.add(&removed.socket.port.counters());
        if let Some(moved) = self.groups.get_mut(at) {
            moved.socket.token = Source::Udp.token(GROUPS + at as u32);
            // Reported to the set when it is armed.
            moved.socket.armed = None;
        }
    }

    /// Adds the counters of all sockets to `total`.
    pub(super) fn count(&self, total: &mut PortCounters) {
        total.add(&self.closed);
        let ends = self.ends.iter().filter_map(|end| end.socket.as_ref());
        for socket in ends.chain(self.groups.iter().map(|group| &group.socket)) {
            total.add(&socket.port.counters());
        }
    }

    /// Returns whether this process owns UDP port 4791 of `address`.
    pub(super) fn owns(&self, address: IpAddr) -> bool {
        self.ends.iter().any(|end| end.address.ip() == address && end.bound)
    }
}
