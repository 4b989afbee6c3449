//! Memory shared by several NICs.

use super::Nic;

impl Nic {
    /// Replaces this NIC's protection domains, memory regions and memory windows, none of which may be in use, with
    /// those of another. From then on both NICs share them: a handle or key of one is immediately valid in the other.
    /// Windows that one binds, and keys that one invalidates, are bound and invalid in the other; an access that was
    /// checked there before may still be in progress.
    ///
    /// # Safety
    /// From now on the caller of [`Self::alloc_pd`], [`Self::dealloc_pd`], [`Self::alloc_mr`], [`Self::reg_mr`],
    /// [`Self::reg_phantom_mr`], [`Self::rereg_mr`], [`Self::dereg_mr`], [`Self::alloc_mw`], [`Self::dealloc_mw`] or
    /// [`Self::bytes_mut`] of any NIC that shares the table must have exclusive access to all of them: no other thread
    /// calls any method of any of them meanwhile.
    pub unsafe fn share_memory(&mut self, with: &Nic) {
        self.device.memory.share(&with.device.memory);
    }
}
