//! The port of a process in a lab.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use irnic_transports::telemetry::Int;
use irnic_transports::time::SEC;
use irnic_transports::{Path, Time};

use super::claims::claim;
use super::clock::{BrakePage, Page};
use super::hello::{Request, call, next_message};
use super::member::{
    ACTS, HELD, Kind, LONGEST, POLLS, PREFIX, REGION, SLEEPS, TURN, Tag, Words, place, telemetry, words,
};
use super::{Assignment, LabSpec};
use crate::host::sealed_len;
use crate::host::services::ServiceClaim;
use crate::host::slot::Slot;
use crate::host::sys;
use crate::region::Region;
use crate::ring::{Consumer, Producer};
use crate::sheet::Sheet;
use crate::sync::{Ordering, fence};
use crate::{Application, MAX_FRAME, Port, PortCounters, RxFrame, RxIcrc, Timed, Turn, TxFrame};

/// Reads of a held word between two checks whether the server, which has to release it, is alive.
const READS_PER_CHECK: u32 = 1_000;

/// A process's port in a lab.
///
/// It is driven by the lab's clock ([`Timed`]). When the server ends, frames are lost and the clock continues, so that
/// operations waiting for answers end with an error.
pub struct LabPort {
    socket: OwnedFd,
    page: Page,
    region: Arc<Region>,
    tx: Producer,
    rx: Consumer,
    assignment: Assignment,
    encapsulation: u32,
    slot: Slot,
    /// Place of the server.
    server: PathBuf,
    /// The record taken from the ring but not delivered yet: time of arrival, tag, length.
    head: Option<(Time, Tag, usize)>,
    bytes: Box<[u8; LONGEST]>,
    /// Telemetry of the next frame to leave.
    attached: Option<Int>,
    taken: u64,
    /// The time up to which all work is done.
    done: Time,
    need: u64,
    /// Time when the last frame has left, ps.
    ends: u64,
    paused: u8,
    link_is_up: bool,
    /// Something was put into the ring, or time was stopped, since the last turn ended.
    untold: bool,
    brake: BrakePage,
    /// Whether time waits for applications, and the application's activity before the current turn.
    waits: bool,
    before: u32,
    /// The server has ended.
    dead: bool,
    late: (u64, u64),
    counters: PortCounters,
}

impl LabPort {
    /// Enters a lab.
    ///
    /// # Errors
    /// If there is no server, or it refuses the process.
    pub fn open(spec: &LabSpec) -> io::Result<LabPort> {
        let (socket, answer) = call(spec, Request::Entry)?;
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the lab's server sent {what}"));
        let file = || {
            let message = next_message(&socket, &mut [0; 8])?;
            message.fd.ok_or_else(|| wrong("no memory"))
        };
        let (clock, brake, memory) = (file()?, file()?, file()?);
        let page = Page::open(clock.as_fd(), answer.assignment.hosts)?;
        let brake = BrakePage::open(brake.as_fd())?;
        if sealed_len(memory.as_fd()) != Some(REGION) {
            return Err(wrong("memory of another kind"));
        }
        let region = Arc::new(Region::map(memory.as_fd(), REGION)?);
        let slot = Slot::new(answer.slot).ok_or_else(|| wrong("no slot"))?;
        Ok(LabPort {
            tx: Producer::new(region.clone(), place(true)),
            rx: Consumer::new(region.clone(), place(false)),
            server: spec.socket.clone(),
            assignment: answer.assignment,
            encapsulation: answer.encapsulation,
            slot,
            socket,
            region,
            head: None,
            bytes: Box::new([0; LONGEST]),
            attached: None,
            taken: 0,
            done: Time(page.now()),
            waits: page.waits(),
            before: ACTS,
            page,
            need: u64::MAX,
            ends: 0,
            paused: 0,
            link_is_up: answer.link_is_up,
            untold: false,
            brake,
            dead: false,
            late: (0, 0),
            counters: PortCounters::default(),
        })
    }

    /// Returns the place of this process in the lab.
    pub fn assignment(&self) -> Assignment {
        self.assignment
    }

    /// Returns the slot of this process among those of its host.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Returns whether the host's link is up.
    pub fn link_is_up(&self) -> bool {
        self.link_is_up
    }

    /// Claims a service id for this process among those of its host.
    ///
    /// # Errors
    /// `AddrInUse` if a process of the host has it; otherwise the system's error, for lack of descriptors, or if the
    /// server has ended.
    pub fn claim_service(&self, service: u64) -> io::Result<ServiceClaim> {
        claim(&self.server, self.assignment.host, self.slot, service)
    }

    /// Passes a sheet of this process to the server, and the name of the abstract datagram socket on which it can be
    /// asked to update the sheet.
    ///
    /// # Errors
    /// The system's error.
    pub fn show(&self, sheet: &Sheet, name: &str) -> io::Result<()> {
        sys::send(self.socket.as_fd(), name.as_bytes(), &[sheet.file()])
    }

    #[cfg(test)]
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Returns a seed for random choices: in a lab whose time waits for applications it is the same in every run.
    pub fn seed(&self) -> Option<[u8; 32]> {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&self.assignment.host.to_le_bytes());
        seed[4..6].copy_from_slice(&self.slot.number().to_le_bytes());
        self.waits.then_some(seed)
    }

    #[cfg(test)]
    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    fn words(&self) -> &Words {
        words(&self.region)
    }

    /// Returns the lab's time. Without a server it continues along the line.
    fn time(&self) -> u64 {
        if self.dead {
            return self.page.line().at(crate::host_now());
        }
        if self.waits {
            return self.page.now();
        }
        // Until the server is awake the limit is not final.
        self.page.braked_now(&self.brake)
    }

    /// Returns the lab's time for a turn, ns, and whether that stopped time.
    fn time_of_turn(&self) -> (u64, bool) {
        if self.dead || self.waits { (self.time(), false) } else { self.page.stopped_now(&self.brake) }
    }

    /// Takes the next record out of the ring, if none is held yet.
    fn fill(&mut self) {
        while self.head.is_none() && !self.dead {
            match self.rx.pop(Time::ZERO) {
                Ok(Some(record)) => {
                    let len = record.bytes.len();
                    self.bytes[..len].copy_from_slice(record.bytes);
                    let tag = Tag::of(record.tag);
                    self.head = (len >= tag.frame_at()).then_some((Time(record.stamp), tag, len));
                    self.rx.release();
                }
                Ok(None) => return,
                Err(_) => self.dead = true,
            }
        }
    }

    /// Records that a record was processed at `now`.
    fn took(&mut self, arrived: Time, now: Time) {
        self.head = None;
        self.taken += 1;
        let lag = now.since(arrived);
        if lag > 0 {
            self.late = (self.late.0 + 1, self.late.1.max(lag));
            self.words().late.store(self.late.0, Ordering::Relaxed);
            self.words().worst.store(self.late.1, Ordering::Relaxed);
        }
    }

    /// Wakes the server if it sleeps.
    #[inline]
    fn ring(&mut self) {
        fence(Ordering::SeqCst);
        if self.page.is_asleep() && !self.dead {
            self.counters.tx_syscalls += 1;
            // A full socket also wakes it.
            let _ = sys::send(self.socket.as_fd(), &[1], &[]);
        }
    }

    /// Reads the server's messages, and detects its end.
    fn hear(&mut self) {
        let mut bytes = [0; 8];
        loop {
            self.counters.rx_syscalls += 1;
            match sys::receive(self.socket.as_fd(), &mut bytes) {
                Ok(message) if message.len == 0 => {
                    self.dead = true;
                    return;
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.dead = true;
                    return;
                }
            }
        }
    }

    /// Changes the activity of the application. Returns the previous one.
    fn change(&mut self, to: u32) -> u32 {
        let doing = &words(&self.region).doing.0;
        for tries in 1.. {
            let was = doing.load(Ordering::Acquire);
            match was {
                // It ends with the turn.
                TURN if to == TURN => return was,
                TURN => return std::mem::replace(&mut self.before, to),
                HELD if self.dead => break,
                HELD => {
                    std::thread::yield_now();
                    self.dead |= tries % READS_PER_CHECK == 0 && !sys::peer_lives(self.socket.as_fd());
                }
                _ if was == to => return was,
                _ if doing.compare_exchange(was, to, Ordering::SeqCst, Ordering::Relaxed).is_ok() => {
                    if to == TURN {
                        self.before = was;
                    }
                    return was;
                }
                _ => {}
            }
        }
        doing.store(to, Ordering::Release);
        ACTS
    }

    /// Returns whether there is work.
    fn is_due(&mut self) -> bool {
        let now = self.time();
        self.fill();
        self.head.is_some_and(|(at, ..)| at.0 <= now) || self.need <= now
    }
}

impl Timed for LabPort {
    #[inline]
    fn begin(&mut self) -> Turn {
        if self.waits {
            self.change(TURN);
        }
        let (now, stopped) = self.words().begin(|| self.time_of_turn());
        self.untold |= stopped;
        let from = Time(now.min(self.need)).max(self.done);
        self.words().need.store(from.0, Ordering::Release);
        Turn { done: self.done, from, now: Time(now).max(self.done) }
    }

    #[inline]
    fn next_arrival(&mut self) -> Time {
        self.fill();
        self.head.map_or(Time::NEVER, |(at, ..)| at.max(self.done))
    }

    #[inline]
    fn telemetry(&self) -> Option<Int> {
        let (_, tag, len) = self.head?;
        if tag.telemetry { telemetry(&self.bytes[..len]) } else { None }
    }

    fn attach(&mut self, telemetry: &Int) {
        self.attached = Some(*telemetry);
    }

    #[inline]
    fn free_at(&self) -> Time {
        let (others, _) = self.page.link_of(self.assignment.host);
        Time(self.ends.div_ceil(1_000).max(others))
    }

    fn paused(&self) -> u8 {
        self.paused
    }

    #[inline]
    fn end(&mut self, done: Time, next: Time) {
        self.done = done;
        self.untold = false;
        self.tx.publish();
        self.need = next.0;
        self.words().end(next.0, self.taken);
        // The server may wait for the end of a turn, whatever comes of it. Where time waits for applications, it waits
        // until the turn is settled.
        if !self.waits {
            self.ring();
        }
    }

    #[inline]
    fn is_idle(&mut self, next: Time) -> bool {
        next.0 == self.need && !self.untold && !self.waits && !self.is_due()
    }

    fn clock(&self) -> Time {
        Time(self.time())
    }

    fn awaits_applications(&self) -> bool {
        self.waits
    }

    fn note(&mut self, application: Application) {
        if !self.waits {
            return;
        }
        let to = match application {
            Application::Acts => ACTS,
            Application::Polls => POLLS,
            Application::Sleeps => SLEEPS,
        };
        let news = self.change(to) != to;
        let calls = &self.words().calls;
        if news || to == ACTS {
            calls.store(calls.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        if news && to != ACTS {
            self.ring();
        }
    }

    fn settle(&mut self, heard: bool, completions: bool) {
        let doing = &self.words().doing.0;
        if self.waits && doing.load(Ordering::Relaxed) == TURN {
            let acts = heard || completions && self.before == POLLS;
            doing.store(if acts { ACTS } else { self.before }, Ordering::Release);
            self.ring();
        }
    }

    fn stands_still(&mut self) -> bool {
        let doing = self.words().doing.0.load(Ordering::Acquire);
        !self.dead && (doing == HELD || doing == POLLS && !self.is_due())
    }
}

impl Port for LabPort {
    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    fn needs_icrc(&self, _path: &Path, _dest_qp: u32) -> bool {
        false
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        assert!(frame.len <= MAX_FRAME);
        let host = match frame.path.dst {
            group if group.is_multicast() => u32::MAX,
            other => match self.assignment.addressing.host_of(other, self.assignment.hosts) {
                Some(host) => host,
                None => {
                    self.counters.tx_dropped += 1;
                    return true;
                }
            },
        };
        let Path { udp_src, traffic_class, .. } = *frame.path;
        let attached = self.attached.take();
        let tag = Tag { udp_src, traffic_class, kind: Kind::Frame, corrupted: false, telemetry: attached.is_some() };
        let begins = tag.frame_at();
        let pushed = !self.dead
            && match self.tx.push(begins + frame.len, tag.word(), now.0, &mut |bytes| {
                let (prefix, rest) = bytes.split_at_mut(begins);
                prefix[..PREFIX].copy_from_slice(&host.to_le_bytes());
                if let Some(int) = &attached {
                    prefix[PREFIX..].copy_from_slice(&int.to_bytes());
                }
                fill(rest);
            }) {
                Ok(pushed) => pushed,
                Err(_) => {
                    self.dead = true;
                    false
                }
            };
        if self.dead {
            // Behaves as if there were no link.
            self.counters.tx_dropped += 1;
            return true;
        }
        if pushed {
            let (_, rate) = self.page.link_of(self.assignment.host);
            let telemetry = attached.map_or(0, |_| Int::LEN);
            let bits = u128::from(frame.len as u32 + telemetry + self.encapsulation) * 8;
            let takes = (bits * u128::from(SEC) * 1_000).div_ceil(u128::from(rate.max(1))) as u64;
            let at = now.0 * 1_000;
            // Closely spaced frames lose nothing by the rounding of times.
            self.ends = if self.ends + 1_000 > at { self.ends } else { at } + takes;
            self.counters.tx_frames += 1;
            self.untold = true;
        }
        pushed
    }

    fn flush(&mut self, _: Time) -> io::Result<()> {
        self.tx.publish();
        Ok(())
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let mut frames = 0;
        while frames < budget {
            self.fill();
            let Some((arrived, tag, len)) = self.head.filter(|(at, ..)| *at <= now) else { break };
            self.took(arrived, now);
            match tag.kind {
                Kind::Frame => {}
                // The caller reads it before it continues.
                Kind::Pause => {
                    self.paused = tag.traffic_class;
                    break;
                }
                Kind::Link => {
                    self.link_is_up = tag.traffic_class != 0;
                    break;
                }
            }
            let src = u32::from_le_bytes(std::array::from_fn(|i| self.bytes[i]));
            let path = Path {
                src: self.assignment.addressing.address(src),
                dst: self.assignment.addressing.address(self.assignment.host),
                udp_src: tag.udp_src,
                traffic_class: tag.traffic_class,
                hop_limit: 64,
            };
            frames += 1;
            // The bytes in place of its ICRC are not one, so that the check fails.
            let icrc = if tag.corrupted { RxIcrc::Exact } else { RxIcrc::Absent };
            each(RxFrame { path, bytes: &self.bytes[tag.frame_at()..len], arrived: now, icrc });
        }
        self.counters.rx_frames += frames as u64;
        self.counters.rx_batches += u64::from(frames > 0);
        Ok(frames)
    }

    fn next_deadline(&self) -> Time {
        // The server wakes processes with work. Without a server the clock runs by itself.
        if self.dead { self.page.line().host_time(self.need) } else { Time::NEVER }
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if self.prepare_sleep() {
            let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let timeout = libc::timespec {
                tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            };
            // SAFETY: one valid pollfd, a valid timespec, no signal mask.
            unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) };
        }
        self.cancel_sleep();
        Ok(())
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        if self.dead {
            return true;
        }
        self.words().asleep.0.request();
        fence(Ordering::SeqCst);
        if self.is_due() {
            self.words().asleep.0.withdraw();
            return false;
        }
        true
    }

    fn cancel_sleep(&mut self) {
        self.words().asleep.0.withdraw();
        self.hear();
    }

    fn take_over(&mut self) {
        self.words().asleep.0.withdraw();
    }

    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }

    fn timed(&mut self) -> Option<&mut dyn Timed> {
        Some(self)
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
