//! The functions of libibverbs under their C names, and the tables of functions that an application calls through.
//!
//! Each function converts C arguments to a call on an object or its NIC, and converts the result back. `crate::symbols`
//! gives each exported function its versioned name.

// The contract of each unsafe function is that of its C prototype: pointers are valid for the type they point to, or
// NULL where libibverbs allows NULL.
#![allow(clippy::missing_safety_doc)]

mod absent;
mod access;
mod address;
mod ah;
mod channel;
mod completion;
mod cq;
mod cq_ex;
mod device;
mod event;
mod fork;
mod marshal;
mod mcast;
mod mr;
mod mw;
mod pd;
mod post;
mod qp;
mod qp_ex;
mod query;
mod rates;
pub(crate) mod refuse;
mod srq;
mod strings;
mod sysfs;
mod tables;
mod xrc;

pub use absent::*;
pub use address::*;
pub use ah::{ibv_create_ah, ibv_destroy_ah};
pub use channel::{ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event};
pub use cq::{ibv_ack_cq_events, ibv_create_cq, ibv_destroy_cq, ibv_resize_cq};
pub use device::{
    ibv_close_device, ibv_free_device_list, ibv_get_device_guid, ibv_get_device_index, ibv_get_device_list,
    ibv_get_device_name, ibv_open_device,
};
pub use event::{ibv_ack_async_event, ibv_get_async_event};
pub use fork::*;
pub use marshal::*;
pub use mcast::{ibv_attach_mcast, ibv_detach_mcast};
pub use mr::{ibv_dereg_mr, ibv_reg_mr, ibv_reg_mr_ex, ibv_reg_mr_iova, ibv_reg_mr_iova2, ibv_rereg_mr};
pub use pd::{ibv_alloc_pd, ibv_dealloc_pd};
pub use qp::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_qp_to_qp_ex, ibv_query_qp};
pub use query::{
    _ibv_query_gid_ex, _ibv_query_gid_table, ibv_get_pkey_index, ibv_query_device, ibv_query_gid, ibv_query_pkey,
    ibv_query_port,
};
pub use rates::*;
pub use srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};
pub use strings::*;
pub use sysfs::*;
