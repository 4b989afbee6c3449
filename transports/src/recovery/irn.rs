//! IRN's own rules of recovery, as its reference modules have them (§4.2.1, §4.5.2).

use super::scoreboard::Scoreboard;
use super::stream::Stream;
use crate::psn::Psn;

/// receiveAck: a cumulative acknowledgement that moved by `news`, and a selective one of a NACK.
#[inline]
pub(super) fn receive_ack(board: &mut Scoreboard, stream: &mut Stream, news: u32, cumulative: Psn, nack: Option<Psn>) {
    if news > 0 {
        board.advance(news);
    }
    if let Some(selective) = nack {
        board.record(stream, selective);
    }
    board.end_recovery(cumulative);
    if board.in_recovery {
        // Progress during recovery shows that the packet which is the first now is lost as well.
        let ahead = board.retransmit.distance(stream.acked);
        if news > 0 && (ahead < 0 || (ahead == 0 && board.do_retransmit)) {
            board.retransmit_first(stream);
        }
    } else if news == 0 && stream.acked.before(stream.next) && nack.is_some_and(|nack| nack.before(stream.next)) {
        // Of a packet from before a go-back a NACK says nothing of what was sent since.
        board.count_gap(stream);
    }
}

/// A retransmission timeout.
#[inline]
pub(super) fn timeout(board: &mut Scoreboard, stream: &mut Stream) {
    if board.pipe { board.retransmit_all(stream) } else { board.retransmit_first(stream) }
}
