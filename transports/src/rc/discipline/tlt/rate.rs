//! TLT on a stream that leaves at a rate (EuroSys 2021, §5.2): colours alone, not visible to the receiver.

use crate::footprint::{bits, footprint, left, maybe, why, width};
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, TxSlot};
use crate::rc::discipline::hooks::{Departure, Hooks};
use crate::recovery::Sender;
use crate::sideband::Colour;

/// Selects important packets: the last one to send, the first and the last of each round of retransmissions, and every
/// Nth.
#[derive(Clone, Debug)]
pub(in crate::rc) struct TltRate {
    /// N, 0 for none.
    every: u32,
    /// Unimportant packets since the latest important one.
    since: u32,
    /// The packet sent last, and whether one of these was.
    last: Option<Psn>,
}

impl TltRate {
    /// Returns `None` unless the transport has TLT on streams that leave at a rate.
    pub(in crate::rc) fn new(c: &QpContext) -> Option<TltRate> {
        let tlt = c.discipline().tlt().filter(|_| c.config.has_tlt_rate())?;
        Some(TltRate { every: tlt.every, since: 0, last: None })
    }

    /// Handles the departure of a packet. `high`: one past the highest sent before it; `follows`: another one may go
    /// right after it. Returns whether it is important.
    fn sent(&mut self, psn: Psn, high: Psn, follows: bool) -> bool {
        let again = psn.before(high);
        // Not after the last packet sent: a round begins.
        let begins = again && self.last.is_none_or(|last| !last.before(psn));
        let ends = again && psn.plus(1) == high;
        self.last = Some(psn);
        self.since += 1;
        let important = !follows || begins || ends || self.since == self.every;
        if important {
            self.since = 0;
        }
        important
    }
}

impl Hooks for TltRate {
    fn start(&mut self, _first: Psn, _c: &QpContext) {
        (self.since, self.last) = (0, None);
    }

    fn mark(&mut self, sent: &Departure, _: &Sender, _c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> bool {
        if self.sent(sent.psn, sent.high, sent.follows) {
            super::count(host, out);
        } else {
            out.colour = Colour::Red;
        }
        true
    }
}

footprint!(TltRate, |at| {
    every => left(why::SHARED),
    since => bits(width::COUNT),
    last => maybe(width::PSN),
});
