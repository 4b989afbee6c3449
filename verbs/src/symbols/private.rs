//! The nodes `IBVERBS_PRIVATE_*`: imports of vendor libraries and a few tools.
//!
//! perftest and others are linked against `libmlx5` and `libefa`, whose constructors register a driver and whose
//! functions send commands to the kernel. Both load and run; no device of theirs is ever found, so their commands fail.
//! The number changes with the interface (34: rdma-core 34 to 56, 57: 57 and 58, 59: 59 to 63, 64, 65), and each vendor
//! library requests its own. Each node has the names of all releases with its number.

use std::ffi::c_uint;

use super::node;
use crate::calls::{self, refuse};

/// Does nothing: `verbs_register_driver_*`, with which a vendor's driver registers. No device is searched for.
extern "C" fn register_driver() {}

/// Returns 0: `__ioctl_final_num_attrs`, the length of a command for the kernel that is never sent.
extern "C" fn no_attributes() -> c_uint {
    0
}

/// Symbols common to all private nodes.
macro_rules! private_node {
    ($node:literal $at:literal $driver:ident) => {
        node! { $node $at register_driver => { $driver } }

        node! { $node $at no_attributes => { __ioctl_final_num_attrs } }

        node! { $node $at calls {
            ibv_query_gid_type
            ibv_wr_opcode_str
        } }

        node! { $node $at refuse::minus_one => {
            ibv_read_ibdev_sysfs_file
        } }

        node! { $node $at refuse::void => {
            __verbs_log
            verbs_init_cq
            verbs_set_ops
            verbs_uninit_context
        } }

        node! { $node $at refuse::ptr => {
            _verbs_init_and_alloc_context
            verbs_open_device
        } }

        node! { $node $at refuse::int => {
            execute_ioctl
            ibv_cmd_advise_mr
            ibv_cmd_alloc_dm
            ibv_cmd_alloc_mw
            ibv_cmd_alloc_pd
            ibv_cmd_attach_mcast
            ibv_cmd_close_xrcd
            ibv_cmd_create_ah
            ibv_cmd_create_counters
            ibv_cmd_create_cq
            ibv_cmd_create_cq_ex
            ibv_cmd_create_cq_ex2
            ibv_cmd_create_flow
            ibv_cmd_create_flow_action_esp
            ibv_cmd_create_qp
            ibv_cmd_create_qp_ex
            ibv_cmd_create_qp_ex2
            ibv_cmd_create_rwq_ind_table
            ibv_cmd_create_srq
            ibv_cmd_create_srq_ex
            ibv_cmd_create_wq
            ibv_cmd_dealloc_mw
            ibv_cmd_dealloc_pd
            ibv_cmd_dereg_mr
            ibv_cmd_destroy_ah
            ibv_cmd_destroy_counters
            ibv_cmd_destroy_cq
            ibv_cmd_destroy_flow
            ibv_cmd_destroy_flow_action
            ibv_cmd_destroy_qp
            ibv_cmd_destroy_rwq_ind_table
            ibv_cmd_destroy_srq
            ibv_cmd_destroy_wq
            ibv_cmd_detach_mcast
            ibv_cmd_free_dm
            ibv_cmd_get_context
            ibv_cmd_modify_cq
            ibv_cmd_modify_flow_action_esp
            ibv_cmd_modify_qp
            ibv_cmd_modify_qp_ex
            ibv_cmd_modify_srq
            ibv_cmd_modify_wq
            ibv_cmd_open_qp
            ibv_cmd_open_xrcd
            ibv_cmd_poll_cq
            ibv_cmd_post_recv
            ibv_cmd_post_send
            ibv_cmd_post_srq_recv
            ibv_cmd_query_context
            ibv_cmd_query_device_any
            ibv_cmd_query_mr
            ibv_cmd_query_port
            ibv_cmd_query_qp
            ibv_cmd_query_srq
            ibv_cmd_read_counters
            ibv_cmd_reg_dm_mr
            ibv_cmd_reg_dmabuf_mr
            ibv_cmd_reg_mr
            ibv_cmd_req_notify_cq
            ibv_cmd_rereg_mr
            ibv_cmd_resize_cq
        } }

        // A bool set by drivers whose device can be removed.
        std::arch::global_asm!(
            concat!(".pushsection .bss.irnic.verbs_allow_disassociate_destroy.", $node, ",\"awR\",%nobits"),
            concat!(".globl irnic.verbs_allow_disassociate_destroy.", $node),
            concat!(".type irnic.verbs_allow_disassociate_destroy.", $node, ",%object"),
            concat!("irnic.verbs_allow_disassociate_destroy.", $node, ":"),
            ".zero 1",
            concat!(".size irnic.verbs_allow_disassociate_destroy.", $node, ", 1"),
            concat!(
                ".symver irnic.verbs_allow_disassociate_destroy.",
                $node,
                ", verbs_allow_disassociate_destroy",
                $at,
                $node,
                ", remove"
            ),
            ".popsection",
        );
    };
}

private_node! { "IBVERBS_PRIVATE_34" "@@" verbs_register_driver_34 }
private_node! { "IBVERBS_PRIVATE_57" "@" verbs_register_driver_57 }
private_node! { "IBVERBS_PRIVATE_59" "@" verbs_register_driver_59 }
private_node! { "IBVERBS_PRIVATE_64" "@" verbs_register_driver_64 }
private_node! { "IBVERBS_PRIVATE_65" "@" verbs_register_driver_65 }

node! { "IBVERBS_PRIVATE_34" "@@" refuse::int => { ibv_cmd_query_device } }

/// Symbols added in 59.
macro_rules! since_59 {
    ($node:literal) => {
        node! { $node "@" refuse::int => {
            ibv_cmd_alloc_dmah
            ibv_cmd_free_dmah
            ibv_cmd_query_port_speed
            ibv_cmd_reg_mr_ex
        } }

        node! { $node "@" refuse::minus_one => { ibv_cmd_export_dmabuf_fd } }
    };
}

since_59! { "IBVERBS_PRIVATE_59" }
since_59! { "IBVERBS_PRIVATE_64" }
since_59! { "IBVERBS_PRIVATE_65" }

/// Symbols added in 64.
macro_rules! since_64 {
    ($node:literal) => {
        node! { $node "@" refuse::ptr => {
            ibv_dmabuf_heap_alloc
            ibv_dmabuf_heap_cc_shared_init
        } }

        node! { $node "@" refuse::void => {
            ibv_dmabuf_heap_destroy
            ibv_dmabuf_heap_free
        } }
    };
}

since_64! { "IBVERBS_PRIVATE_64" }
since_64! { "IBVERBS_PRIVATE_65" }

node! { "IBVERBS_PRIVATE_65" "@" refuse::int => {
    ibv_cmd_create_comp_cntr
    ibv_cmd_destroy_comp_cntr
    ibv_cmd_inc_comp_cntr
    ibv_cmd_inc_err_comp_cntr
    ibv_cmd_qp_attach_comp_cntr
    ibv_cmd_query_comp_cntr_caps
    ibv_cmd_read_comp_cntr
    ibv_cmd_read_err_comp_cntr
    ibv_cmd_set_comp_cntr
    ibv_cmd_set_err_comp_cntr
} }
