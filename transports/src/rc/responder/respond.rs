//! Packets sent by the responder: acknowledgements, NAKs, READ and atomic responses; and the timer of IRN's response
//! stream.

use super::{ReadKind, ReadOp, Responder};
use crate::packet::PacketClass;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure, position};
use crate::qp::host::{Host, PeerProcess, TxSlot};
use crate::rc::acks::Ack;
use crate::rc::discipline::{Discipline, Ends};
use crate::rc::timer::Expiry;
use crate::rc::tlt::Turn;
use crate::recovery::Sack;
use crate::time::Time;
use crate::wire::opcode::Position;
use crate::wire::{Aeth, Credits, IrnEth, NakCode, Opcode, Syndrome, pad_for};

impl Responder {
    /// Returns whether [`Self::poll_transmit`] may have something to send.
    #[inline]
    pub(crate) fn wants_tx(&self) -> bool {
        self.nak.is_some()
            || self.cnp
            || !self.acks.is_empty()
            || !self.jobs.is_empty()
            || (self.pending.is_some() && !self.irn)
            || (!self.peer_silent && self.wants_stream(self.tx.high() != self.tx_assigned))
    }

    /// IRN: returns whether a packet of the response stream may be sent; `more`: a new one waits.
    #[inline]
    fn wants_stream(&self, more: bool) -> bool {
        if self.discipline.is_plain() {
            self.fetch.wants_tx(&self.tx, more)
        } else {
            self.disciplined_wants_stream(more)
        }
    }

    #[cold]
    fn disciplined_wants_stream(&self, more: bool) -> bool {
        match self.discipline.ends() {
            Some(ends) => (more || self.tx.outstanding()) && ends.send.wants_tx(more),
            None => {
                self.fetch.wants_tx(&self.tx, more) || self.discipline.tlt().is_some_and(|tlt| tlt.wants_tx(&self.tx))
            }
        }
    }

    /// NDP: returns whether [`Self::poll_feedback`] has a packet.
    pub(crate) fn wants_feedback(&self) -> bool {
        self.discipline.receive().is_some_and(|pull| pull.wants_tx())
    }

    /// NDP: builds the next packet with feedback on requests, or a pull; returns false if there is none.
    pub(crate) fn poll_feedback(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> bool {
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: self.credits(c) }.to_u8(), msn: self.rx.msn() };
        let Some(pull) = self.discipline.receive_mut() else { return false };
        let made = pull.poll(c, Opcode::RcFeedback, self.rx.expected(), aeth, out);
        host.counters().sent_acks += u64::from(made);
        made
    }

    /// RC3: returns the highest priority of low-priority packets that are not acknowledged yet.
    pub(crate) fn low_priority(&self) -> Option<u8> {
        self.discipline.low_acks()?.priority()
    }

    /// RC3: acknowledges the next low-priority packet. A packet ahead of the expected one is acknowledged by a NAK that
    /// names the block around it, from the selective PSN to its own: this repeats the contents of lost
    /// acknowledgements.
    pub(crate) fn poll_low(&mut self, priority: u8, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> bool {
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

    /// Builds the next acknowledgement or response packet; returns false if there is none.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, QpFailure> {
        out.gather.clear();
        if std::mem::take(&mut self.cnp) {
            host.counters().np_cnp_sent += 1;
            out.headers = c.headers(Opcode::Cnp, Psn::new(0));
            out.headers.bth.becn = true;
            out.class = PacketClass::Cnp;
            return Ok(true);
        }
        // An acknowledgement that overtook a response would read as an implied NAK: responses first.
        if !self.irn && self.poll_job(c, host, out)? {
            return Ok(true);
        }
        if !self.irn {
            self.refuse_when_answered()?;
        }
        if let Some((psn, syndrome)) = self.nak.take() {
            host.counters().sent_acks += 1;
            self.acknowledgement(c, psn, Sack { last: psn, run: 0 }, syndrome, out);
            return Ok(true);
        }
        if let Some(ack) = self.acks.pop(c.evidence) {
            self.poll_ack(c, ack, host, out);
            return Ok(true);
        }
        if self.irn && !self.peer_silent { self.poll_stream(now, c, host, out) } else { Ok(false) }
    }

    fn poll_ack(&mut self, c: &QpContext, ack: Ack, host: &mut impl Host, out: &mut TxSlot) {
        let counters = host.counters();
        counters.sent_acks += 1;
        let expected = self.rx.expected();
        if let Ack::Echo(_) = ack {
            counters.tlt_echoes += 1;
        }
        match ack.sack() {
            Some(sack) if !sack.last.before(expected) => {
                counters.irn_nacks_sent += 1;
                let sack = if c.evidence { self.rx.widen(sack) } else { sack };
                self.acknowledgement(c, expected, sack, Syndrome::Nak(NakCode::PsnSequenceError), out)
            }
            _ => {
                let credits = self.credits(c);
                let last = expected.minus(1);
                self.acknowledgement(c, last, ack.subject(expected), Syndrome::Ack { credits }, out)
            }
        }
        if let Ack::Echo(echo) = ack {
            out.headers.bth.importance = echo.importance;
        }
    }

    fn acknowledgement(&mut self, c: &QpContext, psn: Psn, sack: Sack, syndrome: Syndrome, out: &mut TxSlot) {
        if std::mem::take(&mut self.unanswered) {
            out.telemetry = self.telemetry.as_deref().copied();
        }
        out.class = if self.acks_may_overtake() { PacketClass::Ack } else { PacketClass::OrderedAck };
        let headers = &mut out.headers;
        *headers = c.headers(Opcode::RcAcknowledge, psn);
        headers.bth.becn = std::mem::take(&mut self.marked);
        headers.aeth = Some(Aeth { syndrome: syndrome.to_u8(), msn: self.rx.msn() });
        headers.irn = self.irn.then_some(IrnEth::Ack { selective: sack.last, run: sack.run });
    }

    /// Returns the receive WQEs that the peer may rely on (IBA 9.7.7.2.1).
    fn credits(&mut self, c: &QpContext) -> Credits {
        if !c.credits || self.rq.is_shared() {
            return Credits::INVALID;
        }
        let count = self.rq.len();
        self.zero_credits_sent = count == 0;
        Credits::at_most(count)
    }

    /// Plain RoCE: builds the next packet of the oldest response.
    fn poll_job(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> Result<bool, QpFailure> {
        let Some(job) = self.jobs.front_mut() else { return Ok(false) };
        let (op, k, again) = (job.op, job.next, job.again);
        let at = match position(k - job.start, job.end - job.start) {
            // Cut short by a repeated request: this is not the response's end.
            Position::Last if job.cut => Position::Middle,
            at => at,
        };
        job.next += 1;
        if job.next >= job.end {
            self.jobs.pop_front();
        }
        self.response(c, &op, k, at, op.first.plus(k), again, host, out)
    }

    /// IRN: builds the next packet of the response stream.
    fn poll_stream(
        &mut self,
        now: Time,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, QpFailure> {
        loop {
            let high = self.tx.high();
            let more = high != self.tx_assigned;
            if !self.wants_stream(more) {
                return Ok(false);
            }
            let psn = if let Some(pulled) = self.discipline.send_mut() {
                let Some((psn, fresh)) = pulled.tx_free(now, more) else { return Ok(false) };
                if fresh {
                    self.tx.tx_new(now, true);
                }
                psn
            } else if let Some(tlt) = self.discipline.tlt_mut() {
                match tlt.next(now, &mut self.fetch, &mut self.tx, more) {
                    Some(Turn::Packet(psn)) => psn,
                    Some(Turn::Probe) => {
                        tlt.probe(Opcode::RcReadClock, self.tx.acked(), c, host, out);
                        return Ok(true);
                    }
                    None => return Ok(false),
                }
            } else {
                // Possibly only the look-ahead for the next hole was left to do.
                let Some(psn) = self.fetch.tx_free(now, &mut self.tx, more) else { continue };
                psn
            };
            let Some(op) = self.find_op(psn) else { continue };
            let fresh = !psn.before(high);
            if !fresh && !self.discipline.is_plain() {
                self.tx.repeated(now, psn);
            }
            host.counters().retransmitted_pkts += u64::from(!fresh);
            self.tally.retransmitted += u64::from(!fresh);
            self.timer.sent(now, psn, fresh, c);
            if psn == self.tx.acked() {
                self.timer.alive(now);
            }
            let k = psn.distance(op.first) as u32;
            let made = self.response(c, &op, k, position(k, op.packets), psn, !fresh, host, out)?;
            let more = self.tx.high() != self.tx_assigned;
            match &mut self.discipline {
                Discipline::Window(tlt) if made => {
                    let follows = self.fetch.wants_tx(&self.tx, more);
                    tlt.mark(psn, high, &self.tx, follows, host, out);
                }
                Discipline::Pulled(ends) if made => ends.send.mark(more, c, out),
                _ => {}
            }
            return Ok(made);
        }
    }

    fn find_op(&self, psn: Psn) -> Option<ReadOp> {
        let mut sn = self.oldest_read_sn;
        while sn != self.next_read_sn {
            let op = self.buffer[self.read_slot(sn)]?;
            let k = psn.distance(op.first);
            if k >= 0 && (k as u32) < op.packets {
                return Some(op);
            }
            sn = sn.plus(1);
        }
        None
    }

    /// Builds packet `k` of the response to `op`; `again`: it was sent before.
    #[allow(clippy::too_many_arguments)] // one argument for each property of the packet
    fn response(
        &mut self,
        c: &QpContext,
        op: &ReadOp,
        k: u32,
        at: Position,
        psn: Psn,
        again: bool,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, QpFailure> {
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: self.credits(c) }.to_u8(), msn: self.rx.msn() };
        let irn = self.irn.then_some(IrnEth::Response);
        let TxSlot { headers, gather, class, .. } = out;
        *class = PacketClass::of_data(!again);
        if let ReadKind::AtomicDone(value) = op.kind {
            *headers = c.headers(Opcode::RcAtomicAcknowledge, psn);
            (headers.aeth, headers.atomic_ack, headers.irn) = (Some(aeth), Some(value), irn);
            return Ok(true);
        }
        let opcode = match at {
            Position::First => Opcode::RcReadResponseFirst,
            Position::Middle => Opcode::RcReadResponseMiddle,
            Position::Last => Opcode::RcReadResponseLast,
            Position::Only => Opcode::RcReadResponseOnly,
        };
        *headers = c.headers(opcode, psn);
        headers.irn = irn;
        if self.irn || at != Position::Middle {
            headers.aeth = Some(aeth);
        }
        let offset = k * c.mtu;
        let len = (op.len - offset).min(c.mtu);
        headers.bth.pad = pad_for(len as usize);
        let (by, va) = (op.caller(c), op.va.wrapping_add(u64::from(offset)));
        let gathered = match again {
            _ if len == 0 => Ok(()),
            false => host.gather_remote(by, op.rkey, va, len, gather),
            true => host.gather_again(by, op.rkey, va, len, gather),
        };
        if gathered.is_err() {
            // The region was deregistered between request and response. The PSN is that of the request packet that last
            // requested it: in plain RoCE, where a requester repeats only the rest of a response, it may be any of the
            // response's.
            let words = (if self.irn { op.psn } else { psn }, Syndrome::Nak(NakCode::RemoteAccessError));
            gather.clear();
            if again {
                // A requester that has the response may have released the region: this notifies one that has not, and
                // is ignored by one that has.
                self.jobs.clear();
                self.nak = Some(words);
                return Ok(false);
            }
            host.counters().resp_remote_access_errors += 1;
            host.counters().resp_remote_errors += 1;
            self.terminal_nak = Some(words);
            return Err(QpFailure::Access);
        }
        host.counters().sent_bytes += u64::from(len);
        Ok(true)
    }

    /// Returns when [`Self::on_deadline`] is due, except for pulls.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Time {
        self.timer.deadline().min(self.fetch.deadline()).min(self.tx.deadline())
    }

    /// NDP: returns when [`Self::on_deadline`] is due for pulls.
    pub(crate) fn pull_deadline(&self) -> Time {
        let deadline = |ends: &Ends| ends.send.next_deadline().min(ends.receive.next_deadline());
        self.discipline.ends().map_or(Time::NEVER, deadline)
    }

    /// IRN: the responder's own timeouts (§4.4.2). A peer that stays silent too long is sent nothing until it is heard
    /// from.
    pub(crate) fn on_deadline(
        &mut self,
        now: Time,
        c: &QpContext,
        host: &mut impl Host,
        mut process: impl FnMut() -> PeerProcess,
    ) -> Result<(), QpFailure> {
        self.fetch.on_deadline(now);
        if self.tx.deadline() <= now {
            self.tx.on_deadline(now);
            self.fetch.observe(now, &self.tx);
        }
        if let Some(ends) = self.discipline.ends_mut() {
            ends.receive.on_deadline(now);
            let late = ends.send.on_deadline(now);
            self.tally.timeouts += u64::from(late);
            host.counters().irn_read_timeouts += u64::from(late);
            if self.timer.deadline() <= now && !ends.send.is_flying() && self.tx.outstanding() {
                self.timer.hold(now, now, c);
            }
        }
        if self.timer.deadline() > now {
            return Ok(());
        }
        if !self.tx.outstanding() {
            self.timer.stop();
            return Ok(());
        }
        let (quick, n) = match self.timer.expired(now, c, &mut process) {
            Expiry::Nothing => return Ok(()),
            Expiry::Probe => {
                host.counters().tlp_probes += u64::from(self.tx.probe(false));
                self.fetch.observe(now, &self.tx);
                return Ok(());
            }
            Expiry::Timeout { quick, n } => (quick, n),
        };
        let extend = !self.discipline.is_pulled() && self.tx.timeout(quick, n);
        self.fetch.observe(now, &self.tx);
        if let Some(tlt) = self.discipline.tlt_mut().filter(|_| !extend) {
            tlt.timed_out(&self.tx);
        }
        if extend {
            self.timer.extend(now, c);
            host.counters().irn_timeouts_extended += 1;
            return Ok(());
        }
        if !self.discipline.is_pulled() {
            host.counters().irn_read_timeouts += 1;
            self.tally.timeouts += 1;
        }
        if !self.timer.timed_out(now, false, c, || PeerProcess::Gone) {
            self.timer.stop();
            self.peer_silent = true;
        }
        self.refuse_when_answered()
    }

    /// Handles a packet from the peer: if its responses were given up, they are resumed.
    #[inline]
    pub(crate) fn heard(&mut self, now: Time, c: &QpContext) {
        if std::mem::take(&mut self.peer_silent) && self.tx.outstanding() {
            self.timer.resume(now, c);
        }
    }
}
