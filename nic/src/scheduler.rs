//! The transmit scheduler, which selects the next queue pair to send.

use std::collections::VecDeque;

/// Queue pairs, by their index in the NIC, that may have a packet to send, in turn.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    pub(crate) ready: VecDeque<u32>,
    /// Those with responses of pulled streams, which go first.
    pub(crate) urgent: VecDeque<u32>,
    /// The queue pair at the front whose turn was interrupted, and the packets that it may still send.
    pub(crate) interrupted: Option<(u32, u32)>,
    /// Priorities that the link partner has paused, one bit each (IEEE 802.1Qbb).
    pub(crate) paused: u8,
    /// Queue pairs whose turn came while their priority was paused.
    pub(crate) parked: Vec<u32>,
    /// Those with low-priority packets (RC3), by that priority.
    pub(crate) low: [VecDeque<u32>; 8],
    /// Rings of `low` that are not empty, one bit each.
    pub(crate) low_waiting: u8,
}

impl Scheduler {
    /// Returns whether no queue pair is ready.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.urgent.is_empty() && !self.has_low()
    }

    /// Returns whether a queue pair may have a packet at a low priority that is not paused.
    #[inline]
    pub(crate) fn has_low(&self) -> bool {
        self.low_waiting & !self.paused != 0
    }

    /// Appends a queue pair to the ring of a low priority, which it must not be in.
    pub(crate) fn push_low(&mut self, priority: u8, qp: u32) {
        self.low[usize::from(priority & 7)].push_back(qp);
        self.low_waiting |= 1 << (priority & 7);
    }

    /// Takes the queue pair whose turn it is out of the ring of the highest unpaused low priority.
    pub(crate) fn pop_low(&mut self) -> Option<(u8, u32)> {
        let priority = (self.low_waiting & !self.paused).checked_ilog2()? as u8;
        let ring = &mut self.low[usize::from(priority)];
        let qp = ring.pop_front()?;
        if ring.is_empty() {
            self.low_waiting &= !(1 << priority);
        }
        Some((priority, qp))
    }

    /// Makes room for `qps` queue pairs in each ring of low priority.
    pub(crate) fn reserve_low(&mut self, qps: usize) {
        for ring in &mut self.low {
            ring.reserve(qps.saturating_sub(ring.len()));
        }
    }

    /// Returns the queue pair whose turn is next.
    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        self.ready.front().copied()
    }

    /// Appends a queue pair, which must not be in the ring.
    #[inline]
    pub(crate) fn push(&mut self, qp: u32) {
        self.ready.push_back(qp);
    }

    /// Takes the queue pair whose turn it is out of the ring.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// Returns the number of packets that a queue pair may send in the turn that it begins or continues: `quantum`, or
    /// the remainder of an interrupted turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self, qp: u32, quantum: u32) -> u32 {
        match self.interrupted.take() {
            Some((interrupted, left)) if interrupted == qp => left,
            _ => quantum,
        }
    }

    /// Lets a queue pair that is ready again continue its turn first, with `left` packets.
    #[inline]
    pub(crate) fn interrupt_turn(&mut self, qp: u32, left: u32) {
        if self.ready.back() == Some(&qp) {
            self.ready.rotate_right(1);
            self.interrupted = Some((qp, left));
        }
    }

    /// Returns whether one of `priorities`, one bit each, is paused.
    #[inline]
    pub(crate) fn pauses(&self, priorities: impl FnOnce() -> u8) -> bool {
        self.paused != 0 && self.paused & priorities() != 0
    }

    /// Parks a queue pair whose priority is paused until [`Self::set_paused`] or [`Self::unpark`].
    #[inline]
    pub(crate) fn park(&mut self, qp: u32) {
        self.parked.push(qp);
    }

    /// Gives a parked queue pair another turn: its priority may have changed.
    pub(crate) fn unpark(&mut self, qp: u32) {
        if let Some(place) = self.parked.iter().position(|&parked| parked == qp) {
            self.parked.remove(place);
            self.ready.push_back(qp);
        }
    }

    /// Sets the paused priorities, one bit each.
    #[inline]
    pub(crate) fn set_paused(&mut self, paused: u8) {
        if self.paused != paused {
            self.paused = paused;
            self.ready.extend(self.parked.drain(..));
        }
    }

    /// Removes a queue pair.
    pub(crate) fn remove(&mut self, qp: u32) {
        self.ready.retain(|&ready| ready != qp);
        self.parked.retain(|&parked| parked != qp);
        self.urgent.retain(|&urgent| urgent != qp);
        for (priority, ring) in self.low.iter_mut().enumerate() {
            ring.retain(|&low| low != qp);
            if ring.is_empty() {
                self.low_waiting &= !(1 << priority);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_turn_goes_on_before_the_next() {
        let mut scheduler = Scheduler::default();
        scheduler.push(1);
        scheduler.push(2);
        assert_eq!(scheduler.pop(), Some(1));
        assert_eq!(scheduler.begin_turn(1, 8), 8);
        scheduler.push(1);
        scheduler.interrupt_turn(1, 3);
        assert_eq!(scheduler.pop(), Some(1));
        assert_eq!(scheduler.begin_turn(1, 8), 3);
        scheduler.push(1);
        assert_eq!(scheduler.pop(), Some(2));
        assert_eq!(scheduler.begin_turn(2, 8), 8);
    }

    #[test]
    fn low_priorities_go_by_rank_and_each_is_paused_alone() {
        let mut scheduler = Scheduler::default();
        for (priority, qp) in [(1, 1), (6, 2), (5, 3), (6, 4)] {
            scheduler.push_low(priority, qp);
        }
        assert!(!scheduler.is_empty());
        assert_eq!(scheduler.pop_low(), Some((6, 2)));
        scheduler.set_paused(1 << 6 | 1 << 1);
        assert_eq!((scheduler.pop_low(), scheduler.pop_low(), scheduler.has_low()), (Some((5, 3)), None, false));
        scheduler.set_paused(0);
        scheduler.remove(4);
        assert_eq!((scheduler.pop_low(), scheduler.pop_low()), (Some((1, 1)), None));
        assert!(scheduler.is_empty());
    }

    #[test]
    fn a_paused_queue_pair_waits_for_any_change_of_what_is_paused() {
        let mut scheduler = Scheduler::default();
        scheduler.push(1);
        scheduler.set_paused(1 << 3);
        let qp = scheduler.pop().expect("a queue pair");
        assert!(scheduler.pauses(|| 1 << 3) && !scheduler.pauses(|| 1 << 4));
        scheduler.park(qp);
        assert!(scheduler.is_empty());
        scheduler.set_paused(0);
        assert_eq!(scheduler.front(), Some(1));
        scheduler.park(2);
        scheduler.unpark(2);
        scheduler.remove(1);
        assert_eq!((scheduler.pop(), scheduler.pop()), (Some(2), None));
    }
}
