//! RC3's second loop (dissertation §2.1.1), which sends from the last packet backwards, each once, at low priorities;
//! and the acknowledgements of such packets.

use super::hooks::{Delivery, Departure, Hooks};
use crate::config::Rc3Config;
use crate::footprint::{bits, footprint, left, sequence, why, width};
use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, TxSlot};
use crate::rc::acks::{AckQueue, MAX_NACKS_WAITING};
use crate::recovery::{Sack, Sender};
use crate::time::Time;
use crate::wire::{Headers, Importance};

/// Position of a requester's loop.
#[derive(Clone, Debug)]
pub(in crate::rc) struct LowLoop {
    config: Rc3Config,
    /// One past the last packet that was posted when the loop began: levels are counted from here.
    tail: Psn,
    /// One past the highest packet of the current pass, and the lowest: all before that has been sent or never will be.
    top: Psn,
    floor: Psn,
    /// The lowest packet sent since the pass began at `top`.
    low: Psn,
    /// Whether it has met the primary loop since the pass began.
    crossed: bool,
}

impl LowLoop {
    /// Creates the loop if the transport uses it.
    pub(in crate::rc) fn new(c: &QpContext) -> Option<LowLoop> {
        let zero = Psn::new(0);
        let config = *c.discipline().rc3()?;
        Some(LowLoop { config, tail: zero, top: zero, floor: zero, low: zero, crossed: true })
    }

    fn begin_at(&mut self, first: Psn) {
        (self.tail, self.top, self.floor, self.low) = (first, first, first, first);
        self.crossed = true;
    }

    pub(in crate::rc) fn reach(&self) -> u32 {
        self.config.reach
    }

    /// Returns whether it has a packet left, given that the primary loop sends `next` next.
    #[inline]
    pub(in crate::rc) fn has_more(&self, next: Psn) -> bool {
        self.floor.later(next).before(self.low)
    }

    /// Returns whether a new pass may begin at `top`.
    #[inline]
    pub(in crate::rc) fn may_begin(&self, top: Psn, next: Psn) -> bool {
        self.top.later(next).before(top)
    }

    /// Begins a pass over packets posted since, up to `tail`, or as far as is in reach: up to `top`. Packets sent
    /// before are not sent again.
    pub(in crate::rc) fn begin(&mut self, top: Psn, tail: Psn) {
        (self.floor, self.top, self.low, self.tail) = (self.top, top, top, tail);
        self.crossed = false;
    }

    /// Returns the number of priorities below the stream's for the packet selected by [`Self::take`].
    #[inline]
    pub(in crate::rc) fn level(&self) -> u8 {
        self.config.level(self.tail.distance(self.low) as u32 + 1)
    }

    /// Returns the next packet, going backwards.
    #[inline]
    pub(in crate::rc) fn take(&mut self) -> Psn {
        self.low = self.low.minus(1);
        self.low
    }

    /// Handles the primary loop's first transmission of a packet, with `next` to follow. Returns whether low priority
    /// had sent it, and whether the two loops have just met.
    fn primary_sent(&mut self, psn: Psn, next: Psn) -> (bool, bool) {
        let again = !psn.before(self.low) && psn.before(self.top);
        let met = !self.crossed && !self.has_more(next);
        self.crossed |= met;
        if self.top.before(next) {
            // The pass is over. Updating prevents numbers so old that they appear new.
            (self.floor, self.low, self.top) = (next, next, next);
        }
        (again, met)
    }
}

impl Hooks for LowLoop {
    fn start(&mut self, first: Psn, _c: &QpContext) {
        self.begin_at(first);
    }

    fn mark(
        &mut self,
        sent: &Departure,
        stream: &Sender,
        _c: &QpContext,
        host: &mut impl Host,
        _out: &mut TxSlot,
    ) -> bool {
        if !sent.is_fresh() {
            return true;
        }
        let (again, met) = self.primary_sent(sent.psn, stream.next());
        host.counters().rc3_sent_twice += u64::from(again);
        host.counters().rc3_crossings += u64::from(met);
        !again
    }
}

/// A responder's acknowledgements of packets that arrived at low priority, by that priority, which they have as well
/// (§2.3.1).
#[derive(Clone, Debug)]
pub(in crate::rc) struct LowAcks {
    queues: [AckQueue; 8],
    /// Priorities with pending acknowledgements, one bit each.
    waiting: u8,
}

impl LowAcks {
    /// Creates the queues if the transport uses them.
    pub(in crate::rc) fn new(c: &QpContext) -> Option<LowAcks> {
        c.discipline().rc3().map(|_| LowAcks { queues: Default::default(), waiting: 0 })
    }

    fn clear(&mut self) {
        self.queues.iter_mut().for_each(AckQueue::clear);
        self.waiting = 0;
    }

    /// Handles a packet that arrived with this priority, 0 to 7.
    fn push(&mut self, priority: u8, psn: Psn) {
        self.queues[usize::from(priority & 7)].push_run(psn);
        self.waiting |= 1 << (priority & 7);
    }

    /// Returns the highest priority with a pending acknowledgement.
    #[inline]
    pub(in crate::rc) fn priority(&self) -> Option<u8> {
        self.waiting.checked_ilog2().map(|priority| priority as u8)
    }

    /// Returns the packet to acknowledge next at a priority.
    pub(in crate::rc) fn pop(&mut self, priority: u8) -> Option<Psn> {
        let queue = &mut self.queues[usize::from(priority & 7)];
        let sack = queue.pop(false).and_then(|ack| ack.sack());
        if queue.is_empty() {
            self.waiting &= !(1 << (priority & 7));
        }
        sack.map(|sack| sack.last)
    }
}

impl Hooks for LowAcks {
    fn start_receiving(&mut self, _c: &QpContext) {
        self.clear();
    }

    fn stop(&mut self, _end: Psn) {
        self.clear();
    }

    fn expects(&self, headers: &Headers) -> bool {
        headers.ndp.is_none()
    }

    fn answer(
        &mut self,
        _now: Time,
        packet: &RxPacket<'_>,
        _delivery: Delivery,
        _expected: Psn,
        _host: &mut impl Host,
    ) -> bool {
        let bth = &packet.headers.bth;
        let low = bth.low && bth.importance == Importance::None;
        if low {
            self.push(packet.path.priority(), bth.psn);
        }
        low
    }
}

footprint!(LowLoop, |at| {
    config => left(why::SHARED),
    tail => sequence(),
    top => sequence(),
    floor => sequence(),
    low => sequence(),
    crossed => left(why::STATISTICS),
});

footprint!(LowAcks, |at| {
    // For each priority, the packet to acknowledge: the rest follows from the block around it.
    queues => bits(at.low_levels * width::PSN)
        .heap(at.low_levels as usize * MAX_NACKS_WAITING * size_of::<Sack>()),
    waiting => bits(at.low_levels),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_priority_takes_ten_times_as_many_packets_as_the_one_before() {
        let config = Rc3Config::DEFAULT;
        let ends = [(1, 1), (40, 1), (41, 2), (440, 2), (441, 3), (4440, 3), (4441, 3), (u32::MAX, 3)];
        assert!(ends.iter().all(|&(k, level)| config.level(k) == level));
        let config = Rc3Config { slots: 10, levels: 4, ..config };
        let ends = [(10, 1), (11, 2), (110, 2), (111, 3), (1110, 3), (1111, 4), (100_000, 4)];
        assert!(ends.iter().all(|&(k, level)| config.level(k) == level));
        assert_eq!(Rc3Config { levels: 1, ..config }.level(5000), 1);
    }

    #[test]
    fn what_was_posted_later_begins_anew_and_nothing_goes_twice() {
        let config = Rc3Config { slots: 2, levels: 3, reach: 64 };
        let psn = Psn::new;
        let mut low = LowLoop { config, tail: psn(0), top: psn(0), floor: psn(0), low: psn(0), crossed: true };
        low.begin_at(psn(0xff_fffe));
        let at = |n| psn(0xff_fffe).plus(n);
        let drain = |low: &mut LowLoop, next: Psn| {
            let mut sent = Vec::new();
            while low.has_more(next) {
                sent.push((low.level(), low.take().distance(at(0))));
            }
            sent
        };
        assert!(!low.may_begin(at(0), at(0)) && low.may_begin(at(5), at(0)));
        low.begin(at(5), at(5));
        assert_eq!(drain(&mut low, at(1)), [(1, 4), (1, 3), (2, 2), (2, 1)]);
        low.begin(at(8), at(8));
        assert_eq!(drain(&mut low, at(1)), [(1, 7), (1, 6), (2, 5)]);
        // Only part of the posted packets is in reach: levels are as if all were.
        low.begin(at(10), at(12));
        assert_eq!(drain(&mut low, at(1)), [(2, 9), (2, 8)]);
        assert_eq!(low.primary_sent(at(1), at(2)), (false, true));
        assert_eq!(low.primary_sent(at(8), at(9)), (true, false));
    }
}
