//! Stream state common to all senders, however they recover losses.

use super::Bitmap;
use crate::footprint::{bits, flag, footprint, left, sequence, why, width};
use crate::psn::Psn;

/// Sequence numbers of a stream, and limits on packets in flight.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// Next sequence number to send that is not a selective retransmission.
    pub next: Psn,
    /// One past the highest sequence number ever sent: `next`, unless a go-back moved that back.
    pub high: Psn,
    /// Everything before it is acknowledged cumulatively.
    pub acked: Psn,
    /// Of the unacknowledged packets before `next`, those delivered at low priority: they are not in flight.
    pub skipped: u32,
    /// Maximum number of packets in flight (BDP-FC), at most the window of the bitmap.
    pub cap: u32,
    /// Packets in flight that congestion control allows.
    pub window: u32,
    /// Maximum distance from `acked` to `next`, delivered at any priority, minus one: the receiver tracks no more. 0:
    /// limited by the packets in flight only.
    reach: u16,
    /// Losses found by NACKs, one for all packets in flight then. Wraps.
    pub losses: u16,
    /// A loss from here on counts as another.
    lost_until: Psn,
    /// Spurious retransmissions by timers. Wraps.
    pub spurious: u16,
}

impl Stream {
    /// Serial numbers only compare up to 2²³ apart: anything this far behind is stale.
    pub(super) const STALE: i32 = 1 << 22;

    pub(super) fn new(first: Psn, cap: u32) -> Stream {
        let cap = cap.clamp(1, Bitmap::<1>::MAX_BITS);
        Stream {
            next: first,
            high: first,
            acked: first,
            skipped: 0,
            cap,
            window: u32::MAX,
            reach: 0,
            losses: 0,
            lost_until: first,
            spurious: 0,
        }
    }

    /// Limits `next` to at most this many packets ahead of `acked`, 2 to 65,536.
    pub(super) fn set_reach(&mut self, packets: u32) {
        self.reach = (packets - 1).clamp(1, u16::MAX.into()) as u16;
    }

    /// Returns whether [`Self::set_reach`] was called: packets are also delivered at low priority.
    #[inline]
    pub(super) fn has_reach(&self) -> bool {
        self.reach != 0
    }

    /// Returns the packets in flight as BDP-FC counts them: sent (since the last go-back) and not acknowledged
    /// cumulatively.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.span() - self.skipped
    }

    /// Returns the distance of the next packet from the first unacknowledged one.
    #[inline]
    pub(super) fn span(&self) -> u32 {
        self.next.distance(self.acked).max(0) as u32
    }

    /// Returns whether the window is full, given that `in_window` packets count against it.
    #[inline(always)]
    pub(super) fn is_full(&self, in_window: u32) -> bool {
        self.in_flight() >= self.cap
            || in_window >= self.window
            || self.has_reach() && self.span() > u32::from(self.reach)
    }

    /// Takes the next packet in order, which the caller has checked may be sent. It may be a retransmission.
    #[inline]
    pub(super) fn take_next(&mut self) -> Psn {
        let psn = self.next;
        self.advance(1);
        psn
    }

    /// Advances by `packets`.
    #[inline]
    pub(super) fn advance(&mut self, packets: u32) {
        self.next = self.next.plus(packets);
        if self.high.before(self.next) {
            self.high = self.next;
        }
    }

    /// Applies a cumulative acknowledgement and returns the number of packets newly acknowledged, 0 if it is old.
    /// `None`, without any change, if it or the selective one names packets that were never sent, or is stale.
    #[inline]
    pub(super) fn acknowledge(&mut self, cumulative: Psn, nack: Option<Psn>) -> Option<u32> {
        if self.high.before(cumulative) || nack.is_some_and(|n| !n.before(self.high) && n != cumulative) {
            return None;
        }
        let news = cumulative.distance(self.acked);
        if news < -Self::STALE {
            return None;
        }
        if self.next.before(cumulative) {
            self.next = cumulative;
        }
        if news <= 0 {
            return Some(0);
        }
        self.acked = cumulative;
        if self.lost_until.before(cumulative) {
            self.lost_until = cumulative;
        }
        Some(news as u32)
    }

    /// Skips the next `packets`, known to have arrived without a cumulative acknowledgement.
    pub(super) fn pass(&mut self, packets: u32) {
        self.acked = self.acked.plus(packets);
        if self.lost_until.before(self.acked) {
            self.lost_until = self.acked;
        }
    }

    /// Counts a loss reported by a NACK, unless it is of a packet in flight at the previous one.
    #[inline]
    pub(super) fn count_loss(&mut self) {
        if !self.acked.before(self.lost_until) {
            self.losses = self.losses.wrapping_add(1);
            self.lost_until = self.high;
        }
    }

    /// Counts a spurious retransmission by a timer.
    pub(super) fn count_spurious(&mut self) {
        self.spurious = self.spurious.wrapping_add(1);
    }
}

footprint!(Stream, |at| {
    next => sequence(),
    high => sequence(),
    acked => sequence(),
    skipped => bits(width::COUNT).when(at.low_levels > 0, why::OFF),
    cap => left(why::SHARED),
    reach => left(why::SHARED),
    window => left("congestion control's"),
    losses => flag().when(at.controlled, why::OFF),
    lost_until => sequence().when(at.controlled, why::OFF),
    spurious => left(why::STATISTICS),
});
