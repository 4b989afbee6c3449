//! Extended reliable connections: domains, target queue pairs, and further handles on those.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use super::{qp, qp_ex};
use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::{Errno, Result, invalid, pointer, refused, status, unsupported};
use crate::objects::{Context, Qp, Xrcd};
use crate::runtime::{Target, XrcError};

impl From<XrcError> for Errno {
    fn from(e: XrcError) -> Errno {
        match e {
            // As in the kernel (drivers/infiniband/core/uverbs_cmd.c, ib_uverbs_open_xrcd).
            XrcError::Absent => refused(libc::EAGAIN, &e),
            XrcError::Exists => refused(libc::EINVAL, &e),
            XrcError::File(e) => e.into(),
            XrcError::Nic(e) => e.into(),
        }
    }
}

/// ibv_open_xrcd(3). A descriptor of −1 is a domain that no other process can open.
pub(super) unsafe extern "C" fn open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
    pointer("ibv_open_xrcd", || {
        // SAFETY: the caller's promise.
        let (this, attr) = unsafe { (Context::from_c(context), &*attr) };
        let needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        if attr.comp_mask & !needed != 0 {
            return Err(unsupported!("comp_mask {:#x}: expected FD and OFLAGS", attr.comp_mask));
        }
        if attr.comp_mask != needed {
            return Err(invalid!("comp_mask {:#x} lacks FD or OFLAGS", attr.comp_mask));
        }
        if attr.fd < -1 {
            return Err(invalid!("fd = {}: expected a descriptor, or -1", attr.fd));
        }
        // SAFETY: the application's descriptor; duplicating one that is not open fails.
        let file = (attr.fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(attr.fd) });
        let has = |flag: c_int| attr.oflags & flag != 0;
        let domain = this.device().open_xrcd(file, has(libc::O_CREAT), has(libc::O_EXCL))?;
        Ok(Xrcd::create(context, domain))
    })
}

/// ibv_close_xrcd(3).
pub(super) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    status("ibv_close_xrcd", || {
        // SAFETY: the caller's promise.
        if unsafe { Xrcd::from_c(xrcd) }?.is_used() {
            return Err(refused(libc::EBUSY, &"queue pairs or shared receive queues are still in the XRC domain"));
        }
        // SAFETY: the caller's promise.
        unsafe { Xrcd::free(xrcd) };
        Ok(())
    })
}

/// Returns the C structure of a target's handle.
fn base(xrcd: &Xrcd, qp_context: *mut std::ffi::c_void) -> ibv_qp_ex {
    // SAFETY: all-zero: numbers, and pointers that may be NULL.
    let mut ex: ibv_qp_ex = unsafe { std::mem::zeroed() };
    (ex.qp_base.context, ex.qp_base.qp_context) = (xrcd.context_ptr(), qp_context);
    qp_ex::fill(&mut ex);
    ex
}

/// Creates a target: a queue pair without queues in the XRC domain. It does not need a protection domain, but stores
/// `pd` in its structure like libibverbs (libibverbs/cmd_qp.c): librdmacm takes it from there for `rdma_create_srq`.
///
/// # Safety
/// `xrcd` exists or is NULL.
pub(super) unsafe fn create_target(
    xrcd: *mut ibv_xrcd,
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
) -> Result<*mut ibv_qp> {
    // SAFETY: the caller's promise.
    let this = unsafe { Xrcd::from_c(xrcd) }?;
    init.cap = ibv_qp_cap { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline_data: 0 };
    let (context, domain) = (this.context(), this.domain());
    let transport = domain.unit().info().config.transport;
    let mut ex = base(this, init.qp_context);
    ex.qp_base.pd = pd;
    let mut qp = std::ptr::null_mut();
    domain.create_target(transport, context.owner(), |target| {
        qp = Qp::create(ex, domain.unit().clone(), target.number(), init, false);
        // SAFETY: just created.
        unsafe { (*qp).share(xrcd, target.clone()) };
        (qp.addr(), context.listener(qp, None))
    })?;
    this.hold();
    Ok(qp.cast())
}

/// ibv_open_qp(3): a further handle on a target queue pair of an XRC domain.
pub(super) unsafe extern "C" fn open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
    pointer("ibv_open_qp", || {
        // SAFETY: the caller's promise.
        let attr = unsafe { &*attr };
        let mask = attr.comp_mask;
        let needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        if mask & !(needed | IBV_QP_OPEN_ATTR_CONTEXT) != 0 {
            return Err(unsupported!("comp_mask {mask:#x}: expected NUM, XRCD, TYPE, and CONTEXT at most"));
        }
        if mask & needed != needed {
            return Err(invalid!("comp_mask {mask:#x} lacks NUM, XRCD or TYPE"));
        }
        if attr.qp_type != IBV_QPT_XRC_RECV {
            return Err(invalid!("qp_type {}: only XRC_RECV can be opened", attr.qp_type));
        }
        // SAFETY: the caller's promise.
        let this = unsafe { Xrcd::from_c(attr.xrcd) }?;
        if this.context_ptr() != context {
            return Err(invalid!("the XRC domain is another context's"));
        }
        let absent = || invalid!("queue pair {:#x} is none of the XRC domain", attr.qp_num);
        let target = this.domain().target(attr.qp_num).ok_or_else(absent)?;
        let qp_context = if mask & IBV_QP_OPEN_ATTR_CONTEXT != 0 { attr.qp_context } else { std::ptr::null_mut() };
        // SAFETY: as above.
        unsafe { open(this, attr.xrcd, target, qp_context) }?.ok_or_else(absent)
    })
}

/// Creates a handle on a target, `None` if that no longer exists.
///
/// # Safety
/// `xrcd` is the C pointer to `this`.
unsafe fn open(
    this: &Xrcd,
    xrcd: *mut ibv_xrcd,
    target: std::sync::Arc<Target>,
    qp_context: *mut std::ffi::c_void,
) -> Result<Option<*mut ibv_qp>> {
    // SAFETY: numbers, and pointers that may be NULL.
    let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    (init.qp_context, init.qp_type) = (qp_context, IBV_QPT_XRC_RECV);
    let (context, unit) = (this.context(), this.domain().unit());
    let qp = Qp::create(base(this, qp_context), unit.clone(), target.number(), &init, false);
    this.hold();
    // SAFETY: just created.
    unsafe { (*qp).share(xrcd, target.clone()) };
    if !target.open(qp.addr(), context.owner(), context.listener(qp, None)) {
        // SAFETY: just created, and not published.
        unsafe { Qp::free(qp.cast()) };
        return Ok(None);
    }
    let state = unit.lock().nic().qp(target.number()).map_or(IBV_QPS_ERR, |q| qp::state_code(q.state()));
    // SAFETY: just created.
    unsafe { (*qp).ex.qp_base.state = state };
    Ok(Some(qp.cast()))
}
