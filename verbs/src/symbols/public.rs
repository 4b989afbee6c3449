//! The public nodes, as in rdma-core 65.

use super::node;
use crate::calls;

node! { "IBVERBS_1.0" "@@" calls {
    ibv_copy_path_rec_from_kern
    ibv_copy_path_rec_to_kern
    ibv_copy_qp_attr_from_kern
    ibv_create_comp_channel
    ibv_destroy_comp_channel
    ibv_get_sysfs_path
    ibv_rate_to_mult
    ibv_read_sysfs_file
    mult_to_ibv_rate
} }

node! { "IBVERBS_1.1" "@@" calls {
    ibv_ack_async_event
    ibv_ack_cq_events
    ibv_alloc_pd
    ibv_attach_mcast
    ibv_close_device
    ibv_copy_ah_attr_from_kern
    ibv_create_ah
    ibv_create_ah_from_wc
    ibv_create_cq
    ibv_create_qp
    ibv_create_srq
    ibv_dealloc_pd
    ibv_dereg_mr
    ibv_destroy_ah
    ibv_destroy_cq
    ibv_destroy_qp
    ibv_destroy_srq
    ibv_detach_mcast
    ibv_dofork_range
    ibv_dontfork_range
    ibv_event_type_str
    ibv_fork_init
    ibv_free_device_list
    ibv_get_async_event
    ibv_get_cq_event
    ibv_get_device_guid
    ibv_get_device_list
    ibv_get_device_name
    ibv_init_ah_from_wc
    ibv_modify_qp
    ibv_modify_srq
    ibv_node_type_str
    ibv_open_device
    ibv_port_state_str
    ibv_query_device
    ibv_query_gid
    ibv_query_pkey
    ibv_query_port
    ibv_query_qp
    ibv_query_srq
    ibv_rate_to_mbps
    ibv_reg_mr
    ibv_rereg_mr
    ibv_resize_cq
    ibv_resolve_eth_l2_from_gid
    ibv_wc_status_str
    mbps_to_ibv_rate
} }

node! { "IBVERBS_1.5" "@@" calls {
    ibv_get_pkey_index
} }

node! { "IBVERBS_1.6" "@@" calls {
    ibv_qp_to_qp_ex
} }

node! { "IBVERBS_1.7" "@@" calls {
    ibv_reg_mr_iova
} }

node! { "IBVERBS_1.8" "@@" calls {
    ibv_reg_mr_iova2
} }

node! { "IBVERBS_1.9" "@@" calls {
    ibv_get_device_index
} }

node! { "IBVERBS_1.10" "@@" calls {
    ibv_import_device
    ibv_import_mr
    ibv_import_pd
    ibv_query_ece
    ibv_set_ece
    ibv_unimport_mr
    ibv_unimport_pd
} }

node! { "IBVERBS_1.11" "@@" calls {
    _ibv_query_gid_ex
    _ibv_query_gid_table
} }

node! { "IBVERBS_1.12" "@@" calls {
    ibv_reg_dmabuf_mr
} }

node! { "IBVERBS_1.13" "@@" calls {
    ibv_import_dm
    ibv_is_fork_initialized
    ibv_unimport_dm
} }

node! { "IBVERBS_1.14" "@@" calls {
    ibv_query_qp_data_in_order
} }

node! { "IBVERBS_1.15" "@@" calls {
    ibv_alloc_dmah
    ibv_dealloc_dmah
    ibv_reg_mr_ex
} }

node! { "IBVERBS_1.16" "@@" calls {
    ibv_dm_export_dmabuf_fd
    ibv_query_port_speed
} }

node! { "IBVERBS_1.17" "@@" calls {
    ibv_alloc_buf
    ibv_free_buf
    ibv_reg_buf_mr
} }

node! { "IBVERBS_1.18" "@@" calls {
    _ibv_query_comp_cntr_caps
    ibv_create_comp_cntr
    ibv_destroy_comp_cntr
    ibv_export_buf_dmabuf_fd
    ibv_inc_comp_cntr
    ibv_inc_err_comp_cntr
    ibv_qp_attach_comp_cntr
    ibv_read_comp_cntr
    ibv_read_err_comp_cntr
    ibv_set_comp_cntr
    ibv_set_err_comp_cntr
} }

// Called by providers of libibverbs 1.1 in their constructors; not available for linking since.
node! { "IBVERBS_1.1" "@" calls { ibv_register_driver } }
