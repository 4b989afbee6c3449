//! Calls on memory regions and memory windows.

use std::sync::Arc;

use irnic_transports::qp::{Access, PdId};
use irnic_transports::room;

use super::{Accelerator, MemoryReader, Mr, MrChanges, Mw, MwKind};
use crate::device::Recall;
use crate::error::{NicError, Object};
use crate::nic::Nic;

impl Nic {
    /// Sets what is called before the buffers of sends return to the application although packets that refer to them
    /// may still be on their way. Default: nothing, for carriers that copy payloads, or leave them in place only while
    /// the NIC transmits.
    pub fn set_recall(&mut self, recall: Recall) {
        self.device.recall = Some(recall);
    }

    /// Sets how the application's memory is read where it may have been unmapped while registered: for the response to
    /// a retransmitted RDMA READ, after the peer may have released it. Without a reader it is read like any memory.
    pub fn set_memory_reader(&mut self, reader: MemoryReader) {
        self.device.memory.set_reader(reader);
    }

    /// Registers `len` zeroed bytes that the NIC allocates. [`Self::bytes`] returns them.
    ///
    /// # Errors
    /// [`NicError::NotFound`] if the protection domain does not exist. [`NicError::Register`] if there is no memory or
    /// no room for another region, if the rights contradict each other, or if `len` is above 1 TiB.
    pub fn alloc_mr(&mut self, pd: PdId, len: u64, access: Access) -> Result<Mr, NicError> {
        self.check_pd(pd)?;
        Ok(self.device.memory.register_owned(pd, len, access)?)
    }

    /// Registers a range of addresses without backing memory, for simulations that only count bytes.
    ///
    /// # Errors
    /// [`NicError::NotFound`] if the protection domain does not exist. [`NicError::Register`] if there is no room for
    /// another region, if the rights contradict each other, or if the range wraps around the end of the address space.
    pub fn reg_phantom_mr(&mut self, pd: PdId, addr: u64, len: u64, access: Access) -> Result<Mr, NicError> {
        self.check_pd(pd)?;
        Ok(self.device.memory.register_phantom(pd, addr, len, access)?)
    }

    /// Registers memory of the application. `iova` is the address of its first byte in scatter/gather elements and
    /// remote requests; with [`Access::ZERO_BASED`] that address is 0.
    ///
    /// # Errors
    /// [`NicError::NotFound`] if the protection domain does not exist. [`NicError::Register`] if there is no room for
    /// another region, if the rights contradict each other, or if the range wraps around the end of the address space.
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
        // SAFETY: the caller makes the promise that is required here.
        Ok(unsafe { self.device.memory.register_external(pd, addr, len, iova, access) }?)
    }

    /// Registers `len` bytes of an accelerator's memory at `addr`, otherwise as [`Self::reg_mr`] does. Only `driver`
    /// accesses it, which is called inside calls on any NIC that has the region.
    ///
    /// Packets of a message that arrive in order may be written together, at the latest with the last one. If that
    /// fails, so does every later access to the region. Memory windows cannot be bound to it.
    ///
    /// # Errors
    /// As for [`Self::reg_mr`].
    pub fn reg_accelerator_mr(
        &mut self,
        pd: PdId,
        (addr, len): (u64, u64),
        iova: u64,
        access: Access,
        driver: Arc<dyn Accelerator>,
    ) -> Result<Mr, NicError> {
        self.check_pd(pd)?;
        Ok(self.device.memory.register_accelerated(pd, (addr, len), iova, access, driver)?)
    }

    /// Changes a region to which no memory window is bound. Its keys stay, as with rxe and mlx5 (ibv_rereg_mr(3):
    /// "where possible, resources are reused"), and an invalidated remote key becomes valid again.
    ///
    /// # Errors
    /// [`NicError::Memory`] if there is no such region, [`NicError::NotFound`] if the new protection domain does not
    /// exist, [`NicError::InUse`] if a window is bound to the region, or [`NicError::Register`]. The region stays as it
    /// was.
    ///
    /// # Safety
    /// As for [`Self::reg_mr`], if there is a new range.
    pub unsafe fn rereg_mr(&mut self, mr: &Mr, changes: MrChanges) -> Result<Mr, NicError> {
        if let Some(pd) = changes.pd {
            self.check_pd(pd)?;
        }
        // SAFETY: the caller makes the promise that is required here.
        unsafe { self.device.memory.reregister(mr, &changes) }
    }

    /// Deregisters a region to which no memory window is bound. Work requests and peers that still use it fail with a
    /// protection error.
    ///
    /// # Errors
    /// [`NicError::Memory`] if there is no such region, [`NicError::InUse`] if a window is bound to it.
    pub fn dereg_mr(&mut self, mr: &Mr) -> Result<(), NicError> {
        self.device.memory.deregister(mr.lkey)
    }

    /// Allocates an unbound memory window.
    ///
    /// # Errors
    /// [`NicError::NotFound`] if the protection domain does not exist, [`NicError::Full`] if the device has no room, or
    /// [`NicError::NoMemory`].
    pub fn alloc_mw(&mut self, pd: PdId, kind: MwKind) -> Result<Mw, NicError> {
        self.check_pd(pd)?;
        room::ensure(self.device.memory.window_growth())?;
        self.device.memory.alloc_window(pd, kind).ok_or(NicError::Full(Object::MemoryWindow))
    }

    /// Deallocates a memory window by its handle, bound or not.
    ///
    /// # Errors
    /// [`NicError::Memory`] if there is no such window.
    pub fn dealloc_mw(&mut self, mw: u32) -> Result<(), NicError> {
        Ok(self.device.memory.free_window(mw)?)
    }

    /// Returns the key that the next binding of a type 1 window uses, for `rkey` of
    /// [`MwBind`](irnic_transports::qp::MwBind).
    ///
    /// # Errors
    /// [`NicError::Memory`] if there is no such window.
    pub fn next_mw_rkey(&mut self, mw: u32) -> Result<u32, NicError> {
        Ok(self.device.memory.next_window_key(mw)?)
    }

    /// Returns the bytes of a region from [`Self::alloc_mr`]; `None` for other regions.
    pub fn bytes(&self, mr: &Mr) -> Option<&[u8]> {
        self.device.memory.owned(mr)
    }

    /// Returns the bytes of a region from [`Self::alloc_mr`] mutably; `None` for other regions.
    pub fn bytes_mut(&mut self, mr: &Mr) -> Option<&mut [u8]> {
        self.device.memory.owned_mut(mr)
    }
}
