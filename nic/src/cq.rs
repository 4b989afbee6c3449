//! Completion queues: a ring, an arming state, and the handling of overflow.

use irnic_transports::qp::{Frees, Wc, WcStatus};
use irnic_transports::room::{OutOfMemory, boxed};

/// When an armed completion queue raises an event (IBA 11.4.2.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arm {
    /// At the next completion, solicited or not.
    Next,
    /// At the next solicited completion or completion in error.
    Solicited,
}

/// A completion, and the resources that polling it frees.
type Entry = (Wc, Frees);
/// Contents of unused entries.
const NOTHING: Entry = (Wc::EMPTY, Frees::Receive);

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    ring: Box<[Entry]>,
    head: u32,
    tail: u32,
    limit: u32,
    armed: Option<Arm>,
    overflowed: bool,
    /// Number of queues whose completions go here.
    pub(crate) users: u32,
}

/// Consequence of a completion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Quiet,
    /// The queue was armed for this completion.
    Event,
    /// The queue was full: the completion is lost and the queue in error, for the first time.
    Overflow,
}

impl Cq {
    pub(crate) fn new(limit: u32) -> Result<Cq, OutOfMemory> {
        let ring = Self::ring(limit)?;
        Ok(Cq { ring, head: 0, tail: 0, limit, armed: None, overflowed: false, users: 0 })
    }

    fn ring(limit: u32) -> Result<Box<[Entry]>, OutOfMemory> {
        boxed(NOTHING, limit.max(1).next_power_of_two() as usize)
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Adds a completion of this time.
    // By reference, so that it is copied as a whole rather than field by field.
    #[inline]
    pub(crate) fn push(&mut self, wc: &Wc, timestamp: u64, frees: Frees) -> Pushed {
        if self.len() >= self.limit {
            return if std::mem::replace(&mut self.overflowed, true) { Pushed::Quiet } else { Pushed::Overflow };
        }
        let slot = self.tail as usize & (self.ring.len() - 1);
        let entry = &mut self.ring[slot];
        (entry.0, entry.1) = (*wc, frees);
        entry.0.timestamp = timestamp;
        self.tail = self.tail.wrapping_add(1);
        let event = match self.armed {
            None => false,
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => wc.solicited || wc.status != WcStatus::Success,
        };
        if event {
            self.armed = None;
            return Pushed::Event;
        }
        Pushed::Quiet
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&Entry> {
        if self.head == self.tail {
            return None;
        }
        let slot = self.head as usize & (self.ring.len() - 1);
        self.head = self.head.wrapping_add(1);
        Some(&self.ring[slot])
    }

    /// Arms the queue for the next completion, not for those already in it (IBA 11.4.2.2). A queue armed for every
    /// completion stays armed for every completion.
    pub(crate) fn arm(&mut self, arm: Arm) {
        self.armed = Some(if self.armed == Some(Arm::Next) { Arm::Next } else { arm });
    }

    /// Sets the capacity to `limit` completions, at least the number in the queue.
    pub(crate) fn resize(&mut self, limit: u32) -> Result<(), OutOfMemory> {
        let mut ring = Self::ring(limit)?;
        let waiting = self.len();
        for slot in &mut ring[..waiting as usize] {
            *slot = *self.pop().unwrap_or(&NOTHING);
        }
        (self.ring, self.head, self.tail, self.limit) = (ring, 0, waiting, limit);
        Ok(())
    }

    /// Returns whether there are completions of a queue pair.
    pub(crate) fn has_any_of(&self, qpn: u32) -> bool {
        let slot = |n: u32| self.head.wrapping_add(n) as usize & (self.ring.len() - 1);
        (0..self.len()).any(|n| self.ring[slot(n)].0.qp_num == qpn)
    }

    /// Removes the completions of a queue pair; `freed` is called with the resources held by each.
    pub(crate) fn purge(&mut self, qpn: u32, mut freed: impl FnMut(Frees)) {
        let mut kept = self.head;
        for i in 0..self.len() {
            let slot = |n: u32| n as usize & (self.ring.len() - 1);
            let from = slot(self.head.wrapping_add(i));
            let (wc, frees) = self.ring[from];
            if wc.qp_num == qpn {
                freed(frees);
            } else {
                let to = slot(kept);
                self.ring.swap(from, to);
                kept = kept.wrapping_add(1);
            }
        }
        self.tail = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wc(wr_id: u64, qp_num: u32) -> Wc {
        Wc { wr_id, qp_num, ..Wc::EMPTY }
    }

    fn push(cq: &mut Cq, wc: Wc) -> Pushed {
        cq.push(&wc, 0, Frees::Receive)
    }

    fn drain(cq: &mut Cq) -> Vec<u64> {
        std::iter::from_fn(|| cq.pop().map(|(wc, _)| wc.wr_id)).collect()
    }

    #[test]
    fn completions_come_out_in_order_through_many_wraps() {
        let mut cq = Cq::new(5).unwrap();
        let (mut pushed, mut popped) = (0, 0);
        for round in 0..300u32 {
            for _ in 0..(round * 7 % 6).min(5 - cq.len()) {
                assert_eq!(push(&mut cq, wc(pushed, 1)), Pushed::Quiet);
                pushed += 1;
            }
            for _ in 0..round % 4 {
                let expected = (popped < pushed).then_some(popped);
                assert_eq!(cq.pop().map(|(wc, _)| wc.wr_id), expected);
                popped += u64::from(expected.is_some());
            }
        }
        assert!(popped > 200 && !cq.overflowed());
    }

    #[test]
    fn an_overflow_is_told_once_loses_the_new_and_keeps_the_old() {
        // Three, although the ring has room for four.
        let mut cq = Cq::new(3).unwrap();
        for wr_id in 0..3 {
            assert_eq!(push(&mut cq, wc(wr_id, 1)), Pushed::Quiet);
        }
        assert!(!cq.overflowed());
        assert_eq!(push(&mut cq, wc(3, 1)), Pushed::Overflow);
        assert_eq!(push(&mut cq, wc(4, 1)), Pushed::Quiet);
        assert!(cq.overflowed());
        assert_eq!(drain(&mut cq), [0, 1, 2]);
        assert!(cq.overflowed(), "room does not bring the lost one back");
        assert_eq!(push(&mut Cq::new(0).unwrap(), wc(0, 1)), Pushed::Overflow);
    }

    #[test]
    fn an_armed_queue_tells_of_the_next_completion_once() {
        let mut cq = Cq::new(8).unwrap();
        push(&mut cq, wc(0, 1));
        cq.arm(Arm::Next);
        assert_eq!(push(&mut cq, wc(1, 1)), Pushed::Event);
        assert_eq!(push(&mut cq, wc(2, 1)), Pushed::Quiet);
    }

    #[test]
    fn armed_for_solicited_events_it_sleeps_through_others_but_not_through_errors() {
        let solicited = Wc { solicited: true, ..wc(0, 1) };
        let failed = Wc { status: WcStatus::WrFlushErr, ..wc(0, 1) };
        for wakes in [solicited, failed] {
            let mut cq = Cq::new(8).unwrap();
            cq.arm(Arm::Solicited);
            assert_eq!(push(&mut cq, wc(0, 1)), Pushed::Quiet);
            assert_eq!(push(&mut cq, wakes), Pushed::Event);
            assert_eq!(push(&mut cq, wakes), Pushed::Quiet);
        }
    }

    #[test]
    fn arming_again_never_makes_a_queue_harder_to_wake() {
        for (arms, expected) in [
            ([Arm::Next, Arm::Solicited], Pushed::Event),
            ([Arm::Solicited, Arm::Next], Pushed::Event),
            ([Arm::Solicited, Arm::Solicited], Pushed::Quiet),
        ] {
            let mut cq = Cq::new(8).unwrap();
            arms.into_iter().for_each(|arm| cq.arm(arm));
            assert_eq!(push(&mut cq, wc(0, 1)), expected, "{arms:?}");
        }
    }

    #[test]
    fn purging_a_queue_pair_keeps_the_others_completions_in_order_across_the_wrap() {
        for limit in [5, 8] {
            for start in 0..16 {
                for pattern in 0..1u32 << limit {
                    let mut cq = Cq::new(limit).unwrap();
                    for wr_id in 0..start {
                        push(&mut cq, wc(wr_id, 9));
                        cq.pop();
                    }
                    let owner = |n: u32| 1 + (pattern >> n & 1);
                    for n in 0..limit {
                        assert_eq!(push(&mut cq, wc(n.into(), owner(n))), Pushed::Quiet);
                    }
                    cq.purge(1, |_| ());
                    let kept: Vec<u64> = (0..limit).filter(|&n| owner(n) == 2).map(u64::from).collect();
                    assert_eq!(cq.len() as usize, kept.len());
                    // Freed entries can be used again.
                    for n in cq.len()..limit {
                        assert_eq!(push(&mut cq, wc(100 + u64::from(n), 1)), Pushed::Quiet);
                    }
                    assert_eq!(drain(&mut cq)[..kept.len()], kept, "{pattern:#b} from {start}");
                }
            }
        }
    }

    #[test]
    fn counts_and_order_survive_the_wrap_of_the_ring_numbers() {
        let mut cq = Cq::new(4).unwrap();
        (cq.head, cq.tail) = (u32::MAX - 1, u32::MAX - 1);
        for n in 0..4 {
            assert_eq!(push(&mut cq, wc(n, 1 + n as u32 % 2)), Pushed::Quiet);
        }
        assert_eq!((cq.len(), push(&mut cq, wc(4, 1))), (4, Pushed::Overflow));
        cq.purge(1, |_| ());
        assert_eq!(drain(&mut cq), [1, 3]);
    }
}
