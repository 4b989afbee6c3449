//! txFree, receiveAck and timeout: which packet of a stream goes next.

use super::Bitmap;
use crate::psn::Psn;

/// How a sender recovers from loss.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum Recovery {
    /// Resend everything from the first lost packet on.
    #[default]
    GoBackN,
    /// Resend what is known to be lost (IRN §4.2.1).
    Selective,
    /// Resend only the first missing packet: no record of selective acknowledgements, one loss recovered per round trip
    /// (IRN §4.3.3, question 2).
    SelectiveWithoutSack,
}

/// A selective acknowledgement: the packets from `run` before `last` up to `last` have arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sack {
    /// The latest.
    pub last: Psn,
    /// How many right before it.
    pub run: u8,
}

impl Sack {
    /// Whether it includes `psn`.
    #[inline]
    pub fn covers(&self, psn: Psn) -> bool {
        (0..=i32::from(self.run)).contains(&self.last.distance(psn))
    }
}

/// The registers of IRN's sender modules, as the reference traces print them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // see `Sender`'s fields
pub struct SenderState {
    pub next: Psn,
    pub acked: Psn,
    pub retransmit: Psn,
    pub recovery: Psn,
    pub do_retransmit: bool,
    pub in_recovery: bool,
    pub find_new_hole: bool,
}

/// The sending end of a stream.
#[derive(Clone, Debug)]
pub struct Sender {
    scheme: Recovery,
    /// Most packets in flight (BDP-FC), at most the window of the bitmap.
    cap: u32,
    /// After a timeout the cap begins at one packet, and grows by what is acknowledged, up to this; 0: it stays.
    slow_start: u32,
    /// NACKs without progress that it takes to enter recovery (IRN §4.6); 1 is IRN's own rule.
    nack_threshold: u32,
    nacks: u32,
    /// Packets in flight that congestion control allows.
    window: u32,
    /// Losses found by NACKs, one for all that was in flight then; a loss from here on is another.
    losses: u32,
    lost_until: Psn,
    /// Nothing is sent again without evidence that it is lost; see [`Self::with_evidence`].
    evidence: bool,
    /// The window is one of packets in the network; see [`Self::with_pipe`].
    pipe: bool,
    /// Once more the first packet that is not acknowledged, and nothing else: `retransmit` stays where it is.
    again: bool,
    /// A timeout followed the acknowledgement of what an earlier one sent again: the rest may well be lost.
    silent: bool,
    /// One past the packet that the latest timeout sent again behind others that were sent again: if no more is acknowledged by the
    /// next timeout, they are lost as well.
    probed: Option<Psn>,
    /// A selective acknowledgement from here on is of a packet that was sent after the first missing one was sent again.
    mark: Psn,
    /// Such acknowledgements.
    overtaken: u32,
    /// Next sequence number to send that is not a selective retransmission.
    next: Psn,
    /// One past the highest sequence number ever sent: `next`, unless a go-back moved that back.
    high: Psn,
    /// Everything before it is acknowledged cumulatively.
    acked: Psn,
    /// Sequence number to retransmit, if `do_retransmit`; else the last one retransmitted.
    retransmit: Psn,
    /// Last regular packet sent before the latest retransmission; a cumulative acknowledgement past it ends recovery.
    recovery: Psn,
    do_retransmit: bool,
    in_recovery: bool,
    find_new_hole: bool,
    /// Selective acknowledgements from `acked` on.
    sacks: Bitmap<1>,
}

impl Sender {
    /// Trace prints of `recovery` must not depend on the age of a stream, but serial numbers only compare up to 2²³ apart.
    const STALE: i32 = 1 << 22;

    /// A stream that starts with `first`, at most `cap` packets in flight.
    pub fn new(scheme: Recovery, first: Psn, cap: u32, nack_threshold: u32) -> Sender {
        let cap = cap.clamp(1, Bitmap::<1>::MAX_BITS);
        Sender {
            scheme,
            cap,
            slow_start: 0,
            nack_threshold: nack_threshold.max(1),
            nacks: 0,
            window: u32::MAX,
            losses: 0,
            lost_until: first,
            evidence: false,
            pipe: false,
            again: false,
            silent: false,
            probed: None,
            mark: first,
            overtaken: 0,
            next: first,
            high: first,
            acked: first,
            retransmit: first,
            recovery: first,
            do_retransmit: false,
            in_recovery: false,
            find_new_hole: false,
            sacks: Bitmap::new(if scheme == Recovery::Selective { cap } else { 0 }),
        }
    }

    /// Has selective recovery ask for evidence that a packet is lost before it sends it again. IRN's rules need a timer that
    /// never runs out too early: after one that did, everything in flight is still on its way, each acknowledgement of it reads
    /// as one of a packet sent again, and recovery that new packets keep from ending sends one packet again for each.
    ///
    /// - A timeout sends the first packet again, no other that was sent again already; unless the timeout before did, and nothing but
    ///   that packet was acknowledged since.
    /// - An acknowledgement during recovery shows that what follows is lost only if something later was selectively acknowledged;
    ///   or, after a second timeout, if it goes no further than what was sent again. More shows that the rest is coming.
    /// - A packet sent again is lost again if one that was sent after it arrives before it; no timeout is needed to know.
    #[must_use]
    pub fn with_evidence(mut self, evidence: bool) -> Sender {
        self.evidence = evidence && self.scheme == Recovery::Selective;
        self
    }

    /// Has the window hold what is thought to be in the network, TCP's pipe (RFC 6675): neither what was selectively acknowledged
    /// nor what is lost and was not sent again. So what is sent again waits for the window, too, but for the first missing packet.
    /// After a timeout that takes all for lost, everything but what was selectively acknowledged is sent again as the window opens.
    #[must_use]
    pub fn with_pipe(mut self, pipe: bool) -> Sender {
        self.pipe = pipe;
        self
    }

    /// The registers.
    pub fn state(&self) -> SenderState {
        SenderState {
            next: self.next,
            acked: self.acked,
            retransmit: self.retransmit,
            recovery: self.recovery,
            do_retransmit: self.do_retransmit,
            in_recovery: self.in_recovery,
            find_new_hole: self.find_new_hole,
        }
    }

    /// Everything before this is acknowledged.
    #[inline]
    pub fn acked(&self) -> Psn {
        self.acked
    }

    /// One past the highest sequence number sent.
    #[inline]
    pub fn high(&self) -> Psn {
        self.high
    }

    /// Next sequence number that is not a selective retransmission.
    #[inline]
    pub fn next(&self) -> Psn {
        self.next
    }

    /// Packets in flight as BDP-FC counts them: sent (since the last go-back) and not acknowledged cumulatively.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.next.distance(self.acked).max(0) as u32
    }

    /// Allows no more than `cap` packets in flight from now on, and after a timeout one, then as many more as are acknowledged
    /// (RFC 5681 §3.1): the receiver may still have all of them in its queue.
    pub fn limit(&mut self, cap: u32) {
        self.cap = self.cap.min(cap.max(1));
        self.slow_start = self.cap;
    }

    /// Allows so many packets in flight, if the cap does: what congestion control says of late.
    #[inline]
    pub fn set_window(&mut self, packets: u32) {
        self.window = packets.max(1);
    }

    /// Counts losses that NACKs told of: all packets that were in flight at the time are one. Wraps.
    #[inline]
    pub fn losses(&self) -> u32 {
        self.losses
    }

    #[inline]
    fn lost_now(&mut self) {
        if !self.acked.before(self.lost_until) {
            self.losses = self.losses.wrapping_add(1);
            self.lost_until = self.high;
        }
    }

    /// Whether as many packets are in flight as may be.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.in_flight() >= self.cap || self.in_window() >= self.window
    }

    /// Packets that count against the window.
    #[inline]
    fn in_window(&self) -> u32 {
        if self.pipe && !self.sacks.is_empty() { self.in_network() } else { self.in_flight() }
    }

    /// Of those in flight, the ones that are thought to be in the network.
    fn in_network(&self) -> u32 {
        let in_flight = self.in_flight();
        let end = self.sacks.end().min(in_flight);
        // In recovery, what is missing has been sent again up to `again`, and is lost from there on.
        let mut again = end;
        if self.in_recovery || self.do_retransmit {
            let next = self.retransmit.distance(self.acked) + i32::from(!self.do_retransmit);
            again = end.min(next.max(0) as u32);
        }
        in_flight - (end - again) - self.sacks.ones(again)
    }

    /// Whether `retransmit` waits to be sent, and may be.
    #[inline]
    fn may_retransmit(&self) -> bool {
        self.do_retransmit && (!self.pipe || self.retransmit == self.acked || self.in_window() < self.window)
    }

    /// Whether anything sent is not acknowledged.
    #[inline]
    pub fn outstanding(&self) -> bool {
        self.high != self.acked
    }

    /// Whether [`Self::tx_free`] would do anything; `more`: a packet waits that was never sent.
    #[inline]
    pub fn wants_tx(&self, more: bool) -> bool {
        self.may_retransmit()
            || self.find_new_hole
            || self.again
            || ((more || self.next != self.high) && !self.is_full())
    }

    /// Whether [`Self::tx_new`] would name a packet.
    pub fn wants_new(&self, more: bool) -> bool {
        more && self.next == self.high && !self.is_full()
    }

    /// The packet to send again next because it alone is lost. What going back N sends again is from [`Self::next`] to
    /// [`Self::high`].
    pub fn lost(&self) -> Option<Psn> {
        if self.again {
            Some(self.acked)
        } else {
            (self.do_retransmit && !self.retransmit.before(self.acked)).then_some(self.retransmit)
        }
    }

    /// [`Self::tx_free`] while nothing may be sent again.
    pub fn tx_new(&mut self, more: bool) -> Option<Psn> {
        if self.next == self.high { self.send_next(more) } else { None }
    }

    /// The link is free: the sequence number to send now, if any. `more` says that a packet waits that was never sent.
    #[inline]
    pub fn tx_free(&mut self, more: bool) -> Option<Psn> {
        if self.scheme == Recovery::GoBackN {
            return self.send_next(more);
        }
        if std::mem::take(&mut self.again) {
            self.recovery = self.next.minus(1);
            (self.mark, self.overtaken) = (self.next, 0);
            return Some(self.acked);
        }
        let send;
        let ahead = self.retransmit.distance(self.acked);
        if self.do_retransmit && ahead >= 0 {
            if !self.may_retransmit() {
                return None;
            }
            if ahead == 0 {
                self.in_recovery = true;
                (self.mark, self.overtaken) = (self.next, 0);
            }
            send = Some(self.retransmit);
            self.recovery = self.next.minus(1);
            self.do_retransmit = false;
            self.find_new_hole = true;
        } else {
            if self.do_retransmit {
                self.find_new_hole = false;
                self.do_retransmit = false;
            }
            send = self.send_next(more);
        }
        if self.find_new_hole {
            self.find_new_hole = false;
            // A packet counts as lost only if a later one was selectively acknowledged, and if it is not sent again in its turn.
            let from = (self.retransmit.distance(self.acked) + 1).max(0) as u32;
            let hole = self.sacks.first_clear(from);
            if hole < self.sacks.end().min(self.in_flight()) {
                self.retransmit = self.acked.plus(hole);
                self.do_retransmit = true;
            }
        }
        send
    }

    #[inline]
    fn send_next(&mut self, more: bool) -> Option<Psn> {
        if self.pipe && self.next != self.high {
            self.next = self.acked.plus(self.sacks.first_clear(self.in_flight()));
        }
        if self.is_full() || !(more || self.next != self.high) {
            return None;
        }
        let psn = self.next;
        self.next = psn.plus(1);
        if self.high.before(self.next) {
            self.high = self.next;
        }
        Some(psn)
    }

    /// The packet that [`Self::tx_free`] just named covers `packets` sequence numbers (plain RoCE's READ request).
    #[inline]
    pub fn cover(&mut self, packets: u32) {
        self.next = self.next.plus(packets - 1);
        if self.high.before(self.next) {
            self.high = self.next;
        }
    }

    /// An acknowledgement: everything before `cumulative` has arrived, and on a NACK so has `nack`. Returns false, and
    /// changes nothing, if it speaks of packets that were never sent.
    #[inline]
    pub fn receive_ack(&mut self, cumulative: Psn, nack: Option<Psn>) -> bool {
        if self.high.before(cumulative) || nack.is_some_and(|n| !n.before(self.high) && n != cumulative) {
            return false;
        }
        let news = cumulative.distance(self.acked);
        if news < -Self::STALE {
            return false;
        }
        if self.next.before(cumulative) {
            self.next = cumulative;
        }
        let new_ack = news > 0;
        if new_ack {
            self.sacks.advance(news as u32, |_| ());
            self.acked = cumulative;
            self.nacks = 0;
            if self.lost_until.before(cumulative) {
                self.lost_until = cumulative;
            }
            self.again = false;
            // When the packet that is the first now was sent again is not known: not after this.
            (self.mark, self.overtaken) = (self.next, 0);
            if self.slow_start > 0 {
                self.cap = self.cap.saturating_add(news as u32).min(self.slow_start);
            }
        }
        if self.scheme == Recovery::GoBackN {
            if nack.is_some() && cumulative == self.acked {
                self.lost_now();
                self.next = self.acked;
            }
            return true;
        }
        // Said before, to make up for acknowledgements that were lost.
        let nack = nack.filter(|s| {
            let offset = s.distance(self.acked);
            !self.evidence || (offset >= 0 && !self.sacks.any(offset as u32))
        });
        if let Some(selective) = nack {
            let offset = selective.distance(self.acked);
            if offset > 0 && self.scheme == Recovery::Selective {
                let offset = offset as u32;
                self.sacks.set(offset, [true]);
                if self.in_recovery {
                    if self.do_retransmit && self.retransmit == selective {
                        self.find_new_hole = true;
                        self.do_retransmit = false;
                    } else if !self.do_retransmit && offset + 1 == self.sacks.end() {
                        self.find_new_hole = true;
                    }
                    let sent_again = self.retransmit.distance(self.acked) >= i32::from(self.do_retransmit);
                    if self.evidence && sent_again && !self.again && !selective.before(self.mark) {
                        self.overtaken += 1;
                        self.again = self.overtaken >= self.nack_threshold;
                    }
                }
            }
        }
        if self.recovery.before(cumulative) {
            self.in_recovery = false;
            self.find_new_hole = false;
            self.do_retransmit = false;
            (self.again, self.silent, self.probed) = (false, false, None);
            if cumulative.distance(self.recovery) > Self::STALE {
                self.recovery = cumulative.minus(1);
            }
        }
        // From a receiver that goes back N, which keeps nothing to acknowledge selectively.
        let nothing_kept = self.evidence && nack == Some(self.acked) && self.retransmit.before(self.acked);
        if self.in_recovery && nothing_kept {
            self.retransmit_first();
        } else if new_ack && self.in_recovery {
            let ahead = self.retransmit.distance(self.acked);
            self.silent &= ahead >= -1;
            let lost = !self.evidence || self.silent || !self.sacks.is_empty();
            if (ahead < 0 && lost) || (ahead == 0 && self.do_retransmit) {
                self.retransmit_first();
            }
        } else if !self.in_recovery && self.acked.before(self.next) {
            // Of a packet from before a go-back it says nothing of what was sent since.
            let gap = match nack {
                _ if new_ack => self.evidence && !self.sacks.is_empty(),
                nack => nack.is_some_and(|nack| nack.before(self.next)),
            };
            self.nacks += u32::from(gap);
            if gap && self.nacks >= self.nack_threshold {
                self.lost_now();
                self.retransmit_first();
            }
        }
        true
    }

    /// The same for an acknowledgement that may stand for a run of NACKs, which are taken in the order of arrival.
    #[inline]
    pub fn receive_acks(&mut self, cumulative: Psn, nack: Option<Sack>) -> bool {
        let Some(sack) = nack else { return self.receive_ack(cumulative, None) };
        (0..=u32::from(sack.run)).rev().all(|back| self.receive_ack(cumulative, Some(sack.last.minus(back))))
    }

    /// A retransmission timer ran out; `quick` if it was the RTO_low one, which holds only while at most `quick_limit`
    /// packets are in flight. Returns true if the timer shall instead be extended to RTO_high.
    #[inline]
    pub fn timeout(&mut self, quick: bool, quick_limit: u32) -> bool {
        if quick && self.in_flight() > quick_limit {
            return true;
        }
        let ahead = self.retransmit.distance(self.acked);
        if self.scheme == Recovery::GoBackN {
            self.next = self.acked;
            if self.slow_start > 0 {
                self.cap = 1;
            }
        } else if self.evidence && self.in_recovery && ahead > 0 && self.probed != Some(self.acked) {
            self.again = true;
            self.probed = Some(self.acked.plus(1));
        } else if self.pipe && (!self.evidence || self.in_recovery && ahead != 0) {
            if self.sacks.any(0) {
                // The receiver has forgotten what it acknowledged (RFC 2018 §8), as it does when it was not ready.
                self.sacks.clear();
            }
            self.start_over();
        } else {
            self.probed = None;
            self.silent = self.in_recovery && ahead < 0;
            self.retransmit_first();
        }
        false
    }

    #[inline]
    fn retransmit_first(&mut self) {
        self.retransmit = self.acked;
        self.do_retransmit = true;
        self.find_new_hole = false;
    }

    /// Starts again from the first packet that is not acknowledged, forgetting selective acknowledgements: what RNR and
    /// other error NAKs ask for, whatever the scheme (IRN §4.4.4).
    pub fn go_back(&mut self) {
        self.sacks.clear();
        self.start_over();
    }

    /// The same, but for what was selectively acknowledged.
    fn start_over(&mut self) {
        self.next = self.acked;
        self.nacks = 0;
        (self.again, self.silent, self.probed) = (false, false, None);
        self.do_retransmit = false;
        self.find_new_hole = false;
        self.in_recovery = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send_all(sender: &mut Sender, more: bool) -> Vec<u32> {
        let mut sent = Vec::new();
        while sender.wants_tx(more) {
            sent.extend(sender.tx_free(more).map(Psn::get));
        }
        sent
    }

    #[test]
    fn what_a_receiver_forgot_goes_again_after_a_timeout() {
        let mut sender = Sender::new(Recovery::Selective, Psn::new(0), 100, 3).with_pipe(true);
        sender.set_window(4);
        assert_eq!(send_all(&mut sender, true), [0, 1, 2, 3]);
        assert!(sender.receive_ack(Psn::new(0), Some(Psn::new(2))));
        sender.timeout(false, 0);
        assert_eq!(send_all(&mut sender, false), [0, 1, 3]);
        // It wants 2 all the same.
        assert!(sender.receive_ack(Psn::new(2), None));
        sender.timeout(false, 0);
        assert_eq!(send_all(&mut sender, false), [2, 3]);
    }
}
