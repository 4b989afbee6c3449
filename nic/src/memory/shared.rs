//! The table of regions, windows and protection domains, which several NICs of one device may have in common.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::Regions;
use crate::nic::Nic;

/// A NIC's handle on its table.
///
/// Nothing is locked where packets pass: a NIC that is borrowed reads the table, and one that is borrowed mutably may
/// change it, as if it were the NIC's own. [`Nic::share_memory`] says what makes that sound with several.
pub(super) struct Shared(Arc<Cell>);

struct Cell(UnsafeCell<Regions>);

// SAFETY: threads may read a table together, and who changes it has all handles to himself: the promise of
// `Nic::share_memory`.
unsafe impl Sync for Cell {}

impl Shared {
    pub(super) fn new(regions: Regions) -> Shared {
        Shared(Arc::new(Cell(UnsafeCell::new(regions))))
    }

    /// Returns another handle on the same table.
    pub(super) fn join(&self) -> Shared {
        Shared(self.0.clone())
    }
}

impl Deref for Shared {
    type Target = Regions;

    #[inline(always)]
    fn deref(&self) -> &Regions {
        // SAFETY: nobody changes the table while a NIC that has it is borrowed: the promise of `Nic::share_memory`.
        unsafe { &*self.0.0.get() }
    }
}

impl DerefMut for Shared {
    #[inline]
    fn deref_mut(&mut self) -> &mut Regions {
        // SAFETY: only calls that change regions, windows or domains come here, and whoever makes one has all NICs that
        // have the table to himself: the promise of `Nic::share_memory`.
        unsafe { &mut *self.0.0.get() }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Nic {
    /// Gives this NIC the protection domains, memory regions and memory windows of another, in place of its own, of
    /// which there must be none in use. From then on they are both NICs': a handle or key of one is known to the other,
    /// at once. Windows that one binds, and keys that one invalidates, are bound and invalid in the other; an access
    /// that was checked there before may still be under way.
    ///
    /// # Safety
    /// From now on whoever calls [`Self::alloc_pd`], [`Self::dealloc_pd`], [`Self::alloc_mr`], [`Self::reg_mr`],
    /// [`Self::reg_phantom_mr`], [`Self::rereg_mr`], [`Self::dereg_mr`], [`Self::alloc_mw`], [`Self::dealloc_mw`] or
    /// [`Self::bytes_mut`] of any NIC that shares the table has all of them to himself: no other thread calls anything
    /// of any meanwhile.
    pub unsafe fn share_memory(&mut self, with: &Nic) {
        self.device.memory.share(&with.device.memory);
    }
}
