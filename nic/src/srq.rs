//! Shared receive queues.

use irnic_transports::rc::{PdId, PostError, RecvWqe, RecvWr};

/// A shared receive queue: receive WQEs that any of its queue pairs takes in order.
#[derive(Debug)]
pub(crate) struct Srq {
    pub pd: PdId,
    slots: Box<[RecvWqe]>,
    limit: u32,
    max_sge: usize,
    head: u32,
    tail: u32,
    /// An event is due when fewer WQEs than this are left (IBA 10.2.9.2); 0: none.
    low_mark: u32,
    /// Queue pairs that take from it.
    pub users: u32,
}

impl Srq {
    pub fn new(pd: PdId, limit: u32, max_sge: usize) -> Srq {
        let slots = limit.max(1).next_power_of_two() as usize;
        let wqe = RecvWqe { sges: vec![Default::default(); max_sge].into_boxed_slice(), ..Default::default() };
        Srq { pd, slots: vec![wqe; slots].into_boxed_slice(), limit, max_sge, head: 0, tail: 0, low_mark: 0, users: 0 }
    }

    #[inline]
    pub fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    pub fn set_low_mark(&mut self, mark: u32) {
        self.low_mark = mark;
    }

    #[inline]
    pub fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.len() >= self.limit {
            return Err(PostError::Full(self.limit));
        }
        if wr.sges.len() > self.max_sge {
            return Err(PostError::TooManySges { given: wr.sges.len(), max: self.max_sge });
        }
        let slot = self.tail as usize & (self.slots.len() - 1);
        let wqe = &mut self.slots[slot];
        (wqe.wr_id, wqe.sge_count) = (wr.wr_id, wr.sges.len() as u32);
        wqe.sges[..wr.sges.len()].copy_from_slice(wr.sges);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Moves the oldest WQE to `into`. `None` if there is none; else whether the low mark is passed now, which disarms it.
    #[inline]
    pub fn take(&mut self, into: &mut RecvWqe) -> Option<bool> {
        if self.head == self.tail {
            return None;
        }
        let slot = self.head as usize & (self.slots.len() - 1);
        let wqe = &self.slots[slot];
        // A queue pair's slots may be shorter than ours: it is made with at least as many elements.
        let n = wqe.sge_count as usize;
        (into.wr_id, into.sge_count) = (wqe.wr_id, wqe.sge_count);
        into.sges[..n].copy_from_slice(&wqe.sges[..n]);
        self.head = self.head.wrapping_add(1);
        let low = self.low_mark != 0 && self.len() < self.low_mark;
        if low {
            self.low_mark = 0;
        }
        Some(low)
    }

    pub fn max_sge(&self) -> usize {
        self.max_sge
    }
}
