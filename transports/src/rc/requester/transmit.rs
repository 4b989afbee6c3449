//! Request packets: their selection and construction. Any packet can be rebuilt from its WQE and its number.

use super::{Format, Requester};
use crate::packet::PacketClass;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure, ends, position};
use crate::qp::host::{Host, TxSlot};
use crate::qp::send_queue::{Fence, SendWqe};
use crate::qp::work::{SendOp, WcStatus};
use crate::rc::acks::Ack;
use crate::rc::discipline::{Chosen, Departure, Hooks, Turn, count_echo};
use crate::slack::Piece;
use crate::telemetry::Int;
use crate::time::Time;
use crate::wire::opcode::Position;
use crate::wire::{Aeth, AtomicEth, Credits, Feth, Headers, IrnEth, NakCode, Opcode, Reth, Syndrome, pad_for};

impl Requester {
    /// Returns whether [`Self::poll_acks`] or [`Self::poll_transmit`] may have something to send.
    #[inline]
    pub(crate) fn wants_tx(&self, sending: bool) -> bool {
        !self.read_acks.is_empty()
            || (self.rnr_until.is_none()
                && self.throttle.as_ref().is_none_or(|t| t.is_open())
                && if self.discipline.is_plain() {
                    self.fetch.wants_tx(&self.stream, self.has_more(sending))
                } else {
                    self.discipline.wants_tx(&self.fetch, &self.stream, self.has_more(sending))
                })
    }

    /// Returns whether a new packet may be sent now. `sending`: new WQEs may start (RTS, not SQD).
    #[inline]
    fn has_more(&self, sending: bool) -> bool {
        let high = self.stream.high();
        if self.format == Format::Negotiating && self.stream.outstanding() {
            return false;
        }
        if high != self.assigned {
            return self.credit_stop != Some(high) && self.broken.is_none();
        }
        sending && self.sq.started != self.sq.tail && self.may_start()
    }

    /// Returns whether the next WQE may start.
    pub(super) fn may_start(&self) -> bool {
        if self.broken.is_some() || self.credit_stop.is_some() {
            return false;
        }
        let w = self.sq.get(self.sq.started);
        if w.fence != Fence::NONE && self.is_fenced(w.fence) {
            return false;
        }
        match w.op {
            _ if w.op.is_read_or_atomic() => {
                // Responses in progress must not come near half of the sequence numbers: 1 GiB has 2²² of 256 bytes.
                let room =
                    self.format != Format::Irn || self.next_response.distance(self.responses.expected()) < 1 << 22;
                self.reads.len() < self.max_rd_atomic.into() && room || self.never_starts()
            }
            // In its turn, so that nothing before it still needs the key.
            SendOp::LocalInvalidate(_) | SendOp::BindMw { .. } => self.sq.head == self.sq.started,
            // IRN §4.4.4: no WRITE may arrive, and no READ be answered again, after the region is deregistered.
            SendOp::SendInvalidate(_)
                if self.format == Format::Irn && (self.stream.outstanding() || !self.reads.is_empty()) =>
            {
                false
            }
            _ if !w.op.takes_recv_wqe() => true,
            // Without credit one message may go as a probe (IBA 9.7.7.2.5).
            _ => self.credit_limit().is_none_or(|limit| self.ssn.plus(1).distance(limit) <= 1),
        }
    }

    /// Returns whether the next WQE, which has this fence, has to wait for any before it.
    #[cold]
    fn is_fenced(&self, fence: Fence) -> bool {
        fence.has(Fence::READS) && !self.reads.is_empty()
            || fence.has(Fence::OVERLAP) && self.sq.is_behind_overlap(self.sq.started)
    }

    /// Returns whether the next WQE has to fail, in its turn: a READ or atomic where none may be outstanding.
    fn never_starts(&self) -> bool {
        self.max_rd_atomic == 0 && self.sq.head == self.sq.started
    }

    /// Assigns sequence numbers to the next WQE.
    pub(in crate::rc) fn start_next(&mut self, c: &QpContext) {
        let index = self.sq.started;
        self.sq.started = index.wrapping_add(1);
        self.ssn = self.ssn.plus(1);
        let ssn = self.ssn;
        let limit = self.credit_limit();
        let w = self.sq.get_mut(index);
        (w.first, w.ssn) = (self.assigned, ssn);
        w.resp_arrived = 0;
        let message = c.packets(w.len);
        match w.op {
            _ if w.op.is_read_or_atomic() => {
                let response = if w.op == SendOp::Read { message } else { 1 };
                w.resp_packets = response;
                if self.format == Format::Irn {
                    w.packets = 1;
                    w.resp_first = self.next_response;
                    w.sn = self.next_read_sn;
                    self.next_response = self.next_response.plus(response);
                    self.next_read_sn = self.next_read_sn.plus(1);
                } else {
                    (w.packets, w.resp_first) = (response, w.first);
                }
                self.reads.push_back(index);
            }
            _ => {
                w.packets = message;
                if w.op.takes_recv_wqe() {
                    w.sn = self.next_recv_sn;
                    self.next_recv_sn = self.next_recv_sn.plus(1);
                    // A probe without credit: the first packet of a SEND, a WRITE with immediate whole.
                    let probe = limit.is_some_and(|limit| limit.before(ssn));
                    if probe && !matches!(w.op, SendOp::WriteImm(_)) && w.packets > 1 {
                        self.credit_stop = Some(w.first.plus(1));
                    }
                }
            }
        }
        self.assigned = w.first.plus(w.packets);
    }

    /// Executes WQEs without packets in their turn: local operations, and READs that have to fail.
    fn run_local(&mut self, c: &QpContext, host: &mut impl Host) -> Result<(), QpFailure> {
        while self.sq.started != self.sq.tail && self.broken.is_none() {
            let index = self.sq.started;
            let op = &self.sq.get(index).op;
            let local = op.is_local();
            if op.is_read_or_atomic() && self.never_starts() {
                self.sq.started = index.wrapping_add(1);
                return self.fail_wqe(index, WcStatus::LocQpOpErr, c, host);
            }
            if !local || self.sq.head != index {
                return Ok(());
            }
            let ssn = self.ssn;
            let w = self.sq.get_mut(index);
            (w.first, w.packets, w.ssn) = (self.assigned, 0, ssn);
            self.sq.started = index.wrapping_add(1);
            let outcome = self.sq.get(index).run_local(c, host);
            if let Err(status) = outcome {
                return self.fail_wqe(index, status, c, host);
            }
            self.complete(c, host)?;
        }
        Ok(())
    }

    /// Builds the next read acknowledgement; returns false if none waits.
    pub(crate) fn poll_acks(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> bool {
        let Some(ack) = self.read_acks.pop(c.evidence) else { return false };
        let expected = self.responses.expected();
        let (psn, sack, syndrome) = match ack.sack() {
            Some(sack) if !sack.last.before(expected) => {
                host.counters().irn_nacks_sent += 1;
                let sack = if c.evidence { self.responses.widen(sack) } else { sack };
                (expected, sack, Syndrome::Nak(NakCode::PsnSequenceError))
            }
            _ => (expected.minus(1), ack.subject(expected), Syndrome::Ack { credits: Credits::INVALID }),
        };
        host.counters().irn_read_acks_sent += 1;
        out.class = PacketClass::Ack;
        out.headers = c.headers(Opcode::RcReadAcknowledge, psn);
        out.headers.bth.ack_req = std::mem::take(&mut self.probe);
        out.headers.aeth = Some(Aeth { syndrome: syndrome.to_u8(), msn: self.responses.msn() });
        out.headers.irn = Some(IrnEth::Ack { selective: sack.last, run: sack.run });
        if let Ack::Echo(echo) = ack {
            count_echo(host.counters());
            out.headers.bth.importance = echo.importance;
        }
        true
    }

    /// Builds the next request packet; returns false if none may go now.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        sending: bool,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, QpFailure> {
        if self.rnr_until.is_some() {
            return Ok(false);
        }
        if self.throttle.as_mut().is_some_and(|t| !t.allows(now)) {
            return Ok(false);
        }
        if sending {
            self.run_local(c, host)?;
        }
        if self.format == Format::Negotiating && c.peer_capable {
            self.negotiate(c, true, host);
        }
        loop {
            let more = self.has_more(sending);
            let high = self.stream.high();
            let chosen = if self.discipline.is_plain() { Chosen::Stream } else { self.choose(now, more, c, host, out) };
            let psn = match chosen {
                Chosen::Packet(psn) => psn,
                Chosen::Built => return Ok(true),
                Chosen::Nothing => return Ok(false),
                Chosen::Stream => {
                    if !self.fetch.wants_tx(&self.stream, more) {
                        return Ok(false);
                    }
                    // Possibly only the look-ahead for the next hole was left to do.
                    let Some(psn) = self.fetch.tx_free(now, &mut self.stream, more) else { continue };
                    psn
                }
            };
            if psn == self.assigned {
                self.start_next(c);
            }
            // An error below ends the WQE, not the loop: the packets before it still count.
            let Some(index) = self.sq.find(psn, &mut self.hint) else { continue };
            if self.broken.is_some_and(|(b, _)| index.wrapping_sub(self.sq.head) >= b.wrapping_sub(self.sq.head)) {
                return Ok(false);
            }
            let fresh = !psn.before(high);
            if !fresh {
                host.counters().retransmitted_pkts += 1;
                self.tally.retransmitted += 1;
            }
            out.class = PacketClass::of_data(fresh);
            out.gather.clear();
            match self.build(index, psn, fresh, c, host, out) {
                Ok(()) => {
                    if c.service.is_xrc() {
                        out.headers.xrc = self.sq.remote_srqn(index);
                    }
                    let mut measured = fresh;
                    if !self.discipline.is_plain() {
                        measured &= self.mark(now, psn, high, sending, c, host, out);
                    }
                    // A READ's request may have covered more.
                    self.fetch.observe(now, &self.stream);
                    self.timer.sent(now, psn, measured, c);
                    if psn == self.stream.acked() {
                        self.timer.alive(now);
                    }
                    if self.throttle.is_some() {
                        self.count_sent(now, index, psn, fresh, out);
                    }
                    return Ok(true);
                }
                Err(status) => self.fail_wqe(index, status, c, host)?,
            }
        }
    }

    /// Selects what to send. `more`: a new packet waits.
    #[cold]
    fn choose(&mut self, now: Time, more: bool, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> Chosen {
        let high = self.stream.high();
        let (fetch, stream) = (&mut self.fetch, &mut self.stream);
        let chosen = self.discipline.choose(Turn { now, fetch, stream, more, clock: Opcode::RcClock }, c, host, out);
        match chosen {
            Chosen::Packet(psn) if psn.before(high) => self.stream.repeated(now, psn),
            Chosen::Built if self.throttle.as_ref().is_some_and(|throttle| throttle.wants_telemetry()) => {
                out.telemetry = Some(Int::EMPTY);
            }
            _ => {}
        }
        chosen
    }

    /// Marks the packet at `psn` for the peer and for switches; everything before `high` had been sent. Returns whether
    /// its acknowledgement will measure a round trip.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "the state of one packet")]
    fn mark(
        &mut self,
        now: Time,
        psn: Psn,
        high: Psn,
        sending: bool,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> bool {
        let more = self.has_more(sending);
        let (follows, srtt) = (self.fetch.wants_tx(&self.stream, more), self.timer.srtt());
        self.discipline.mark(&Departure { now, psn, high, more, follows, srtt }, &self.stream, c, host, out)
    }

    /// Reports a departing packet to congestion control. A READ counts as its response (TIMELY §5).
    #[inline(never)]
    fn count_sent(&mut self, now: Time, index: u32, psn: Psn, fresh: bool, out: &mut TxSlot) {
        let Some(throttle) = &mut self.throttle else { return };
        let w = self.sq.get(index);
        let payload = out.gather.segments().iter().map(|s| s.len).sum();
        let bytes = match (w.op, &out.headers.reth) {
            (SendOp::Read, Some(reth)) => reth.len,
            _ => payload,
        };
        let ends = psn.plus(1) == w.first.plus(w.packets) || w.op.is_read_or_atomic();
        let needs_ack = throttle.on_send(now, psn, fresh, payload, bytes, ends);
        out.headers.bth.ack_req |= needs_ack;
        if throttle.wants_telemetry() {
            out.telemetry = Some(Int::EMPTY);
        }
    }

    /// Builds the packet of WQE `index` at `psn`.
    pub(in crate::rc) fn build(
        &mut self,
        index: u32,
        psn: Psn,
        fresh: bool,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<(), WcStatus> {
        let w = *self.sq.get(index);
        let k = psn.distance(w.first) as u32;
        let irn = self.format == Format::Irn;
        if w.op.is_read_or_atomic() {
            self.build_read(&w, k, psn, c, &mut out.headers);
            if let SendOp::AtomicWrite(value) = &self.sq.get(index).op {
                out.gather.push(value.as_ptr() as u64, 8);
            }
            return Ok(());
        }
        let position = position(k, w.packets);
        let offset = k * c.mtu;
        let len = (w.len - offset).min(c.mtu);
        if c.slack {
            out.piece = Piece { of: w.len, at: offset, len };
        }
        if w.is_inline() {
            out.gather.push(self.sq.inline_data(index)[offset as usize..].as_ptr() as u64, len);
        } else {
            out.gather.stable = true;
            host.gather_local(c.pd, self.sq.sges(index), u64::from(offset), len, &mut out.gather)
                .map_err(|_| WcStatus::LocProtErr)?;
        }
        let headers = &mut out.headers;
        *headers = c.headers(opcode(&w.op, position), psn);
        headers.bth.pad = pad_for(len as usize);
        let ends = ends(position);
        headers.bth.solicited = ends && w.solicited;
        let is_due = || c.config.ack_every.is_some_and(|every| k % every == every - 1);
        headers.bth.ack_req = irn || ends || !fresh || is_due() || self.must_ask(psn);
        match w.op {
            SendOp::Write | SendOp::WriteImm(_) => {
                if irn || k == 0 {
                    headers.reth = Some(Reth {
                        va: w.remote_addr.wrapping_add(u64::from(offset)),
                        rkey: w.rkey,
                        len: w.len - offset,
                    });
                }
                headers.irn = irn.then_some(match w.op {
                    SendOp::WriteImm(_) if ends => IrnEth::WriteImm { recv_wqe_sn: w.sn, psn_offset: k },
                    _ => IrnEth::Write,
                });
            }
            _ => headers.irn = irn.then_some(IrnEth::Send { recv_wqe_sn: w.sn, psn_offset: k }),
        }
        if ends {
            match w.op {
                SendOp::SendImm(imm) | SendOp::WriteImm(imm) => headers.imm = Some(imm),
                SendOp::SendInvalidate(rkey) => headers.ieth = Some(rkey),
                _ => {}
            }
        }
        let counters = host.counters();
        counters.sent_bytes += u64::from(len);
        Ok(())
    }

    /// Returns whether this packet has to request an acknowledgement, as the last one that may be sent for now.
    fn must_ask(&self, psn: Psn) -> bool {
        self.format == Format::Negotiating || self.credit_stop == Some(psn.plus(1)) || self.stream.is_full()
    }

    /// Builds a request with a response: a READ, atomic, ATOMIC WRITE or FLUSH. A plain READ that is resent requests
    /// only the rest.
    fn build_read(&mut self, w: &SendWqe, k: u32, psn: Psn, c: &QpContext, headers: &mut Headers) {
        let irn = self.format == Format::Irn;
        let reth = |done: u32, len| Reth { va: w.remote_addr.wrapping_add(u64::from(done)), rkey: w.rkey, len };
        let atomic = |swap_add, compare| AtomicEth { va: w.remote_addr, rkey: w.rkey, swap_add, compare };
        match w.op {
            SendOp::CompareSwap { compare, swap } => {
                *headers = c.headers(Opcode::RcCompareSwap, psn);
                headers.atomic = Some(atomic(swap, compare));
            }
            SendOp::FetchAdd { add } => {
                *headers = c.headers(Opcode::RcFetchAdd, psn);
                headers.atomic = Some(atomic(add, 0));
            }
            SendOp::AtomicWrite(_) => {
                *headers = c.headers(Opcode::RcAtomicWrite, psn);
                headers.reth = Some(reth(0, 8));
            }
            SendOp::Flush { len, placement, selectivity } => {
                *headers = c.headers(Opcode::RcFlush, psn);
                headers.feth = Some(Feth { placement, selectivity });
                headers.reth = Some(reth(0, len));
            }
            _ => {
                *headers = c.headers(Opcode::RcReadRequest, psn);
                let done = if irn { w.resp_arrived } else { k } * c.mtu;
                let mut len = w.len - done;
                if !irn {
                    let mut packets = w.packets - k;
                    if self.format == Format::Negotiating && packets > 1 {
                        // One packet suffices to learn the peer's format; `negotiate` handles the rest.
                        (packets, len) = (1, len.min(c.mtu));
                    }
                    self.stream.cover(packets);
                }
                headers.reth = Some(reth(done, len));
            }
        }
        headers.bth.ack_req = true;
        headers.irn = irn.then_some(IrnEth::Read { read_wqe_sn: w.sn });
    }
}

fn opcode(op: &SendOp, position: Position) -> Opcode {
    use Opcode::*;
    match (op, position) {
        (SendOp::Write | SendOp::WriteImm(_), Position::First) => RcWriteFirst,
        (SendOp::Write | SendOp::WriteImm(_), Position::Middle) => RcWriteMiddle,
        (SendOp::Write, Position::Last) => RcWriteLast,
        (SendOp::Write, Position::Only) => RcWriteOnly,
        (SendOp::WriteImm(_), Position::Last) => RcWriteLastImm,
        (SendOp::WriteImm(_), Position::Only) => RcWriteOnlyImm,
        (_, Position::First) => RcSendFirst,
        (_, Position::Middle) => RcSendMiddle,
        (SendOp::SendImm(_), Position::Last) => RcSendLastImm,
        (SendOp::SendImm(_), Position::Only) => RcSendOnlyImm,
        (SendOp::SendInvalidate(_), Position::Last) => RcSendLastInvalidate,
        (SendOp::SendInvalidate(_), Position::Only) => RcSendOnlyInvalidate,
        (_, Position::Last) => RcSendLast,
        (_, Position::Only) => RcSendOnly,
    }
}
