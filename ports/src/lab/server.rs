//! The server's end of all ports of a lab.

mod entry;
mod guests;
mod processes;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use irnic_transports::qp::MULTICAST_QPN;
use irnic_transports::telemetry::Int;
use irnic_transports::wire::mad::GSI_QPN;
use irnic_transports::{Path, Time};

use super::claims::{Claims, Listeners};
use super::clock::{BrakePage, Line, Page};
use super::guest::{Guest, GuestCounters};
use super::held::Held;
use super::hello::{Answer, Request, Wish, read_hello};
use super::jumps::{Jumps, Presence};
use super::member::{Kind, PREFIX, REGION, Tag, notice, place, telemetry, words};
use super::process_page::{Departed, NAME, Shown, group_of};
use super::tun::{self, IpCounters, Tun};
use super::{Addressing, Assignment, MAX_HOSTS};
use crate::frames::FrameSpec;
use crate::host::services::{Receiver, receiver};
use crate::host::slot::Slot;
use crate::host::sys::{self, EVENTS, Epoll};
use crate::region::Region;
use crate::ring::{Consumer, Producer};
use crate::sheet::SheetReader;
use crate::stamp::host_now;
use crate::sync::{Ordering, fence};

/// Interval of checks for processes that may have ended unnoticed.
const ROLL_CALL: Duration = Duration::from_millis(100);

/// Tokens of the listening socket, of the waker of this server, and of all guests and kernels.
const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;
const GUEST: u64 = u64::MAX - 2;

/// Wakes a sleeping server from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Wakes the server, or keeps it from sleeping the next time.
    pub fn wake(&self) {
        // A full counter also wakes it.
        let _ = sys::notify(self.0.as_fd());
    }
}

/// Hosts of a lab, and its timekeeping.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Rates of the hosts' links, bit/s.
    pub rates: Vec<u64>,
    /// Bytes on the wire around a frame (BTH to ICRC).
    pub encapsulation: u32,
    /// Factor by which lab time is slower than the host's.
    pub slower: f64,
    /// Initial time of the lab, ns.
    pub from: u64,
    /// Addresses of the hosts.
    pub addressing: Addressing,
    /// Time stops until all applications poll in vain or sleep, and [`LabServer::set_now`] is called.
    pub waits: bool,
}

impl ServerConfig {
    /// Returns the configuration of a lab whose hosts have links of these rates, bit/s: 46 bytes around a frame, time
    /// at the host's speed, starting at 1 ms, addresses of the loopback network.
    pub fn new(rates: Vec<u64>) -> ServerConfig {
        ServerConfig {
            rates,
            encapsulation: 46,
            slower: 1.0,
            from: 1_000_000,
            addressing: Addressing::Loopback,
            waits: false,
        }
    }
}

/// Number of a process in a lab, in order of entry.
pub type MemberId = usize;

/// A frame that a process or a guest has sent.
#[derive(Copy, Clone, Debug)]
pub struct Leaving<'a> {
    /// Host of the sender.
    pub host: u32,
    /// Destination host; `None` for all others.
    pub dst: Option<u32>,
    /// Time when it begins to leave, ns.
    pub start: u64,
    /// UDP source port.
    pub udp_src: u16,
    /// IP's traffic class.
    pub traffic_class: u8,
    /// The frame from BTH to ICRC.
    pub frame: &'a [u8],
    /// Telemetry for switches to add to.
    pub telemetry: Option<Int>,
}

/// A frame that reaches a host.
#[derive(Copy, Clone, Debug)]
pub struct Arriving<'a> {
    /// The host that sent it.
    pub src: u32,
    /// UDP source port.
    pub udp_src: u16,
    /// IP's traffic class, as changed by switches.
    pub traffic_class: u8,
    /// The frame from BTH to ICRC.
    pub frame: &'a [u8],
    /// Telemetry written by switches.
    pub telemetry: Option<&'a Int>,
    /// Its ICRC is wrong.
    pub corrupted: bool,
}

/// A process in a lab.
pub struct Member {
    /// Its host.
    pub host: u32,
    /// Process id, as seen by this process; 0 if unknown.
    pub process: u32,
    /// Process group; 0 if unknown.
    pub group: u32,
    slot: Slot,
    shown: Option<Arc<Shown>>,
    socket: OwnedFd,
    region: Arc<Region>,
    tx: Producer,
    rx: Consumer,
    /// Arrival times of the records that the process has not finished with, ns, and the number that it has finished
    /// with.
    arrivals: VecDeque<u64>,
    taken: u64,
    /// Frames without room.
    overrun: u64,
    corrupt: bool,
    /// It has ended, but what it sent is not collected yet.
    ended: bool,
    pub(super) presence: Presence,
}

impl Member {
    /// Returns its share of the host's queue pair numbers: those whose upper ten bits are this number.
    pub fn slot(&self) -> u16 {
        self.slot.number()
    }

    /// Returns the numbers that it publishes, if any.
    pub fn shown(&self) -> Option<&Arc<Shown>> {
        self.shown.as_ref()
    }

    /// Receives what the process has sent other than frames. Returns false if it has ended.
    fn hear(&mut self) -> bool {
        let mut bytes = [0; NAME];
        loop {
            match sys::receive(self.socket.as_fd(), &mut bytes) {
                Ok(message) if message.len > 0 => {
                    let Some(file) = message.fd.filter(|_| self.shown.is_none()) else { continue };
                    // Invalid messages are ignored.
                    let Ok(sheet) = SheetReader::open(file.as_fd()) else { continue };
                    self.shown = Shown::new(sheet, &bytes[..message.len]).ok().map(Arc::new);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
    }

    /// Returns the time from which on the process may send, unless something reaches it before, ns.
    #[inline]
    pub(super) fn need(&mut self) -> u64 {
        let (need, taken) = words(&self.region).published();
        // The value is untrusted.
        let done = taken.wrapping_sub(self.taken).min(self.arrivals.len() as u64);
        self.arrivals.drain(..done as usize);
        self.taken += done;
        need.min(self.arrivals.front().copied().unwrap_or(u64::MAX))
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    fn push(&mut self, at: u64, tag: Tag, src: u32, telemetry: Option<&Int>, frame: &[u8]) {
        let begins = tag.frame_at();
        let pushed = self.tx.push(begins + frame.len(), tag.word(), at, &mut |bytes| {
            let (prefix, rest) = bytes.split_at_mut(begins);
            prefix[..PREFIX].copy_from_slice(&src.to_le_bytes());
            if let Some(int) = telemetry {
                prefix[PREFIX..].copy_from_slice(&int.to_bytes());
            }
            rest.copy_from_slice(frame);
        });
        match pushed {
            Ok(true) => {
                self.arrivals.push_back(at);
            }
            Ok(false) => self.overrun += 1,
            Err(_) => self.corrupt = true,
        }
    }
}

/// Maximum number of departed processes that are remembered.
const DEPARTED: usize = 1024;
/// Statistics of records that processes took after their time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Number of such records.
    pub frames: u64,
    /// Largest delay, ns.
    pub worst: u64,
    /// Frames for which a process had no room, because it had not run for a long time.
    pub overrun: u64,
}

/// The server's end of all ports of a lab. The owner of the network drives it from one thread.
pub struct LabServer {
    path: PathBuf,
    listener: OwnedFd,
    epoll: Epoll,
    waker: Waker,
    page: Page,
    page_file: OwnedFd,
    brake: BrakePage,
    brake_file: OwnedFd,
    encapsulation: u32,
    rates: Vec<u64>,
    links_up: Vec<bool>,
    addressing: Addressing,
    claims: Claims,
    /// Connections without a message yet.
    strangers: HashMap<u64, OwnedFd>,
    next_token: u64,
    members: Vec<Option<Member>>,
    guests: Vec<Guest>,
    tuns: Vec<Tun>,
    /// Frames for guests and kernels whose time has not come, in order of time; and buffers for more.
    held: VecDeque<Held>,
    spare: Vec<Vec<u8>>,
    /// Live processes, by host and slot.
    order: Vec<MemberId>,
    pub(super) jumps: Jumps,
    /// Live processes of each host.
    of_host: Vec<Vec<MemberId>>,
    /// The last slot assigned on each host.
    last_slot: Vec<u16>,
    /// Hosts of processes that did not choose one.
    assigned: HashMap<u32, u32>,
    roll_call: Instant,
    /// A process has ended, and is not removed yet.
    any_ended: bool,
    left: Lateness,
    departed: VecDeque<Departed>,
}

impl LabServer {
    /// Opens a lab at a path that does not exist yet, or under an abstract name, `@NAME`, which disappears however this
    /// process ends.
    ///
    /// # Errors
    /// The system's error; an error if there is no host, or more than [`MAX_HOSTS`].
    pub fn open(path: &std::path::Path, config: &ServerConfig) -> io::Result<LabServer> {
        let hosts = config.rates.len();
        if hosts == 0 || hosts > MAX_HOSTS as usize {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a lab of {hosts} hosts")));
        }
        let (page, page_file) = Page::create(&config.rates, config.waits)?;
        let (brake, brake_file) = BrakePage::create()?;
        page.set_line(Line::new(config.from, host_now(), config.slower));
        page.set_limit(if config.waits { config.from } else { u64::MAX });
        let epoll = Epoll::new()?;
        let listener = sys::listen_at(path)?;
        // Edge-triggered: a process that cannot be accepted for lack of descriptors is not reported forever.
        epoll.add(listener.as_fd(), libc::EPOLLIN | libc::EPOLLET, LISTENER)?;
        let waker = Waker(Arc::new(sys::notifier()?));
        epoll.add(waker.0.as_fd(), libc::EPOLLIN, WAKER)?;
        Ok(LabServer {
            path: path.to_owned(),
            listener,
            epoll,
            waker,
            page,
            page_file,
            brake,
            brake_file,
            encapsulation: config.encapsulation,
            rates: config.rates.clone(),
            links_up: vec![true; hosts],
            addressing: config.addressing,
            claims: Claims::default(),
            strangers: HashMap::new(),
            next_token: 0,
            members: Vec::new(),
            guests: Vec::new(),
            tuns: Vec::new(),
            held: VecDeque::new(),
            spare: Vec::new(),
            order: Vec::new(),
            jumps: Jumps::default(),
            of_host: vec![Vec::new(); hosts],
            last_slot: vec![0; hosts],
            assigned: HashMap::new(),
            roll_call: Instant::now(),
            any_ended: false,
            left: Lateness::default(),
            departed: VecDeque::new(),
        })
    }

    /// Returns the processes that listen for connections of the communication manager, from now on.
    pub fn listeners(&self) -> Listeners {
        self.claims.listeners()
    }

    // Time.

    /// Returns the lab's time, ns.
    pub fn now(&self) -> u64 {
        let now = self.page.now();
        // A process that enters later sees this time or a later one.
        fence(Ordering::SeqCst);
        now
    }

    /// Returns the lab's time as it would be without a limit, ns.
    pub fn unlimited(&self) -> u64 {
        self.page.line().at(host_now())
    }

    pub(super) fn set_line(&self, line: Line) {
        self.page.set_line(line);
    }

    /// Returns the line that the lab's time follows.
    pub fn line(&self) -> Line {
        self.page.line()
    }

    /// Continues the lab's time from `lab`, ns, at the same speed. Processes may have seen later times.
    pub fn restart_at(&self, lab: u64) {
        let line = self.page.line();
        self.page.set_line(Line { lab, host: host_now().0, ..line });
    }

    /// Returns the upper limit of the lab's time, ns.
    pub fn limit(&self) -> u64 {
        self.page.limit()
    }

    /// Sets the upper limit of the lab's time, ns.
    pub fn set_limit(&self, limit: u64) {
        self.page.set_limit(limit);
    }

    /// Returns the earliest time of something that a process has sent and that was not collected, or that it has to do,
    /// ns; [`u64::MAX`] if there is nothing.
    pub fn earliest(&mut self) -> u64 {
        let of = |member: &mut Member| {
            // 0: it is about to read the clock.
            let need = Some(member.need()).filter(|need| *need > 0);
            need.into_iter().chain(member.rx.next_stamp()).min()
        };
        self.alive().filter_map(of).min().unwrap_or(u64::MAX)
    }

    // Frames.

    /// Iterates over the processes that have not ended.
    pub(super) fn alive(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().flatten().filter(|member| !member.ended)
    }

    /// Passes what processes have sent to `each`, in the order of their hosts. Returns the earliest time at which one
    /// of them may send something else, ns; [`u64::MAX`] if none will on its own.
    pub fn collect(&mut self, mut each: impl FnMut(Leaving<'_>)) -> u64 {
        let hosts = self.of_host.len() as u32;
        let mut earliest = u64::MAX;
        for &id in &self.order {
            let Some(member) = &mut self.members[id] else { continue };
            if !member.ended {
                // Read before what it has sent: what it sends later is no earlier.
                earliest = earliest.min(member.need());
            }
            loop {
                let record = match member.rx.pop(Time::ZERO) {
                    Ok(Some(record)) => record,
                    Ok(None) => break,
                    Err(_) => {
                        member.corrupt = true;
                        break;
                    }
                };
                let tag = Tag::of(record.tag);
                let (Some(prefix), Some(frame)) =
                    (record.bytes.first_chunk::<PREFIX>(), record.bytes.get(tag.frame_at()..))
                else {
                    member.rx.release();
                    continue;
                };
                let dst = u32::from_le_bytes(*prefix);
                let (start, host) = (record.stamp, member.host);
                if dst < hosts || dst == u32::MAX {
                    let dst = (dst != u32::MAX).then_some(dst);
                    let Tag { udp_src, traffic_class, .. } = tag;
                    let telemetry = if tag.telemetry { telemetry(record.bytes) } else { None };
                    each(Leaving { host, dst, start, udp_src, traffic_class, frame, telemetry });
                }
                member.rx.release();
            }
        }
        if self.members.iter().flatten().any(|member| member.corrupt) {
            self.expel_corrupt();
        }
        if !self.held.is_empty() {
            self.hand_over();
            self.guests.iter_mut().for_each(Guest::publish);
        }
        if !self.guests.is_empty() {
            self.collect_from_guests(&mut each);
        }
        if !self.tuns.is_empty() {
            self.collect_from_kernels(&mut each);
        }
        if self.any_ended {
            self.remove_ended();
        }
        earliest
    }

    /// Delivers a frame to its destination processes on a host, at time `at`, ns. Returns whether there is one.
    #[inline]
    pub fn deliver(&mut self, host: u32, at: u64, arriving: &Arriving<'_>) -> bool {
        let Arriving { src, udp_src, traffic_class, frame, telemetry, corrupted } = *arriving;
        let tag = Tag { udp_src, traffic_class, kind: Kind::Frame, corrupted, telemetry: telemetry.is_some() };
        let Some(number) = frame.get(5..8) else { return false };
        let qpn = u32::from_be_bytes([0, number[0], number[1], number[2]]);
        if self.is_guest(host) {
            // The multicast group of a frame is not known here.
            let known = qpn != MULTICAST_QPN;
            if known {
                self.hold(host, at, arriving);
            }
            return known;
        }
        if qpn == tun::QPN && self.tuns.iter().any(|tun| tun.host == host) {
            self.hold(host, at, arriving);
            return true;
        }
        let receiver = match qpn {
            MULTICAST_QPN => Receiver::All,
            GSI_QPN => receiver(frame, |service| self.claims.listener(host, service)),
            qpn => Slot::of(qpn).map_or(Receiver::None, Receiver::One),
        };
        let mut found = false;
        for &id in &self.of_host[host as usize] {
            let Some(member) = &mut self.members[id] else { continue };
            if receiver == Receiver::All || receiver == Receiver::One(member.slot) {
                member.push(at, tag, src, telemetry, frame);
                found = true;
            }
        }
        found
    }

    /// Notifies the processes of a host that exactly these priorities of their link are paused.
    pub fn pause(&mut self, host: u32, at: u64, paused: u8) {
        self.guests.iter_mut().filter(|guest| guest.host == host).for_each(|guest| guest.pause(paused));
        self.tuns.iter_mut().filter(|tun| tun.host == host).for_each(|tun| tun.pause(paused));
        self.notify(host, at, Kind::Pause, paused);
    }

    /// Notifies the processes of a host, current and future, that their link is down or up again.
    pub fn set_link(&mut self, host: u32, at: u64, up: bool) {
        if std::mem::replace(&mut self.links_up[host as usize], up) != up {
            self.notify(host, at, Kind::Link, up.into());
        }
    }

    fn notify(&mut self, host: u32, at: u64, kind: Kind, what: u8) {
        for &id in &self.of_host[host as usize] {
            if let Some(member) = &mut self.members[id] {
                member.push(at, notice(kind, what), host, None, &[]);
            }
        }
    }

    /// Sets the time when the link of a host is free, ns.
    #[inline]
    pub fn set_free(&self, host: u32, free: u64) {
        self.page.set_free(host, free);
    }

    /// Sets the rate of a host's link, bit/s.
    pub fn set_rate(&mut self, host: u32, rate: u64) {
        if std::mem::replace(&mut self.rates[host as usize], rate) != rate {
            self.page.set_rate(host, rate);
        }
    }

    /// Publishes what was written to processes' rings.
    pub fn publish(&mut self) {
        for member in self.members.iter_mut().flatten() {
            member.tx.publish();
        }
        self.guests.iter_mut().for_each(Guest::publish);
    }

    /// Wakes sleeping processes that have work by `now`, ns. Returns the earliest time at which a process has work, ns:
    /// `now` or earlier, if one has not done it yet.
    pub fn wake(&mut self, now: u64) -> u64 {
        fence(Ordering::SeqCst);
        let mut next = self.held.front().map_or(u64::MAX, |held| held.at);
        for member in self.alive() {
            let need = member.need();
            next = next.min(need);
            if need > now {
                continue;
            }
            // Only one byte for each sleep.
            if words(&member.region).asleep.0.ring() {
                let _ = sys::send(member.socket.as_fd(), &[1], &[]);
            }
        }
        next
    }

    /// Sleeps until a process has news, or `timeout` has passed. `busy` checks once more for work, after processes know
    /// that they have to wake the server; it may let time advance beyond the network's. `woken` is called, with the
    /// time at which the first of them began a turn and stopped time for all, before they know that they need not.
    pub fn sleep(
        &mut self,
        timeout: Duration,
        busy: impl FnOnce(&mut LabServer) -> bool,
        woken: impl FnOnce(&mut LabServer, u64),
    ) {
        self.brake.release();
        self.page.set_asleep(true);
        fence(Ordering::SeqCst);
        if !busy(self) && self.guests.iter_mut().all(Guest::may_sleep) {
            let _ = self.epoll.sleep(timeout.min(ROLL_CALL).min(self.until_links_are_free()));
        }
        // If no process did it: from here on none sees a later time.
        let now = self.brake.stop(|| self.page.now());
        woken(self, now);
        self.page.note_wake();
        self.page.set_asleep(false);
        self.brake.release();
    }

    /// Returns the waker of this server.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    #[cfg(test)]
    pub(super) fn is_woken(&self) -> bool {
        let mut tokens = [0; EVENTS];
        let ready = self.epoll.ready(&mut tokens);
        tokens[..ready].contains(&WAKER)
    }

    /// Returns whether a process has sent something that was not collected.
    pub fn has_frames(&self) -> bool {
        self.members.iter().flatten().any(|member| member.rx.has_frames())
    }
}

fn lateness_of(member: &Member) -> Lateness {
    let words = words(&member.region);
    Lateness {
        frames: words.late.load(Ordering::Relaxed),
        worst: words.worst.load(Ordering::Relaxed),
        overrun: member.overrun,
    }
}

impl Lateness {
    fn and(self, other: Lateness) -> Lateness {
        Lateness {
            frames: self.frames + other.frames,
            worst: self.worst.max(other.worst),
            overrun: self.overrun + other.overrun,
        }
    }
}

impl Drop for LabServer {
    fn drop(&mut self) {
        self.release();
        if sys::abstract_name(&self.path).is_none() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
