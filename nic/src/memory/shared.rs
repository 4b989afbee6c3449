//! The table of regions, windows and protection domains, which several NICs of one device may share.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::regions::Regions;
/// A NIC's handle on its table.
///
/// The packet path takes no lock: a borrowed NIC reads the table, and a mutably borrowed one may change it, as if it
/// were the NIC's own. [`Nic::share_memory`](crate::Nic::share_memory) states what makes that sound with several.
pub(super) struct Shared(Arc<Cell>);

struct Cell(UnsafeCell<Regions>);

// SAFETY: threads may read a table together, and a thread that changes it has exclusive access to all handles: the
// promise of `Nic::share_memory`.
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
        // SAFETY: the table is not changed while a NIC that has it is borrowed: the promise of `Nic::share_memory`.
        unsafe { &*self.0.0.get() }
    }
}

impl DerefMut for Shared {
    #[inline]
    fn deref_mut(&mut self) -> &mut Regions {
        // SAFETY: only calls that change regions, windows or domains get here, and their caller has exclusive access to
        // all NICs that have the table: the promise of `Nic::share_memory`.
        unsafe { &mut *self.0.0.get() }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
