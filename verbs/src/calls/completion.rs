//! Conversion of completions to C.

use irnic_transports::qp::{Wc, WcOpcode, WcStatus};

use crate::abi::consts::*;
use crate::abi::structs::*;

/// Returns the `ibv_wc_status` of a completion.
pub(super) fn wc_status(status: WcStatus) -> u32 {
    match status {
        WcStatus::Success => IBV_WC_SUCCESS,
        WcStatus::LocLenErr => IBV_WC_LOC_LEN_ERR,
        WcStatus::LocQpOpErr => IBV_WC_LOC_QP_OP_ERR,
        WcStatus::LocProtErr => IBV_WC_LOC_PROT_ERR,
        WcStatus::WrFlushErr => IBV_WC_WR_FLUSH_ERR,
        WcStatus::MwBindErr => IBV_WC_MW_BIND_ERR,
        WcStatus::BadRespErr => IBV_WC_BAD_RESP_ERR,
        WcStatus::RemInvReqErr => IBV_WC_REM_INV_REQ_ERR,
        WcStatus::RemAccessErr => IBV_WC_REM_ACCESS_ERR,
        WcStatus::RemOpErr => IBV_WC_REM_OP_ERR,
        WcStatus::RetryExcErr => IBV_WC_RETRY_EXC_ERR,
        WcStatus::RnrRetryExcErr => IBV_WC_RNR_RETRY_EXC_ERR,
    }
}

/// Returns the `ibv_wc_opcode` of a completion.
pub(super) fn wc_opcode(opcode: WcOpcode) -> u32 {
    match opcode {
        WcOpcode::Send => IBV_WC_SEND,
        WcOpcode::RdmaWrite => IBV_WC_RDMA_WRITE,
        WcOpcode::RdmaRead => IBV_WC_RDMA_READ,
        WcOpcode::CompareSwap => IBV_WC_COMP_SWAP,
        WcOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        WcOpcode::AtomicWrite => IBV_WC_ATOMIC_WRITE,
        WcOpcode::Flush => IBV_WC_FLUSH,
        WcOpcode::LocalInvalidate => IBV_WC_LOCAL_INV,
        WcOpcode::BindMw => IBV_WC_BIND_MW,
        WcOpcode::Recv => IBV_WC_RECV,
        WcOpcode::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

/// Returns the `ibv_wc_flags` of a completion.
pub(super) fn wc_flags(wc: &Wc) -> u32 {
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    flag(wc.imm.is_some(), IBV_WC_WITH_IMM) | flag(wc.invalidated.is_some(), IBV_WC_WITH_INV) | flag(wc.grh, IBV_WC_GRH)
}

/// Returns immediate data as it was on the wire, or the key that was invalidated.
pub(super) fn wc_data(wc: &Wc) -> ibv_wc_data {
    match wc.invalidated {
        Some(invalidated_rkey) => ibv_wc_data { invalidated_rkey },
        None => ibv_wc_data { imm_data: wc.imm.unwrap_or(0).to_be() },
    }
}

/// Returns the service level of a completion. RoCE has none; ConnectX reports in it the packet type of a datagram,
/// which UCX reads: bit 3 for a UDP header, below it 1 for IPv6 and 2 for IPv4.
pub(super) fn wc_sl(wc: &Wc) -> u8 {
    match (wc.grh, wc.ipv4) {
        (false, _) => 0,
        (true, false) => 0x9,
        (true, true) => 0xa,
    }
}

/// Returns a completion as a C structure.
#[inline]
pub(super) fn to_c(wc: &Wc) -> ibv_wc {
    ibv_wc {
        wr_id: wc.wr_id,
        status: wc_status(wc.status),
        opcode: wc_opcode(wc.opcode),
        vendor_err: 0,
        byte_len: wc.byte_len,
        data: wc_data(wc),
        qp_num: wc.qp_num,
        src_qp: wc.src_qp,
        wc_flags: wc_flags(wc),
        pkey_index: 0,
        slid: 0,
        sl: wc_sl(wc),
        dlid_path_bits: 0,
    }
}
