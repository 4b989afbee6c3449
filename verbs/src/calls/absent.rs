//! Features that this NIC does not have: device memory and dma-bufs, objects of other processes, completion counters,
//! TPH handles, ECE. These calls fail with `EOPNOTSUPP`, as on a device without the feature.

use std::ffi::{c_char, c_int, c_void};

pub use super::refuse::{
    int as _ibv_query_comp_cntr_caps, int as ibv_dealloc_dmah, int as ibv_destroy_comp_cntr, int as ibv_inc_comp_cntr,
    int as ibv_inc_err_comp_cntr, int as ibv_qp_attach_comp_cntr, int as ibv_query_ece, int as ibv_read_comp_cntr,
    int as ibv_read_err_comp_cntr, int as ibv_set_comp_cntr, int as ibv_set_ece, int as ibv_set_err_comp_cntr,
    minus_one as ibv_dm_export_dmabuf_fd, minus_one as ibv_export_buf_dmabuf_fd, ptr as ibv_alloc_buf,
    ptr as ibv_alloc_dmah, ptr as ibv_create_comp_cntr, ptr as ibv_import_device, ptr as ibv_import_dm,
    ptr as ibv_import_mr, ptr as ibv_import_pd, ptr as ibv_reg_buf_mr, ptr as ibv_reg_dmabuf_mr, void as ibv_free_buf,
    void as ibv_unimport_dm, void as ibv_unimport_mr, void as ibv_unimport_pd,
};
use crate::abi::structs::ibv_qp;

/// Returns whether the bytes of a message are written in order: no. The transports place packets as they arrive.
pub extern "C" fn ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _opcode: u32, _flags: u32) -> c_int {
    0
}

/// Accepts and ignores a driver of libibverbs 1.1, as rdma-core does.
pub extern "C" fn ibv_register_driver(_name: *const c_char, _init: *const c_void) {}
