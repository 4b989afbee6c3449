//! Go-back-N: a loss sends everything again from the first packet that is missing.

use super::stream::Stream;
use crate::footprint::{bits, footprint, why, width};
use crate::psn::Psn;

/// What going back N keeps beside its stream.
#[derive(Clone, Debug, Default)]
pub(super) struct GoBackN {
    /// After a timeout the cap begins at one packet, and grows by what is acknowledged, up to this; 0: it stays.
    slow_start: u32,
}

impl GoBackN {
    /// See [`Sender::limit`](super::Sender::limit).
    pub(super) fn limit(&mut self, stream: &mut Stream, cap: u32) {
        stream.cap = stream.cap.min(cap.max(1));
        self.slow_start = stream.cap;
    }

    #[inline]
    pub(super) fn receive_ack(&mut self, stream: &mut Stream, news: u32, cumulative: Psn, nack: bool) {
        if news > 0 && self.slow_start > 0 {
            stream.cap = stream.cap.saturating_add(news).min(self.slow_start);
        }
        if nack && cumulative == stream.acked {
            stream.count_loss();
            stream.next = stream.acked;
        }
    }

    pub(super) fn timeout(&self, stream: &mut Stream) {
        stream.next = stream.acked;
        if self.slow_start > 0 {
            stream.cap = 1;
        }
    }
}

footprint!(GoBackN, |at| {
    slow_start => bits(width::COUNT).when(at.irn && at.plain, why::OFF),
});
