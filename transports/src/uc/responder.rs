//! The receiving half: a message is delivered if all of its packets arrive in order, otherwise dropped (IBA 9.8.2.2).
//!
//! Errors of a packet affect only its message: they are of class D (IBA 9.9.3), the message is dropped silently and its
//! receive WQE is reused from its start for the next one. Only an error of the receive WQE itself ends the queue pair
//! (class A).

use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::recv_queue::RecvQueue;
use crate::qp::{Access, Host, MAX_MESSAGE, QpConfig, Wc, WcOpcode, WcStatus};
use crate::room::OutOfMemory;
use crate::wire::Reth;

/// A message that is not complete.
#[derive(Copy, Clone, Debug)]
enum Message {
    Send {
        offset: u32,
    },
    /// The rest of the range, and the bytes received.
    Write {
        left: Reth,
        done: u32,
    },
}

/// Scope of an error: the message, or the queue pair.
enum Stop {
    Drop,
    Fail(QpFailure),
}

#[derive(Clone, Debug)]
pub(crate) struct Responder {
    pub rq: RecvQueue,
    /// PSN of the next packet.
    pub expected: Psn,
    message: Option<Message>,
    /// Whether the current message is lost: its remaining packets are ignored.
    dropping: bool,
}

impl Responder {
    pub(super) fn new(config: &QpConfig) -> Result<Responder, OutOfMemory> {
        let rq = RecvQueue::new(config.max_recv_wr, config.max_recv_sge as usize, config.srq.into())?;
        Ok(Responder { rq, expected: Psn::new(0), message: None, dropping: false })
    }

    /// Handles INIT to RTR, with the first PSN.
    pub(super) fn start(&mut self, psn: Psn) {
        (self.expected, self.message, self.dropping) = (psn, None, false);
    }

    pub(super) fn receive(
        &mut self,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        let bth = &packet.headers.bth;
        let ahead = bth.psn.distance(self.expected);
        if ahead < 0 {
            // Late or duplicate: its message was delivered or given up, and the order must be kept.
            host.counters().duplicate_request += 1;
            return Ok(());
        }
        self.expected = bth.psn.plus(1);
        if ahead > 0 {
            host.counters().out_of_seq_request += 1;
            self.give_up(host);
        }
        if bth.opcode.starts_message() {
            if self.message.is_some() {
                // The sender has given up a message itself.
                self.give_up(host);
            }
            self.dropping = false;
        } else if self.message.is_none() {
            if !std::mem::replace(&mut self.dropping, true) {
                host.counters().rx_dropped_messages += 1;
            }
            return Ok(());
        }
        match host.placing(!bth.opcode.ends_message(), |host| self.take(c, packet, host)) {
            Ok(()) => Ok(()),
            Err(Stop::Drop) => {
                self.message = None;
                self.dropping = true;
                host.counters().rx_dropped_messages += 1;
                Ok(())
            }
            Err(Stop::Fail(fatal)) => {
                self.message = None;
                Err(fatal)
            }
        }
    }

    /// Gives up the current message.
    fn give_up(&mut self, host: &mut impl Host) {
        if self.message.take().is_some() {
            self.dropping = true;
            host.counters().rx_dropped_messages += 1;
        }
    }

    /// Handles a packet in sequence: the next of its message.
    fn take(&mut self, c: &QpContext, packet: &RxPacket<'_>, host: &mut impl Host) -> Result<(), Stop> {
        let headers = packet.headers;
        let opcode = headers.bth.opcode;
        let len = packet.payload.len() as u32;
        let ends = opcode.ends_message();
        let fits = match (opcode.starts_message(), ends) {
            (_, false) => len == c.mtu,
            (false, true) => (1..=c.mtu).contains(&len),
            (true, true) => len <= c.mtu,
        };
        if !fits {
            return Err(Stop::Drop);
        }
        if opcode.is_write() {
            let (left, done) = match (self.message, headers.reth) {
                (None, Some(reth)) => {
                    self.check_write(c, &reth, host)?;
                    host.counters().rx_write_requests += 1;
                    (reth, 0)
                }
                (Some(Message::Write { left, done }), None) => (left, done),
                _ => return Err(Stop::Drop),
            };
            if if ends { len != left.len } else { len >= left.len } {
                return Err(Stop::Drop);
            }
            let imm = ends && headers.imm.is_some();
            if imm && self.rq.by_sn(self.rq.head_sn(), host).is_none() {
                host.counters().out_of_buffer += 1;
                return Err(Stop::Drop);
            }
            // Without bytes no key is checked (IBA 9.7.4.1.6).
            if left.len > 0 {
                host.place_remote(c.caller(), left.rkey, left.va, u64::from(left.len), &packet.payload).map_err(
                    |_| {
                        host.counters().resp_remote_access_errors += 1;
                        Stop::Drop
                    },
                )?;
            }
            let left = Reth { va: left.va.wrapping_add(u64::from(len)), len: left.len - len, ..left };
            self.message = (!ends).then_some(Message::Write { left, done: done + len });
            if imm {
                self.deliver(c, packet, WcOpcode::RecvRdmaWithImm, done + len, host);
            }
        } else {
            let offset = match self.message {
                None => 0,
                Some(Message::Send { offset }) => offset,
                Some(Message::Write { .. }) => return Err(Stop::Drop),
            };
            let Some(wqe) = self.rq.by_sn(self.rq.head_sn(), host) else {
                host.counters().out_of_buffer += 1;
                return Err(Stop::Drop);
            };
            if u64::from(offset) + u64::from(len) > wqe.len().min(u64::from(MAX_MESSAGE)) {
                if offset + len <= MAX_MESSAGE {
                    self.rq.refuse_short(c, host);
                }
                return Err(Stop::Drop);
            }
            host.place_local(c.pd, wqe.sges, u64::from(offset), &packet.payload).map_err(|_| {
                host.counters().local_protection_errors += 1;
                Stop::Fail(QpFailure::Recv(WcStatus::LocProtErr))
            })?;
            self.message = (!ends).then_some(Message::Send { offset: offset + len });
            if ends {
                self.deliver(c, packet, WcOpcode::Recv, offset + len, host);
            }
        }
        host.counters().rcvd_bytes += u64::from(len);
        Ok(())
    }

    /// Checks the queue pair's rights and the whole range, before the first byte is written.
    fn check_write(&self, c: &QpContext, reth: &Reth, host: &mut impl Host) -> Result<(), Stop> {
        let granted = c.access.allows(Access::REMOTE_WRITE)
            && reth.len <= MAX_MESSAGE
            && (reth.len == 0
                || host
                    .check_remote(c.caller(), reth.rkey, reth.va, u64::from(reth.len), Access::REMOTE_WRITE)
                    .is_ok());
        if granted {
            return Ok(());
        }
        host.counters().resp_remote_access_errors += 1;
        Err(Stop::Drop)
    }

    /// Completes the oldest receive WQE.
    fn deliver(&mut self, c: &QpContext, packet: &RxPacket<'_>, opcode: WcOpcode, byte_len: u32, host: &mut impl Host) {
        let Some(wr_id) = self.rq.pop() else { return };
        let wc = Wc {
            wr_id,
            opcode,
            byte_len,
            imm: packet.headers.imm,
            qp_num: c.qpn,
            solicited: packet.headers.bth.solicited,
            ..Wc::EMPTY
        };
        host.complete(c.recv_cq, wc, self.rq.frees());
    }
}
