//! The attributes of a device and its port, as reported by ibv_query_device(3) and ibv_query_port(3).

use std::ffi::{c_char, c_int};

use super::DeviceInfo;
use crate::abi::consts::*;
use crate::abi::structs::*;

/// Minimum number of entries of the GID table.
pub(crate) const GID_TABLE: usize = 16;
/// Number of entries of the P_Key table: only the default partition.
pub(crate) const PKEY_TABLE: u16 = 1;
/// The default partition, full member.
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;
/// Maximum number of address handles: they are in no table. The same as for memory regions.
const MAX_AHS: c_int = 1 << 20;
/// Queue pairs in a multicast group. The NIC sets no limit; this is the value of Linux's rxe
/// (`RXE_MAX_MCAST_QP_ATTACH`).
const MAX_GROUP_MEMBERS: c_int = 56;

/// Returns the attributes of a device for ibv_query_device(3). It need not be open.
pub fn device_attr(info: &DeviceInfo) -> ibv_device_attr {
    let limits = info.nic_config().limits();
    // SAFETY: numbers and characters only.
    let mut a: ibv_device_attr = unsafe { std::mem::zeroed() };
    for (to, from) in a.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from as c_char;
    }
    a.node_guid = info.guid.to_be();
    a.sys_image_guid = a.node_guid;
    a.max_mr_size = u64::MAX;
    a.page_size_cap = 0xffff_f000;
    // No vendor; the same value as in Linux's rxe.
    a.vendor_id = 0xff_ffff;
    a.max_qp = limits.qps as c_int;
    a.max_qp_wr = limits.wrs as c_int;
    a.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR
        | IBV_DEVICE_BAD_QKEY_CNTR
        | IBV_DEVICE_CHANGE_PHY_PORT
        | IBV_DEVICE_UD_AV_PORT_ENFORCE
        | IBV_DEVICE_CURR_QP_STATE_MOD
        | IBV_DEVICE_PORT_ACTIVE_EVENT
        | IBV_DEVICE_SYS_IMAGE_GUID
        | IBV_DEVICE_RC_RNR_NAK_GEN
        | IBV_DEVICE_SRQ_RESIZE
        | IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_XRC
        | IBV_DEVICE_MEM_MGT_EXTENSIONS
        | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    a.max_sge = limits.sges as c_int;
    a.max_sge_rd = limits.sges as c_int;
    a.max_cq = limits.cqs as c_int;
    a.max_cqe = limits.cqes as c_int;
    a.max_mr = limits.mrs as c_int;
    a.max_pd = limits.pds as c_int;
    a.max_qp_rd_atom = c_int::from(limits.rd_atomics);
    a.max_res_rd_atom = a.max_qp.saturating_mul(a.max_qp_rd_atom);
    a.max_qp_init_rd_atom = a.max_qp_rd_atom;
    // Atomics are the processor's: they are also atomic with respect to the application's own.
    a.atomic_cap = IBV_ATOMIC_GLOB;
    a.max_mw = limits.mws as c_int;
    a.max_mcast_grp = limits.multicast_groups as c_int;
    a.max_mcast_qp_attach = MAX_GROUP_MEMBERS;
    a.max_total_mcast_qp_attach = a.max_mcast_grp * MAX_GROUP_MEMBERS;
    a.max_ah = MAX_AHS;
    a.max_srq = limits.srqs as c_int;
    a.max_srq_wr = limits.wrs as c_int;
    a.max_srq_sge = limits.sges as c_int;
    a.max_pkeys = PKEY_TABLE;
    a.local_ca_ack_delay = 15;
    a.phys_port_cnt = 1;
    a
}

/// Returns the attributes of a device's port for ibv_query_port(3).
pub fn port_attr(info: &DeviceInfo) -> ibv_port_attr {
    // SAFETY: numbers only.
    let mut a: ibv_port_attr = unsafe { std::mem::zeroed() };
    a.state = if info.up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    a.max_mtu = IBV_MTU_4096;
    a.active_mtu = info.mtu as u32;
    a.gid_tbl_len = info.gid_table_len() as c_int;
    a.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    a.max_msg_sz = irnic_transports::qp::MAX_MESSAGE;
    a.pkey_tbl_len = PKEY_TABLE;
    a.max_vl_num = 1;
    (a.active_width, a.active_speed) = width_and_speed(info.rate);
    // 5: link up, 3: disabled (IBA 14.2.5.6, PortPhysicalState).
    a.phys_state = if info.up { 5 } else { 3 };
    a.link_layer = IBV_LINK_LAYER_ETHERNET as u8;
    a
}

/// Returns the width and speed codes (IBA 14.2.5.6) of the fastest link that is not faster than `rate`, bit/s.
fn width_and_speed(rate: u64) -> (u8, u8) {
    const GBPS: u64 = 1_000_000_000;
    let codes = [
        // 400, 200, 100, 40, 25, 10: 4X NDR, HDR, EDR, QDR; 1X EDR, QDR.
        (400, (2, 128)),
        (200, (2, 64)),
        (100, (2, 32)),
        (40, (2, 4)),
        (25, (1, 32)),
        (10, (1, 4)),
    ];
    codes.iter().find(|(gbps, _)| gbps * GBPS <= rate).map_or((1, 1), |&(_, codes)| codes)
}
