//! `ibv_wr_*`: work requests built call by call, and posted together by `ibv_wr_complete`.

use std::ffi::{c_int, c_void};

use irnic_transports::qp::{SendOp, Service, Sge};
use irnic_transports::wire::Feth;

use super::post::{address, bind, posted};
use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::{Errno, Result, invalid, refused, status, unsupported};
use crate::gpu;
use crate::objects::{Batch, Data, Qp, Request};

/// Rejects operations that a service does not have.
pub(super) fn check(service: Service, ops: u64) -> Result<()> {
    let send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    let write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let local = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
    let reliable = send
        | write
        | local
        | IBV_QP_EX_WITH_SEND_WITH_INV
        | IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    let can = match service {
        Service::Ud => send,
        Service::Uc => send | write | local | IBV_QP_EX_WITH_SEND_WITH_INV,
        Service::XrcTarget => 0,
        Service::Rc => reliable | IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH,
        Service::XrcInitiator => reliable,
    };
    if ops & !u64::from(can) != 0 {
        Err(unsupported!("send_ops_flags {ops:#x}: a {service:?} queue pair does at most {can:#x}"))
    } else {
        Ok(())
    }
}

/// Fills the function table.
pub(super) fn fill(ex: &mut ibv_qp_ex) {
    ex.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    ex.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    ex.wr_bind_mw = Some(wr_bind_mw);
    ex.wr_local_inv = Some(wr_local_inv);
    ex.wr_rdma_read = Some(wr_rdma_read);
    ex.wr_rdma_write = Some(wr_rdma_write);
    ex.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    ex.wr_send = Some(wr_send);
    ex.wr_send_imm = Some(wr_send_imm);
    ex.wr_send_inv = Some(wr_send_inv);
    ex.wr_send_tso = Some(wr_send_tso);
    ex.wr_set_ud_addr = Some(wr_set_ud_addr);
    ex.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    ex.wr_set_inline_data = Some(wr_set_inline_data);
    ex.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    ex.wr_set_sge = Some(wr_set_sge);
    ex.wr_set_sge_list = Some(wr_set_sge_list);
    ex.wr_start = Some(wr_start);
    ex.wr_complete = Some(wr_complete);
    ex.wr_abort = Some(wr_abort);
    ex.wr_atomic_write = Some(wr_atomic_write);
    ex.wr_flush = Some(wr_flush);
}

/// Changes the batch of a queue pair; an error is kept until `ibv_wr_complete`.
unsafe fn with(qp: *mut ibv_qp_ex, change: impl FnOnce(&mut Batch) -> Result<()>) {
    status("ibv_wr_*", || {
        // SAFETY: `ex` is the first member of a `Qp`, which the caller promises to exist.
        let this = unsafe { Qp::from_c(qp.cast()) }?;
        let mut batch = this.batch.lock();
        if let Err(e) = change(&mut batch) {
            batch.failure.get_or_insert(e);
        }
        Ok(())
    });
}

/// Begins a work request with the `wr_id` and flags set by the application.
unsafe fn begin(qp: *mut ibv_qp_ex, op: Result<SendOp>, remote_addr: u64, rkey: u32) {
    // SAFETY: the caller's promise.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    // SAFETY: passed on.
    unsafe {
        with(qp, |batch| {
            let op = op?;
            batch.requests.push(Request {
                wr_id,
                flags,
                op,
                remote_addr,
                rkey,
                to: None,
                remote_srqn: 0,
                data: Data::Sges(0..0),
            });
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: `ex` is the first member of a `Qp`, which the caller promises to exist.
    unsafe {
        (*qp.cast::<Qp>()).turn.take();
        (*qp.cast::<Qp>()).batch.lock().clear();
    }
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: `ex` is the first member of a `Qp`, which the caller promises to exist.
    unsafe {
        if (*qp.cast::<Qp>()).turn.held() {
            (*qp.cast::<Qp>()).batch.lock().clear();
            (*qp.cast::<Qp>()).turn.end();
        }
    }
}

/// Posts the whole batch, or nothing if one of its work requests is invalid.
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let outcome = status("ibv_wr_complete", || {
        // SAFETY: `ex` is the first member of a `Qp`, which the caller promises to exist.
        let this = unsafe { Qp::from_c(qp.cast()) }?;
        if !this.turn.held() {
            return Err(invalid!("there was no ibv_wr_start"));
        }
        let batch = this.batch.lock();
        if let Some(e) = batch.failure {
            return Err(e);
        }
        let mut state = this.unit.lock_to_post();
        let room = state.nic().qp(this.number()).ok_or_else(Qp::destroyed)?.send_room();
        if batch.requests.len() > room as usize {
            return Err(Errno(libc::ENOMEM));
        }
        let mut outcome = Ok(());
        for (before, request) in batch.requests.iter().enumerate() {
            outcome = posted(state.nic().post_send(this.number(), &batch.work_request(request)));
            if outcome.is_err() {
                state.nic().retract_sends(this.number(), before as u32)?;
                break;
            }
        }
        this.unit.posted(state, this.number(), this.sends_datagrams());
        outcome
    });
    // SAFETY: `ex` is the first member of a `Qp`, which the caller promises to exist.
    unsafe { (*qp.cast::<Qp>()).turn.end() };
    outcome
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: passed on.
    unsafe { begin(qp, Ok(SendOp::Send), 0, 0) };
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    // SAFETY: passed on.
    unsafe { begin(qp, Ok(SendOp::SendImm(u32::from_be(imm))), 0, 0) };
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: passed on.
    unsafe { begin(qp, Ok(SendOp::SendInvalidate(rkey)), 0, 0) };
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: passed on.
    unsafe { begin(qp, Ok(SendOp::Write), remote_addr, rkey) };
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm: u32) {
    // SAFETY: passed on.
    unsafe { begin(qp, Ok(SendOp::WriteImm(u32::from_be(imm))), remote_addr, rkey) };
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: passed on.
    unsafe { begin(qp, Ok(SendOp::Read), remote_addr, rkey) };
}

unsafe extern "C" fn wr_atomic_cmp_swp(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64, swap: u64) {
    // SAFETY: passed on.
    unsafe { begin(qp, Ok(SendOp::CompareSwap { compare, swap }), remote_addr, rkey) };
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64) {
    // SAFETY: passed on.
    unsafe { begin(qp, Ok(SendOp::FetchAdd { add }), remote_addr, rkey) };
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: passed on.
    unsafe { begin(qp, Ok(SendOp::LocalInvalidate(rkey)), 0, 0) };
}

unsafe extern "C" fn wr_bind_mw(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) {
    // SAFETY: the caller's promise.
    unsafe {
        match bind(mw, rkey, &*info) {
            Ok((op, addr, rkey)) => begin(qp, Ok(op), addr, rkey),
            Err(e) => begin(qp, Err(e), 0, 0),
        }
    };
}

unsafe extern "C" fn wr_send_tso(qp: *mut ibv_qp_ex, _header: *mut c_void, _len: u16, _mss: u16) {
    // SAFETY: passed on.
    unsafe { begin(qp, Err(unsupported!("TSO is not there")), 0, 0) };
}

/// ibv_wr_atomic_write(3): the eight bytes are read immediately.
unsafe extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, value: *const c_void) {
    // SAFETY: the caller's promise.
    unsafe { begin(qp, Ok(SendOp::AtomicWrite(value.cast::<[u8; 8]>().read_unaligned())), remote_addr, rkey) };
}

/// ibv_wr_flush(3).
unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    len: usize,
    placement: u8,
    selectivity: u8,
) {
    let op = match u32::try_from(len) {
        Ok(len) if (Feth { placement, selectivity }).is_valid() => Ok(SendOp::Flush { len, placement, selectivity }),
        Ok(_) => {
            Err(invalid!("FLUSH of type {placement:#x}, level {selectivity}: expected GLOBAL, PERSISTENT or both"))
        }
        Err(_) => Err(invalid!("FLUSH of {len} bytes: expected fewer than 2\u{b3}\u{b2}")),
    };
    // SAFETY: passed on.
    unsafe { begin(qp, op, remote_addr, rkey) };
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, number: u32) {
    // SAFETY: passed on.
    unsafe {
        let kind = (*qp).qp_base.qp_type;
        with(qp, |batch| {
            if kind != IBV_QPT_XRC_SEND {
                return Err(invalid!("qp_type {kind} names no shared receive queue of the peer"));
            }
            batch.last()?.remote_srqn = number;
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        with(qp, |batch| {
            batch.last()?.to = Some(address(ah, qpn, qkey)?);
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, len: u32) {
    let only = ibv_sge { addr, length: len, lkey };
    // SAFETY: passed on.
    unsafe { wr_set_sge_list(qp, 1, &only) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, n: usize, list: *const ibv_sge) {
    // SAFETY: the caller's promise.
    unsafe {
        with(qp, |batch| {
            let start = batch.sges.len();
            let elements = (0..n).map(|i| &*list.add(i));
            batch.sges.extend(elements.map(|s| Sge { addr: s.addr, len: s.length, lkey: s.lkey }));
            let range = start..batch.sges.len();
            batch.last()?.data = Data::Sges(range);
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, len: usize) {
    let whole = ibv_data_buf { addr, length: len };
    // SAFETY: passed on.
    unsafe { wr_set_inline_data_list(qp, 1, &whole) };
}

unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, n: usize, list: *const ibv_data_buf) {
    // SAFETY: `ex` is the first member of a `Qp`; the caller's promise.
    let limit = unsafe { (*qp.cast::<Qp>()).init.cap.max_inline_data } as usize;
    // SAFETY: the caller's promise.
    unsafe {
        with(qp, |batch| {
            let buffers = || (0..n).map(|i| &*list.add(i));
            if buffers().try_fold(0usize, |sum, b| sum.checked_add(b.length)).is_none_or(|sum| sum > limit) {
                return Err(Errno(libc::ENOMEM));
            }
            let start = batch.bytes.len();
            for b in buffers().filter(|b| b.length > 0) {
                let end = batch.bytes.len();
                batch.bytes.resize(end + b.length, 0);
                gpu::read(b.addr as u64, &mut batch.bytes[end..]).map_err(|e| refused(libc::EFAULT, &e))?;
            }
            let range = start..batch.bytes.len();
            batch.last()?.data = Data::Inline(range);
            Ok(())
        });
    }
}
