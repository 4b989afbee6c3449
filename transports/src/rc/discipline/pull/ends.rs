//! The two ends of pulled streams (NDP) in one half of a connection: it sends one stream, and receives the peer's.

use super::{PullReceiver, PullSender};
use crate::footprint::{footprint, part};
use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, PullTurn, TxSlot};
use crate::rc::discipline::hooks::{Chosen, Delivery, Departure, Due, Hooks, Turn};
use crate::rc::fetch::Fetch;
use crate::recovery::Sender;
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::wire::Headers;

/// The two ends in one half of a connection.
#[derive(Clone, Debug)]
pub(in crate::rc) struct Ends {
    /// The end that sends this half's stream.
    pub(in crate::rc) send: PullSender,
    /// The end that receives the peer's stream.
    pub(in crate::rc) receive: PullReceiver,
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

footprint!(Ends, |at| {
    send => part(send),
    receive => part(receive),
});
