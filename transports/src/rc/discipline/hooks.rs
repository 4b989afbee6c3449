//! What a discipline does, and what it is given.

use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, TxSlot};
use crate::rc::fetch::Fetch;
use crate::recovery::{Sack, Sender};
use crate::time::Time;
use crate::wire::{Headers, Importance, Opcode};

/// A choice of what to send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(in crate::rc) enum Chosen {
    /// This packet.
    Packet(Psn),
    /// The packet selected by the stream.
    Stream,
    /// A packet that the discipline has built itself, and that asks for telemetry where the stream's packets do.
    Built,
    Nothing,
}

/// How a packet has arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(in crate::rc) enum Delivery {
    /// With its payload, for the first time.
    Whole,
    /// A duplicate.
    Again,
    /// Without its payload.
    Trimmed,
}

/// A half's stream when a packet may be sent.
#[derive(Debug)]
pub(in crate::rc) struct Turn<'a> {
    pub(in crate::rc) now: Time,
    pub(in crate::rc) fetch: &'a mut Fetch,
    pub(in crate::rc) stream: &'a mut Sender,
    /// A new packet waits.
    pub(in crate::rc) more: bool,
    /// The stream's packet without payload.
    pub(in crate::rc) clock: Opcode,
}

/// A packet that is built and leaves.
#[derive(Copy, Clone, Debug)]
pub(in crate::rc) struct Departure {
    pub(in crate::rc) now: Time,
    pub(in crate::rc) psn: Psn,
    /// Everything before this had been sent.
    pub(in crate::rc) high: Psn,
    /// A new packet waits.
    pub(in crate::rc) more: bool,
    /// Another packet may go right after this one.
    pub(in crate::rc) follows: bool,
    /// Smoothed round trip, ns, 0 before the first.
    pub(in crate::rc) srtt: u64,
}

impl Departure {
    pub(super) fn is_fresh(&self) -> bool {
        !self.psn.before(self.high)
    }
}

/// An acknowledgement that the stream has processed.
#[derive(Copy, Clone, Debug)]
pub(in crate::rc) struct Acknowledged {
    pub(in crate::rc) now: Time,
    /// The importance that it echoes, and the packet that it names.
    pub(in crate::rc) echo: Option<(Importance, Psn)>,
    pub(in crate::rc) sack: Option<Sack>,
    /// It acknowledges more cumulatively than before.
    pub(in crate::rc) news: bool,
    /// Smoothed round trip, ns, 0 before the first.
    pub(in crate::rc) srtt: u64,
}

/// Effect of a discipline's deadlines.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::rc) struct Due {
    /// Number of packets that timed out.
    pub(in crate::rc) late: u32,
    /// The retransmission timer restarts.
    pub(in crate::rc) restart: bool,
    /// The retransmission timer is held if it has expired: every packet is answered, and the receiver is to act.
    pub(in crate::rc) hold: bool,
}

/// What a discipline does beyond recovery. The defaults are those of recovery alone.
pub(in crate::rc) trait Hooks {
    /// Begins to receive the peer's stream.
    fn start_receiving(&mut self, _c: &QpContext) {}

    /// Begins a stream with `first`.
    fn start(&mut self, _first: Psn, _c: &QpContext) {}

    /// Sends nothing more of its own (RESET, ERR); the stream ends with `end`.
    fn stop(&mut self, _end: Psn) {}

    /// Returns whether a packet may be sent; `more`: a new one waits.
    fn wants_tx(&self, fetch: &Fetch, stream: &Sender, more: bool) -> bool {
        fetch.wants_tx(stream, more)
    }

    /// Selects what to send.
    fn choose(&mut self, _turn: Turn<'_>, _c: &QpContext, _host: &mut impl Host, _out: &mut TxSlot) -> Chosen {
        Chosen::Stream
    }

    /// Marks a packet for the peer and for switches. Returns whether its acknowledgement will measure a round trip.
    fn mark(
        &mut self,
        _sent: &Departure,
        _stream: &Sender,
        _c: &QpContext,
        _host: &mut impl Host,
        _out: &mut TxSlot,
    ) -> bool {
        true
    }

    /// Handles a cumulative acknowledgement, of everything before `cumulative`; `asks`: it inquires for what is left to
    /// send. Returns the one that results, if it may differ.
    fn on_cumulative(&mut self, _now: Time, _cumulative: Psn, _asks: bool) -> Option<Psn> {
        None
    }

    /// Handles an acknowledgement.
    fn on_ack(&mut self, _ack: &Acknowledged, _stream: &mut Sender, _host: &mut impl Host) {}

    /// Returns whether a data packet with these headers may come.
    fn expects(&self, headers: &Headers) -> bool {
        headers.ndp.is_none() && !headers.bth.low
    }

    /// Acknowledges a data packet in a way of its own, if it has one for it. `expected` is the first one missing now.
    fn answer(
        &mut self,
        _now: Time,
        _packet: &RxPacket<'_>,
        _delivery: Delivery,
        _expected: Psn,
        _host: &mut impl Host,
    ) -> bool {
        false
    }

    /// Returns when [`Self::on_deadline`] is due.
    fn next_deadline(&self) -> Time {
        Time::NEVER
    }

    /// Runs timers that are due; `round_trips`: number measured so far.
    fn on_deadline(&mut self, _now: Time, _stream: &Sender, _srtt: u64, _round_trips: u64) -> Due {
        Due::default()
    }

    /// Handles a retransmission timeout before anything else does. Returns whether it is put off.
    fn puts_off_timeout(&mut self, _stream: &Sender, _round_trips: u64) -> bool {
        false
    }

    /// Handles a retransmission timeout.
    fn on_timeout(&mut self, _stream: &Sender) {}

    /// Sends the stream again from the first unacknowledged packet.
    fn go_back(&mut self, stream: &mut Sender) {
        stream.go_back();
    }
}
