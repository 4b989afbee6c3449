//! Attributes of queue pairs and paths in the kernel's structures.

use irnic_cm::{QpAttributes, Route};
use irnic_transports::Path;
use irnic_transports::qp::{Access, QpAttr as Attr, QpState};

use super::abi::{AhAttr, GlobalRoute, PATH_FLAGS, PathRecord, QpAttr, QueryPathResp, zeroed};
use crate::abi::consts::*;
use crate::device::{DEFAULT_PKEY, DeviceInfo};
use crate::gid::gid_of;

/// Returns an address vector for a path: global, like all of RoCE's.
pub(super) fn ah_attr(info: &DeviceInfo, path: &Path, flow_label: u32) -> AhAttr {
    let own = gid_of(path.src);
    let grh = GlobalRoute {
        dgid: gid_of(path.dst),
        flow_label,
        sgid_index: info.gid_index(info.gids.iter().position(|gid| *gid == own).unwrap_or(0)) as u8,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        reserved: 0,
    };
    AhAttr { grh, is_global: 1, port_num: 1, ..zeroed() }
}

/// Returns the access flags of libibverbs for a peer's rights.
fn access_flags(access: Access) -> u32 {
    [
        (Access::LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE),
        (Access::REMOTE_READ, IBV_ACCESS_REMOTE_READ),
        (Access::REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC),
    ]
    .into_iter()
    .filter(|(right, _)| access.allows(*right))
    .fold(0, |flags, (_, flag)| flags | flag)
}

/// Returns the attributes of a transition and their mask, for `rdma_init_qp_attr`.
pub(super) fn qp_attr(info: &DeviceInfo, state: QpState, from: &QpAttributes) -> QpAttr {
    let Attr { access, pkey_index, port, qkey, path, path_mtu, dest_qp, rq_psn, sq_psn, .. } = &from.attr;
    let Attr { max_dest_rd_atomic, max_rd_atomic, min_rnr_timer, timeout, retry_cnt, rnr_retry, .. } = &from.attr;
    let mut attr: QpAttr = zeroed();
    attr.qp_attr_mask = IBV_QP_STATE;
    attr.qp_state = match state {
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        _ => IBV_QPS_RTS,
    };
    attr.port_num = 1;
    macro_rules! set {
        ($($bit:ident: $field:ident = $value:expr;)+) => {
            $(if let Some(value) = $value {
                attr.$field = value;
                attr.qp_attr_mask |= $bit;
            })+
        };
    }
    set! {
        IBV_QP_ACCESS_FLAGS: qp_access_flags = access.map(access_flags);
        IBV_QP_PKEY_INDEX: pkey_index = *pkey_index;
        IBV_QP_PORT: port_num = *port;
        IBV_QP_QKEY: qkey = *qkey;
        IBV_QP_AV: ah_attr = path.as_ref().map(|path| ah_attr(info, path, from.flow_label));
        IBV_QP_PATH_MTU: path_mtu = path_mtu.map(|mtu| mtu as u32);
        IBV_QP_DEST_QPN: dest_qp_num = *dest_qp;
        IBV_QP_RQ_PSN: rq_psn = rq_psn.map(|psn| psn.get());
        IBV_QP_SQ_PSN: sq_psn = sq_psn.map(|psn| psn.get());
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic = *max_dest_rd_atomic;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic = *max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer = *min_rnr_timer;
        IBV_QP_TIMEOUT: timeout = *timeout;
        IBV_QP_RETRY_CNT: retry_cnt = *retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry = *rnr_retry;
    }
    attr
}

/// Returns the one path record of a route.
pub(super) fn path_record(route: &Route) -> QueryPathResp {
    let path = PathRecord {
        dgid: gid_of(route.path.dst),
        sgid: gid_of(route.path.src),
        flowlabel_hoplimit: u32::from(route.path.hop_limit).to_be(),
        tclass: route.path.traffic_class,
        reversible_numpath: 0x81,
        pkey: DEFAULT_PKEY.to_be(),
        // The upper two bits of each mean "exactly".
        mtu: 2 << 6 | route.mtu as u8,
        rate: 2 << 6,
        packetlifetime: 2 << 6 | route.packet_lifetime,
        ..zeroed()
    };
    QueryPathResp { num_paths: 1, reserved: 0, flags: PATH_FLAGS, reserved1: 0, path }
}
