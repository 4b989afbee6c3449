//! Completion queues.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use irnic_nic::{Arm, Nic};
use irnic_transports::qp::{CqId, Wc, WcOpcode, WcStatus};

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::channel::Channel;
use crate::context::Context;
use crate::errno::{Errno, Result, invalid, pointer, status, unsupported};
use crate::event::{acknowledge, await_acks};
use crate::turn::Turn;
use crate::unit::Unit;

/// A completion queue. All have the extended structure; `ibv_cq` is its beginning.
#[repr(C)]
pub struct Cq {
    /// What C sees.
    pub ex: ibv_cq_ex,
    /// Its processing unit.
    pub unit: Arc<Unit>,
    /// The NIC's handle.
    pub id: CqId,
    /// The application waits for its next event. Under the unit's lock.
    armed: bool,
    /// Completion events that the application has taken.
    pub delivered: AtomicU32,
    /// Asynchronous events that the application has taken.
    pub async_delivered: AtomicU32,
    /// From `ibv_start_poll` to `ibv_end_poll`; none if the application promised to poll in one thread only.
    pub turn: Option<Turn>,
    /// The completion that the extended functions read.
    pub current: Wc,
}

impl Cq {
    /// The queue behind a C pointer.
    ///
    /// # Safety
    /// `cq` exists.
    pub unsafe fn from_c<'a>(cq: *mut ibv_cq) -> Result<&'a Cq> {
        // SAFETY: `ex` is the first member, and begins as an `ibv_cq` does.
        unsafe { cq.cast::<Cq>().as_ref() }.ok_or_else(|| invalid!("the completion queue is NULL"))
    }

    /// The application waits no more. Returns whether it did. Under the unit's lock.
    pub fn disarm(&mut self) -> bool {
        std::mem::take(&mut self.armed)
    }

    /// The queue was armed, and now there is a completion.
    ///
    /// # Safety
    /// `cq` exists, and its unit is locked.
    pub unsafe fn completion_event(cq: *mut Cq) {
        // SAFETY: the caller's promise; an attached channel outlives its queues.
        unsafe {
            (*cq).armed = false;
            if !(*cq).ex.channel.is_null() {
                Channel::from_c((*cq).ex.channel).notify(cq);
            }
        }
    }
}

/// Entries that a queue gets when `asked` are asked for. ConnectX and others take the next power of two above, and
/// applications rely on it: perftest asks for one entry where an acknowledgement that is late has two wait in it.
fn entries(asked: u32) -> Result<u32> {
    if asked == 0 || asked > Nic::MAX_CQE {
        return Err(invalid!("cqe = {asked}: expected 1 to {}", Nic::MAX_CQE));
    }
    Ok((asked + 1).next_power_of_two().min(Nic::MAX_CQE))
}

/// Makes a completion queue.
///
/// # Safety
/// `context` is open, `channel` exists or is NULL.
pub unsafe fn create(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
) -> Result<*mut Cq> {
    // SAFETY: the caller's promise.
    let (num_vectors, unit) = unsafe { ((*context).num_comp_vectors, Context::from_c(context).unit().clone()) };
    if vector >= num_vectors as u32 {
        return Err(invalid!("comp_vector {vector}: expected less than {num_vectors}"));
    }
    let cqe = entries(cqe)?;
    // SAFETY: all-zero: numbers, and pointers that may be NULL.
    let mut ex: ibv_cq_ex = unsafe { std::mem::zeroed() };
    (ex.context, ex.channel, ex.cq_context) = (context, channel, cq_context);
    ex.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    ex.cond = libc::PTHREAD_COND_INITIALIZER;
    let mut inner = unit.lock();
    let id = inner.nic().create_cq(cqe)?;
    (ex.handle, ex.cqe) = (id.0, cqe as c_int);
    let cq = Box::into_raw(Box::new(Cq {
        ex,
        unit: unit.clone(),
        id,
        armed: false,
        delivered: AtomicU32::new(0),
        async_delivered: AtomicU32::new(0),
        turn: None,
        current: Wc::EMPTY,
    }));
    inner.set_cq(id, cq);
    if !channel.is_null() {
        // SAFETY: the caller's promise.
        unsafe { Channel::count(channel, 1) };
    }
    Ok(cq)
}

/// ibv_create_cq(3).
///
/// # Safety
/// `context` is open, `channel` exists or is NULL.
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer("ibv_create_cq", || {
        let number = |name, value| u32::try_from(value).map_err(|_| invalid!("{name} = {value} is negative"));
        let (cqe, vector) = (number("cqe", cqe)?, number("comp_vector", comp_vector)?);
        // SAFETY: passed on.
        Ok(unsafe { create(context, cqe, cq_context, channel, vector) }?.cast())
    })
}

/// ibv_resize_cq(3).
///
/// # Safety
/// `cq` exists.
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    status("ibv_resize_cq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Cq::from_c(cq) }?;
        let entries = entries(u32::try_from(cqe).map_err(|_| invalid!("cqe = {cqe} is negative"))?)?;
        this.unit.lock().nic().resize_cq(this.id, entries)?;
        // SAFETY: the caller's promise.
        unsafe { (*cq).cqe = entries as c_int };
        Ok(())
    })
}

/// ibv_destroy_cq(3). Waits until the application has acknowledged the events that it took.
///
/// # Safety
/// `cq` exists.
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    status("ibv_destroy_cq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Cq::from_c(cq) }?;
        let own = cq.cast::<Cq>();
        {
            let mut inner = this.unit.lock();
            inner.nic().destroy_cq(this.id)?;
            inner.set_cq(this.id, std::ptr::null_mut());
            if this.armed {
                this.unit.notify(&mut inner, false);
            }
        }
        // Nobody raises an event for it any more: purge those that nobody took, wait for those that somebody did.
        // SAFETY: context and channel outlive the queue.
        unsafe {
            Context::from_c(this.ex.context).events.purge(|e| e.concerns(own));
            if !this.ex.channel.is_null() {
                Channel::from_c(this.ex.channel).purge(own);
            }
            let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
            await_acks(&raw mut (*cq).comp_events_completed, mutex, cond, &this.delivered);
            await_acks(&raw mut (*cq).async_events_completed, mutex, cond, &this.async_delivered);
            if !this.ex.channel.is_null() {
                Channel::count(this.ex.channel, -1);
            }
            drop(Box::from_raw(own));
        }
        Ok(())
    })
}

/// ibv_ack_cq_events(3).
///
/// # Safety
/// `cq` exists.
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
        acknowledge(&raw mut (*cq).comp_events_completed, mutex, cond, nevents);
    }
}

/// ibv_modify_cq(3): moderation means fewer interrupts, of which there are none.
pub(crate) unsafe extern "C" fn modify_cq(_cq: *mut ibv_cq, _attr: *mut ibv_modify_cq_attr) -> c_int {
    Errno(libc::EOPNOTSUPP).0
}

/// ibv_req_notify_cq(3).
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    status("ibv_req_notify_cq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Cq::from_c(cq) }?;
        let mut inner = this.unit.lock();
        inner.nic().arm_cq(this.id, if solicited_only != 0 { Arm::Solicited } else { Arm::Next })?;
        if !this.armed {
            // SAFETY: under the unit's lock.
            unsafe { (*cq.cast::<Cq>()).armed = true };
            this.unit.notify(&mut inner, true);
        }
        this.unit.done(inner);
        Ok(())
    })
}

/// ibv_poll_cq(3).
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    let Ok(max) = usize::try_from(num_entries) else { return -libc::EINVAL };
    let mut n = 0;
    let outcome = status("ibv_poll_cq", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Cq::from_c(cq) }?;
        this.unit.poll(this.id, max, |from| {
            // SAFETY: no more than `max` completions come.
            unsafe { wc.add(n).write(to_c(from)) };
            n += 1;
        })?;
        Ok(())
    });
    if outcome == 0 { n as c_int } else { -outcome }
}

/// `ibv_wc_status` of a completion.
pub fn wc_status(status: WcStatus) -> u32 {
    match status {
        WcStatus::Success => IBV_WC_SUCCESS,
        WcStatus::LocLenErr => IBV_WC_LOC_LEN_ERR,
        WcStatus::LocQpOpErr => IBV_WC_LOC_QP_OP_ERR,
        WcStatus::LocProtErr => IBV_WC_LOC_PROT_ERR,
        WcStatus::WrFlushErr => IBV_WC_WR_FLUSH_ERR,
        WcStatus::MwBindErr => IBV_WC_MW_BIND_ERR,
        WcStatus::BadRespErr => IBV_WC_BAD_RESP_ERR,
        WcStatus::RemInvReqErr => IBV_WC_REM_INV_REQ_ERR,
        WcStatus::RemAccessErr => IBV_WC_REM_ACCESS_ERR,
        WcStatus::RemOpErr => IBV_WC_REM_OP_ERR,
        WcStatus::RetryExcErr => IBV_WC_RETRY_EXC_ERR,
        WcStatus::RnrRetryExcErr => IBV_WC_RNR_RETRY_EXC_ERR,
    }
}

/// `ibv_wc_opcode` of a completion.
pub fn wc_opcode(opcode: WcOpcode) -> u32 {
    match opcode {
        WcOpcode::Send => IBV_WC_SEND,
        WcOpcode::RdmaWrite => IBV_WC_RDMA_WRITE,
        WcOpcode::RdmaRead => IBV_WC_RDMA_READ,
        WcOpcode::CompareSwap => IBV_WC_COMP_SWAP,
        WcOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        WcOpcode::LocalInvalidate => IBV_WC_LOCAL_INV,
        WcOpcode::BindMw => IBV_WC_BIND_MW,
        WcOpcode::Recv => IBV_WC_RECV,
        WcOpcode::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

/// `ibv_wc_flags` of a completion.
pub fn wc_flags(wc: &Wc) -> u32 {
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    flag(wc.imm.is_some(), IBV_WC_WITH_IMM) | flag(wc.invalidated.is_some(), IBV_WC_WITH_INV) | flag(wc.grh, IBV_WC_GRH)
}

/// Immediate data as it was on the wire, or the key that was invalidated.
pub fn wc_data(wc: &Wc) -> ibv_wc_data {
    match wc.invalidated {
        Some(invalidated_rkey) => ibv_wc_data { invalidated_rkey },
        None => ibv_wc_data { imm_data: wc.imm.unwrap_or(0).to_be() },
    }
}

/// Service level of a completion. RoCE has none; ConnectX says there what a datagram came in, and UCX reads it: bit 3 for a
/// UDP header, below it 1 for IPv6 and 2 for IPv4.
pub fn wc_sl(wc: &Wc) -> u8 {
    match (wc.grh, wc.ipv4) {
        (false, _) => 0,
        (true, false) => 0x9,
        (true, true) => 0xa,
    }
}

#[inline]
fn to_c(wc: &Wc) -> ibv_wc {
    ibv_wc {
        wr_id: wc.wr_id,
        status: wc_status(wc.status),
        opcode: wc_opcode(wc.opcode),
        vendor_err: 0,
        byte_len: wc.byte_len,
        data: wc_data(wc),
        qp_num: wc.qp_num,
        src_qp: wc.src_qp,
        wc_flags: wc_flags(wc),
        pkey_index: 0,
        slid: 0,
        sl: wc_sl(wc),
        dlid_path_bits: 0,
    }
}

/// Refuses flags of `ibv_create_cq_ex` that irnic does not know.
pub(crate) fn check_flags(attr: &ibv_cq_init_attr_ex) -> Result<()> {
    let known_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    if attr.comp_mask & !known_mask != 0 {
        return Err(unsupported!("comp_mask {:#x}: expected flags and a protection domain at most", attr.comp_mask));
    }
    if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 && attr.flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
        return Err(unsupported!("flags {:#x}: expected SINGLE_THREADED at most", attr.flags));
    }
    Ok(())
}
