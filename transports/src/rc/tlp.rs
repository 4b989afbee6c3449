//! Tail loss probes (RFC 8985 §7) beside timers that do not follow the round trip, in virtual time: what asks for a
//! sign of life when nothing comes back, long before a timeout. Where the timer follows it, it has probes itself.
//!
//! The probe is one packet: one that was never sent if there is one, whatever the congestion window; else the last that
//! was. The receiver's answer shows what is missing before it, and so starts recovery. The timer is looked at only when
//! it comes: packets and acknowledgements put off when the probe is due, not the deadline.

use crate::footprint::{flag, footprint, instant, left, maybe, sequence, why, width};
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::recovery::{Sack, Sender};
use crate::time::Time;

/// A probe that was sent, until its fate is known.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Probe {
    psn: Psn,
    /// One past the last packet sent by then, the probe included (TLP.end_seq).
    end: Psn,
    /// It is a packet that was sent before (TLP.is_retrans).
    again: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Tlp {
    /// Least time to wait, ns.
    least: u64,
    /// Round trip until one is measured, ns: what TCP's handshake would have measured.
    first_rtt: u64,
    /// When to look whether a probe is due; never if none is to come.
    deadline: Time,
    /// Silence counts from here.
    since: Time,
    /// The next packet is a probe.
    due: bool,
    probe: Option<Probe>,
    /// Round trips measured by the last probe.
    measured: Option<u64>,
    /// After a timeout there are probes once everything sent before it is acknowledged.
    recovered: Psn,
}

impl Tlp {
    /// `None` unless the transport has such probes.
    pub(super) fn new(c: &QpContext) -> Option<Tlp> {
        let config = &c.config;
        (config.tlp > 0 && !config.has_estimated_timer()).then(|| Tlp::with(config.tlp, config.base_rtt))
    }

    fn with(least: u64, first_rtt: u64) -> Tlp {
        Tlp {
            least,
            first_rtt,
            deadline: Time::NEVER,
            since: Time::ZERO,
            due: false,
            probe: None,
            measured: None,
            recovered: Psn::new(0),
        }
    }

    /// Begins a stream.
    pub(super) fn start(&mut self, first: Psn) {
        self.stop();
        (self.measured, self.recovered) = (None, first);
    }

    /// No probe is to come, nor any answer to one.
    pub(super) fn stop(&mut self) {
        (self.deadline, self.due, self.probe) = (Time::NEVER, false, None);
    }

    #[inline]
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Time from the last sign of life to the probe, ns (TLP_calc_PTO); `srtt`: smoothed round trip, 0 before the
    /// first.
    fn timeout(&self, srtt: u64) -> u64 {
        let rtt = if srtt > 0 { srtt } else { self.first_rtt };
        (2 * rtt).max(self.least)
    }

    /// Counts silence from now on, if a probe may come (§7.2).
    fn schedule(&mut self, now: Time, stream: &Sender, srtt: u64) {
        let recovering = stream.is_recovering() || stream.acked().before(self.recovered);
        let probes = self.probe.is_none() && stream.outstanding() && !recovering;
        self.since = now;
        self.deadline = if probes { self.deadline.min(now + self.timeout(srtt)) } else { Time::NEVER };
    }

    /// A packet was sent. `fresh`: for the first time.
    pub(super) fn sent(&mut self, now: Time, fresh: bool, stream: &Sender, srtt: u64) {
        if fresh {
            self.due = false;
            self.schedule(now, stream, srtt);
        }
    }

    /// An acknowledgement was taken over by the stream. `news`: it acknowledges more cumulatively than was known;
    /// `sack`: what it acknowledges beside that.
    pub(super) fn acknowledged(&mut self, now: Time, stream: &mut Sender, news: bool, sack: Option<Sack>, srtt: u64) {
        if let Some(probe) = self.probe {
            self.answered(probe, stream, news, sack);
        }
        if !stream.outstanding() || stream.is_recovering() {
            (self.deadline, self.due) = (Time::NEVER, false);
            self.probe = self.probe.filter(|_| !stream.is_recovering());
        } else if news || sack.is_some() {
            self.due = false;
            self.schedule(now, stream, srtt);
        }
    }

    /// What an acknowledgement says of the probe (§7.4). Nothing tells duplicates that have arrived, as DSACK would.
    fn answered(&mut self, probe: Probe, stream: &mut Sender, news: bool, sack: Option<Sack>) {
        let acked = stream.acked();
        if acked.before(probe.end) {
            if sack.is_some_and(|sack| sack.covers(probe.psn)) && !stream.is_recovering() {
                // It has arrived, and something before it has not, however many acknowledgements a loss takes.
                stream.lose_first();
            }
        } else if !probe.again || acked == probe.end && !news && sack.is_none() {
            // Of new data, or it was the second to arrive: nothing was lost.
            self.probe = None;
        } else if probe.end.before(acked) {
            // The only packet that was lost, and the probe has repaired that. Congestion control is to hear of it.
            self.probe = None;
            stream.count_loss();
        }
    }

    /// Looks whether a probe is due; `round_trips`: how many were measured. Returns whether that time has come, whether
    /// or not there is a probe: the timer of timeouts is to start anew.
    pub(super) fn on_deadline(&mut self, now: Time, stream: &Sender, srtt: u64, round_trips: u64) -> bool {
        if now < self.deadline {
            return false;
        }
        self.deadline = self.since + self.timeout(srtt);
        if now < self.deadline {
            return false;
        }
        self.fire(stream, round_trips);
        true
    }

    /// The timer of timeouts has run out before the probe was due: its time has come (§7.2). Returns whether there is
    /// one.
    pub(super) fn hurry(&mut self, stream: &Sender, round_trips: u64) -> bool {
        self.deadline != Time::NEVER && self.fire(stream, round_trips)
    }

    /// Makes the next packet a probe, if a round trip was measured since the last (§7.3).
    fn fire(&mut self, stream: &Sender, round_trips: u64) -> bool {
        self.deadline = Time::NEVER;
        self.due = stream.outstanding() && !stream.is_recovering() && self.measured != Some(round_trips);
        if self.due {
            self.measured = Some(round_trips);
        }
        self.due
    }

    /// Whether a probe waits to be sent.
    pub(super) fn wants_tx(&self) -> bool {
        self.due
    }

    /// Names the packet to send as a probe, if one is due. `more`: a packet waits that was never sent.
    pub(super) fn next(&mut self, now: Time, stream: &mut Sender, more: bool) -> Option<Psn> {
        if !std::mem::take(&mut self.due) || !stream.outstanding() {
            return None;
        }
        let (psn, again) = match stream.tx_beyond_window(now, more) {
            Some(psn) => (psn, false),
            None => (stream.high().minus(1), true),
        };
        self.probe = Some(Probe { psn, end: stream.high(), again });
        Some(psn)
    }

    /// A timeout, or the stream starts again from the first packet that is not acknowledged.
    pub(super) fn gave_up(&mut self, stream: &Sender) {
        self.stop();
        self.recovered = stream.high();
    }
}

footprint!(Tlp, |at| {
    least => left(why::SHARED),
    first_rtt => left(why::SHARED),
    deadline => instant(),
    since => instant(),
    due => flag(),
    probe => maybe(2 * width::PSN + 1),
    measured => maybe(width::TIME),
    recovered => sequence(),
});

#[cfg(test)]
mod tests;
