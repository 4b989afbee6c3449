//! The sending half: messages cut into packets, complete when the last one has been sent.

use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure, ends, position};
use crate::qp::send_queue::SendQueue;
use crate::qp::{Frees, Host, QpConfig, SendOp, TxSlot, WcStatus};
use crate::room::OutOfMemory;
use crate::slack::Piece;
use crate::wire::opcode::Position;
use crate::wire::{Bth, Headers, Opcode, Reth, pad_for};

#[derive(Clone, Debug)]
pub(crate) struct Requester {
    pub sq: SendQueue,
    /// PSN of the next packet.
    pub psn: Psn,
    /// Packets of the oldest WQE already sent.
    sent: u32,
}

impl Requester {
    pub(super) fn new(config: &QpConfig) -> Result<Requester, OutOfMemory> {
        let (max_sge, max_inline) = (config.max_send_sge as usize, config.max_inline as usize);
        let sq = SendQueue::new(config.max_send_wr, max_sge, max_inline, config.service)?;
        Ok(Requester { sq, psn: Psn::new(0), sent: 0 })
    }

    pub(super) fn reset(&mut self) {
        self.sq.reset();
        self.sent = 0;
    }

    /// Returns whether a message has begun and not ended.
    pub(super) fn busy(&self) -> bool {
        self.sent > 0
    }

    /// Ends every WQE: the oldest with `status`, the others flushed.
    pub(super) fn flush(&mut self, c: &QpContext, status: WcStatus, host: &mut impl Host) {
        self.sent = 0;
        self.sq.flush(c, status, host);
    }

    /// Returns whether [`Self::poll_transmit`] may have something to do. `sending`: messages may begin.
    #[inline]
    pub(super) fn wants_tx(&self, sending: bool) -> bool {
        self.sq.len() > 0 && (sending || self.busy())
    }

    /// Builds the next packet; returns false if there is none.
    pub(super) fn poll_transmit(
        &mut self,
        sending: bool,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, QpFailure> {
        while self.wants_tx(sending) {
            let w = *self.sq.get(self.sq.head);
            if w.op.is_local() {
                w.run_local(c, host).map_err(QpFailure::Send)?;
                self.finish(c, host);
                continue;
            }
            self.build(c, host, out).map_err(|status| {
                host.counters().local_protection_errors += 1;
                QpFailure::Send(status)
            })?;
            self.psn = self.psn.plus(1);
            self.sent += 1;
            if self.sent == c.packets(w.len) {
                self.finish(c, host);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Completes the oldest WQE.
    fn finish(&mut self, c: &QpContext, host: &mut impl Host) {
        let w = self.sq.get(self.sq.head);
        let next = self.sq.head.wrapping_add(1);
        if w.signaled {
            host.complete(c.send_cq, w.success(c), Frees::Sends(next));
        }
        self.sent = 0;
        self.sq.head = next;
        self.sq.started = self.sq.head;
    }

    /// Builds the next packet of the oldest WQE.
    fn build(&self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> Result<(), WcStatus> {
        let index = self.sq.head;
        let w = self.sq.get(index);
        let at = position(self.sent, c.packets(w.len));
        let offset = self.sent * c.mtu;
        let len = (w.len - offset).min(c.mtu);
        if c.slack {
            out.piece = Piece { of: w.len, at: offset, len };
        }
        out.gather.clear();
        if w.is_inline() {
            out.gather.push(self.sq.inline_data(index)[offset as usize..].as_ptr() as u64, len);
        } else {
            host.gather_local(c.pd, self.sq.sges(index), u64::from(offset), len, &mut out.gather)
                .map_err(|_| WcStatus::LocProtErr)?;
        }
        let headers = &mut out.headers;
        *headers = Headers::new(Bth::new(opcode(&w.op, at), c.dest_qp, self.psn));
        headers.bth.pad = pad_for(len as usize);
        if self.sent == 0 && matches!(w.op, SendOp::Write | SendOp::WriteImm(_)) {
            headers.reth = Some(Reth { va: w.remote_addr, rkey: w.rkey, len: w.len });
        }
        if ends(at) {
            headers.bth.solicited = w.solicited;
            if let SendOp::SendImm(imm) | SendOp::WriteImm(imm) = w.op {
                headers.imm = Some(imm);
            }
        }
        host.counters().sent_bytes += u64::from(len);
        Ok(())
    }
}

fn opcode(op: &SendOp, at: Position) -> Opcode {
    use Opcode::*;
    let write = matches!(op, SendOp::Write | SendOp::WriteImm(_));
    let imm = matches!(op, SendOp::SendImm(_) | SendOp::WriteImm(_));
    match (write, at, imm) {
        (false, Position::First, _) => UcSendFirst,
        (false, Position::Middle, _) => UcSendMiddle,
        (false, Position::Last, false) => UcSendLast,
        (false, Position::Last, true) => UcSendLastImm,
        (false, Position::Only, false) => UcSendOnly,
        (false, Position::Only, true) => UcSendOnlyImm,
        (true, Position::First, _) => UcWriteFirst,
        (true, Position::Middle, _) => UcWriteMiddle,
        (true, Position::Last, false) => UcWriteLast,
        (true, Position::Last, true) => UcWriteLastImm,
        (true, Position::Only, false) => UcWriteOnly,
        (true, Position::Only, true) => UcWriteOnlyImm,
    }
}
