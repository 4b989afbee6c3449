//! Go-back-N: a loss resends everything from the first missing packet.

use super::stream::Stream;
use crate::footprint::{bits, flag, footprint, left, why, width};
use crate::psn::Psn;

/// State of going back N, in addition to the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct GoBackN {
    /// After a timeout the cap begins at one packet, and grows by the packets acknowledged, up to this; 0: it stays.
    slow_start: u32,
    /// Whether a timeout needs evidence: see [`Sender::with_evidence`](super::Sender::with_evidence).
    evidence: bool,
    /// Whether a timer has retransmitted packets, and nothing was acknowledged since.
    doubts: bool,
}

impl GoBackN {
    /// See [`Sender::limit`](super::Sender::limit).
    pub(super) fn limit(&mut self, stream: &mut Stream, cap: u32) {
        stream.cap = stream.cap.min(cap.max(1));
        self.slow_start = stream.cap;
    }

    /// See [`Sender::with_evidence`](super::Sender::with_evidence).
    pub(super) fn ask(&mut self, stream: &Stream) {
        (self.evidence, self.slow_start) = (true, stream.cap);
    }

    /// `next`: the next packet to send before the acknowledgement.
    #[inline]
    pub(super) fn receive_ack(&mut self, stream: &mut Stream, news: u32, next: Psn, cumulative: Psn, nack: bool) {
        if news > 0 && self.slow_start > 0 {
            stream.cap = stream.cap.saturating_add(news).min(self.slow_start);
        }
        if self.doubts && (news > 0 || nack) {
            self.resolve(stream, next, news, nack);
        }
        if nack && cumulative == stream.acked {
            stream.count_loss();
            stream.next = stream.acked;
        }
    }

    /// Handles the first acknowledgement after a timer has retransmitted packets: if it goes beyond those, the
    /// originals had arrived (F-RTO, RFC 5682).
    #[cold]
    fn resolve(&mut self, stream: &mut Stream, next: Psn, news: u32, nack: bool) {
        self.doubts = false;
        let sent = next.distance(stream.acked.minus(news));
        if !nack && (news as i32) > sent {
            (stream.next, stream.cap) = (stream.high, self.slow_start);
            if sent > 0 {
                stream.count_spurious();
            }
        }
    }

    pub(super) fn timeout(&mut self, stream: &mut Stream) {
        self.go_back(stream);
        if self.slow_start > 0 {
            stream.cap = 1;
        }
        self.doubts = self.evidence;
    }

    /// Resends the last packet, which is then acknowledged, or shows what is missing before it; or the `first`, and no
    /// more before it is answered.
    pub(super) fn probe(&mut self, stream: &mut Stream, first: bool) -> bool {
        let probes = self.evidence && stream.next != stream.acked;
        if probes && first {
            self.timeout(stream);
        } else if probes {
            stream.next = stream.next.minus(1);
        }
        probes
    }

    pub(super) fn go_back(&mut self, stream: &mut Stream) {
        stream.next = stream.acked;
        self.doubts = false;
    }
}

footprint!(GoBackN, |at| {
    slow_start => bits(width::COUNT).when(at.irn && at.plain || *evidence, why::OFF),
    evidence => left(why::SHARED),
    doubts => flag().when(*evidence, why::OFF),
});
