//! Acknowledgements that wait for the link.

use crate::psn::Psn;
use crate::recovery::Sack;

/// NACKs that a queue pair keeps until it may send. One beyond that is lost, and with it a selective acknowledgement:
/// the packet will be sent again for nothing. So whoever hands packets in should take what is to be sent at least this
/// often.
pub const MAX_NACKS_WAITING: usize = 64;

/// Plain RoCE: a requester asks for an acknowledgement once in so many packets at least, so that a long message frees
/// its packets in time.
pub(super) const ACK_EVERY: u32 = 16;

/// What one end of a stream has to tell the other. In-order acknowledgements are cumulative, so only the newest counts;
/// each NACK carries a selective acknowledgement of its own, so each run of them is kept.
#[derive(Clone, Debug)]
pub(crate) struct AckQueue {
    cumulative: bool,
    nacks: [Sack; AckQueue::NACKS],
    first: u8,
    count: u8,
    /// The NACK sent last, until it is sent again.
    sent: Option<Sack>,
}

/// The next acknowledgement to send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    Cumulative,
    Selective(Sack),
}

impl Default for AckQueue {
    fn default() -> Self {
        AckQueue {
            cumulative: false,
            nacks: [Sack { last: Psn::new(0), run: 0 }; Self::NACKS],
            first: 0,
            count: 0,
            sent: None,
        }
    }
}

impl AckQueue {
    const NACKS: usize = MAX_NACKS_WAITING;

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.cumulative && self.count == 0
    }

    #[inline]
    pub(super) fn push_cumulative(&mut self) {
        self.cumulative = true;
    }

    #[inline]
    pub(super) fn push_selective(&mut self, psn: Psn) {
        // What arrives in a row while nothing is sent leaves as one.
        if self.count > 0 {
            let latest = &mut self.nacks[usize::from(self.first + self.count - 1) % Self::NACKS];
            if latest.last.plus(1) == psn && latest.run < u8::MAX {
                *latest = Sack { last: psn, run: latest.run + 1 };
                return;
            }
        }
        if usize::from(self.count) < Self::NACKS {
            self.nacks[usize::from(self.first + self.count) % Self::NACKS] = Sack { last: psn, run: 0 };
            self.count += 1;
        }
    }

    /// NACKs first: they say as much cumulatively. With `repeat`, a run of packets that a gap ends is told twice: later
    /// NACKs, which say again what lies right before their own packets ([`crate::recovery::Receiver::widen`]), will not
    /// mention it.
    #[inline]
    pub(super) fn pop(&mut self, repeat: bool) -> Option<Ack> {
        if self.count > 0 {
            let sack = self.nacks[usize::from(self.first)];
            if repeat
                && let Some(sent) = self.sent.take()
                && sent.last.plus(1).before(sack.last.minus(u32::from(sack.run)))
            {
                return Some(Ack::Selective(sent));
            }
            self.sent = Some(sack);
            self.first = (self.first + 1) % Self::NACKS as u8;
            self.count -= 1;
            // The cumulative number that goes with a NACK is the newest as well.
            self.cumulative = false;
            return Some(Ack::Selective(sack));
        }
        std::mem::take(&mut self.cumulative).then_some(Ack::Cumulative)
    }

    pub(super) fn clear(&mut self) {
        *self = AckQueue::default();
    }
}
