//! Calls on extended reliable connection domains and their shared receive queues (IBA A14).

use irnic_transports::qp::{CqId, PdId, SrqId, XrcdId};
use irnic_transports::room;

use super::Nic;
use crate::error::{NicError, Object};
use crate::srq::XrcPart;
use crate::table::Xrcd;

impl Nic {
    /// Allocates an XRC domain: targets in it deliver to the shared receive queues in it.
    ///
    /// # Errors
    /// [`NicError::Full`] if there are too many, or [`NicError::NoMemory`].
    pub fn alloc_xrcd(&mut self) -> Result<XrcdId, NicError> {
        room::ensure(self.device.xrcds.growth())?;
        self.device.xrcds.add(Xrcd::default()).map(XrcdId).ok_or(NicError::Full(Object::XrcDomain))
    }

    /// Deallocates an empty XRC domain.
    ///
    /// # Errors
    /// [`NicError::NotFound`], or [`NicError::InUse`] if a queue pair or a shared receive queue is in it.
    pub fn dealloc_xrcd(&mut self, xrcd: XrcdId) -> Result<(), NicError> {
        if self.device.xrcds.get(xrcd.0).ok_or(NicError::NotFound(Object::XrcDomain))?.users > 0 {
            return Err(NicError::InUse(Object::XrcDomain));
        }
        self.device.xrcds.remove(xrcd.0);
        Ok(())
    }

    /// Creates a shared receive queue of an XRC domain. Its completions go to `cq`; requests that name it access the
    /// memory of `pd`. Otherwise as [`Nic::create_srq`].
    ///
    /// # Errors
    /// Those of [`Nic::create_srq`], or [`NicError::NotFound`] if domain or completion queue do not exist.
    pub fn create_xrc_srq(
        &mut self,
        pd: PdId,
        xrcd: XrcdId,
        cq: CqId,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SrqId, NicError> {
        self.device.xrcds.get(xrcd.0).ok_or(NicError::NotFound(Object::XrcDomain))?;
        self.device.cqs.get(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?;
        let srq = self.create_srq(pd, max_wr, max_sge)?;
        self.device.xrc_serial = self.device.xrc_serial.wrapping_add(1);
        let serial = self.device.xrc_serial;
        if let Some(queue) = self.device.srqs.get_mut(srq.0) {
            queue.xrc = Some(XrcPart { domain: xrcd, cq, serial });
        }
        if let Some(domain) = self.device.xrcds.get_mut(xrcd.0) {
            domain.users += 1;
        }
        if let Some(cq) = self.device.cqs.get_mut(cq.0) {
            cq.users += 1;
        }
        Ok(srq)
    }

    /// Returns the number by which XRC requests name a shared receive queue, 24 bits.
    ///
    /// # Errors
    /// [`NicError::NotFound`], or [`NicError::NotXrc`] if it is in no XRC domain.
    pub fn srq_number(&self, srq: SrqId) -> Result<u32, NicError> {
        let queue = self.device.srqs.get(srq.0).ok_or(NicError::NotFound(Object::SharedReceiveQueue))?;
        if queue.xrc.is_none() {
            return Err(NicError::NotXrc);
        }
        Ok(self.device.first_srqn.wrapping_add(srq.0) & 0xff_ffff)
    }

    pub(super) fn leave_xrcd(&mut self, xrcd: Option<XrcdId>) {
        if let Some(domain) = xrcd.and_then(|d| self.device.xrcds.get_mut(d.0)) {
            domain.users -= 1;
        }
    }
}
