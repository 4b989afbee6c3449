//! Unreliable datagram: messages of one packet, each with a destination of its own (IBA 9.8.3).
//!
//! A message longer than the port's MTU cannot be sent. IBA (C10-93.1.1) drops it without an error; here posting it
//! fails, so that its loss has a visible cause.
//!
//! A datagram with an error is dropped silently, and its receive WQE is left for the next one (class D, IBA 9.9.3).
//! Only an error of the receive WQE itself ends the queue pair (class A).

mod waiting;

use waiting::Waiting;

use crate::packet::{PacketClass, Path, Payload, RxPacket};
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::recv_queue::RecvQueue;
use crate::qp::send_queue::SendQueue;
use crate::qp::service::TransportService;
use crate::qp::{
    Frees, Host, PostError, QpConfig, QpState, SendData, SendOp, SendWr, Service, TxSlot, Wc, WcOpcode, WcStatus,
};
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::wire::{Bth, Deth, Grh, Headers, Opcode, pad_for};

/// The bit of a work request's Q_Key that selects the queue pair's own (IBA 3.5.3).
const OWN_QKEY: u32 = 1 << 31;

#[derive(Clone, Debug)]
pub(crate) struct Ud {
    sq: SendQueue,
    rq: RecvQueue,
    /// PSN of the next packet. Receivers ignore it.
    psn: Psn,
    waiting: Waiting,
}

impl Ud {
    pub(crate) fn new(config: &QpConfig) -> Result<Ud, OutOfMemory> {
        let (max_sge, max_inline) = (config.max_send_sge as usize, config.max_inline as usize);
        Ok(Ud {
            sq: SendQueue::new(config.max_send_wr, max_sge, max_inline, config.service)?,
            rq: RecvQueue::new(config.max_recv_wr, config.max_recv_sge as usize, config.srq.into())?,
            psn: Psn::new(0),
            waiting: Waiting::default(),
        })
    }

    /// Builds the next packet, and completes its work request; returns false if there is none.
    fn transmit(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> Result<bool, QpFailure> {
        if self.sq.len() == 0 {
            return Ok(false);
        }
        let index = self.sq.head;
        let w = self.sq.get(index);
        // Posting has checked that there is a destination.
        let Some(to) = self.sq.to(index) else { return Err(QpFailure::Send(WcStatus::LocQpOpErr)) };
        out.gather.clear();
        if w.is_inline() {
            out.gather.push(self.sq.inline_data(index).as_ptr() as u64, w.len);
        } else if w.is_copied() {
            let copy = self.waiting.take(index, w.len).ok_or(QpFailure::Send(WcStatus::LocQpOpErr))?;
            out.gather.push(copy.as_ptr() as u64, w.len);
        } else {
            host.gather_local(c.pd, self.sq.sges(index), 0, w.len, &mut out.gather).map_err(|_| {
                host.counters().local_protection_errors += 1;
                QpFailure::Send(WcStatus::LocProtErr)
            })?;
        }
        let headers = &mut out.headers;
        let (opcode, imm) = match w.op {
            SendOp::SendImm(imm) => (Opcode::UdSendOnlyImm, Some(imm)),
            _ => (Opcode::UdSendOnly, None),
        };
        *headers = Headers::new(Bth::new(opcode, to.qpn, self.psn));
        headers.bth.pad = pad_for(w.len as usize);
        headers.bth.solicited = w.solicited;
        headers.imm = imm;
        let qkey = if to.qkey & OWN_QKEY != 0 { c.qkey } else { to.qkey };
        headers.deth = Some(Deth { qkey, src_qp: c.qpn });
        host.counters().sent_bytes += u64::from(w.len);
        if w.signaled {
            host.complete(c.send_cq, w.success(c), Frees::Sends(index.wrapping_add(1)));
        }
        self.psn = self.psn.plus(1);
        self.sq.head = index.wrapping_add(1);
        self.sq.started = self.sq.head;
        Ok(true)
    }

    /// Handles a datagram that has arrived.
    fn take(&mut self, c: &QpContext, packet: &RxPacket<'_>, host: &mut impl Host) -> Result<(), QpFailure> {
        let headers = packet.headers;
        let Some(deth) = headers.deth else {
            host.counters().rx_unexpected += 1;
            return Ok(());
        };
        if deth.qkey != c.qkey {
            host.counters().bad_qkey += 1;
            return Ok(());
        }
        let len = packet.payload.len();
        let Some(wqe) = self.rq.by_sn(self.rq.head_sn(), host) else {
            host.counters().out_of_buffer += 1;
            host.counters().rx_dropped_messages += 1;
            return Ok(());
        };
        let byte_len = (Grh::LEN + len) as u32;
        let too_short = u64::from(byte_len) > wqe.len();
        if len > c.mtu as usize || too_short {
            if too_short && len <= c.mtu as usize {
                self.rq.refuse_short(c, host);
            }
            host.counters().rx_dropped_messages += 1;
            return Ok(());
        }
        let area = Grh::receive_area(packet.path, headers.frame_len(len));
        let sges = wqe.sges;
        host.place_local(c.pd, sges, 0, &Payload::Bytes(&area))
            .and_then(|()| host.place_local(c.pd, sges, Grh::LEN as u64, &packet.payload))
            .map_err(|_| {
                host.counters().local_protection_errors += 1;
                QpFailure::Recv(WcStatus::LocProtErr)
            })?;
        host.counters().rcvd_bytes += len as u64;
        let wc = Wc {
            wr_id: wqe.slot.wr_id,
            opcode: WcOpcode::Recv,
            byte_len,
            imm: headers.imm,
            qp_num: c.qpn,
            src_qp: deth.src_qp,
            grh: true,
            ipv4: packet.path.dst.is_ipv4(),
            solicited: headers.bth.solicited,
            ..Wc::EMPTY
        };
        self.rq.pop();
        host.complete(c.recv_cq, wc, self.rq.frees());
        Ok(())
    }
}

impl TransportService for Ud {
    fn send_queue(&self) -> &SendQueue {
        &self.sq
    }

    fn send_queue_mut(&mut self) -> &mut SendQueue {
        &mut self.sq
    }

    fn recv_queue(&self) -> &RecvQueue {
        &self.rq
    }

    fn recv_queue_mut(&mut self) -> &mut RecvQueue {
        &mut self.rq
    }

    fn next_psns(&self) -> (Option<Psn>, Psn) {
        (None, self.psn)
    }

    fn start_sending(&mut self, _: &QpContext, psn: Psn) {
        self.psn = psn;
    }

    fn reset(&mut self) {
        self.sq.reset();
        self.waiting.clear();
        self.rq.reset();
    }

    /// IBA 9.2.1: SEND only, to an address, in one packet.
    #[inline(never)]
    fn check(&self, wr: &SendWr<'_>, c: &QpContext) -> Result<(), PostError> {
        if !matches!(wr.op, SendOp::Send | SendOp::SendImm(_)) {
            return Err(PostError::Service(Service::Ud));
        }
        if wr.to.is_none() {
            return Err(PostError::NoAddress);
        }
        let len = match wr.data {
            SendData::Sges(sges) => sges.iter().map(|s| u64::from(s.len)).sum(),
            SendData::Inline(bytes) => bytes.len() as u64,
        };
        if len > u64::from(c.mtu) {
            return Err(PostError::DatagramTooLong { len, mtu: c.mtu });
        }
        Ok(())
    }

    fn admits(&mut self, state: QpState, _: &Bth) -> bool {
        matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    // Not inlined, as are the next: reliable connections are optimized for.
    #[inline(never)]
    fn receive(
        &mut self,
        _: Time,
        c: &mut QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        self.take(c, packet, host)
    }

    fn copy_waiting(&mut self, c: &QpContext, host: &mut impl Host) {
        if self.sq.len() > 0 {
            self.copy_what_waits(c, host);
        }
    }

    fn wants_tx(&self, state: QpState) -> bool {
        state == QpState::Rts && self.sq.len() > 0
    }

    #[inline(never)]
    fn poll_transmit(
        &mut self,
        _: Time,
        state: QpState,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, QpFailure> {
        if state == QpState::Rts { self.transmit(c, host, out) } else { Ok(false) }
    }

    /// Each datagram has its own path, that of its work request.
    fn tx_path<'a>(&'a self, _: &'a QpContext, _: PacketClass) -> Option<&'a Path> {
        Some(&self.sq.to(self.sq.head.wrapping_sub(1))?.path)
    }

    fn busy(&self) -> bool {
        false
    }

    fn flush_send(&mut self, c: &QpContext, status: WcStatus, host: &mut impl Host) {
        self.sq.flush(c, status, host);
        self.waiting.clear();
    }
}
