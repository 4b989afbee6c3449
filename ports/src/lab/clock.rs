//! The page that all ports of a lab read: its clock, and the links of its hosts.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use irnic_transports::Time;
use irnic_transports::time::MS;

use crate::host::{sealed_len, sys};
use crate::region::{PAGE, Region, Shared};
use crate::stamp::host_now;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// `IRNICLC` and the version of the layout.
const MAGIC: u64 = u64::from_be_bytes(*b"IRNICLC\x01");

/// Fraction bits of a rate.
const FRACTION: u32 = 32;

/// Lab time as a linear function of the host's clock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// A time of the lab, ns …
    pub lab: u64,
    /// … and the host's time when it is reached, ns.
    pub host: u64,
    /// Lab time that passes per unit of the host's, in 2⁻³².
    pub rate: u64,
}

impl Line {
    /// Time stopped at 0.
    const STILL: Line = Line { lab: 0, host: 0, rate: 0 };

    /// Returns the line through a point along which lab time runs `slower` times slower than the host's.
    pub fn new(lab: u64, host: Time, slower: f64) -> Line {
        let rate = (2f64.powi(FRACTION as i32) / slower).round().clamp(1.0, 2f64.powi(48)) as u64;
        Line { lab, host: host.0, rate }
    }

    /// Returns the lab's time at a time of the host, ns.
    #[inline]
    pub fn at(&self, host: Time) -> u64 {
        let passed = u128::from(host.0.saturating_sub(self.host)) * u128::from(self.rate);
        self.lab.saturating_add(u64::try_from(passed >> FRACTION).unwrap_or(u64::MAX))
    }

    /// Returns the time of the host at which the lab's time is `lab`, ns.
    pub fn host_time(&self, lab: u64) -> Time {
        let ahead = u128::from(lab.saturating_sub(self.lab)) << FRACTION;
        let ahead = ahead.div_ceil(u128::from(self.rate.max(1)));
        Time(self.host.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX)))
    }
}

/// The clock. Only the server can write it.
#[derive(Default)]
#[repr(C, align(128))]
struct ClockWords {
    magic: AtomicU64,
    hosts: AtomicU64,
    /// 1 if time waits for applications: lab time is then the limit.
    waits: AtomicU64,
    /// Seqlock of the line: odd during a change, a new number after each.
    sequence: AtomicU64,
    lab: AtomicU64,
    host: AtomicU64,
    rate: AtomicU64,
    /// The server sleeps: a process with news wakes it.
    asleep: AtomicU32,
    /// Number of times that it woke and reset the limit.
    wakes: AtomicU64,
    /// Upper limit of the lab's time, ns.
    limit: Apart,
}

/// A frequently written word on its own cache line.
#[derive(Default)]
#[repr(C, align(128))]
struct Apart(AtomicU64);

// SAFETY: atomics and padding, aligned to 128.
unsafe impl Shared for ClockWords {}

/// The link of a host.
#[derive(Default)]
#[repr(C)]
struct LinkWords {
    /// When everything that its processes have sent on it has left, ns.
    free: AtomicU64,
    /// bit/s.
    rate: AtomicU64,
}

// SAFETY: two atomics.
unsafe impl Shared for LinkWords {}

/// A word that all processes of a lab write. While the server sleeps, the first process that begins a turn stops time
/// here for all of them, until the server is awake and knows how far time may go: a turn that is begun while nobody
/// advances the network has the same time as all others. A process that writes garbage can stop time, as any process of
/// the lab can by being busy.
#[derive(Default)]
#[repr(C, align(128))]
struct Brake {
    at: AtomicU64,
}

// SAFETY: one atomic and padding.
unsafe impl Shared for Brake {}

/// The page of the brake.
pub(super) struct BrakePage(Region);

impl BrakePage {
    /// Creates the page, released, and the file with which others map it.
    pub(super) fn create() -> io::Result<(BrakePage, OwnedFd)> {
        let file = sys::memory(c"irnic-lab-brake", PAGE)?;
        let page = BrakePage(Region::map(file.as_fd(), PAGE)?);
        page.release();
        Ok((page, file))
    }

    #[cfg(loom)]
    pub(super) fn on(region: Region) -> BrakePage {
        BrakePage(region)
    }

    pub(super) fn open(file: BorrowedFd<'_>) -> io::Result<BrakePage> {
        check_file(file, PAGE)?;
        Region::map(file, PAGE).map(BrakePage)
    }

    fn word(&self) -> &AtomicU64 {
        &self.0.object::<Brake>(0).at
    }

    /// Stops time at `now`, unless it is stopped already. Returns the time at which it is stopped, ns: no earlier than
    /// any that [`BrakePage::limit`] returned before, and no later than any that it returns after.
    ///
    /// `now` is read only after the word says [`STOPPING`], so that any time read before is earlier. All who find the
    /// word so decide the time: none waits for a process that has no core.
    pub(super) fn stop(&self, now: impl Fn() -> u64) -> u64 {
        let word = self.word();
        loop {
            let found = word.load(Ordering::Acquire);
            let to = match found {
                RELEASED => STOPPING,
                STOPPING => now(),
                at => return at,
            };
            let _ = word.compare_exchange(found, to, Ordering::SeqCst, Ordering::Relaxed);
            // Pairs with that in `limit`.
            fence(Ordering::SeqCst);
        }
    }

    /// Lets time continue.
    pub(super) fn release(&self) {
        self.word().store(RELEASED, Ordering::SeqCst);
    }

    /// Returns `read`, a time that was read before this call, ns, or that at which time is stopped if that is earlier.
    #[inline]
    pub(super) fn limit(&self, read: u64, now: impl Fn() -> u64) -> u64 {
        // Pairs with that in `stop`: if time is not stopped yet, it will not be stopped at an earlier time than `read`.
        fence(Ordering::SeqCst);
        match self.word().load(Ordering::Acquire) {
            RELEASED => read,
            _ => read.min(self.stop(now)),
        }
    }
}

/// The brake is released.
const RELEASED: u64 = u64::MAX;
/// A process is about to stop time.
const STOPPING: u64 = u64::MAX - 1;

/// Checks that a file of the server has this length and cannot change it.
fn check_file(file: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "memory of the lab has another size, or can change it");
    if sealed_len(file) == Some(len) { Ok(()) } else { Err(wrong()) }
}

impl ClockWords {
    /// Returns the line; `None` if the server was stopped while it wrote a new one.
    #[inline]
    fn line(&self) -> Option<Line> {
        for _ in 0..READ_ATTEMPTS {
            let before = self.sequence.load(Ordering::Acquire);
            let line = Line {
                lab: self.lab.load(Ordering::Relaxed),
                host: self.host.load(Ordering::Relaxed),
                rate: self.rate.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.sequence.load(Ordering::Relaxed) == before {
                return Some(line);
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// The page as mapped by the server or a port.
pub(super) struct Page {
    region: Region,
    hosts: u32,
    /// The last line read, for use if the server was stopped while it wrote a new one.
    last: Cell<Line>,
}

/// Attempts to read a changing line before the writer counts as stopped.
const READ_ATTEMPTS: u32 = if cfg!(loom) { 2 } else { 10_000 };

/// Returns the bytes of the page of a lab with this number of hosts.
fn page_len(hosts: u32) -> usize {
    PAGE + (hosts as usize * size_of::<LinkWords>()).next_multiple_of(PAGE)
}

impl Page {
    /// Creates the page, and the file with which others map it, read-only.
    pub(super) fn create(rates: &[u64], waits: bool) -> io::Result<(Page, OwnedFd)> {
        let hosts = rates.len() as u32;
        let file = sys::unsealed_memory(c"irnic-lab-clock", page_len(hosts))?;
        let page = Page { region: Region::map(file.as_fd(), page_len(hosts))?, hosts, last: Cell::new(Line::STILL) };
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
        // SAFETY: no memory is passed.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        for (link, rate) in (0..).zip(rates) {
            page.link(link).rate.store(*rate, Ordering::Relaxed);
        }
        page.words().hosts.store(hosts.into(), Ordering::Relaxed);
        page.words().waits.store(waits.into(), Ordering::Relaxed);
        page.words().magic.store(MAGIC, Ordering::Release);
        Ok((page, file))
    }

    /// Maps the page of a lab read-only.
    pub(super) fn open(file: BorrowedFd<'_>, hosts: u32) -> io::Result<Page> {
        let len = page_len(hosts);
        check_file(file, len)?;
        let page = Page { region: Region::map_to_read(file, len)?, hosts, last: Cell::new(Line::STILL) };
        if page.words().magic.load(Ordering::Acquire) != MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the lab's clock is of another version"));
        }
        Ok(page)
    }

    #[cfg(loom)]
    pub(super) fn on(region: Region, hosts: u32) -> Page {
        Page { region, hosts, last: Cell::new(Line::STILL) }
    }

    fn words(&self) -> &ClockWords {
        self.region.object(0)
    }

    fn link(&self, host: u32) -> &LinkWords {
        assert!(host < self.hosts);
        self.region.object(PAGE + host as usize * size_of::<LinkWords>())
    }

    /// Returns whether time waits for applications.
    pub(super) fn waits(&self) -> bool {
        self.words().waits.load(Ordering::Relaxed) != 0
    }

    /// Returns the line.
    #[inline]
    pub(super) fn line(&self) -> Line {
        match self.words().line() {
            Some(line) => {
                self.last.set(line);
                line
            }
            None => self.last.get(),
        }
    }

    /// Returns the lab's time, ns.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        // The limit first: it comes with the line that was set before it.
        let limit = self.words().limit.0.load(Ordering::Acquire);
        self.line().at(host_now()).min(limit)
    }

    pub(super) fn set_line(&self, line: Line) {
        let words = self.words();
        let sequence = words.sequence.load(Ordering::Relaxed);
        words.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        words.lab.store(line.lab, Ordering::Relaxed);
        words.host.store(line.host, Ordering::Relaxed);
        words.rate.store(line.rate, Ordering::Relaxed);
        words.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    pub(super) fn limit(&self) -> u64 {
        self.words().limit.0.load(Ordering::Relaxed)
    }

    pub(super) fn set_limit(&self, limit: u64) {
        self.words().limit.0.store(limit, Ordering::Release);
    }

    pub(super) fn set_asleep(&self, asleep: bool) {
        self.words().asleep.store(asleep.into(), Ordering::SeqCst);
    }

    /// Makes processes that are reading the time read again: the limit differs from that during the server's sleep.
    pub(super) fn note_wake(&self) {
        self.words().wakes.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the lab's time like [`Page::now`], ns, but no later than where the brake stops it while the server
    /// sleeps.
    #[inline]
    pub(super) fn braked_now(&self, brake: &BrakePage) -> u64 {
        self.read(|now| brake.limit(now, || self.now())).0
    }

    /// Returns the lab's time for a turn, ns, and whether the server sleeps: then time is stopped, and the server must
    /// be woken.
    #[inline]
    pub(super) fn stopped_now(&self, brake: &BrakePage) -> (u64, bool) {
        self.read(|_| brake.stop(|| self.now()))
    }

    /// Reads the time, and whether the server sleeps: then `braked` replaces it. Reads again if the server woke
    /// meanwhile.
    #[inline]
    fn read(&self, braked: impl Fn(u64) -> u64) -> (u64, bool) {
        let wakes = &self.words().wakes;
        loop {
            let before = wakes.load(Ordering::Acquire);
            // The time first: only a server that sleeps lets time advance beyond the network's.
            let now = self.now();
            let asleep = self.is_asleep();
            let now = if asleep { braked(now) } else { now };
            fence(Ordering::Acquire);
            if wakes.load(Ordering::Relaxed) == before {
                return (now, asleep);
            }
        }
    }

    /// Returns whether the server must be woken. The caller has issued a fence after publishing its news.
    #[inline]
    pub(super) fn is_asleep(&self) -> bool {
        self.words().asleep.load(Ordering::Acquire) != 0
    }

    /// Returns when the link of a host is free, ns, and its rate, bit/s.
    #[inline]
    pub(super) fn link_of(&self, host: u32) -> (u64, u64) {
        let link = self.link(host);
        (link.free.load(Ordering::Relaxed), link.rate.load(Ordering::Relaxed))
    }

    pub(super) fn set_free(&self, host: u32, free: u64) {
        self.link(host).free.store(free, Ordering::Relaxed);
    }

    pub(super) fn set_rate(&self, host: u32, rate: u64) {
        self.link(host).rate.store(rate, Ordering::Relaxed);
    }
}

/// The clock of a lab, for a process that is not one of its ports. It never goes back, and goes on at the host's speed
/// when the lab has ended. May be read from several threads, and by signal handlers.
pub struct LabClock {
    region: Region,
    /// Process id of the server; 0 if unknown.
    server: libc::pid_t,
    /// The latest time that was read, ns, and the host's time then, ns.
    seen: AtomicU64,
    seen_at: AtomicU64,
    /// 1 if the lab has ended: `seen` and `seen_at` are the time then.
    ended: AtomicU32,
}

/// Time without a change after which the clock checks whether the lab has ended, ns.
const STILL_FOR: u64 = 500 * MS;

impl LabClock {
    /// Connects to the lab at a path or abstract name, and maps its clock.
    ///
    /// # Errors
    /// If there is no lab, or it is another user's or of another version.
    pub fn open(lab: &std::path::Path) -> io::Result<LabClock> {
        let (socket, answer) = super::hello::request_clock(lab)?;
        let file = super::hello::next_message(&socket, &mut [0; 8])?.fd;
        let file = file.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the lab sent no clock"))?;
        let Page { region, .. } = Page::open(file.as_fd(), answer.assignment.hosts)?;
        let server = sys::peer_process(socket.as_fd()).map_or(0, |process| process as libc::pid_t);
        let seen_at = AtomicU64::new(host_now().0);
        Ok(LabClock { region, server, seen: AtomicU64::new(0), seen_at, ended: AtomicU32::new(0) })
    }

    /// Returns the lab's time, ns.
    pub fn now(&self) -> u64 {
        let (words, host) = (self.region.object::<ClockWords>(0), host_now());
        let seen = self.seen.load(Ordering::Acquire);
        if self.ended.load(Ordering::Relaxed) != 0 {
            return seen + host.0.saturating_sub(self.seen_at.load(Ordering::Relaxed));
        }
        // The limit first: it comes with the line that was set before it.
        let limit = words.limit.0.load(Ordering::Acquire);
        let now = words.line().map_or(seen, |line| line.at(host).min(limit));
        if now > seen {
            self.seen_at.fetch_max(host.0, Ordering::Relaxed);
            return self.seen.fetch_max(now, Ordering::AcqRel).max(now);
        }
        if host.0.saturating_sub(self.seen_at.load(Ordering::Relaxed)) > STILL_FOR && self.server > 0 {
            // SAFETY: no memory is passed, and no signal sent.
            let gone = unsafe { libc::kill(self.server, 0) } != 0
                && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
            if gone {
                self.seen_at.store(host.0, Ordering::Relaxed);
                self.ended.store(1, Ordering::Relaxed);
            }
        }
        seen
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_followed_both_ways() {
        for (slower, host, lab) in [(1.0, 1_500, 1_000), (100.0, 1_500, 505), (0.5, 1_500, 1_500)] {
            let line = Line::new(500, Time(1_000), slower);
            assert_eq!((line.at(Time(host)), line.at(Time(3))), (lab, 500), "{slower}");
            assert!(line.host_time(lab).0.abs_diff(host) <= 1, "{slower}: {:?}", line.host_time(lab));
        }
    }

    #[test]
    fn a_server_that_is_killed_while_it_changes_the_line_keeps_nobody_waiting() {
        let (page, file) = Page::create(&[10], false).unwrap();
        let line = Line::new(7, Time(3), 1.0);
        page.set_line(line);
        let other = Page::open(file.as_fd(), 1).unwrap();
        assert_eq!(other.line(), line);
        page.words().sequence.fetch_add(1, Ordering::Relaxed);
        page.words().lab.store(99, Ordering::Relaxed);
        assert_eq!(other.line(), line);
        assert_eq!(Page::open(file.as_fd(), 1).unwrap().line(), Line::STILL);
    }

    #[test]
    fn ports_can_only_read_the_page() {
        let (page, file) = Page::create(&[10, 20], false).unwrap();
        let other = Page::open(file.as_fd(), 2).unwrap();
        page.set_line(Line::new(7, Time::ZERO, 1.0));
        page.set_limit(9);
        page.set_free(1, 33);
        assert_eq!((other.now(), other.link_of(1), other.link_of(0)), (9, (33, 20), (0, 10)));
        assert!(Region::map(file.as_fd(), PAGE).is_err(), "nobody else can map it to write");
        assert!(Page::open(file.as_fd(), 1_000).is_err());
    }
}
