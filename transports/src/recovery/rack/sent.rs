//! Records of transmissions: when packets were sent, and the least round trip that they measured.

use crate::psn::Psn;
use crate::time::{SEC, Time};

/// When a packet was sent last, and what is known of it.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Sent(pub(super) u64);

impl Sent {
    /// It is lost, and waits to be sent again (Segment.lost).
    pub(super) const LOST: u64 = 1;
    /// It was sent more than once (Segment.retransmitted).
    pub(super) const AGAIN: u64 = 2;
    /// It was sent out of its turn: its time stands in [`Rack::again`].
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

/// A transmission: order by time, then by number (RACK_sent_after).
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

    /// The later of two, one of which may be missing.
    #[inline]
    pub(super) fn later(self, other: Option<Transmission>) -> Transmission {
        other.filter(|other| other.is_after(self)).unwrap_or(self)
    }
}

/// What an acknowledgement says for the first time.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct News {
    /// The packet sent last of those that were sent once, and of the others.
    pub(super) original: Option<Transmission>,
    pub(super) repeated: Option<Transmission>,
}

/// The least of the round trips of the last ten to twenty seconds.
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
