//! Tail loss probes (RFC 8985 §7) for timers that do not follow the round trip, in virtual time: they request an answer
//! when nothing comes back, long before a timeout. Timers that follow it have their own.
//!
//! The probe is one packet: a new one if there is one, whatever the congestion window; otherwise the last one sent. The
//! receiver's answer shows what is missing before it, and so starts recovery. The deadline is lazy: packets and
//! acknowledgements postpone the probe, not the deadline, which is checked only when it expires.

use super::hooks::{Acknowledged, Chosen, Departure, Due, Hooks, Turn};
use crate::config::Discipline;
use crate::footprint::{flag, footprint, instant, left, maybe, sequence, why, width};
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, TxSlot};
use crate::rc::fetch::Fetch;
use crate::recovery::{Sack, Sender};
use crate::time::Time;

/// A probe that was sent, until its outcome is known.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Probe {
    psn: Psn,
    /// One past the last packet sent at that time, the probe included (TLP.end_seq).
    end: Psn,
    /// Whether it is a retransmission (TLP.is_retrans).
    again: bool,
}

/// Probe state of a stream; see the module.
#[derive(Clone, Debug)]
pub(in crate::rc) struct Tlp {
    /// Minimum wait, ns.
    least: u64,
    /// Round trip until one is measured, ns, in place of that of TCP's handshake.
    first_rtt: u64,
    /// When to check whether a probe is due; never if none is to be sent.
    deadline: Time,
    /// Start of the silence.
    since: Time,
    /// Whether the next packet is a probe.
    due: bool,
    probe: Option<Probe>,
    /// Number of round trips measured before the last probe.
    measured: Option<u64>,
    /// After a timeout, probes resume once everything sent before it is acknowledged.
    recovered: Psn,
}

impl Tlp {
    /// Returns `None` unless the transport has such probes.
    pub(in crate::rc) fn new(c: &QpContext) -> Option<Tlp> {
        let Discipline::Tlp(least) = c.config.discipline else { return None };
        Some(Tlp::with(least, c.config.base_rtt))
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
    fn begin(&mut self, first: Psn) {
        self.cancel();
        (self.measured, self.recovered) = (None, first);
    }

    /// Cancels probes, and the tracking of one that was sent.
    fn cancel(&mut self) {
        (self.deadline, self.due, self.probe) = (Time::NEVER, false, None);
    }

    /// Returns the time from the last packet received to the probe, ns (TLP_calc_PTO); `srtt`: smoothed round trip, 0
    /// before the first.
    fn timeout(&self, srtt: u64) -> u64 {
        let rtt = if srtt > 0 { srtt } else { self.first_rtt };
        (2 * rtt).max(self.least)
    }

    /// Restarts the silence, if a probe may be sent (§7.2).
    fn schedule(&mut self, now: Time, stream: &Sender, srtt: u64) {
        let recovering = stream.is_recovering() || stream.acked().before(self.recovered);
        let probes = self.probe.is_none() && stream.outstanding() && !recovering;
        self.since = now;
        self.deadline = if probes { self.deadline.min(now + self.timeout(srtt)) } else { Time::NEVER };
    }

    /// Handles the transmission of a packet. `fresh`: for the first time.
    fn sent(&mut self, now: Time, fresh: bool, stream: &Sender, srtt: u64) {
        if fresh {
            self.due = false;
            self.schedule(now, stream, srtt);
        }
    }

    /// Handles an acknowledgement that the stream has processed. `news`: it acknowledges more cumulatively than before;
    /// `sack`: its selective acknowledgement.
    fn acknowledged(&mut self, now: Time, stream: &mut Sender, news: bool, sack: Option<Sack>, srtt: u64) {
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

    /// Evaluates an acknowledgement for the probe (§7.4). Duplicates that have arrived are not reported, as DSACK
    /// would.
    fn answered(&mut self, probe: Probe, stream: &mut Sender, news: bool, sack: Option<Sack>) {
        let acked = stream.acked();
        if acked.before(probe.end) {
            if sack.is_some_and(|sack| sack.covers(probe.psn)) && !stream.is_recovering() {
                // It has arrived, and a packet before it has not, regardless of the number of acknowledgements required
                // for a loss.
                stream.lose_first();
            }
        } else if !probe.again || acked == probe.end && !news && sack.is_none() {
            // Of new data, or it was the second to arrive: nothing was lost.
            self.probe = None;
        } else if probe.end.before(acked) {
            // The only packet that was lost, and repaired by the probe. Congestion control has to be notified.
            self.probe = None;
            stream.count_loss();
        }
    }

    /// Checks whether a probe is due; `round_trips`: number measured so far. Returns whether the time has come, even if
    /// there is no probe: the retransmission timer is then restarted.
    fn expire(&mut self, now: Time, stream: &Sender, srtt: u64, round_trips: u64) -> bool {
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

    /// Makes the next packet a probe, if a round trip was measured since the last (§7.3).
    fn fire(&mut self, stream: &Sender, round_trips: u64) -> bool {
        self.deadline = Time::NEVER;
        self.due = stream.outstanding() && !stream.is_recovering() && self.measured != Some(round_trips);
        if self.due {
            self.measured = Some(round_trips);
        }
        self.due
    }

    /// Selects the packet to send as a probe, if one is due. `more`: a new packet waits.
    fn next(&mut self, now: Time, stream: &mut Sender, more: bool) -> Option<Psn> {
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
}

impl Hooks for Tlp {
    fn start(&mut self, first: Psn, _c: &QpContext) {
        self.begin(first);
    }

    fn stop(&mut self, _end: Psn) {
        self.cancel();
    }

    fn wants_tx(&self, fetch: &Fetch, stream: &Sender, more: bool) -> bool {
        fetch.wants_tx(stream, more) || self.due
    }

    fn choose(&mut self, turn: Turn<'_>, _c: &QpContext, host: &mut impl Host, _out: &mut TxSlot) -> Chosen {
        let Some(psn) = self.next(turn.now, turn.stream, turn.more) else { return Chosen::Stream };
        host.counters().tlp_probes += 1;
        Chosen::Packet(psn)
    }

    fn mark(&mut self, sent: &Departure, stream: &Sender, _c: &QpContext, _: &mut impl Host, _: &mut TxSlot) -> bool {
        self.sent(sent.now, sent.is_fresh(), stream, sent.srtt);
        true
    }

    fn on_ack(&mut self, ack: &Acknowledged, stream: &mut Sender, _host: &mut impl Host) {
        self.acknowledged(ack.now, stream, ack.news, ack.sack, ack.srtt);
    }

    fn next_deadline(&self) -> Time {
        self.deadline
    }

    /// The retransmission timeout restarts with the probe (RFC 8985 §7.3).
    fn on_deadline(&mut self, now: Time, stream: &Sender, srtt: u64, round_trips: u64) -> Due {
        let due = self.expire(now, stream, srtt, round_trips);
        Due { restart: due && stream.outstanding(), ..Due::default() }
    }

    /// The probe goes first, if it was not due yet (§7.2).
    fn puts_off_timeout(&mut self, stream: &Sender, round_trips: u64) -> bool {
        self.deadline != Time::NEVER && self.fire(stream, round_trips)
    }

    fn on_timeout(&mut self, stream: &Sender) {
        self.cancel();
        self.recovered = stream.high();
    }

    fn go_back(&mut self, stream: &mut Sender) {
        stream.go_back();
        self.on_timeout(stream);
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
