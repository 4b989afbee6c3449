//! A stream whose receiver requests its packets one by one (NDP §3.2).
//!
//! The first window is sent without requests. Then each packet that arrives, whole or trimmed, creates one pull at the
//! receiver, which sends pulls at the rate of its link, and each pull releases one packet: lost ones first. So the
//! number of packets in flight stays constant, and nothing is ever retransmitted on a guess.
//!
//! Each of the stream's `window` slots is in one state at a time: `flying` (sent, not answered), `owed` (answered, the
//! pull is still to come), `credits` (pulled, nothing sent yet), or `held` (its packet was returned, and no pull will
//! come for it). Their sum never exceeds the window. A pull may overtake the answer that it belongs to: `owed` is then
//! negative until that arrives, and the packet still `flying`.
//!
//! Pulls are numbered, so a later one makes up for one that was lost. The last has no later one: a receiver that owes
//! none, and misses packets for long, repeats its latest pull, with a flag that it owes none.

use std::collections::VecDeque;

use crate::footprint::{bits, footprint, instant, left, maybe, sequence, times, why, width};
use crate::psn::Psn;
use crate::room::{OutOfMemory, boxed};
use crate::time::{Time, US};

/// An answer to a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has arrived. `again`: a duplicate, so that no pull was created.
    Arrived {
        /// No pull is created for it.
        again: bool,
    },
    /// Only its headers have arrived.
    Trimmed,
}

/// Feedback from the receiver: an answer, a pull, or both.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Everything before it has arrived.
    pub cumulative: Psn,
    /// The packet that caused it, and the result.
    pub answer: Option<(Psn, Answer)>,
    /// Number of pulls sent so far, 24 bits, if this is a pull or repeats the latest.
    pub pull: Option<Psn>,
    /// Whether the receiver owes no other pull.
    pub owes_none: bool,
}

/// A packet to send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its number.
    pub psn: Psn,
    /// Whether it is new.
    pub fresh: bool,
    /// The path on which it was lost, if that is why it is retransmitted: it should take another.
    pub lost_on: Option<u16>,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Arrived,
    Flying,
    /// Trimmed or returned: waits for a pull.
    Lost,
    /// Not answered in time: is retransmitted without a pull.
    Overdue,
}

#[derive(Copy, Clone, Debug, Default)]
struct Slot {
    /// µs, wrapping.
    sent: u32,
    path: u16,
    state: State,
}

/// The latest answers, newest in the lowest bit: 1 is a packet that arrived whole.
#[derive(Copy, Clone, Debug, Default)]
struct History {
    bits: u16,
    count: u8,
}

impl History {
    /// Number of answers remembered, from the authors' simulator.
    const LEN: u8 = 12;

    fn push(&mut self, arrived: bool) {
        self.bits = (self.bits << 1 | u16::from(arrived)) & ((1 << Self::LEN) - 1);
        self.count = (self.count + 1).min(Self::LEN);
    }

    /// Returns whether more than a quarter arrived whole: then returned packets met an obstacle that affects few. In
    /// integers, as in the authors' simulator.
    fn arrives(self) -> bool {
        let arrived = self.bits.count_ones();
        arrived > 0 && u32::from(self.count) / arrived <= 3
    }
}

/// The sending end of a pulled stream.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// One past the highest sequence number ever sent.
    next: Psn,
    /// Everything before it has arrived.
    acked: Psn,
    /// By sequence number, from `acked` to `next`: a power of two of them.
    slots: Box<[Slot]>,
    window: u32,
    flying: u32,
    owed: i32,
    credits: u32,
    held: u32,
    last_pull: Psn,
    /// Numbers that were [`State::Lost`] when they were added, and how many still are.
    lost: VecDeque<Psn>,
    waiting: u32,
    /// As [`Self::lost`], for [`State::Overdue`].
    overdue: VecDeque<Psn>,
    overdue_count: u32,
    history: History,
    /// One past the packet that was marked as the last, until it has arrived.
    last: Option<Psn>,
    /// Retransmission timeout, ns.
    rto: u64,
    /// When [`Self::on_deadline`] checks for unanswered packets.
    check: Time,
}

impl Pulled {
    /// Creates a stream that starts with `first`, sends `window` packets without a pull, 1 or more, and tracks
    /// `tracked` from the oldest on, rounded up to a power of two. An unanswered packet is retransmitted after `rto`
    /// ns, 0 for never.
    pub fn new(first: Psn, window: u32, tracked: u32, rto: u64) -> Result<Pulled, OutOfMemory> {
        let tracked = tracked.clamp(1, 1 << 16).next_power_of_two();
        let queue = || {
            let mut queue = VecDeque::new();
            let bytes = tracked as usize * size_of::<Psn>();
            queue.try_reserve_exact(tracked as usize).map(|()| queue).map_err(|_| OutOfMemory(bytes))
        };
        Ok(Pulled {
            next: first,
            acked: first,
            slots: boxed(Slot::default(), tracked as usize)?,
            window: window.max(1),
            flying: 0,
            owed: 0,
            credits: 0,
            held: 0,
            last_pull: Psn::new(0),
            lost: queue()?,
            waiting: 0,
            overdue: queue()?,
            overdue_count: 0,
            history: History::default(),
            last: None,
            rto,
            check: Time::NEVER,
        })
    }

    /// Resets the stream, to start with `first`. An unanswered packet is retransmitted after `rto` ns, 0 for never.
    pub fn restart(&mut self, first: Psn, rto: u64) {
        self.slots.fill(Slot::default());
        (self.next, self.acked, self.last_pull) = (first, first, Psn::new(0));
        (self.flying, self.owed, self.credits, self.held) = (0, 0, 0, 0);
        (self.waiting, self.overdue_count) = (0, 0);
        self.lost.clear();
        self.overdue.clear();
        (self.history, self.last) = (History::default(), None);
        (self.rto, self.check) = (rto, Time::NEVER);
    }

    /// Returns the time after which an unanswered packet is retransmitted, ns, 0 for never.
    #[inline]
    pub fn rto(&self) -> u64 {
        self.rto
    }

    /// Returns whether nothing may be sent without a pull, and no packet is in flight that could cause one.
    #[inline]
    pub fn is_stuck(&self) -> bool {
        self.flying == 0 && self.credits == 0 && (self.waiting > 0 || self.owed > 0)
    }

    /// Releases one packet without a pull if the stream is stuck.
    pub fn nudge(&mut self) {
        if self.is_stuck() {
            self.owed = (self.owed - 1).max(0);
            self.credits = u32::from(self.waiting > 0);
        }
    }

    /// Returns the first sequence number not known to have arrived.
    #[inline]
    pub fn acked(&self) -> Psn {
        self.acked
    }

    /// Returns one past the highest sequence number sent.
    #[inline]
    pub fn high(&self) -> Psn {
        self.next
    }

    /// Returns whether any packet sent is not known to have arrived.
    #[inline]
    pub fn outstanding(&self) -> bool {
        self.next != self.acked
    }

    /// Returns the number of unanswered packets.
    #[inline]
    pub fn flying(&self) -> u32 {
        self.flying
    }

    /// Returns the number of slots of the window in use.
    #[inline]
    pub fn in_use(&self) -> i32 {
        self.flying as i32 + self.owed + self.credits as i32 + self.held as i32
    }

    #[inline]
    fn slot(&mut self, psn: Psn) -> &mut Slot {
        let place = psn.get() as usize & (self.slots.len() - 1);
        &mut self.slots[place]
    }

    #[inline]
    fn has_room(&self) -> bool {
        (self.next.distance(self.acked).max(0) as usize) < self.slots.len()
    }

    /// Returns whether a packet may be sent; `more`: a new one waits.
    #[inline]
    pub fn wants_tx(&self, more: bool) -> bool {
        let more = more && self.has_room();
        self.overdue_count > 0 || self.may_spend() && (self.waiting > 0 || more) || more && self.may_push()
    }

    /// Returns whether a credit may be used: never more than a window is unanswered, whatever was pulled.
    #[inline]
    fn may_spend(&self) -> bool {
        self.credits > 0 && self.flying < self.window
    }

    /// Returns whether new packets may be sent without a pull.
    #[inline]
    fn may_push(&self) -> bool {
        self.in_use() < self.window as i32 && self.flying < self.window
    }

    /// Selects the packet to send now, on `path`, if any. `more` says that a new one waits.
    #[inline]
    pub fn tx_free(&mut self, now: Time, more: bool, path: u16) -> Option<Turn> {
        let again = match self.take(true) {
            None if self.may_spend() => {
                let lost = self.take(false);
                self.credits -= u32::from(lost.is_some());
                self.flying += u32::from(lost.is_some());
                lost
            }
            overdue => overdue,
        };
        let (psn, fresh) = match again {
            Some(psn) => (psn, false),
            None if !more || !self.has_room() => return None,
            None if self.may_spend() => {
                self.credits -= 1;
                (self.take_next(), true)
            }
            None if self.may_push() => (self.take_next(), true),
            None => return None,
        };
        let sent = (now.0 / US) as u32;
        let slot = self.slot(psn);
        let lost_on = (!fresh).then_some(slot.path);
        *slot = Slot { sent, path, state: State::Flying };
        if self.check == Time::NEVER && self.rto > 0 {
            self.check = now + self.rto;
        }
        Some(Turn { psn, fresh, lost_on })
    }

    #[inline]
    fn take_next(&mut self) -> Psn {
        let psn = self.next;
        self.next = psn.plus(1);
        self.flying += 1;
        psn
    }

    /// Takes the next packet that is overdue, or else lost. Those that have arrived since are skipped.
    fn take(&mut self, overdue: bool) -> Option<Psn> {
        let state = if overdue { State::Overdue } else { State::Lost };
        while if overdue { self.overdue_count } else { self.waiting } > 0 {
            let queue = if overdue { &mut self.overdue } else { &mut self.lost };
            let psn = queue.pop_front()?;
            if !psn.before(self.acked) && self.slot(psn).state == state {
                *(if overdue { &mut self.overdue_count } else { &mut self.waiting }) -= 1;
                return Some(psn);
            }
        }
        // None of the rest is in that state any more.
        if overdue {
            self.overdue.clear()
        } else {
            self.lost.clear()
        }
        None
    }

    /// Sets the path of a packet that takes another than given to [`Self::tx_free`].
    pub fn set_path(&mut self, psn: Psn, path: u16) {
        self.slot(psn).path = path;
    }

    /// Marks the packet sent last as the end of the stream: when it and all before it have arrived, the receiver drops
    /// the pulls that it owes.
    pub fn mark_last(&mut self) {
        self.last = Some(self.next);
    }

    /// Returns whether `psn` is to be marked as the end of the stream.
    pub fn is_last(&self, psn: Psn) -> bool {
        self.last == Some(self.next) && psn.plus(1) == self.next
    }

    /// Processes feedback. Returns the path of the packet that it answers, and whether that has arrived, if it is the
    /// first answer to it; [`Err`], and changes nothing, if it names packets that were never sent, or more pulls than
    /// packets tracked.
    pub fn receive(&mut self, feedback: &Feedback) -> Result<Option<(u16, bool)>, Unexpected> {
        let Feedback { cumulative, answer, pull, owes_none } = *feedback;
        let far = self.slots.len() as i32;
        let news = cumulative.distance(self.acked);
        let pulls = pull.map_or(0, |pull| pull.distance(self.last_pull));
        if self.next.before(cumulative)
            || news < -2 * far
            || answer.is_some_and(|(psn, _)| !psn.before(self.next) || psn.distance(self.acked) < -2 * far)
            || pulls > far
        {
            return Err(Unexpected);
        }
        let heard = answer.and_then(|(psn, answer)| self.answered(psn, answer));
        while self.acked.before(cumulative) {
            let psn = self.acked;
            // Its answer was lost; its pull was created.
            self.resolve(psn, State::Arrived, true);
            self.acked = psn.plus(1);
        }
        while self.acked != self.next && self.slot(self.acked).state == State::Arrived {
            self.acked = self.acked.plus(1);
        }
        if pulls > 0 {
            self.last_pull = self.last_pull.plus(pulls as u32);
            self.owed = (self.owed - pulls).max(-(self.flying as i32));
            let room = (self.window as i32 - self.in_use()).max(0) as u32;
            self.credits += (pulls as u32).min(room);
            // A pull that arrives with the answer to its packet did not wait for others: the receiver's link has room.
            let at_once = owes_none && matches!(answer, Some((_, Answer::Arrived { again: false })));
            if at_once && self.held > 0 {
                self.held -= 1;
                self.credits += 1;
            }
        }
        if owes_none && pull == Some(self.last_pull) && self.flying == 0 {
            self.owed = self.owed.min(0);
        }
        if self.last.is_some_and(|last| !self.acked.before(last)) {
            // The receiver has dropped the pulls that it owed.
            self.last = None;
            (self.owed, self.held) = (self.owed.min(0), 0);
            if self.acked == self.next {
                self.credits = 0;
            }
        }
        self.keep_going();
        Ok(heard)
    }

    /// Handles the first answer to a packet, or one that changes its known state.
    fn answered(&mut self, psn: Psn, answer: Answer) -> Option<(u16, bool)> {
        if psn.before(self.acked) {
            return None;
        }
        let Slot { state, path, .. } = *self.slot(psn);
        let pulls = answer != Answer::Arrived { again: true };
        let arrived = answer != Answer::Trimmed;
        match (state, arrived) {
            (State::Flying | State::Overdue, true) | (State::Lost, true) => self.resolve(psn, State::Arrived, pulls),
            (State::Flying, false) => self.resolve(psn, State::Lost, pulls),
            // It is retransmitted anyway; or the answer is late, or forged.
            (State::Overdue | State::Lost, false) | (State::Arrived, _) => return None,
        }
        self.history.push(arrived);
        Some((path, arrived))
    }

    /// Handles the answer to a packet, moving its slot of the window. `pulls`: a pull is created for it.
    fn resolve(&mut self, psn: Psn, to: State, pulls: bool) {
        let from = std::mem::replace(&mut self.slot(psn).state, to);
        match from {
            State::Arrived => return,
            State::Flying | State::Overdue => {
                self.overdue_count -= u32::from(from == State::Overdue);
                self.flying -= 1;
                self.owed += i32::from(pulls);
            }
            State::Lost => {
                self.waiting -= 1;
                // It was sent twice, and has one slot.
                self.owed += i32::from(pulls && self.in_use() < self.window as i32);
            }
        }
        self.settle();
        if to == State::Lost {
            self.lost.push_back(psn);
            self.waiting += 1;
        }
    }

    /// Matches early pulls with unanswered packets. The excess was for packets whose answers were lost or are late; it
    /// is dropped, as is what then exceeds the window.
    fn settle(&mut self) {
        self.owed = self.owed.max(-(self.flying as i32));
        let mut excess = (self.in_use() - self.window as i32).max(0) as u32;
        for of in [&mut self.credits, &mut self.held] {
            let cut = excess.min(*of);
            *of -= cut;
            excess -= cut;
        }
        self.owed -= excess as i32;
    }

    /// Handles a returned packet. It goes first, but only on a pull, lest it meet the same obstacle; at once if most
    /// packets arrive. Returns its path, if it was outstanding.
    pub fn returned(&mut self, psn: Psn) -> Option<u16> {
        if psn.before(self.acked) || !psn.before(self.next) {
            return None;
        }
        let Slot { state, path, .. } = *self.slot(psn);
        if state != State::Flying {
            return None;
        }
        self.slot(psn).state = State::Lost;
        self.lost.push_front(psn);
        self.waiting += 1;
        self.flying -= 1;
        self.held += 1;
        self.settle();
        self.history.push(false);
        if self.history.arrives() {
            self.held -= 1;
            self.credits += 1;
        }
        self.keep_going();
        Some(path)
    }

    /// Sends one returned packet without a pull if nothing is in flight that could cause one.
    fn keep_going(&mut self) {
        if self.flying > 0 || self.owed > 0 {
            return;
        }
        self.owed = 0;
        if self.waiting == 0 {
            // While pulls arrive, only pulled packets are sent: the window, sent at once, would meet the congestion
            // that returned headers. When pulls cease, all slots are free.
            if self.credits == 0 {
                self.held = 0;
            }
        } else if self.credits == 0 {
            self.held = self.held.saturating_sub(1);
            self.credits = 1;
        }
    }

    /// Resends everything that has not arrived, as required by an error NAK (RNR): packets requested before count as
    /// requested.
    pub fn go_back(&mut self) {
        let mut psn = self.acked;
        while psn != self.next {
            let slot = self.slot(psn);
            if matches!(slot.state, State::Flying | State::Overdue) {
                slot.state = State::Lost;
                self.lost.push_back(psn);
                self.waiting += 1;
            }
            psn = psn.plus(1);
        }
        self.credits += self.flying;
        (self.flying, self.overdue_count, self.owed) = (0, 0, self.owed.max(0));
        self.overdue.clear();
        self.credits = self.credits.min((self.window as i32 - self.owed - self.held as i32).max(1) as u32);
    }

    /// Returns when [`Self::on_deadline`] is due.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        if self.flying == 0 { Time::NEVER } else { self.check }
    }

    /// Has packets that are unanswered for too long retransmitted without a pull. Returns how many are newly overdue.
    pub fn on_deadline(&mut self, now: Time) -> u32 {
        if now < self.check {
            return 0;
        }
        let (at, rto) = ((now.0 / US) as u32, self.rto.div_ceil(US) as u32);
        let (mut psn, mut found, mut oldest) = (self.acked, 0, None);
        while psn != self.next {
            let slot = self.slot(psn);
            let age = at.wrapping_sub(slot.sent);
            if slot.state == State::Flying && age >= rto {
                slot.state = State::Overdue;
                self.overdue.push_back(psn);
                self.overdue_count += 1;
                found += 1;
                // If its pull has arrived all the same, it will not come again.
                self.owed += i32::from(self.owed < 0);
            } else if slot.state == State::Flying {
                oldest = oldest.max(Some(age));
            }
            psn = psn.plus(1);
        }
        self.settle();
        self.check = match oldest {
            Some(age) => now + u64::from(rto - age) * US,
            None if found > 0 => now + self.rto,
            None => Time::NEVER,
        };
        found
    }
}

/// The feedback names packets that were never sent, or more pulls than there can be.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Unexpected;

footprint!(Pulled, |at| {
    next => sequence(),
    acked => sequence(),
    slots => times(slots.len() as u64, Slot::default()).heap(size_of_val(&**slots)),
    window => left(why::SHARED),
    flying => bits(width::COUNT),
    owed => bits(width::COUNT + 1),
    credits => bits(width::COUNT),
    held => bits(width::COUNT),
    last_pull => sequence(),
    // The order of retransmission of slots.
    lost => bits(slots.len() as u64 * width::INDEX).heap(slots.len() * size_of::<Psn>()),
    waiting => bits(width::COUNT),
    overdue => bits(slots.len() as u64 * width::INDEX).heap(slots.len() * size_of::<Psn>()),
    overdue_count => bits(width::COUNT),
    history => times(1, *history),
    last => maybe(width::PSN),
    rto => left(why::SHARED),
    check => instant(),
});

footprint!(Slot, |at| {
    sent => instant(),
    path => bits(14),
    state => bits(2),
});

footprint!(History, |at| {
    bits => crate::footprint::bits(History::LEN.into()),
    count => crate::footprint::bits(4),
});

#[cfg(test)]
mod tests;
