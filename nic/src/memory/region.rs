//! A memory region, and protection: who may access what.

use std::sync::atomic::{AtomicU32, Ordering};

use irnic_transports::qp::{Access, MemError, PdId};

/// A registered memory region: its keys and its range.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mr {
    /// Local key, for scatter/gather elements of this device. A random number.
    pub lkey: u32,
    /// Remote key, for requests of peers. The same number, as on most hardware: some programs send their peers the
    /// local key.
    pub rkey: u32,
    /// Address of the first byte in scatter/gather elements and remote requests.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The changes of [`Nic::rereg_mr`](crate::Nic::rereg_mr). `None` leaves a property unchanged.
#[derive(Copy, Clone, Debug, Default)]
pub struct MrChanges {
    /// New memory: pointer, length in bytes, and the address of the first byte in scatter/gather elements and remote
    /// requests.
    pub translation: Option<(*mut u8, u64, u64)>,
    /// New protection domain.
    pub pd: Option<PdId>,
    /// New access rights.
    pub access: Option<Access>,
}

/// Location of a region's bytes.
#[derive(Debug)]
pub(super) enum Backing {
    /// Memory allocated by the device.
    Owned(Box<[u64]>),
    /// Memory of the application.
    External,
    /// No memory: only lengths count.
    Phantom,
}

#[derive(Debug)]
pub(super) struct Region {
    pub(super) pd: PdId,
    /// Address of the first byte in scatter/gather elements and remote requests.
    pub(super) addr: u64,
    pub(super) len: u64,
    /// Difference from such an address to the application's, modulo 2⁶⁴.
    pub(super) shift: u64,
    pub(super) access: Access,
    /// Number of memory windows bound to the region.
    pub(super) windows: AtomicU32,
    pub(super) backing: Backing,
}

impl Region {
    #[inline]
    pub(super) fn check(&self, key: u32, pd: PdId, addr: u64, len: u64, needed: Access) -> Result<(), MemError> {
        if self.pd != pd {
            return Err(MemError::Domain(key));
        }
        if !self.access.allows(needed) {
            return Err(MemError::Rights { key, needed });
        }
        let offset = addr.wrapping_sub(self.addr);
        if addr < self.addr || offset > self.len || len > self.len - offset {
            return Err(MemError::Bounds { key, addr, len });
        }
        Ok(())
    }

    /// Returns whether memory windows are bound to the region.
    pub(super) fn is_bound(&self) -> bool {
        self.windows.load(Ordering::Acquire) > 0
    }

    /// Returns the address of the first byte, whether it has memory or not.
    pub(super) fn host_start(&self) -> u64 {
        self.addr.wrapping_add(self.shift)
    }

    /// Returns the address to access for `addr`, 0 if there is no memory.
    #[inline]
    pub(super) fn host_addr(&self, addr: u64) -> u64 {
        if matches!(self.backing, Backing::Phantom) { 0 } else { addr.wrapping_add(self.shift) }
    }
}
