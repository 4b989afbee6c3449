//! Shared receive queues.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use irnic_transports::qp::SrqId;

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::context::Context;
use crate::errno::{Result, invalid, pointer, status, unsupported};
use crate::event::await_acks;
use crate::pd::Pd;
use crate::unit::Unit;

/// A shared receive queue.
#[repr(C)]
pub struct Srq {
    base: ibv_srq,
    /// Its processing unit.
    pub unit: Arc<Unit>,
    /// The NIC's handle.
    pub id: SrqId,
    /// Asynchronous events that the application has taken.
    pub delivered: AtomicU32,
}

impl Srq {
    /// Its context.
    pub fn context(&self) -> *mut ibv_context {
        self.base.context
    }

    /// The queue behind a C pointer.
    ///
    /// # Safety
    /// `srq` exists.
    pub unsafe fn from_c<'a>(srq: *mut ibv_srq) -> Result<&'a Srq> {
        // SAFETY: `base` is the first member.
        unsafe { srq.cast::<Srq>().as_ref() }.ok_or_else(|| invalid!("the shared receive queue is NULL"))
    }
}

unsafe fn create(pd: *mut ibv_pd, srq_context: *mut std::ffi::c_void, attr: &mut ibv_srq_attr) -> Result<*mut ibv_srq> {
    // SAFETY: the caller's promise.
    let domain = unsafe { Pd::from_c(pd) }?;
    if attr.max_wr == 0 {
        return Err(invalid!("max_wr = 0: expected 1 or more"));
    }
    let mut inner = domain.unit.lock();
    let id = inner.nic().create_srq(domain.id, attr.max_wr, attr.max_sge.max(1))?;
    let srq = Box::into_raw(Box::new(Srq {
        base: ibv_srq {
            context: domain.context(),
            srq_context,
            pd,
            handle: id.0,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            cond: libc::PTHREAD_COND_INITIALIZER,
            events_completed: 0,
        },
        unit: domain.unit.clone(),
        id,
        delivered: AtomicU32::new(0),
    }));
    inner.set_srq(id, srq);
    domain.hold();
    Ok(srq.cast())
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
pub(crate) unsafe extern "C" fn create_srq_ex(
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
        let mut inner = this.unit.lock();
        inner.nic().modify_srq(this.id, max_wr, limit)?;
        inner.dispatch();
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
pub(crate) unsafe extern "C" fn get_srq_num(_srq: *mut ibv_srq, _number: *mut u32) -> c_int {
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
        let own = srq.cast::<Srq>();
        {
            let mut inner = this.unit.lock();
            inner.nic().destroy_srq(this.id)?;
            inner.set_srq(this.id, std::ptr::null_mut());
        }
        // SAFETY: the context outlives the queue; nobody raises an event for it any more.
        unsafe {
            Context::from_c(this.base.context).events.purge(|e| e.concerns(own));
            let (mutex, cond) = (&raw mut (*srq).mutex, &raw mut (*srq).cond);
            await_acks(&raw mut (*srq).events_completed, mutex, cond, &this.delivered);
            Pd::release(this.base.pd);
            drop(Box::from_raw(own));
        }
        Ok(())
    })
}
