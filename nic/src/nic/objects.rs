//! Calls on protection domains, completion queues and shared receive queues, and iteration over queue pairs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use irnic_transports::Gather;
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{CqId, Frees, PdId, PostError, Qp, QpState, RecvWr, SrqId, Wc};
use irnic_transports::room;

use super::{Nic, limit};
use crate::cq::{Arm, Cq};
use crate::device::NicEvent;
use crate::error::{NicError, Object, Quantity};
use crate::srq::Srq;
use crate::table::Pd;

impl Nic {
    /// Returns the queue pairs that exist, by their numbers.
    pub fn qps(&self) -> impl Iterator<Item = &Qp> {
        self.qps.iter().flatten().map(|slot| &slot.qp)
    }

    /// Allocates a protection domain.
    ///
    /// # Errors
    /// [`NicError::Full`] if there are too many, or [`NicError::NoMemory`].
    pub fn alloc_pd(&mut self) -> Result<PdId, NicError> {
        room::ensure(self.device.memory.pds.growth())?;
        self.device.memory.pds.add(Pd::default()).map(PdId).ok_or(NicError::Full(Object::ProtectionDomain))
    }

    /// Deallocates an empty protection domain.
    ///
    /// # Errors
    /// [`NicError::NotFound`], or [`NicError::InUse`] if any object is in it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), NicError> {
        let domain = self.device.memory.pds.get(pd.0).ok_or(NicError::NotFound(Object::ProtectionDomain))?;
        if domain.users.load(Ordering::Acquire) > 0 || self.device.memory.uses(pd) {
            return Err(NicError::InUse(Object::ProtectionDomain));
        }
        self.device.memory.pds.remove(pd.0);
        Ok(())
    }

    pub(crate) fn check_pd(&self, pd: PdId) -> Result<(), NicError> {
        self.device.memory.pds.get(pd.0).map(|_| ()).ok_or(NicError::NotFound(Object::ProtectionDomain))
    }

    /// Creates a completion queue for `entries` completions.
    ///
    /// # Errors
    /// [`NicError::Limit`] if that is too many, [`NicError::Full`] if there are too many queues, or
    /// [`NicError::NoMemory`].
    pub fn create_cq(&mut self, entries: u32) -> Result<CqId, NicError> {
        limit(Quantity::CompletionQueueEntries, entries, Self::MAX_CQE)?;
        let queue = Cq::new(entries)?;
        room::ensure(self.device.cqs.growth())?;
        self.device.cqs.add(queue).map(CqId).ok_or(NicError::Full(Object::CompletionQueue))
    }

    /// Destroys a completion queue that no queue pair uses.
    ///
    /// # Errors
    /// [`NicError::NotFound`], or [`NicError::InUse`] if a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), NicError> {
        if self.device.cqs.get(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?.users > 0 {
            return Err(NicError::InUse(Object::CompletionQueue));
        }
        self.device.cqs.remove(cq.0);
        Ok(())
    }

    /// Changes the capacity of a completion queue to `entries`.
    ///
    /// # Errors
    /// [`NicError::NotFound`], [`NicError::Limit`] if that is too many or fewer than are waiting, or
    /// [`NicError::NoMemory`].
    pub fn resize_cq(&mut self, cq: CqId, entries: u32) -> Result<(), NicError> {
        limit(Quantity::CompletionQueueEntries, entries, Self::MAX_CQE)?;
        let queue = self.device.cqs.get_mut(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?;
        limit(Quantity::CompletionsWaiting, queue.len(), entries)?;
        Ok(queue.resize(entries)?)
    }

    /// Returns the number of completions that wait to be polled.
    ///
    /// # Errors
    /// [`NicError::NotFound`].
    #[inline]
    pub fn cq_len(&self, cq: CqId) -> Result<u32, NicError> {
        Ok(self.device.cqs.get(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?.len())
    }

    /// Returns whether [`Self::poll_cq`] would return 0, and do nothing else. False if `cq` does not exist.
    #[inline]
    pub fn has_nothing_in(&self, cq: CqId) -> bool {
        let empty = |queue: &Cq| queue.len() == 0 && !queue.overflowed();
        self.device.cqs.get(cq.0).is_some_and(empty) && self.device.memory.is_settled()
    }

    /// Returns whether a queue pair in RTS has completions that were not polled yet.
    pub fn has_unpolled(&self, qpn: u32) -> bool {
        let Some(qp) = self.qp(qpn).filter(|qp| qp.state() == QpState::Rts) else { return false };
        let (send, recv) = qp.cqs();
        [send, recv].into_iter().any(|cq| self.device.cqs.get(cq.0).is_some_and(|cq| cq.has_any_of(qpn)))
    }

    /// Returns the total number of completions in all queues, polled or not. From it, a thread that polled nothing can
    /// tell whether to poll again.
    #[inline]
    pub fn completions(&self) -> u64 {
        self.device.completions
    }

    /// Takes up to `out.len()` completions, oldest first. Returns how many. Work requests keep their slots until then.
    ///
    /// # Errors
    /// [`NicError::NotFound`], or [`NicError::CqOverflow`] if completions were lost and all others taken.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId, out: &mut [Wc]) -> Result<usize, NicError> {
        let max = out.len();
        let mut free = out.iter_mut();
        self.poll_cq_each(cq, max, |wc| free.next().into_iter().for_each(|out| *out = *wc))
    }

    /// Takes up to `max` completions, oldest first, and passes each to `each`. Returns how many.
    ///
    /// # Errors
    /// Those of [`Self::poll_cq`].
    #[inline]
    pub fn poll_cq_each(&mut self, cq: CqId, max: usize, mut each: impl FnMut(&Wc)) -> Result<usize, NicError> {
        // A completion may be the reason to reuse memory.
        self.device.memory.settle();
        let queue = self.device.cqs.get_mut(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?;
        let mut n = 0;
        while n < max {
            let Some((wc, frees)) = queue.pop() else { break };
            each(wc);
            n += 1;
            if let Frees::Shared(srq) = *frees {
                self.device.srqs.get_mut(srq.0).into_iter().for_each(Srq::free);
            } else if let Some(Some(slot)) = self.qps.get_mut(wc.qp_num.wrapping_sub(self.first_qpn) as usize) {
                slot.qp.free(*frees);
            }
        }
        if n == 0 && queue.overflowed() { Err(NicError::CqOverflow) } else { Ok(n) }
    }

    /// Requests one [`NicEvent::Completion`] for the next completion. Completions already in the queue raise none, so a
    /// caller that must not miss any polls once more after arming (ibv_req_notify_cq(3)). Of two requests, the one met
    /// sooner applies.
    ///
    /// # Errors
    /// [`NicError::NotFound`].
    pub fn arm_cq(&mut self, cq: CqId, arm: Arm) -> Result<(), NicError> {
        self.device.cqs.get_mut(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?.arm(arm);
        Ok(())
    }

    /// Takes the oldest event; `None` if there is none.
    pub fn poll_event(&mut self) -> Option<NicEvent> {
        self.device.events.pop_front()
    }

    // Shared receive queues.

    /// Creates a shared receive queue for `max_wr` work requests of up to `max_sge` scatter/gather elements.
    ///
    /// # Errors
    /// [`NicError::NotFound`] if the protection domain does not exist, [`NicError::Limit`], [`NicError::Full`] or
    /// [`NicError::NoMemory`].
    pub fn create_srq(&mut self, pd: PdId, max_wr: u32, max_sge: u32) -> Result<SrqId, NicError> {
        limit(Quantity::WorkRequests, max_wr, Self::MAX_WR)?;
        limit(Quantity::ScatterGatherElements, max_sge, Gather::MAX as u32)?;
        self.check_pd(pd)?;
        let srq = Srq::new(pd, max_wr, max_sge as usize)?;
        room::ensure(self.device.srqs.growth())?;
        let id = self.device.srqs.add(srq).map(SrqId).ok_or(NicError::Full(Object::SharedReceiveQueue))?;
        if let Some(pd) = self.device.memory.pds.get(pd.0) {
            pd.users.fetch_add(1, Ordering::AcqRel);
        }
        Ok(id)
    }

    /// Changes the capacity of a shared receive queue to `max_wr` work requests, no fewer than are in it, and its limit
    /// to `mark`: when fewer are left, one event is raised and the limit returns to 0. `None` leaves either as it is.
    ///
    /// # Errors
    /// [`NicError::NotFound`], [`NicError::Limit`] or [`NicError::NoMemory`]. Nothing is changed.
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

    /// Returns the capacity of a shared receive queue in work requests, its scatter/gather elements per work request,
    /// and its limit.
    ///
    /// # Errors
    /// [`NicError::NotFound`].
    pub fn query_srq(&self, srq: SrqId) -> Result<(u32, u32, u32), NicError> {
        let queue = self.device.srqs.get(srq.0).ok_or(NicError::NotFound(Object::SharedReceiveQueue))?;
        Ok((queue.max_wr(), queue.max_sge() as u32, queue.low_mark()))
    }

    /// Posts a receive work request to a shared receive queue.
    ///
    /// # Errors
    /// [`PostError::NoQueue`] if the queue does not exist, or the reason why it does not take the request.
    pub fn post_srq_recv(&mut self, srq: SrqId, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.device.srqs.get_mut(srq.0).ok_or(PostError::NoQueue)?.post(wr)
    }

    /// Destroys a shared receive queue that no queue pair uses, with the work requests in it.
    ///
    /// # Errors
    /// [`NicError::NotFound`], or [`NicError::InUse`] if a queue pair uses it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), NicError> {
        let queue = self.device.srqs.get(srq.0).ok_or(NicError::NotFound(Object::SharedReceiveQueue))?;
        if queue.users > 0 {
            return Err(NicError::InUse(Object::SharedReceiveQueue));
        }
        let (pd, xrc) = (queue.pd, queue.xrc);
        self.device.srqs.remove(srq.0);
        self.release_pd(pd);
        if let Some(part) = xrc {
            self.leave_xrcd(Some(part.domain));
            if let Some(cq) = self.device.cqs.get_mut(part.cq.0) {
                cq.users -= 1;
            }
        }
        Ok(())
    }

    /// Returns the copy of a transport that its queue pairs share. Unused copies are freed.
    pub(super) fn transport(&mut self, config: &TransportConfig) -> Result<Arc<TransportConfig>, NicError> {
        if let Some(shared) = self.transports.iter().find(|t| ***t == *config) {
            return Ok(shared.clone());
        }
        room::ensure(size_of::<TransportConfig>())?;
        self.transports.retain(|t| Arc::strong_count(t) > 1);
        let shared = Arc::new(*config);
        if self.transports.len() < Self::SHARED_TRANSPORTS {
            self.transports.push(shared.clone());
        }
        Ok(shared)
    }

    pub(super) fn count_users(&mut self, pd: PdId, cqs: [CqId; 2], srq: Option<SrqId>, add: bool) {
        let step = |users: &mut u32| *users = if add { *users + 1 } else { *users - 1 };
        if let Some(pd) = self.device.memory.pds.get(pd.0) {
            pd.users.fetch_add(if add { 1 } else { u32::MAX }, Ordering::AcqRel);
        }
        for cq in cqs {
            if let Some(cq) = self.device.cqs.get_mut(cq.0) {
                step(&mut cq.users);
            }
        }
        if let Some(srq) = srq.and_then(|s| self.device.srqs.get_mut(s.0)) {
            step(&mut srq.users);
        }
    }

    fn release_pd(&mut self, pd: PdId) {
        if let Some(pd) = self.device.memory.pds.get(pd.0) {
            pd.users.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
