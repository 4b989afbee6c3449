//! Detection of losses by transmission times (RFC 8985 §6.2, step 5).

use super::super::stream::Stream;
use super::Rack;
use super::sent::{Sent, Transmission};
use crate::psn::Psn;
use crate::time::Time;

impl Rack {
    /// Returns how late a packet may arrive after ones sent later, ns (RACK_update_reo_wnd).
    fn reo_wnd(&self) -> u64 {
        let quick = self.board.in_recovery || self.sacked >= self.board.nack_threshold;
        if !self.reordering_seen && quick {
            return 0;
        }
        (u64::from(self.reo_wnd_mult) * (self.least_rtt() / 4)).min(self.srtt)
    }

    /// Marks lost packets, and determines when the next packet will be lost (§6.2, step 5).
    #[inline]
    pub(super) fn detect(&mut self, now: Time, stream: &mut Stream) {
        self.deadline = Time::NEVER;
        self.judged = self.judged.later(stream.acked);
        if self.settles != Time::ZERO && !self.settle(now) {
            return;
        }
        if self.again.is_empty() && !self.is_overtaken(stream, self.judged) {
            return;
        }
        self.judge(now, stream);
    }

    /// Assumes that a timeout's retransmission has arrived, if it is time.
    #[cold]
    fn settle(&mut self, now: Time) -> bool {
        if now < self.settles {
            self.deadline = self.settles;
            return false;
        }
        self.settles = Time::ZERO;
        self.latest = self.doubted.later(Some(self.latest));
        true
    }

    /// Returns whether an in-order transmission was before the latest that has arrived.
    #[inline]
    fn is_overtaken(&self, stream: &Stream, psn: Psn) -> bool {
        psn.before(stream.next)
            && self.record(psn).is_none_or(|sent| {
                sent.is(Sent::QUEUED)
                    || self.latest.is_after(Transmission { at: sent.at(), psn })
                    || self.is_sacked(stream, psn)
            })
    }

    #[inline]
    fn is_sacked(&self, stream: &Stream, psn: Psn) -> bool {
        let offset = psn.distance(stream.acked);
        offset >= 0 && self.board.sacks.any(offset as u32)
    }

    #[inline(never)]
    fn judge(&mut self, now: Time, stream: &mut Stream) {
        let patience = self.rtt + self.reo_wnd();
        while self.is_overtaken(stream, self.judged) {
            let psn = self.judged;
            let offset = psn.distance(stream.acked) as u32;
            let missing = self.board.first_missing(offset);
            if missing > offset {
                self.judged = stream.acked.plus(missing);
                continue;
            }
            if let Some(sent) = self.record(psn).filter(|sent| !sent.is(Sent::QUEUED | Sent::LOST)) {
                let due = sent.at() + patience;
                if due > now {
                    self.deadline = due;
                    break;
                }
                self.enter_recovery(stream);
                self.lose(psn);
            }
            self.judged = psn.plus(1);
        }
        while let Some(&sent) = self.again.front() {
            let Transmission { at, psn } = sent;
            let waits = |rack: &Rack| {
                let in_flight = !psn.before(stream.acked) && psn.before(stream.next) && !rack.is_sacked(stream, psn);
                in_flight && rack.record(psn).is_some_and(|sent| sent.at() == at && !sent.is(Sent::LOST))
            };
            if waits(self) {
                if !self.latest.is_after(sent) {
                    break;
                }
                let due = at + patience;
                if due > now {
                    self.deadline = self.deadline.min(due);
                    break;
                }
                self.enter_recovery(stream);
                self.lose(psn);
            }
            self.again.pop_front();
        }
    }

    /// Marks packets lost by the passing of time.
    pub(in super::super) fn on_deadline(&mut self, now: Time, stream: &mut Stream) {
        if self.deadline <= now {
            self.detect(now, stream);
        }
    }
}
