//! Packets sent by the responder: acknowledgements, NAKs, READ and atomic responses; and the timer of IRN's response
//! stream.

use super::{ReadKind, ReadOp, Responder};
use crate::packet::PacketClass;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure, position};
use crate::qp::host::{Host, MemError, PeerProcess, TxSlot};
use crate::rc::acks::Ack;
use crate::rc::discipline::{Chosen, Departure, Hooks, Turn, count_echo};
use crate::rc::timer::Expiry;
use crate::recovery::Sack;
use crate::slack::Piece;
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
            self.discipline.wants_tx(&self.fetch, &self.tx, more)
        }
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
            count_echo(counters);
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

    pub(in crate::rc) fn acknowledgement(
        &mut self,
        c: &QpContext,
        psn: Psn,
        sack: Sack,
        syndrome: Syndrome,
        out: &mut TxSlot,
    ) {
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
    pub(in crate::rc) fn credits(&mut self, c: &QpContext) -> Credits {
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
            let chosen = if self.discipline.is_plain() { Chosen::Stream } else { self.choose(now, more, c, host, out) };
            let psn = match chosen {
                Chosen::Packet(psn) => psn,
                Chosen::Built => return Ok(true),
                Chosen::Nothing => return Ok(false),
                Chosen::Stream => {
                    // Possibly only the look-ahead for the next hole was left to do.
                    let Some(psn) = self.fetch.tx_free(now, &mut self.tx, more) else { continue };
                    psn
                }
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
            if made && !self.discipline.is_plain() {
                self.mark(now, psn, high, c, host, out);
            }
            return Ok(made);
        }
    }

    /// Selects what to send of the response stream. `more`: a new packet waits.
    #[cold]
    fn choose(&mut self, now: Time, more: bool, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> Chosen {
        let (fetch, stream) = (&mut self.fetch, &mut self.tx);
        self.discipline.choose(Turn { now, fetch, stream, more, clock: Opcode::RcReadClock }, c, host, out)
    }

    /// Marks the packet at `psn`; everything before `high` had been sent.
    #[cold]
    fn mark(&mut self, now: Time, psn: Psn, high: Psn, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) {
        let more = self.tx.high() != self.tx_assigned;
        let (follows, srtt) = (self.fetch.wants_tx(&self.tx, more), self.timer.srtt());
        self.discipline.mark(&Departure { now, psn, high, more, follows, srtt }, &self.tx, c, host, out);
    }

    pub(super) fn find_op(&self, psn: Psn) -> Option<ReadOp> {
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
            false => host.gather_remote(by, op.rkey, va, Piece { of: op.len, at: offset, len }, gather),
            true => host.gather_again(by, op.rkey, va, len, gather),
        };
        if let Err(error) = gathered {
            // The region was deregistered between request and response, or a driver failed. The PSN is that of the
            // request packet that last requested it: in plain RoCE, where a requester repeats only the rest of a
            // response, it may be any of the response's.
            let copy = matches!(error, MemError::Copy(_));
            let code = if copy { NakCode::RemoteOperationalError } else { NakCode::RemoteAccessError };
            let nak = (if self.irn { op.psn } else { psn }, Syndrome::Nak(code));
            gather.clear();
            if again {
                // A requester that has the response may have released the region: this notifies one that has not, and
                // is ignored by one that has.
                self.jobs.clear();
                self.nak = Some(nak);
                return Ok(false);
            }
            host.counters().resp_remote_access_errors += u64::from(!copy);
            host.counters().resp_remote_errors += 1;
            self.terminal_nak = Some(nak);
            return Err(if copy { QpFailure::Request } else { QpFailure::Access });
        }
        host.counters().sent_bytes += u64::from(len);
        Ok(true)
    }

    /// Returns when [`Self::on_deadline`] is due, except for the discipline.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Time {
        self.timer.deadline().min(self.fetch.deadline()).min(self.tx.deadline())
    }

    /// Returns when [`Self::on_deadline`] is due for the discipline.
    pub(crate) fn rare_deadline(&self) -> Time {
        self.discipline.next_deadline()
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
        if !self.discipline.is_plain() {
            self.run_discipline(now, c, host);
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
        let extend = !self.discipline.recovers() && self.tx.timeout(quick, n);
        self.fetch.observe(now, &self.tx);
        if !extend {
            self.discipline.on_timeout(&self.tx);
        }
        if extend {
            self.timer.extend(now, c);
            host.counters().irn_timeouts_extended += 1;
            return Ok(());
        }
        if !self.discipline.recovers() {
            host.counters().irn_read_timeouts += 1;
            self.tally.timeouts += 1;
        }
        if !self.timer.timed_out(now, false, c, || PeerProcess::Dead) {
            self.timer.stop();
            self.peer_silent = true;
        }
        self.refuse_when_answered()
    }

    /// Runs the discipline's timers.
    fn run_discipline(&mut self, now: Time, c: &QpContext, host: &mut impl Host) {
        let due = self.discipline.on_deadline(now, &self.tx, self.timer.srtt(), 0);
        self.tally.timeouts += u64::from(due.late);
        host.counters().irn_read_timeouts += u64::from(due.late);
        if due.hold && self.timer.deadline() <= now && self.tx.outstanding() {
            self.timer.hold(now, now, c);
        }
    }

    /// Handles a packet from the peer: if its responses were given up, they are resumed.
    #[inline]
    pub(crate) fn heard(&mut self, now: Time, c: &QpContext) {
        if std::mem::take(&mut self.peer_silent) && self.tx.outstanding() {
            self.timer.resume(now, c);
        }
    }
}
