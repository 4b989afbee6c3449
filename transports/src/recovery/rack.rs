//! RACK (RFC 8985): losses are inferred from transmission times.
//!
//! A packet is lost once one sent later has arrived, and the round trip of that one plus a reordering window has
//! passed. So a retransmission that is lost again is found without a timeout, and packets that arrive late after a
//! premature timeout are not considered lost. Names in capitals are RFC 8985's. Differences from it:
//!
//! - DupThresh is `nack_threshold`. With 1 and no reordering seen, a gap is a loss at once.
//! - A timeout resends the first packet and marks no other (§6.3): hosts stall longer than their timeouts. The
//!   acknowledgement of that packet has the others marked by their times, after a smoothed round trip, in which an
//!   acknowledgement of a packet that was never retransmitted shows that the timeout was premature (RFC 5682, F-RTO).
//! - A tail loss probe (§7) repeats the last packet not known to have arrived, also during recovery.

mod detect;
mod sent;

use std::collections::VecDeque;

use sent::{MinRtt, News, Sent, Transmission};

use super::Sack;
use super::scoreboard::Scoreboard;
use super::stream::Stream;
use crate::footprint::{bits, flag, footprint, instant, left, maybe, part, sequence, why, width};
use crate::psn::Psn;
use crate::room::{boxed, reserve};
use crate::time::Time;

/// RACK state in addition to the scoreboard.
#[derive(Clone, Debug)]
pub(super) struct Rack {
    /// Selective acknowledgements, and whether recovery is in progress.
    pub board: Scoreboard,
    /// By sequence number, up to the peak number in flight; empty, or a power of two.
    sent: Box<[Sent]>,
    /// Time of the last transmission. A retransmission is recorded as later than all before it, though it may have been
    /// at the same time.
    last_sent: Time,
    /// The most recently sent packet of those that have arrived (RACK.xmit_ts, RACK.end_seq), and its round trip
    /// (RACK.rtt).
    latest: Transmission,
    rtt: u64,
    min_rtt: MinRtt,
    /// Smoothed round trip, ns; 0 before the first.
    srtt: u64,
    /// The next round trip is measured by a packet sent from this time on; and the last one measured, until it is
    /// taken.
    next_sample: Time,
    sample: Option<u64>,
    /// One past the highest packet that has arrived (RACK.fack).
    fack: Psn,
    reordering_seen: bool,
    /// RACK.reo_wnd_mult and RACK.reo_wnd_persist.
    reo_wnd_mult: u8,
    reo_wnd_persist: u8,
    /// A duplicate widens the reordering window again once this is acknowledged (RACK.dsack_round).
    dsack_round: Psn,
    /// Numbers of packets selectively acknowledged, and waiting for retransmission, of which none is before `scan`.
    sacked: u32,
    lost: u32,
    scan: Psn,
    /// In-order transmissions before this were judged.
    judged: Psn,
    /// Out-of-order transmissions that wait to be judged, in order of time.
    again: VecDeque<Transmission>,
    /// When the next packet will be lost if nothing arrives (the reordering timer).
    deadline: Time,
    /// One past the last packet sent when a tail loss probe was, while its outcome is open (TLP.end_seq).
    probe_end: Option<Psn>,
    /// The retransmissions of the latest probe and the latest timeout, until known to be spurious.
    probed: Option<Psn>,
    timed_out: Option<Psn>,
    /// A timeout's retransmission has arrived, or its original: it is taken to be the former unless an original shows
    /// the latter by this time; [`Time::ZERO`]: not open.
    settles: Time,
    doubted: Transmission,
    /// End of the scoreboard's recovery: a cumulative acknowledgement of everything before it ends it.
    recovery: Psn,
}

impl Rack {
    /// Initial number of records from the first packet on: the number that may be in flight, within these limits.
    const FEW: u32 = 16;
    const MANY: u32 = 256;
    /// Recoveries without duplicates after which the reordering window is reset.
    const PERSIST: u8 = 16;

    pub(super) fn new(board: Scoreboard, first: Psn) -> Rack {
        Rack {
            board,
            sent: Box::default(),
            last_sent: Time::ZERO,
            latest: Transmission { at: Time::ZERO, psn: first },
            rtt: 0,
            min_rtt: MinRtt::NONE,
            srtt: 0,
            next_sample: Time::ZERO,
            sample: None,
            fack: first,
            reordering_seen: false,
            reo_wnd_mult: 1,
            reo_wnd_persist: Self::PERSIST,
            dsack_round: first,
            sacked: 0,
            lost: 0,
            scan: first,
            judged: first,
            again: VecDeque::new(),
            deadline: Time::NEVER,
            probe_end: None,
            probed: None,
            timed_out: None,
            settles: Time::ZERO,
            doubted: Transmission { at: Time::ZERO, psn: first },
            recovery: first,
        }
    }

    /// Returns when [`Self::on_deadline`] is due.
    #[inline]
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Takes the round trip in ns that was measured last.
    #[inline]
    pub(super) fn take_sample(&mut self) -> Option<u64> {
        self.sample.take()
    }

    #[inline]
    fn place(&self, psn: Psn) -> usize {
        psn.get() as usize & self.sent.len().wrapping_sub(1)
    }

    /// Returns the record of a packet in flight; `None` if there was no memory.
    #[inline]
    fn record(&self, psn: Psn) -> Option<Sent> {
        self.sent.get(self.place(psn)).copied()
    }

    /// Records a transmission.
    #[inline]
    fn note(&mut self, stream: &mut Stream, psn: Psn, sent: Sent) {
        let ahead = psn.distance(stream.acked);
        if ahead as usize >= self.sent.len() && !self.grow(stream, ahead) {
            return;
        }
        let place = self.place(psn);
        self.sent[place] = sent;
    }

    /// Makes room for more records. Without memory, packets in flight are limited to those with a record, at least one.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, stream: &mut Stream, ahead: i32) -> bool {
        if ahead < 0 {
            return false;
        }
        let first = stream.cap.clamp(Self::FEW, Self::MANY) as usize;
        let len = (ahead as usize + 1).max(first).next_power_of_two();
        // If there is no memory for them, losses of retransmissions are found by timeouts.
        let _ = self.again.try_reserve(len.saturating_sub(self.again.len()));
        let Ok(mut sent) = boxed(Sent::default(), len) else {
            stream.cap = stream.cap.min(self.sent.len().max(1) as u32);
            return false;
        };
        for back in 0..self.sent.len() as u32 {
            let psn = stream.acked.plus(back);
            sent[psn.get() as usize & (len - 1)] = self.sent[self.place(psn)];
        }
        self.sent = sent;
        true
    }

    /// Returns the packets that count against the window.
    #[inline]
    pub(super) fn in_window(&self, stream: &Stream) -> u32 {
        let departed = if self.board.pipe { self.sacked + self.lost } else { 0 };
        stream.in_flight().saturating_sub(departed)
    }

    /// Returns the first packet that waits for retransmission, if it may be sent.
    #[inline]
    fn repeatable(&self, stream: &Stream) -> Option<Psn> {
        let psn = self.lost(stream)?;
        let probe = self.probe_end.is_some() && self.probed == Some(psn);
        let may = !self.board.pipe || psn == stream.acked || probe || self.in_window(stream) < stream.window;
        may.then_some(psn)
    }

    /// Returns whether [`Self::tx_free`] would do anything.
    #[inline]
    pub(super) fn wants_tx(&self, stream: &Stream, more: bool) -> bool {
        self.lost > 0 && (!self.board.pipe || self.repeatable(stream).is_some())
            || ((more || stream.next != stream.high) && !stream.is_full(self.in_window(stream)))
    }

    /// Returns the next packet to be retransmitted individually.
    #[inline]
    pub(super) fn lost(&self, stream: &Stream) -> Option<Psn> {
        if self.lost == 0 {
            return None;
        }
        let mut psn = self.scan.later(stream.acked);
        while psn.before(stream.next) {
            if self.record(psn).is_some_and(|sent| sent.is(Sent::LOST)) {
                return Some(psn);
            }
            psn = psn.plus(1);
        }
        None
    }

    /// Returns whether recovery is in progress, or about to begin.
    pub(super) fn is_recovering(&self) -> bool {
        self.board.in_recovery || self.lost > 0
    }

    /// Returns whether a missing packet waits for retransmission.
    pub(super) fn will_resend(&self, stream: &Stream, psn: Psn) -> bool {
        let in_flight = !psn.before(stream.acked) && psn.before(stream.next);
        in_flight && self.record(psn).is_some_and(|sent| sent.is(Sent::LOST))
    }

    /// txFree: returns the packet to send now, if any.
    #[inline]
    pub(super) fn tx_free(&mut self, now: Time, stream: &mut Stream, more: bool) -> Option<Psn> {
        if self.lost > 0 {
            if let Some(psn) = self.repeatable(stream) {
                self.repeat(now, stream, psn);
                return Some(psn);
            }
            if self.lost(stream).is_none() {
                self.lost = 0;
            }
        }
        let full = stream.is_full(self.in_window(stream));
        (!full && (more || stream.next != stream.high)).then(|| self.take_next(now, stream))
    }

    /// Sends the next packet in order.
    #[inline]
    pub(super) fn take_next(&mut self, now: Time, stream: &mut Stream) -> Psn {
        let again = stream.next.before(stream.high);
        let psn = stream.take_next();
        self.last_sent = self.last_sent.max(now);
        self.note(stream, psn, Sent::new(self.last_sent, if again { Sent::AGAIN } else { 0 }));
        psn
    }

    /// Records a retransmission made by other means than [`Self::tx_free`], unless that has just selected it.
    pub(super) fn repeated(&mut self, now: Time, stream: &mut Stream, psn: Psn) {
        if self.record(psn).is_some_and(|sent| !sent.is(Sent::AGAIN) || sent.is(Sent::LOST) || sent.at() < now) {
            self.repeat(now, stream, psn);
        }
    }

    /// Records a retransmission of a packet in flight out of order.
    fn repeat(&mut self, now: Time, stream: &mut Stream, psn: Psn) {
        if let Some(sent) = self.record(psn).filter(|sent| sent.is(Sent::LOST)) {
            self.find(psn, sent);
            self.scan = psn.plus(1);
        }
        self.last_sent = now.max(self.last_sent + 1);
        let at = self.last_sent;
        let queued = reserve(&mut self.again);
        if queued {
            self.again.push_back(Transmission { at, psn });
        }
        self.note(stream, psn, Sent::new(at, Sent::AGAIN | if queued { Sent::QUEUED } else { 0 }));
    }

    /// Marks a packet as lost.
    fn lose(&mut self, psn: Psn) {
        let place = self.place(psn);
        let Some(sent) = self.sent.get_mut(place).filter(|sent| !sent.is(Sent::LOST)) else { return };
        sent.0 |= Sent::LOST;
        if self.lost == 0 || psn.before(self.scan) {
            self.scan = psn;
        }
        self.lost += 1;
    }

    /// Clears a packet's loss mark if it has one.
    #[inline]
    fn find(&mut self, psn: Psn, sent: Sent) {
        if sent.is(Sent::LOST) {
            let place = self.place(psn);
            self.sent[place].0 &= !Sent::LOST;
            self.lost = self.lost.saturating_sub(1);
        }
    }

    /// Enters recovery on a loss.
    fn enter_recovery(&mut self, stream: &mut Stream) {
        stream.count_loss();
        if !self.board.in_recovery {
            self.board.in_recovery = true;
            self.recovery = stream.high;
            // Congestion control is notified of the probe's repair from here.
            self.probe_end = None;
        }
    }

    /// Has the first packet retransmitted.
    pub(super) fn lose_first(&mut self, stream: &mut Stream) {
        self.enter_recovery(stream);
        self.lose(stream.acked);
    }

    /// Handles an acknowledgement that has moved the stream by `news`. The packets of `nack` have arrived.
    #[inline]
    pub(super) fn receive_ack(&mut self, now: Time, stream: &mut Stream, news: u32, nack: Option<Sack>) {
        let mut heard = News::default();
        if news > 0 {
            self.acknowledge(now, stream, news, &mut heard);
        }
        if let Some(sack) = nack {
            if sack.last == stream.acked {
                self.nothing_kept(now, stream);
            } else {
                self.sack(now, stream, sack, &mut heard);
            }
        }
        if heard.original.is_some() || heard.repeated.is_some() {
            self.update(now, heard);
        }
        if news > 0 {
            self.end_recovery(stream);
        }
        self.detect(now, stream);
    }

    /// Handles the arrival of packets before the first unacknowledged one, `news` of which were not known to have
    /// arrived, or only selectively.
    #[inline]
    fn acknowledge(&mut self, now: Time, stream: &Stream, news: u32, heard: &mut News) {
        if self.sacked == 0 && self.lost == 0 && self.again.is_empty() {
            // All in order: the last was sent last.
            let last = stream.acked.minus(1);
            if let Some(sent) = self.record(last) {
                self.delivered(now, last, sent, heard);
            }
            self.board.sacks.advance(news, |_| ());
            return;
        }
        let before = stream.acked.minus(news);
        for offset in 0..news {
            let psn = before.plus(offset);
            if !self.board.sacks.any(offset)
                && let Some(sent) = self.record(psn)
            {
                self.find(psn, sent);
                self.delivered(now, psn, sent, heard);
            }
        }
        let sacked = &mut self.sacked;
        self.board.sacks.advance(news, |[word]| *sacked = sacked.saturating_sub(word.count_ones()));
    }

    /// Handles the arrival of packets ahead of the first unacknowledged one.
    fn sack(&mut self, now: Time, stream: &Stream, sack: Sack, heard: &mut News) {
        let last = sack.last.distance(stream.acked);
        if last <= 0 || !sack.last.before(stream.next) {
            // Old, or of a packet to be retransmitted.
            return;
        }
        // Packets before one that is known were acknowledged with it.
        let (last, mut first) = (last as u32, last as u32);
        let least = (last.saturating_sub(sack.run.into())).max(1);
        if self.board.sacks.any(last) {
            return;
        }
        while first > least && !self.board.sacks.any(first - 1) {
            first -= 1;
        }
        for offset in first..=last {
            if self.board.is_delivered_low(offset) || !self.board.sacks.reserve(offset) {
                continue;
            }
            self.board.sacks.set(offset, [true]);
            self.sacked += 1;
            let psn = stream.acked.plus(offset);
            if let Some(sent) = self.record(psn) {
                self.find(psn, sent);
                self.delivered(now, psn, sent, heard);
            }
        }
    }

    /// Handles the arrival of a packet (§6.2, steps 1 to 3).
    #[inline]
    fn delivered(&mut self, now: Time, psn: Psn, sent: Sent, heard: &mut News) {
        let sent_at = Transmission { at: sent.at(), psn };
        if !sent.is(Sent::AGAIN) {
            if psn.before(self.fack) {
                self.reordering_seen = true;
            }
            heard.original = Some(sent_at.later(heard.original));
        } else if now.since(sent.at()) >= self.least_rtt() {
            heard.repeated = Some(sent_at.later(heard.repeated));
        }
        if !psn.before(self.fack) {
            self.fack = psn.plus(1);
        }
    }

    /// Returns the minimum round trip that a retransmission can have.
    #[inline]
    fn least_rtt(&self) -> u64 {
        if self.min_rtt.rtt == u64::MAX { 0 } else { self.min_rtt.rtt }
    }

    /// Updates the most recently sent packet that has arrived, and the round trip.
    #[inline]
    fn update(&mut self, now: Time, heard: News) {
        let News { original, mut repeated } = heard;
        if let Some(original) = original {
            let rtt = now.since(original.at).max(1);
            self.min_rtt.take(now, rtt);
            if original.at >= self.next_sample {
                self.next_sample = now;
                self.sample = Some(rtt);
                self.srtt = if self.srtt == 0 { rtt } else { (7 * self.srtt + rtt) / 8 };
            }
        }
        if self.settles != Time::ZERO || repeated.is_some() && self.timed_out.is_some() {
            repeated = self.doubt(now, original, repeated);
        }
        let latest = match (original, repeated) {
            (Some(original), repeated) => original.later(repeated),
            (None, Some(repeated)) => repeated,
            (None, None) => return,
        };
        if latest.is_after(self.latest) {
            (self.latest, self.rtt) = (latest, now.since(latest.at));
        }
    }

    /// Handles the arrival of a timeout's retransmission, or of its original: an original that arrives with it, or soon
    /// after, was sent before, and shows which (F-RTO). Returns the transmission to assume.
    #[cold]
    fn doubt(
        &mut self,
        now: Time,
        original: Option<Transmission>,
        repeated: Option<Transmission>,
    ) -> Option<Transmission> {
        if original.is_some() {
            self.settles = Time::ZERO;
        }
        let Some(again) = repeated.filter(|again| Some(again.psn) == self.timed_out) else { return repeated };
        if original.is_some_and(|original| again.is_after(original)) {
            return None;
        }
        // A host that answers late tends to do so again.
        self.settles = now + self.srtt.max(now.since(again.at));
        self.doubted = again;
        None
    }

    fn end_recovery(&mut self, stream: &mut Stream) {
        if self.probe_end.is_some_and(|end| end.before(stream.acked)) {
            // The only packet that was lost, and repaired by the probe (§7.4.2): no duplicate was reported.
            self.probe_end = None;
            stream.count_loss();
        }
        if self.board.in_recovery && !stream.acked.before(self.recovery) {
            self.board.in_recovery = false;
            self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
            if self.reo_wnd_persist == 0 {
                (self.reo_wnd_mult, self.reo_wnd_persist) = (1, Self::PERSIST);
            }
        }
        // Numbers only compare up to 2²³ apart.
        if self.dsack_round.distance(stream.acked) < -Stream::STALE {
            self.dsack_round = stream.acked;
        }
        let old = |psn: &Psn| psn.distance(stream.acked) < -Stream::STALE;
        self.probed = self.probed.filter(|psn| !old(psn));
        self.timed_out = self.timed_out.filter(|psn| !old(psn));
    }

    /// Handles a NACK from a receiver that goes back N: it keeps nothing that it could acknowledge selectively, so
    /// everything sent since is resent, unless the NACK is too early to reflect a retransmission.
    #[cold]
    fn nothing_kept(&mut self, now: Time, stream: &mut Stream) {
        let sent = self.record(stream.acked).unwrap_or_default();
        let early = sent.is(Sent::AGAIN) && now.since(sent.at()) < self.least_rtt();
        if stream.acked.before(stream.next) && !early {
            stream.count_loss();
            self.go_back(stream);
        }
    }

    /// Handles a packet that has arrived twice: its retransmission was spurious (§6.2, step 4, and §7.4.2).
    #[cold]
    pub(super) fn duplicate(&mut self, stream: &mut Stream, psn: Psn) {
        if !psn.before(stream.high) || psn.distance(stream.acked) < -Stream::STALE {
            return;
        }
        if self.timed_out == Some(psn) {
            (self.timed_out, self.settles) = (None, Time::ZERO);
            stream.count_spurious();
        } else if self.probed == Some(psn) {
            (self.probed, self.probe_end) = (None, None);
            stream.count_spurious();
        } else if !stream.acked.before(self.dsack_round) {
            self.dsack_round = stream.high;
            self.reo_wnd_mult = self.reo_wnd_mult.saturating_add(1);
            self.reo_wnd_persist = Self::PERSIST;
        }
    }

    /// Handles a retransmission timeout (RACK_mark_losses_on_RTO): see the module.
    pub(super) fn timeout(&mut self, stream: &mut Stream) {
        if stream.next == stream.acked {
            return;
        }
        if self.board.sacks.any(0) {
            // The receiver has discarded packets it acknowledged (RFC 2018 §8), as it does when it was not ready.
            self.go_back(stream);
            return;
        }
        self.board.in_recovery = true;
        self.recovery = stream.high;
        (self.timed_out, self.settles, self.probe_end) = (Some(stream.acked), Time::ZERO, None);
        self.lose(stream.acked);
        if self.lost == 0 {
            // There was no memory for its record.
            stream.next = stream.acked;
        }
    }

    /// Has the last packet not known to have arrived retransmitted as a tail loss probe (§7.3). Returns false if there
    /// is something else to send, or nothing to learn.
    pub(super) fn probe(&mut self, stream: &mut Stream) -> bool {
        if self.lost > 0 || stream.next != stream.high {
            return false;
        }
        let mut psn = stream.high;
        while stream.acked.before(psn) {
            psn = psn.minus(1);
            let offset = psn.distance(stream.acked) as u32;
            if !self.board.sacks.any(offset) && !self.board.is_delivered_low(offset) {
                self.lose(psn);
                break;
            }
        }
        let probes = self.lost > 0;
        if probes {
            (self.probed, self.probe_end) = (Some(psn), Some(stream.high));
        }
        probes
    }

    /// Discards selective acknowledgements, and starts over.
    pub(super) fn go_back(&mut self, stream: &mut Stream) {
        if self.lost > 0 {
            let mut psn = stream.acked;
            while psn.before(stream.high) {
                if let Some(sent) = self.record(psn) {
                    self.find(psn, sent);
                }
                psn = psn.plus(1);
            }
        }
        self.board.go_back(stream);
        (self.sacked, self.lost) = (0, 0);
        self.again.clear();
        (self.judged, self.deadline) = (stream.acked, Time::NEVER);
        (self.probe_end, self.probed, self.timed_out, self.settles) = (None, None, None, Time::ZERO);
    }
}

footprint!(Rack, |at| {
    board => part(board),
    last_sent => instant(),
    sent => bits(u64::from(at.cap.next_power_of_two()) * (width::TIME + 3))
        .heap(at.cap.next_power_of_two() as usize * size_of::<Sent>()),
    latest => bits(width::TIME + width::PSN),
    rtt => instant(),
    min_rtt => bits(3 * width::TIME),
    srtt => left(why::FOLLOWS),
    next_sample => instant(),
    sample => left("handed on at once"),
    fack => sequence(),
    reordering_seen => flag(),
    reo_wnd_mult => bits(8),
    reo_wnd_persist => bits(5),
    dsack_round => sequence(),
    sacked => bits(width::COUNT),
    lost => bits(width::COUNT),
    scan => left(why::SPEED),
    judged => sequence(),
    again => bits(u64::from(at.cap) * width::PSN)
        .heap(at.cap.next_power_of_two() as usize * size_of::<Transmission>()),
    deadline => instant(),
    probe_end => maybe(width::PSN),
    probed => maybe(width::PSN),
    timed_out => maybe(width::PSN),
    settles => instant(),
    doubted => bits(width::TIME + width::PSN),
    recovery => sequence(),
});

#[cfg(test)]
mod tests;
