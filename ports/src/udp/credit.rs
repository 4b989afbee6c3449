//! Credit-based flow control between the UDP ports of one host.
//!
//! The kernel accepts datagrams for another process of the host regardless of that process, and drops them once its
//! socket's buffer is full: the sender of a datagram to a local address never waits. Here the receiver advertises how
//! much a sender may have in its socket at a time, and how much of it was read, like the receivers of an InfiniBand
//! link (IBA 7.9). A sender without credit keeps its frames, and [`Port::transmit`](crate::Port::transmit) reports that
//! there is no room.
//!
//! Every port listens on an abstract unix socket that is named after its UDP address. A sender connects to that of its
//! destination and passes a page of shared memory, which the receiver writes to. Abstract names belong to a network
//! namespace, so a destination on another host has none, nor has a program other than irnic, nor a process of another
//! user: datagrams to those are sent without credit, as on any network, and receivers that fall behind lose some.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use irnic_transports::Time;
use irnic_transports::qp::Reader;
use irnic_transports::time::{MS, US};

use crate::host::{Slot, sealed_len, sys};
use crate::mapped_octets;
use crate::region::{PAGE, Region, Shared};
use crate::sync::{AtomicU64, Ordering};

/// Start of a sender's first message, before its source address and port: a magic, and the version of the page.
const HELLO: [u8; 8] = *b"IRNICCR\x02";
const GREETING: usize = HELLO.len() + 16 + 2;

/// Divisor of the buffer share that a sender has until its receiver sets a limit, of a buffer as large as the sender's
/// own: others may begin at the same time.
const FIRST_SHARE: u64 = 8;

/// How long a socket may not be read before a sender treats its contents as lost, ns. Also the time for which a ring of
/// shared memory may be full.
const STALL: u64 = 100 * MS;
/// Time after which a destination without such a socket is tried again, ns.
const ABSENCE: u64 = 100 * MS;
/// Intervals at which a sender without credit checks for more, and for the receiver's end, ns.
const CHECK_INTERVAL: u64 = 50 * US;
const LIVENESS: u64 = MS;
/// Interval at which a receiver checks for connections of senders that it took for another kind of program, ns.
const ACCEPT: u64 = MS;
/// Interval at which a receiver of datagrams checks for senders that have connected again, ns.
const RENEWAL: u64 = 10 * MS;

/// Maximum number of destinations, and of senders, that are kept.
const MOST: usize = 1024;
/// Number of sources without credit that are remembered.
const OTHERS: usize = 8;

/// Returns the maximum kernel memory that a datagram of `len` bytes takes in a socket's buffer: a single one is in a
/// block of a power of two, a segmented one in pages.
pub(super) fn charge(len: usize, segment: usize) -> u64 {
    let memory = if len > segment { len + 2048 } else { (len + 512).next_power_of_two() + 512 };
    memory as u64
}

/// Returns the usable part of a socket's buffer: the kernel returns up to a quarter only when the socket is empty.
fn capacity(buffer: usize) -> u64 {
    buffer as u64 / 4 * 3
}

/// The page that a sender and a receiver share.
#[derive(Default)]
#[repr(C)]
struct Page {
    /// Written by the receiver: the total charge of this sender's datagrams that it has taken.
    taken: AtomicU64,
    /// Written by the receiver: maximum charge that may be sent but not taken; 0 until it knows the sender.
    limit: AtomicU64,
    /// Written by the receiver once it has sent its answers: the part of `taken` that is answered.
    answered: AtomicU64,
    /// Written by the receiver: the only slot whose process reads these datagrams itself; 0 if there is no other.
    reader: AtomicU64,
}

// SAFETY: atomics.
unsafe impl Shared for Page {}

/// What is known of the datagrams sent to a receiver that gives credit, in bytes of its socket's buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes sent.
    pub(crate) handed: u64,
    /// Bytes that were read, and whose answers were sent.
    pub(crate) answered: u64,
    /// Number of the only slot whose process reads them itself: it forwards those for others. `None` if there are no
    /// others.
    pub(crate) reader: Option<u16>,
}

impl Progress {
    /// Returns whose progress it is, for the process which has a queue pair.
    pub(crate) fn reader(&self, qpn: u32) -> Reader {
        let own = self.reader.is_none_or(|slot| Slot::of(qpn) == Slot::new(slot));
        if own { Reader::Peer } else { Reader::Forwarder }
    }
}

/// The name on which the owner of a UDP address listens.
fn name(address: SocketAddr) -> String {
    format!("irnic/1/credit/{}/{}", address.ip(), address.port())
}

/// A destination.
struct Destination {
    ip: IpAddr,
    link: Link,
    /// When a datagram first found no credit, and when the receiver was last known to be alive.
    starved: Option<Time>,
    alive: Time,
}

enum Link {
    /// There is no such socket on this host. It is not tried again before that time.
    Absent(Time),
    Known(Known),
}

/// A receiver on this host.
struct Known {
    connection: OwnedFd,
    page: Region,
    /// Total charge sent to it.
    sent: u64,
    /// Limit until the receiver sets one.
    first_limit: u64,
}

impl Known {
    fn connect(to: SocketAddr, from: SocketAddr, first_limit: u64) -> io::Result<Known> {
        let unspecified = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let connection = sys::connect(&name(to)).or_else(|e| match e.kind() {
            io::ErrorKind::ConnectionRefused => sys::connect(&name(SocketAddr::new(unspecified, to.port()))),
            _ => Err(e),
        })?;
        if !sys::is_own_user(sys::peer_user(connection.as_fd())?) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let memory = sys::memory(c"irnic-credit", PAGE)?;
        let page = Region::map(memory.as_fd(), PAGE)?;
        let mut greeting = [0; GREETING];
        greeting[..8].copy_from_slice(&HELLO);
        greeting[8..24].copy_from_slice(&mapped_octets(from.ip()));
        greeting[24..].copy_from_slice(&from.port().to_be_bytes());
        sys::send(connection.as_fd(), &greeting, &[memory.as_fd()])?;
        Ok(Known { connection, page, sent: 0, first_limit })
    }

    fn page(&self) -> &Page {
        self.page.object(0)
    }

    fn limit(&self) -> u64 {
        match self.page().limit.load(Ordering::Relaxed) {
            0 => self.first_limit,
            limit => limit,
        }
    }

    /// Returns whether there is credit of `charge`. One datagram may always be in the socket, however long.
    fn admits(&mut self, charge: u64) -> bool {
        let taken = self.page().taken.load(Ordering::Relaxed);
        let waiting = self.sent.wrapping_sub(taken);
        if waiting > u64::MAX / 2 {
            // The kernel has split what was sent, which raises its charge.
            self.sent = taken;
            return true;
        }
        waiting == 0 || waiting + charge <= self.limit()
    }

    /// Takes credit of `charge`, if there is some.
    fn take(&mut self, charge: u64) -> bool {
        let admitted = self.admits(charge);
        self.sent = self.sent.wrapping_add(if admitted { charge } else { 0 });
        admitted
    }

    /// Treats what the receiver has not read as lost.
    fn write_off(&mut self) {
        self.sent = self.page().taken.load(Ordering::Relaxed);
    }
}

/// Returns whether the other end of a connection, which never sends, has closed it.
fn has_ended(connection: &OwnedFd) -> bool {
    let heard = sys::receive(connection.as_fd(), &mut [0]);
    !matches!(heard, Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted))
}

/// The sending half: credit for each destination.
pub(super) struct Credits {
    /// UDP source address and destination port of datagrams.
    local: SocketAddr,
    remote_port: u16,
    first_limit: u64,
    destinations: Vec<Destination>,
    /// Index of the last lookup, and of this port itself.
    last: usize,
    own: Option<usize>,
    /// Time of the next check for credit; never if none is missing.
    next_check: Time,
    /// Maximum number of bytes that a datagram should have.
    longest: usize,
}

impl Credits {
    /// Interval of checks for credit.
    pub(super) const CHECK_INTERVAL: Duration = Duration::from_nanos(CHECK_INTERVAL);

    /// Creates the half for the socket bound to `local`, whose buffer has `buffer` bytes as accounted for by the
    /// kernel.
    pub(super) fn new(local: SocketAddr, remote_port: u16, buffer: usize) -> Credits {
        let (first_limit, destinations) = (capacity(buffer) / FIRST_SHARE, Vec::new());
        Credits {
            local,
            remote_port,
            first_limit,
            destinations,
            last: 0,
            own: None,
            next_check: Time::NEVER,
            longest: usize::MAX,
        }
    }

    pub(super) fn set_remote_port(&mut self, port: u16) {
        if port != self.remote_port {
            self.remote_port = port;
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.destinations.clear();
        self.own = None;
    }

    /// Returns whether datagrams that were sent to this port itself wait in its socket: to be forwarded.
    #[inline]
    pub(super) fn are_in_own_socket(&self) -> bool {
        match self.own.map(|own| &self.destinations[own].link) {
            Some(Link::Known(known)) => known.sent != known.page().taken.load(Ordering::Relaxed),
            _ => false,
        }
    }

    #[inline]
    fn find(&mut self, ip: IpAddr) -> Option<&mut Destination> {
        if self.destinations.get(self.last).is_none_or(|d| d.ip != ip) {
            self.last = self.destinations.iter().position(|d| d.ip == ip)?;
        }
        self.destinations.get_mut(self.last)
    }

    /// Returns whether the receiver at `ip` is known to be irnic.
    #[inline]
    pub(super) fn knows(&mut self, ip: IpAddr) -> bool {
        self.find(ip).is_some_and(|d| matches!(d.link, Link::Known(_)))
    }

    /// Returns the recommended maximum length of a datagram, in bytes, so that several senders share a small buffer.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns when a datagram without credit should be retried; [`Time::NEVER`] if none waits.
    pub(super) fn next_deadline(&self) -> Time {
        self.next_check
    }

    /// Returns whether a datagram of `len` bytes may be sent now, in which case it counts as sent.
    pub(super) fn take(&mut self, now: Time, ip: IpAddr, len: usize, segment: usize) -> bool {
        if self.find(ip).is_none() {
            if self.destinations.len() == MOST {
                self.forget();
            }
            self.last = self.destinations.len();
            if ip == self.local.ip() && self.remote_port == self.local.port() {
                self.own = Some(self.last);
            }
            self.destinations.push(Destination { ip, link: Link::Absent(now), starved: None, alive: now });
        }
        let (local, to, first) = (self.local, SocketAddr::new(ip, self.remote_port), self.first_limit);
        let destination = &mut self.destinations[self.last];
        if let Link::Absent(until) = destination.link {
            if now < until {
                return true;
            }
            destination.link = match Known::connect(to, local, first) {
                Ok(known) => Link::Known(known),
                Err(_) => Link::Absent(now + ABSENCE),
            };
        }
        let Link::Known(known) = &mut destination.link else { return true };
        if known.take(charge(len, segment)) {
            destination.starved = None;
            return true;
        }
        let since = *destination.starved.get_or_insert(now);
        if now.since(destination.alive) >= LIVENESS {
            destination.alive = now;
            if has_ended(&known.connection) {
                (destination.link, destination.starved) = (Link::Absent(now), None);
                return true;
            }
        }
        if now.since(since) >= STALL {
            destination.starved = None;
            known.write_off();
            return known.take(charge(len, segment));
        }
        false
    }

    /// Returns whether [`Credits::take`] would return true, except for a receiver that has ended or does not read.
    pub(super) fn admits(&mut self, ip: IpAddr, len: usize, segment: usize) -> bool {
        match self.find(ip).map(|d| &mut d.link) {
            Some(Link::Known(known)) => known.admits(charge(len, segment)),
            _ => true,
        }
    }

    /// Returns how far a receiver that gives credit is. What it sent before it said so can be received.
    pub(super) fn progress(&mut self, ip: IpAddr) -> Option<Progress> {
        let Link::Known(known) = &self.find(ip)?.link else { return None };
        let Page { answered, reader, .. } = known.page();
        let reader = u16::try_from(reader.load(Ordering::Relaxed)).ok().filter(|slot| *slot != 0);
        Some(Progress { handed: known.sent, answered: answered.load(Ordering::Acquire), reader })
    }

    /// Records whether datagrams wait for credit now.
    pub(super) fn note(&mut self, now: Time, waits: bool) {
        self.next_check = if waits { now + CHECK_INTERVAL } else { Time::NEVER };
        let known = self.destinations.iter().filter_map(|d| if let Link::Known(k) = &d.link { Some(k) } else { None });
        self.longest = known.map(|k| k.limit() as usize / 2).min().unwrap_or(usize::MAX);
    }
}

/// A sender, as its receiver sees it.
struct Sender {
    source: SocketAddr,
    connection: OwnedFd,
    page: Region,
    taken: u64,
    answered: u64,
}

impl Sender {
    /// Reads the first message of a new connection.
    fn greet(connection: OwnedFd) -> Option<Sender> {
        if !sys::is_own_user(sys::peer_user(connection.as_fd()).ok()?) {
            return None;
        }
        // One more byte, to detect a longer message.
        let mut bytes = [0; GREETING + 1];
        let message = sys::receive(connection.as_fd(), &mut bytes).ok()?;
        let memory = message.fd?;
        if message.len != GREETING || bytes[..8] != HELLO || sealed_len(memory.as_fd())? != PAGE {
            return None;
        }
        let ip = <[u8; 16]>::try_from(&bytes[8..24]).ok()?;
        let port = u16::from_be_bytes([bytes[24], bytes[25]]);
        let page = Region::map(memory.as_fd(), PAGE).ok()?;
        let source = SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port);
        Some(Sender { source, connection, page, taken: 0, answered: 0 })
    }

    fn page(&self) -> &Page {
        self.page.object(0)
    }

    /// Returns whether datagrams from `source` are this sender's. A socket without a bound address sends from any.
    fn is(&self, source: SocketAddr) -> bool {
        self.source.port() == source.port() && (self.source.ip() == source.ip() || self.source.ip().is_unspecified())
    }
}

/// The receiving half: how much each sender may have in the socket.
pub(super) struct Grants {
    /// `None` if the name is taken, or there are no descriptors: no sender gets credit.
    listener: Option<OwnedFd>,
    /// Kernel memory that datagrams may take.
    capacity: u64,
    /// The slot of this process, if it forwards what is for others, otherwise 0.
    reader: u64,
    /// Datagrams were taken since the last [`Grants::mark_answered`].
    unanswered: bool,
    senders: Vec<Sender>,
    /// Index of the sender of the last datagram.
    last: usize,
    /// Sources without a connection, and the index of the next to be replaced.
    others: [Option<SocketAddr>; OTHERS],
    next: usize,
    accepted: Time,
}

impl Grants {
    /// Creates the half for the socket bound to `local`, whose buffer has `buffer` bytes as accounted for by the
    /// kernel.
    pub(super) fn new(local: SocketAddr, buffer: usize) -> Grants {
        Grants { listener: sys::listen(&name(local)).ok(), ..Grants::none(buffer) }
    }

    /// Creates a half that gives no credit.
    pub(super) fn none(buffer: usize) -> Grants {
        Grants {
            listener: None,
            capacity: capacity(buffer),
            reader: 0,
            unanswered: false,
            senders: Vec::new(),
            last: 0,
            others: [None; OTHERS],
            next: 0,
            accepted: Time::ZERO,
        }
    }

    /// Records that a datagram from `source` was taken out of the socket and delivered.
    #[inline]
    pub(super) fn taken(&mut self, now: Time, source: SocketAddr, len: usize, segment: usize) {
        if self.listener.is_some() {
            if now.since(self.accepted) >= RENEWAL {
                self.accept(now);
            }
            if self.senders.get(self.last).is_none_or(|sender| !sender.is(source)) && !self.find(now, source) {
                return;
            }
            let sender = &mut self.senders[self.last];
            sender.taken = sender.taken.wrapping_add(charge(len, segment));
            sender.page().taken.store(sender.taken, Ordering::Relaxed);
            self.unanswered = true;
        }
    }

    /// Records that everything taken so far is answered, and the answers sent.
    #[inline]
    pub(super) fn mark_answered(&mut self) {
        if !std::mem::take(&mut self.unanswered) {
            return;
        }
        for sender in self.senders.iter_mut().filter(|sender| sender.answered != sender.taken) {
            sender.answered = sender.taken;
            sender.page().answered.store(sender.taken, Ordering::Release);
        }
    }

    /// Sets the slot of this process, which forwards what is for others.
    pub(super) fn set_reader(&mut self, slot: u16) {
        self.reader = slot.into();
        for sender in &self.senders {
            sender.page().reader.store(self.reader, Ordering::Relaxed);
        }
    }

    /// Finds the sender of a datagram, which may have just connected. Returns false if it has no credit.
    #[cold]
    fn find(&mut self, now: Time, source: SocketAddr) -> bool {
        let known = self.senders.iter().position(|sender| sender.is(source));
        let other = self.others.contains(&Some(source)) && now.since(self.accepted) < ACCEPT;
        if known.is_none() && !other {
            self.accept(now);
        }
        let Some(at) = known.or_else(|| self.senders.iter().position(|sender| sender.is(source))) else {
            if !self.others.contains(&Some(source)) {
                self.others[self.next] = Some(source);
                self.next = (self.next + 1) % OTHERS;
            }
            return false;
        };
        self.last = at;
        true
    }

    fn accept(&mut self, now: Time) {
        self.accepted = now;
        let before = self.senders.len();
        while let Some(Ok(Some(connection))) = self.listener.as_ref().map(|l| sys::accept(l.as_fd())) {
            if let Some(sender) = Sender::greet(connection) {
                // A sender that connects again has restarted.
                self.senders.retain(|other| other.source != sender.source);
                if self.senders.len() < MOST {
                    self.senders.push(sender);
                }
            }
        }
        if self.senders.len() > before {
            self.senders.retain(|sender| !has_ended(&sender.connection));
        }
        self.last = 0;
        let share = (self.capacity / (self.senders.len() as u64 + 1)).max(1);
        for sender in &self.senders {
            sender.page().reader.store(self.reader, Ordering::Relaxed);
            sender.page().limit.store(share, Ordering::Relaxed);
        }
    }
}
