//! The table of regions.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use irnic_transports::Payload;
use irnic_transports::qp::{Access, AtomicOp, Caller, GatherList, MemError, PdId, Sge};
use irnic_transports::room;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::accelerator::AcceleratedRegions;
use super::copy::copy_in;
use super::prefetch;
use super::region::{Backing, Mr, MrChanges, Region};
use super::windows::Windows;
use crate::error::{NicError, Object, RegisterError};
use crate::table::{Pd, Table};

/// The regions and protection domains of a device. Keys are random 32-bit numbers, so that none can be guessed from
/// others, and a stale one is not mistaken for its successor.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Regions {
    pub(super) regions: Vec<Option<Region>>,
    /// Open-addressing table from key to region index; index `u32::MAX` is free, `u32::MAX − 1` is a tombstone.
    pub(super) by_key: Vec<(u32, u32)>,
    pub(super) used: usize,
    pub(super) free: Vec<u32>,
    pub(crate) pds: Table<Pd>,
    /// State changed by work requests: NICs that share the table lock it.
    pub(super) windows: Mutex<Windows>,
    /// Regions of memory that only a driver can access.
    pub(super) accelerated: AcceleratedRegions,
    pub(super) limit: usize,
    pub(super) keys: StdRng,
}

/// Returns the right that an atomic needs.
pub(super) fn needed(op: AtomicOp) -> Access {
    if matches!(op, AtomicOp::Store(_)) { Access::REMOTE_WRITE } else { Access::REMOTE_ATOMIC }
}

pub(super) const FREE: u32 = u32::MAX;
const TOMBSTONE: u32 = u32::MAX - 1;

impl Regions {
    /// Largest region that the device allocates itself, bytes.
    pub(super) const MAX_OWNED: u64 = 1 << 40;

    pub(super) fn new(limit: usize, domains: usize, seed: [u8; 32]) -> Regions {
        Regions {
            pds: Table::new(domains),
            regions: Vec::new(),
            free: Vec::new(),
            by_key: vec![(0, FREE); 64],
            used: 0,
            windows: Mutex::default(),
            accelerated: AcceleratedRegions::default(),
            limit: limit.min((1 << 24) - 1),
            keys: StdRng::from_seed(seed),
        }
    }

    /// Locks the windows. They are consistent between any two calls.
    pub(super) fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn check(addr: u64, len: u64, access: Access) -> Result<(), RegisterError> {
        if addr.checked_add(len).is_none() {
            return Err(RegisterError::Range { addr, len });
        }
        let remote_writes = Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0;
        if access.0 & remote_writes != 0 && !access.allows(Access::LOCAL_WRITE) {
            return Err(RegisterError::Access);
        }
        Ok(())
    }

    /// Registers a region. `addr` is the address of its bytes, `iova` that of the first in requests.
    pub(super) fn register(
        &mut self,
        pd: PdId,
        addr: u64,
        len: u64,
        iova: u64,
        access: Access,
        backing: Backing,
    ) -> Result<Mr, RegisterError> {
        let iova = if access.allows(Access::ZERO_BASED) { 0 } else { iova };
        Self::check(addr, len, access)?;
        Self::check(iova, len, access)?;
        room::ensure(room::growth(&self.regions) + self.key_growth())?;
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.regions.len() < self.limit => {
                self.regions.push(None);
                self.regions.len() as u32 - 1
            }
            None => return Err(RegisterError::Full(self.limit)),
        };
        let shift = addr.wrapping_sub(iova);
        let key = self.draw_key();
        self.insert_key(key, index);
        let windows = AtomicU32::new(0);
        self.regions[index as usize] = Some(Region { pd, addr: iova, len, shift, access, windows, backing });
        Ok(Mr { lkey: key, rkey: key, addr: iova, len })
    }

    /// Draws a key that belongs to nothing.
    pub(super) fn draw_key(&mut self) -> u32 {
        loop {
            let key = self.keys.random::<u32>();
            let taken = self.find_key(key).is_some() || self.windows().owns(key) || self.accelerated.get(key).is_some();
            // 0 is what applications forget to set, or take for none.
            if key != 0 && !taken {
                return key;
            }
        }
    }

    /// Changes the given properties of a region and keeps the rest, including the keys. On an error nothing is changed.
    ///
    /// # Safety
    /// As for [`Self::register_external`], if there is a new range.
    pub(crate) unsafe fn reregister(&mut self, mr: &Mr, changes: &MrChanges) -> Result<Mr, NicError> {
        if let Some(changed) = self.reregister_accelerated(mr, changes) {
            return changed;
        }
        let index = self.index_of(mr.lkey)?;
        let old = self.region(mr.lkey).ok_or(MemError::Key(mr.lkey))?;
        if old.is_bound() {
            return Err(NicError::InUse(Object::MemoryRegion));
        }
        let access = changes.access.unwrap_or(old.access);
        let (addr, len, iova) = match changes.translation {
            Some((addr, len, iova)) => (addr as u64, len, iova),
            None => (old.host_start(), old.len, old.addr),
        };
        let iova = if access.allows(Access::ZERO_BASED) { 0 } else { iova };
        Self::check(addr, len, access)?;
        Self::check(iova, len, access)?;
        let region = self.regions[index].as_mut().ok_or(MemError::Key(mr.lkey))?;
        if changes.translation.is_some() {
            region.backing = Backing::External;
        }
        region.pd = changes.pd.unwrap_or(region.pd);
        (region.addr, region.len, region.shift) = (iova, len, addr.wrapping_sub(iova));
        region.access = access;
        Ok(Mr { addr: iova, len, ..*mr })
    }

    /// Registers `len` zeroed bytes that the device allocates.
    pub(crate) fn register_owned(&mut self, pd: PdId, len: u64, access: Access) -> Result<Mr, RegisterError> {
        if len > Self::MAX_OWNED {
            return Err(RegisterError::Range { addr: 0, len });
        }
        room::ensure(usize::try_from(len).unwrap_or(usize::MAX))?;
        let mut bytes = vec![0u64; len.div_ceil(8) as usize].into_boxed_slice();
        let addr = bytes.as_mut_ptr() as u64;
        self.register(pd, addr, len, addr, access, Backing::Owned(bytes))
    }

    /// Registers a range that has a length but no memory.
    pub(crate) fn register_phantom(
        &mut self,
        pd: PdId,
        addr: u64,
        len: u64,
        access: Access,
    ) -> Result<Mr, RegisterError> {
        self.register(pd, addr, len, addr, access, Backing::Phantom)
    }

    /// Registers memory of the application.
    ///
    /// # Safety
    /// The range must stay readable and, with any write access, writable until the region is deregistered.
    pub(crate) unsafe fn register_external(
        &mut self,
        pd: PdId,
        addr: *mut u8,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegisterError> {
        self.register(pd, addr as u64, len, iova, access, Backing::External)
    }

    /// Deregisters a region. Work requests that still name it end with a protection error.
    pub(crate) fn deregister(&mut self, lkey: u32) -> Result<(), NicError> {
        if self.accelerated.remove(lkey) {
            return Ok(());
        }
        let index = self.index_of(lkey)?;
        let region = self.region(lkey).ok_or(MemError::Key(lkey))?;
        if region.is_bound() {
            return Err(NicError::InUse(Object::MemoryRegion));
        }
        self.remove_key(lkey);
        self.regions[index] = None;
        self.free.push(index as u32);
        Ok(())
    }

    /// Returns whether any region or window belongs to this protection domain.
    pub(crate) fn uses(&self, pd: PdId) -> bool {
        self.regions.iter().flatten().any(|r| r.pd == pd) || self.windows().uses(pd) || self.accelerated.uses(pd)
    }

    /// Returns the bytes of a region that the device allocated; `None` for other regions.
    pub(crate) fn owned(&self, mr: &Mr) -> Option<&[u8]> {
        let region = self.region(mr.lkey)?;
        let Backing::Owned(words) = &region.backing else { return None };
        // SAFETY: `words` covers at least `len` bytes, and any byte is a valid u8.
        Some(unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), region.len as usize) })
    }

    /// Returns the bytes of a region that the device allocated, mutably; `None` for other regions.
    pub(crate) fn owned_mut(&mut self, mr: &Mr) -> Option<&mut [u8]> {
        let index = self.index_of(mr.lkey).ok()?;
        let region = self.regions[index].as_mut()?;
        let Backing::Owned(words) = &mut region.backing else { return None };
        // SAFETY: as above, and the exclusive borrow of the device prevents any other access.
        Some(unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), region.len as usize) })
    }

    /// Prefetches what the other prefetching calls read.
    #[inline]
    pub(crate) fn fetch(&self) {
        prefetch::fetch(&self.regions);
    }

    /// Prefetches what [`Self::remote`] reads first.
    #[inline]
    pub(crate) fn fetch_key(&self, rkey: u32) {
        prefetch::fetch(&self.by_key[rkey as usize & (self.by_key.len() - 1)]);
        self.fetch_region();
    }

    /// Prefetches the first region; those of a NIC with more are not prefetched.
    #[inline]
    pub(crate) fn fetch_region(&self) {
        if let Some(first) = self.regions.first() {
            prefetch::fetch_all(first);
        }
    }

    /// Returns the region with this key.
    #[inline]
    pub(super) fn region(&self, key: u32) -> Option<&Region> {
        let slot = self.find_key(key)?;
        self.regions[self.by_key[slot].1 as usize].as_ref()
    }

    /// Returns the index in `regions` of the one with this key.
    pub(super) fn index_of(&self, key: u32) -> Result<usize, MemError> {
        let slot = self.find_key(key).ok_or(MemError::Key(key))?;
        Ok(self.by_key[slot].1 as usize)
    }

    /// Checks that a region or window permits the peer's access to these bytes by this key. Returns the address to
    /// access, 0 if there is no memory.
    #[inline(always)]
    pub(super) fn remote(&self, by: Caller, rkey: u32, va: u64, len: u64, needed: Access) -> Result<u64, MemError> {
        let Some(region) = self.region(rkey) else { return self.through_window(by, rkey, va, len, needed) };
        region.check(rkey, by.pd, va, len, needed)?;
        Ok(region.host_addr(va))
    }

    #[inline]
    pub(super) fn find_key(&self, rkey: u32) -> Option<usize> {
        let mask = self.by_key.len() - 1;
        let mut slot = rkey as usize & mask;
        loop {
            match self.by_key[slot] {
                (_, FREE) => return None,
                (key, index) if key == rkey && index != TOMBSTONE => return Some(slot),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// Returns the bytes that adding a remote key may allocate: a new table with the live entries of the old one.
    pub(super) fn key_growth(&self) -> usize {
        let full = 2 * (self.used + 1) > self.by_key.len();
        if full { 10 * (self.used + 1) * size_of::<(u32, u32)>() } else { 0 }
    }

    pub(super) fn insert_key(&mut self, rkey: u32, index: u32) {
        // At most half full, tombstones included.
        if 2 * (self.used + 1) > self.by_key.len() {
            let live: Vec<_> = self.by_key.iter().copied().filter(|&(_, i)| i < TOMBSTONE).collect();
            let slots = (4 * (live.len() + 1)).next_power_of_two().max(64);
            self.by_key = vec![(0, FREE); slots];
            self.used = 0;
            for (key, index) in live {
                self.insert_key(key, index);
            }
        }
        let mask = self.by_key.len() - 1;
        let mut slot = rkey as usize & mask;
        while self.by_key[slot].1 != FREE {
            slot = (slot + 1) & mask;
        }
        self.by_key[slot] = (rkey, index);
        self.used += 1;
    }

    pub(super) fn remove_key(&mut self, rkey: u32) {
        if let Some(slot) = self.find_key(rkey) {
            self.by_key[slot].1 = TOMBSTONE;
        }
    }

    /// Iterates over the parts of `sges` covered by `len` bytes from `offset`, as (address to access, bytes).
    #[inline]
    pub(super) fn walk(
        &self,
        pd: PdId,
        sges: &[Sge],
        mut offset: u64,
        len: u64,
        needed: Access,
        mut each: impl FnMut(u64, u32),
    ) -> Result<(), MemError> {
        let mut left = len;
        for sge in sges {
            if left == 0 {
                break;
            }
            if offset >= u64::from(sge.len) {
                offset -= u64::from(sge.len);
                continue;
            }
            let take = (u64::from(sge.len) - offset).min(left);
            let addr = sge.addr.wrapping_add(offset);
            let region = self.region(sge.lkey).ok_or(MemError::Key(sge.lkey))?;
            region.check(sge.lkey, pd, addr, take, needed)?;
            each(region.host_addr(addr), take as u32);
            left -= take;
            offset = 0;
        }
        if left > 0 {
            let key = sges.last().map_or(0, |s| s.lkey);
            return Err(MemError::Bounds { key, addr: 0, len });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn gather_local(
        &self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        len: u32,
        out: &mut GatherList,
    ) -> Result<(), MemError> {
        self.walk(pd, sges, offset, u64::from(len), Access(0), |addr, len| out.push(addr, len))
    }

    #[inline]
    pub(crate) fn gather_remote(
        &self,
        by: Caller,
        rkey: u32,
        va: u64,
        len: u32,
        out: &mut GatherList,
    ) -> Result<(), MemError> {
        let addr = self.remote(by, rkey, va, u64::from(len), Access::REMOTE_READ)?;
        out.push(addr, len);
        Ok(())
    }

    #[inline]
    pub(crate) fn place_local(
        &self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        payload: &Payload<'_>,
    ) -> Result<(), MemError> {
        let len = payload.len() as u64;
        // All or nothing: check first, unless one element holds everything.
        if !matches!(sges, [only] if offset.saturating_add(len) <= u64::from(only.len)) {
            self.walk(pd, sges, offset, len, Access::LOCAL_WRITE, |_, _| ())?;
        }
        let mut done = 0;
        self.walk(pd, sges, offset, len, Access::LOCAL_WRITE, |addr, len| {
            // SAFETY: `walk` has checked that the range lies in a live region with write access.
            unsafe { copy_in(payload, done, addr, len as usize) };
            done += len as usize;
        })
    }

    #[inline]
    pub(crate) fn place_remote(
        &self,
        by: Caller,
        rkey: u32,
        va: u64,
        len: u64,
        payload: &Payload<'_>,
    ) -> Result<(), MemError> {
        let bytes = payload.len();
        let addr = self.remote(by, rkey, va, len.max(bytes as u64), Access::REMOTE_WRITE)?;
        // SAFETY: checked just now.
        unsafe { copy_in(payload, 0, addr, bytes) };
        Ok(())
    }

    #[inline]
    pub(crate) fn check_remote(
        &self,
        by: Caller,
        rkey: u32,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<(), MemError> {
        self.remote(by, rkey, va, len, needed).map(|_| ())
    }

    /// Checks a right that does not depend on the range.
    pub(crate) fn check_key(&self, by: Caller, rkey: u32, needed: Access) -> Result<(), MemError> {
        let Some(region) = self.region(rkey) else { return self.check_window_key(by, rkey, needed) };
        region.check(rkey, by.pd, region.addr, 0, needed)
    }

    pub(super) fn atomic(&self, by: Caller, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, MemError> {
        use std::sync::atomic::AtomicU64;
        let addr = self.remote(by, rkey, va, 8, needed(op))?;
        // Both: a region's addresses may be unrelated to the location of its bytes.
        if !va.is_multiple_of(8) || !addr.is_multiple_of(8) {
            return Err(MemError::Alignment(va));
        }
        if addr == 0 {
            return Ok(0);
        }
        // SAFETY: 8 aligned bytes in a live region with the required access; the application may race, hence the atomic
        // type.
        let cell = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
        Ok(match op {
            AtomicOp::Store(bytes) => cell.swap(u64::from_ne_bytes(bytes), Ordering::SeqCst),
            AtomicOp::FetchAdd { add } => cell.fetch_add(add, Ordering::SeqCst),
            AtomicOp::CompareSwap { compare, swap } => {
                match cell.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(before) | Err(before) => before,
                }
            }
        })
    }

    /// Invalidates the key of a type 2 window. A region's key stays valid until it is deregistered, as with rxe and
    /// mlx5: otherwise one peer could revoke it for all others.
    pub(crate) fn invalidate(&self, by: Caller, rkey: u32) -> Result<(), MemError> {
        if self.find_key(rkey).is_some() || self.accelerated.get(rkey).is_some() {
            return Err(MemError::Window("it is no window's key"));
        }
        self.invalidate_window(by, rkey)
    }
}
