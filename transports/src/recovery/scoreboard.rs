//! The missing packets of a stream, and the next one to retransmit: the registers of IRN's sender modules.

use super::Bitmap;
use super::low_acks::LowAcks;
use super::stream::Stream;
use crate::footprint::{Item, bits, flag, footprint, left, part, sequence, why};
use crate::psn::Psn;

/// State of selective recovery in addition to the stream (IRN §4.5.2), independent of the rules by which it enters and
/// leaves recovery.
#[derive(Clone, Debug)]
pub(super) struct Scoreboard {
    /// Sequence number to retransmit, if `do_retransmit`; else the last one retransmitted.
    pub retransmit: Psn,
    /// Last regular packet sent before the latest retransmission; a cumulative acknowledgement past it ends recovery.
    pub recovery: Psn,
    pub do_retransmit: bool,
    pub in_recovery: bool,
    pub find_new_hole: bool,
    /// Selective acknowledgements from the first cumulatively unacknowledged packet on.
    pub sacks: Bitmap<1>,
    /// Packets delivered at low priority, if enabled.
    pub low_acks: Option<Box<LowAcks>>,
    /// Whether selective acknowledgements are kept.
    keeps: bool,
    /// Whether the window counts packets in the network; see [`Sender::with_pipe`](super::Sender::with_pipe).
    pub pipe: bool,
    /// NACKs without progress required to enter recovery (IRN §4.6); 1 is IRN's own rule.
    pub nack_threshold: u32,
    nacks: u32,
}

impl Scoreboard {
    /// Creates the state of a stream with at most `cap` packets in flight. Without `keeps` no selective acknowledgement
    /// is recorded.
    pub(super) fn new(first: Psn, cap: u32, keeps: bool, nack_threshold: u32) -> Scoreboard {
        Scoreboard {
            retransmit: first,
            recovery: first,
            do_retransmit: false,
            in_recovery: false,
            find_new_hole: false,
            sacks: Bitmap::new(if keeps { cap } else { 0 }),
            low_acks: None,
            keeps,
            pipe: false,
            nack_threshold: nack_threshold.max(1),
            nacks: 0,
        }
    }

    /// Returns whether selective acknowledgements are kept.
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Returns the packets that count against the window.
    #[inline]
    pub(super) fn in_window(&self, stream: &Stream) -> u32 {
        if self.pipe && !self.sacks.is_empty() { self.in_network(stream) } else { stream.in_flight() }
    }

    /// Returns the number of packets in flight that are estimated to be in the network.
    fn in_network(&self, stream: &Stream) -> u32 {
        let end = self.sacks.end().min(stream.span());
        // In recovery, missing packets before `again` were retransmitted, and those from there on are lost.
        let mut again = end;
        if self.in_recovery || self.do_retransmit {
            let next = self.retransmit.distance(stream.acked) + i32::from(!self.do_retransmit);
            again = end.min(next.max(0) as u32);
        }
        let lost_or_arrived = end - again - self.delivered_low_between(again, end);
        stream.in_flight() - lost_or_arrived - self.sacks.ones(again)
    }

    /// Returns whether `retransmit` waits to be sent, and may be.
    #[inline]
    fn may_retransmit(&self, stream: &Stream) -> bool {
        self.do_retransmit && (!self.pipe || self.retransmit == stream.acked || self.in_window(stream) < stream.window)
    }

    /// Returns whether [`Self::tx_free`] would do anything.
    #[inline]
    pub(super) fn wants_tx(&self, stream: &Stream, more: bool) -> bool {
        self.may_retransmit(stream)
            || self.find_new_hole
            || ((more || stream.next != stream.high) && !stream.is_full(self.in_window(stream)))
    }

    /// Returns whether recovery is in progress, or about to begin.
    pub(super) fn is_recovering(&self) -> bool {
        self.in_recovery || self.do_retransmit
    }

    /// Returns the next packet to be retransmitted individually.
    pub(super) fn lost(&self, stream: &Stream) -> Option<Psn> {
        (self.do_retransmit && !self.retransmit.before(stream.acked)).then_some(self.retransmit)
    }

    /// Returns whether a missing packet will be retransmitted individually.
    pub(super) fn will_resend(&self, stream: &Stream, psn: Psn) -> bool {
        let from = match () {
            () if self.do_retransmit && psn == self.retransmit => return true,
            () if self.do_retransmit || self.find_new_hole => self.retransmit.plus(1),
            () => return false,
        };
        !psn.before(from) && psn.distance(stream.acked) < self.sacks.end() as i32
    }

    /// txFree: returns the packet to send now, if any.
    #[inline]
    pub(super) fn tx_free(&mut self, stream: &mut Stream, more: bool) -> Option<Psn> {
        let send;
        let ahead = self.retransmit.distance(stream.acked);
        if self.do_retransmit && ahead >= 0 {
            if !self.may_retransmit(stream) {
                return None;
            }
            self.in_recovery |= ahead == 0;
            send = Some(self.retransmit);
            self.recovery = stream.next.minus(1);
            self.do_retransmit = false;
            self.find_new_hole = true;
        } else {
            if self.do_retransmit {
                self.find_new_hole = false;
                self.do_retransmit = false;
            }
            send = self.send_next(stream, more);
        }
        if std::mem::take(&mut self.find_new_hole) {
            self.look_ahead(stream);
        }
        send
    }

    /// Sends the next packet in order, skipping those selectively acknowledged if they do not count.
    #[inline]
    pub(super) fn send_next(&mut self, stream: &mut Stream, more: bool) -> Option<Psn> {
        if self.pipe && stream.next != stream.high {
            let from = stream.span();
            let next = self.first_missing(from);
            stream.next = stream.acked.plus(next);
            stream.skipped += self.delivered_low_between(from, next);
        }
        let full = stream.is_full(self.in_window(stream));
        (!full && (more || stream.next != stream.high)).then(|| stream.take_next())
    }

    /// Searches for the next packet to retransmit. One counts as lost only if a later one was selectively acknowledged,
    /// and if it is not resent in order anyway.
    #[inline]
    fn look_ahead(&mut self, stream: &Stream) {
        let from = (self.retransmit.distance(stream.acked) + 1).max(0) as u32;
        let hole = self.first_missing(from);
        if hole < self.sacks.end().min(stream.span()) {
            self.retransmit = stream.acked.plus(hole);
            self.do_retransmit = true;
        }
    }

    /// Advances by newly cumulatively acknowledged packets.
    #[inline]
    pub(super) fn advance(&mut self, news: u32) {
        self.sacks.advance(news, |_| ());
        self.nacks = 0;
    }

    /// Records a selective acknowledgement.
    #[inline]
    pub(super) fn record(&mut self, stream: &Stream, selective: Psn) {
        let offset = selective.distance(stream.acked);
        if offset <= 0 || !self.keeps || self.is_delivered_low(offset as u32) {
            return;
        }
        let offset = offset as u32;
        self.sacks.set(offset, [true]);
        if !self.in_recovery {
            return;
        }
        if self.do_retransmit && self.retransmit == selective {
            self.find_new_hole = true;
            self.do_retransmit = false;
        } else if !self.do_retransmit && offset + 1 == self.sacks.end() {
            self.find_new_hole = true;
        }
    }

    /// Ends recovery if the cumulative acknowledgement is past it.
    #[inline]
    pub(super) fn end_recovery(&mut self, cumulative: Psn) {
        if self.recovery.before(cumulative) {
            self.in_recovery = false;
            self.find_new_hole = false;
            self.do_retransmit = false;
            if cumulative.distance(self.recovery) > Stream::STALE {
                self.recovery = cumulative.minus(1);
            }
        }
    }

    /// Counts a sign of a gap. At the threshold, the first missing packet is lost.
    #[inline]
    pub(super) fn count_gap(&mut self, stream: &mut Stream) {
        self.nacks += 1;
        if self.nacks >= self.nack_threshold {
            stream.count_loss();
            self.retransmit_first(stream);
        }
    }

    /// Schedules the first missing packet for retransmission.
    #[inline]
    pub(super) fn retransmit_first(&mut self, stream: &Stream) {
        self.retransmit = stream.acked;
        self.do_retransmit = true;
        self.find_new_hole = false;
    }

    /// Schedules all missing packets for retransmission, in order, as the window opens.
    pub(super) fn retransmit_all(&mut self, stream: &mut Stream) {
        if self.sacks.any(0) {
            // The receiver has discarded packets it acknowledged (RFC 2018 §8), as it does when it was not ready.
            self.sacks.clear();
        }
        self.start_over(stream);
    }

    /// Discards selective acknowledgements, and starts over.
    pub(super) fn go_back(&mut self, stream: &mut Stream) {
        self.sacks.clear();
        self.start_over(stream);
    }

    fn start_over(&mut self, stream: &mut Stream) {
        (stream.next, stream.skipped) = (stream.acked, 0);
        self.nacks = 0;
        self.do_retransmit = false;
        self.find_new_hole = false;
        self.in_recovery = false;
    }
}

footprint!(Scoreboard, |at| {
    retransmit => sequence().is(Item::Retransmit),
    recovery => sequence().is(Item::Recovery),
    do_retransmit => flag().is(Item::Flags),
    in_recovery => flag().is(Item::Flags),
    find_new_hole => flag().is(Item::Flags),
    sacks => part(sacks).is(Item::Sacked).when(*keeps, why::OFF),
    low_acks => low_acks.as_deref().map_or(left(why::OFF), |low_acks| part(low_acks).heap(size_of::<LowAcks>())),
    keeps => left(why::SHARED),
    pipe => left(why::SHARED),
    nack_threshold => left(why::SHARED),
    nacks => bits(8).when(*nack_threshold > 1, why::OFF),
});
