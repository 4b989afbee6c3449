//! txFree, receiveAck and timeout: selection of the next packet of a stream.

use super::Bitmap;
use super::go_back_n::GoBackN;
use super::irn;
use super::low_acks::LowAcks;
use super::rack::Rack;
use super::scoreboard::Scoreboard;
use super::stream::Stream;
use crate::footprint::{Ledger, Parts, Setup, footprint, left, part, why};
use crate::psn::Psn;
use crate::room::ensure;
use crate::time::Time;

/// Loss recovery scheme of a sender.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum Recovery {
    /// Resend everything from the first lost packet on.
    #[default]
    GoBackN,
    /// Resend only packets known to be lost (IRN §4.2.1).
    Selective,
    /// Resend only the first missing packet: no record of selective acknowledgements, one loss recovered per round trip
    /// (IRN §4.3.3, question 2).
    SelectiveWithoutSack,
}

/// A selective acknowledgement: packet `last` and the `run` packets before it have arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sack {
    /// The latest packet.
    pub last: Psn,
    /// Number of packets right before it.
    pub run: u8,
}

impl Sack {
    /// Returns whether it includes `psn`.
    #[inline]
    pub fn covers(&self, psn: Psn) -> bool {
        (0..=i32::from(self.run)).contains(&self.last.distance(psn))
    }
}

/// The registers of IRN's sender modules, as printed in the reference traces.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the modules
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
    stream: Stream,
    scheme: Scheme,
    /// Whether selective recovery is to use RACK, which is set up at the first packet: most streams never send one.
    evidence: bool,
}

/// The recovery scheme and its state.
#[derive(Clone, Debug)]
enum Scheme {
    GoBackN(GoBackN),
    /// Selective recovery as in IRN's reference modules.
    Irn(Scoreboard),
    /// Selective recovery by transmission times.
    Rack(Box<Rack>),
}

impl Sender {
    /// Creates a stream that starts with `first`, at most `cap` packets in flight. Selective recovery uses IRN's own
    /// rules.
    pub fn new(recovery: Recovery, first: Psn, cap: u32, nack_threshold: u32) -> Sender {
        let stream = Stream::new(first, cap);
        let board = |keeps| Scheme::Irn(Scoreboard::new(first, stream.cap, keeps, nack_threshold));
        let scheme = match recovery {
            Recovery::GoBackN => Scheme::GoBackN(GoBackN::default()),
            Recovery::Selective => board(true),
            Recovery::SelectiveWithoutSack => board(false),
        };
        Sender { stream, scheme, evidence: false }
    }

    /// Has the sender require evidence that a packet is lost before it resends it, for hosts whose timers expire too
    /// early. Selective recovery goes by transmission times (RACK, RFC 8985), or by IRN's rules if there is no memory
    /// for that at the first packet. Going back N sends one packet after a timeout, and everything again only if the
    /// answer shows that it is missing (F-RTO, RFC 5682). Recovery without a record of selective acknowledgements is
    /// unchanged.
    #[must_use]
    pub fn with_evidence(mut self, evidence: bool) -> Sender {
        match &mut self.scheme {
            Scheme::GoBackN(scheme) if evidence => scheme.ask(&self.stream),
            Scheme::Irn(board) => self.evidence = evidence && board.keeps(),
            _ => {}
        }
        self
    }

    /// Sets up recovery before the first packet.
    #[cold]
    fn begin(&mut self) {
        if std::mem::take(&mut self.evidence)
            && let Scheme::Irn(board) = &self.scheme
            && ensure(size_of::<Rack>()).is_ok()
        {
            self.scheme = Scheme::Rack(Box::new(Rack::new(board.clone(), self.stream.acked)));
        }
    }

    /// Has the window count packets estimated to be in the network, TCP's pipe (RFC 6675): neither selectively
    /// acknowledged ones nor lost ones that were not resent. So retransmissions wait for the window, too, except that
    /// of the first missing packet. After a timeout that considers everything lost, all packets not selectively
    /// acknowledged are resent as the window opens.
    #[must_use]
    pub fn with_pipe(mut self, pipe: bool) -> Sender {
        match &mut self.scheme {
            Scheme::GoBackN(_) => {}
            Scheme::Irn(board) => board.pipe = pipe,
            Scheme::Rack(rack) => rack.board.pipe = pipe,
        }
        self
    }

    /// Has low priority send packets from the end, up to `reach` ahead of the first unacknowledged one
    /// ([`crate::config::Rc3Config`]). Packets it delivered are skipped here. Without effect on a sender that goes back
    /// N, or keeps no record of selective acknowledgements.
    #[must_use]
    pub fn with_low_priority(mut self, reach: u32) -> Sender {
        let acked = self.stream.acked;
        if let Some(board) = self.board_mut().filter(|board| board.keeps()) {
            board.sacks = Bitmap::new(reach);
            board.low_acks = Some(Box::new(LowAcks::new(acked, reach)));
            self.stream.set_reach(reach);
        }
        self
    }

    fn board_mut(&mut self) -> Option<&mut Scoreboard> {
        match &mut self.scheme {
            Scheme::GoBackN(_) => None,
            Scheme::Irn(board) => Some(board),
            Scheme::Rack(rack) => Some(&mut rack.board),
        }
    }

    fn board(&self) -> Option<&Scoreboard> {
        match &self.scheme {
            Scheme::GoBackN(_) => None,
            Scheme::Irn(board) => Some(board),
            Scheme::Rack(rack) => Some(&rack.board),
        }
    }

    /// Returns the registers. Going back N uses two of them.
    pub fn state(&self) -> SenderState {
        let Stream { next, acked, .. } = self.stream;
        let board = self.board();
        SenderState {
            next,
            acked,
            retransmit: board.map_or(acked, |b| b.retransmit),
            recovery: board.map_or(acked, |b| b.recovery),
            do_retransmit: board.is_some_and(|b| b.do_retransmit),
            in_recovery: board.is_some_and(|b| b.in_recovery),
            find_new_hole: board.is_some_and(|b| b.find_new_hole),
        }
    }

    /// Returns the first cumulatively unacknowledged sequence number.
    #[inline]
    pub fn acked(&self) -> Psn {
        self.stream.acked
    }

    /// Returns one past the highest sequence number sent.
    #[inline]
    pub fn high(&self) -> Psn {
        self.stream.high
    }

    /// Returns the next sequence number that is not a selective retransmission.
    #[inline]
    pub fn next(&self) -> Psn {
        self.stream.next
    }

    /// Returns the packets in flight as BDP-FC counts them: sent (since the last go-back) and not acknowledged
    /// cumulatively.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.stream.in_flight()
    }

    /// Limits packets in flight to `cap` from now on. A sender that goes back N is limited to one after a timeout, then
    /// grows by those acknowledged (RFC 5681 §3.1): the receiver may still have all of them in its queue.
    pub fn limit(&mut self, cap: u32) {
        match &mut self.scheme {
            Scheme::GoBackN(scheme) => scheme.limit(&mut self.stream, cap),
            Scheme::Irn(_) | Scheme::Rack(_) => self.stream.cap = self.stream.cap.min(cap.max(1)),
        }
    }

    /// Sets the window of congestion control in packets, in addition to the cap.
    #[inline]
    pub fn set_window(&mut self, packets: u32) {
        self.stream.window = packets.max(1);
    }

    /// Returns the number of losses reported by NACKs: all packets in flight at the time count as one. Wraps.
    #[inline]
    pub fn losses(&self) -> u32 {
        self.stream.losses.into()
    }

    /// Returns whether the window is full.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.stream.is_full(self.in_window())
    }

    /// Returns the packets that count against the window.
    #[inline(always)]
    fn in_window(&self) -> u32 {
        match &self.scheme {
            Scheme::GoBackN(_) => self.stream.in_flight(),
            Scheme::Irn(board) => board.in_window(&self.stream),
            Scheme::Rack(rack) => rack.in_window(&self.stream),
        }
    }

    /// Returns whether any packet sent is unacknowledged.
    #[inline]
    pub fn outstanding(&self) -> bool {
        self.stream.high != self.stream.acked
    }

    /// Returns whether [`Self::tx_free`] would do anything; `more`: a new packet waits.
    #[inline]
    pub fn wants_tx(&self, more: bool) -> bool {
        let stream = &self.stream;
        match &self.scheme {
            Scheme::GoBackN(_) => (more || stream.next != stream.high) && !stream.is_full(stream.in_flight()),
            Scheme::Irn(board) => board.wants_tx(stream, more),
            Scheme::Rack(rack) => rack.wants_tx(stream, more),
        }
    }

    /// Returns whether [`Self::tx_new`] would select a packet.
    pub fn wants_new(&self, more: bool) -> bool {
        more && self.stream.next == self.stream.high && !self.is_full()
    }

    /// Returns the next packet to be retransmitted individually. Going back N resends from [`Self::next`] to
    /// [`Self::high`].
    pub fn lost(&self) -> Option<Psn> {
        match &self.scheme {
            Scheme::GoBackN(_) => None,
            Scheme::Irn(board) => board.lost(&self.stream),
            Scheme::Rack(rack) => rack.lost(&self.stream),
        }
    }

    /// Returns whether a packet is known to have arrived.
    pub fn has_arrived(&self, psn: Psn) -> bool {
        let offset = psn.distance(self.stream.acked);
        offset < 0 || self.board().is_some_and(|board| board.sacks.any(offset as u32))
    }

    /// Returns whether a packet that was sent and has not arrived will be resent in the current state.
    pub fn will_resend(&self, psn: Psn) -> bool {
        !psn.before(self.stream.next)
            || match &self.scheme {
                Scheme::GoBackN(_) => false,
                Scheme::Irn(board) => board.will_resend(&self.stream, psn),
                Scheme::Rack(rack) => rack.will_resend(&self.stream, psn),
            }
    }

    /// Returns whether the window has room for one of `lost` packets, which the sender still counts as in the network.
    pub fn has_room_for_lost(&self, lost: u32) -> bool {
        let pipe = self.board().is_some_and(|board| board.pipe);
        !pipe || self.in_window().saturating_sub(lost) < self.stream.window
    }

    /// Returns whether nothing is to be retransmitted, now or once a look for further losses is done: only new packets
    /// may be sent.
    #[inline]
    pub fn is_fresh(&self) -> bool {
        self.stream.next == self.stream.high
            && match &self.scheme {
                Scheme::GoBackN(_) => true,
                Scheme::Irn(board) => !board.wants_tx(&self.stream, false),
                Scheme::Rack(rack) => !rack.wants_tx(&self.stream, false),
            }
    }

    /// Returns whether recovery is in progress: something waits for retransmission, or not everything sent by then is
    /// acknowledged.
    pub fn is_recovering(&self) -> bool {
        let stream = &self.stream;
        stream.next != stream.high
            || match &self.scheme {
                Scheme::GoBackN(_) => false,
                Scheme::Irn(board) => board.is_recovering(),
                Scheme::Rack(rack) => rack.is_recovering(),
            }
    }

    /// Has the first unacknowledged packet retransmitted: it is lost, regardless of the NACKs otherwise required.
    /// Without effect on a sender that goes back N.
    pub fn lose_first(&mut self) {
        let stream = &mut self.stream;
        match &mut self.scheme {
            Scheme::GoBackN(_) => {}
            Scheme::Irn(board) => {
                stream.count_loss();
                board.retransmit_first(stream);
            }
            Scheme::Rack(rack) => rack.lose_first(stream),
        }
    }

    /// Counts a loss found by other means than a NACK; see [`Self::losses`].
    pub fn count_loss(&mut self) {
        self.stream.count_loss();
    }

    /// Returns how often retransmissions by a timer were spurious. Wraps.
    #[inline]
    pub fn spurious(&self) -> u16 {
        self.stream.spurious
    }

    /// Returns when [`Self::on_deadline`] is due: RACK's reordering timer.
    #[inline]
    pub fn deadline(&self) -> Time {
        if let Scheme::Rack(rack) = &self.scheme { rack.deadline() } else { Time::NEVER }
    }

    /// Runs due timers.
    pub fn on_deadline(&mut self, now: Time) {
        if let Scheme::Rack(rack) = &mut self.scheme {
            rack.on_deadline(now, &mut self.stream);
        }
    }

    /// Returns whether the sender measures round trips itself ([`Self::take_sample`]).
    #[inline]
    pub fn measures(&self) -> bool {
        self.evidence || matches!(self.scheme, Scheme::Rack(_))
    }

    /// Takes the round trip in ns measured by the latest acknowledgement, if it is a sample: one per round trip, of a
    /// packet sent once.
    #[inline]
    pub fn take_sample(&mut self) -> Option<u64> {
        if let Scheme::Rack(rack) = &mut self.scheme { rack.take_sample() } else { None }
    }

    /// Has one packet retransmitted whose answer shows what is missing (a tail loss probe, RFC 8985 §7): the last, or
    /// when going back N optionally the `first`. Returns false if there is something else to send, or nothing to learn.
    pub fn probe(&mut self, first: bool) -> bool {
        let stream = &mut self.stream;
        match &mut self.scheme {
            Scheme::GoBackN(scheme) => scheme.probe(stream, first),
            Scheme::Irn(_) => false,
            Scheme::Rack(rack) => rack.probe(stream),
        }
    }

    /// Records a retransmission made by other means than [`Self::tx_free`].
    pub fn repeated(&mut self, now: Time, psn: Psn) {
        if let Scheme::Rack(rack) = &mut self.scheme {
            rack.repeated(now, &mut self.stream, psn);
        }
    }

    /// Handles the receiver's report that a packet arrived twice (as in RFC 2883's D-SACK).
    pub fn receive_duplicate(&mut self, psn: Psn) {
        if let Scheme::Rack(rack) = &mut self.scheme {
            rack.duplicate(&mut self.stream, psn);
        }
    }

    /// [`Self::tx_free`] while nothing may be retransmitted.
    pub fn tx_new(&mut self, now: Time, more: bool) -> Option<Psn> {
        self.wants_new(more).then(|| self.take_next(now))
    }

    /// Selects a new packet, if one waits (`more`) and the cap allows it, whatever the window of congestion control.
    pub fn tx_beyond_window(&mut self, now: Time, more: bool) -> Option<Psn> {
        let stream = &self.stream;
        (more && stream.next == stream.high && !stream.is_full(0)).then(|| self.take_next(now))
    }

    #[inline]
    fn take_next(&mut self, now: Time) -> Psn {
        if self.evidence {
            self.begin();
        }
        let stream = &mut self.stream;
        if let Scheme::Rack(rack) = &mut self.scheme { rack.take_next(now, stream) } else { stream.take_next() }
    }

    /// Selects the sequence number to send now, if any, when the link is free. `more` says that a new packet waits.
    #[inline]
    pub fn tx_free(&mut self, now: Time, more: bool) -> Option<Psn> {
        if self.evidence {
            self.begin();
        }
        let stream = &mut self.stream;
        match &mut self.scheme {
            Scheme::GoBackN(_) => {
                let full = stream.is_full(stream.in_flight());
                (!full && (more || stream.next != stream.high)).then(|| stream.take_next())
            }
            Scheme::Irn(board) => {
                let sent = board.tx_free(stream, more);
                board.leave_out(stream);
                sent
            }
            Scheme::Rack(rack) => {
                let sent = rack.tx_free(now, stream, more);
                rack.board.leave_out(stream);
                sent
            }
        }
    }

    /// Extends the packet just selected by [`Self::tx_free`] to `packets` sequence numbers (plain RoCE's READ request).
    #[inline]
    pub fn cover(&mut self, packets: u32) {
        self.stream.advance(packets - 1);
    }

    /// Handles an acknowledgement: everything before `cumulative` has arrived, and on a NACK so has `nack`. Returns
    /// false, and changes nothing, if it names packets that were never sent.
    #[inline]
    pub fn receive_ack(&mut self, now: Time, cumulative: Psn, nack: Option<Psn>) -> bool {
        let stream = &mut self.stream;
        if stream.has_reach() {
            return self.receive_ack_with_low(now, cumulative, nack);
        }
        let next = stream.next;
        let Some(news) = stream.acknowledge(cumulative, nack) else { return false };
        match &mut self.scheme {
            Scheme::GoBackN(scheme) => scheme.receive_ack(stream, news, next, cumulative, nack.is_some()),
            Scheme::Irn(board) => irn::receive_ack(board, stream, news, cumulative, nack),
            Scheme::Rack(rack) => rack.receive_ack(now, stream, news, nack.map(|last| Sack { last, run: 0 })),
        }
        true
    }

    /// [`Self::receive_ack`] for a sender with low priority.
    #[cold]
    fn receive_ack_with_low(&mut self, now: Time, cumulative: Psn, nack: Option<Psn>) -> bool {
        let stream = &mut self.stream;
        let board = match &mut self.scheme {
            Scheme::GoBackN(_) => return false,
            Scheme::Irn(board) => board,
            Scheme::Rack(rack) => &mut rack.board,
        };
        let before = board.before_ack(stream, cumulative, nack);
        let Some(news) = stream.acknowledge(cumulative, nack) else { return false };
        board.after_ack(stream, &before, news);
        // Acknowledgements of low-priority packets carry no information about the primary loop's.
        let offset = |psn: Psn| psn.distance(stream.acked).max(0) as u32;
        let nack = nack.filter(|psn| !board.is_delivered_low(offset(*psn)));
        // More may be known to have arrived than it acknowledges.
        let cumulative = if cumulative.before(stream.acked) { stream.acked } else { cumulative };
        match &mut self.scheme {
            Scheme::GoBackN(_) => {}
            Scheme::Irn(board) => irn::receive_ack(board, stream, news, cumulative, nack),
            Scheme::Rack(rack) => rack.receive_ack(now, stream, news, nack.map(|last| Sack { last, run: 0 })),
        }
        self.leave_out();
        true
    }

    /// Handles an acknowledgement of low priority: the packets from `first` to `last` have arrived. It opens no window,
    /// shows no loss, and ends no recovery. Returns the number newly known to have arrived; `None`, without any change,
    /// if it names packets that were never sent.
    pub fn receive_low_ack(&mut self, first: Psn, last: Psn) -> Option<u32> {
        let stream = &mut self.stream;
        match &mut self.scheme {
            Scheme::GoBackN(_) => None,
            Scheme::Irn(board) => board.record_low(stream, first, last),
            Scheme::Rack(rack) => rack.board.record_low(stream, first, last),
        }
    }

    /// Records a packet sent at low priority.
    pub fn sent_low(&mut self, psn: Psn) {
        if let Some(low_acks) = self.board_mut().and_then(|board| board.low_acks.as_mut())
            && !psn.before(low_acks.end)
        {
            low_acks.end = psn.plus(1);
        }
    }

    /// Returns the number of acknowledged packets that only low priority had sent. Wraps.
    #[inline]
    pub fn delivered_low(&self) -> u32 {
        self.board().and_then(|board| board.low_acks.as_ref()).map_or(0, |low_acks| low_acks.passed)
    }

    /// Returns the number of cumulative acknowledgements that newly acknowledged packets sent only at low priority.
    /// Wraps.
    pub fn bumps(&self) -> u32 {
        self.board().and_then(|board| board.low_acks.as_ref()).map_or(0, |low_acks| low_acks.bumps)
    }

    /// Returns the number of packets sent, not at low priority, that are not acknowledged cumulatively.
    #[inline]
    pub fn unacknowledged(&self) -> u32 {
        let sent = self.stream.high.distance(self.stream.acked).max(0) as u32;
        sent - self.board().and_then(|board| board.low_acks.as_ref()).map_or(0, |low_acks| low_acks.map.ones(sent))
    }

    /// Handles an acknowledgement that may stand for a run of NACKs, which are processed in order of arrival. Returns
    /// the result of [`Self::receive_ack`].
    #[inline]
    pub fn receive_acks(&mut self, now: Time, cumulative: Psn, nack: Option<Sack>) -> bool {
        let Some(sack) = nack else { return self.receive_ack(now, cumulative, None) };
        if let Scheme::Rack(rack) = &mut self.scheme
            && !self.stream.has_reach()
        {
            let Some(news) = self.stream.acknowledge(cumulative, Some(sack.last)) else { return false };
            rack.receive_ack(now, &mut self.stream, news, nack);
            return true;
        }
        (0..=u32::from(sack.run)).rev().all(|back| self.receive_ack(now, cumulative, Some(sack.last.minus(back))))
    }

    /// Handles a retransmission timeout; `quick` if it was the RTO_low one, which applies only while at most
    /// `quick_limit` packets are in flight. Returns true if the timer is to be extended to RTO_high instead.
    #[inline]
    pub fn timeout(&mut self, quick: bool, quick_limit: u32) -> bool {
        if quick && self.in_flight() > quick_limit {
            return true;
        }
        let stream = &mut self.stream;
        match &mut self.scheme {
            Scheme::GoBackN(scheme) => scheme.timeout(stream),
            Scheme::Irn(board) => irn::timeout(board, stream),
            Scheme::Rack(rack) => rack.timeout(stream),
        }
        self.leave_out();
        false
    }

    /// Restarts from the first unacknowledged packet, discarding selective acknowledgements: required by RNR and other
    /// error NAKs, whatever the scheme (IRN §4.4.4).
    pub fn go_back(&mut self) {
        let stream = &mut self.stream;
        match &mut self.scheme {
            Scheme::GoBackN(scheme) => scheme.go_back(stream),
            Scheme::Irn(board) => board.go_back(stream),
            Scheme::Rack(rack) => rack.go_back(stream),
        }
        self.leave_out();
    }

    /// See [`Scoreboard::leave_out`].
    fn leave_out(&mut self) {
        let stream = &mut self.stream;
        match &mut self.scheme {
            Scheme::GoBackN(_) => {}
            Scheme::Irn(board) => board.leave_out(stream),
            Scheme::Rack(rack) => rack.board.leave_out(stream),
        }
    }
}

footprint!(Sender, |at| {
    stream => part(stream),
    scheme => part(scheme),
    evidence => left(why::SHARED),
});

impl Parts for Scheme {
    fn list(&self, at: &Setup, ledger: &mut Ledger) {
        match self {
            Scheme::GoBackN(scheme) => scheme.list(at, ledger),
            Scheme::Irn(board) => board.list(at, ledger),
            Scheme::Rack(rack) => ledger.enter(at, "rack", part(&**rack).heap(size_of::<Rack>())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send_all(sender: &mut Sender, more: bool) -> Vec<u32> {
        let mut sent = Vec::new();
        while sender.wants_tx(more) {
            sent.extend(sender.tx_free(Time::ZERO, more).map(Psn::get));
        }
        sent
    }

    #[test]
    fn what_a_receiver_forgot_goes_again_after_a_timeout() {
        let mut sender = Sender::new(Recovery::Selective, Psn::new(0), 100, 3).with_pipe(true);
        sender.set_window(4);
        assert_eq!(send_all(&mut sender, true), [0, 1, 2, 3]);
        assert!(sender.receive_ack(Time::ZERO, Psn::new(0), Some(Psn::new(2))));
        sender.timeout(false, 0);
        assert_eq!(send_all(&mut sender, false), [0, 1, 3]);
        // It sends 2 all the same.
        assert!(sender.receive_ack(Time::ZERO, Psn::new(2), None));
        sender.timeout(false, 0);
        assert_eq!(send_all(&mut sender, false), [2, 3]);
    }
}
