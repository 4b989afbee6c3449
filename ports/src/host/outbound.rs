//! The sending side of a link to another process, or to this one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use irnic_transports::qp::PeerProcess;
use irnic_transports::room;
use irnic_transports::{Path, Segment, Time};

use super::bell::PeerBell;
use super::config::CrossMemory;
use super::domain::Domain;
use super::hello::{HELLO, RECORD, other_version};
use super::reference::{Choice, FOLLOWS, Probe, Reference};
use super::slot::Slot;
use super::sys;
use crate::prefix::{Tagger, write_prefix};
use crate::region::Region;
use crate::ring::{CONTROL, Consumer, Corrupt, Place, Producer, RingRecall};
use crate::{RxIcrc, host_now};

/// How long a ring may be full without progress before its frames are dropped, in ns. One stopped process must not
/// block the others, but one that waits for a core on a busy host has not stopped. PFC watchdogs of switches wait about
/// as long.
const STALL_NS: u64 = 100_000_000;

/// Byte that wakes a receiver.
const WAKE: &[u8] = b"w";

/// Outcome of queueing a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It is in the ring.
    Taken,
    /// There is no room: retry.
    Full,
    /// To be dropped: the ring has been full without progress for too long.
    Stalled,
}

/// Cost of waking a receiver.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wake {
    /// System calls made.
    pub(super) syscalls: u64,
    /// The byte that wakes it was sent.
    pub(super) sent: bool,
}

/// A live process of the device does not take the frames sent to it. [`Port::flush`](crate::Port::flush) returns it
/// inside an [`io::Error`], once per process.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("process {process} has taken no packet for {} ms: those to it are dropped until it does", STALL_NS / 1_000_000)]
pub struct Stall {
    /// Process id of the receiver, which may be this process.
    pub process: u32,
}

/// Why a link is closed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The receiver has ended, or has sent something invalid.
    Ended,
    /// The receiver refuses the link: it has this version.
    Version(u8),
}

pub(super) struct Outbound {
    /// `None` for the link of this process to itself.
    connection: Option<OwnedFd>,
    ring: Producer,
    tagger: Tagger,
    bell: Option<PeerBell>,
    choice: Choice,
    /// References were offered, and accepted by the receiver.
    offered: bool,
    accepted: bool,
    /// Time since when frames have found no room.
    full_since: Option<Time>,
    stalled: bool,
    /// The stall was reported.
    stall_reported: bool,
    /// Something was pushed since the last flush.
    pub(super) dirty: bool,
}

impl Outbound {
    /// Connects to the process that has slot `to`. Fails at once if there is none, or if it belongs to another user.
    pub(super) fn connect(
        domain: &Domain,
        to: Slot,
        ring_bytes: usize,
        cross_memory: CrossMemory,
    ) -> io::Result<Outbound> {
        let connection = sys::connect(&domain.slot_name(to))?;
        if !sys::is_own_user(sys::peer_user(connection.as_fd())?) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let memory = sys::memory(c"irnic-ring", CONTROL + ring_bytes)?;
        let region = Arc::new(Region::map(memory.as_fd(), CONTROL + ring_bytes)?);
        sys::send(connection.as_fd(), &HELLO, &[memory.as_fd()])?;
        Ok(Outbound::new(Some(connection), Producer::new(region, place(ring_bytes)), cross_memory))
    }

    /// Creates both sides of a ring within this process.
    pub(super) fn loopback(ring_bytes: usize) -> io::Result<(Outbound, Consumer)> {
        room::ensure(CONTROL + ring_bytes)?;
        let region = Arc::new(Region::heap(CONTROL + ring_bytes));
        let consumer = Consumer::new(region.clone(), place(ring_bytes));
        Ok((Outbound::new(None, Producer::new(region, place(ring_bytes)), CrossMemory::Off), consumer))
    }

    fn new(connection: Option<OwnedFd>, ring: Producer, cross_memory: CrossMemory) -> Outbound {
        Outbound {
            connection,
            ring,
            tagger: Tagger::default(),
            bell: None,
            choice: Choice::new(cross_memory),
            offered: false,
            accepted: false,
            full_since: None,
            stalled: false,
            stall_reported: false,
            dirty: false,
        }
    }

    pub(super) fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }

    /// Returns what recalls the references in this link's ring.
    pub(super) fn recall(&self) -> RingRecall {
        self.ring.recall()
    }

    /// Returns whether the next long payload is better left in place ([`Self::push_reference`]).
    #[inline]
    pub(super) fn takes_references(&mut self) -> bool {
        if !self.choice.refers() {
            return false;
        }
        if !self.offered {
            self.offer();
        }
        self.accepted && self.ring.takes_references()
    }

    /// Offers references to the receiver.
    #[cold]
    fn offer(&mut self) {
        self.offered = true;
        if let (Some(connection), Some(probe)) = (self.connection(), Probe::own()) {
            // Without it payloads go on being copied.
            let _ = sys::send(connection, &probe.message(), &[]);
        }
    }

    /// Queues a frame whose payload the receiver copies: `fill` writes the `at` bytes before it, `rest` follow it.
    pub(super) fn push_reference(
        &mut self,
        now: Time,
        stamp: u64,
        path: &Path,
        at: usize,
        (payload, rest): (Segment, u32),
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Pushed, Corrupt> {
        let (tag, before) = self.tagger.tag(path, RxIcrc::Absent);
        let reference = Reference { payload, rest, recalls: self.ring.recalls() };
        let pushed = self.ring.push_reference(before + at + Reference::LEN, tag, stamp, &mut |bytes| {
            let (prefix, frame) = bytes.split_at_mut(before);
            if before > 0 {
                write_prefix(path, RxIcrc::Absent, prefix);
            }
            fill(&mut frame[..at]);
            reference.write(&mut frame[at..]);
        })?;
        Ok(self.pushed(pushed, now, path, before))
    }

    /// Queues a frame of `len` bytes.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        now: Time,
        stamp: u64,
        (path, icrc): (&Path, RxIcrc),
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Pushed, Corrupt> {
        let (tag, before) = self.tagger.tag(path, icrc);
        let began = self.choice.timed.then(host_now);
        let pushed = match before {
            0 => self.ring.push(len, tag, stamp, fill)?,
            _ => self.ring.push(before + len, tag, stamp, &mut |bytes| {
                let (prefix, frame) = bytes.split_at_mut(before);
                write_prefix(path, icrc, prefix);
                fill(frame);
            })?,
        };
        if let Some(began) = began
            && pushed
        {
            self.choice.copied(len, host_now().since(began));
        }
        Ok(self.pushed(pushed, now, path, before))
    }

    /// Records whether there was room for a record with `before` bytes of a prefix.
    #[inline]
    fn pushed(&mut self, pushed: bool, now: Time, path: &Path, before: usize) -> Pushed {
        if pushed {
            if before > 0 {
                self.tagger.sent(path);
            }
            self.full_since = None;
            self.stalled = false;
            return Pushed::Taken;
        }
        let since = *self.full_since.get_or_insert(now);
        self.stalled |= now.since(since) >= STALL_NS;
        if self.stalled { Pushed::Stalled } else { Pushed::Full }
    }

    /// Publishes what was queued. The caller must issue a fence and then call [`Self::wake`].
    pub(super) fn publish(&mut self) {
        self.ring.publish();
    }

    /// Wakes the receiver if it sleeps, or if it has not passed its bell yet.
    #[inline]
    pub(super) fn wake(&mut self) -> Result<Wake, Over> {
        match &self.bell {
            Some(bell) if !bell.ring() => Ok(Wake::default()),
            Some(_) => self.send_wake(),
            None => self.wake_without_bell(),
        }
    }

    #[cold]
    fn wake_without_bell(&mut self) -> Result<Wake, Over> {
        if self.connection.is_none() {
            return Ok(Wake::default());
        }
        self.listen()?;
        match &self.bell {
            Some(bell) if !bell.ring() => Ok(Wake { syscalls: 1, sent: false }),
            _ => self.send_wake().map(|wake| Wake { syscalls: wake.syscalls + 1, ..wake }),
        }
    }

    fn send_wake(&mut self) -> Result<Wake, Over> {
        match self.connection().map(|connection| sys::send(connection, WAKE, &[])) {
            // Full: the bytes already queued wake it.
            Some(Err(e)) if e.kind() != io::ErrorKind::WouldBlock => Err(self.listen().err().unwrap_or(Over::Ended)),
            sent => Ok(Wake { syscalls: 1, sent: matches!(sent, Some(Ok(()))) }),
        }
    }

    /// Reads the receiver's last message: its bell, or that there is room again. Further messages are reported again
    /// later.
    pub(super) fn listen(&mut self) -> Result<(), Over> {
        let Some(connection) = &self.connection else { return Ok(()) };
        // One more byte, to detect a longer message.
        let mut bytes = [0; HELLO.len() + 1];
        match sys::receive(connection.as_fd(), &mut bytes) {
            Ok(sys::Message { len: 1, .. }) => {
                self.accepted |= bytes[..1] == *FOLLOWS;
                Ok(())
            }
            Ok(sys::Message { len, fd: Some(memory) }) if self.bell.is_none() => {
                self.bell = PeerBell::new(memory);
                if self.bell.is_some() && bytes[..len] == HELLO { Ok(()) } else { Err(Over::Ended) }
            }
            Ok(sys::Message { len, fd: None }) => Err(other_version(&bytes[..len]).map_or(Over::Ended, Over::Version)),
            Ok(_) => Err(Over::Ended),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(_) => Err(Over::Ended),
        }
    }

    /// Returns the reason for dropping frames, for the first of them only, since it takes a system call.
    pub(super) fn report_stall(&mut self) -> Option<Stall> {
        if std::mem::replace(&mut self.stall_reported, true) {
            return None;
        }
        let process = self.connection().and_then(sys::peer_process);
        Some(Stall { process: process.unwrap_or(std::process::id()) })
    }

    /// Returns what is known of the receiver's process, which is alive.
    pub(super) fn process(&self) -> PeerProcess {
        let (handed, answered) = self.progress();
        PeerProcess::Alive { handed, answered }
    }

    /// Returns the number of bytes passed to the receiver, and how many of them it has answered.
    pub(super) fn progress(&self) -> (u64, u64) {
        self.ring.progress()
    }

    /// Returns whether a frame waits for room.
    pub(super) fn is_blocked(&self) -> bool {
        self.full_since.is_some() && !self.stalled
    }

    /// Returns the time when frames for a full ring begin to be dropped.
    pub(super) fn stalls_at(&self) -> Time {
        match self.full_since {
            Some(since) if !self.stalled => Time(since.0.saturating_add(STALL_NS)),
            _ => Time::NEVER,
        }
    }

    /// Asks the receiver to report when there is room. The caller must issue a fence and then check [`Self::has_room`].
    pub(super) fn want_room(&self) {
        self.ring.want_room();
    }

    /// Returns whether any frame fits, or none ever will.
    pub(super) fn has_room(&mut self) -> bool {
        self.ring.has_room().unwrap_or(true)
    }
}

/// Returns the location of the ring in its file.
pub(super) fn place(ring_bytes: usize) -> Place {
    Place { offset: 0, capacity: ring_bytes, max_frame: RECORD }
}
