//! Posting: converts C work requests to those of the NIC.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use irnic_nic::Nic;
use irnic_transports::Gather;
use irnic_transports::qp::{Address, MwBind, PostError, RecvWr, SendData, SendOp, SendWr, Sge};

use super::access::access;
use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::{Errno, Result, invalid, refused, status, unsupported};
use crate::gpu;
use crate::objects::{Ah, Mw, Qp, Srq};
use crate::runtime::State;

/// Returns the result of posting a work request: ENOMEM if there is no room now, EINVAL if there never will be.
#[inline]
pub(super) fn posted(outcome: std::result::Result<(), PostError>) -> Result<()> {
    outcome.map_err(|e| match e {
        PostError::Full(_) => Errno(libc::ENOMEM),
        e => refused(libc::EINVAL, &e),
    })
}

/// Room for converted scatter/gather elements: most requests have one, and the others are not initialised.
type Sges = [MaybeUninit<Sge>; Gather::MAX];

/// Returns the elements of a C list, converted into `room`.
///
/// # Safety
/// `n` elements at `list` may be read; they need not be aligned: those of libiscsi's packed structures are not.
#[inline]
unsafe fn convert(list: *const ibv_sge, n: c_int, room: &mut Sges) -> Result<&[Sge]> {
    let count = usize::try_from(n).ok().filter(|&n| n <= Gather::MAX);
    let count = count.ok_or_else(|| invalid!("num_sge = {n}: expected 0 to {}", Gather::MAX))?;
    for (i, to) in room[..count].iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let s = unsafe { list.add(i).read_unaligned() };
        to.write(Sge { addr: s.addr, len: s.length, lkey: s.lkey });
    }
    // SAFETY: as many were written.
    Ok(unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), count) })
}

/// Gathers inline data; returns its part of `room`.
///
/// # Safety
/// All elements may be read, unless they are registered memory of a GPU.
unsafe fn collect<'a>(sges: &[Sge], room: &'a mut [u8]) -> Result<&'a [u8]> {
    let mut len = 0;
    for s in sges.iter().filter(|s| s.len > 0) {
        let limit = room.len();
        let to = room.get_mut(len..len + s.len as usize);
        let to =
            to.ok_or_else(|| invalid!("more than {limit} bytes inline, which is the queue pair's max_inline_data"))?;
        // SAFETY: the caller's promise.
        unsafe { gpu::read(s.addr, to) }.map_err(|e| refused(libc::EFAULT, &e))?;
        len += s.len as usize;
    }
    Ok(&room[..len])
}

/// Returns operation, address and key of a work request that binds a memory window.
///
/// # Safety
/// Window and region exist.
pub(super) unsafe fn bind(mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> Result<(SendOp, u64, u32)> {
    // SAFETY: the caller's promise.
    let mw = unsafe { Mw::from_c(mw) }?;
    // SAFETY: the caller's promise; unbinding refers to no region.
    let lkey = unsafe { info.mr.as_ref() }.map_or(0, |mr| mr.lkey);
    let access = access(info.mw_access_flags as c_int)?;
    Ok(MwBind { mw: mw.id, rkey, lkey, addr: info.addr, len: info.length, access }.work_request())
}

/// Returns operation, address and key of a work request.
///
/// # Safety
/// The objects of the work request exist.
unsafe fn operation(wr: &ibv_send_wr) -> Result<(SendOp, u64, u32)> {
    // SAFETY: the opcode selects the members of the unions.
    unsafe {
        let imm = || u32::from_be(wr.data.imm_data);
        let (rdma, atomic) = (wr.wr.rdma, wr.wr.atomic);
        Ok(match wr.opcode {
            IBV_WR_SEND => (SendOp::Send, 0, 0),
            IBV_WR_SEND_WITH_IMM => (SendOp::SendImm(imm()), 0, 0),
            IBV_WR_SEND_WITH_INV => (SendOp::SendInvalidate(wr.data.invalidate_rkey), 0, 0),
            IBV_WR_RDMA_WRITE => (SendOp::Write, rdma.remote_addr, rdma.rkey),
            IBV_WR_RDMA_WRITE_WITH_IMM => (SendOp::WriteImm(imm()), rdma.remote_addr, rdma.rkey),
            IBV_WR_RDMA_READ => (SendOp::Read, rdma.remote_addr, rdma.rkey),
            IBV_WR_ATOMIC_CMP_AND_SWP => {
                let op = SendOp::CompareSwap { compare: atomic.compare_add, swap: atomic.swap };
                (op, atomic.remote_addr, atomic.rkey)
            }
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                (SendOp::FetchAdd { add: atomic.compare_add }, atomic.remote_addr, atomic.rkey)
            }
            IBV_WR_LOCAL_INV => (SendOp::LocalInvalidate(wr.data.invalidate_rkey), 0, 0),
            IBV_WR_BIND_MW => {
                let b = wr.extra.bind_mw;
                bind(b.mw, b.rkey, &b.bind_info)?
            }
            IBV_WR_ATOMIC_WRITE => (SendOp::AtomicWrite([0; 8]), rdma.remote_addr, rdma.rkey),
            IBV_WR_FLUSH => {
                return Err(unsupported!("opcode FLUSH: ibv_send_wr has no place for it; see ibv_wr_flush(3)"));
            }
            IBV_WR_TSO | IBV_WR_DRIVER1 => return Err(unsupported!("opcode {}: TSO is not there", wr.opcode)),
            other => return Err(invalid!("opcode {other} does not exist")),
        })
    }
}

/// Returns the destination of a datagram.
///
/// # Safety
/// `ah` exists or is NULL.
pub(super) unsafe fn address(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Result<Address> {
    // SAFETY: the caller's promise.
    let ah = unsafe { Ah::from_c(ah) }?;
    Ok(Address { path: ah.path, qpn: qpn & 0xff_ffff, qkey })
}

/// Returns the work request at `wr`, or None at the end of a list: a reference to it, or to a copy in `room` if it is
/// not aligned, as in a packed structure.
///
/// # Safety
/// `wr` is NULL or may be read while the reference lives.
#[inline]
unsafe fn aligned<T: Copy>(wr: *const T, room: &mut MaybeUninit<T>) -> Option<&T> {
    if wr.is_null() || wr.is_aligned() {
        // SAFETY: the caller's promise, and it is aligned.
        return unsafe { wr.as_ref() };
    }
    // SAFETY: the caller's promise.
    Some(room.write(unsafe { wr.read_unaligned() }))
}

/// Posts one work request.
///
/// # Safety
/// The objects of the work request exist.
unsafe fn post_one(state: &mut State, qp: &Qp, wr: &ibv_send_wr) -> Result<()> {
    // SAFETY: the caller's promise.
    let (op, remote_addr, rkey) = unsafe { operation(wr) }?;
    let mut room = [const { MaybeUninit::uninit() }; Gather::MAX];
    // SAFETY: the caller's promise.
    let sges = unsafe { convert(wr.sg_list, wr.num_sge, &mut room) }?;
    let has = |flag: u32| wr.send_flags & flag != 0;
    let to = if qp.sends_datagrams() {
        // SAFETY: the member of the union that UD uses.
        let ud = unsafe { wr.wr.ud };
        // SAFETY: the caller's promise.
        Some(unsafe { address(ud.ah, ud.remote_qpn, ud.remote_qkey) }?)
    } else {
        None
    };
    let remote_srqn = if qp.ex.qp_base.qp_type == IBV_QPT_XRC_SEND {
        // SAFETY: the union has one member.
        unsafe { wr.qp_type.xrc.remote_srqn }
    } else {
        0
    };
    let mut send = SendWr {
        wr_id: wr.wr_id,
        op,
        data: SendData::Sges(sges),
        remote_addr,
        rkey,
        signaled: has(IBV_SEND_SIGNALED),
        solicited: has(IBV_SEND_SOLICITED),
        fence: has(IBV_SEND_FENCE),
        to,
        remote_srqn,
    };
    let mut inline;
    if let SendOp::AtomicWrite(value) = &mut send.op {
        // The value is eight bytes of the application, read while posting.
        // SAFETY: the application's promise.
        let bytes = unsafe { collect(sges, value) }?.len();
        if bytes != 8 {
            return Err(invalid!("ATOMIC_WRITE of {bytes} bytes: expected 8"));
        }
        send.data = SendData::Sges(&[]);
    } else if has(IBV_SEND_INLINE) {
        send.data = match sges {
            [only] if only.len > 0 && !gpu::any_registered() => {
                // SAFETY: the application's promise for inline data.
                SendData::Inline(unsafe { std::slice::from_raw_parts(only.addr as *const u8, only.len as usize) })
            }
            list => {
                inline = [0; Nic::MAX_INLINE as usize];
                let limit = qp.init.cap.max_inline_data as usize;
                // SAFETY: the application's promise for inline data.
                SendData::Inline(unsafe { collect(list, &mut inline[..limit]) }?)
            }
        };
    }
    posted(state.nic().post_send(qp.number(), &send))
}

/// ibv_post_send(3).
pub(super) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    status("ibv_post_send", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Qp::from_c(qp) }?;
        let mut state = this.unit.lock_to_post();
        let mut outcome = Ok(());
        let mut room = MaybeUninit::uninit();
        while let Some(one) = {
            // SAFETY: a list that ends with NULL.
            unsafe { aligned(wr, &mut room) }
        } {
            // SAFETY: the caller's promise.
            outcome = unsafe { post_one(&mut state, this, one) };
            if outcome.is_err() {
                // SAFETY: the caller's promise.
                unsafe { bad_wr.write_unaligned(wr) };
                break;
            }
            wr = one.next;
        }
        this.unit.posted(state, this.number(), this.sends_datagrams());
        outcome
    })
}

/// Posts a list of receive work requests until one fails, which is stored in `bad_wr`.
///
/// # Safety
/// The list ends with NULL; `bad_wr` may be written.
unsafe fn post_list(
    mut wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(&RecvWr<'_>) -> Result<()>,
) -> Result<()> {
    let mut room = MaybeUninit::uninit();
    while let Some(one) = {
        // SAFETY: a list that ends with NULL.
        unsafe { aligned(wr, &mut room) }
    } {
        let mut room = [const { MaybeUninit::uninit() }; Gather::MAX];
        // SAFETY: the caller's promise.
        let posted = unsafe { convert(one.sg_list, one.num_sge, &mut room) }
            .and_then(|sges| post(&RecvWr { wr_id: one.wr_id, sges }));
        if let Err(e) = posted {
            // SAFETY: the caller's promise.
            unsafe { bad_wr.write_unaligned(wr) };
            return Err(e);
        }
        wr = one.next;
    }
    Ok(())
}

/// ibv_post_recv(3).
pub(super) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    status("ibv_post_recv", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Qp::from_c(qp) }?;
        let mut state = this.unit.lock_to_post();
        let number = this.number();
        // SAFETY: the caller's promise.
        let outcome = unsafe { post_list(wr, bad_wr, |wr| posted(state.nic().post_recv(number, wr))) };
        state.dispatch();
        outcome
    })
}

/// ibv_post_srq_recv(3).
pub(super) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    status("ibv_post_srq_recv", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Srq::from_c(srq) }?;
        let mut state = this.unit().lock_to_post();
        // SAFETY: the caller's promise.
        unsafe { post_list(wr, bad_wr, |wr| posted(state.nic().post_srq_recv(this.id, wr))) }
    })
}
