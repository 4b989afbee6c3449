//! Shared receive queues.

use std::ffi::{c_int, c_void};

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::{Result, invalid, pointer, status, unsupported};
use crate::objects::{Pd, Srq};

unsafe fn create(pd: *mut ibv_pd, srq_context: *mut c_void, attr: &mut ibv_srq_attr) -> Result<*mut ibv_srq> {
    // SAFETY: the caller's promise.
    let domain = unsafe { Pd::from_c(pd) }?;
    if attr.max_wr == 0 {
        return Err(invalid!("max_wr = 0: expected 1 or more"));
    }
    let (context, unit) = (domain.context(), domain.device.assign_unit());
    let mut srq = std::ptr::null_mut();
    unit.lock().create_srq(domain.id, attr.max_wr, attr.max_sge.max(1), context.owner(), |id| {
        srq = Srq::create(domain, pd, srq_context, unit.clone(), id);
        context.listener(srq, None)
    })?;
    Ok(srq)
}

/// ibv_create_srq(3).
///
/// # Safety
/// `pd` exists, `attr` may be read and written.
pub unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: passed on.
    pointer("ibv_create_srq", || unsafe { create(pd, (*attr).srq_context, &mut (*attr).attr) })
}

/// ibv_create_srq_ex(3): basic ones only.
pub(super) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    pointer("ibv_create_srq_ex", || {
        // SAFETY: the caller's promise.
        let attr = unsafe { &mut *attr };
        let mask = attr.comp_mask;
        if mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD) != 0
            || mask & IBV_SRQ_INIT_ATTR_TYPE != 0 && attr.srq_type != IBV_SRQT_BASIC
        {
            return Err(unsupported!("comp_mask {mask:#x}, srq_type {}: expected a basic queue", attr.srq_type));
        }
        if mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            return Err(invalid!("comp_mask {mask:#x} lacks the protection domain"));
        }
        // SAFETY: passed on.
        unsafe { create(attr.pd, attr.srq_context, &mut attr.attr) }
    })
}

/// ibv_modify_srq(3).
///
/// # Safety
/// `srq` exists, `attr` may be read.
pub unsafe extern "C" fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    status("ibv_modify_srq", || {
        // SAFETY: the caller's promise.
        let (this, attr) = unsafe { (Srq::from_c(srq)?, &*attr) };
        let mask = mask as u32;
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return Err(invalid!("mask {mask:#x}: expected MAX_WR, LIMIT or both"));
        }
        let max_wr = (mask & IBV_SRQ_MAX_WR != 0).then_some(attr.max_wr);
        let limit = (mask & IBV_SRQ_LIMIT != 0).then_some(attr.srq_limit);
        let mut state = this.unit.lock();
        state.nic().modify_srq(this.id, max_wr, limit)?;
        state.dispatch();
        Ok(())
    })
}

/// ibv_query_srq(3).
///
/// # Safety
/// `srq` exists, `attr` may be written.
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    status("ibv_query_srq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Srq::from_c(srq) }?;
        let (max_wr, max_sge, srq_limit) = this.unit.lock().nic().query_srq(this.id)?;
        // SAFETY: the caller's promise.
        unsafe { *attr = ibv_srq_attr { max_wr, max_sge, srq_limit } };
        Ok(())
    })
}

/// ibv_get_srq_num(3) is for XRC.
pub(super) unsafe extern "C" fn get_srq_num(_srq: *mut ibv_srq, _number: *mut u32) -> c_int {
    libc::EOPNOTSUPP
}

/// ibv_destroy_srq(3). Waits until the application has acknowledged the events that it took.
///
/// # Safety
/// `srq` exists.
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    status("ibv_destroy_srq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Srq::from_c(srq) }?;
        this.unit.lock().destroy_srq(this.id)?;
        // SAFETY: the caller's promise; nobody raises an event for it any more.
        unsafe { Srq::free(srq) };
        Ok(())
    })
}
