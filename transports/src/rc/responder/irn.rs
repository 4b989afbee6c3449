//! Requests with IRN: placed in order of arrival, completed in order (§4.4.3, §4.4.4).

use super::refusal::{INVALID, Refusal};
use super::{ReadOp, Responder};
use crate::config::Nak;
use crate::packet::{Payload, RxPacket};
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, MemError};
use crate::qp::send_queue::MAX_MESSAGE;
use crate::rc::acks::{DUPLICATE, Echo};
use crate::rc::discipline::{Acknowledged, Delivery, Hooks};
use crate::rc::watched;
use crate::recovery::{Arrival, Class, Recovery, Sack};
use crate::room::boxed;
use crate::time::Time;
use crate::wire::opcode::Operation;
use crate::wire::{Headers, Importance, IrnEth, NakCode, Reth, Syndrome};

impl Responder {
    pub(super) fn irn_request(
        &mut self,
        now: Time,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        let psn = packet.headers.bth.psn;
        if packet.headers.bth.importance != Importance::None {
            self.promise_echo(packet);
        }
        let low = packet.headers.bth.low;
        match self.rx.locate(psn) {
            Arrival::InOrder => {
                let late = !packet.headers.bth.opcode.ends_message() && !self.rx.has_gap();
                match host.placing(late, |host| self.place(now, c, packet, true, host)) {
                    // It was early, and will be resent in its turn.
                    Err(Refusal::NotReady) if low => {
                        host.counters().irn_ooo_dropped += 1;
                        return Ok(());
                    }
                    placed => placed?,
                }
            }
            Arrival::OutOfOrder(_) => {
                host.counters().out_of_seq_request += 1;
                if c.config.recovery == Recovery::GoBackN {
                    if self.rx.nacks(c.config.nak == Nak::PerPacket) {
                        self.acks.push_selective(self.rx.expected());
                    }
                    return Ok(());
                }
                if self.place(now, c, packet, false, host).is_err() {
                    // An error to be raised in order: the packet will be resent.
                    host.counters().irn_ooo_dropped += 1;
                    return Ok(());
                }
                host.counters().irn_ooo_placed += 1;
            }
            Arrival::Duplicate => {
                host.counters().duplicate_request += 1;
                self.answer(now, packet, Delivery::Again, host);
                if c.evidence && !low && packet.headers.ndp.is_none() {
                    self.acks.push_duplicate(psn);
                }
                return Ok(());
            }
            Arrival::OutOfWindow => {
                host.counters().irn_ooo_dropped += 1;
                return Ok(());
            }
        }
        let (_, cqes) = self.rx.receive_data(psn, Class::of(packet.headers.bth.opcode));
        if self.held.as_ref().is_some_and(|held| !held.is_empty()) {
            self.place_held(host)?;
        }
        self.answer(now, packet, Delivery::Whole, host);
        self.deliver(c, cqes, host)?;
        self.run_reads(c, host)
    }

    /// Acknowledges a request: in the discipline's way, or as in IRN.
    #[inline]
    pub(in crate::rc) fn answer(&mut self, now: Time, packet: &RxPacket<'_>, delivery: Delivery, host: &mut impl Host) {
        let bth = &packet.headers.bth;
        if self.discipline.answer(now, packet, delivery, self.rx.expected(), host) {
            return;
        }
        if bth.importance != Importance::None {
            self.acks.push_echo(Echo { importance: bth.importance, psn: bth.psn, arrived: true });
        } else {
            self.acknowledge(bth.psn);
        }
    }

    /// TLT: queues an echo for an important request in any case. If the request is placed, another replaces it.
    #[cold]
    fn promise_echo(&mut self, packet: &RxPacket<'_>) {
        if packet.headers.ndp.is_none() {
            let bth = &packet.headers.bth;
            self.acks.push_echo(Echo { importance: bth.importance, psn: bth.psn, arrived: false });
        }
    }

    fn acknowledge(&mut self, psn: Psn) {
        if psn.before(self.rx.expected()) { self.acks.push_cumulative() } else { self.acks.push_selective(psn) }
    }

    /// Checks a packet and places its payload. If it is refused, nothing is placed or changed.
    fn place(
        &mut self,
        now: Time,
        c: &QpContext,
        packet: &RxPacket<'_>,
        in_order: bool,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        let headers = packet.headers;
        let opcode = headers.bth.opcode;
        let irn = headers.irn.ok_or(INVALID)?;
        self.check_named(c)?;
        let len = packet.payload.len();
        match opcode.operation() {
            Operation::Send => {
                let IrnEth::Send { recv_wqe_sn: sn, psn_offset } = irn else { return Err(INVALID) };
                self.check_length(c, opcode, len)?;
                let starts = opcode.is_first() || opcode.is_only();
                let offset = self.offset(c, psn_offset)?;
                if starts != (psn_offset == 0) || (in_order && sn != self.rq.head_sn()) {
                    return Err(INVALID);
                }
                if Class::of(opcode) == Class::LastWithCqe {
                    self.unclaimed(sn, host)?;
                }
                self.place_send(c, sn, offset, &packet.payload, host)?;
                if Class::of(opcode) == Class::LastWithCqe {
                    self.note_last(sn, headers, offset + len as u32, host)?;
                }
            }
            Operation::Write => {
                self.check_length(c, opcode, len)?;
                let reth = headers.reth.ok_or(INVALID)?;
                let ends = opcode.is_last() || opcode.is_only();
                if if ends { reth.len as usize != len } else { reth.len as usize <= len } {
                    return Err(INVALID);
                }
                // The WQE first: an RNR NAK must not leave the packet behind.
                if let IrnEth::WriteImm { recv_wqe_sn: sn, psn_offset } = irn {
                    let offset = self.offset(c, psn_offset)?;
                    if in_order && sn != self.rq.head_sn() {
                        return Err(INVALID);
                    }
                    self.unclaimed(sn, host)?;
                    self.place_write_of(c, packet, &reth, in_order, host)?;
                    self.note_last(sn, headers, offset + len as u32, host)?;
                } else {
                    self.place_write_of(c, packet, &reth, in_order, host)?;
                }
                if opcode.is_first() || opcode.is_only() {
                    host.counters().rx_write_requests += 1;
                }
            }
            _ if opcode.is_answered() => {
                let IrnEth::Read { read_wqe_sn: sn } = irn else { return Err(INVALID) };
                let mut op = self.read_op(c, packet, host)?;
                op.sn = sn;
                if in_order && sn != self.next_read_sn {
                    return Err(INVALID);
                }
                self.buffer_read(now, op, host)?;
            }
            _ => return Err(Refusal::Drop),
        }
        Ok(())
    }

    /// Places the payload of a WRITE packet, except for the part held until everything before it has arrived.
    fn place_write_of(
        &mut self,
        c: &QpContext,
        packet: &RxPacket<'_>,
        reth: &Reth,
        in_order: bool,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        let opcode = packet.headers.bth.opcode;
        let kept = if in_order { 0 } else { watched::kept(c.config.placement, opcode.ends_message(), &packet.payload) };
        let (Payload::Bytes(bytes), 1..) = (packet.payload, kept) else {
            return self.place_write(c, reth, &packet.payload, host);
        };
        let (now, later) = bytes.split_at(bytes.len() - kept);
        self.place_write(c, reth, &Payload::Bytes(now), host)?;
        let to = (self.caller(c), reth.rkey, reth.va.wrapping_add(now.len() as u64));
        // Without memory it is treated as lost.
        if !self.held.get_or_insert_default().keep(packet.headers.bth.psn, to, later) {
            return Err(Refusal::Drop);
        }
        host.counters().rcvd_bytes += kept as u64;
        Ok(())
    }

    /// Places the held parts of packets before which everything has arrived. Fails if a driver does.
    #[cold]
    fn place_held(&mut self, host: &mut impl Host) -> Result<(), Refusal> {
        let mut placed = Ok(());
        if let Some(held) = &mut self.held {
            held.release(self.rx.expected(), |psn, (by, rkey, va), bytes| {
                // Checked on arrival. If refused now, the application has released the memory since.
                let one = host.place_remote(by, rkey, va, bytes.len() as u64, &Payload::Bytes(bytes));
                if placed.is_ok() && matches!(one, Err(MemError::Copy(_))) {
                    placed = Err(Refusal::NakAt(psn, NakCode::RemoteOperationalError));
                }
            });
        }
        placed
    }

    /// Returns the bytes of a message before a packet.
    fn offset(&self, c: &QpContext, psn_offset: u32) -> Result<u32, Refusal> {
        psn_offset.checked_mul(c.mtu).filter(|&o| o <= MAX_MESSAGE).ok_or(INVALID)
    }

    /// Adds a READ or atomic to the Read WQE buffer, at the position given by its number.
    fn buffer_read(&mut self, now: Time, op: ReadOp, host: &mut impl Host) -> Result<(), Refusal> {
        if self.buffer.is_empty() {
            // The first one. Without memory it is treated as lost.
            self.buffer = boxed(None, usize::from(self.depth).next_power_of_two()).map_err(|_| Refusal::Drop)?;
        }
        // A peer with `depth` outstanding has received the responses of all before those: an implied acknowledgement.
        let oldest = op.sn.minus(u32::from(self.depth) - 1);
        while self.oldest_read_sn.before(oldest) {
            let slot = self.read_slot(self.oldest_read_sn);
            let Some(done) = self.buffer[slot].filter(|_| self.oldest_read_sn.before(self.next_read_sn)) else {
                return Err(INVALID);
            };
            let end = done.first.plus(done.packets);
            let before = self.tx.acked();
            if !self.tx.receive_ack(now, end, None) {
                return Err(INVALID);
            }
            if let Some(acked) = self.discipline.on_cumulative(now, end, false) {
                self.tx.receive_ack(now, acked, None);
            }
            self.pass_ack_on(now, None, before, host);
            self.free_acknowledged();
        }
        if op.sn.before(self.next_read_sn) {
            return Err(INVALID);
        }
        let slot = self.read_slot(op.sn);
        if self.buffer[slot].is_some_and(|o| o.psn != op.psn) {
            return Err(INVALID);
        }
        self.buffer[slot] = Some(op);
        Ok(())
    }

    pub(super) fn read_slot(&self, sn: Psn) -> usize {
        sn.get() as usize & self.buffer.len().wrapping_sub(1)
    }

    /// Executes, in order, the READs and atomics before which everything has arrived.
    fn run_reads(&mut self, c: &QpContext, host: &mut impl Host) -> Result<(), Refusal> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        loop {
            let slot = self.read_slot(self.next_read_sn);
            let Some(mut op) = self.buffer[slot] else { return Ok(()) };
            if op.sn != self.next_read_sn || !op.psn.before(self.rx.expected()) {
                return Ok(());
            }
            if let Err(Refusal::Nak(code)) = self.execute(c, &mut op, host) {
                return Err(Refusal::NakAt(op.psn, code));
            }
            op.first = self.tx_assigned;
            self.tx_assigned = op.first.plus(op.packets);
            self.buffer[slot] = Some(op);
            self.next_read_sn = self.next_read_sn.plus(1);
        }
    }

    /// Frees the slots of responses that have arrived in full.
    pub(in crate::rc) fn free_acknowledged(&mut self) {
        while self.oldest_read_sn != self.next_read_sn {
            let slot = self.read_slot(self.oldest_read_sn);
            if self.buffer[slot].is_some_and(|op| self.tx.acked().before(op.first.plus(op.packets))) {
                return;
            }
            self.buffer[slot] = None;
            self.oldest_read_sn = self.oldest_read_sn.plus(1);
        }
    }

    /// Passes an acknowledgement on to the discipline, given that everything before `before` was acknowledged already:
    /// the packet it may echo.
    #[inline]
    fn pass_ack_on(&mut self, now: Time, echo: Option<(Importance, Psn)>, before: Psn, host: &mut impl Host) {
        if !self.discipline.is_plain() {
            let (news, srtt) = (before.before(self.tx.acked()), self.timer.srtt());
            self.discipline.on_ack(&Acknowledged { now, echo, sack: None, news, srtt }, &mut self.tx, host);
        }
    }

    /// Handles a read (N)ACK.
    pub(super) fn read_ack(&mut self, now: Time, c: &QpContext, headers: &Headers, host: &mut impl Host) {
        let psn = headers.bth.psn;
        let (Some(IrnEth::Ack { selective, run }), Some(aeth)) = (headers.irn, headers.aeth) else { return };
        let (cumulative, nack) = match Syndrome::from_u8(aeth.syndrome) {
            Some(Syndrome::Ack { .. }) => (psn.plus(1), None),
            Some(Syndrome::Nak(NakCode::PsnSequenceError)) => (psn, Some(Sack { last: selective, run })),
            _ => {
                host.counters().rx_unexpected += 1;
                return;
            }
        };
        if let Some(sack) = nack {
            self.timer.news(now, c);
            self.timer.arrived(now, sack, c);
        }
        let (before, spurious) = (self.tx.acked(), self.tx.spurious());
        if run == DUPLICATE && nack.is_none() && headers.bth.importance == Importance::None {
            self.timer.news(now, c);
            self.tx.receive_duplicate(selective);
        }
        if !self.tx.receive_acks(now, cumulative, nack) {
            host.counters().rx_unexpected += 1;
            return;
        }
        self.timer.measured(now, &mut self.tx, c);
        host.counters().irn_spurious_timeouts += u64::from(self.tx.spurious().wrapping_sub(spurious));
        self.pass_ack_on(now, Some((headers.bth.importance, selective)), before, host);
        self.fetch.observe(now, &self.tx);
        let cumulative = match self.discipline.on_cumulative(now, cumulative, headers.bth.ack_req) {
            None => cumulative,
            Some(acked) => {
                self.tx.receive_ack(now, acked, None);
                acked
            }
        };
        host.counters().irn_read_acks_rcvd += 1;
        if before.before(cumulative) {
            self.timer.progress(now, self.tx.outstanding(), self.tx.acked(), c);
            self.free_acknowledged();
        }
    }
}
