//! Address handles.

use std::sync::Arc;

use irnic_transports::Path;

use super::pd::Pd;
use crate::abi::structs::*;
use crate::errno::{Result, invalid};
use crate::runtime::DeviceRuntime;

/// An address handle: the destination of a datagram.
#[repr(C)]
pub(crate) struct Ah {
    base: ibv_ah,
    /// Keeps the device alive.
    _device: Arc<DeviceRuntime>,
    /// Addresses of both ends.
    pub(crate) path: Path,
}

impl Ah {
    /// Creates an address handle in a protection domain.
    pub(crate) fn create(domain: &Pd, pd: *mut ibv_pd, path: Path) -> *mut ibv_ah {
        domain.hold();
        let base = ibv_ah { context: domain.context_ptr(), pd, handle: 0 };
        Box::into_raw(Box::new(Ah { base, _device: domain.device.clone(), path })).cast()
    }

    /// Returns the handle behind a C pointer.
    ///
    /// # Safety
    /// `ah` exists or is NULL.
    pub(crate) unsafe fn from_c<'a>(ah: *mut ibv_ah) -> Result<&'a Ah> {
        // SAFETY: `base` is the first member.
        unsafe { ah.cast::<Ah>().as_ref() }.ok_or_else(|| invalid!("a datagram needs an address handle"))
    }

    /// Frees an address handle.
    ///
    /// # Safety
    /// `ah` exists.
    pub(crate) unsafe fn free(ah: *mut ibv_ah) {
        // SAFETY: created by `create`, and its domain outlives it.
        unsafe {
            let ah = Box::from_raw(ah.cast::<Ah>());
            Pd::release(ah.base.pd);
        }
    }
}
