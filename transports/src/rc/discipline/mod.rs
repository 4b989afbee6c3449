//! Mechanisms besides recovery that select and mark the packets of a stream: pulls (NDP), TLT's marks, tail loss probes
//! and low priorities (RC3). Each has a file here; the halves of a connection call the [`Hooks`].

mod pull;
mod rc3;
mod tlp;
mod tlt;

pub use self::pull::PullTurn;

use self::pull::Ends;
use self::rc3::{LowAcks, LowLoop};
use self::tlp::Tlp;
use self::tlt::{Tlt, TltRate};
use super::fetch::Fetch;
use crate::footprint::{Ledger, Parts, Setup, part};
use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, TxSlot};
use crate::recovery::{Sack, Sender};
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::wire::{Headers, Importance, Opcode};

/// A choice of what to send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
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
pub(super) enum What {
    /// With its payload, for the first time.
    Whole,
    /// A duplicate.
    Again,
    /// Without its payload.
    Trimmed,
}

/// A half's stream when a packet may be sent.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) now: Time,
    pub(super) fetch: &'a mut Fetch,
    pub(super) stream: &'a mut Sender,
    /// A new packet waits.
    pub(super) more: bool,
    /// The stream's packet without payload.
    pub(super) clock: Opcode,
}

/// A packet that is built and leaves.
#[derive(Copy, Clone, Debug)]
pub(super) struct Departure {
    pub(super) now: Time,
    pub(super) psn: Psn,
    /// Everything before this had been sent.
    pub(super) high: Psn,
    /// A new packet waits.
    pub(super) more: bool,
    /// Another packet may go right after this one.
    pub(super) follows: bool,
    /// Smoothed round trip, ns, 0 before the first.
    pub(super) srtt: u64,
}

impl Departure {
    fn is_fresh(&self) -> bool {
        !self.psn.before(self.high)
    }
}

/// An acknowledgement that the stream has processed.
#[derive(Copy, Clone, Debug)]
pub(super) struct Acknowledged {
    pub(super) now: Time,
    /// The importance that it echoes, and the packet that it names.
    pub(super) echo: Option<(Importance, Psn)>,
    pub(super) sack: Option<Sack>,
    /// It acknowledges more cumulatively than before.
    pub(super) news: bool,
    /// Smoothed round trip, ns, 0 before the first.
    pub(super) srtt: u64,
}

/// Effect of a discipline's deadlines.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Number of packets that timed out.
    pub(super) late: u32,
    /// The retransmission timer restarts.
    pub(super) restart: bool,
    /// The retransmission timer is held if it has expired: every packet is answered, and the receiver is to act.
    pub(super) hold: bool,
}

/// What a discipline does beyond recovery. The defaults are those of recovery alone.
pub(super) trait Hooks {
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
        _what: What,
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

/// Recovery alone.
#[derive(Copy, Clone, Debug)]
pub(super) struct Plain;

impl Hooks for Plain {}

/// The mechanism of one half of a connection, requester or responder. Most have none, which a single check detects.
#[derive(Clone, Debug)]
pub(super) enum Discipline {
    /// Recovery alone selects packets.
    Plain(Plain),
    /// NDP: the receiver requests packets. Recovery's stream is kept in step.
    Pulled(Box<Ends>),
    /// TLT by the rules for windows.
    Window(Box<Tlt>),
    /// TLT by the rules for rates.
    Rate(Box<TltRate>),
    /// Tail loss probes.
    Probes(Box<Tlp>),
    /// RC3: a requester's loop at low priority.
    Low(Box<LowLoop>),
    /// RC3: a responder's acknowledgements at low priority.
    LowAcks(Box<LowAcks>),
}

/// Calls a hook of whichever discipline there is.
macro_rules! hook {
    ($discipline:expr, $it:ident => $call:expr) => {
        match $discipline {
            Discipline::Plain($it) => $call,
            Discipline::Pulled($it) => $call,
            Discipline::Window($it) => $call,
            Discipline::Rate($it) => $call,
            Discipline::Probes($it) => $call,
            Discipline::Low($it) => $call,
            Discipline::LowAcks($it) => $call,
        }
    };
}

impl Discipline {
    /// Creates that of a requester, which sends requests and receives responses.
    pub(super) fn of_requester(c: &QpContext) -> Result<Discipline, OutOfMemory> {
        Ok(match Discipline::of_responder(c)? {
            Discipline::Plain(plain) => {
                let rate = TltRate::new(c).map(|rate| Discipline::Rate(Box::new(rate)));
                rate.or(Tlp::new(c).map(|tlp| Discipline::Probes(Box::new(tlp)))).unwrap_or(Discipline::Plain(plain))
            }
            Discipline::LowAcks(_) => {
                LowLoop::new(c).map_or(Discipline::Plain(Plain), |low| Discipline::Low(Box::new(low)))
            }
            of_both => of_both,
        })
    }

    /// Creates that of a responder, which sends responses and receives requests.
    pub(super) fn of_responder(c: &QpContext) -> Result<Discipline, OutOfMemory> {
        if let Some(ends) = Ends::new(c)? {
            return Ok(Discipline::Pulled(Box::new(ends)));
        }
        let low = LowAcks::new(c).map(|acks| Discipline::LowAcks(Box::new(acks)));
        let tlt = Tlt::new(c).map(|tlt| Discipline::Window(Box::new(tlt)));
        Ok(low.or(tlt).unwrap_or(Discipline::Plain(Plain)))
    }

    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Discipline::Plain(_))
    }

    /// Returns whether it recovers losses itself, in place of the stream.
    #[inline]
    pub(super) fn recovers(&self) -> bool {
        matches!(self, Discipline::Pulled(_))
    }

    /// Returns whether it has deadlines of its own.
    #[inline]
    pub(super) fn has_timers(&self) -> bool {
        matches!(self, Discipline::Pulled(_) | Discipline::Probes(_))
    }

    /// Prepares a new stream for it.
    pub(super) fn prepare(&self, stream: Sender, c: &QpContext) -> Sender {
        if let Discipline::Low(_) = self { stream.with_low_priority(c.config.tracked()) } else { stream }
    }
}

impl Hooks for Discipline {
    irnic_units::delegate!(hook:
        fn start_receiving(&mut self, c: &QpContext);
        fn start(&mut self, first: Psn, c: &QpContext);
        fn stop(&mut self, end: Psn);
        #[cold]
        fn wants_tx(&self, fetch: &Fetch, stream: &Sender, more: bool) -> bool;
        #[cold]
        fn choose(&mut self, turn: Turn<'_>, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> Chosen;
        #[cold]
        fn mark(
            &mut self,
            sent: &Departure,
            stream: &Sender,
            c: &QpContext,
            host: &mut impl Host,
            out: &mut TxSlot,
        ) -> bool;
        #[inline]
        fn on_cumulative(&mut self, now: Time, cumulative: Psn, asks: bool) -> Option<Psn>;
        #[cold]
        fn on_ack(&mut self, ack: &Acknowledged, stream: &mut Sender, host: &mut impl Host);
        #[inline]
        fn expects(&self, headers: &Headers) -> bool;
        #[inline]
        fn answer(&mut self, now: Time, packet: &RxPacket<'_>, what: What, expected: Psn, host: &mut impl Host) -> bool;
        fn next_deadline(&self) -> Time;
        fn on_deadline(&mut self, now: Time, stream: &Sender, srtt: u64, round_trips: u64) -> Due;
        #[cold]
        fn puts_off_timeout(&mut self, stream: &Sender, round_trips: u64) -> bool;
        fn on_timeout(&mut self, stream: &Sender);
        fn go_back(&mut self, stream: &mut Sender);
    );
}

impl Parts for Discipline {
    fn list(&self, at: &Setup<'_>, ledger: &mut Ledger) {
        match self {
            Discipline::Plain(_) => {}
            Discipline::Pulled(ends) => ledger.enter(at, "pulled", part(&**ends).heap(size_of_val(&**ends))),
            Discipline::Window(tlt) => ledger.enter(at, "tlt", part(&**tlt).heap(size_of_val(&**tlt))),
            Discipline::Rate(rate) => ledger.enter(at, "tlt", part(&**rate).heap(size_of_val(&**rate))),
            Discipline::Probes(tlp) => ledger.enter(at, "tlp", part(&**tlp).heap(size_of_val(&**tlp))),
            Discipline::Low(low) => ledger.enter(at, "rc3", part(&**low).heap(size_of_val(&**low))),
            Discipline::LowAcks(acks) => ledger.enter(at, "rc3", part(&**acks).heap(size_of_val(&**acks))),
        }
    }
}
