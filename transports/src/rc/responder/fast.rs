//! The responder's part of the fast path: ordinary requests in order, their acknowledgements, and responses.

use super::Responder;
use super::answered::{ReadKind, ReadOp};
use crate::packet::{PacketClass, Payload};
use crate::psn::Psn;
use crate::qp::access::Access;
use crate::qp::context::{QpContext, position};
use crate::qp::host::{AtomicOp, Fast, Host, TxSlot};
use crate::qp::send_queue::MAX_MESSAGE;
use crate::qp::work::{Wc, WcOpcode};
use crate::recovery::Class;
use crate::slack::Piece;
use crate::time::Time;
use crate::wire::opcode::Position;
use crate::wire::{Aeth, AtomicEth, FastAck, FastFrame, FastOp, MAX_FAST_PAYLOAD, Reth, Syndrome, pad_for};

impl Responder {
    /// Executes a request as [`Self::receive`] would. Returns false, and changes nothing, if that would do anything out
    /// of the ordinary.
    #[inline]
    pub(in crate::rc) fn receive_fast(&mut self, c: &QpContext, frame: &FastFrame<'_>, host: &mut impl Host) -> bool {
        let ordinary = self.irn
            && frame.psn == self.rx.expected()
            && !self.rx.has_gap()
            && self.discipline.is_plain()
            && self.pending.is_none()
            && !self.peer_silent;
        let (len, payload) = (frame.payload.len(), Payload::Bytes(frame.payload));
        if !ordinary || len > c.mtu as usize {
            return false;
        }
        let mut byte_len = len as u32;
        let class = match frame.op {
            FastOp::Send { recv_wqe_sn } => {
                let Some(wqe) = self.rq.oldest_untouched(recv_wqe_sn) else { return false };
                if len as u64 > wqe.len() || host.place_local(c.pd, wqe.sges, 0, &payload).is_err() {
                    return false;
                }
                Class::LastWithCqe
            }
            FastOp::Write(reth) => {
                let granted = c.access.allows(Access::REMOTE_WRITE) && reth.len as usize == len;
                if !granted
                    || len > 0 && host.place_remote(c.caller(), reth.rkey, reth.va, len as u64, &payload).is_err()
                {
                    return false;
                }
                host.counters().rx_write_requests += 1;
                Class::Last
            }
            FastOp::Read { reth, read_wqe_sn } => {
                if !self.run_fast_read(c, &reth, (frame.psn, read_wqe_sn), host) {
                    return false;
                }
                Class::Last
            }
            FastOp::Atomic { atomic, compares, read_wqe_sn } => {
                if !self.run_fast_atomic(c, &atomic, compares, (frame.psn, read_wqe_sn), host) {
                    return false;
                }
                Class::Last
            }
            FastOp::SendPart { .. } | FastOp::WritePart { .. } => match self.place_part(c, frame, host) {
                Some((class, bytes)) => {
                    byte_len = bytes;
                    class
                }
                None => return false,
            },
            _ => return false,
        };
        host.counters().rcvd_bytes += len as u64;
        self.plain_peer |= !frame.irn_capable;
        self.rx.receive_data(frame.psn, class);
        self.acks.push_cumulative();
        if class == Class::LastWithCqe
            && let Some(wr_id) = self.rq.pop()
        {
            let (opcode, solicited) = (WcOpcode::Recv, frame.solicited);
            let wc = Wc { wr_id, opcode, byte_len, qp_num: c.qpn, solicited, ..Wc::EMPTY };
            host.complete(c.recv_cq, wc, self.rq.frees());
        }
        true
    }

    /// Places a packet of a longer SEND or WRITE. Returns what it ends, and the length of the message up to here;
    /// `None`, and nothing changes, if it may be out of the ordinary.
    #[inline(never)]
    fn place_part(&mut self, c: &QpContext, frame: &FastFrame<'_>, host: &mut impl Host) -> Option<(Class, u32)> {
        let (len, payload) = (frame.payload.len() as u32, Payload::Bytes(frame.payload));
        let fits = |position| if position == Position::Last { (1..=c.mtu).contains(&len) } else { len == c.mtu };
        match frame.op {
            FastOp::SendPart { position, recv_wqe_sn, psn_offset } => {
                let starts = position == Position::First;
                let offset = psn_offset.checked_mul(c.mtu).filter(|&offset| offset <= MAX_MESSAGE)?;
                let wqe = self.rq.oldest_untouched(recv_wqe_sn)?;
                let most = wqe.len().min(u64::from(MAX_MESSAGE));
                if !fits(position) || starts != (psn_offset == 0) || u64::from(offset) + u64::from(len) > most {
                    return None;
                }
                let late = position != Position::Last;
                host.placing(late, |host| host.place_local(c.pd, wqe.sges, u64::from(offset), &payload)).ok()?;
                Some((if late { Class::Middle } else { Class::LastWithCqe }, offset + len))
            }
            FastOp::WritePart { position, reth } => {
                let ends = position == Position::Last;
                let right = if ends { reth.len == len } else { reth.len > len };
                if !fits(position) || !right || reth.len > MAX_MESSAGE || !c.access.allows(Access::REMOTE_WRITE) {
                    return None;
                }
                let (by, all) = (c.caller(), u64::from(reth.len));
                host.placing(!ends, |host| host.place_remote(by, reth.rkey, reth.va, all, &payload)).ok()?;
                host.counters().rx_write_requests += u64::from(position == Position::First);
                Some((if ends { Class::Last } else { Class::Middle }, len))
            }
            _ => None,
        }
    }

    /// Executes a READ, the request at `psn`. Returns false, and changes nothing, if it may be out of the ordinary.
    #[inline]
    fn run_fast_read(&mut self, c: &QpContext, reth: &Reth, at: (Psn, Psn), host: &mut impl Host) -> bool {
        let Reth { va, rkey, len } = *reth;
        let granted = c.access.allows(Access::REMOTE_READ)
            && len <= MAX_MESSAGE
            && (len == 0 || host.check_remote(c.caller(), rkey, va, u64::from(len), Access::REMOTE_READ).is_ok());
        granted && self.run_fast(c, ReadKind::Read, (rkey, va, len), at, host)
    }

    /// Executes an atomic in the same way.
    #[inline]
    fn run_fast_atomic(
        &mut self,
        c: &QpContext,
        atomic: &AtomicEth,
        compares: bool,
        at: (Psn, Psn),
        host: &mut impl Host,
    ) -> bool {
        let AtomicEth { va, rkey, swap_add, compare } = *atomic;
        let op = match compares {
            true => AtomicOp::CompareSwap { compare, swap: swap_add },
            false => AtomicOp::FetchAdd { add: swap_add },
        };
        // Its execution checks the address.
        c.access.allows(Access::REMOTE_ATOMIC) && self.run_fast(c, ReadKind::Atomic(op), (rkey, va, 8), at, host)
    }

    /// Executes a request with a response and adds it to the Read WQE buffer.
    #[inline]
    fn run_fast(
        &mut self,
        c: &QpContext,
        kind: ReadKind,
        (rkey, va, len): (u32, u64, u32),
        (psn, sn): (Psn, Psn),
        host: &mut impl Host,
    ) -> bool {
        // The first one allocates the buffer, and without room it acknowledges an earlier response.
        let oldest = sn.minus(u32::from(self.depth).wrapping_sub(1));
        if self.buffer.is_empty() || self.depth == 0 || sn != self.next_read_sn || self.oldest_read_sn.before(oldest) {
            return false;
        }
        let slot = self.read_slot(sn);
        if self.buffer[slot].is_some() {
            return false;
        }
        let packets = if matches!(kind, ReadKind::Read) { c.packets(len) } else { 1 };
        let mut op = ReadOp { sn, psn, kind, rkey, va, len, pd: c.pd, first: self.tx_assigned, packets };
        if self.execute(c, &mut op, host).is_err() {
            return false;
        }
        self.tx_assigned = op.first.plus(packets);
        self.buffer[slot] = Some(op);
        self.next_read_sn = sn.plus(1);
        true
    }

    /// Handles a positive read acknowledgement as [`Self::receive`] would. Returns false, and changes nothing, if that
    /// would do anything out of the ordinary.
    #[inline]
    pub(in crate::rc) fn receive_fast_ack(
        &mut self,
        now: Time,
        c: &QpContext,
        ack: &FastAck,
        host: &mut impl Host,
    ) -> bool {
        let ordinary = self.irn && self.discipline.is_plain() && self.pending.is_none() && !self.peer_silent;
        if !ordinary || !matches!(Syndrome::from_u8(ack.aeth.syndrome), Some(Syndrome::Ack { .. })) {
            return false;
        }
        let cumulative = ack.psn.plus(1);
        let (before, spurious) = (self.tx.acked(), self.tx.spurious());
        if !self.tx.receive_ack(now, cumulative, None) {
            return false;
        }
        self.timer.measured(now, &mut self.tx, c);
        host.counters().irn_spurious_timeouts += u64::from(self.tx.spurious().wrapping_sub(spurious));
        self.fetch.observe(now, &self.tx);
        host.counters().irn_read_acks_rcvd += 1;
        if before.before(cumulative) {
            self.timer.progress(now, self.tx.outstanding(), self.tx.acked(), c);
            self.free_acknowledged();
        }
        true
    }

    /// Builds the next packet as [`Self::poll_transmit`] would, if it is a cumulative acknowledgement. Otherwise
    /// changes nothing.
    #[inline]
    pub(in crate::rc) fn poll_fast_ack(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> Fast {
        if !self.has_ack() {
            return Fast::FullPath;
        }
        let ack = self.take_ack(c, host);
        out.class = PacketClass::Ack;
        out.fast.set_ack(c.dest_qp, &ack);
        Fast::Built(0)
    }

    /// Builds the next packet as [`Self::poll_transmit`] would, if it is a cumulative acknowledgement, or a packet of a
    /// response that is sent for the first time: together with one of a small response, unless each has to go alone.
    /// Otherwise changes nothing.
    #[inline(never)]
    pub(in crate::rc) fn poll_fast_answer(
        &mut self,
        now: Time,
        alone: bool,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Fast {
        if !self.has_ack() {
            let owes_ack = self.cnp || self.nak.is_some() || !self.acks.is_empty();
            return if owes_ack { Fast::FullPath } else { self.poll_fast_response(now, false, c, host, out) };
        }
        if !alone && let made @ Fast::Built(_) = self.poll_fast_response(now, true, c, host, out) {
            out.fast.carry(&FastAck { first: true, ..self.take_ack(c, host) });
            out.is_last = !self.wants_tx();
            return made;
        }
        self.poll_fast_ack(c, host, out)
    }

    /// Builds the next packet as [`Self::poll_transmit`] would if no acknowledgement waited, if it is one of a response
    /// that is sent for the first time; `small`: and one that may carry an acknowledgement. Otherwise changes nothing.
    fn poll_fast_response(
        &mut self,
        now: Time,
        small: bool,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Fast {
        let ordinary = self.irn
            && self.has_response()
            && self.discipline.is_plain()
            && !self.cnp
            && self.nak.is_none()
            && self.pending.is_none()
            && !self.peer_silent
            && !self.fetch.pending();
        if !ordinary || !self.tx.is_fresh() || self.tx.is_full() {
            return Fast::FullPath;
        }
        let psn = self.tx.high();
        let Some(op) = self.find_op(psn) else { return Fast::FullPath };
        let k = psn.distance(op.first) as u32;
        let (at, offset) = (position(k, op.packets), k * c.mtu);
        let len = match op.kind {
            ReadKind::AtomicDone(_) => 0,
            ReadKind::Read => (op.len - offset).min(c.mtu),
            _ => return Fast::FullPath,
        };
        if small && (at != Position::Only || len > MAX_FAST_PAYLOAD as u32) {
            return Fast::FullPath;
        }
        let (piece, va) = (Piece { of: op.len, at: offset, len }, op.va.wrapping_add(u64::from(offset)));
        if len > 0 && host.gather_remote(op.caller(c), op.rkey, va, piece, &mut out.gather).is_err() {
            out.gather.clear();
            return Fast::FullPath;
        }
        let sent = self.fetch.tx_free(now, &mut self.tx, true);
        debug_assert_eq!(sent, Some(psn), "the window has room, and nothing goes first");
        self.timer.sent(now, psn, true, c);
        if psn == self.tx.acked() {
            self.timer.alive(now);
        }
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: self.credits(c) }.to_u8(), msn: self.rx.msn() };
        out.class = PacketClass::Data;
        match op.kind {
            ReadKind::AtomicDone(value) => out.fast.set_atomic_ack(c.dest_qp, psn, &aeth, value),
            _ => out.fast.set_response((c.dest_qp, psn, at), pad_for(len as usize), &aeth),
        }
        host.counters().sent_bytes += u64::from(len);
        Fast::Built(len)
    }

    /// Returns whether the next packet would be a cumulative acknowledgement.
    #[inline(always)]
    pub(in crate::rc) fn has_ack(&self) -> bool {
        self.irn && !(self.cnp || self.marked || self.unanswered) && self.nak.is_none() && self.acks.is_cumulative()
    }

    /// Returns whether a new response waits.
    #[inline]
    pub(in crate::rc) fn has_response(&self) -> bool {
        self.tx.high() != self.tx_assigned
    }

    /// Returns the cumulative acknowledgement that [there is](Self::has_ack), which then counts as sent.
    #[inline]
    pub(in crate::rc) fn take_ack(&mut self, c: &QpContext, host: &mut impl Host) -> FastAck {
        self.acks.pop_cumulative();
        host.counters().sent_acks += 1;
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: self.credits(c) }.to_u8(), msn: self.rx.msn() };
        FastAck { psn: self.rx.expected().minus(1), aeth, of_responses: false, first: false }
    }
}
