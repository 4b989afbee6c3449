//! Memory regions.

use std::ffi::c_void;
use std::sync::Arc;

use irnic_nic::Mr as NicMr;
use irnic_transports::qp::Access;

use super::pd::Pd;
use crate::abi::structs::*;
use crate::errno::{Errno, Result, invalid};
use crate::gpu::Registered;
use crate::runtime::DeviceRuntime;

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    /// The structure that C sees.
    pub(crate) base: ibv_mr,
    /// The device. A region is known to all of its units.
    pub(crate) device: Arc<DeviceRuntime>,
    /// The NIC's handle.
    pub(crate) mr: NicMr,
    /// The rights; `None` for a null region, which cannot be changed.
    pub(crate) access: Option<Access>,
    /// If it is memory of a GPU.
    pub(crate) gpu: Option<Registered>,
}

impl Mr {
    /// Creates the object of a region registered in the NIC.
    pub(crate) fn create(
        domain: &Pd,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        mr: NicMr,
        access: Access,
    ) -> *mut ibv_mr {
        domain.hold();
        Mr::boxed(domain, pd, (addr, length), mr, Some(access), None)
    }

    /// Creates the object of a region of a GPU's memory.
    pub(crate) fn of_gpu(
        domain: &Pd,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        mr: NicMr,
        access: Access,
        registered: Registered,
    ) -> *mut ibv_mr {
        domain.hold();
        Mr::boxed(domain, pd, (addr, length), mr, Some(access), Some(registered))
    }

    /// Creates the object of a null region, which does not keep its domain from being freed.
    pub(crate) fn null(domain: &Pd, pd: *mut ibv_pd, mr: NicMr) -> *mut ibv_mr {
        Mr::boxed(domain, pd, (std::ptr::null_mut(), usize::MAX), mr, None, None)
    }

    fn boxed(
        domain: &Pd,
        pd: *mut ibv_pd,
        (addr, length): (*mut c_void, usize),
        mr: NicMr,
        access: Option<Access>,
        gpu: Option<Registered>,
    ) -> *mut ibv_mr {
        let (context, handle) = (domain.context_ptr(), mr.lkey);
        let base = ibv_mr { context, pd, addr, length, handle, lkey: mr.lkey, rkey: mr.rkey };
        Box::into_raw(Box::new(Mr { base, device: domain.device.clone(), mr, access, gpu })).cast()
    }

    /// Returns the region behind a C pointer.
    ///
    /// # Safety
    /// `mr` exists or is NULL.
    pub(crate) unsafe fn from_c<'a>(mr: *mut ibv_mr) -> Result<&'a Mr> {
        // SAFETY: `base` is the first member.
        unsafe { mr.cast::<Mr>().as_ref() }.ok_or_else(null)
    }

    /// Returns the region behind a C pointer mutably.
    ///
    /// # Safety
    /// `mr` exists or is NULL, and has no other user meanwhile.
    pub(crate) unsafe fn from_c_mut<'a>(mr: *mut ibv_mr) -> Result<&'a mut Mr> {
        // SAFETY: `base` is the first member.
        unsafe { mr.cast::<Mr>().as_mut() }.ok_or_else(null)
    }

    /// Frees the object of a region.
    ///
    /// # Safety
    /// `mr` exists.
    pub(crate) unsafe fn free(mr: *mut ibv_mr) {
        // SAFETY: created by `boxed`; its domain outlives it unless it is a null region.
        unsafe {
            let this = Box::from_raw(mr.cast::<Mr>());
            if this.access.is_some() {
                Pd::release(this.base.pd);
            }
        }
    }
}

fn null() -> Errno {
    invalid!("the memory region is NULL")
}
