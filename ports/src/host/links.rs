//! All links of this process, in both directions, and the events that the kernel reports for them.

mod events;
mod looks;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use irnic_nic::frame::emit_payload;
use irnic_transports::qp::PeerProcess;
use irnic_transports::{Gather, Path, Time};

use super::bell::Bell;
use super::config::{CrossMemory, HostCounters};
use super::domain::Domain;
use super::error::OtherVersion;
use super::holder::Holder;
use super::inbound::{Copies, Inbound};
use super::outbound::{Outbound, Over, Pushed};
use super::reference::{Recalls, SHORTEST};
use super::services::{self, Receiver, Services};
use super::slot::Slot;
use super::sys::{self, Epoll};
use super::waiting::Waiting;
use crate::ring::Corrupt;
use crate::stamp::RingClock;
use crate::sync::{Ordering, fence};
use crate::{PortCounters, RxFrame, RxIcrc, TxFrame};

/// How long a slot is remembered as empty, in ns. Frames to it make no system call during this time, except management
/// datagrams: one that counts as undeliverable is refused, which ends a connection.
const ABSENCE_NS: u64 = 10_000_000;
/// Maximum age of the list of live slots that multicast frames go to, in ns.
const LIVE_SLOTS_NS: u64 = 100_000_000;
/// Maximum number of inbound links, including those of ended senders that are not drained yet.
const MAX_INBOUND: usize = 2048;
/// Maximum number of processes of other versions that are reported.
const MAX_FOREIGN: usize = 16;
/// Maximum number of frames taken from one ring before the next has its turn.
const TURN: usize = 32;
/// Bytes of forwarded frames that may wait for room in rings. Above it the sockets are not read, and their senders wait
/// in turn ([`crate::udp`]).
const WAITING: usize = 1 << 20;

/// Source of an event: the upper half of its epoll token.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A process connects.
    Listener,
    /// The link to the slot in the lower half of the token.
    Outbound,
    /// The link or the new connection with the id in the lower half of the token.
    Inbound,
    /// A socket of the UDP side, by its index in the lower half of the token.
    Udp,
}

impl Source {
    const ALL: [Source; 4] = [Source::Listener, Source::Outbound, Source::Inbound, Source::Udp];

    pub(super) fn token(self, index: u32) -> u64 {
        (self as u64) << 32 | u64::from(index)
    }

    pub(super) fn of(token: u64) -> Option<(Source, u32)> {
        Source::ALL.get((token >> 32) as usize).map(|source| (*source, token as u32))
    }
}

/// State of a slot.
enum Peer {
    Unknown,
    /// No process had the slot. It is not tried again before this time.
    Absent(Time),
    Link(Box<Outbound>),
}

/// Processes that have ended.
#[derive(Default)]
struct Ended {
    /// Slots to which links have ended.
    slots: Vec<Slot>,
    /// Processes from which links have ended.
    processes: Vec<u32>,
}

impl Ended {
    fn add_process(&mut self, process: Option<u32>) {
        // If `take_lost` is never called, the oldest are of no interest.
        if self.processes.len() == MAX_INBOUND {
            self.processes.clear();
        }
        self.processes.extend(process);
    }
}

pub(super) struct Links {
    pub(super) epoll: Epoll,
    /// Processes may have connected that could not be accepted for lack of descriptors.
    some_wait: bool,
    domain: Domain,
    slot: Slot,
    ring_bytes: usize,
    cross_memory: CrossMemory,
    /// The listening socket that holds the slot.
    listener: OwnedFd,
    bell: Bell,
    /// Links by slot.
    peers: Box<[Peer]>,
    /// Slots with frames that were not flushed yet.
    dirty: Vec<Slot>,
    /// Slots whose ring was found full.
    blocked: Vec<Slot>,
    inbound: Vec<Inbound>,
    /// Frames from UDP for rings that are full.
    waiting: Waiting,
    /// Index of the next link to poll.
    turn: usize,
    /// Frames were received since the last [`Links::mark_answered`].
    unanswered: bool,
    /// New connections without a message yet, with their ids.
    pending: Vec<(u32, OwnedFd)>,
    next_id: u32,
    clock: RingClock,
    /// Error for the next flush.
    pub(super) error: Option<io::Error>,
    /// Processes of other versions that were reported.
    foreign: Vec<Holder>,
    copies: Copies,
    recalls: Recalls,
    /// Live slots, for multicast frames, and when they were listed.
    live: Vec<Slot>,
    listed_at: Option<Time>,
    services: Services,
    /// A link has ended since the last [`Links::take_lost`], or a management datagram found no process.
    lost: bool,
    /// Processes that have ended since then.
    ended: Ended,
    /// Processes that had ended at the last [`Links::take_lost`].
    reported: Ended,
    pub(super) counters: PortCounters,
    pub(super) host: HostCounters,
}

impl Links {
    pub(super) fn new(
        domain: Domain,
        wanted: Option<Slot>,
        ring_bytes: usize,
        cross_memory: CrossMemory,
    ) -> io::Result<Links> {
        let (slot, listener) = domain.claim(wanted)?;
        let (epoll, bell) = (Epoll::new()?, Bell::new()?);
        // Edge-triggered: a process that cannot be accepted for lack of descriptors is not reported forever.
        epoll.add(listener.as_fd(), libc::EPOLLIN | libc::EPOLLET, Source::Listener.token(0))?;
        Ok(Links {
            epoll,
            some_wait: false,
            domain,
            slot,
            ring_bytes,
            cross_memory,
            listener,
            bell,
            peers: (0..=Slot::MAX).map(|_| Peer::Unknown).collect(),
            dirty: Vec::new(),
            blocked: Vec::new(),
            inbound: Vec::new(),
            waiting: Waiting::default(),
            turn: 0,
            unanswered: false,
            pending: Vec::new(),
            next_id: 0,
            clock: RingClock::host(),
            error: None,
            foreign: Vec::new(),
            copies: Copies::default(),
            recalls: Recalls::default(),
            live: Vec::new(),
            listed_at: None,
            services: Services::default(),
            lost: false,
            ended: Ended::default(),
            reported: Ended::default(),
            counters: PortCounters::default(),
            host: HostCounters::default(),
        })
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    pub(super) fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Returns the receiver of a frame to queue pair 1: this process, which then refuses it, if no other is found.
    #[cold]
    pub(super) fn mad_receiver(&mut self, frame: &[u8]) -> Receiver {
        let Links { services: known, domain, .. } = self;
        match services::receiver(frame, |service| known.find(domain, service)) {
            Receiver::None => Receiver::One(self.slot),
            found => found,
        }
    }

    /// Returns the process that answers a frame to queue pair 1 for `to`: this one, which knows of no connection, if
    /// that process has ended.
    pub(super) fn or_own(&mut self, to: Receiver) -> Receiver {
        match to {
            Receiver::One(to) if !self.has_link(to) && !self.open(to) => Receiver::One(self.slot),
            there => there,
        }
    }

    fn has_link(&self, to: Slot) -> bool {
        matches!(self.peers[usize::from(to.number())], Peer::Link(_))
    }

    /// Returns whether links have ended since the last call: processes may have ended.
    pub(super) fn take_lost(&mut self) -> bool {
        if !std::mem::take(&mut self.lost) {
            return false;
        }
        self.reported = std::mem::take(&mut self.ended);
        true
    }

    /// Has [`Self::take_lost`] return true once more, with the processes that it reported last.
    pub(super) fn look_again(&mut self) {
        self.lost = true;
        // Slots may have new processes meanwhile.
        self.ended.processes.append(&mut self.reported.processes);
    }

    /// Returns whether the process that had a slot when [`Self::take_lost`] was last called has ended. Makes a system
    /// call if there is no link.
    pub(super) fn process_ended(&self, slot: Slot) -> bool {
        if slot == self.slot {
            return false;
        }
        self.reported.slots.contains(&slot) || !self.has_link(slot) && self.has_no_process(slot)
    }

    /// Returns whether a slot has no process, or one that is about to end: an ending process closes its links and its
    /// slot in any order.
    fn has_no_process(&self, slot: Slot) -> bool {
        match sys::connect(&self.domain.slot_name(slot)) {
            Ok(has) => sys::peer_process(has.as_fd()).is_some_and(|process| self.reported.processes.contains(&process)),
            Err(e) => e.kind() == io::ErrorKind::ConnectionRefused,
        }
    }

    /// Opens a link to the destination process of a management datagram if there is none, so that its end is noticed.
    /// If the process has ended already, that is reported, too.
    pub(super) fn watch(&mut self, slot: Slot) {
        if !self.has_link(slot) && !self.open(slot) {
            self.lost = true;
        }
    }

    /// Queues a frame of `len` bytes for the process that has slot `to`. Returns false if there is no room now; true
    /// also if the frame is dropped because no process has the slot, or its process is stalled.
    #[inline]
    pub(super) fn push(
        &mut self,
        now: Time,
        to: Slot,
        meta: (&Path, RxIcrc),
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        self.clock.refresh(now);
        self.push_stamped(now, self.clock.stamp(now), to, meta, len, fill)
    }

    #[inline]
    fn push_stamped(
        &mut self,
        now: Time,
        stamp: u64,
        to: Slot,
        meta: (&Path, RxIcrc),
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        if !matches!(self.peers[usize::from(to.number())], Peer::Link(_)) && !self.open_at_times(now, to) {
            self.host.tx_absent += 1;
            self.counters.tx_dropped += 1;
            return true;
        }
        let Peer::Link(link) = &mut self.peers[usize::from(to.number())] else { return true };
        let pushed = link.push(now, stamp, meta, len, fill);
        self.pushed(to, pushed)
    }

    /// Queues a frame without an ICRC like [`Self::push`]. Its payload follows its first `at` bytes: `fill` writes the
    /// rest, or these bytes alone. The payload is left in place where that costs less than copying it.
    pub(super) fn push_payload(
        &mut self,
        now: Time,
        to: Slot,
        frame: &TxFrame<'_>,
        (at, payload): (usize, &Gather<'_>),
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        self.clock.refresh(now);
        let (stamp, path) = (self.clock.stamp(now), frame.path);
        let mut copy = |out: &mut [u8]| {
            fill(out);
            emit_payload(payload, at, out);
        };
        let Peer::Link(link) = &mut self.peers[usize::from(to.number())] else {
            return self.push_stamped(now, stamp, to, (path, RxIcrc::Absent), frame.len, &mut copy);
        };
        let pushed = match *payload.segments() {
            [payload] if payload.len >= SHORTEST && link.takes_references() => {
                let rest = (frame.len - at) as u32 - payload.len;
                let pushed = link.push_reference(now, stamp, path, at, (payload, rest), fill);
                self.host.tx_by_reference += u64::from(matches!(pushed, Ok(Pushed::Taken)));
                pushed
            }
            _ => link.push(now, stamp, (path, RxIcrc::Absent), frame.len, &mut copy),
        };
        self.pushed(to, pushed)
    }

    /// Returns what recalls the references in the rings of all links, also of those opened later.
    pub(super) fn recalls(&self) -> Recalls {
        self.recalls.clone()
    }

    /// Returns whether a frame was taken or dropped, and accounts for it.
    #[inline]
    fn pushed(&mut self, to: Slot, pushed: Result<Pushed, Corrupt>) -> bool {
        let Peer::Link(link) = &mut self.peers[usize::from(to.number())] else { return true };
        match pushed {
            Ok(Pushed::Taken) => {
                if !link.dirty {
                    link.dirty = true;
                    self.dirty.push(to);
                }
                self.counters.tx_frames += 1;
                true
            }
            Ok(Pushed::Full) => {
                if !self.blocked.contains(&to) {
                    self.blocked.push(to);
                }
                false
            }
            Ok(Pushed::Stalled) => {
                self.drop_stalled(to);
                true
            }
            Err(_) => {
                self.host.links_corrupt += 1;
                self.counters.tx_dropped += 1;
                self.close_outbound(to);
                true
            }
        }
    }

    /// Drops a frame for a ring that has been full for too long, and reports the first such drop.
    fn drop_stalled(&mut self, to: Slot) {
        self.counters.tx_dropped += 1;
        let Peer::Link(link) = &mut self.peers[usize::from(to.number())] else { return };
        // An error that waits to be reported comes first; this one is reported when its next frame is dropped.
        if self.error.is_none()
            && let Some(stall) = link.report_stall()
        {
            // A process that has ended does not take frames either, but that is not a stall.
            if self.process(to) == PeerProcess::Dead {
                return;
            }
            self.error = Some(io::Error::new(io::ErrorKind::TimedOut, stall));
        }
        self.host.tx_stalled += 1;
    }

    /// Forwards a frame that arrived by UDP to another process. Without room it waits.
    pub(super) fn forward(&mut self, now: Time, to: Slot, frame: &RxFrame<'_>) {
        let (path, bytes) = (&frame.path, frame.bytes);
        self.clock.refresh(now);
        let stamp = self.clock.passed_on(frame.arrived);
        let fill = &mut |to: &mut [u8]| to.copy_from_slice(bytes);
        let waits = self.waiting.is_for(to);
        if waits || !self.push_stamped(now, stamp, to, (path, frame.icrc), bytes.len(), fill) {
            self.waiting.push(to, stamp, path, frame.icrc, bytes);
        } else {
            self.host.forwarded += 1;
        }
    }

    /// Returns whether to stop reading frames, as those that wait for rings have reached their limit.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.waiting.bytes() >= WAITING
    }

    /// Forwards waiting frames as far as there is room.
    #[inline]
    pub(super) fn forward_waiting(&mut self, now: Time) {
        if !self.waiting.is_empty() {
            self.try_waiting(now);
        }
    }

    #[cold]
    fn try_waiting(&mut self, now: Time) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retry(|to, stamp, meta, len, fill| {
            let forwarded = self.push_stamped(now, stamp, to, meta, len, fill);
            self.host.forwarded += u64::from(forwarded);
            forwarded
        });
        self.waiting = waiting;
        self.flush();
    }

    /// Opens a link like [`Links::open`], but not if no process had the slot a moment ago.
    #[cold]
    fn open_at_times(&mut self, now: Time, to: Slot) -> bool {
        let at = usize::from(to.number());
        if matches!(self.peers[at], Peer::Absent(until) if now < until) {
            return false;
        }
        let opened = self.open(to);
        if !opened {
            self.peers[at] = Peer::Absent(Time(now.0.saturating_add(ABSENCE_NS)));
        }
        opened
    }

    /// Opens a link to a slot that has none. Returns false if no process has the slot.
    #[cold]
    fn open(&mut self, to: Slot) -> bool {
        let opened = if to == self.slot {
            Outbound::loopback(self.ring_bytes).map(|(link, ring)| {
                let id = self.new_id();
                self.inbound.push(Inbound::loopback(ring, id));
                link
            })
        } else {
            self.connect(to)
        };
        match opened {
            Ok(link) => {
                self.peers[usize::from(to.number())] = Peer::Link(Box::new(link));
                true
            }
            Err(e) => {
                self.host.links_refused += u64::from(e.kind() != io::ErrorKind::ConnectionRefused);
                false
            }
        }
    }

    fn connect(&mut self, to: Slot) -> io::Result<Outbound> {
        let link = Outbound::connect(&self.domain, to, self.ring_bytes, self.cross_memory)?;
        self.recalls.add(link.recall());
        if let Some(connection) = link.connection() {
            self.epoll.add(connection, libc::EPOLLIN, Source::Outbound.token(to.number().into()))?;
        }
        self.host.links_opened += 1;
        Ok(link)
    }

    fn close_outbound(&mut self, to: Slot) {
        if let Peer::Link(link) = &self.peers[usize::from(to.number())]
            && let Some(connection) = link.connection()
        {
            self.epoll.remove(connection);
            if !self.ended.slots.contains(&to) {
                self.ended.slots.push(to);
            }
            self.peers[usize::from(to.number())] = Peer::Unknown;
            self.host.links_lost += 1;
            self.lost = true;
        }
    }

    /// Returns what is known of the process that has a slot. The caller has just tried to send to it, so without a link
    /// it has ended.
    pub(super) fn process(&mut self, to: Slot) -> PeerProcess {
        self.hear(to);
        let Peer::Link(link) = &self.peers[usize::from(to.number())] else { return PeerProcess::Dead };
        if link.connection().is_some_and(|connection| !sys::peer_lives(connection)) {
            self.close_outbound(to);
            return PeerProcess::Dead;
        }
        link.process()
    }

    /// Returns the number of bytes sent to a process, including those that wait for room in its ring, and the number it
    /// has answered; `None` without a link to it.
    pub(super) fn progress(&self, to: Slot) -> Option<(u64, u64)> {
        let Peer::Link(link) = &self.peers[usize::from(to.number())] else { return None };
        let (handed, answered) = link.progress();
        Some((handed + self.waiting.bytes_for(to), answered))
    }

    /// Reads a receiver's messages, and closes its link if they end it.
    fn hear(&mut self, from: Slot) {
        let Peer::Link(link) = &mut self.peers[usize::from(from.number())] else { return };
        if let Err(over) = link.listen() {
            self.leave(from, over);
        }
    }

    #[cold]
    fn leave(&mut self, to: Slot, over: Over) {
        if let (Over::Version(theirs), Peer::Link(link)) = (over, &self.peers[usize::from(to.number())]) {
            self.report_version(link.connection().map_or(Holder::Unknown, Holder::of_peer), theirs);
        }
        self.close_outbound(to);
    }

    /// Records for the next flush that a process has another version, unless that was already reported.
    fn report_version(&mut self, process: Holder, theirs: u8) {
        if self.error.is_some() || self.foreign.contains(&process) || self.foreign.len() == MAX_FOREIGN {
            return;
        }
        self.foreign.push(process);
        self.error = Some(io::Error::new(io::ErrorKind::InvalidData, OtherVersion { process, theirs }));
    }

    /// Queues a frame for every live process of the device, this one included. Those without room miss it, as on any
    /// network.
    pub(super) fn multicast(&mut self, now: Time, meta: (&Path, RxIcrc), frame: &[u8]) {
        if self.listed_at.is_none_or(|listed_at| now.since(listed_at) >= LIVE_SLOTS_NS) {
            self.listed_at = Some(now);
            self.live = self.domain.live_slots();
            if !self.live.contains(&self.slot) {
                self.live.push(self.slot);
            }
        }
        for i in 0..self.live.len() {
            let to = self.live[i];
            if !self.push(now, to, meta, frame.len(), &mut |out| out.copy_from_slice(frame)) {
                self.counters.tx_dropped += 1;
            }
        }
    }

    /// Publishes what was queued and wakes sleeping receivers.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.dirty.is_empty() {
            return;
        }
        for to in &self.dirty {
            if let Peer::Link(link) = &mut self.peers[usize::from(to.number())] {
                link.publish();
                self.counters.tx_batches += 1;
            }
        }
        // Pairs with the fence in `prepare_sleep`: either we see that the receiver sleeps, or it sees what we
        // published.
        fence(Ordering::SeqCst);
        while let Some(to) = self.dirty.pop() {
            let Peer::Link(link) = &mut self.peers[usize::from(to.number())] else { continue };
            link.dirty = false;
            match link.wake() {
                Ok(wake) => {
                    self.counters.tx_syscalls += wake.syscalls;
                    self.host.wakeups_sent += u64::from(wake.sent);
                }
                Err(over) => self.leave(to, over),
            }
        }
    }

    /// Takes about `budget` frames at most, from all rings in turn.
    #[inline]
    pub(super) fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.clock.refresh(now);
        let (mut frames, mut silent) = (0, 0);
        while frames < budget && silent < self.inbound.len() {
            if self.turn >= self.inbound.len() {
                self.turn = 0;
            }
            let link = &mut self.inbound[self.turn];
            let most = TURN.min(budget - frames);
            match link.receive(now, most, &mut self.clock, &mut self.copies, each) {
                Ok(0) if link.is_drained() => self.close_inbound(self.turn),
                Ok(0) => {
                    silent += 1;
                    self.turn += 1;
                }
                Ok(count) => {
                    frames += count;
                    // With fewer than it could have given, its ring was found empty.
                    silent = if count < most { silent + 1 } else { 0 };
                    self.turn += 1;
                }
                Err(_) => {
                    self.host.links_corrupt += 1;
                    self.close_inbound(self.turn);
                }
            }
        }
        if frames > 0 {
            self.host.rx_unreadable += std::mem::take(&mut self.copies.unreadable);
            self.counters.rx_frames += frames as u64;
            self.counters.rx_batches += 1;
            self.unanswered = true;
        }
        frames
    }

    /// Records that everything received so far is answered.
    #[inline]
    pub(super) fn mark_answered(&mut self) {
        if std::mem::take(&mut self.unanswered) {
            self.inbound.iter_mut().for_each(Inbound::mark_answered);
        }
    }

    fn close_inbound(&mut self, at: usize) {
        self.inbound.swap_remove(at).end(&self.epoll);
    }

    /// Requests wake-ups from senders. Returns false, and requests none, if there is work already.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        self.bell.prepare_sleep();
        for to in &self.blocked {
            if let Peer::Link(link) = &self.peers[usize::from(to.number())] {
                link.want_room();
            }
        }
        // Pairs with the fences in `flush` and in the ring.
        fence(Ordering::SeqCst);
        let nothing = !self.has_work();
        if !nothing {
            self.cancel_sleep();
        }
        nothing
    }

    /// Cancels the request for wake-ups.
    #[inline]
    pub(super) fn cancel_sleep(&self) {
        self.bell.cancel_sleep();
    }

    /// Returns whether there are frames to take, or room where there was none.
    pub(super) fn has_work(&mut self) -> bool {
        let mut room = false;
        let peers = &mut self.peers;
        self.blocked.retain(|to| {
            let blocked = match &mut peers[usize::from(to.number())] {
                Peer::Link(link) if link.is_blocked() => !link.has_room(),
                // Its frame was queued or dropped.
                Peer::Link(_) => return false,
                _ => false,
            };
            room |= !blocked;
            blocked
        });
        room || self.inbound.iter().any(Inbound::has_frames)
    }

    /// Returns the time when a frame that finds no room is dropped.
    pub(super) fn next_deadline(&self) -> Time {
        let stalls_at = |to: &Slot| match &self.peers[usize::from(to.number())] {
            Peer::Link(link) => link.stalls_at(),
            _ => Time::NEVER,
        };
        self.blocked.iter().map(stalls_at).min().unwrap_or(Time::NEVER)
    }

    fn new_id(&mut self) -> u32 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }
}

#[cfg(test)]
impl Links {
    pub(super) fn inbound_links(&self) -> usize {
        self.inbound.len()
    }

    /// Returns the number of open descriptors of connections, and of those that outbound links hold in addition.
    pub(super) fn descriptors(&self) -> usize {
        let outbound = self.peers.iter().filter(|peer| matches!(peer, Peer::Link(_))).count();
        self.pending.len() + self.inbound.len() + outbound
    }
}
