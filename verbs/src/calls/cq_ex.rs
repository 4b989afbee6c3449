//! Extended completion queues: `ibv_create_cq_ex(3)` and the functions that read the current completion.

use std::ffi::c_int;

use irnic_transports::qp::Wc;

use super::{completion, cq};
use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::{Errno, Result, invalid, pointer, status, unsupported};
use crate::objects::{Cq, Turn};

/// Supported fields of completions.
const FIELDS: u64 = (IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) as u64;

/// ibv_create_cq_ex(3).
pub(super) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    pointer("ibv_create_cq_ex", || {
        // SAFETY: the caller's promise.
        let attr = unsafe { &*attr };
        if attr.wc_flags & !FIELDS != 0 {
            return Err(unsupported!("wc_flags {:#x} are not there", attr.wc_flags & !FIELDS));
        }
        check_flags(attr)?;
        // SAFETY: passed on.
        let cq = unsafe { cq::create(context, attr.cqe, attr.cq_context, attr.channel, attr.comp_vector) }?;
        let alone =
            attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 && attr.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0;
        // SAFETY: just created.
        unsafe {
            (*cq).turn = (!alone).then(Turn::new);
            fill(&mut (*cq).ex);
        }
        Ok(cq.cast())
    })
}

/// Rejects flags of `ibv_create_cq_ex` that irnic does not know.
fn check_flags(attr: &ibv_cq_init_attr_ex) -> Result<()> {
    let known_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    if attr.comp_mask & !known_mask != 0 {
        return Err(unsupported!("comp_mask {:#x}: expected flags and a protection domain at most", attr.comp_mask));
    }
    if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 && attr.flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
        return Err(unsupported!("flags {:#x}: expected SINGLE_THREADED at most", attr.flags));
    }
    Ok(())
}

/// Fills the function table.
fn fill(ex: &mut ibv_cq_ex) {
    ex.start_poll = Some(start_poll);
    ex.next_poll = Some(next_poll);
    ex.end_poll = Some(end_poll);
    ex.read_opcode = Some(read_opcode);
    ex.read_vendor_err = Some(zero);
    ex.read_byte_len = Some(read_byte_len);
    ex.read_imm_data = Some(read_imm_data);
    ex.read_qp_num = Some(read_qp_num);
    ex.read_src_qp = Some(read_src_qp);
    ex.read_wc_flags = Some(read_wc_flags);
    ex.read_slid = Some(zero);
    ex.read_sl = Some(read_sl);
    ex.read_dlid_path_bits = Some(zero_byte);
    ex.read_completion_ts = Some(read_completion_ts);
    ex.read_cvlan = Some(zero_short);
    ex.read_flow_tag = Some(zero);
    ex.read_tm_info = Some(no_tm_info);
    ex.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

/// Returns the current completion of a queue.
///
/// # Safety
/// `cq` exists, and the calling thread is between `ibv_start_poll` and `ibv_end_poll`.
unsafe fn current<'a>(cq: *mut ibv_cq_ex) -> &'a Wc {
    // SAFETY: `ex` is the first member of a `Cq`.
    unsafe { &(*cq.cast::<Cq>()).current }
}

/// Advances to the next completion; ENOENT if there is none.
unsafe fn advance(cq: *mut ibv_cq_ex) -> c_int {
    let cq = cq.cast::<Cq>();
    let mut found = None;
    let outcome = status("ibv_next_poll", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Cq::from_c(cq.cast()) }?;
        this.queue.poll(1, |wc| found = Some(*wc))?;
        if found.is_none() { Err(Errno(libc::ENOENT)) } else { Ok(()) }
    });
    if let Some(wc) = found {
        // SAFETY: it is this thread's turn to poll.
        unsafe {
            (*cq).current = wc;
            (*cq).ex.wr_id = wc.wr_id;
            (*cq).ex.status = completion::wc_status(wc.status);
        }
    }
    outcome
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: NULL or valid.
    if unsafe { attr.as_ref() }.is_some_and(|a| a.comp_mask != 0) {
        return status("ibv_start_poll", || Err(invalid!("comp_mask is not 0")));
    }
    // SAFETY: the caller's promise.
    let turn = unsafe { &(*cq.cast::<Cq>()).turn };
    if let Some(turn) = turn {
        turn.take();
    }
    // SAFETY: passed on.
    let outcome = unsafe { advance(cq) };
    if outcome != 0
        && let Some(turn) = turn
    {
        turn.end();
    }
    outcome
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: passed on.
    unsafe { advance(cq) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller's promise.
    if let Some(turn) = unsafe { &(*cq.cast::<Cq>()).turn } {
        turn.end();
    }
}

unsafe extern "C" fn zero(_cq: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn zero_byte(_cq: *mut ibv_cq_ex) -> u8 {
    0
}

unsafe extern "C" fn zero_short(_cq: *mut ibv_cq_ex) -> u16 {
    0
}

unsafe extern "C" fn no_tm_info(_cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: the caller's promise.
    unsafe { *info = ibv_wc_tm_info { tag: 0, priv_: 0 } };
}

unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: passed on.
    completion::wc_opcode(unsafe { current(cq) }.opcode)
}

unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: passed on.
    unsafe { current(cq) }.byte_len
}

unsafe extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: passed on; both members of the union are numbers.
    unsafe { completion::wc_data(current(cq)).imm_data }
}

unsafe extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: passed on.
    unsafe { current(cq) }.qp_num
}

unsafe extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: passed on.
    unsafe { current(cq) }.src_qp
}

unsafe extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: passed on.
    completion::wc_flags(unsafe { current(cq) })
}

unsafe extern "C" fn read_sl(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: passed on.
    completion::wc_sl(unsafe { current(cq) })
}

unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: passed on.
    unsafe { current(cq) }.timestamp
}

/// Returns the timestamp on the host's clock, extrapolated linearly like in drivers from readings of both clocks.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: passed on.
    let (wc, this) = unsafe { (current(cq), &*cq.cast::<Cq>()) };
    this.queue.wall_clock(wc.timestamp)
}
