//! Requests in plain RoCE: strictly in order (IBA 9.7.4, 9.7.5.1).

use super::refusal::{INVALID, Refusal};
use super::{Job, Message, ReadKind, ReadOp, Responder};
use crate::config::Nak;
use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::Host;
use crate::recovery::Class;
use crate::room::reserve;
use crate::wire::opcode::Operation;
use crate::wire::{Headers, NakCode, Opcode, Reth, Syndrome};

impl Responder {
    pub(super) fn plain_request(
        &mut self,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        let headers = packet.headers;
        if headers.bth.psn == self.rx.expected() {
            return self.plain_in_order(c, packet, host);
        }
        if headers.bth.psn.before(self.rx.expected()) {
            host.counters().duplicate_request += 1;
            return self.plain_duplicate(c, headers);
        }
        host.counters().out_of_seq_request += 1;
        if self.rx.nacks(c.config.nak == Nak::PerPacket) {
            self.nak = Some((self.rx.expected(), Syndrome::Nak(NakCode::PsnSequenceError)));
        }
        Ok(())
    }

    fn plain_in_order(&mut self, c: &QpContext, packet: &RxPacket<'_>, host: &mut impl Host) -> Result<(), Refusal> {
        let headers = packet.headers;
        let opcode = headers.bth.opcode;
        let starts = opcode.is_first() || opcode.is_only();
        if starts != self.message.is_none() {
            return Err(INVALID);
        }
        self.check_named(c)?;
        let write = match opcode.operation() {
            Operation::Send => false,
            Operation::Write => true,
            _ => return self.plain_read(c, packet, host),
        };
        host.placing(!opcode.ends_message(), |host| {
            if write { self.plain_write(c, packet, host) } else { self.plain_send(c, packet, host) }
        })?;
        if headers.bth.ack_req {
            self.acks.push_cumulative();
        }
        let class = Class::of(opcode);
        self.rx.skip(1, u32::from(class != Class::Middle));
        if class == Class::LastWithCqe { self.deliver(c, 1, host) } else { Ok(()) }
    }

    fn plain_send(&mut self, c: &QpContext, packet: &RxPacket<'_>, host: &mut impl Host) -> Result<(), Refusal> {
        let headers = packet.headers;
        let opcode = headers.bth.opcode;
        let offset = match self.message {
            None => 0,
            Some(Message::Send { offset }) => offset,
            Some(Message::Write { .. }) => return Err(INVALID),
        };
        let len = packet.payload.len();
        self.check_length(c, opcode, len)?;
        let sn = self.rq.head_sn();
        self.place_send(c, sn, offset, &packet.payload, host)?;
        let offset = offset + len as u32;
        if opcode.is_last() || opcode.is_only() {
            self.note_last(sn, headers, offset, host)?;
            self.message = None;
        } else {
            self.message = Some(Message::Send { offset });
        }
        Ok(())
    }

    fn plain_write(&mut self, c: &QpContext, packet: &RxPacket<'_>, host: &mut impl Host) -> Result<(), Refusal> {
        let headers = packet.headers;
        let opcode = headers.bth.opcode;
        let len = packet.payload.len();
        self.check_length(c, opcode, len)?;
        let (left, done) = match (self.message, headers.reth) {
            (None, Some(reth)) => {
                host.counters().rx_write_requests += 1;
                (reth, 0)
            }
            (Some(Message::Write { left, done }), None) => (left, done),
            _ => return Err(INVALID),
        };
        let len = len as u32;
        let ends = opcode.is_last() || opcode.is_only();
        if if ends { len != left.len } else { len >= left.len } {
            return Err(INVALID);
        }
        // The WQE first: an RNR NAK must not leave half of the message behind.
        let sn = self.rq.head_sn();
        if Class::of(opcode) == Class::LastWithCqe {
            self.unclaimed(sn, host)?;
        }
        self.place_write(c, &left, &packet.payload, host)?;
        if Class::of(opcode) == Class::LastWithCqe {
            self.note_last(sn, headers, done + len, host)?;
        }
        let left = Reth { va: left.va.wrapping_add(u64::from(len)), len: left.len - len, ..left };
        self.message = (!ends).then_some(Message::Write { left, done: done + len });
        Ok(())
    }

    fn plain_read(&mut self, c: &QpContext, packet: &RxPacket<'_>, host: &mut impl Host) -> Result<(), Refusal> {
        let mut op = self.read_op(c, packet, host)?;
        // Repeated or partial requests may have been answered before: the peer need not wait for them.
        let owed = self.jobs.iter().filter(|job| !job.again && !job.cut).count();
        if owed >= self.depth.into() {
            return Err(INVALID);
        }
        // Without memory it is treated as lost.
        if !(reserve(&mut self.history) && reserve(&mut self.jobs)) {
            return Err(Refusal::Drop);
        }
        self.execute(c, &mut op, host)?;
        if self.history.len() >= self.depth.into() {
            self.history.pop_front();
        }
        self.history.push_back(op);
        self.jobs.push_back(Job { op, start: 0, next: 0, end: op.packets, cut: false, again: false });
        self.rx.skip(op.packets, 1);
        Ok(())
    }

    /// Handles a request all of whose packets have arrived before: SEND and WRITE are acknowledged, a READ is executed
    /// again, the saved response of an atomic, ATOMIC WRITE or FLUSH is repeated (IBA 9.7.5.1.4; oA19-14 and oA19-15 as
    /// cited by Linux's rxe).
    fn plain_duplicate(&mut self, c: &QpContext, headers: &Headers) -> Result<(), Refusal> {
        let psn = headers.bth.psn;
        match headers.bth.opcode.in_rc() {
            Opcode::RcReadRequest => {
                let Some(reth) = headers.reth else { return Err(Refusal::Drop) };
                let Some((op, k)) = self.find_history(psn) else { return Err(Refusal::Drop) };
                let offset = k * c.mtu;
                let same = matches!(op.kind, ReadKind::Read)
                    && reth.rkey == op.rkey
                    && reth.va == op.va.wrapping_add(u64::from(offset))
                    && u64::from(offset) + u64::from(reth.len) <= u64::from(op.len);
                if !same {
                    return Err(Refusal::Drop);
                }
                let end = k + c.packets(reth.len);
                self.replay(Job { op, start: k, next: k, end, cut: false, again: true });
            }
            Opcode::RcCompareSwap | Opcode::RcFetchAdd | Opcode::RcAtomicWrite | Opcode::RcFlush => {
                let Some((op, _)) = self.find_history(psn) else { return Err(Refusal::Drop) };
                if !matches!(op.kind, ReadKind::AtomicDone(_) | ReadKind::Done) {
                    return Err(Refusal::Drop);
                }
                self.replay(Job { op, start: 0, next: 0, end: 1, cut: false, again: true });
            }
            _ => self.acks.push_cumulative(),
        }
        Ok(())
    }

    fn find_history(&self, psn: Psn) -> Option<(ReadOp, u32)> {
        self.history.iter().find_map(|op| {
            let k = psn.distance(op.first);
            (k >= 0 && (k as u32) < op.packets).then_some((*op, k as u32))
        })
    }

    /// Queues a repeated request. The peer will also repeat everything after it, so later jobs are dropped.
    fn replay(&mut self, job: Job) {
        let from = job.op.first.plus(job.start);
        while let Some(last) = self.jobs.back_mut() {
            if !last.op.first.plus(last.next).before(from) {
                self.jobs.pop_back();
            } else {
                let keep = from.distance(last.op.first).max(0) as u32;
                if keep < last.end {
                    (last.end, last.cut) = (keep, true);
                }
                break;
            }
        }
        // Only a peer that never waits for its responses has this many; it may retry.
        if self.jobs.len() > 2 * usize::from(self.depth) || !reserve(&mut self.jobs) {
            return;
        }
        // The cumulative acknowledgement would overtake the response and read as an implied NAK: it waits for the jobs.
        self.jobs.push_back(job);
    }
}
