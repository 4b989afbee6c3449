//! Packets of a stream delivered at low priority (RC3 §2.1.1), next to the primary loop's.
//!
//! The primary loop goes from the front, as always; low priority from the end, each packet once. The primary loop skips
//! packets that low priority has delivered by the time it gets there. Its rules for counting packets, finding losses
//! and ending recovery see only its own transmissions:
//!
//! - an acknowledgement of low priority only adds to this record, and only packets from [`Stream::high`] on;
//! - a packet of the record never counts as in flight, and never as lost;
//! - packets acknowledged by the record and a cumulative number together are not reported to congestion control.

use super::Bitmap;
use super::scoreboard::Scoreboard;
use super::stream::Stream;
use crate::footprint::{Item, footprint, left, part, sequence, why};
use crate::psn::Psn;

/// The record.
#[derive(Clone, Debug)]
pub(super) struct LowAcks {
    /// By their offsets from the first unacknowledged packet. Those before [`Stream::next`] were skipped, and neither
    /// the first packet nor that at [`Stream::high`] is ever included: see [`Scoreboard::leave_out`].
    pub map: Bitmap<1>,
    /// One past the highest packet that low priority has sent.
    pub end: Psn,
    /// Packets acknowledged that the primary loop had not sent. Wraps.
    pub passed: u32,
    /// Cumulative acknowledgements beyond what the primary loop had sent. Wraps.
    pub bumps: u32,
}

impl LowAcks {
    pub(super) fn new(first: Psn, reach: u32) -> LowAcks {
        LowAcks { map: Bitmap::new(reach), end: first, passed: 0, bumps: 0 }
    }
}

/// The state before a cumulative acknowledgement.
pub(super) struct Before {
    span: u32,
    sent: u32,
    bump: u32,
}

impl Scoreboard {
    /// Returns whether low priority has delivered a packet, by its offset from the first unacknowledged one.
    #[inline]
    pub(super) fn is_delivered_low(&self, offset: u32) -> bool {
        self.low_acks.as_ref().is_some_and(|low_acks| low_acks.map.any(offset))
    }

    /// Returns the number of packets of the record in a range of such offsets.
    pub(super) fn delivered_low_between(&self, from: u32, to: u32) -> u32 {
        let ones = |map: &Bitmap<1>| map.ones(to) - map.ones(from.min(to));
        self.low_acks.as_ref().map_or(0, |low_acks| ones(&low_acks.map))
    }

    /// Returns the first packet, from an offset on, that is not known to have arrived.
    #[inline]
    pub(super) fn first_missing(&self, from: u32) -> u32 {
        let Some(low_acks) = &self.low_acks else { return self.sacks.first_clear(from) };
        let mut at = from;
        loop {
            let clear = self.sacks.first_clear(at);
            at = low_acks.map.first_clear(clear);
            if at == clear {
                return at;
            }
        }
    }

    /// Records that low priority delivered the packets from `first` to `last`. Those that the primary loop has sent
    /// belong to that. Returns the number newly recorded; `None` if it names packets that were never sent.
    pub(super) fn record_low(&mut self, stream: &mut Stream, first: Psn, last: Psn) -> Option<u32> {
        let low_acks = self.low_acks.as_deref_mut()?;
        if !last.before(low_acks.end.later(stream.high)) {
            return None;
        }
        let from = if first.before(stream.high) { stream.high } else { first };
        if last.before(from) {
            return Some(0);
        }
        let news = low_acks.map.fill(from.distance(stream.acked) as u32, last.distance(from) as u32 + 1);
        self.leave_out_some(stream);
        Some(news)
    }

    /// Moves the primary loop past packets of the record: the next packet to send, the last one sent, and the first
    /// unacknowledged one.
    #[inline]
    pub(super) fn leave_out(&mut self, stream: &mut Stream) {
        if self.low_acks.is_some() {
            self.leave_out_some(stream);
        }
    }

    fn leave_out_some(&mut self, stream: &mut Stream) {
        let Some(low_acks) = self.low_acks.as_deref_mut() else { return };
        let map = &mut low_acks.map;
        stream.high = stream.acked.plus(map.first_clear(stream.high.distance(stream.acked) as u32));
        let span = stream.span();
        let next = map.first_clear(span);
        stream.next = stream.acked.plus(next);
        stream.skipped += next - span;
        let run = map.first_clear(0);
        if run > 0 {
            map.advance(run, |_| ());
            self.sacks.advance(run, |_| ());
            stream.skipped -= run;
            low_acks.passed = low_acks.passed.wrapping_add(run);
            stream.pass(run);
        }
    }

    /// Prepares for a cumulative acknowledgement, which may go beyond the primary loop's transmissions to packets
    /// delivered at low priority: the primary loop continues from there ("ACK bump", §2.3.1).
    pub(super) fn before_ack(&mut self, stream: &mut Stream, cumulative: Psn, nack: Option<Psn>) -> Before {
        let sent = stream.high.distance(stream.acked) as u32;
        let mut before = Before { span: stream.span(), sent, bump: 0 };
        if let Some(low_acks) = &mut self.low_acks
            && stream.high.before(cumulative)
            && !low_acks.end.before(cumulative)
            && nack.is_none()
        {
            before.bump = cumulative.distance(stream.high) as u32;
            low_acks.bumps = low_acks.bumps.wrapping_add(1);
            (stream.next, stream.high) = (cumulative, cumulative);
        }
        before
    }

    /// Updates the record after a cumulative acknowledgement that moved the stream by `news`.
    pub(super) fn after_ack(&mut self, stream: &mut Stream, before: &Before, news: u32) {
        let Some(low_acks) = self.low_acks.as_deref_mut().filter(|_| news > 0) else { return };
        let skipped = low_acks.map.ones(news.min(before.span));
        let passed = low_acks.map.ones(news.min(before.sent)) + before.bump;
        low_acks.passed = low_acks.passed.wrapping_add(passed);
        stream.skipped = if stream.acked.before(stream.next) { stream.skipped - skipped } else { 0 };
        low_acks.map.advance(news, |_| ());
        // Keeps its distance below half of the number space.
        low_acks.end = low_acks.end.later(stream.acked);
    }
}

footprint!(LowAcks, |at| {
    map => part(map).is(Item::Sacked),
    end => sequence(),
    passed => left("its growth is told at once"),
    bumps => left(why::STATISTICS),
});
