//! Memory windows.

use std::ffi::c_int;
use std::sync::Arc;

use irnic_nic::MwKind;
use irnic_transports::qp::{SendData, SendWr};

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::{Result, invalid, pointer, status};
use crate::pd::Pd;
use crate::post::{bind, errno};
use crate::qp::Qp;
use crate::unit::Unit;

/// A memory window.
#[repr(C)]
pub struct Mw {
    base: ibv_mw,
    unit: Arc<Unit>,
    /// The NIC's handle.
    pub id: u32,
}

impl Mw {
    /// The window behind a C pointer.
    ///
    /// # Safety
    /// `mw` exists.
    pub unsafe fn from_c<'a>(mw: *mut ibv_mw) -> Result<&'a Mw> {
        // SAFETY: `base` is the first member.
        unsafe { mw.cast::<Mw>().as_ref() }.ok_or_else(|| invalid!("the memory window is NULL"))
    }
}

/// ibv_alloc_mw(3).
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    pointer("ibv_alloc_mw", || {
        // SAFETY: the caller's promise.
        let domain = unsafe { Pd::from_c(pd) }?;
        let nic_kind = match kind {
            IBV_MW_TYPE_1 => MwKind::Type1,
            IBV_MW_TYPE_2 => MwKind::Type2,
            _ => return Err(invalid!("type {kind}: expected 1 or 2")),
        };
        let mw = domain.unit.lock().nic().alloc_mw(domain.id, nic_kind)?;
        domain.hold();
        let base = ibv_mw { context: domain.context(), pd, rkey: mw.rkey, handle: mw.handle, type_: kind };
        Ok(Box::into_raw(Box::new(Mw { base, unit: domain.unit.clone(), id: mw.handle })).cast())
    })
}

/// ibv_dealloc_mw(3).
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    status("ibv_dealloc_mw", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Mw::from_c(mw) }?;
        this.unit.lock().nic().dealloc_mw(this.id)?;
        // SAFETY: made by `alloc_mw`; its domain outlives it.
        unsafe {
            Pd::release(this.base.pd);
            drop(Box::from_raw(mw.cast::<Mw>()));
        }
        Ok(())
    })
}

/// ibv_bind_mw(3): windows of type 1 get a new key with each binding.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, how: *mut ibv_mw_bind) -> c_int {
    status("ibv_bind_mw", || {
        // SAFETY: the caller's promise.
        let (queue, this, how) = unsafe { (Qp::from_c(qp)?, Mw::from_c(mw)?, &*how) };
        if this.base.type_ != IBV_MW_TYPE_1 || !Arc::ptr_eq(&queue.unit, &this.unit) {
            return Err(invalid!(
                "expected a window of type 1, of the queue pair's device; others are bound by a work request"
            ));
        }
        let mut inner = queue.unit.lock();
        let rkey = inner.nic().next_mw_rkey(this.id)?;
        // SAFETY: the caller's promise.
        let (op, remote_addr, rkey) = unsafe { bind(mw, rkey, &how.bind_info) }?;
        let wr = SendWr {
            wr_id: how.wr_id,
            op,
            data: SendData::Sges(&[]),
            remote_addr,
            rkey,
            signaled: how.send_flags & IBV_SEND_SIGNALED != 0,
            solicited: false,
            fence: how.send_flags & IBV_SEND_FENCE != 0,
            to: None,
        };
        let posted = inner.nic().post_send(queue.number(), &wr)?.map_err(errno);
        queue.unit.done(inner);
        posted?;
        // SAFETY: the caller's promise.
        unsafe { (*mw).rkey = rkey };
        Ok(())
    })
}
