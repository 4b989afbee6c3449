//! Queue pairs.

use std::ffi::c_int;
use std::sync::Arc;

use irnic_nic::{Nic, QpConfig};
use irnic_transports::qp::{Access, QpAttr, QpState, Service};
use irnic_transports::wire::Mtu;
use irnic_transports::{Psn, Time};

use super::{ah, qp_ex, xrc};
use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::device::DeviceInfo;
use crate::errno::{Result, invalid, pointer, status, unsupported};
use crate::objects::{Cq, Pd, Qp, Srq};

/// Returns the service of an `ibv_qp_type`.
fn service(kind: u32) -> Result<Service> {
    match kind {
        IBV_QPT_RC => Ok(Service::Rc),
        IBV_QPT_UC => Ok(Service::Uc),
        IBV_QPT_UD => Ok(Service::Ud),
        IBV_QPT_XRC_SEND => Ok(Service::XrcInitiator),
        IBV_QPT_XRC_RECV => Err(invalid!("qp_type XRC_RECV needs an XRC domain: see ibv_create_qp_ex(3)")),
        IBV_QPT_RAW_PACKET | IBV_QPT_DRIVER => Err(unsupported!("qp_type {kind}: expected RC, UC, UD or XRC")),
        _ => Err(invalid!("qp_type {kind} does not exist: expected RC, UC, UD or XRC")),
    }
}

/// Minimum capacity of a send queue: hardware drivers round up, and programs that request one entry rely on another
/// while the completion of the first is not polled (`ib_send_lat -e`).
const FEWEST_SENDS: u32 = 8;

/// Minimum of inline data in bytes, whatever was requested.
const INLINE_ANYWAY: u32 = 16;

unsafe fn create(pd: *mut ibv_pd, init: &mut ibv_qp_init_attr, send_ops: Option<u64>) -> Result<*mut ibv_qp> {
    // SAFETY: the caller's promise.
    let domain = unsafe { Pd::from_c(pd) }?;
    let service = service(init.qp_type)?;
    if let Some(ops) = send_ops {
        qp_ex::check(service, ops)?;
    }
    // SAFETY: the caller's promise.
    let (send_cq, recv_cq, srq) = unsafe {
        let srq = if init.srq.is_null() { None } else { Some(Srq::from_c(init.srq)?) };
        // An XRC initiator receives nothing.
        let recv_cq = if service == Service::XrcInitiator { init.send_cq } else { init.recv_cq };
        (Cq::from_c(init.send_cq)?, Cq::from_c(recv_cq)?, srq)
    };
    // Handles are valid only in their own unit.
    let device = &domain.device;
    let (send, recv) = (&send_cq.queue, &recv_cq.queue);
    let own = Arc::ptr_eq(send.device(), device) && Arc::ptr_eq(recv.device(), device);
    if !own || srq.is_some_and(|srq| !device.has(srq.unit())) {
        return Err(invalid!(
            "a completion queue or shared receive queue is another device's than the protection domain"
        ));
    }
    // A handle of another context is invalid in this one (uverbs_cmd.c).
    let context = domain.context_ptr();
    // SAFETY: they exist.
    let foreign = unsafe {
        (*init.send_cq).context != context
            || !init.recv_cq.is_null() && (*init.recv_cq).context != context
            || !init.srq.is_null() && (*init.srq).context != context
    };
    if foreign {
        return Err(invalid!(
            "a completion queue or shared receive queue is another context's than the protection domain"
        ));
    }
    // A queue pair is entirely in one unit: that of the receive queue that it shares, if any.
    let place = srq.and_then(|srq| device.place_in(srq.unit())).unwrap_or_else(|| device.place_between(send, recv));
    let unit = place.unit();
    let send_cq = send.join(unit, || send_cq.listener())?;
    let recv_cq = recv.join(unit, || recv_cq.listener())?;
    let srq = srq.map(|srq| srq.id);
    let cap = &mut init.cap;
    if srq.is_some() || service == Service::XrcInitiator {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    // The size of a scatter/gather element, as in rxe (rxe_qp_init_req): rdma_xclient sends 16 bytes inline without
    // having requested it.
    cap.max_inline_data = cap.max_inline_data.max(INLINE_ANYWAY);
    cap.max_send_wr = cap.max_send_wr.max(FEWEST_SENDS);
    let config = QpConfig {
        service,
        pd: domain.id,
        send_cq,
        recv_cq,
        srq,
        xrcd: None,
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge.max(1),
        max_recv_sge: cap.max_recv_sge.max(1),
        max_inline: cap.max_inline_data,
        sq_sig_all: init.sq_sig_all != 0,
        transport: domain.device.info().config.transport,
    };
    // SAFETY: all-zero: numbers, and pointers that may be NULL.
    let mut ex: ibv_qp_ex = unsafe { std::mem::zeroed() };
    let base = &mut ex.qp_base;
    (base.context, base.qp_context, base.pd) = (domain.context_ptr(), init.qp_context, pd);
    (base.send_cq, base.recv_cq, base.srq) = (init.send_cq, init.recv_cq, init.srq);
    qp_ex::fill(&mut ex);
    let context = domain.context();
    let mut qp = std::ptr::null_mut();
    unit.lock().create_qp(&config, context.owner(), |number| {
        qp = Qp::create(ex, unit.clone(), number, init, send_ops.is_some());
        context.listener(qp, None)
    })?;
    domain.hold();
    Ok(qp.cast())
}

/// ibv_create_qp(3).
///
/// # Safety
/// `pd` exists, `init` may be read and written and names existing queues.
pub unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: passed on.
    pointer("ibv_create_qp", || unsafe { create(pd, &mut *init, None) })
}

/// ibv_create_qp_ex(3).
pub(super) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    pointer("ibv_create_qp_ex", || {
        // SAFETY: the caller's promise.
        let attr = unsafe { &mut *attr };
        let mask = attr.comp_mask;
        let target = attr.qp_type == IBV_QPT_XRC_RECV;
        let known = IBV_QP_INIT_ATTR_PD
            | IBV_QP_INIT_ATTR_CREATE_FLAGS
            | if target { IBV_QP_INIT_ATTR_XRCD } else { IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
        if mask & !known != 0 || mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && attr.create_flags != 0 {
            return Err(unsupported!(
                "comp_mask {mask:#x}, create_flags {:#x}: expected PD and SEND_OPS_FLAGS, or for XRC_RECV XRCD",
                attr.create_flags
            ));
        }
        if target && mask & IBV_QP_INIT_ATTR_XRCD == 0 {
            return Err(invalid!("comp_mask {mask:#x} lacks the XRC domain"));
        }
        if !target && mask & IBV_QP_INIT_ATTR_PD == 0 {
            return Err(invalid!("comp_mask {mask:#x} lacks the protection domain"));
        }
        let send_ops = (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0).then_some(attr.send_ops_flags);
        let mut init = ibv_qp_init_attr {
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
        };
        // SAFETY: passed on.
        let qp = unsafe {
            if target {
                let pd = if mask & IBV_QP_INIT_ATTR_PD != 0 { attr.pd } else { std::ptr::null_mut() };
                xrc::create_target(attr.xrcd, pd, &mut init)
            } else {
                create(attr.pd, &mut init, send_ops)
            }
        }?;
        attr.cap = init.cap;
        Ok(qp)
    })
}

/// ibv_qp_to_qp_ex(3): NULL for a queue pair that was not created for `ibv_wr_*`.
///
/// # Safety
/// `qp` exists.
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller's promise.
    match unsafe { Qp::from_c(qp) } {
        Ok(this) if this.extended => qp.cast(),
        _ => std::ptr::null_mut(),
    }
}

/// Returns the state of an `ibv_qp_state`.
fn state(code: u32) -> Result<QpState> {
    Ok(match code {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_SQE => QpState::Sqe,
        IBV_QPS_ERR => QpState::Err,
        _ => return Err(invalid!("state {code} does not exist")),
    })
}

/// Returns the `ibv_qp_state` of a state.
pub(super) fn state_code(state: QpState) -> u32 {
    match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        QpState::Rts => IBV_QPS_RTS,
        QpState::Sqd => IBV_QPS_SQD,
        QpState::Sqe => IBV_QPS_SQE,
        QpState::Err => IBV_QPS_ERR,
    }
}

/// Supported attributes. An alternate path is rejected: there is one port, and no path migration.
const KNOWN: u32 = IBV_QP_STATE
    | IBV_QP_CUR_STATE
    | IBV_QP_EN_SQD_ASYNC_NOTIFY
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_PKEY_INDEX
    | IBV_QP_PORT
    | IBV_QP_QKEY
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_PATH_MIG_STATE
    | IBV_QP_DEST_QPN
    | IBV_QP_RATE_LIMIT;

/// Returns the attributes that Linux ignores: those of the half that a queue pair of an XRC connection does not have
/// (`modify_qp_mask` in uverbs_cmd.c).
fn dropped(qp_type: u32) -> u32 {
    match qp_type {
        IBV_QPT_XRC_SEND => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QPT_XRC_RECV => IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
        _ => 0,
    }
}

/// ibv_modify_qp(3).
///
/// # Safety
/// `qp` exists, `attr` may be read.
pub unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    status("ibv_modify_qp", || {
        // SAFETY: the caller's promise.
        let (this, attr) = unsafe { (Qp::from_c(qp)?, &*attr) };
        let mask = mask as u32;
        if mask & !KNOWN != 0 {
            return Err(match mask & (IBV_QP_ALT_PATH | IBV_QP_CAP) {
                0 => invalid!("attribute mask {mask:#x}: there is nothing with the bits {:#x}", mask & !KNOWN),
                _ => unsupported!("alternate paths and queues of another size are not there (mask {mask:#x})"),
            });
        }
        let mask = mask & !dropped(this.init.qp_type);
        let has = |flag: u32| mask & flag != 0;
        let ends = has(IBV_QP_STATE) && matches!(attr.qp_state, IBV_QPS_ERR | IBV_QPS_RESET);
        let mut locked = if ends { this.unit.lock_to_end() } else { this.unit.lock() };
        let current = locked.nic().qp(this.number()).ok_or_else(Qp::destroyed)?.state();
        if has(IBV_QP_CUR_STATE) && state(attr.cur_qp_state)? != current {
            return Err(invalid!("cur_qp_state {:?}: the queue pair is in {current:?}", state(attr.cur_qp_state)?));
        }
        if has(IBV_QP_PATH_MIG_STATE) && attr.path_mig_state != IBV_MIG_MIGRATED {
            return Err(unsupported!("path_mig_state {}: there is no path migration", attr.path_mig_state));
        }
        let changes = changes(this, attr, mask)?;
        if ends {
            locked.say_goodbye(&[this.number()]);
        }
        locked.nic().modify_qp(this.number(), &changes)?;
        if has(IBV_QP_RATE_LIMIT) {
            let time = locked.nic_time();
            set_rate(locked.nic(), time, this.number(), attr.rate_limit)?;
        }
        this.user_attr.lock().update(attr, mask);
        let state = locked.nic().qp(this.number()).map_or(IBV_QPS_ERR, |q| state_code(q.state()));
        // SAFETY: the caller's promise; the application serializes modifications.
        unsafe { (*qp).state = state };
        this.unit.done(locked);
        Ok(())
    })
}

/// Returns the NIC's attributes selected by `mask`.
fn changes(qp: &Qp, attr: &ibv_qp_attr, mask: u32) -> Result<QpAttr> {
    let has = |flag: u32| mask & flag != 0;
    let info = qp.unit.info();
    Ok(QpAttr {
        state: has(IBV_QP_STATE).then(|| state(attr.qp_state)).transpose()?,
        access: has(IBV_QP_ACCESS_FLAGS).then_some(Access(attr.qp_access_flags & REMOTE)),
        pkey_index: has(IBV_QP_PKEY_INDEX).then_some(attr.pkey_index),
        port: has(IBV_QP_PORT).then_some(attr.port_num),
        path: has(IBV_QP_AV)
            .then(|| {
                let entropy = qp.number() ^ attr.dest_qp_num.rotate_left(12);
                ah::path(info, &attr.ah_attr, entropy)
            })
            .transpose()?,
        path_mtu: has(IBV_QP_PATH_MTU).then(|| path_mtu(attr.path_mtu, info)).transpose()?,
        qkey: has(IBV_QP_QKEY).then_some(attr.qkey),
        dest_qp: has(IBV_QP_DEST_QPN).then_some(attr.dest_qp_num),
        rq_psn: has(IBV_QP_RQ_PSN).then(|| Psn::new(attr.rq_psn)),
        sq_psn: has(IBV_QP_SQ_PSN).then(|| Psn::new(attr.sq_psn)),
        max_dest_rd_atomic: has(IBV_QP_MAX_DEST_RD_ATOMIC).then_some(attr.max_dest_rd_atomic),
        max_rd_atomic: has(IBV_QP_MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic),
        min_rnr_timer: has(IBV_QP_MIN_RNR_TIMER).then_some(attr.min_rnr_timer),
        timeout: has(IBV_QP_TIMEOUT).then_some(attr.timeout),
        retry_cnt: has(IBV_QP_RETRY_CNT).then_some(attr.retry_cnt),
        rnr_retry: has(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry),
        sqd_event: has(IBV_QP_EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify != 0,
    })
}

/// Rights of peers; the others have no effect on a queue pair.
const REMOTE: u32 = IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_FLUSH_GLOBAL
    | IBV_ACCESS_FLUSH_PERSISTENT;

fn path_mtu(code: u32, info: &DeviceInfo) -> Result<Mtu> {
    let mtu = u8::try_from(code).ok().and_then(Mtu::from_code);
    let mtu = mtu.ok_or_else(|| invalid!("path_mtu {code}: expected 1 (256 bytes) to 5 (4096 bytes)"))?;
    let limit = info.mtu.bytes();
    if mtu.bytes() > limit {
        let requested = mtu.bytes();
        return Err(invalid!(
            "path MTU {requested} is above the active MTU {limit} of {}: lower the program's, or raise the interface's",
            info.name
        ));
    }
    Ok(mtu)
}

/// Burst of a paced queue pair: a few full packets.
const BURST: u32 = 16 << 10;

fn set_rate(nic: &mut Nic, now: Time, qpn: u32, kbps: u32) -> Result<()> {
    Ok(nic.set_rate(now, qpn, u64::from(kbps) * 1000, BURST)?)
}

/// ibv_modify_qp_rate_limit(3), in kbit/s; 0 for no limit.
pub(super) unsafe extern "C" fn modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int {
    status("ibv_modify_qp_rate_limit", || {
        // SAFETY: the caller's promise.
        let (this, attr) = unsafe { (Qp::from_c(qp)?, &*attr) };
        if attr.comp_mask != 0 {
            return Err(unsupported!("comp_mask {:#x}: expected 0", attr.comp_mask));
        }
        let mut locked = this.unit.lock();
        let burst = if attr.max_burst_sz == 0 { BURST } else { attr.max_burst_sz };
        let time = locked.nic_time();
        locked.nic().set_rate(time, this.number(), u64::from(attr.rate_limit) * 1000, burst)?;
        this.user_attr.lock().rate_limit = attr.rate_limit;
        this.unit.done(locked);
        Ok(())
    })
}

/// ibv_query_qp(3).
///
/// # Safety
/// `qp` exists, `attr` and `init` may be written.
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    status("ibv_query_qp", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Qp::from_c(qp) }?;
        let is = this.unit.lock().nic().qp(this.number()).ok_or_else(Qp::destroyed)?.attributes();
        let user_attr = this.user_attr.lock().clone();
        // SAFETY: numbers only.
        let mut a: ibv_qp_attr = unsafe { std::mem::zeroed() };
        a.qp_state = state_code(is.state.unwrap_or(QpState::Err));
        a.cur_qp_state = a.qp_state;
        a.path_mtu = u32::from(is.path_mtu.map_or(0, |m| m as u8));
        a.path_mig_state = IBV_MIG_MIGRATED;
        a.qkey = is.qkey.unwrap_or(0);
        a.rq_psn = is.rq_psn.map_or(0, |p| p.get());
        a.sq_psn = is.sq_psn.map_or(0, |p| p.get());
        a.dest_qp_num = is.dest_qp.unwrap_or(0);
        a.qp_access_flags = user_attr.qp_access_flags;
        a.cap = this.init.cap;
        a.ah_attr = user_attr.ah_attr;
        a.pkey_index = user_attr.pkey_index;
        a.sq_draining = 0;
        a.max_rd_atomic = is.max_rd_atomic.unwrap_or(0);
        a.max_dest_rd_atomic = is.max_dest_rd_atomic.unwrap_or(0);
        a.min_rnr_timer = is.min_rnr_timer.unwrap_or(0);
        a.port_num = user_attr.port_num;
        a.timeout = is.timeout.unwrap_or(0);
        a.retry_cnt = is.retry_cnt.unwrap_or(0);
        a.rnr_retry = is.rnr_retry.unwrap_or(0);
        a.rate_limit = user_attr.rate_limit;
        // SAFETY: the caller's promise.
        unsafe {
            (*qp).state = a.qp_state;
            *attr = a;
            *init = this.init;
        }
        Ok(())
    })
}

/// ibv_destroy_qp(3). Waits until the application has acknowledged the events that it took.
///
/// # Safety
/// `qp` exists.
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    status("ibv_destroy_qp", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Qp::from_c(qp) }?;
        this.close()?;
        // SAFETY: the caller's promise; no further event is raised for it.
        unsafe { Qp::free(qp) };
        Ok(())
    })
}
