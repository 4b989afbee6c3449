//! The transmit scheduler: which queue pair sends next.

use std::collections::VecDeque;

/// Queue pairs, by their places in the NIC, that may have a packet to send, in turn.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    pub(crate) ready: VecDeque<u32>,
    /// Those that have answers of pulled streams to send, which go before all else.
    pub(crate) urgent: VecDeque<u32>,
    /// The queue pair at the front whose turn was interrupted, and the packets that it may still send.
    pub(crate) interrupted: Option<(u32, u32)>,
    /// Priorities that the link partner has paused, one bit each (IEEE 802.1Qbb).
    pub(crate) paused: u8,
    /// Queue pairs whose turn came while their priority was paused.
    pub(crate) parked: Vec<u32>,
}

impl Scheduler {
    /// Returns whether no queue pair is ready.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.urgent.is_empty()
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

    /// Returns how many packets a queue pair may send in the turn that it begins or continues: `quantum`, or what an
    /// interruption left of that.
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

    /// Keeps a queue pair whose priority is paused aside until [`Self::set_paused`] or [`Self::unpark`].
    #[inline]
    pub(crate) fn park(&mut self, qp: u32) {
        self.parked.push(qp);
    }

    /// Gives a queue pair that was kept aside another turn: it may send with another priority now.
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

    /// Forgets a queue pair.
    pub(crate) fn remove(&mut self, qp: u32) {
        self.ready.retain(|&ready| ready != qp);
        self.parked.retain(|&parked| parked != qp);
        self.urgent.retain(|&urgent| urgent != qp);
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
