//! Recovery that asks for evidence of each loss, in the manner of RFC 6675 and RACK (RFC 8985).
//!
//! IRN's rules need a timer that never runs out too early: after one that did, everything in flight is still on its
//! way, each acknowledgement of it reads as one of a packet sent again, and recovery that new packets keep from ending
//! sends one packet again for each. Here
//!
//! - a timeout sends the first packet again, no other that was sent again already; unless the timeout before did, and
//!   nothing but that packet was acknowledged since;
//! - an acknowledgement during recovery shows that what follows is lost only if something later was selectively
//!   acknowledged; or, after a second timeout, if it goes no further than what was sent again. More shows that the rest
//!   is coming;
//! - a packet sent again is lost again if one that was sent after it arrives before it; no timeout is needed to know.

use super::scoreboard::Scoreboard;
use super::stream::Stream;
use crate::footprint::{bits, flag, footprint, maybe, part, sequence, width};
use crate::psn::Psn;

/// What these rules keep beside the scoreboard.
#[derive(Clone, Debug)]
pub(super) struct SackRules {
    pub board: Scoreboard,
    /// Once more the first packet that is not acknowledged, and nothing else: the scoreboard's `retransmit` stays where
    /// it is.
    rexmit_first: bool,
    /// A timeout followed the acknowledgement of what an earlier one sent again: the rest may well be lost.
    rto_silent: bool,
    /// One past the packet that the latest timeout sent again behind others that were sent again: if no more is
    /// acknowledged by the next timeout, they are lost as well.
    tail_probe: Option<Psn>,
    /// A selective acknowledgement from here on is of a packet that was sent after the first missing one was sent
    /// again.
    rexmit_mark: Psn,
    /// Selective acknowledgements of packets that were sent after the first missing one was sent again.
    dup_sacks: u32,
}

impl SackRules {
    pub(super) fn new(board: Scoreboard, first: Psn) -> SackRules {
        SackRules { board, rexmit_first: false, rto_silent: false, tail_probe: None, rexmit_mark: first, dup_sacks: 0 }
    }

    /// Whether [`Self::tx_free`] would do anything.
    #[inline]
    pub(super) fn wants_tx(&self, stream: &Stream, more: bool) -> bool {
        self.rexmit_first || self.board.wants_tx(stream, more)
    }

    /// Returns the packet that is sent again next because it alone is lost.
    pub(super) fn lost(&self, stream: &Stream) -> Option<Psn> {
        if self.rexmit_first { Some(stream.acked) } else { self.board.lost(stream) }
    }

    /// See [`Scoreboard::is_recovering`].
    pub(super) fn is_recovering(&self) -> bool {
        self.rexmit_first || self.board.is_recovering()
    }

    /// See [`Scoreboard::will_resend`].
    pub(super) fn will_resend(&self, stream: &Stream, psn: Psn) -> bool {
        self.rexmit_first && psn == stream.acked || self.board.will_resend(stream, psn)
    }

    /// txFree: returns the packet to send now, if any.
    #[inline]
    pub(super) fn tx_free(&mut self, stream: &mut Stream, more: bool) -> Option<Psn> {
        if std::mem::take(&mut self.rexmit_first) {
            self.board.recovery = stream.next.minus(1);
            self.mark(stream);
            return Some(stream.acked);
        }
        let (send, begins) = self.board.tx_free(stream, more);
        if begins {
            self.mark(stream);
        }
        send
    }

    /// What is sent from now on is sent after the first missing packet was sent again.
    #[inline]
    fn mark(&mut self, stream: &Stream) {
        (self.rexmit_mark, self.dup_sacks) = (stream.next, 0);
    }

    /// receiveAck: a cumulative acknowledgement that moved by `news`, and a selective one of a NACK.
    #[inline]
    pub(super) fn receive_ack(&mut self, stream: &mut Stream, news: u32, cumulative: Psn, nack: Option<Psn>) {
        if news > 0 {
            self.board.advance(news);
            self.rexmit_first = false;
            // When the packet that is the first now was sent again is not known: not after this.
            self.mark(stream);
        }
        // What was said before makes up for acknowledgements that were lost, and is no news.
        let nack = nack.filter(|selective| {
            let offset = selective.distance(stream.acked);
            offset >= 0 && !self.board.sacks.any(offset as u32)
        });
        if let Some(selective) = nack
            && self.board.record(stream, selective)
        {
            self.overtaken_by(stream, selective);
        }
        if self.board.end_recovery(cumulative) {
            self.forget();
        }
        // From a receiver that goes back N, which keeps nothing to acknowledge selectively.
        let nothing_kept = nack == Some(stream.acked) && self.board.retransmit.before(stream.acked);
        if self.board.in_recovery && nothing_kept {
            self.board.retransmit_first(stream);
        } else if self.board.in_recovery && news > 0 {
            let ahead = self.board.retransmit.distance(stream.acked);
            self.rto_silent &= ahead >= -1;
            let lost = self.rto_silent || !self.board.sacks.is_empty();
            if (ahead < 0 && lost) || (ahead == 0 && self.board.do_retransmit) {
                self.board.retransmit_first(stream);
            }
        } else if !self.board.in_recovery && stream.acked.before(stream.next) {
            let gap = match nack {
                _ if news > 0 => !self.board.sacks.is_empty(),
                nack => nack.is_some_and(|nack| nack.before(stream.next)),
            };
            if gap {
                self.board.count_gap(stream);
            }
        }
    }

    /// Counts acknowledgements of packets that were sent after the first missing one was sent again.
    #[inline]
    fn overtaken_by(&mut self, stream: &Stream, selective: Psn) {
        let board = &self.board;
        let sent_again = board.retransmit.distance(stream.acked) >= i32::from(board.do_retransmit);
        if sent_again && !self.rexmit_first && !selective.before(self.rexmit_mark) {
            self.dup_sacks += 1;
            self.rexmit_first = self.dup_sacks >= board.nack_threshold;
        }
    }

    /// A retransmission timeout.
    #[inline]
    pub(super) fn timeout(&mut self, stream: &mut Stream) {
        let board = &mut self.board;
        let ahead = board.retransmit.distance(stream.acked);
        if board.in_recovery && ahead > 0 && self.tail_probe != Some(stream.acked) {
            self.rexmit_first = true;
            self.tail_probe = Some(stream.acked.plus(1));
        } else if board.pipe && board.in_recovery && ahead != 0 {
            board.retransmit_all(stream);
            self.forget();
        } else {
            self.tail_probe = None;
            self.rto_silent = board.in_recovery && ahead < 0;
            board.retransmit_first(stream);
        }
    }

    /// Forgets selective acknowledgements, and starts over.
    pub(super) fn go_back(&mut self, stream: &mut Stream) {
        self.board.go_back(stream);
        self.forget();
    }

    /// Forgets what was found out during recovery.
    #[inline]
    fn forget(&mut self) {
        (self.rexmit_first, self.rto_silent, self.tail_probe) = (false, false, None);
    }
}

footprint!(SackRules, |at| {
    board => part(board),
    rexmit_first => flag(),
    rto_silent => flag(),
    tail_probe => maybe(width::PSN),
    rexmit_mark => sequence(),
    dup_sacks => bits(8),
});
