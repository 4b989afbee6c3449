//! Memory windows.

use std::sync::Arc;

use irnic_nic::Mw as NicMw;

use super::pd::Pd;
use crate::abi::structs::*;
use crate::errno::{Result, invalid};
use crate::runtime::DeviceRuntime;

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    base: ibv_mw,
    /// The device. A window is known to all of its units.
    pub(crate) device: Arc<DeviceRuntime>,
    /// The NIC's handle.
    pub(crate) id: u32,
}

impl Mw {
    /// Creates the object of a window allocated in the NIC; `kind` is the `ibv_mw_type`.
    pub(crate) fn create(domain: &Pd, pd: *mut ibv_pd, mw: &NicMw, kind: u32) -> *mut ibv_mw {
        domain.hold();
        let base = ibv_mw { context: domain.context_ptr(), pd, rkey: mw.rkey, handle: mw.handle, type_: kind };
        Box::into_raw(Box::new(Mw { base, device: domain.device.clone(), id: mw.handle })).cast()
    }

    /// Returns the window behind a C pointer.
    ///
    /// # Safety
    /// `mw` exists or is NULL.
    pub(crate) unsafe fn from_c<'a>(mw: *mut ibv_mw) -> Result<&'a Mw> {
        // SAFETY: `base` is the first member.
        unsafe { mw.cast::<Mw>().as_ref() }.ok_or_else(|| invalid!("the memory window is NULL"))
    }

    /// Returns the `ibv_mw_type`.
    pub(crate) fn kind(&self) -> u32 {
        self.base.type_
    }

    /// Frees the object of a window.
    ///
    /// # Safety
    /// `mw` exists.
    pub(crate) unsafe fn free(mw: *mut ibv_mw) {
        // SAFETY: created by `create`; its domain outlives it.
        unsafe {
            Pd::release((*mw).pd);
            drop(Box::from_raw(mw.cast::<Mw>()));
        }
    }
}
