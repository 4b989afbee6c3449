//! Memory windows.

use std::ffi::c_int;

use irnic_nic::MwKind;
use irnic_transports::qp::{SendData, SendWr};

use super::post::{bind, posted};
use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::{invalid, pointer, status};
use crate::objects::{Mw, Pd, Qp};

/// ibv_alloc_mw(3).
pub(super) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    pointer("ibv_alloc_mw", || {
        // SAFETY: the caller's promise.
        let domain = unsafe { Pd::from_c(pd) }?;
        let nic_kind = match kind {
            IBV_MW_TYPE_1 => MwKind::Type1,
            IBV_MW_TYPE_2 => MwKind::Type2,
            _ => return Err(invalid!("type {kind}: expected 1 or 2")),
        };
        let mw = domain.device.lock_memory().nic().alloc_mw(domain.id, nic_kind)?;
        Ok(Mw::create(domain, pd, &mw, kind))
    })
}

/// ibv_dealloc_mw(3).
pub(super) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    status("ibv_dealloc_mw", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Mw::from_c(mw) }?;
        this.device.lock_memory().nic().dealloc_mw(this.id)?;
        // SAFETY: the caller's promise; the NIC no longer knows it.
        unsafe { Mw::free(mw) };
        Ok(())
    })
}

/// ibv_bind_mw(3): windows of type 1 get a new key by each bind.
pub(super) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, how: *mut ibv_mw_bind) -> c_int {
    status("ibv_bind_mw", || {
        // SAFETY: the caller's promise.
        let (queue, this, how) = unsafe { (Qp::from_c(qp)?, Mw::from_c(mw)?, &*how) };
        if this.kind() != IBV_MW_TYPE_1 || !this.device.has(&queue.unit) {
            return Err(invalid!(
                "expected a window of type 1, of the queue pair's device; others are bound by a work request"
            ));
        }
        let mut state = queue.unit.lock();
        let rkey = state.nic().next_mw_rkey(this.id)?;
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
            remote_srqn: 0,
        };
        let outcome = posted(state.nic().post_send(queue.number(), &wr));
        queue.unit.done(state);
        outcome?;
        // SAFETY: the caller's promise.
        unsafe { (*mw).rkey = rkey };
        Ok(())
    })
}
