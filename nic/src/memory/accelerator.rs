//! Regions of an accelerator's memory, such as a GPU's, which only the accelerator's driver can access.
//!
//! They have a table of their own. A key is looked up in it where the other regions do not have it, so that access to
//! memory of the host costs the same with and without it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use irnic_transports::qp::{Access, MemError, PdId};

use super::region::Region;

/// The driver of an accelerator: copies between its memory and the host's.
///
/// Calls come from whichever thread calls the NIC, possibly several at once if NICs share their regions.
pub trait Accelerator: fmt::Debug + Send + Sync {
    /// Copies the accelerator's memory from `addr` on, and returns when `to` is filled.
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), CopyError>;

    /// Copies to the accelerator's memory from `addr` on, and returns when it can be seen there.
    fn write(&self, addr: u64, from: &[u8]) -> Result<(), CopyError>;
}

/// The driver refused or failed to copy.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the accelerator's driver could not copy")]
pub struct CopyError;

/// A region of an accelerator's memory.
#[derive(Debug)]
pub(super) struct Accelerated {
    pub(super) region: Region,
    driver: Arc<dyn Accelerator>,
    /// A delayed copy to it has failed: every access fails from now on.
    lost: AtomicBool,
}

impl Accelerated {
    pub(super) fn new(region: Region, driver: Arc<dyn Accelerator>) -> Accelerated {
        Accelerated { region, driver, lost: AtomicBool::new(false) }
    }

    /// Checks an access; returns the address in the accelerator's memory.
    pub(super) fn check(&self, key: u32, pd: PdId, addr: u64, len: u64, needed: Access) -> Result<u64, MemError> {
        self.region.check(key, pd, addr, len, needed)?;
        self.is_there(key)?;
        Ok(self.region.host_addr(addr))
    }

    /// Returns whether the region covers these bytes of the accelerator's memory.
    pub(super) fn covers(&self, addr: u64, len: u64) -> bool {
        let offset = addr.wrapping_sub(self.region.host_start());
        offset <= self.region.len && len <= self.region.len - offset
    }

    /// Returns the bytes of the region from `addr` on.
    pub(super) fn left(&self, addr: u64) -> u64 {
        self.region.len.saturating_sub(addr.wrapping_sub(self.region.host_start()))
    }

    pub(super) fn read(&self, key: u32, addr: u64, to: &mut [u8]) -> Result<(), MemError> {
        self.driver.read(addr, to).map_err(|CopyError| MemError::Copy(key))
    }

    pub(super) fn write(&self, key: u32, addr: u64, from: &[u8]) -> Result<(), MemError> {
        self.driver.write(addr, from).map_err(|CopyError| MemError::Copy(key))
    }

    /// Fails if the region is lost.
    pub(super) fn is_there(&self, key: u32) -> Result<(), MemError> {
        if self.lost.load(Ordering::Acquire) { Err(MemError::Copy(key)) } else { Ok(()) }
    }

    /// Marks the region as lost.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

/// The regions of accelerators' memory, by key.
#[derive(Debug, Default)]
pub(super) struct AcceleratedRegions {
    by_key: BTreeMap<u32, Accelerated>,
    /// Held during an atomic: it is a read and a write, and NICs may share the table.
    atomics: Mutex<()>,
}

impl AcceleratedRegions {
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn get(&self, key: u32) -> Option<&Accelerated> {
        self.by_key.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut Accelerated> {
        self.by_key.get_mut(&key)
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn insert(&mut self, key: u32, region: Accelerated) {
        self.by_key.insert(key, region);
    }

    /// Locks out other atomics.
    pub(super) fn lock_atomics(&self) -> MutexGuard<'_, ()> {
        self.atomics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remove(&mut self, key: u32) -> bool {
        self.by_key.remove(&key).is_some()
    }

    pub(super) fn uses(&self, pd: PdId) -> bool {
        self.by_key.values().any(|a| a.region.pd == pd)
    }
}
