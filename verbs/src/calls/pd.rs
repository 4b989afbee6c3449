//! Protection domains, thread domains, parent domains.

use std::ffi::c_int;

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::{invalid, pointer, refused, status, unsupported};
use crate::objects::{Context, Pd, Td};

/// ibv_alloc_pd(3).
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer("ibv_alloc_pd", || {
        // SAFETY: the caller's promise.
        let device = unsafe { Context::from_c(context) }.device();
        let id = device.lock_memory().nic().alloc_pd()?;
        Ok(Pd::create(context, device.clone(), id, None))
    })
}

/// ibv_dealloc_pd(3).
///
/// # Safety
/// `pd` exists.
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    status("ibv_dealloc_pd", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Pd::from_c(pd) }?;
        if this.is_used() {
            return Err(refused(libc::EBUSY, &"other objects still name the protection domain"));
        }
        match this.joins {
            None => {
                let mut memory = this.device.lock_memory();
                this.empty(memory.nic())?;
                memory.nic().dealloc_pd(this.id)?;
            }
            Some((pd, td)) => {
                // SAFETY: neither can be freed while this one refers to them.
                unsafe {
                    Pd::release(pd);
                    if let Some(td) = Td::from_c(td) {
                        td.release();
                    }
                }
            }
        }
        // SAFETY: created by `ibv_alloc_pd` or `alloc_parent_domain`.
        drop(unsafe { Box::from_raw(pd.cast::<Pd>()) });
        Ok(())
    })
}

/// ibv_alloc_td(3).
pub(super) unsafe extern "C" fn alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
    pointer("ibv_alloc_td", || {
        // SAFETY: the caller's promise.
        if unsafe { (*attr).comp_mask } != 0 {
            return Err(unsupported!("comp_mask is not 0"));
        }
        Ok(Td::create(context))
    })
}

/// ibv_dealloc_td(3).
pub(super) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    status("ibv_dealloc_td", || {
        // SAFETY: the caller's promise.
        if unsafe { Td::from_c(td) }.is_some_and(Td::is_used) {
            return Err(refused(libc::EBUSY, &"parent domains still name the thread domain"));
        }
        // SAFETY: created by `alloc_td`.
        drop(unsafe { Box::from_raw(td.cast::<Td>()) });
        Ok(())
    })
}

/// ibv_alloc_parent_domain(3). The application's allocators are for queues read by hardware; there are none here.
pub(super) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    pointer("ibv_alloc_parent_domain", || {
        // SAFETY: the caller's promise.
        let attr = unsafe { &*attr };
        let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        if attr.comp_mask & !known != 0 {
            return Err(unsupported!("comp_mask {:#x}: expected allocators and a context at most", attr.comp_mask));
        }
        // SAFETY: the caller's promise.
        let pd = unsafe { Pd::from_c(attr.pd) }?;
        if pd.context_ptr() != context {
            return Err(invalid!("the protection domain is another context's"));
        }
        pd.hold();
        // SAFETY: NULL or an existing thread domain.
        if let Some(td) = unsafe { Td::from_c(attr.td) } {
            td.hold();
        }
        Ok(Pd::create(context, pd.device.clone(), pd.id, Some((attr.pd, attr.td))))
    })
}
