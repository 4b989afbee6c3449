//! The requester's part of the fast path: messages of one small packet, and positive acknowledgements.

use super::{Format, Requester};
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Fast, Host, TxSlot};
use crate::qp::work::SendOp;
use crate::time::Time;
use crate::wire::{Aeth, FastHead, MAX_FAST_PAYLOAD, Reth, Syndrome, pad_for};

impl Requester {
    /// Returns whether requests are of the ordinary kind.
    #[inline]
    fn is_ordinary(&self) -> bool {
        self.format == Format::Irn && self.throttle.is_none() && self.discipline.is_plain() && self.broken.is_none()
    }

    /// Handles a positive acknowledgement of everything up to `psn` as [`Self::receive`] would. Returns false, and
    /// changes nothing, if that would do anything out of the ordinary.
    #[inline]
    pub(in crate::rc) fn receive_fast(
        &mut self,
        now: Time,
        c: &QpContext,
        psn: Psn,
        aeth: &Aeth,
        host: &mut impl Host,
    ) -> bool {
        if !self.is_ordinary() || !matches!(Syndrome::from_u8(aeth.syndrome), Some(Syndrome::Ack { .. })) {
            return false;
        }
        let cumulative = psn.plus(1);
        let (before, spurious) = (self.stream.acked(), self.stream.spurious());
        if !self.stream.receive_ack(now, cumulative, None) {
            return false;
        }
        self.take_sample(now, c);
        self.update_credits(aeth);
        if before.before(cumulative) {
            self.advanced(now, cumulative, c);
        }
        host.counters().irn_spurious_timeouts += u64::from(self.stream.spurious().wrapping_sub(spurious));
        self.fetch.observe(now, &self.stream);
        let completed = self.complete(c, host);
        debug_assert!(completed.is_ok(), "only a broken one fails");
        true
    }

    /// Returns whether the next packet may be one of the fast path: no message is under way, and no read
    /// acknowledgement waits.
    #[inline]
    pub(in crate::rc) fn may_be_fast(&self) -> bool {
        self.format == Format::Irn && self.stream.high() == self.assigned && self.read_acks.is_empty()
    }

    /// Returns whether a work request has not started.
    #[inline]
    pub(in crate::rc) fn has_fresh(&self) -> bool {
        self.sq.started != self.sq.tail
    }

    /// Builds the next packet as [`Self::poll_transmit`] would, if it is a whole small message sent for the first time.
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
        let index = self.sq.started;
        if index == self.sq.tail {
            return Fast::Nothing;
        }
        let w = self.sq.get(index);
        let write = match w.op {
            SendOp::Send => false,
            SendOp::Write => true,
            _ => return Fast::FullPath,
        };
        let (len, solicited) = (w.len, w.solicited);
        let reth = Reth { va: w.remote_addr, rkey: w.rkey, len };
        if len > c.mtu.min(MAX_FAST_PAYLOAD as u32) || self.stream.is_full() || !self.may_start() {
            return Fast::FullPath;
        }
        if w.is_inline() {
            out.gather.push(self.sq.inline_data(index).as_ptr() as u64, len);
        } else if host.gather_local(c.pd, self.sq.sges(index), 0, len, &mut out.gather).is_err() {
            out.gather.clear();
            return Fast::FullPath;
        }
        let Some(psn) = self.fetch.tx_free(now, &mut self.stream, true) else {
            out.gather.clear();
            return Fast::FullPath;
        };
        self.start_next(c);
        let pad = pad_for(len as usize);
        out.fast = match write {
            true => FastHead::write(c.dest_qp, psn, solicited, pad, &reth),
            false => FastHead::send(c.dest_qp, psn, solicited, pad, self.sq.get(index).sn),
        };
        self.fetch.observe(now, &self.stream);
        self.timer.sent(now, psn, true, c);
        if psn == self.stream.acked() {
            self.timer.alive(now);
        }
        host.counters().sent_bytes += u64::from(len);
        Fast::Built(len)
    }
}
