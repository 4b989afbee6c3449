//! Functions of [`crate::calls`] that wait for the objects over the NIC. Each goes when the real one comes.

#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::structs::{
    ibv_ah, ibv_ah_attr, ibv_context, ibv_device, ibv_gid, ibv_gid_entry, ibv_pd, ibv_port_attr,
};
use crate::errno::{fail, set_errno};

/// Functions that return an errno value.
macro_rules! int {
    ($($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`: returns `ENOSYS`.")]
        pub extern "C" fn $name() -> c_int {
            fail(libc::ENOSYS)
        }
    )* };
}

/// Functions that return -1 and set `errno`.
macro_rules! minus_one {
    ($($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`: returns -1 with `ENOSYS`.")]
        pub extern "C" fn $name() -> c_int {
            set_errno(libc::ENOSYS);
            -1
        }
    )* };
}

/// Functions that return NULL and set `errno`.
macro_rules! ptr {
    ($($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`: returns NULL with `ENOSYS`.")]
        pub extern "C" fn $name() -> *mut c_void {
            set_errno(libc::ENOSYS);
            ptr::null_mut()
        }
    )* };
}

/// Functions that return nothing.
macro_rules! void {
    ($($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`: does nothing.")]
        pub extern "C" fn $name() {}
    )* };
}

int! {
    ibv_attach_mcast
    ibv_close_device
    ibv_dealloc_pd
    ibv_dereg_mr
    ibv_destroy_ah
    ibv_destroy_comp_channel
    ibv_destroy_cq
    ibv_destroy_qp
    ibv_destroy_srq
    ibv_detach_mcast
    ibv_modify_qp
    ibv_modify_srq
    ibv_query_device
    ibv_query_qp
    ibv_query_srq
    ibv_rereg_mr
    ibv_resize_cq
}

minus_one! {
    ibv_get_async_event
    ibv_get_cq_event
    ibv_get_device_index
    ibv_get_pkey_index
    ibv_query_pkey
}

ptr! {
    ibv_alloc_pd
    ibv_create_comp_channel
    ibv_create_cq
    ibv_create_qp
    ibv_create_srq
    ibv_get_device_guid
    ibv_get_device_name
    ibv_open_device
    ibv_qp_to_qp_ex
    ibv_reg_mr
    ibv_reg_mr_ex
    ibv_reg_mr_iova
    ibv_reg_mr_iova2
}

void! {
    ibv_ack_async_event
    ibv_ack_cq_events
}

/// `ibv_get_device_list`: an empty list.
///
/// # Safety
///
/// `num` is NULL or points to an `int`.
pub unsafe extern "C" fn ibv_get_device_list(num: *mut c_int) -> *mut *mut ibv_device {
    if !num.is_null() {
        // SAFETY: the caller vouches for it.
        unsafe { num.write(0) };
    }
    // SAFETY: calloc has no preconditions; all zero is a list of no entries.
    unsafe { libc::calloc(1, size_of::<*mut ibv_device>()).cast() }
}

/// `ibv_free_device_list`.
///
/// # Safety
///
/// `list` is NULL or comes from [`ibv_get_device_list`] and was not freed.
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the list comes from calloc.
    unsafe { libc::free(list.cast()) };
}

/// `ibv_query_port`: returns `ENOSYS`.
pub unsafe extern "C" fn ibv_query_port(_context: *mut ibv_context, _port: u8, _attr: *mut ibv_port_attr) -> c_int {
    fail(libc::ENOSYS)
}

/// `ibv_query_gid`: returns -1 with `ENOSYS`.
pub unsafe extern "C" fn ibv_query_gid(
    _context: *mut ibv_context,
    _port: u8,
    _index: c_int,
    _gid: *mut ibv_gid,
) -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

/// `_ibv_query_gid_ex`: returns `ENOSYS`.
pub unsafe extern "C" fn _ibv_query_gid_ex(
    _context: *mut ibv_context,
    _port: u32,
    _index: u32,
    _entry: *mut ibv_gid_entry,
    _flags: u32,
    _entry_size: usize,
) -> c_int {
    fail(libc::ENOSYS)
}

/// `_ibv_query_gid_table`: returns `-ENOSYS`.
pub unsafe extern "C" fn _ibv_query_gid_table(
    _context: *mut ibv_context,
    _entries: *mut ibv_gid_entry,
    _max_entries: usize,
    _flags: u32,
    _entry_size: usize,
) -> isize {
    -(fail(libc::ENOSYS) as isize)
}

/// `ibv_create_ah`: returns NULL with `ENOSYS`.
pub unsafe extern "C" fn ibv_create_ah(_pd: *mut ibv_pd, _attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    set_errno(libc::ENOSYS);
    ptr::null_mut()
}
