//! Calls on protection domains, completion queues and shared receive queues.

use irnic_transports::Gather;
use irnic_transports::qp::{CqId, PdId, PostError, RecvWr, SrqId, Wc};
use irnic_transports::room;

use super::{Nic, NicError, limit};
use crate::cq::{Arm, Cq};
use crate::device::{NicEvent, Pd};
use crate::error::{Object, Quantity};
use crate::srq::Srq;

impl Nic {
    /// Creates a protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId, NicError> {
        room::ensure(self.device.pds.growth())?;
        self.device.pds.add(Pd::default()).map(PdId).ok_or(NicError::Full(Object::ProtectionDomain))
    }

    /// Removes a protection domain that nothing is in.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), NicError> {
        let users = self.device.pds.get(pd.0).ok_or(NicError::NotFound(Object::ProtectionDomain))?.users;
        if users > 0 || self.device.memory.uses(pd) {
            return Err(NicError::InUse(Object::ProtectionDomain));
        }
        self.device.pds.remove(pd.0);
        Ok(())
    }

    pub(crate) fn check_pd(&self, pd: PdId) -> Result<(), NicError> {
        self.device.pds.get(pd.0).map(|_| ()).ok_or(NicError::NotFound(Object::ProtectionDomain))
    }

    /// Creates a completion queue for `entries` completions.
    pub fn create_cq(&mut self, entries: u32) -> Result<CqId, NicError> {
        limit(Quantity::CompletionQueueEntries, entries, Self::MAX_CQE)?;
        let queue = Cq::new(entries)?;
        room::ensure(self.device.cqs.growth())?;
        self.device.cqs.add(queue).map(CqId).ok_or(NicError::Full(Object::CompletionQueue))
    }

    /// Removes a completion queue that no queue pair uses.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), NicError> {
        if self.device.cqs.get(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?.users > 0 {
            return Err(NicError::InUse(Object::CompletionQueue));
        }
        self.device.cqs.remove(cq.0);
        Ok(())
    }

    /// Changes how many completions a queue holds. Fails if more are waiting.
    pub fn resize_cq(&mut self, cq: CqId, entries: u32) -> Result<(), NicError> {
        limit(Quantity::CompletionQueueEntries, entries, Self::MAX_CQE)?;
        let queue = self.device.cqs.get_mut(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?;
        limit(Quantity::CompletionsWaiting, queue.len(), entries)?;
        Ok(queue.resize(entries)?)
    }

    /// Returns the number of completions that wait to be polled.
    pub fn cq_len(&self, cq: CqId) -> Result<u32, NicError> {
        Ok(self.device.cqs.get(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?.len())
    }

    /// Takes up to `out.len()` completions, oldest first, and returns how many. Fails with [`NicError::CqOverflow`] once all that
    /// came before the overflow are taken.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId, out: &mut [Wc]) -> Result<usize, NicError> {
        let queue = self.device.cqs.get_mut(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?;
        let mut n = 0;
        while n < out.len() {
            let Some(wc) = queue.pop() else { break };
            out[n] = wc;
            n += 1;
        }
        if n == 0 && queue.overflowed() { Err(NicError::CqOverflow) } else { Ok(n) }
    }

    /// Asks for one [`NicEvent::Completion`], at the next completion to come: those that are there already raise none, so a
    /// caller that does not want to miss any polls once more after arming (ibv_req_notify_cq(3)). Of two requests the one that
    /// is easier to meet holds.
    pub fn arm_cq(&mut self, cq: CqId, arm: Arm) -> Result<(), NicError> {
        self.device.cqs.get_mut(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?.arm(arm);
        Ok(())
    }

    /// Takes the oldest event.
    pub fn poll_event(&mut self) -> Option<NicEvent> {
        self.device.events.pop_front()
    }

    // Shared receive queues.

    /// Creates a shared receive queue for `max_wr` work requests of at most `max_sge` scatter/gather elements.
    pub fn create_srq(&mut self, pd: PdId, max_wr: u32, max_sge: u32) -> Result<SrqId, NicError> {
        limit(Quantity::WorkRequests, max_wr, Self::MAX_WR)?;
        limit(Quantity::ScatterGatherElements, max_sge, Gather::MAX as u32)?;
        let users = &mut self.device.pds.get_mut(pd.0).ok_or(NicError::NotFound(Object::ProtectionDomain))?.users;
        let srq = Srq::new(pd, max_wr, max_sge as usize)?;
        room::ensure(self.device.srqs.growth())?;
        let id = self.device.srqs.add(srq).map(SrqId).ok_or(NicError::Full(Object::SharedReceiveQueue))?;
        *users += 1;
        Ok(id)
    }

    /// Changes how many work requests a shared receive queue holds, which must be no fewer than are in it, and the limit: one
    /// event is raised when fewer are left, which sets the limit back to 0. Nothing is changed on an error.
    pub fn modify_srq(&mut self, srq: SrqId, max_wr: Option<u32>, mark: Option<u32>) -> Result<(), NicError> {
        let queue = self.device.srqs.get_mut(srq.0).ok_or(NicError::NotFound(Object::SharedReceiveQueue))?;
        let max = max_wr.unwrap_or(queue.max_wr());
        limit(Quantity::WorkRequests, max, Self::MAX_WR)?;
        limit(Quantity::WorkRequestsWaiting, queue.len(), max)?;
        limit(Quantity::SrqLimit, mark.unwrap_or(0), max)?;
        if max != queue.max_wr() {
            queue.resize(max)?;
        }
        if let Some(mark) = mark {
            queue.set_low_mark(mark);
        }
        Ok(())
    }

    /// Returns the most work requests, the most scatter/gather elements, and the limit of a shared receive queue.
    pub fn query_srq(&self, srq: SrqId) -> Result<(u32, u32, u32), NicError> {
        let queue = self.device.srqs.get(srq.0).ok_or(NicError::NotFound(Object::SharedReceiveQueue))?;
        Ok((queue.max_wr(), queue.max_sge() as u32, queue.low_mark()))
    }

    /// Posts a receive work request to a shared receive queue.
    pub fn post_srq_recv(&mut self, srq: SrqId, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.device.srqs.get_mut(srq.0).ok_or(PostError::NoQueue)?.post(wr)
    }

    /// Removes a shared receive queue that no queue pair uses, with what was posted to it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), NicError> {
        let queue = self.device.srqs.get(srq.0).ok_or(NicError::NotFound(Object::SharedReceiveQueue))?;
        if queue.users > 0 {
            return Err(NicError::InUse(Object::SharedReceiveQueue));
        }
        let pd = queue.pd;
        self.device.srqs.remove(srq.0);
        self.release_pd(pd);
        Ok(())
    }

    fn release_pd(&mut self, pd: PdId) {
        if let Some(pd) = self.device.pds.get_mut(pd.0) {
            pd.users -= 1;
        }
    }
}
