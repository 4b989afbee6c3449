//! Pulled streams (NDP) in the halves of a connection: headers without payloads, feedback and pulls.

use super::discipline::Delivery;
use super::requester::Requester;
use super::responder::Responder;
use crate::packet::RxPacket;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, TxSlot};
use crate::recovery::Arrival;
use crate::time::Time;
use crate::wire::{Aeth, Credits, Headers, Opcode, Syndrome};

impl Requester {
    /// Receives a response without its payload.
    pub(in crate::rc) fn receive_trimmed(&mut self, now: Time, packet: &RxPacket<'_>, host: &mut impl Host) {
        let psn = packet.headers.bth.psn;
        let delivery = match self.responses.locate(psn) {
            Arrival::InOrder | Arrival::OutOfOrder(_) => Delivery::Trimmed,
            Arrival::Duplicate => Delivery::Again,
            Arrival::OutOfWindow => return,
        };
        let known = self.speaks_irn() && (delivery == Delivery::Again || self.find_response(psn).is_some());
        let Some(ends) = self.discipline.pulled_mut().filter(|_| known) else { return };
        ends.receive.arrived(now, packet, delivery, self.responses.expected(), host);
    }

    /// Handles feedback on requests.
    pub(in crate::rc) fn feedback(&mut self, now: Time, c: &QpContext, headers: &Headers, host: &mut impl Host) {
        let (Some(ends), Some(aeth)) = (self.discipline.pulled_mut(), headers.aeth) else {
            host.counters().rx_unexpected += 1;
            return;
        };
        let Ok(acked) = ends.send.feedback(now, headers) else {
            host.counters().rx_unexpected += 1;
            return;
        };
        let before = self.stream.acked();
        self.stream.receive_ack(now, acked, None);
        self.update_credits(&aeth);
        self.timer.heard(now);
        if before.before(acked) {
            self.advanced(now, acked, c);
        }
    }

    /// Builds the next packet with feedback on responses, or a pull; returns false if there is none.
    pub(in crate::rc) fn poll_feedback(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> bool {
        let Some(ends) = self.discipline.pulled_mut() else { return false };
        let syndrome = Syndrome::Ack { credits: Credits::INVALID }.to_u8();
        let aeth = Aeth { syndrome, msn: self.responses.msn() };
        let built = ends.receive.poll(c, Opcode::RcReadFeedback, self.responses.expected(), aeth, out);
        host.counters().irn_read_acks_sent += u64::from(built);
        built
    }
}

impl Responder {
    /// Receives a request without its payload.
    pub(in crate::rc) fn receive_trimmed(
        &mut self,
        now: Time,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) {
        let headers = packet.headers;
        if self.discipline.pulled_mut().is_none() || self.pending.is_some() {
            return;
        }
        if !self.irn {
            if !self.may_enter_irn(c, headers) {
                return;
            }
            self.enter_irn(c);
        }
        let delivery = match self.rx.locate(headers.bth.psn) {
            Arrival::InOrder | Arrival::OutOfOrder(_) => Delivery::Trimmed,
            Arrival::Duplicate => Delivery::Again,
            Arrival::OutOfWindow => return,
        };
        self.heard(now, c);
        self.answer(now, packet, delivery, host);
    }

    /// Handles feedback on responses.
    pub(in crate::rc) fn read_feedback(&mut self, now: Time, c: &QpContext, headers: &Headers, host: &mut impl Host) {
        let Some(Ok(acked)) = self.discipline.pulled_mut().map(|ends| ends.send.feedback(now, headers)) else {
            host.counters().rx_unexpected += 1;
            return;
        };
        host.counters().irn_read_acks_rcvd += 1;
        let before = self.tx.acked();
        self.tx.receive_ack(now, acked, None);
        self.timer.heard(now);
        if before.before(acked) {
            self.timer.progress(now, self.tx.outstanding(), self.tx.acked(), c);
            self.free_acknowledged();
        }
    }

    /// Builds the next packet with feedback on requests, or a pull; returns false if there is none.
    pub(in crate::rc) fn poll_feedback(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> bool {
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: self.credits(c) }.to_u8(), msn: self.rx.msn() };
        let Some(ends) = self.discipline.pulled_mut() else { return false };
        let built = ends.receive.poll(c, Opcode::RcFeedback, self.rx.expected(), aeth, out);
        host.counters().sent_acks += u64::from(built);
        built
    }
}
