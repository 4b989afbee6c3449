//! Mechanisms besides recovery that select and mark the packets of a stream: pulls, TLT marks, probes or low
//! priorities.

use super::pull::{PullReceiver, PullSender};
use super::rc3::{LowAcks, LowLoop};
use super::tlp::Tlp;
use super::tlt::{Tlt, TltRate};
use crate::footprint::{Ledger, Parts, Setup, footprint, part};
use crate::qp::context::QpContext;
use crate::room::OutOfMemory;

/// The mechanism of one half of a connection, requester or responder. Most have none, which a single check detects.
#[derive(Clone, Debug)]
pub(super) enum Discipline {
    /// Recovery alone selects packets.
    Plain,
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

/// NDP: the two ends in one half of a connection.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    /// The end that sends this half's stream.
    pub(super) send: PullSender,
    /// The end that receives the peer's stream.
    pub(super) receive: PullReceiver,
}

impl Discipline {
    /// Creates that of a requester, which sends requests and receives responses.
    pub(super) fn of_requester(c: &QpContext) -> Result<Discipline, OutOfMemory> {
        Ok(match Discipline::of_responder(c)? {
            Discipline::Plain => {
                let rate = TltRate::new(c).map(|rate| Discipline::Rate(Box::new(rate)));
                rate.or(Tlp::new(c).map(|tlp| Discipline::Probes(Box::new(tlp)))).unwrap_or(Discipline::Plain)
            }
            Discipline::LowAcks(_) => LowLoop::new(c).map_or(Discipline::Plain, |low| Discipline::Low(Box::new(low))),
            of_both => of_both,
        })
    }

    /// Creates that of a responder, which sends responses and receives requests.
    pub(super) fn of_responder(c: &QpContext) -> Result<Discipline, OutOfMemory> {
        if let (Some(send), Some(receive)) = (PullSender::new(c)?, PullReceiver::new(c)?) {
            return Ok(Discipline::Pulled(Box::new(Ends { send, receive })));
        }
        let low = LowAcks::new(c).map(|acks| Discipline::LowAcks(Box::new(acks)));
        let tlt = Tlt::new(c).map(|tlt| Discipline::Window(Box::new(tlt)));
        Ok(low.or(tlt).unwrap_or(Discipline::Plain))
    }

    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Discipline::Plain)
    }

    #[inline]
    pub(super) fn is_pulled(&self) -> bool {
        matches!(self, Discipline::Pulled(_))
    }

    /// Returns whether it has deadlines of its own.
    #[inline]
    pub(super) fn has_timers(&self) -> bool {
        matches!(self, Discipline::Pulled(_) | Discipline::Probes(_))
    }

    #[inline]
    pub(super) fn ends(&self) -> Option<&Ends> {
        if let Discipline::Pulled(ends) = self { Some(ends) } else { None }
    }

    #[inline]
    pub(super) fn ends_mut(&mut self) -> Option<&mut Ends> {
        if let Discipline::Pulled(ends) = self { Some(ends) } else { None }
    }

    #[inline]
    pub(super) fn send_mut(&mut self) -> Option<&mut PullSender> {
        self.ends_mut().map(|ends| &mut ends.send)
    }

    #[inline]
    pub(super) fn receive(&self) -> Option<&PullReceiver> {
        self.ends().map(|ends| &ends.receive)
    }

    #[inline]
    pub(super) fn receive_mut(&mut self) -> Option<&mut PullReceiver> {
        self.ends_mut().map(|ends| &mut ends.receive)
    }

    #[inline]
    pub(super) fn tlt(&self) -> Option<&Tlt> {
        if let Discipline::Window(tlt) = self { Some(tlt) } else { None }
    }

    #[inline]
    pub(super) fn tlt_mut(&mut self) -> Option<&mut Tlt> {
        if let Discipline::Window(tlt) = self { Some(tlt) } else { None }
    }

    #[inline]
    pub(super) fn low_acks(&self) -> Option<&LowAcks> {
        if let Discipline::LowAcks(acks) = self { Some(acks) } else { None }
    }

    #[inline]
    pub(super) fn low_acks_mut(&mut self) -> Option<&mut LowAcks> {
        if let Discipline::LowAcks(acks) = self { Some(acks) } else { None }
    }

    #[inline]
    pub(super) fn tlp_mut(&mut self) -> Option<&mut Tlp> {
        if let Discipline::Probes(tlp) = self { Some(tlp) } else { None }
    }
}

impl Parts for Discipline {
    fn list(&self, at: &Setup<'_>, ledger: &mut Ledger) {
        match self {
            Discipline::Plain => {}
            Discipline::Pulled(ends) => ledger.enter(at, "pulled", part(&**ends).heap(size_of_val(&**ends))),
            Discipline::Window(tlt) => ledger.enter(at, "tlt", part(&**tlt).heap(size_of_val(&**tlt))),
            Discipline::Rate(rate) => ledger.enter(at, "tlt", part(&**rate).heap(size_of_val(&**rate))),
            Discipline::Probes(tlp) => ledger.enter(at, "tlp", part(&**tlp).heap(size_of_val(&**tlp))),
            Discipline::Low(low) => ledger.enter(at, "rc3", part(&**low).heap(size_of_val(&**low))),
            Discipline::LowAcks(acks) => ledger.enter(at, "rc3", part(&**acks).heap(size_of_val(&**acks))),
        }
    }
}

footprint!(Ends, |at| {
    send => part(send),
    receive => part(receive),
});
