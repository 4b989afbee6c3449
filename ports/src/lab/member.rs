//! The memory that a port shares with the server: two rings, and a few words.

use irnic_transports::telemetry::Int;

use crate::MAX_FRAME;
use crate::bell::Bell;
use crate::region::{PAGE, Region, Shared};
use crate::ring::{CONTROL, Place};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of each ring.
pub(super) const RING: usize = 512 << 10;

/// Bytes before a frame in a record: the other host's number. Telemetry, if any, follows.
pub(super) const PREFIX: usize = 4;

/// Length of the longest record.
pub(super) const LONGEST: usize = PREFIX + Int::BYTES + MAX_FRAME;

/// Length of the region.
pub(super) const REGION: usize = PAGE + 2 * (CONTROL + RING);

/// What a port publishes: its deadlines, its progress, and whether it sleeps.
#[derive(Default)]
#[repr(C, align(128))]
pub(super) struct Words {
    /// The earliest time at which the port may send something that is not in its ring yet, unless something reaches it,
    /// ns. 0 while it determines that time.
    pub need: AtomicU64,
    /// Number of the server's records that the port has finished with.
    pub taken: AtomicU64,
    /// Number of records that the port took after their time, and the largest delay, ns.
    pub late: AtomicU64,
    pub worst: AtomicU64,
    /// Calls of the application, except empty polls, and its activity ([`ACTS`] …), in a lab whose time waits for
    /// applications.
    pub calls: AtomicU64,
    pub doing: Apart<AtomicU32>,
    /// Rung when something for the process arrives from the network.
    pub asleep: Apart<Bell>,
}

/// Activity of an application ([`crate::Application`]): `ACTS`, `POLLS` and `SLEEPS`. `TURN` while its NIC takes a
/// turn: only the process ends that. `HELD` while the server advances time: only the server ends that, and the process
/// begins no turn.
pub(super) const ACTS: u32 = 0;
pub(super) const POLLS: u32 = 1;
pub(super) const SLEEPS: u32 = 2;
pub(super) const TURN: u32 = 3;
pub(super) const HELD: u32 = 4;

/// A word that both sides write, on its own cache line.
#[derive(Default)]
#[repr(C, align(128))]
pub(super) struct Apart<T>(pub T);

// SAFETY: atomics and padding, aligned to 128.
unsafe impl Shared for Words {}

impl Words {
    /// Reads the clock for a turn of the port: from here on the server does not advance without it.
    #[inline]
    pub(super) fn begin<T>(&self, clock: impl FnOnce() -> T) -> T {
        self.need.store(0, Ordering::Relaxed);
        // Pairs with the fence in `LabServer::now`: either the server sees that the port is about to read the clock, or
        // the port reads a time no earlier than the server did.
        fence(Ordering::SeqCst);
        clock()
    }

    /// Publishes, after everything sent was published, the earliest time at which the port may send something else, and
    /// the number of records it has finished with.
    #[inline]
    pub(super) fn end(&self, need: u64, taken: u64) {
        self.taken.store(taken, Ordering::Release);
        self.need.store(need, Ordering::Release);
    }

    /// Returns what the port published last: its earliest time, and the records it has finished with.
    #[inline]
    pub(super) fn published(&self) -> (u64, u64) {
        (self.need.load(Ordering::Acquire), self.taken.load(Ordering::Acquire))
    }
}

/// Returns the words of a region.
pub(super) fn words(region: &Region) -> &Words {
    region.object(0)
}

/// Returns the place of the ring that the port writes, or of the one that the server writes.
pub(super) fn place(of_port: bool) -> Place {
    let first = PAGE + usize::from(!of_port) * (CONTROL + RING);
    Place { offset: first, capacity: RING, max_frame: LONGEST }
}

/// Type and properties of a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// UDP source port.
    pub udp_src: u16,
    /// IP traffic class; the content, for a notice.
    pub traffic_class: u8,
    pub kind: Kind,
    /// The frame's ICRC is wrong.
    pub corrupted: bool,
    /// Telemetry precedes the frame.
    pub telemetry: bool,
}

/// A frame, or a notice.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Frame,
    /// The paused priorities have changed: one bit for each.
    Pause,
    /// The host's link is down (0) or up again (1).
    Link,
}

const PAUSE: u8 = 1;
const LINK: u8 = 8;
const CORRUPTED: u8 = 2;
const TELEMETRY: u8 = 4;

/// Returns the tag of a notice with this content.
pub(super) fn notice(kind: Kind, what: u8) -> Tag {
    Tag { udp_src: 0, traffic_class: what, kind, corrupted: false, telemetry: false }
}

impl Tag {
    /// Returns the tag of a record.
    #[inline]
    pub(super) fn word(self) -> u32 {
        let [a, b] = self.udp_src.to_le_bytes();
        let flag = |set, flag| if set { flag } else { 0 };
        let kind = match self.kind {
            Kind::Frame => 0,
            Kind::Pause => PAUSE,
            Kind::Link => LINK,
        };
        let flags = kind | flag(self.corrupted, CORRUPTED) | flag(self.telemetry, TELEMETRY);
        u32::from_le_bytes([a, b, self.traffic_class, flags])
    }

    /// Returns the offset of the frame in a record.
    #[inline]
    pub(super) fn frame_at(self) -> usize {
        PREFIX + if self.telemetry { Int::BYTES } else { 0 }
    }

    #[inline]
    pub(super) fn of(word: u32) -> Tag {
        let [a, b, traffic_class, flags] = word.to_le_bytes();
        Tag {
            udp_src: u16::from_le_bytes([a, b]),
            traffic_class,
            kind: match flags & (PAUSE | LINK) {
                0 => Kind::Frame,
                PAUSE => Kind::Pause,
                _ => Kind::Link,
            },
            corrupted: flags & CORRUPTED != 0,
            telemetry: flags & TELEMETRY != 0,
        }
    }
}

/// Parses the telemetry of a record whose tag has it; `None` if it is invalid.
pub(super) fn telemetry(record: &[u8]) -> Option<Int> {
    record.get(PREFIX..)?.first_chunk().and_then(Int::from_bytes)
}
