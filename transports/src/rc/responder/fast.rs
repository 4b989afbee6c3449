//! The responder's part of the fast path: ordinary requests in order, and their acknowledgements.

use super::Responder;
use crate::packet::{PacketClass, Payload};
use crate::qp::access::Access;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, TxSlot};
use crate::qp::work::{Wc, WcOpcode};
use crate::recovery::Class;
use crate::wire::{Aeth, CarriedAck, FastFrame, FastHead, FastOp, Syndrome};

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
            FastOp::Ack(_) => return false,
        };
        host.counters().rcvd_bytes += len as u64;
        self.plain_peer |= !frame.irn_capable;
        self.rx.receive_data(frame.psn, class);
        self.acks.push_cumulative();
        if class == Class::LastWithCqe
            && let Some(wr_id) = self.rq.pop()
        {
            let (opcode, byte_len, solicited) = (WcOpcode::Recv, len as u32, frame.solicited);
            let wc = Wc { wr_id, opcode, byte_len, qp_num: c.qpn, solicited, ..Wc::EMPTY };
            host.complete(c.recv_cq, wc, self.rq.frees());
        }
        true
    }

    /// Builds the next packet as [`Self::poll_transmit`] would, if it is a cumulative acknowledgement. Otherwise
    /// returns false, and changes nothing.
    #[inline]
    pub(in crate::rc) fn poll_fast(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> bool {
        if !self.has_ack() {
            return false;
        }
        let ack = self.take_ack(c, host);
        out.class = PacketClass::Ack;
        out.fast = FastHead::ack(c.dest_qp, ack.psn, &ack.aeth);
        true
    }

    /// Returns whether the next packet would be a cumulative acknowledgement.
    #[inline]
    pub(in crate::rc) fn has_ack(&self) -> bool {
        self.irn && !(self.cnp || self.marked || self.unanswered) && self.nak.is_none() && self.acks.is_cumulative()
    }

    /// Returns the cumulative acknowledgement that [there is](Self::has_ack), which then counts as sent.
    #[inline]
    pub(in crate::rc) fn take_ack(&mut self, c: &QpContext, host: &mut impl Host) -> CarriedAck {
        self.acks.pop_cumulative();
        host.counters().sent_acks += 1;
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: self.credits(c) }.to_u8(), msn: self.rx.msn() };
        CarriedAck { psn: self.rx.expected().minus(1), aeth }
    }
}
