//! Shared receive queues.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use irnic_nic::NicError;

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::{Result, invalid, pointer, refused, status, unsupported};
use crate::objects::{Cq, Pd, Srq, Xrcd};

/// Creates a queue; in an XRC domain, if that and a completion queue are given.
///
/// # Safety
/// The objects passed exist or are NULL.
unsafe fn create(
    pd: *mut ibv_pd,
    xrc: Option<(*mut ibv_xrcd, *mut ibv_cq)>,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq> {
    // SAFETY: the caller's promise.
    let domain = unsafe { Pd::from_c(pd) }?;
    let xrcd = xrc.map_or(std::ptr::null_mut(), |(xrcd, _)| xrcd);
    let xrc = match xrc {
        None => None,
        // SAFETY: the caller's promise.
        Some((xrcd, cq)) => Some(unsafe { (Xrcd::from_c(xrcd)?.domain(), Cq::from_c(cq)?) }),
    };
    if attr.max_wr == 0 {
        return Err(invalid!("max_wr = 0: expected 1 or more"));
    }
    let (context, device) = (domain.context(), &domain.device);
    let foreign = || invalid!("XRC domain or completion queue is another device's than the protection domain");
    let place = match xrc {
        None => device.place(),
        Some((xrcd, _)) => device.place_in(xrcd.unit()).ok_or_else(foreign)?,
    };
    let handles = match xrc {
        None => None,
        Some((_, cq)) if !Arc::ptr_eq(cq.queue.device(), device) => return Err(foreign()),
        Some((xrcd, cq)) => Some((xrcd.id(), cq.queue.join(place.unit(), || cq.listener())?)),
    };
    let unit = place.unit().clone();
    let mut srq = std::ptr::null_mut();
    unit.lock().create_srq(domain.id, handles, attr.max_wr, attr.max_sge.max(1), context.owner(), |id| {
        // SAFETY: the caller's promise.
        srq = unsafe { Srq::create(domain, pd, xrcd, srq_context, place, id) };
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
    pointer("ibv_create_srq", || unsafe { create(pd, None, (*attr).srq_context, &mut (*attr).attr) })
}

/// ibv_create_srq_ex(3): basic ones, and those of an XRC domain.
pub(super) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    pointer("ibv_create_srq_ex", || {
        // SAFETY: the caller's promise.
        let attr = unsafe { &mut *attr };
        let mask = attr.comp_mask;
        let kind = if mask & IBV_SRQ_INIT_ATTR_TYPE != 0 { attr.srq_type } else { IBV_SRQT_BASIC };
        let xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | if kind == IBV_SRQT_XRC { xrc } else { 0 };
        if mask & !known != 0 || !matches!(kind, IBV_SRQT_BASIC | IBV_SRQT_XRC) {
            return Err(unsupported!("comp_mask {mask:#x}, srq_type {kind}: expected a queue of type BASIC or XRC"));
        }
        if mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            return Err(invalid!("comp_mask {mask:#x} lacks the protection domain"));
        }
        if kind == IBV_SRQT_XRC && mask & xrc != xrc {
            return Err(invalid!("comp_mask {mask:#x} lacks the XRC domain or the completion queue"));
        }
        let xrc = (kind == IBV_SRQT_XRC).then_some((attr.xrcd, attr.cq));
        // SAFETY: passed on.
        unsafe { create(attr.pd, xrc, attr.srq_context, &mut attr.attr) }
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
        let mut state = this.unit().lock();
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
        let (max_wr, max_sge, srq_limit) = this.unit().lock().nic().query_srq(this.id)?;
        // SAFETY: the caller's promise.
        unsafe { *attr = ibv_srq_attr { max_wr, max_sge, srq_limit } };
        Ok(())
    })
}

/// ibv_get_srq_num(3): the number of a queue in an XRC domain.
pub(super) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    status("ibv_get_srq_num", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Srq::from_c(srq) }?;
        let found = this.unit().lock().nic().srq_number(this.id).map_err(|e| match e {
            NicError::NotXrc => refused(libc::EOPNOTSUPP, &e),
            e => e.into(),
        })?;
        // SAFETY: the caller's promise.
        unsafe { *number = found };
        Ok(())
    })
}

/// ibv_destroy_srq(3). Waits until the application has acknowledged the events that it took.
///
/// # Safety
/// `srq` exists.
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    status("ibv_destroy_srq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Srq::from_c(srq) }?;
        this.unit().lock().destroy_srq(this.id)?;
        // SAFETY: the caller's promise; no further event is raised for it.
        unsafe { Srq::free(srq) };
        Ok(())
    })
}
