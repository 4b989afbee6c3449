//! The functions of libibverbs under their C names.
//!
//! Here is what needs no NIC: strings, rates, copies of kernel structures, fork, sysfs, addresses of completions, and
//! refusals. What works on an object of the NIC is in the module of that object and re-exported here. `crate::symbols`
//! gives each function its versioned name.

// The contract of each unsafe function is that of its C prototype: pointers are valid for what the prototype says they
// point to, or NULL where libibverbs allows NULL.
#![allow(clippy::missing_safety_doc)]

mod absent;
mod address;
mod fork;
mod marshal;
mod rates;
pub mod refuse;
mod strings;
mod sysfs;

pub use absent::*;
pub use address::*;
pub use fork::*;
pub use marshal::*;
pub use rates::*;
pub use strings::*;
pub use sysfs::*;

pub use crate::ah::{ibv_attach_mcast, ibv_create_ah, ibv_destroy_ah, ibv_detach_mcast};
pub use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event};
pub use crate::context::{
    _ibv_query_gid_ex, _ibv_query_gid_table, ibv_close_device, ibv_get_pkey_index, ibv_open_device, ibv_query_device,
    ibv_query_gid, ibv_query_pkey, ibv_query_port,
};
pub use crate::cq::{ibv_ack_cq_events, ibv_create_cq, ibv_destroy_cq, ibv_resize_cq};
pub use crate::device::{
    ibv_free_device_list, ibv_get_device_guid, ibv_get_device_index, ibv_get_device_list, ibv_get_device_name,
};
pub use crate::event::{ibv_ack_async_event, ibv_get_async_event};
pub use crate::mr::{ibv_dereg_mr, ibv_reg_mr, ibv_reg_mr_ex, ibv_reg_mr_iova, ibv_reg_mr_iova2, ibv_rereg_mr};
pub use crate::pd::{ibv_alloc_pd, ibv_dealloc_pd};
pub use crate::qp::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_qp_to_qp_ex, ibv_query_qp};
pub use crate::srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};
