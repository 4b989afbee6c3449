//! Calls on what is not a queue pair: protection domains, memory, completion queues, shared receive queues.

use irnic_transports::Gather;
use irnic_transports::qp::{Access, CqId, PdId, PostError, RecvWr, SrqId, Wc};
use irnic_transports::room;

use super::{Nic, NicError, limit};
use crate::cq::{Arm, Cq};
use crate::device::{NicEvent, Pd};
use crate::memory::{Mr, MrChanges, Mw, MwKind};
use crate::srq::Srq;

impl Nic {
    /// A new protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId, NicError> {
        room::ensure(self.device.pds.growth())?;
        self.device.pds.add(Pd::default()).map(PdId).ok_or(NicError::Full("protection domains"))
    }

    /// Removes a protection domain that nothing is in.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), NicError> {
        let users = self.device.pds.get(pd.0).ok_or(NicError::NotFound("protection domain"))?.users;
        if users > 0 || self.device.memory.uses(pd) {
            return Err(NicError::InUse("protection domain"));
        }
        self.device.pds.remove(pd.0);
        Ok(())
    }

    pub(super) fn check_pd(&self, pd: PdId) -> Result<(), NicError> {
        self.device.pds.get(pd.0).map(|_| ()).ok_or(NicError::NotFound("protection domain"))
    }

    /// Registers memory that the NIC allocates, zeroed; [`Self::bytes`] reads it.
    pub fn alloc_mr(&mut self, pd: PdId, len: u64, access: Access) -> Result<Mr, NicError> {
        self.check_pd(pd)?;
        Ok(self.device.memory.register_owned(pd, len, access)?)
    }

    /// Registers a range of addresses with no bytes behind it, for simulations that only count them.
    pub fn reg_phantom_mr(&mut self, pd: PdId, addr: u64, len: u64, access: Access) -> Result<Mr, NicError> {
        self.check_pd(pd)?;
        Ok(self.device.memory.register_phantom(pd, addr, len, access)?)
    }

    /// Registers the application's memory. `iova` is its first address, as peers and scatter/gather elements name it; with
    /// [`Access::ZERO_BASED`] that is 0.
    ///
    /// # Safety
    /// The range must stay readable and, with any write access, writable until [`Self::dereg_mr`]. The NIC writes to it
    /// only inside calls on `self`.
    pub unsafe fn reg_mr(
        &mut self,
        pd: PdId,
        addr: *mut u8,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<Mr, NicError> {
        self.check_pd(pd)?;
        // SAFETY: passed on.
        Ok(unsafe { self.device.memory.register_external(pd, addr, len, iova, access) }?)
    }

    /// Changes a region to which no memory window is bound. Its keys stay, as with rxe and mlx5 (ibv_rereg_mr(3): "where possible,
    /// resources are reused"), and an invalidated remote key is valid again. On an error it stays as it was.
    ///
    /// # Safety
    /// As for [`Self::reg_mr`], if there is a new range.
    pub unsafe fn rereg_mr(&mut self, mr: &Mr, changes: MrChanges) -> Result<Mr, NicError> {
        if let Some(pd) = changes.pd {
            self.check_pd(pd)?;
        }
        // SAFETY: passed on.
        unsafe { self.device.memory.reregister(mr, &changes) }
    }

    /// Deregisters a region to which no memory window is bound. Work requests and peers that still use it fail with a protection
    /// error.
    pub fn dereg_mr(&mut self, mr: &Mr) -> Result<(), NicError> {
        self.device.memory.deregister(mr.lkey)
    }

    /// A memory window, bound to nothing.
    pub fn alloc_mw(&mut self, pd: PdId, kind: MwKind) -> Result<Mw, NicError> {
        self.check_pd(pd)?;
        room::ensure(self.device.memory.window_growth())?;
        self.device.memory.alloc_window(pd, kind).ok_or(NicError::Full("memory windows"))
    }

    /// Removes a memory window by its handle, bound or not.
    pub fn dealloc_mw(&mut self, mw: u32) -> Result<(), NicError> {
        Ok(self.device.memory.free_window(mw)?)
    }

    /// The key that the next binding of a type 1 window takes: for [`MwBind::rkey`](irnic_transports::qp::MwBind).
    pub fn next_mw_rkey(&mut self, mw: u32) -> Result<u32, NicError> {
        Ok(self.device.memory.next_window_key(mw)?)
    }

    /// Bytes of a region from [`Self::alloc_mr`].
    pub fn bytes(&self, mr: &Mr) -> Option<&[u8]> {
        self.device.memory.owned(mr)
    }

    /// The same, to change.
    pub fn bytes_mut(&mut self, mr: &Mr) -> Option<&mut [u8]> {
        self.device.memory.owned_mut(mr)
    }

    // Completion queues.

    /// A completion queue for `entries` completions.
    pub fn create_cq(&mut self, entries: u32) -> Result<CqId, NicError> {
        limit("completion queue entries", entries, Self::MAX_CQE)?;
        let queue = Cq::new(entries)?;
        room::ensure(self.device.cqs.growth())?;
        self.device.cqs.add(queue).map(CqId).ok_or(NicError::Full("completion queues"))
    }

    /// Removes a completion queue that no queue pair uses.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), NicError> {
        if self.device.cqs.get(cq.0).ok_or(NicError::NotFound("completion queue"))?.users > 0 {
            return Err(NicError::InUse("completion queue"));
        }
        self.device.cqs.remove(cq.0);
        Ok(())
    }

    /// Changes how many completions a queue holds. Fails if more are waiting.
    pub fn resize_cq(&mut self, cq: CqId, entries: u32) -> Result<(), NicError> {
        limit("completion queue entries", entries, Self::MAX_CQE)?;
        let queue = self.device.cqs.get_mut(cq.0).ok_or(NicError::NotFound("completion queue"))?;
        limit("completions waiting", queue.len(), entries)?;
        Ok(queue.resize(entries)?)
    }

    /// Completions that wait to be polled.
    pub fn cq_len(&self, cq: CqId) -> Result<u32, NicError> {
        Ok(self.device.cqs.get(cq.0).ok_or(NicError::NotFound("completion queue"))?.len())
    }

    /// Takes up to `out.len()` completions; returns how many.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId, out: &mut [Wc]) -> Result<usize, NicError> {
        let queue = self.device.cqs.get_mut(cq.0).ok_or(NicError::NotFound("completion queue"))?;
        let mut n = 0;
        while n < out.len() {
            let Some(wc) = queue.pop() else { break };
            out[n] = wc;
            n += 1;
        }
        if n == 0 && queue.overflowed() { Err(NicError::Full("completions: the queue overflowed")) } else { Ok(n) }
    }

    /// Asks for one [`NicEvent::Completion`], at the next completion to come: those that are there already raise none, so a
    /// caller that does not want to miss any polls once more after arming (ibv_req_notify_cq(3)). Of two requests the one that
    /// is easier to meet holds.
    pub fn arm_cq(&mut self, cq: CqId, arm: Arm) -> Result<(), NicError> {
        self.device.cqs.get_mut(cq.0).ok_or(NicError::NotFound("completion queue"))?.arm(arm);
        Ok(())
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<NicEvent> {
        self.device.events.pop_front()
    }

    // Shared receive queues.

    /// A shared receive queue.
    pub fn create_srq(&mut self, pd: PdId, max_wr: u32, max_sge: u32) -> Result<SrqId, NicError> {
        limit("work requests", max_wr, Self::MAX_WR)?;
        limit("scatter/gather elements", max_sge, Gather::MAX as u32)?;
        let users = &mut self.device.pds.get_mut(pd.0).ok_or(NicError::NotFound("protection domain"))?.users;
        let srq = Srq::new(pd, max_wr, max_sge as usize)?;
        room::ensure(self.device.srqs.growth())?;
        let id = self.device.srqs.add(srq).map(SrqId).ok_or(NicError::Full("shared receive queues"))?;
        *users += 1;
        Ok(id)
    }

    /// Changes how many work requests a shared receive queue holds, which must be no fewer than are in it, and the limit: one
    /// event is raised when fewer are left, which sets the limit back to 0. Nothing is changed on an error.
    pub fn modify_srq(&mut self, srq: SrqId, max_wr: Option<u32>, mark: Option<u32>) -> Result<(), NicError> {
        let queue = self.device.srqs.get_mut(srq.0).ok_or(NicError::NotFound("shared receive queue"))?;
        let max = max_wr.unwrap_or(queue.max_wr());
        limit("work requests", max, Self::MAX_WR)?;
        limit("work requests waiting", queue.len(), max)?;
        limit("shared receive queue limit", mark.unwrap_or(0), max)?;
        if max != queue.max_wr() {
            queue.resize(max)?;
        }
        if let Some(mark) = mark {
            queue.set_low_mark(mark);
        }
        Ok(())
    }

    /// Most work requests, most scatter/gather elements, and the limit of a shared receive queue.
    pub fn query_srq(&self, srq: SrqId) -> Result<(u32, u32, u32), NicError> {
        let queue = self.device.srqs.get(srq.0).ok_or(NicError::NotFound("shared receive queue"))?;
        Ok((queue.max_wr(), queue.max_sge() as u32, queue.low_mark()))
    }

    /// Posts to a shared receive queue.
    pub fn post_srq_recv(&mut self, srq: SrqId, wr: &RecvWr<'_>) -> Result<Result<(), PostError>, NicError> {
        Ok(self.device.srqs.get_mut(srq.0).ok_or(NicError::NotFound("shared receive queue"))?.post(wr))
    }

    /// Removes a shared receive queue that no queue pair uses, with what was posted to it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), NicError> {
        let queue = self.device.srqs.get(srq.0).ok_or(NicError::NotFound("shared receive queue"))?;
        if queue.users > 0 {
            return Err(NicError::InUse("shared receive queue"));
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
