//! Unreliable datagram: messages of one packet, each with a destination of its own (IBA 9.8.3).
//!
//! A message that is longer than the port's MTU cannot be sent. IBA (C10-93.1.1) lets it vanish without an error; here posting
//! it fails, so that its loss has a cause that can be seen.
//!
//! What is wrong with an arriving datagram drops it in silence and leaves its receive WQE for the next one (class D,
//! IBA 9.9.3). Only a receive WQE that is wrong itself ends the queue pair (class A).

use crate::packet::{Path, Payload, RxPacket};
use crate::psn::Psn;
use crate::qp::common::{Common, Fatal};
use crate::qp::recv_queue::RecvQueue;
use crate::qp::send_queue::SendQueue;
use crate::qp::{Host, QpConfig, SendOp, TxSlot, Wc, WcOpcode, WcStatus};
use crate::room::OutOfMemory;
use crate::wire::{Bth, Deth, Grh, Headers, Opcode, pad_for};

/// The bit of a work request's Q_Key that asks for the queue pair's own (IBA 3.5.3).
const OWN_QKEY: u32 = 1 << 31;

#[derive(Clone, Debug)]
pub(crate) struct Ud {
    pub sq: SendQueue,
    pub rq: RecvQueue,
    /// PSN of the next packet. Nobody looks at it.
    pub psn: Psn,
}

impl Ud {
    pub fn new(config: &QpConfig) -> Result<Ud, OutOfMemory> {
        let (max_sge, max_inline) = (config.max_send_sge as usize, config.max_inline as usize);
        Ok(Ud {
            sq: SendQueue::new(config.max_send_wr, max_sge, max_inline, config.service)?,
            rq: RecvQueue::new(config.max_recv_wr, config.max_recv_sge as usize, config.srq)?,
            psn: Psn::new(0),
        })
    }

    /// Forgets everything (RESET).
    pub fn reset(&mut self) {
        self.sq.clear();
        self.rq.reset();
    }

    /// Addresses of the packet that was made last.
    #[inline]
    pub fn tx_path(&self) -> Option<&Path> {
        Some(&self.sq.to(self.sq.head.wrapping_sub(1))?.path)
    }

    /// Makes the next packet, and completes its work request; false if there is none.
    pub fn poll_transmit(&mut self, c: &Common, host: &mut impl Host, out: &mut TxSlot) -> Result<bool, Fatal> {
        if self.sq.len() == 0 {
            return Ok(false);
        }
        let index = self.sq.head;
        let w = self.sq.get(index);
        // Posting saw to it that there is a destination.
        let Some(to) = self.sq.to(index) else { return Err(Fatal::Send(WcStatus::LocQpOpErr)) };
        out.gather.clear();
        if w.inline {
            out.gather.push(self.sq.inline_data(index).as_ptr() as u64, w.len);
        } else {
            host.gather_local(c.pd, self.sq.sges(index), 0, w.len, &mut out.gather).map_err(|_| {
                host.counters().local_protection_errors += 1;
                Fatal::Send(WcStatus::LocProtErr)
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
            host.complete(c.send_cq, w.success(c));
        }
        self.psn = self.psn.plus(1);
        self.sq.head = index.wrapping_add(1);
        self.sq.started = self.sq.head;
        Ok(true)
    }

    /// A datagram has arrived.
    pub fn receive(&mut self, c: &Common, packet: &RxPacket<'_>, host: &mut impl Host) -> Result<(), Fatal> {
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
        let Some(slot) = self.rq.by_sn(self.rq.head_sn(), host) else {
            host.counters().out_of_buffer += 1;
            host.counters().rx_dropped_messages += 1;
            return Ok(());
        };
        let byte_len = (Grh::LEN + len) as u32;
        if len > c.mtu as usize || u64::from(byte_len) > slot.wqe.len() {
            host.counters().rx_dropped_messages += 1;
            return Ok(());
        }
        let area = Grh::receive_area(packet.path, headers.frame_len(len));
        let sges = slot.wqe.sges();
        host.place_local(c.pd, sges, 0, &Payload::Bytes(&area))
            .and_then(|()| host.place_local(c.pd, sges, Grh::LEN as u64, &packet.payload))
            .map_err(|_| {
                host.counters().local_protection_errors += 1;
                Fatal::Recv(WcStatus::LocProtErr)
            })?;
        host.counters().rcvd_bytes += len as u64;
        let wc = Wc {
            wr_id: slot.wqe.wr_id,
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
        host.complete(c.recv_cq, wc);
        Ok(())
    }
}
