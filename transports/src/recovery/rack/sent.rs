//! Records of transmissions: times of packets, and the minimum round trip.

use crate::psn::Psn;
use crate::time::{SEC, Time};

/// Time of a packet's last transmission, and its flags.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Sent(pub(super) u64);

impl Sent {
    /// It is lost, and waits for retransmission (Segment.lost).
    pub(super) const LOST: u64 = 1;
    /// It was sent more than once (Segment.retransmitted).
    pub(super) const AGAIN: u64 = 2;
    /// It was sent out of order: its time is in [`Rack::again`].
    pub(super) const QUEUED: u64 = 4;
    /// Flags.
    pub(super) const BITS: u32 = 3;

    #[inline]
    pub(super) fn new(at: Time, flags: u64) -> Sent {
        Sent(at.0 << Self::BITS | flags)
    }

    /// Segment.xmit_ts.
    #[inline]
    pub(super) fn at(self) -> Time {
        Time(self.0 >> Self::BITS)
    }

    #[inline]
    pub(super) fn is(self, flags: u64) -> bool {
        self.0 & flags != 0
    }
}

/// A transmission, ordered by time, then by number (RACK_sent_after).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Transmission {
    pub(super) at: Time,
    pub(super) psn: Psn,
}

impl Transmission {
    #[inline]
    pub(super) fn is_after(self, other: Transmission) -> bool {
        self.at > other.at || self.at == other.at && other.psn.before(self.psn)
    }

    /// Returns the later of two, one of which may be missing.
    #[inline]
    pub(super) fn later(self, other: Option<Transmission>) -> Transmission {
        other.filter(|other| other.is_after(self)).unwrap_or(self)
    }
}

/// New information in an acknowledgement.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct News {
    /// The most recent of the packets sent once, and of the others.
    pub(super) original: Option<Transmission>,
    pub(super) repeated: Option<Transmission>,
}

/// The minimum round trip of the last ten to twenty seconds.
#[derive(Copy, Clone, Debug)]
pub(super) struct MinRtt {
    pub(super) rtt: u64,
    next: u64,
    until: Time,
}

impl MinRtt {
    pub(super) const WINDOW: u64 = 10 * SEC;
    pub(super) const NONE: MinRtt = MinRtt { rtt: u64::MAX, next: u64::MAX, until: Time::ZERO };

    #[inline]
    pub(super) fn take(&mut self, now: Time, rtt: u64) {
        if now >= self.until {
            (self.rtt, self.next, self.until) = (self.next, u64::MAX, now + Self::WINDOW);
        }
        self.next = self.next.min(rtt);
        self.rtt = self.rtt.min(rtt);
    }
}
