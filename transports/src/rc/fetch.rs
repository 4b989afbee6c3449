//! The delay of a retransmission whose payload has to be fetched from host memory again.

use crate::footprint::{footprint, left, why};
use crate::psn::Psn;
use crate::recovery::Sender;
use crate::time::Time;

/// IRN §4.5.3, "Delay in Fetching Retransmissions": new packets are fetched ahead of time, but a retransmission may go
/// only some time after the loss was detected, that is, after loss recovery was triggered or a look-ahead found it.
/// Each packet found missing waits anew, unless a fetch is pending already, which then includes it, lest a timeout
/// shorter than the delay postpone it for ever. Going back N fetches everything that follows at once, and waits once.
///
/// Delays start at [`Self::observe`], which is called after each call that may change the stream's next retransmission.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    /// ns; 0: no delay.
    delay: u64,
    /// The lost packet last requested, until it is sent, and the stream's position then: an earlier one means going
    /// back.
    lost: Option<Psn>,
    next: Psn,
    /// Time at which the lost packet is available; never if it is already, or nothing is lost.
    ready: Time,
}

impl Fetch {
    /// Creates the state of a stream that starts with `first`. `delay` in ns.
    pub(super) fn new(delay: u64, first: Psn) -> Fetch {
        Fetch { delay, lost: None, next: first, ready: Time::NEVER }
    }

    /// Examines the next retransmission of the stream, if any.
    #[inline]
    pub(super) fn observe(&mut self, now: Time, stream: &Sender) {
        if self.delay != 0 {
            self.update(now, stream);
        }
    }

    #[cold]
    fn update(&mut self, now: Time, stream: &Sender) {
        let (lost, next) = (stream.lost(), stream.next());
        let found = if lost.is_some() { lost != self.lost } else { next.before(self.next) };
        if found && !self.pending() {
            self.ready = now + self.delay;
        } else if next == stream.high() && !stream.wants_tx(false) {
            self.ready = Time::NEVER;
        }
        self.lost = lost.or(self.lost);
        self.next = next;
    }

    /// Returns whether a fetch is pending: no retransmission may be sent.
    #[inline]
    pub(super) fn pending(&self) -> bool {
        self.ready != Time::NEVER
    }

    /// Returns when [`Self::on_deadline`] is due.
    #[inline]
    pub(super) fn deadline(&self) -> Time {
        self.ready
    }

    /// Completes the fetches due by `now`.
    pub(super) fn on_deadline(&mut self, now: Time) {
        if self.ready <= now {
            self.ready = Time::NEVER;
        }
    }

    /// Returns [`Sender::wants_tx`] for packets that need not wait.
    #[inline]
    pub(super) fn wants_tx(&self, stream: &Sender, more: bool) -> bool {
        // Most streams are idle, those of responders above all.
        (more || stream.outstanding()) && if self.pending() { stream.wants_new(more) } else { stream.wants_tx(more) }
    }

    /// Returns [`Sender::tx_free`] for packets that need not wait.
    #[inline]
    pub(super) fn tx_free(&mut self, now: Time, stream: &mut Sender, more: bool) -> Option<Psn> {
        if self.delay == 0 { stream.tx_free(now, more) } else { self.tx_or_wait(now, stream, more) }
    }

    #[cold]
    fn tx_or_wait(&mut self, now: Time, stream: &mut Sender, more: bool) -> Option<Psn> {
        let psn = if self.pending() { stream.tx_new(now, more) } else { stream.tx_free(now, more) };
        if psn.is_some() && psn == self.lost {
            self.lost = None;
        }
        self.update(now, stream);
        psn
    }
}

footprint!(Fetch, |at| {
    delay => left(why::MODEL),
    lost => left(why::MODEL),
    next => left(why::MODEL),
    ready => left(why::MODEL),
});
