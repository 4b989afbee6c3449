//! The requester's part of the fast path: SENDs and WRITEs, READ and atomic requests and their responses, and positive
//! acknowledgements.

use super::{Format, Requester};
use crate::packet::{PacketClass, Payload};
use crate::psn::Psn;
use crate::qp::context::{QpContext, ends, position};
use crate::qp::host::{Fast, Host, TxSlot};
use crate::qp::work::SendOp;
use crate::recovery::Class;
use crate::time::Time;
use crate::wire::{Aeth, AtomicEth, Credits, FastAck, FastFrame, FastOp, MAX_FAST_PAYLOAD, Reth, Syndrome, pad_for};

impl Requester {
    /// Returns whether requests are of the ordinary kind.
    #[inline]
    fn is_ordinary(&self) -> bool {
        self.format == Format::Irn && self.throttle.is_none() && self.discipline.is_plain() && self.broken.is_none()
    }

    /// Handles a positive acknowledgement as [`Self::receive`] would. Returns false, and changes nothing, if that would
    /// do anything out of the ordinary.
    #[inline]
    pub(in crate::rc) fn receive_fast_ack(
        &mut self,
        now: Time,
        c: &QpContext,
        ack: &FastAck,
        host: &mut impl Host,
    ) -> bool {
        if !self.is_ordinary() || !matches!(Syndrome::from_u8(ack.aeth.syndrome), Some(Syndrome::Ack { .. })) {
            return false;
        }
        let cumulative = ack.psn.plus(1);
        let (before, spurious) = (self.stream.acked(), self.stream.spurious());
        if !self.stream.receive_ack(now, cumulative, None) {
            return false;
        }
        self.take_sample(now, c);
        self.update_credits(&ack.aeth);
        if before.before(cumulative) {
            self.advanced(now, cumulative, c);
        }
        host.counters().irn_spurious_timeouts += u64::from(self.stream.spurious().wrapping_sub(spurious));
        self.fetch.observe(now, &self.stream);
        let completed = self.complete(c, host);
        debug_assert!(completed.is_ok(), "only a broken one fails");
        true
    }

    /// Handles a packet of the response to the oldest READ or atomic as [`Self::receive`] would. Returns false, and
    /// changes nothing, if that would do anything out of the ordinary.
    #[inline]
    pub(in crate::rc) fn receive_fast_response(
        &mut self,
        now: Time,
        c: &QpContext,
        frame: &FastFrame<'_>,
        host: &mut impl Host,
    ) -> bool {
        let in_order = frame.psn == self.responses.expected() && !self.responses.has_gap();
        let Some(&index) = self.reads.front().filter(|_| self.is_ordinary() && in_order) else { return false };
        let w = self.sq.get(index);
        let k = frame.psn.distance(w.resp_first) as u32;
        if k >= w.resp_packets || w.resp_arrived != 0 {
            return false;
        }
        let value;
        let offset = k * c.mtu;
        let expected = w.len.wrapping_sub(offset).min(c.mtu);
        let (payload, bytes) = match (frame.op, w.op) {
            (FastOp::Response(_), SendOp::Read) if frame.payload.len() == expected as usize => {
                (frame.payload, expected)
            }
            (FastOp::AtomicAck(old), SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) => {
                // The verbs deliver it in host byte order.
                value = old.to_ne_bytes();
                (&value[..], 0)
            }
            _ => return false,
        };
        let request_end = w.first.plus(1);
        let class = if k + 1 == w.resp_packets { Class::Last } else { Class::Middle };
        let (late, sges) = (class == Class::Middle, self.sq.sges(index));
        if host.placing(late, |host| host.place_local(c.pd, sges, u64::from(offset), &Payload::Bytes(payload))).is_err()
        {
            return false;
        }
        host.counters().rcvd_bytes += u64::from(bytes);
        let spurious = self.stream.spurious();
        self.responses.receive_data(frame.psn, class);
        self.read_acks.push_cumulative();
        // A READ is executed once every request up to it has arrived, so its response acknowledges them.
        self.acknowledge(now, c, request_end);
        self.progressed(now, c);
        while let Some(&index) = self.reads.front()
            && self.is_done(index)
        {
            self.reads.pop_front();
        }
        host.counters().irn_spurious_timeouts += u64::from(self.stream.spurious().wrapping_sub(spurious));
        self.fetch.observe(now, &self.stream);
        let completed = self.complete(c, host);
        debug_assert!(completed.is_ok(), "only a broken one fails");
        true
    }

    /// Returns whether the next packet may be one of the fast path.
    #[inline]
    pub(in crate::rc) fn may_be_fast(&self) -> bool {
        self.format == Format::Irn
    }

    /// Returns whether read acknowledgements wait.
    #[inline]
    pub(in crate::rc) fn owes_acks(&self) -> bool {
        !self.read_acks.is_empty()
    }

    /// Returns whether the next packet is a cumulative read acknowledgement.
    #[inline]
    pub(in crate::rc) fn has_read_ack(&self) -> bool {
        self.read_acks.is_cumulative() && !self.probe
    }

    /// Returns the read acknowledgement that [there is](Self::has_read_ack), which then counts as sent.
    #[inline]
    pub(in crate::rc) fn take_read_ack(&mut self, host: &mut impl Host) -> FastAck {
        self.read_acks.pop_cumulative();
        host.counters().irn_read_acks_sent += 1;
        let syndrome = Syndrome::Ack { credits: Credits::INVALID }.to_u8();
        let aeth = Aeth { syndrome, msn: self.responses.msn() };
        FastAck { psn: self.responses.expected().minus(1), aeth, of_responses: true, first: true }
    }

    /// Builds the read acknowledgement that [there is](Self::has_read_ack) as a packet of its own.
    #[inline(never)]
    pub(in crate::rc) fn poll_fast_read_ack(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> Fast {
        let ack = self.take_read_ack(host);
        out.class = PacketClass::Ack;
        out.fast.set_ack(c.dest_qp, &ack);
        Fast::Built(0)
    }

    /// Returns whether a packet was never sent.
    #[inline]
    pub(in crate::rc) fn has_fresh(&self) -> bool {
        self.sq.started != self.sq.tail || self.stream.high() != self.assigned
    }

    /// Returns whether the next packet that was never sent begins a message, and may carry an acknowledgement.
    #[inline]
    pub(in crate::rc) fn may_carry(&self, c: &QpContext) -> bool {
        if self.sq.started == self.sq.tail || self.stream.high() != self.assigned {
            return false;
        }
        let w = self.sq.get(self.sq.started);
        w.len <= c.mtu.min(MAX_FAST_PAYLOAD as u32) || w.op.is_read_or_atomic()
    }

    /// Returns whether there is nothing to send.
    #[inline]
    pub(in crate::rc) fn is_idle(&self) -> bool {
        !self.has_fresh() && self.read_acks.is_empty() && self.is_ordinary() && self.stream.is_fresh()
    }

    /// Builds the next packet as [`Self::poll_transmit`] would, if it is of a SEND or WRITE, or a READ or atomic
    /// request, and sent for the first time.
    #[inline]
    pub(in crate::rc) fn poll_fast(
        &mut self,
        now: Time,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Fast {
        if !self.is_ordinary() || self.rnr_until.is_some() || !self.stream.is_fresh() {
            return Fast::FullPath;
        }
        if self.stream.high() != self.assigned {
            return self.poll_fast_part(now, false, c, host, out);
        }
        let index = self.sq.started;
        if index == self.sq.tail {
            return Fast::Nothing;
        }
        let w = self.sq.get(index);
        let write = match w.op {
            SendOp::Send => false,
            SendOp::Write => true,
            SendOp::Read | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                return self.poll_fast_answered(now, c, out);
            }
            SendOp::SendImm(_) | SendOp::WriteImm(_) | SendOp::SendInvalidate(_) if w.len > c.mtu => {
                return self.poll_fast_part(now, false, c, host, out);
            }
            _ => return Fast::FullPath,
        };
        let (len, solicited) = (w.len, w.solicited);
        let reth = Reth { va: w.remote_addr, rkey: w.rkey, len };
        if len > c.mtu.min(MAX_FAST_PAYLOAD as u32) {
            return self.poll_fast_part(now, false, c, host, out);
        }
        if !self.may_start() {
            return Fast::FullPath;
        }
        if w.is_inline() {
            out.gather.push(self.sq.inline_data(index).as_ptr() as u64, len);
        } else if host.gather_local(c.pd, self.sq.sges(index), 0, len, &mut out.gather).is_err() {
            out.gather.clear();
            return Fast::FullPath;
        }
        let Some(psn) = self.start_fast(now, c) else {
            out.gather.clear();
            return Fast::FullPath;
        };
        let pad = pad_for(len as usize);
        match write {
            true => out.fast.set_write(c.dest_qp, psn, solicited, pad, &reth),
            false => out.fast.set_send(c.dest_qp, psn, solicited, pad, self.sq.get(index).sn),
        }
        host.counters().sent_bytes += u64::from(len);
        Fast::Built(len)
    }

    /// Starts the next work request, one of a single packet, which may go. Returns its sequence number.
    #[inline(always)]
    fn start_fast(&mut self, now: Time, c: &QpContext) -> Option<Psn> {
        let psn = self.fetch.tx_free(now, &mut self.stream, true)?;
        self.start_next(c);
        self.left(now, psn, c);
        Some(psn)
    }

    /// Records that a packet leaves for the first time.
    #[inline(always)]
    fn left(&mut self, now: Time, psn: Psn, c: &QpContext) {
        self.fetch.observe(now, &self.stream);
        self.timer.sent(now, psn, true, c);
        if psn == self.stream.acked() {
            self.timer.alive(now);
        }
    }

    /// Builds the next packet of a long SEND or WRITE; with immediate or invalidate, any but the last. `rest`: the last
    /// packet was of the same message.
    #[inline(never)]
    pub(in crate::rc) fn poll_fast_part(
        &mut self,
        now: Time,
        rest: bool,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Fast {
        let psn = self.stream.high();
        let starts = !rest && psn == self.assigned;
        if self.credit_stop == Some(psn) || starts && !self.may_start() {
            return Fast::FullPath;
        }
        if starts {
            self.hint = self.sq.started;
        } else if !rest && self.sq.find(psn, &mut self.hint).is_none() {
            return Fast::FullPath;
        }
        let index = self.hint;
        let w = self.sq.get(index);
        let write = matches!(w.op, SendOp::Write | SendOp::WriteImm(_));
        let (k, packets) = if starts { (0, c.packets(w.len)) } else { (psn.distance(w.first) as u32, w.packets) };
        debug_assert!(k < packets, "the packet is of the work request");
        let at = position(k, packets);
        if ends(at) && !matches!(w.op, SendOp::Send | SendOp::Write) {
            return Fast::FullPath;
        }
        let offset = k * c.mtu;
        let (left, rkey, va) = (w.len - offset, w.rkey, w.remote_addr.wrapping_add(u64::from(offset)));
        let (len, solicited) = (left.min(c.mtu), ends(at) && w.solicited);
        if w.is_inline() {
            out.gather.push(self.sq.inline_data(index)[offset as usize..].as_ptr() as u64, len);
        } else {
            out.gather.stable = true;
            if host.gather_local(c.pd, self.sq.sges(index), u64::from(offset), len, &mut out.gather).is_err() {
                out.gather.clear();
                return Fast::FullPath;
            }
        }
        let Some(sent) = self.fetch.tx_free(now, &mut self.stream, true) else {
            out.gather.clear();
            return Fast::FullPath;
        };
        debug_assert_eq!(sent, psn, "nothing goes before a new packet of a fresh stream");
        if starts {
            self.start_next(c);
        }
        self.left(now, psn, c);
        let pad = pad_for(len as usize);
        match write {
            true => out.fast.set_write_part((c.dest_qp, psn, at), solicited, pad, &Reth { va, rkey, len: left }),
            false => out.fast.set_send_part((c.dest_qp, psn, at), solicited, pad, (self.sq.get(index).sn, k)),
        }
        out.rest = !ends(at);
        host.counters().sent_bytes += u64::from(len);
        Fast::Built(len)
    }

    /// Builds the request of the next work request, a READ or atomic.
    #[inline(never)]
    fn poll_fast_answered(&mut self, now: Time, c: &QpContext, out: &mut TxSlot) -> Fast {
        let index = self.sq.started;
        // Where there may be none, it fails in its turn.
        if self.max_rd_atomic == 0 || !self.may_start() {
            return Fast::FullPath;
        }
        let Some(psn) = self.start_fast(now, c) else { return Fast::FullPath };
        let w = self.sq.get(index);
        let atomic = |swap_add, compare| AtomicEth { va: w.remote_addr, rkey: w.rkey, swap_add, compare };
        match w.op {
            SendOp::CompareSwap { compare, swap } => {
                out.fast.set_atomic(c.dest_qp, psn, &atomic(swap, compare), true, w.sn);
            }
            SendOp::FetchAdd { add } => out.fast.set_atomic(c.dest_qp, psn, &atomic(add, 0), false, w.sn),
            _ => out.fast.set_read(c.dest_qp, psn, &Reth { va: w.remote_addr, rkey: w.rkey, len: w.len }, w.sn),
        }
        Fast::Built(0)
    }
}
