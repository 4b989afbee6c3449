//! Node `IBVERBS_1.0` of the functions that have a successor in 1.1.
//!
//! The structures of libibverbs 1.0 (2006) differ in size and order from all later ones, and a program built against
//! them gets every object through these entry points. They fail: the first one, `ibv_get_device_list`, returns no
//! device list and `EOPNOTSUPP`, and the others cannot be reached without a device.

use std::ffi::c_int;
use std::ptr;

use super::node;
use crate::calls::refuse;
use crate::errno::set_errno;

/// Returns no list: `ibv_get_device_list` of 1.0.
///
/// # Safety
///
/// `num` is NULL or points to an `int`.
unsafe extern "C" fn device_list(num: *mut c_int) -> *mut std::ffi::c_void {
    if !num.is_null() {
        // SAFETY: the caller's promise.
        unsafe { num.write(0) };
    }
    set_errno(libc::EOPNOTSUPP);
    ptr::null_mut()
}

/// Returns 0: `ibv_get_device_guid` of 1.0, for which there is no device.
extern "C" fn no_guid() -> u64 {
    0
}

node! { "IBVERBS_1.0" "@" device_list => { ibv_get_device_list } }

node! { "IBVERBS_1.0" "@" no_guid => { ibv_get_device_guid } }

node! { "IBVERBS_1.0" "@" refuse::ptr => {
    ibv_alloc_pd
    ibv_create_ah
    ibv_create_cq
    ibv_create_qp
    ibv_create_srq
    ibv_get_device_name
    ibv_open_device
    ibv_reg_mr
} }

node! { "IBVERBS_1.0" "@" refuse::int => {
    ibv_attach_mcast
    ibv_close_device
    ibv_dealloc_pd
    ibv_dereg_mr
    ibv_destroy_ah
    ibv_destroy_cq
    ibv_destroy_qp
    ibv_destroy_srq
    ibv_detach_mcast
    ibv_modify_qp
    ibv_modify_srq
    ibv_query_device
    ibv_query_port
    ibv_query_qp
    ibv_query_srq
    ibv_resize_cq
} }

node! { "IBVERBS_1.0" "@" refuse::minus_one => {
    ibv_get_async_event
    ibv_get_cq_event
    ibv_query_gid
    ibv_query_pkey
} }

node! { "IBVERBS_1.0" "@" refuse::void => {
    ibv_ack_async_event
    ibv_ack_cq_events
    ibv_free_device_list
} }
