//! Mechanisms besides recovery that select and mark the packets of a stream: pulls (NDP), TLT's marks, tail loss probes
//! and low priorities (RC3). Each has a file here; the halves of a connection call the [`Hooks`]. What pulls
//! and low priorities do beyond these is beside the halves (`rc::pull`, `rc::rc3`).

mod hooks;
mod pull;
mod rc3;
mod tlp;
mod tlt;

pub(super) use self::hooks::{Acknowledged, Chosen, Delivery, Departure, Due, Hooks, Turn};
pub(super) use self::rc3::LowLoop;
pub(super) use self::tlt::count_echo;

use self::pull::Ends;
use self::rc3::LowAcks;
use self::tlp::Tlp;
use self::tlt::{Tlt, TltRate};
use super::fetch::Fetch;
use crate::footprint::{Ledger, Parts, Setup, part};
use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, TxSlot};
use crate::recovery::Sender;
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::wire::Headers;

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

    /// NDP: returns both ends.
    pub(super) fn pulled(&self) -> Option<&Ends> {
        if let Discipline::Pulled(ends) = self { Some(ends) } else { None }
    }

    /// NDP: returns both ends.
    pub(super) fn pulled_mut(&mut self) -> Option<&mut Ends> {
        if let Discipline::Pulled(ends) = self { Some(ends) } else { None }
    }

    /// RC3: returns a requester's loop.
    pub(super) fn low(&self) -> Option<&LowLoop> {
        if let Discipline::Low(low) = self { Some(low) } else { None }
    }

    /// RC3: returns a requester's loop.
    pub(super) fn low_mut(&mut self) -> Option<&mut LowLoop> {
        if let Discipline::Low(low) = self { Some(low) } else { None }
    }

    /// RC3: returns a responder's acknowledgements.
    pub(super) fn low_acks(&self) -> Option<&LowAcks> {
        if let Discipline::LowAcks(acks) = self { Some(acks) } else { None }
    }

    /// RC3: returns a responder's acknowledgements.
    pub(super) fn low_acks_mut(&mut self) -> Option<&mut LowAcks> {
        if let Discipline::LowAcks(acks) = self { Some(acks) } else { None }
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
        fn answer(
            &mut self,
            now: Time,
            packet: &RxPacket<'_>,
            delivery: Delivery,
            expected: Psn,
            host: &mut impl Host,
        ) -> bool;
        fn next_deadline(&self) -> Time;
        fn on_deadline(&mut self, now: Time, stream: &Sender, srtt: u64, round_trips: u64) -> Due;
        #[cold]
        fn puts_off_timeout(&mut self, stream: &Sender, round_trips: u64) -> bool;
        fn on_timeout(&mut self, stream: &Sender);
        fn go_back(&mut self, stream: &mut Sender);
    );
}

impl Parts for Discipline {
    fn list(&self, at: &Setup, ledger: &mut Ledger) {
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
