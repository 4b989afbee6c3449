//! Point-to-point links through shared memory: two rings, one in each direction, and two wake-up words.
//!
//! Layout of the region: one page of [`Header`], then the ring that side 0 writes, then the ring that side 1 writes.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use irnic_transports::Time;
use irnic_transports::qp::PeerProcess;

use super::PortCounters;
use super::bell::Bell;
use super::host::sys;
use super::region::{PAGE, Region, Shared};
use super::ring::{CONTROL, Consumer, Corrupt, Place, Producer, Record};
use super::stamp::RingClock;
use super::sync::{self, AtomicU32, AtomicU64, Ordering, fence};

/// Smallest and largest ring, in bytes per direction.
pub(super) const RING_BYTES: std::ops::RangeInclusive<usize> = 128 << 10..=64 << 20;

/// Longest sleep before the peer process is checked again.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(100);

/// Why a shared-memory link failed. A port returns it inside an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer closed its port. Everything that it sent before has been delivered.
    #[error("the peer closed its port")]
    Closed,
    /// The peer process, given by its process id, ended without closing its port.
    #[error("the peer process {0} is gone")]
    Dead(u32),
    /// The peer wrote an impossible value into a ring.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

impl From<LinkError> for io::Error {
    fn from(e: LinkError) -> io::Error {
        let kind = match e {
            LinkError::Closed => io::ErrorKind::BrokenPipe,
            LinkError::Dead(_) => io::ErrorKind::ConnectionReset,
            LinkError::Corrupt(_) => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, e)
    }
}

/// One side's state, visible to the other, in addition to its ring.
#[derive(Default)]
#[repr(C, align(128))]
pub(super) struct Side {
    /// Process id of this side, 0 before it has opened the link.
    pub(super) process: AtomicU32,
    /// 1 once this side has closed its port.
    closed: AtomicU32,
    /// Rung to wake this side: the futex word.
    asleep: Bell,
    /// This side's IP address, IPv4 as mapped: network order, first and second half.
    pub(super) address: [AtomicU64; 2],
}

/// The first page of a link's region.
#[derive(Default)]
#[repr(C)]
pub(super) struct Header {
    /// Identifies the file and the version of its layout.
    pub(super) magic: AtomicU64,
    /// Data bytes of each ring.
    pub(super) ring_bytes: AtomicU64,
    /// Longest frame in bytes.
    pub(super) max_frame: AtomicU64,
    pub(super) sides: [Side; 2],
}

// SAFETY: atomics and padding, aligned to 128.
unsafe impl Shared for Header {}

/// Returns the size of a region with rings of `ring_bytes`, in bytes.
pub(super) fn region_len(ring_bytes: usize) -> usize {
    PAGE + 2 * (CONTROL + ring_bytes)
}

/// One side of a link.
pub(super) struct Link {
    region: Arc<Region>,
    side: usize,
    tx: Producer,
    rx: Consumer,
    clock: RingClock,
    /// A frame found no room: the side wakes when it can send again.
    blocked: bool,
    /// Something was pushed since the peer was last woken.
    pushed: bool,
    failure: Option<LinkError>,
    peer: Liveness,
    /// Times that `wait` polls before it sleeps.
    pub(super) spin: u32,
    pub(super) counters: PortCounters,
}

enum Liveness {
    /// The peer has not opened the link yet.
    Awaited,
    Known(u32, OwnedFd),
    /// The peer is this process, or one that the kernel does not allow to be watched.
    Unwatched,
}

impl Link {
    /// Creates side `side` (0 or 1) of a zeroed region of [`region_len`] bytes. Each side must be created only once.
    pub(super) fn new(region: Arc<Region>, side: usize, ring_bytes: usize, max_frame: usize, clock: RingClock) -> Link {
        let place =
            |side: usize| Place { offset: PAGE + side * (CONTROL + ring_bytes), capacity: ring_bytes, max_frame };
        let tx = Producer::new(region.clone(), place(side));
        let rx = Consumer::new(region.clone(), place(1 - side));
        region.object::<Header>(0).sides[side].process.store(std::process::id(), Ordering::Release);
        Link {
            region,
            side,
            tx,
            rx,
            clock,
            blocked: false,
            pushed: false,
            failure: None,
            peer: Liveness::Awaited,
            spin: 0,
            counters: PortCounters::default(),
        }
    }

    pub(super) fn header(&self) -> &Header {
        self.region.object(0)
    }

    #[cfg(test)]
    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    #[cfg(test)]
    pub(super) fn has_frames(&self) -> bool {
        self.rx.has_frames()
    }

    fn own(&self) -> &Side {
        &self.header().sides[self.side]
    }

    fn other(&self) -> &Side {
        &self.header().sides[1 - self.side]
    }

    fn fail(&mut self, e: impl Into<LinkError>) -> LinkError {
        self.failure.get_or_insert(e.into()).clone()
    }

    /// Queues one frame of `len` bytes, which `fill` writes. Returns false if there is no room; a failed link has none.
    #[inline]
    pub(super) fn push(&mut self, now: Time, len: usize, tag: u32, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.clock.refresh(now);
        match self.tx.push(len, tag, self.clock.stamp(now), fill) {
            Ok(true) => {
                self.counters.tx_frames += 1;
                self.pushed = true;
                true
            }
            Ok(false) => {
                self.blocked = true;
                false
            }
            Err(e) => {
                self.fail(e);
                false
            }
        }
    }

    /// Publishes what was pushed and wakes the peer if it sleeps.
    pub(super) fn flush(&mut self) -> Result<(), LinkError> {
        // Full batches of sixteen frames were published without ringing: ring even if nothing is left to publish.
        if std::mem::take(&mut self.pushed) {
            self.tx.publish();
            self.counters.tx_batches += 1;
            self.ring_bell();
        }
        // The peer's close is reported by `receive`, after its last frame.
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn ring_bell(&mut self) {
        // Pairs with the fence in `prepare_sleep`: either we see that the peer is asleep, or it sees what we just
        // published.
        fence(Ordering::SeqCst);
        if self.other().asleep.ring() {
            self.counters.tx_syscalls += 1;
            futex(self.other().asleep.word(), libc::FUTEX_WAKE, 1, None);
        }
    }

    /// Passes up to `budget` frames to `each`, as tag, time of arrival and bytes.
    #[inline]
    pub(super) fn receive(
        &mut self,
        now: Time,
        budget: usize,
        mut each: impl FnMut(u32, Time, &[u8]),
    ) -> Result<usize, LinkError> {
        self.clock.refresh(now);
        let mut frames = 0;
        while frames < budget {
            match self.rx.pop(now) {
                Ok(Some(Record { tag, stamp, unseen_at, bytes, .. })) => {
                    each(tag, self.clock.arrival(now, stamp, unseen_at), bytes);
                }
                Ok(None) => break,
                Err(e) => return Err(self.fail(e)),
            }
            frames += 1;
            if self.rx.release() {
                self.ring_bell();
            }
        }
        if frames > 0 {
            self.counters.rx_frames += frames as u64;
            self.counters.rx_batches += 1;
        } else if let Some(e) = &self.failure {
            return Err(e.clone());
        } else if budget > 0 && self.other().closed.load(Ordering::Acquire) == 1 && !self.rx.has_frames() {
            return Err(LinkError::Closed);
        }
        Ok(frames)
    }

    /// Records that all received frames are answered, and the answers flushed.
    pub(super) fn mark_answered(&mut self) {
        self.rx.mark_answered();
    }

    /// Returns whether there are frames to take, room where there was none, or an end to notice.
    pub(super) fn must_wake(&mut self) -> bool {
        if self.rx.has_frames() || self.failure.is_some() || self.other().closed.load(Ordering::Acquire) == 1 {
            return true;
        }
        match self.blocked.then(|| self.tx.has_room()) {
            Some(Ok(true)) => {
                self.blocked = false;
                true
            }
            Some(Err(e)) => {
                self.fail(e);
                true
            }
            _ => false,
        }
    }

    /// Requests a wake-up. Returns false if there is work already.
    fn prepare_sleep(&mut self) -> bool {
        self.own().asleep.request();
        // Pairs with the fence in `ring_bell`.
        fence(Ordering::SeqCst);
        !self.must_wake()
    }

    /// Polls, then sleeps, until there is something to receive or report, or room again, or until `timeout` has passed.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<(), LinkError> {
        for _ in 0..self.spin {
            if self.must_wake() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let left = deadline.map_or(LIVENESS_INTERVAL, |d| d.saturating_duration_since(Instant::now()));
            let wake = !self.prepare_sleep() || left.is_zero();
            if !wake {
                self.counters.rx_syscalls += 1;
                futex(self.own().asleep.word(), libc::FUTEX_WAIT, 1, Some(left.min(LIVENESS_INTERVAL)));
            }
            let rung = self.own().asleep.was_rung();
            if wake || rung || self.must_wake() {
                return Ok(());
            }
            self.check_peer()?;
        }
    }

    /// Returns what is known of the peer process. A peer that closed its side counts as gone.
    pub(super) fn peer_process(&mut self) -> PeerProcess {
        if self.check_peer().is_err() || self.other().closed.load(Ordering::Acquire) == 1 {
            return PeerProcess::Dead;
        }
        let (handed, answered) = self.tx.progress();
        PeerProcess::Alive { handed, answered }
    }

    /// Fails if the peer process has ended.
    fn check_peer(&mut self) -> Result<(), LinkError> {
        if let Liveness::Awaited = self.peer {
            let process = self.other().process.load(Ordering::Acquire);
            if process == 0 {
                return Ok(());
            }
            self.peer = match sys::watch(process) {
                _ if process == std::process::id() => Liveness::Unwatched,
                Ok(descriptor) => Liveness::Known(process, descriptor),
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Err(self.fail(LinkError::Dead(process))),
                Err(_) => Liveness::Unwatched,
            };
        }
        if let Liveness::Known(process, descriptor) = &self.peer
            && sys::has_ended(descriptor)
        {
            let process = *process;
            return Err(self.fail(LinkError::Dead(process)));
        }
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tx.publish();
        self.own().closed.store(1, Ordering::Release);
        self.ring_bell();
    }
}

/// Calls FUTEX_WAIT or FUTEX_WAKE on a word that other processes may share. The result is ignored: every caller checks
/// its condition again.
fn futex(word: &AtomicU32, operation: libc::c_int, value: u32, timeout: Option<Duration>) {
    let timeout =
        timeout.map(|t| libc::timespec { tv_sec: t.as_secs() as libc::time_t, tv_nsec: t.subsec_nanos().into() });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the timespec are valid for the call.
    unsafe { libc::syscall(libc::SYS_futex, sync::address(word), operation, value, timeout, 0, 0) };
}

#[cfg(all(test, loom))]
mod model;
