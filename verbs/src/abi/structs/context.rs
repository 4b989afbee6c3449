//! Open devices: the tables of functions behind the inline functions of `infiniband/verbs.h`, and asynchronous events.

use std::ffi::{c_char, c_int, c_void};

use libc::pthread_mutex_t;

use super::device::{ibv_device_attr, ibv_device_attr_ex, ibv_port_attr, ibv_query_device_ex_input, ibv_values_ex};
use super::objects::{
    ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_modify_cq_attr, ibv_mr, ibv_mr_init_attr, ibv_mw,
    ibv_parent_domain_init_attr, ibv_pd, ibv_qp, ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_qp_rate_limit_attr,
    ibv_srq, ibv_srq_init_attr_ex, ibv_td, ibv_td_init_attr, ibv_xrcd, ibv_xrcd_init_attr,
};
use super::work::{ibv_mw_bind, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc};
use super::{RefuseInt, RefusePtr, RefuseVoid};

#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_async_event {
    pub element: ibv_async_event_element,
    pub event_type: u32,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct _ibv_device_ops {
    pub _dummy1: Option<unsafe extern "C" fn(device: *mut ibv_device, cmd_fd: c_int) -> *mut ibv_context>,
    pub _dummy2: Option<unsafe extern "C" fn(context: *mut ibv_context)>,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_device {
    pub _ops: _ibv_device_ops,
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_context_ops {
    pub _compat_query_device:
        Option<unsafe extern "C" fn(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int>,
    pub _compat_query_port:
        Option<unsafe extern "C" fn(context: *mut ibv_context, port_num: u8, port_attr: *mut c_void) -> c_int>,
    pub _compat_alloc_pd: RefusePtr,
    pub _compat_dealloc_pd: RefusePtr,
    pub _compat_reg_mr: RefusePtr,
    pub _compat_rereg_mr: RefusePtr,
    pub _compat_dereg_mr: RefusePtr,
    pub alloc_mw: Option<unsafe extern "C" fn(pd: *mut ibv_pd, type_: u32) -> *mut ibv_mw>,
    pub bind_mw: Option<unsafe extern "C" fn(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int>,
    pub dealloc_mw: Option<unsafe extern "C" fn(mw: *mut ibv_mw) -> c_int>,
    pub _compat_create_cq: RefusePtr,
    pub poll_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, solicited_only: c_int) -> c_int>,
    pub _compat_cq_event: RefusePtr,
    pub _compat_resize_cq: RefusePtr,
    pub _compat_destroy_cq: RefusePtr,
    pub _compat_create_srq: RefusePtr,
    pub _compat_modify_srq: RefusePtr,
    pub _compat_query_srq: RefusePtr,
    pub _compat_destroy_srq: RefusePtr,
    pub post_srq_recv: Option<
        unsafe extern "C" fn(srq: *mut ibv_srq, recv_wr: *mut ibv_recv_wr, bad_recv_wr: *mut *mut ibv_recv_wr) -> c_int,
    >,
    pub _compat_create_qp: RefusePtr,
    pub _compat_query_qp: RefusePtr,
    pub _compat_modify_qp: RefusePtr,
    pub _compat_destroy_qp: RefusePtr,
    pub post_send:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int>,
    pub post_recv:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int>,
    pub _compat_create_ah: RefusePtr,
    pub _compat_destroy_ah: RefusePtr,
    pub _compat_attach_mcast: RefusePtr,
    pub _compat_detach_mcast: RefusePtr,
    pub _compat_async_event: RefusePtr,
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

#[repr(C)]
pub struct verbs_context {
    pub free_buf: RefuseVoid,
    pub alloc_buf: RefusePtr,
    pub dm_export_dmabuf_fd: RefuseInt,
    pub reg_mr_ex: Option<unsafe extern "C" fn(pd: *mut ibv_pd, mr_init_attr: *mut ibv_mr_init_attr) -> *mut ibv_mr>,
    pub dealloc_dmah: RefuseInt,
    pub alloc_dmah: RefusePtr,
    pub query_port: Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            port_num: u8,
            port_attr: *mut ibv_port_attr,
            port_attr_len: usize,
        ) -> c_int,
    >,
    pub advise_mr: Option<
        unsafe extern "C" fn(pd: *mut ibv_pd, advice: u32, flags: u32, sg_list: *mut ibv_sge, num_sges: u32) -> c_int,
    >,
    pub alloc_null_mr: Option<unsafe extern "C" fn(pd: *mut ibv_pd) -> *mut ibv_mr>,
    pub read_counters: RefuseInt,
    pub attach_counters_point_flow: RefuseInt,
    pub create_counters: RefusePtr,
    pub destroy_counters: RefuseInt,
    pub reg_dm_mr: RefusePtr,
    pub alloc_dm: Option<unsafe extern "C" fn(context: *mut ibv_context, attr: *mut c_void) -> *mut c_void>,
    pub free_dm: RefuseInt,
    pub modify_flow_action_esp: RefuseInt,
    pub destroy_flow_action: RefuseInt,
    pub create_flow_action_esp: RefusePtr,
    pub modify_qp_rate_limit: Option<unsafe extern "C" fn(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int>,
    pub alloc_parent_domain:
        Option<unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd>,
    pub dealloc_td: Option<unsafe extern "C" fn(td: *mut ibv_td) -> c_int>,
    pub alloc_td:
        Option<unsafe extern "C" fn(context: *mut ibv_context, init_attr: *mut ibv_td_init_attr) -> *mut ibv_td>,
    pub modify_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int>,
    pub post_srq_ops: RefuseInt,
    pub destroy_rwq_ind_table: RefuseInt,
    pub create_rwq_ind_table: RefusePtr,
    pub destroy_wq: RefuseInt,
    pub modify_wq: RefuseInt,
    pub create_wq: RefusePtr,
    pub query_rt_values: Option<unsafe extern "C" fn(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int>,
    pub create_cq_ex:
        Option<unsafe extern "C" fn(context: *mut ibv_context, init_attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub priv_: *mut c_void,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            input: *const ibv_query_device_ex_input,
            attr: *mut ibv_device_attr_ex,
            attr_size: usize,
        ) -> c_int,
    >,
    pub ibv_destroy_flow: RefuseInt,
    pub ABI_placeholder2: RefuseVoid,
    pub ibv_create_flow: RefusePtr,
    pub ABI_placeholder1: RefuseVoid,
    pub open_qp:
        Option<unsafe extern "C" fn(context: *mut ibv_context, qp_open_attr: *mut ibv_qp_open_attr) -> *mut ibv_qp>,
    pub create_qp_ex: Option<
        unsafe extern "C" fn(context: *mut ibv_context, qp_init_attr_ex: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
    >,
    pub get_srq_num: Option<unsafe extern "C" fn(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int>,
    pub create_srq_ex: Option<
        unsafe extern "C" fn(context: *mut ibv_context, srq_init_attr_ex: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq,
    >,
    pub open_xrcd: Option<
        unsafe extern "C" fn(context: *mut ibv_context, xrcd_init_attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd,
    >,
    pub close_xrcd: Option<unsafe extern "C" fn(xrcd: *mut ibv_xrcd) -> c_int>,
    pub _ABI_placeholder3: u64,
    pub sz: usize,
    pub context: ibv_context,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_async_event_element {
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub srq: *mut ibv_srq,
    pub wq: *mut c_void,
    pub port_num: c_int,
}
