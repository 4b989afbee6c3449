//! Memory windows: access of peers to part of a region, granted and revoked in the order of a send queue (IBA 10.6.7).
//!
//! A window owns the 256 keys that differ in their low 8 bits, chosen by its user (type 2) or used in turn (type 1). No
//! region gets one of them.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use irnic_transports::qp::{Access, Caller, MemError, MwBind, PdId};
use irnic_transports::room::growth;
use rand::RngExt;

use super::regions::Regions;

/// The types of memory windows (IBA 10.6.7.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum MwKind {
    /// Type 1: belongs to a protection domain. Each binding takes the next key and replaces the previous binding.
    Type1,
    /// Type 2B: while bound, belongs to the queue pair that bound it. The user chooses the key and invalidates it.
    Type2,
}

/// A memory window: its handle, and its key until it is bound.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mw {
    /// Handle, for `mw` of [`MwBind`] and the calls on the device.
    pub handle: u32,
    /// Remote key, which gives peers no access before a binding.
    pub rkey: u32,
}

/// The binding of a window.
#[derive(Copy, Clone, Debug)]
struct Bound {
    /// Index of the region.
    region: u32,
    /// Address of the first byte, as in the region, and length.
    addr: u64,
    len: u64,
    access: Access,
    qpn: u32,
}

#[derive(Debug)]
struct Window {
    pd: PdId,
    kind: MwKind,
    rkey: u32,
    /// The key allocated last.
    drawn: u32,
    bound: Option<Bound>,
}

/// The windows of a device.
#[derive(Debug, Default)]
pub(super) struct Windows {
    slots: Vec<Option<Window>>,
    free: Vec<u32>,
    /// Windows by the upper 24 bits of their keys.
    by_prefix: BTreeMap<u32, u32>,
}

impl Windows {
    pub(crate) fn owns(&self, rkey: u32) -> bool {
        !self.by_prefix.is_empty() && self.by_prefix.contains_key(&(rkey >> 8))
    }

    pub(crate) fn uses(&self, pd: PdId) -> bool {
        self.slots.iter().flatten().any(|w| w.pd == pd)
    }

    fn get(&self, handle: u32) -> Result<&Window, MemError> {
        self.slots.get(handle as usize).and_then(Option::as_ref).ok_or(MemError::Window("no such window"))
    }

    fn get_mut(&mut self, handle: u32) -> Result<&mut Window, MemError> {
        self.slots.get_mut(handle as usize).and_then(Option::as_mut).ok_or(MemError::Window("no such window"))
    }

    /// Returns the window whose key is exactly `rkey` now.
    fn by_rkey(&self, rkey: u32) -> Option<(u32, &Window)> {
        let handle = *self.by_prefix.get(&(rkey >> 8))?;
        Some((handle, self.slots[handle as usize].as_ref().filter(|w| w.rkey == rkey)?))
    }
}

impl Regions {
    /// Random keys tried before the device is reported as full.
    const DRAWS: usize = 16;

    /// Returns the bytes that adding a window may allocate.
    pub(crate) fn window_growth(&self) -> usize {
        let windows = self.windows();
        growth(&windows.slots) + growth(&windows.free)
    }

    /// Allocates an unbound window; `None` if the device has no room for it.
    pub(crate) fn alloc_window(&mut self, pd: PdId, kind: MwKind) -> Option<Mw> {
        if self.windows().by_prefix.len() >= self.limit {
            return None;
        }
        let drawn: [u32; Self::DRAWS] = std::array::from_fn(|_| self.keys.random::<u32>() >> 8);
        let of_region = |key| self.find_key(key).is_some() || self.accelerated.get(key).is_some();
        let free = |p: &u32| *p != 0 && !self.windows().owns(p << 8) && !(0..256).any(|k| of_region(p << 8 | k));
        let prefix = drawn.into_iter().find(free)?;
        let windows = self.windows.get_mut().unwrap_or_else(PoisonError::into_inner);
        let handle = windows.free.pop().unwrap_or_else(|| {
            windows.slots.push(None);
            windows.slots.len() as u32 - 1
        });
        let rkey = prefix << 8;
        windows.by_prefix.insert(prefix, handle);
        windows.slots[handle as usize] = Some(Window { pd, kind, rkey, drawn: rkey, bound: None });
        Some(Mw { handle, rkey })
    }

    /// Deallocates a window, bound or not.
    pub(crate) fn free_window(&self, handle: u32) -> Result<(), MemError> {
        let mut windows = self.windows();
        self.unbind(&mut windows, handle)?;
        let prefix = windows.get(handle)?.rkey >> 8;
        windows.by_prefix.remove(&prefix);
        windows.slots[handle as usize] = None;
        windows.free.push(handle);
        Ok(())
    }

    /// Returns the key for the next binding of a type 1 window.
    pub(crate) fn next_window_key(&self, handle: u32) -> Result<u32, MemError> {
        let mut windows = self.windows();
        let window = windows.get_mut(handle)?;
        window.drawn = window.drawn & !0xff | window.drawn.wrapping_add(1) & 0xff;
        Ok(window.drawn)
    }

    fn unbind(&self, windows: &mut Windows, handle: u32) -> Result<(), MemError> {
        if let Some(bound) = windows.get_mut(handle)?.bound.take()
            && let Some(region) = &self.regions[bound.region as usize]
        {
            region.windows.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Binds a window. On an error nothing is changed.
    pub(crate) fn bind_window(&self, by: Caller, bind: &MwBind) -> Result<(), MemError> {
        let refuse = |why| Err(MemError::Window(why));
        let mut windows = self.windows();
        let window = windows.get(bind.mw)?;
        if window.pd != by.pd {
            // C10-72
            return Err(MemError::Domain(window.rkey));
        }
        if bind.rkey >> 8 != window.rkey >> 8 {
            return refuse("the new key differs from the current one in more than its low 8 bits");
        }
        let zero_based = bind.access.allows(Access::ZERO_BASED);
        match window.kind {
            // o10-36.2.2
            MwKind::Type1 if zero_based => return refuse("type 1 windows are not zero-based"),
            MwKind::Type1 if bind.len == 0 => {
                self.unbind(&mut windows, bind.mw)?;
                windows.get_mut(bind.mw)?.rkey = bind.rkey;
                return Ok(());
            }
            MwKind::Type1 => {}
            // o10-37.2.30
            MwKind::Type2 if window.bound.is_some() => return refuse("a type 2 window is bound until invalidated"),
            // o10-37.2.40
            MwKind::Type2 if bind.len == 0 => return refuse("a type 2 window is not unbound by an empty binding"),
            MwKind::Type2 => {}
        }
        if self.accelerated.get(bind.lkey).is_some() {
            return refuse("it cannot cover an accelerator's memory");
        }
        let region = self.region(bind.lkey).ok_or(MemError::Key(bind.lkey))?;
        // C10-73
        region.check(bind.lkey, by.pd, bind.addr, bind.len, Access::MW_BIND)?;
        // C10-74
        let writes = bind.access.0 & (Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0) != 0;
        if writes && !region.access.allows(Access::LOCAL_WRITE) {
            return Err(MemError::Rights { key: bind.lkey, needed: Access::LOCAL_WRITE });
        }
        self.unbind(&mut windows, bind.mw)?;
        region.windows.fetch_add(1, Ordering::AcqRel);
        let region = self.index_of(bind.lkey)? as u32;
        let window = windows.get_mut(bind.mw)?;
        window.rkey = bind.rkey;
        window.bound = Some(Bound { region, addr: bind.addr, len: bind.len, access: bind.access, qpn: by.qpn });
        Ok(())
    }

    /// Unbinds a type 2 window. Type 1 windows cannot be invalidated (o10-37.2.26), only bound anew.
    #[inline(never)]
    pub(super) fn invalidate_window(&self, by: Caller, rkey: u32) -> Result<(), MemError> {
        let mut windows = self.windows();
        let (handle, window) = windows.by_rkey(rkey).ok_or(MemError::Key(rkey))?;
        if window.pd != by.pd {
            return Err(MemError::Domain(rkey));
        }
        if window.kind == MwKind::Type1 {
            return Err(MemError::Window("a type 1 window cannot be invalidated"));
        }
        match window.bound {
            None => Err(MemError::Window("it is not bound")),
            Some(bound) if bound.qpn != by.qpn => Err(MemError::Window("it is bound to another queue pair")),
            Some(_) => self.unbind(&mut windows, handle),
        }
    }

    /// Unbinds the windows of a queue pair that is being destroyed.
    pub(crate) fn unbind_queue_pair(&self, qpn: u32) {
        let mut windows = self.windows();
        for handle in 0..windows.slots.len() as u32 {
            let of_pair = |w: &Window| w.kind == MwKind::Type2 && w.bound.is_some_and(|b| b.qpn == qpn);
            if windows.get(handle).is_ok_and(of_pair) {
                // Cannot fail: the window exists.
                _ = self.unbind(&mut windows, handle);
            }
        }
    }

    /// Checks a right by a window's key that does not depend on the range.
    pub(super) fn check_window_key(&self, by: Caller, rkey: u32, needed: Access) -> Result<(), MemError> {
        let bound = self.windows().by_rkey(rkey).and_then(|(_, window)| window.bound).ok_or(MemError::Key(rkey))?;
        let first = if bound.access.allows(Access::ZERO_BASED) { 0 } else { bound.addr };
        self.through_window(by, rkey, first, 0, needed).map(|_| ())
    }

    /// Checks access by a window's key; see [`Regions::remote`] for the arguments and the result.
    #[inline(never)]
    pub(super) fn through_window(
        &self,
        by: Caller,
        rkey: u32,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<u64, MemError> {
        let windows = self.windows();
        let (_, window) = windows.by_rkey(rkey).ok_or(MemError::Key(rkey))?;
        let bound = window.bound.ok_or(MemError::Key(rkey))?;
        if window.pd != by.pd {
            return Err(MemError::Domain(rkey));
        }
        if window.kind == MwKind::Type2 && bound.qpn != by.qpn {
            return Err(MemError::Window("it is bound to another queue pair"));
        }
        if !bound.access.allows(needed) {
            return Err(MemError::Rights { key: rkey, needed });
        }
        let first = if bound.access.allows(Access::ZERO_BASED) { 0 } else { bound.addr };
        let offset = va.wrapping_sub(first);
        if va < first || offset > bound.len || len > bound.len - offset {
            return Err(MemError::Bounds { key: rkey, addr: va, len });
        }
        let region = self.regions[bound.region as usize].as_ref().ok_or(MemError::Key(rkey))?;
        Ok(region.host_addr(bound.addr + offset))
    }
}
