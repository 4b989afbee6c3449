//! Calls on memory regions and memory windows.

use irnic_transports::qp::{Access, PdId};
use irnic_transports::room;

use super::{Mr, MrChanges, Mw, MwKind};
use crate::error::{NicError, Object};
use crate::nic::Nic;

impl Nic {
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
        // SAFETY: the caller's promise is the one that is asked for.
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
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { self.device.memory.reregister(mr, &changes) }
    }

    /// Deregisters a region to which no memory window is bound. Work requests and peers that still use it fail with a protection
    /// error.
    pub fn dereg_mr(&mut self, mr: &Mr) -> Result<(), NicError> {
        self.device.memory.deregister(mr.lkey)
    }

    /// Creates a memory window that is bound to nothing.
    pub fn alloc_mw(&mut self, pd: PdId, kind: MwKind) -> Result<Mw, NicError> {
        self.check_pd(pd)?;
        room::ensure(self.device.memory.window_growth())?;
        self.device.memory.alloc_window(pd, kind).ok_or(NicError::Full(Object::MemoryWindow))
    }

    /// Removes a memory window by its handle, bound or not.
    pub fn dealloc_mw(&mut self, mw: u32) -> Result<(), NicError> {
        Ok(self.device.memory.free_window(mw)?)
    }

    /// Returns the key that the next binding of a type 1 window takes: for [`MwBind::rkey`](irnic_transports::qp::MwBind).
    pub fn next_mw_rkey(&mut self, mw: u32) -> Result<u32, NicError> {
        Ok(self.device.memory.next_window_key(mw)?)
    }

    /// Returns the bytes of a region from [`Self::alloc_mr`].
    pub fn bytes(&self, mr: &Mr) -> Option<&[u8]> {
        self.device.memory.owned(mr)
    }

    /// Returns the bytes of a region from [`Self::alloc_mr`] mutably.
    pub fn bytes_mut(&mut self, mr: &Mr) -> Option<&mut [u8]> {
        self.device.memory.owned_mut(mr)
    }
}
