//! IRN's own rules of recovery, as in its reference modules (§4.2.1, §4.5.2).

use super::scoreboard::Scoreboard;
use super::stream::Stream;
use crate::psn::Psn;

/// receiveAck: handles a cumulative acknowledgement that moved by `news`, and the selective one of a NACK.
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
        // Progress during recovery shows that the new first packet is lost as well.
        let ahead = board.retransmit.distance(stream.acked);
        if news > 0 && (ahead < 0 || (ahead == 0 && board.do_retransmit)) {
            board.retransmit_first(stream);
        }
    } else if news == 0 && stream.acked.before(stream.next) && nack.is_some_and(|nack| nack.before(stream.next)) {
        // A NACK of a packet from before a go-back says nothing about later transmissions.
        board.count_gap(stream);
    }
}

/// Handles a retransmission timeout.
#[inline]
pub(super) fn timeout(board: &mut Scoreboard, stream: &mut Stream) {
    if board.pipe { board.retransmit_all(stream) } else { board.retransmit_first(stream) }
}
