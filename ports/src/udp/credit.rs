//! Credit-based flow control between the UDP ports of one host.
//!
//! The kernel takes datagrams for another process of the host whatever that process does, and drops them once its
//! socket's buffer is full: the sender of a datagram to a local address never waits. Here the receiver says how much a
//! sender may have in its socket at a time, and how much of it was read, as the receivers of an InfiniBand link do (IBA
//! 7.9). A sender without credit keeps its frames, and [`Port::transmit`](crate::Port::transmit) says that there is no
//! room.
//!
//! Every port listens on an abstract unix socket that is named after its UDP address. A sender connects to the one of
//! its destination and passes a page of shared memory, which the receiver writes to. Abstract names belong to a network
//! namespace, so a destination on another host has none, nor has a program other than irnic, nor a process of another
//! user: to those datagrams are sent without credit, as on any network, and receivers that fall behind lose some.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use irnic_transports::Time;
use irnic_transports::time::{MS, US};

use crate::host::{sealed_len, sys};
use crate::mapped_octets;
use crate::region::{PAGE, Region, Shared};
use crate::sync::{AtomicU64, Ordering};

/// What a sender says first, before the address and the port that it sends from: a magic, and the version of the page.
const HELLO: [u8; 8] = *b"IRNICCR\x01";
const GREETING: usize = HELLO.len() + 16 + 2;

/// The share of a buffer that a sender has until its receiver sets a limit: one of this many, of a buffer as large as
/// the sender's own, as others may begin at the same time.
const FIRST_SHARE: u64 = 8;

/// How long the owner of a socket may read nothing before a sender takes what is in it for lost, ns. It is also how
/// long a ring of shared memory may be full.
const STALL: u64 = 100 * MS;
/// A destination without such a socket is asked again after that time, ns.
const ABSENCE: u64 = 100 * MS;
/// Interval at which a sender without credit looks for more, and at which it looks whether the receiver has ended, ns.
const LOOK: u64 = 50 * US;
const LIVENESS: u64 = MS;
/// Interval at which a receiver looks for senders that it took for another kind of program, ns.
const ACCEPT: u64 = MS;

/// Most destinations, and most senders, that are kept.
const MOST: usize = 1024;
/// Sources without credit that are remembered.
const OTHERS: usize = 8;

/// Returns the most kernel memory that a datagram of `len` bytes takes in a socket's buffer: a single one lies in a
/// block of a power of two, one that was segmented in pages.
pub(super) fn charge(len: usize, segment: usize) -> u64 {
    let memory = if len > segment { len + 2048 } else { (len + 512).next_power_of_two() + 512 };
    memory as u64
}

/// Returns what of a socket's buffer can be used: the kernel gives up to a quarter back only when the socket is empty.
fn capacity(buffer: usize) -> u64 {
    buffer as u64 / 4 * 3
}

/// The page that a sender and a receiver share.
#[derive(Default)]
#[repr(C)]
struct Page {
    /// Written by the receiver: what it has taken of this sender's datagrams since the beginning.
    taken: AtomicU64,
    /// Written by the receiver: most that may be sent and not taken; 0 until it knows the sender.
    limit: AtomicU64,
}

// SAFETY: two atomics.
unsafe impl Shared for Page {}

/// The name on which the owner of a UDP address listens.
fn name(address: SocketAddr) -> String {
    format!("irnic/1/credit/{}/{}", address.ip(), address.port())
}

/// A destination.
struct Destination {
    ip: IpAddr,
    link: Link,
    /// When a datagram first found no credit, and when the receiver was last known to live.
    starved: Option<Time>,
    alive: Time,
}

enum Link {
    /// There is no such socket on this host. It is not looked for again before that time.
    Absent(Time),
    Known(Known),
}

/// A receiver on this host.
struct Known {
    connection: OwnedFd,
    page: Region,
    /// What was sent to it.
    sent: u64,
    /// What may be in its socket until it says so itself.
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

    /// Whether there is credit of `charge`. One datagram may always be in the socket, however long.
    fn admits(&mut self, charge: u64) -> bool {
        let taken = self.page().taken.load(Ordering::Relaxed);
        let waiting = self.sent.wrapping_sub(taken);
        if waiting > u64::MAX / 2 {
            // The kernel has split what was sent, which counts as more.
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

    /// Takes for lost what the receiver has not read.
    fn write_off(&mut self) {
        self.sent = self.page().taken.load(Ordering::Relaxed);
    }
}

/// Whether the other end of a connection, which has nothing to say, has ended.
fn has_ended(connection: &OwnedFd) -> bool {
    let heard = sys::receive(connection.as_fd(), &mut [0]);
    !matches!(heard, Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted))
}

/// The sending half: credit for each destination.
pub(super) struct Credits {
    /// The UDP address that datagrams come from, and the port that they go to.
    local: SocketAddr,
    remote_port: u16,
    first_limit: u64,
    destinations: Vec<Destination>,
    /// The one that was asked for last.
    last: usize,
    /// When to look again for credit; never if none is missing.
    look_at: Time,
    /// Bytes that a datagram should have at the most.
    longest: usize,
}

impl Credits {
    /// How often to look for credit.
    pub(super) const LOOK: Duration = Duration::from_nanos(LOOK);

    /// For the socket that is bound to `local`, whose buffer has `buffer` bytes as the kernel accounts for them.
    pub(super) fn new(local: SocketAddr, remote_port: u16, buffer: usize) -> Credits {
        let (first_limit, destinations) = (capacity(buffer) / FIRST_SHARE, Vec::new());
        Credits { local, remote_port, first_limit, destinations, last: 0, look_at: Time::NEVER, longest: usize::MAX }
    }

    pub(super) fn set_remote_port(&mut self, port: u16) {
        if port != self.remote_port {
            self.remote_port = port;
            self.destinations.clear();
        }
    }

    #[inline]
    fn find(&mut self, ip: IpAddr) -> Option<&mut Destination> {
        if self.destinations.get(self.last).is_none_or(|d| d.ip != ip) {
            self.last = self.destinations.iter().position(|d| d.ip == ip)?;
        }
        self.destinations.get_mut(self.last)
    }

    /// Whether the receiver at `ip` is known to be irnic.
    #[inline]
    pub(super) fn knows(&mut self, ip: IpAddr) -> bool {
        self.find(ip).is_some_and(|d| matches!(d.link, Link::Known(_)))
    }

    /// Returns how long a datagram should be at the most, in bytes, so that several senders share a small buffer.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// When a datagram that found no credit should be tried again; [`Time::NEVER`] if none waits.
    pub(super) fn next_deadline(&self) -> Time {
        self.look_at
    }

    /// Whether a datagram of `len` bytes may be sent now. Those that may count as sent.
    pub(super) fn take(&mut self, now: Time, ip: IpAddr, len: usize, segment: usize) -> bool {
        if self.find(ip).is_none() {
            if self.destinations.len() == MOST {
                self.destinations.clear();
            }
            self.last = self.destinations.len();
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

    /// Whether [`Credits::take`] would return true, but for a receiver that has ended or reads nothing.
    pub(super) fn admits(&mut self, ip: IpAddr, len: usize, segment: usize) -> bool {
        match self.find(ip).map(|d| &mut d.link) {
            Some(Link::Known(known)) => known.admits(charge(len, segment)),
            _ => true,
        }
    }

    /// Returns how much a receiver that gives credit was sent, and how much of that it has read, in bytes of its
    /// socket's buffer.
    pub(super) fn progress(&mut self, ip: IpAddr) -> Option<(u64, u64)> {
        let Link::Known(known) = &self.find(ip)?.link else { return None };
        Some((known.sent, known.page().taken.load(Ordering::Relaxed)))
    }

    /// Notes whether datagrams wait for credit now.
    pub(super) fn note(&mut self, now: Time, waits: bool) {
        self.look_at = if waits { now + LOOK } else { Time::NEVER };
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
}

impl Sender {
    /// Reads the first message of a new connection.
    fn greet(connection: OwnedFd) -> Option<Sender> {
        if !sys::is_own_user(sys::peer_user(connection.as_fd()).ok()?) {
            return None;
        }
        // One more, so that a longer message is not taken for this one.
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
        Some(Sender { source, connection, page, taken: 0 })
    }

    fn page(&self) -> &Page {
        self.page.object(0)
    }

    /// Whether datagrams from `source` are its. Who is bound to no address sends from any.
    fn is(&self, source: SocketAddr) -> bool {
        self.source.port() == source.port() && (self.source.ip() == source.ip() || self.source.ip().is_unspecified())
    }
}

/// The receiving half: what each sender may have in the socket.
pub(super) struct Grants {
    /// `None` if the name is taken, or there are no descriptors: nobody gets credit.
    listener: Option<OwnedFd>,
    /// Kernel memory that datagrams may take.
    capacity: u64,
    senders: Vec<Sender>,
    /// The one whose datagram was taken last.
    last: usize,
    /// Sources that have no connection, and whose turn it is to be forgotten.
    others: [Option<SocketAddr>; OTHERS],
    next: usize,
    accepted: Time,
}

impl Grants {
    /// For the socket that is bound to `local`, whose buffer has `buffer` bytes as the kernel accounts for them.
    pub(super) fn new(local: SocketAddr, buffer: usize) -> Grants {
        Grants { listener: sys::listen(&name(local)).ok(), ..Grants::none(buffer) }
    }

    /// Nobody gets credit.
    pub(super) fn none(buffer: usize) -> Grants {
        Grants {
            listener: None,
            capacity: capacity(buffer),
            senders: Vec::new(),
            last: 0,
            others: [None; OTHERS],
            next: 0,
            accepted: Time::ZERO,
        }
    }

    /// A datagram from `source` was taken out of the socket, and handed on.
    #[inline]
    pub(super) fn taken(&mut self, now: Time, source: SocketAddr, len: usize, segment: usize) {
        if self.listener.is_some() {
            if self.senders.get(self.last).is_none_or(|sender| !sender.is(source)) && !self.find(now, source) {
                return;
            }
            let sender = &mut self.senders[self.last];
            sender.taken = sender.taken.wrapping_add(charge(len, segment));
            sender.page().taken.store(sender.taken, Ordering::Relaxed);
        }
    }

    /// Looks for the sender of a datagram, which may have connected since the last. Returns false if it has no credit.
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
                // One that connects again has begun anew.
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
            sender.page().limit.store(share, Ordering::Relaxed);
        }
    }
}
