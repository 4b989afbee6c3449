//! Protection domains, thread domains, parent domains.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use irnic_transports::qp::PdId;

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::context::Context;
use crate::errno::{Result, invalid, pointer, refused, status, unsupported};
use crate::unit::Unit;

/// A protection domain, or a parent domain, which is another name for one.
#[repr(C)]
pub struct Pd {
    base: ibv_pd,
    /// Its processing unit.
    pub unit: Arc<Unit>,
    /// The NIC's handle.
    pub id: PdId,
    /// Of a parent domain: the protection and thread domains that it joins.
    joins: Option<(*mut ibv_pd, *mut ibv_td)>,
    /// What names this domain and the NIC does not count: parent domains that join it, address handles, and everything that
    /// was made with it if it is a parent domain.
    users: AtomicU32,
}

impl Pd {
    /// The domain behind a C pointer.
    ///
    /// # Safety
    /// `pd` exists.
    pub unsafe fn from_c<'a>(pd: *mut ibv_pd) -> Result<&'a Pd> {
        // SAFETY: `base` is the first member.
        unsafe { pd.cast::<Pd>().as_ref() }.ok_or_else(|| invalid!("the protection domain is NULL"))
    }

    /// Its context.
    pub fn context(&self) -> *mut ibv_context {
        self.base.context
    }

    /// An object that names this domain: it stays until [`Pd::release`].
    pub fn hold(&self) {
        change(&self.users, 1);
    }

    /// An object that named the domain is gone.
    ///
    /// # Safety
    /// `pd` was held, and exists.
    pub unsafe fn release(pd: *mut ibv_pd) {
        // SAFETY: the caller's promise.
        if let Ok(this) = unsafe { Pd::from_c(pd) } {
            change(&this.users, -1);
        }
    }
}

/// A thread domain: a promise of the application that one thread uses what is in it. It buys nothing here.
#[repr(C)]
struct Td {
    base: ibv_td,
    users: AtomicU32,
}

fn change(users: &AtomicU32, by: i32) {
    users.fetch_add(by as u32, Ordering::AcqRel);
}

/// ibv_alloc_pd(3).
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer("ibv_alloc_pd", || {
        // SAFETY: the caller's promise.
        let unit = unsafe { Context::from_c(context) }.unit().clone();
        let id = unit.lock().nic().alloc_pd()?;
        let base = ibv_pd { context, handle: id.0 };
        Ok(Box::into_raw(Box::new(Pd { base, unit, id, joins: None, users: AtomicU32::new(0) })).cast())
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
        if this.users.load(Ordering::Acquire) > 0 {
            return Err(refused(libc::EBUSY, &"other objects still name the protection domain"));
        }
        match this.joins {
            None => this.unit.lock().nic().dealloc_pd(this.id)?,
            Some((pd, td)) => {
                // SAFETY: neither can be freed while this joins them.
                unsafe {
                    Pd::release(pd);
                    if let Some(td) = td.cast::<Td>().as_ref() {
                        change(&td.users, -1);
                    }
                }
            }
        }
        // SAFETY: made by `ibv_alloc_pd` or `alloc_parent_domain`.
        drop(unsafe { Box::from_raw(pd.cast::<Pd>()) });
        Ok(())
    })
}

/// ibv_alloc_td(3).
pub(crate) unsafe extern "C" fn alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
    pointer("ibv_alloc_td", || {
        // SAFETY: the caller's promise.
        if unsafe { (*attr).comp_mask } != 0 {
            return Err(unsupported!("comp_mask is not 0"));
        }
        Ok(Box::into_raw(Box::new(Td { base: ibv_td { context }, users: AtomicU32::new(0) })).cast())
    })
}

/// ibv_dealloc_td(3).
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    status("ibv_dealloc_td", || {
        let td = td.cast::<Td>();
        // SAFETY: the caller's promise.
        if unsafe { (*td).users.load(Ordering::Acquire) } > 0 {
            return Err(refused(libc::EBUSY, &"parent domains still name the thread domain"));
        }
        // SAFETY: made by `alloc_td`.
        drop(unsafe { Box::from_raw(td) });
        Ok(())
    })
}

/// ibv_alloc_parent_domain(3). The application's allocators are for queues that hardware reads; there are none here.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
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
        if pd.context() != context {
            return Err(invalid!("the protection domain is another context's"));
        }
        pd.hold();
        // SAFETY: NULL or an existing thread domain.
        if let Some(td) = unsafe { attr.td.cast::<Td>().as_ref() } {
            change(&td.users, 1);
        }
        let this = Pd {
            base: ibv_pd { context, handle: pd.id.0 },
            unit: pd.unit.clone(),
            id: pd.id,
            joins: Some((attr.pd, attr.td)),
            users: AtomicU32::new(0),
        };
        Ok(Box::into_raw(Box::new(this)).cast())
    })
}
