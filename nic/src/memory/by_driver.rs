//! Access to the regions of accelerators' memory.

use std::sync::Arc;

use irnic_transports::qp::{Access, AtomicOp, MemError, PdId, Sge};

use super::accelerator::{Accelerated, Accelerator};
use super::region::{Backing, Mr, MrChanges, Region};
use super::regions::{Regions, needed};
use crate::error::{NicError, RegisterError};

/// A part of a scatter/gather list.
pub(super) struct Part<'a> {
    /// The region in an accelerator, by its key; `None` for memory of the host.
    pub(super) region: Option<(u32, &'a Accelerated)>,
    /// Address to access, 0 if there is no memory.
    pub(super) addr: u64,
    pub(super) len: u32,
    /// Bytes of the element before the part, and from its beginning on.
    pub(super) before: u64,
    pub(super) rest: u64,
}

impl Regions {
    /// Registers memory of an accelerator.
    pub(crate) fn register_accelerated(
        &mut self,
        pd: PdId,
        (addr, len): (u64, u64),
        iova: u64,
        access: Access,
        driver: Arc<dyn Accelerator>,
    ) -> Result<Mr, RegisterError> {
        let iova = if access.allows(Access::ZERO_BASED) { 0 } else { iova };
        Self::check(addr, len, access)?;
        Self::check(iova, len, access)?;
        if self.accelerated.len() >= self.limit {
            return Err(RegisterError::Full(self.limit));
        }
        let key = self.draw_key();
        let (windows, shift) = (0.into(), addr.wrapping_sub(iova));
        let region = Region { pd, addr: iova, len, shift, access, windows, backing: Backing::External };
        self.accelerated.insert(key, Accelerated::new(region, driver));
        Ok(Mr { lkey: key, rkey: key, addr: iova, len })
    }

    /// Changes protection domain or rights of a region of an accelerator; `None` if the key belongs to none.
    pub(super) fn reregister_accelerated(&mut self, mr: &Mr, changes: &MrChanges) -> Option<Result<Mr, NicError>> {
        let region = &mut self.accelerated.get_mut(mr.lkey)?.region;
        if changes.translation.is_some() {
            return Some(Err(RegisterError::Kind.into()));
        }
        let access = changes.access.unwrap_or(region.access);
        if let Err(e) = Self::check(region.addr, region.len, access) {
            return Some(Err(e.into()));
        }
        if access.allows(Access::ZERO_BASED) {
            region.shift = region.host_start();
            region.addr = 0;
        }
        region.pd = changes.pd.unwrap_or(region.pd);
        region.access = access;
        Some(Ok(Mr { addr: region.addr, ..*mr }))
    }

    /// Iterates over the parts of `sges` covered by `len` bytes from `offset`, wherever their memory is.
    pub(super) fn walk_parts<'a>(
        &'a self,
        pd: PdId,
        sges: &[Sge],
        mut offset: u64,
        len: u64,
        needed: Access,
        mut each: impl FnMut(Part<'a>) -> Result<(), MemError>,
    ) -> Result<(), MemError> {
        let mut left = len;
        for sge in sges {
            let bytes = u64::from(sge.len);
            if left == 0 {
                break;
            }
            if offset >= bytes {
                offset -= bytes;
                continue;
            }
            let take = (bytes - offset).min(left);
            let va = sge.addr.wrapping_add(offset);
            let region = self.accelerated.get(sge.lkey).map(|region| (sge.lkey, region));
            let addr = match region {
                Some((key, region)) => region.check(key, pd, va, take, needed)?,
                None => {
                    let region = self.region(sge.lkey).ok_or(MemError::Key(sge.lkey))?;
                    region.check(sge.lkey, pd, va, take, needed)?;
                    region.host_addr(va)
                }
            };
            each(Part { region, addr, len: take as u32, before: offset, rest: bytes - offset })?;
            left -= take;
            offset = 0;
        }
        if left > 0 {
            let key = sges.last().map_or(0, |s| s.lkey);
            return Err(MemError::Bounds { key, addr: 0, len });
        }
        Ok(())
    }

    /// Executes an atomic by copies. Those of peers are atomic among each other; the accelerator's own are not seen.
    pub(super) fn atomic_by_copies(
        &self,
        pd: PdId,
        (key, region): (u32, &Accelerated),
        va: u64,
        op: AtomicOp,
    ) -> Result<u64, MemError> {
        let addr = region.check(key, pd, va, 8, needed(op))?;
        if !va.is_multiple_of(8) || !addr.is_multiple_of(8) {
            return Err(MemError::Alignment(va));
        }
        let _alone = self.accelerated.lock_atomics();
        let mut bytes = [0; 8];
        region.read(key, addr, &mut bytes)?;
        let before = u64::from_ne_bytes(bytes);
        let after = match op {
            AtomicOp::Store(bytes) => u64::from_ne_bytes(bytes),
            AtomicOp::FetchAdd { add } => before.wrapping_add(add),
            AtomicOp::CompareSwap { compare, swap } => {
                if before == compare {
                    swap
                } else {
                    return Ok(before);
                }
            }
        };
        region.write(key, addr, &after.to_ne_bytes())?;
        Ok(before)
    }
}
