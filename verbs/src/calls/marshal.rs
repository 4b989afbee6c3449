//! Copies between structures of the kernel's uverbs interface and libibverbs' own. librdmacm uses them.

use crate::abi::structs::{ibv_ah_attr, ibv_gid, ibv_qp_attr};

/// A GRH in the kernel's format: `ib_uverbs_global_route` of `rdma/ib_user_verbs.h`.
#[repr(C)]
#[derive(Copy, Clone)]
#[allow(non_camel_case_types, missing_docs)]
pub struct ib_uverbs_global_route {
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reserved: u8,
}

/// An address in the kernel's format: `ib_uverbs_ah_attr`.
#[repr(C)]
#[derive(Copy, Clone)]
#[allow(non_camel_case_types, missing_docs)]
pub struct ib_uverbs_ah_attr {
    pub grh: ib_uverbs_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
    pub reserved: u8,
}

/// Attributes of a QP in the kernel's format: `ib_uverbs_qp_attr`.
#[repr(C)]
#[derive(Copy, Clone)]
#[allow(non_camel_case_types, missing_docs)]
pub struct ib_uverbs_qp_attr {
    pub qp_attr_mask: u32,
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub ah_attr: ib_uverbs_ah_attr,
    pub alt_ah_attr: ib_uverbs_ah_attr,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub reserved: [u8; 5],
}

/// A path record in the kernel's format: `ib_user_path_rec` of `rdma/ib_user_sa.h`.
#[repr(C)]
#[derive(Copy, Clone)]
#[allow(non_camel_case_types, missing_docs)]
pub struct ib_user_path_rec {
    pub dgid: [u8; 16],
    pub sgid: [u8; 16],
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: u32,
    pub flow_label: u32,
    pub reversible: u32,
    pub mtu: u32,
    pub pkey: u16,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub numb_path: u8,
    pub sl: u8,
    pub mtu_selector: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}

/// A path record in libibverbs' format: `ibv_sa_path_rec` of `infiniband/sa.h`.
#[repr(C)]
#[derive(Copy, Clone)]
#[allow(non_camel_case_types, missing_docs)]
pub struct ibv_sa_path_rec {
    pub dgid: ibv_gid,
    pub sgid: ibv_gid,
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: i32,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reversible: i32,
    pub numb_path: u8,
    pub pkey: u16,
    pub sl: u8,
    pub mtu_selector: u8,
    pub mtu: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}

fn copy_ah_attr(dst: &mut ibv_ah_attr, src: &ib_uverbs_ah_attr) {
    dst.grh.dgid.raw = src.grh.dgid;
    dst.grh.flow_label = src.grh.flow_label;
    dst.grh.sgid_index = src.grh.sgid_index;
    dst.grh.hop_limit = src.grh.hop_limit;
    dst.grh.traffic_class = src.grh.traffic_class;
    dst.dlid = src.dlid;
    dst.sl = src.sl;
    dst.src_path_bits = src.src_path_bits;
    dst.static_rate = src.static_rate;
    dst.is_global = src.is_global;
    dst.port_num = src.port_num;
}

/// Fills `dst` from the kernel's structure.
pub unsafe extern "C" fn ibv_copy_ah_attr_from_kern(dst: *mut ibv_ah_attr, src: *const ib_uverbs_ah_attr) {
    // SAFETY: both point to one structure each, per the prototype; any bytes are valid for either.
    let (dst, src) = unsafe { (&mut *dst, &*src) };
    copy_ah_attr(dst, src);
}

/// Fills `dst` from the kernel's structure, except `qp_state` and `rate_limit`, which the callers get separately.
pub unsafe extern "C" fn ibv_copy_qp_attr_from_kern(dst: *mut ibv_qp_attr, src: *const ib_uverbs_qp_attr) {
    // SAFETY: both point to one structure each, per the prototype; any bytes are valid for either.
    let (dst, src) = unsafe { (&mut *dst, &*src) };
    dst.cur_qp_state = src.cur_qp_state;
    dst.path_mtu = src.path_mtu;
    dst.path_mig_state = src.path_mig_state;
    dst.qkey = src.qkey;
    dst.rq_psn = src.rq_psn;
    dst.sq_psn = src.sq_psn;
    dst.dest_qp_num = src.dest_qp_num;
    dst.qp_access_flags = src.qp_access_flags;
    dst.cap.max_send_wr = src.max_send_wr;
    dst.cap.max_recv_wr = src.max_recv_wr;
    dst.cap.max_send_sge = src.max_send_sge;
    dst.cap.max_recv_sge = src.max_recv_sge;
    dst.cap.max_inline_data = src.max_inline_data;
    copy_ah_attr(&mut dst.ah_attr, &src.ah_attr);
    copy_ah_attr(&mut dst.alt_ah_attr, &src.alt_ah_attr);
    dst.pkey_index = src.pkey_index;
    dst.alt_pkey_index = src.alt_pkey_index;
    dst.en_sqd_async_notify = src.en_sqd_async_notify;
    dst.sq_draining = src.sq_draining;
    dst.max_rd_atomic = src.max_rd_atomic;
    dst.max_dest_rd_atomic = src.max_dest_rd_atomic;
    dst.min_rnr_timer = src.min_rnr_timer;
    dst.port_num = src.port_num;
    dst.timeout = src.timeout;
    dst.retry_cnt = src.retry_cnt;
    dst.rnr_retry = src.rnr_retry;
    dst.alt_port_num = src.alt_port_num;
    dst.alt_timeout = src.alt_timeout;
}

/// Fills `dst` from the kernel's structure. Fields in network order stay in it.
pub unsafe extern "C" fn ibv_copy_path_rec_from_kern(dst: *mut ibv_sa_path_rec, src: *const ib_user_path_rec) {
    // SAFETY: both point to one structure each, per the prototype.
    unsafe {
        let src = &*src;
        dst.write(ibv_sa_path_rec {
            dgid: ibv_gid { raw: src.dgid },
            sgid: ibv_gid { raw: src.sgid },
            dlid: src.dlid,
            slid: src.slid,
            raw_traffic: src.raw_traffic as i32,
            flow_label: src.flow_label,
            hop_limit: src.hop_limit,
            traffic_class: src.traffic_class,
            reversible: src.reversible as i32,
            numb_path: src.numb_path,
            pkey: src.pkey,
            sl: src.sl,
            mtu_selector: src.mtu_selector,
            // One of five codes, in a wider field in the kernel's structure.
            mtu: src.mtu as u8,
            rate_selector: src.rate_selector,
            rate: src.rate,
            packet_life_time_selector: src.packet_life_time_selector,
            packet_life_time: src.packet_life_time,
            preference: src.preference,
        });
    }
}

/// Fills the kernel's structure from `src`. Fields in network order stay in it.
pub unsafe extern "C" fn ibv_copy_path_rec_to_kern(dst: *mut ib_user_path_rec, src: *const ibv_sa_path_rec) {
    // SAFETY: both point to one structure each, per the prototype; a GID is sixteen bytes in any of its forms.
    unsafe {
        let src = &*src;
        dst.write(ib_user_path_rec {
            dgid: src.dgid.raw,
            sgid: src.sgid.raw,
            dlid: src.dlid,
            slid: src.slid,
            raw_traffic: src.raw_traffic as u32,
            flow_label: src.flow_label,
            reversible: src.reversible as u32,
            mtu: src.mtu.into(),
            pkey: src.pkey,
            hop_limit: src.hop_limit,
            traffic_class: src.traffic_class,
            numb_path: src.numb_path,
            sl: src.sl,
            mtu_selector: src.mtu_selector,
            rate_selector: src.rate_selector,
            rate: src.rate,
            packet_life_time_selector: src.packet_life_time_selector,
            packet_life_time: src.packet_life_time,
            preference: src.preference,
        });
    }
}
