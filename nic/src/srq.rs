//! Shared receive queues.

use irnic_transports::qp::{CqId, PdId, PostError, RecvWqe, RecvWr, Sge, XrcdId};
use irnic_transports::room::{OutOfMemory, boxed};

/// A shared receive queue: receive WQEs that its queue pairs consume in order.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) pd: PdId,
    slots: Box<[RecvWqe]>,
    /// Scatter lists of the slots, `max_sge` elements each.
    sges: Box<[Sge]>,
    limit: u32,
    max_sge: usize,
    head: u32,
    tail: u32,
    /// WQEs taken whose completions were not polled yet.
    unpolled: u32,
    /// Limit below which an event is raised (IBA 10.2.9.2), 0 for none.
    low_mark: u32,
    /// Number of queue pairs that use the queue.
    pub(crate) users: u32,
    /// XRC part, if it is in an XRC domain.
    pub(crate) xrc: Option<XrcPart>,
}

/// State specific to a shared receive queue of an XRC domain.
#[derive(Copy, Clone, Debug)]
pub(crate) struct XrcPart {
    pub(crate) domain: XrcdId,
    /// Where its completions go, for all queue pairs.
    pub(crate) cq: CqId,
    /// Distinguishes it from earlier and later users of its handle.
    pub(crate) serial: u32,
}

impl Srq {
    pub(crate) fn new(pd: PdId, limit: u32, max_sge: usize) -> Result<Srq, OutOfMemory> {
        let slots = boxed(RecvWqe::default(), limit.max(1).next_power_of_two() as usize)?;
        let sges = boxed(Sge::default(), slots.len() * max_sge)?;
        Ok(Srq { pd, slots, sges, limit, max_sge, head: 0, tail: 0, unpolled: 0, low_mark: 0, users: 0, xrc: None })
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    pub(crate) fn set_low_mark(&mut self, mark: u32) {
        self.low_mark = mark;
    }

    #[inline]
    pub(crate) fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.len() + self.unpolled >= self.limit {
            return Err(PostError::Full(self.limit));
        }
        if wr.sges.len() > self.max_sge {
            return Err(PostError::TooManySges { given: wr.sges.len(), max: self.max_sge });
        }
        let slot = self.tail as usize & (self.slots.len() - 1);
        self.slots[slot] = RecvWqe { wr_id: wr.wr_id, sge_count: wr.sges.len() as u32 };
        self.sges[slot * self.max_sge..][..wr.sges.len()].copy_from_slice(wr.sges);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Takes the oldest WQE, copying its scatter list to the beginning of `into`. Returns `None` if there is none;
    /// otherwise the WQE, and whether fewer than the limit are left now, which disarms it.
    #[inline]
    pub(crate) fn take(&mut self, into: &mut [Sge]) -> Option<(RecvWqe, bool)> {
        if self.head == self.tail {
            return None;
        }
        let slot = self.head as usize & (self.slots.len() - 1);
        let wqe = self.slots[slot];
        // Queue pairs are created with room for at least this many elements.
        let n = wqe.sge_count as usize;
        into[..n].copy_from_slice(&self.sges[slot * self.max_sge..][..n]);
        self.head = self.head.wrapping_add(1);
        self.unpolled += 1;
        let low = self.low_mark != 0 && self.len() < self.low_mark;
        if low {
            self.low_mark = 0;
        }
        Some((wqe, low))
    }

    /// Frees the slot of a completion that was polled, or will not come.
    #[inline]
    pub(crate) fn free(&mut self) {
        self.unpolled = self.unpolled.saturating_sub(1);
    }

    /// Sets the capacity to `limit` WQEs, at least the number in the queue.
    pub(crate) fn resize(&mut self, limit: u32) -> Result<(), OutOfMemory> {
        let mut queue = Srq::new(self.pd, limit, self.max_sge)?;
        for slot in 0..self.len() {
            let from = self.head.wrapping_add(slot) as usize & (self.slots.len() - 1);
            let (n, to) = (self.max_sge, slot as usize);
            queue.slots[to] = self.slots[from];
            queue.sges[to * n..][..n].copy_from_slice(&self.sges[from * n..][..n]);
        }
        (queue.tail, queue.low_mark, queue.users) = (self.len(), self.low_mark, self.users);
        (queue.xrc, queue.unpolled) = (self.xrc, self.unpolled);
        *self = queue;
        Ok(())
    }

    pub(crate) fn max_wr(&self) -> u32 {
        self.limit
    }

    pub(crate) fn low_mark(&self) -> u32 {
        self.low_mark
    }

    pub(crate) fn max_sge(&self) -> usize {
        self.max_sge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sges(n: usize) -> Vec<Sge> {
        (0..n).map(|i| Sge { addr: i as u64, len: 8, lkey: 3 }).collect()
    }

    fn post(srq: &mut Srq, wr_id: u64, elements: usize) -> Result<(), PostError> {
        srq.post(&RecvWr { wr_id, sges: &sges(elements) })
    }

    /// Room for a scatter list.
    fn list() -> [Sge; 4] {
        [Sge::default(); 4]
    }

    #[test]
    fn work_requests_come_out_in_order_through_many_wraps() {
        let (mut srq, mut into) = (Srq::new(PdId(0), 5, 4).unwrap(), list());
        let (mut posted, mut taken) = (0, 0);
        for round in 0..200 {
            for _ in 0..round % 6 {
                if post(&mut srq, posted, posted as usize % 5).is_ok() {
                    posted += 1;
                }
            }
            for _ in 0..round % 4 {
                if let Some((wqe, _)) = srq.take(&mut into) {
                    assert_eq!(wqe, RecvWqe { wr_id: taken, sge_count: taken as u32 % 5 });
                    assert_eq!(into[..wqe.sge_count as usize], sges(taken as usize % 5));
                    taken += 1;
                    srq.free();
                }
            }
            assert_eq!(u64::from(srq.len()), posted - taken);
        }
        assert!(taken > 100);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut srq = Srq::new(PdId(0), 3, 2).unwrap();
        assert_eq!(post(&mut srq, 0, 3), Err(PostError::TooManySges { given: 3, max: 2 }));
        assert_eq!(srq.len(), 0);
        // Three, although the ring has room for four.
        for wr_id in 0..3 {
            assert_eq!(post(&mut srq, wr_id, 2), Ok(()));
        }
        assert_eq!(post(&mut srq, 3, 0), Err(PostError::Full(3)));
        let taken = srq.take(&mut list()).map(|(wqe, _)| wqe.wr_id);
        assert_eq!((taken, srq.len()), (Some(0), 2));
        // The slot is free once the completion is polled.
        assert_eq!(post(&mut srq, 3, 0), Err(PostError::Full(3)));
        srq.free();
        assert_eq!(post(&mut srq, 3, 0), Ok(()));
        assert_eq!(Srq::new(PdId(0), 0, 0).unwrap().post(&RecvWr { wr_id: 0, sges: &[] }), Err(PostError::Full(0)));
    }

    #[test]
    fn an_empty_queue_gives_nothing_and_leaves_the_slot_alone() {
        let (mut srq, mut into) = (Srq::new(PdId(0), 4, 4).unwrap(), list());
        into[0].addr = 77;
        srq.set_low_mark(2);
        assert_eq!((srq.take(&mut into), into[0].addr), (None, 77));
    }

    #[test]
    fn the_low_mark_is_told_once_when_fewer_are_left() {
        let (mut srq, mut into) = (Srq::new(PdId(0), 8, 1).unwrap(), list());
        for wr_id in 0..6 {
            post(&mut srq, wr_id, 1).unwrap();
        }
        srq.set_low_mark(4);
        let mut take = |srq: &mut Srq| srq.take(&mut into).map(|(_, low)| low);
        let reports: Vec<_> = (0..6).map(|_| take(&mut srq)).collect();
        // 5, then 4 are left; 3 are fewer than 4.
        assert_eq!(reports, [Some(false), Some(false), Some(true), Some(false), Some(false), Some(false)]);
        post(&mut srq, 6, 1).unwrap();
        srq.set_low_mark(1);
        assert_eq!(take(&mut srq), Some(true));
    }
}
