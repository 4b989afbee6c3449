//! Packets at low priority (RC3) in the halves of a connection: their selection, and their acknowledgements.

use super::discipline::LowLoop;
use super::requester::Requester;
use super::responder::Responder;
use crate::packet::PacketClass;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::host::{Host, TxSlot};
use crate::qp::send_queue::Fence;
use crate::qp::work::SendOp;
use crate::recovery::Sack;
use crate::wire::{Headers, IrnEth, NakCode, Syndrome};

impl Requester {
    /// Returns how many priorities below the queue pair's the next packet of [`Self::poll_low`] may go, if there may be
    /// one. `sending`: new WQEs may start (RTS, not SQD).
    pub(in crate::rc) fn wants_low(&self, sending: bool) -> Option<u8> {
        let low = self.discipline.low()?;
        if self.rnr_until.is_some() || self.broken.is_some() || !self.speaks_irn() {
            return None;
        }
        let next = self.stream.next();
        if low.has_more(next) {
            return Some(low.level());
        }
        let reach = self.reach(low);
        let startable = sending && self.assigned.before(reach) && self.may_start_low();
        let top = if startable { self.assigned.plus(1) } else { self.assigned };
        low.may_begin(if reach.before(top) { reach } else { top }, next).then_some(1)
    }

    /// Returns one past the last packet that the peer tracks.
    fn reach(&self, low: &LowLoop) -> Psn {
        self.stream.acked().plus(low.reach())
    }

    /// Returns whether the next WQE may start before its turn: the peer can place it whenever it arrives, and is ready
    /// to.
    fn may_start_low(&self) -> bool {
        if self.sq.started == self.sq.tail || self.broken.is_some() || self.credit_stop.is_some() {
            return false;
        }
        let w = self.sq.get(self.sq.started);
        let placed = matches!(w.op, SendOp::Send | SendOp::SendImm(_) | SendOp::Write | SendOp::WriteImm(_));
        let credit = !w.op.takes_recv_wqe() || self.credit_limit().is_none_or(|limit| !limit.before(self.ssn.plus(1)));
        placed && w.fence == Fence::NONE && credit
    }

    /// Begins a new pass over packets posted since. Returns false if there are none.
    fn begin_low(&mut self, sending: bool, c: &QpContext) -> bool {
        let Some(low) = self.discipline.low() else { return false };
        let reach = self.reach(low);
        while sending && self.assigned.before(reach) && self.may_start_low() {
            self.start_next(c);
        }
        let (tail, next) = (self.assigned, self.stream.next());
        let top = if reach.before(tail) { reach } else { tail };
        let Some(low) = self.discipline.low_mut() else { return false };
        let begins = low.may_begin(top, next);
        if begins {
            low.begin(top, tail);
        }
        begins
    }

    /// Builds the next packet at low priority. Returns how many priorities below the queue pair's it goes; `None` if
    /// none may be sent now.
    pub(in crate::rc) fn poll_low(
        &mut self,
        sending: bool,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<Option<u8>, QpFailure> {
        loop {
            let Some(level) = self.wants_low(sending) else { return Ok(None) };
            let next = self.stream.next();
            let Some(low) = self.discipline.low_mut() else { return Ok(None) };
            if !low.has_more(next) {
                if self.begin_low(sending, c) && self.wants_low(sending) == Some(level) {
                    continue;
                }
                // More was posted than assumed: its end is out of reach, so wait for another turn.
                return Ok(None);
            }
            let psn = low.take();
            let Some(index) = self.sq.find(psn, &mut self.hint) else { continue };
            out.class = PacketClass::Data;
            out.gather.clear();
            match self.build(index, psn, true, c, host, out) {
                Ok(()) => {
                    out.headers.bth.low = true;
                    self.stream.sent_low(psn);
                    host.counters().rc3_low_pkts += 1;
                    return Ok(Some(level));
                }
                Err(status) => self.fail_wqe(index, status, c, host)?,
            }
        }
    }

    /// Handles an acknowledgement of a packet at low priority. It only shows which packets need not be sent any more:
    /// it neither restarts the timer nor reaches congestion control.
    #[cold]
    pub(in crate::rc) fn receive_low(
        &mut self,
        c: &QpContext,
        headers: &Headers,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        let block = match (headers.irn, headers.aeth) {
            (Some(IrnEth::Ack { selective, .. }), Some(aeth)) => {
                let last = headers.bth.psn;
                match Syndrome::from_u8(aeth.syndrome) {
                    // Everything up to there.
                    Some(Syndrome::Ack { .. }) => Some((self.stream.high(), last, aeth)),
                    Some(Syndrome::Nak(NakCode::PsnSequenceError)) => Some((selective, last, aeth)),
                    _ => None,
                }
            }
            _ => None,
        };
        let known = block.and_then(|(first, last, aeth)| Some((self.stream.receive_low_ack(first, last)?, aeth)));
        let Some((news, aeth)) = known else {
            host.counters().rx_unexpected += 1;
            return Ok(());
        };
        host.counters().rc3_low_acked += u64::from(news);
        self.update_credits(&aeth);
        self.complete(c, host)
    }
}

impl Responder {
    /// Returns the highest priority of low-priority packets that are not acknowledged yet.
    pub(in crate::rc) fn low_priority(&self) -> Option<u8> {
        self.discipline.low_acks()?.priority()
    }

    /// Acknowledges the next low-priority packet. A packet ahead of the expected one is acknowledged by a NAK that
    /// names the block around it, from the selective PSN to its own: this repeats the contents of lost
    /// acknowledgements.
    pub(in crate::rc) fn poll_low(
        &mut self,
        priority: u8,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> bool {
        let Some(psn) = self.discipline.low_acks_mut().and_then(|acks| acks.pop(priority)) else { return false };
        let expected = self.rx.expected();
        host.counters().sent_acks += 1;
        if psn.before(expected) {
            let (last, credits) = (expected.minus(1), self.credits(c));
            self.acknowledgement(c, last, Sack { last, run: 0 }, Syndrome::Ack { credits }, out);
        } else {
            let (first, last) = self.rx.block(psn);
            let nak = Syndrome::Nak(NakCode::PsnSequenceError);
            self.acknowledgement(c, last, Sack { last: first, run: 0 }, nak, out);
        }
        out.headers.bth.low = true;
        true
    }
}
