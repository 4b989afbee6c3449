//! Pulls (NDP) in the halves of a connection: each sends one stream, and receives the peer's.

use super::{PullReceiver, PullSender, PullTurn};
use crate::footprint::{footprint, part};
use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, TxSlot};
use crate::rc::discipline::hooks::{Chosen, Delivery, Departure, Due, Hooks, Turn};
use crate::rc::fetch::Fetch;
use crate::rc::requester::Requester;
use crate::rc::responder::Responder;
use crate::recovery::{Arrival, Sender};
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::wire::{Aeth, Credits, Headers, Opcode, Syndrome};

/// The two ends in one half of a connection.
#[derive(Clone, Debug)]
pub(in crate::rc) struct Ends {
    /// The end that sends this half's stream.
    send: PullSender,
    /// The end that receives the peer's stream.
    receive: PullReceiver,
}

impl Ends {
    /// Returns `None` unless the transport pulls.
    pub(in crate::rc) fn new(c: &QpContext) -> Result<Option<Ends>, OutOfMemory> {
        let ends = (PullSender::new(c)?, PullReceiver::new(c)?);
        Ok(if let (Some(send), Some(receive)) = ends { Some(Ends { send, receive }) } else { None })
    }
}

impl Hooks for Ends {
    fn start_receiving(&mut self, c: &QpContext) {
        self.receive.start(c);
    }

    fn start(&mut self, first: Psn, c: &QpContext) {
        self.send.start(first, c);
    }

    fn stop(&mut self, _end: Psn) {
        self.receive.clear();
    }

    fn wants_tx(&self, _fetch: &Fetch, stream: &Sender, more: bool) -> bool {
        (more || stream.outstanding()) && self.send.wants_tx(more)
    }

    fn choose(&mut self, turn: Turn<'_>, _c: &QpContext, _host: &mut impl Host, _out: &mut TxSlot) -> Chosen {
        let Some((psn, fresh)) = self.send.tx_free(turn.now, turn.more) else { return Chosen::Nothing };
        if fresh {
            turn.stream.tx_new(turn.now, true);
        }
        Chosen::Packet(psn)
    }

    fn mark(&mut self, sent: &Departure, _: &Sender, c: &QpContext, _: &mut impl Host, out: &mut TxSlot) -> bool {
        self.send.mark(sent.more, c, out);
        true
    }

    fn on_cumulative(&mut self, now: Time, cumulative: Psn, asks: bool) -> Option<Psn> {
        let acked = self.send.acknowledge(now, cumulative);
        if asks {
            self.send.nudge();
        }
        Some(acked)
    }

    fn expects(&self, headers: &Headers) -> bool {
        !headers.bth.low
    }

    fn answer(
        &mut self,
        now: Time,
        packet: &RxPacket<'_>,
        delivery: Delivery,
        expected: Psn,
        host: &mut impl Host,
    ) -> bool {
        let pulled = packet.headers.ndp.is_some();
        if pulled {
            self.receive.arrived(now, packet, delivery, expected, host);
        }
        pulled
    }

    fn next_deadline(&self) -> Time {
        self.send.next_deadline().min(self.receive.next_deadline())
    }

    fn on_deadline(&mut self, now: Time, _stream: &Sender, _srtt: u64, _round_trips: u64) -> Due {
        self.receive.on_deadline(now);
        Due { late: self.send.on_deadline(now), hold: !self.send.is_flying(), ..Due::default() }
    }

    fn go_back(&mut self, _stream: &mut Sender) {
        self.send.go_back();
    }
}

impl Ends {
    /// Handles a returned packet.
    pub(in crate::rc) fn returned(&mut self, now: Time, psn: Psn) {
        self.send.returned(now, psn);
    }

    /// Grants a pull for the peer's stream.
    pub(in crate::rc) fn grant_pull(&mut self) -> Option<PullTurn> {
        self.receive.grant()
    }

    /// Returns whether more pulls for the peer's stream are due.
    pub(in crate::rc) fn owes_pulls(&self) -> bool {
        self.receive.is_owed()
    }

    /// Returns whether there is a packet with feedback on the peer's stream, or a pull.
    pub(in crate::rc) fn wants_feedback(&self) -> bool {
        self.receive.wants_tx()
    }
}

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

footprint!(Ends, |at| {
    send => part(send),
    receive => part(receive),
});
