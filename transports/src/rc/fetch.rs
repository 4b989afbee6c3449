//! What a packet that is sent again waits for: its payload has to come from the host's memory once more.

use crate::footprint::{footprint, left, why};
use crate::psn::Psn;
use crate::recovery::Sender;
use crate::time::Time;

/// IRN §4.5.3, "Delay in Fetching Retransmissions": new packets are fetched ahead of time, but one that was sent before
/// may go only some time after it was detected as lost, that is, after loss recovery was triggered or a look-ahead
/// found it. Each packet that is found missing waits anew, unless one is waited for already: it comes with that, lest a
/// timeout shorter than the delay put off for ever what it asks for. Going back N asks for all that follows at once,
/// and waits once.
///
/// Whatever is due counts from [`Self::observe`], which follows each call that may change the stream's mind.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    /// ns; 0: nothing waits.
    delay: u64,
    /// The lost packet last asked for, until it is sent, and where the stream went on: further back is going back.
    lost: Option<Psn>,
    next: Psn,
    /// When what is lost will be here; never if it is already, or nothing is lost.
    ready: Time,
}

impl Fetch {
    /// For a stream that starts with `first`. `delay` in ns.
    pub(super) fn new(delay: u64, first: Psn) -> Fetch {
        Fetch { delay, lost: None, next: first, ready: Time::NEVER }
    }

    /// Looks at what the stream wants to send again, if anything.
    #[inline]
    pub(super) fn observe(&mut self, now: Time, stream: &Sender) {
        if self.delay != 0 {
            self.look(now, stream);
        }
    }

    #[cold]
    fn look(&mut self, now: Time, stream: &Sender) {
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

    /// Whether something is being fetched: nothing may be sent again.
    #[inline]
    pub(super) fn pending(&self) -> bool {
        self.ready != Time::NEVER
    }

    /// When [`Self::on_deadline`] is due.
    #[inline]
    pub(super) fn deadline(&self) -> Time {
        self.ready
    }

    /// What was due by `now` is here.
    pub(super) fn on_deadline(&mut self, now: Time) {
        if self.ready <= now {
            self.ready = Time::NEVER;
        }
    }

    /// [`Sender::wants_tx`], of what need not be waited for.
    #[inline]
    pub(super) fn wants_tx(&self, stream: &Sender, more: bool) -> bool {
        // Most streams are idle, those of responders above all.
        (more || stream.outstanding()) && if self.pending() { stream.wants_new(more) } else { stream.wants_tx(more) }
    }

    /// [`Sender::tx_free`], of what need not be waited for.
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
        self.look(now, stream);
        psn
    }
}

footprint!(Fetch, |at| {
    delay => left(why::MODEL),
    lost => left(why::MODEL),
    next => left(why::MODEL),
    ready => left(why::MODEL),
});
