//! RACK (RFC 8985): losses are inferred from the times at which packets were sent.
//!
//! A packet is lost once one that was sent later has arrived, and as much time has passed as that one took there and
//! back, plus a reordering window. So a packet that was sent again and lost again is found without a timeout, and what
//! arrives late after a timeout that came too early is not taken for lost. Names in capitals are RFC 8985's. What
//! differs from it:
//!
//! - DupThresh is `nack_threshold`. With 1 and no reordering seen, a gap is a loss at once.
//! - A timeout sends the first packet again and marks no other (§6.3): hosts stall longer than their timeouts. The
//!   acknowledgement of that packet has the others marked by their times, after a smoothed round trip, in which an
//!   acknowledgement of a packet that was never sent again shows that the timeout came too early (RFC 5682, F-RTO).
//! - A tail loss probe (§7) repeats the last packet that is not known to have arrived, during recovery, too.

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

/// What RACK keeps beside the scoreboard.
#[derive(Clone, Debug)]
pub(super) struct Rack {
    /// Of it: selective acknowledgements, and whether a loss is being recovered from.
    pub board: Scoreboard,
    /// By sequence number, as many as were ever in flight; none, or a power of two.
    sent: Box<[Sent]>,
    /// When a packet was last sent. One that is sent again is noted as later than all before it, though it may have
    /// gone at the same time.
    last_sent: Time,
    /// The packet that was sent last of those that have arrived (RACK.xmit_ts, RACK.end_seq), and its round trip
    /// (RACK.rtt).
    latest: Transmission,
    rtt: u64,
    min_rtt: MinRtt,
    /// Smoothed round trip, ns; 0 before the first.
    srtt: u64,
    /// A packet sent from here on measures the next round trip; and the one that was measured last, until it is taken.
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
    /// Packets that are selectively acknowledged, and that wait to be sent again, none of them before `scan`.
    sacked: u32,
    lost: u32,
    scan: Psn,
    /// Packets in their turn before this were judged.
    judged: Psn,
    /// Packets out of their turn that wait to be judged, in the order of their times.
    again: VecDeque<Transmission>,
    /// When the next packet will be lost if nothing arrives (the reordering timer).
    deadline: Time,
    /// One past the last packet that was sent when a tail loss probe was, while its fate is open (TLP.end_seq).
    probe_end: Option<Psn>,
    /// What the latest probe and the latest timeout sent again, until it is known to have been for nothing.
    probed: Option<Psn>,
    timed_out: Option<Psn>,
    /// What a timeout sent again has arrived, or its original: unless the latter shows by then, the former has;
    /// [`Time::ZERO`]: it is not open.
    settles: Time,
    doubted: Transmission,
    /// Of the scoreboard's recovery: a cumulative acknowledgement of all before it ends it.
    recovery: Psn,
}

impl Rack {
    /// Records that there is room for from the first packet on: as many as may be in flight, within these limits.
    const FEW: u32 = 16;
    const MANY: u32 = 256;
    /// Recoveries without duplicates after which the reordering window is as at first.
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

    /// When [`Self::on_deadline`] is due.
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

    /// The record of a packet in flight; `None` where there was no memory.
    #[inline]
    fn record(&self, psn: Psn) -> Option<Sent> {
        self.sent.get(self.place(psn)).copied()
    }

    /// Notes that a packet was sent.
    #[inline]
    fn note(&mut self, stream: &mut Stream, psn: Psn, sent: Sent) {
        let ahead = psn.distance(stream.acked);
        if ahead as usize >= self.sent.len() && !self.grow(stream, ahead) {
            return;
        }
        let place = self.place(psn);
        self.sent[place] = sent;
    }

    /// Makes room for more records. Without memory no more packets may be in flight than have one, and one at least.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, stream: &mut Stream, ahead: i32) -> bool {
        if ahead < 0 {
            return false;
        }
        let first = stream.cap.clamp(Self::FEW, Self::MANY) as usize;
        let len = (ahead as usize + 1).max(first).next_power_of_two();
        // Where there is no memory for them, repeats are found by timeouts.
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
        let gone = if self.board.pipe { self.sacked + self.lost } else { 0 };
        stream.in_flight().saturating_sub(gone)
    }

    /// The first packet that waits to be sent again, if it may be.
    #[inline]
    fn repeatable(&self, stream: &Stream) -> Option<Psn> {
        let psn = self.lost(stream)?;
        let probe = self.probe_end.is_some() && self.probed == Some(psn);
        let may = !self.board.pipe || psn == stream.acked || probe || self.in_window(stream) < stream.window;
        may.then_some(psn)
    }

    /// Whether [`Self::tx_free`] would do anything.
    #[inline]
    pub(super) fn wants_tx(&self, stream: &Stream, more: bool) -> bool {
        self.lost > 0 && (!self.board.pipe || self.repeatable(stream).is_some())
            || ((more || stream.next != stream.high) && !stream.is_full(self.in_window(stream)))
    }

    /// Returns the packet that is sent again next because it alone is lost.
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

    /// Whether a loss is being recovered from, or about to be.
    pub(super) fn is_recovering(&self) -> bool {
        self.board.in_recovery || self.lost > 0
    }

    /// Whether a missing packet waits to be sent again.
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

    /// Something else than [`Self::tx_free`] sends a packet again, unless it has just named it.
    pub(super) fn repeated(&mut self, now: Time, stream: &mut Stream, psn: Psn) {
        if self.record(psn).is_some_and(|sent| !sent.is(Sent::AGAIN) || sent.is(Sent::LOST) || sent.at() < now) {
            self.repeat(now, stream, psn);
        }
    }

    /// A packet in flight is sent again out of its turn.
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

    /// Marks a packet as one to send again.
    fn lose(&mut self, psn: Psn) {
        let place = self.place(psn);
        let Some(sent) = self.sent.get_mut(place).filter(|sent| !sent.is(Sent::LOST)) else { return };
        sent.0 |= Sent::LOST;
        if self.lost == 0 || psn.before(self.scan) {
            self.scan = psn;
        }
        self.lost += 1;
    }

    /// Takes the mark from a packet again if it has one.
    #[inline]
    fn find(&mut self, psn: Psn, sent: Sent) {
        if sent.is(Sent::LOST) {
            let place = self.place(psn);
            self.sent[place].0 &= !Sent::LOST;
            self.lost = self.lost.saturating_sub(1);
        }
    }

    /// A loss was found.
    fn enter_recovery(&mut self, stream: &mut Stream) {
        stream.count_loss();
        if !self.board.in_recovery {
            self.board.in_recovery = true;
            self.recovery = stream.high;
            // Congestion control hears of what the probe repaired from here.
            self.probe_end = None;
        }
    }

    /// Has the first packet sent again.
    pub(super) fn lose_first(&mut self, stream: &mut Stream) {
        self.enter_recovery(stream);
        self.lose(stream.acked);
    }

    /// An acknowledgement that the stream has taken over: it has moved by `news`. What `nack` names has arrived.
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

    /// The packets before the first one not acknowledged have arrived, `news` of which were not known to have, or only
    /// selectively.
    #[inline]
    fn acknowledge(&mut self, now: Time, stream: &Stream, news: u32, heard: &mut News) {
        if self.sacked == 0 && self.lost == 0 && self.again.is_empty() {
            // All in their turn: the last was sent last.
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

    /// Packets ahead of the first one not acknowledged have arrived.
    fn sack(&mut self, now: Time, stream: &Stream, sack: Sack, heard: &mut News) {
        let last = sack.last.distance(stream.acked);
        if last <= 0 || !sack.last.before(stream.next) {
            // Old, or of a packet that goes again.
            return;
        }
        // What lies before one that is known was said with it.
        let (last, mut first) = (last as u32, last as u32);
        let least = (last.saturating_sub(sack.run.into())).max(1);
        if self.board.sacks.any(last) {
            return;
        }
        while first > least && !self.board.sacks.any(first - 1) {
            first -= 1;
        }
        for offset in first..=last {
            if self.board.is_brought(offset) || !self.board.sacks.reserve(offset) {
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

    /// A packet has arrived (§6.2, steps 1 to 3).
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

    /// A packet that was sent again is not answered sooner.
    #[inline]
    fn least_rtt(&self) -> u64 {
        if self.min_rtt.rtt == u64::MAX { 0 } else { self.min_rtt.rtt }
    }

    /// Which packet was sent last of those that have arrived, and what it measures.
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

    /// What a timeout sent again has arrived, or its original: an original that arrives with it, or soon after, was
    /// sent before, and shows which (F-RTO). Returns the packet to believe in.
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
        // A host that answers late goes on late.
        self.settles = now + self.srtt.max(now.since(again.at));
        self.doubted = again;
        None
    }

    fn end_recovery(&mut self, stream: &mut Stream) {
        if self.probe_end.is_some_and(|end| end.before(stream.acked)) {
            // The only packet that was lost, and the probe has repaired that (§7.4.2): no duplicate was
            // reported.
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

    /// A NACK from a receiver that goes back N: it keeps nothing that it could acknowledge selectively, so that all
    /// that was sent since goes again; unless it cannot know of that yet.
    #[cold]
    fn nothing_kept(&mut self, now: Time, stream: &mut Stream) {
        let sent = self.record(stream.acked).unwrap_or_default();
        let early = sent.is(Sent::AGAIN) && now.since(sent.at()) < self.least_rtt();
        if stream.acked.before(stream.next) && !early {
            stream.count_loss();
            self.go_back(stream);
        }
    }

    /// A packet has arrived at the receiver twice: it was sent again for nothing (§6.2, step 4, and §7.4.2).
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

    /// A retransmission timeout (RACK_mark_losses_on_RTO): see the module.
    pub(super) fn timeout(&mut self, stream: &mut Stream) {
        if stream.next == stream.acked {
            return;
        }
        if self.board.sacks.any(0) {
            // The receiver has forgotten what it acknowledged (RFC 2018 §8), as it does when it was not ready.
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

    /// Has the last packet that is not known to have arrived sent again as a tail loss probe (§7.3). Returns false if
    /// there is something else to send, or nothing to learn.
    pub(super) fn probe(&mut self, stream: &mut Stream) -> bool {
        if self.lost > 0 || stream.next != stream.high {
            return false;
        }
        let mut psn = stream.high;
        while stream.acked.before(psn) {
            psn = psn.minus(1);
            let offset = psn.distance(stream.acked) as u32;
            if !self.board.sacks.any(offset) && !self.board.is_brought(offset) {
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

    /// Forgets selective acknowledgements, and starts over.
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
    sent => bits(u64::from(at.config.cap().next_power_of_two()) * (width::TIME + 3))
        .heap(at.config.cap().next_power_of_two() as usize * size_of::<Sent>()),
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
    again => bits(u64::from(at.config.cap()) * width::PSN)
        .heap(at.config.cap().next_power_of_two() as usize * size_of::<Transmission>()),
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
