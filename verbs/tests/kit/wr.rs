//! Work requests, built by chaining.

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;

use super::{Ah, Mw, zeroed};

/// A send work request. Signaled unless said otherwise.
pub struct Send {
    pub wr: ibv_send_wr,
    sges: Vec<ibv_sge>,
}

impl Send {
    pub fn new(wr_id: u64, opcode: u32) -> Send {
        Send { wr: ibv_send_wr { wr_id, opcode, send_flags: IBV_SEND_SIGNALED, ..zeroed() }, sges: Vec::new() }
    }

    pub fn message(wr_id: u64) -> Send {
        Send::new(wr_id, IBV_WR_SEND)
    }

    fn rdma(wr_id: u64, opcode: u32, (remote_addr, rkey): (u64, u32)) -> Send {
        let mut send = Send::new(wr_id, opcode);
        send.wr.wr.rdma = ibv_wr_rdma { remote_addr, rkey };
        send
    }

    pub fn write(wr_id: u64, to: (u64, u32)) -> Send {
        Send::rdma(wr_id, IBV_WR_RDMA_WRITE, to)
    }

    pub fn read(wr_id: u64, from: (u64, u32)) -> Send {
        Send::rdma(wr_id, IBV_WR_RDMA_READ, from)
    }

    pub fn add(wr_id: u64, (remote_addr, rkey): (u64, u32), add: u64) -> Send {
        let mut send = Send::new(wr_id, IBV_WR_ATOMIC_FETCH_AND_ADD);
        send.wr.wr.atomic = ibv_wr_atomic { remote_addr, compare_add: add, swap: 0, rkey };
        send
    }

    pub fn swap(wr_id: u64, (remote_addr, rkey): (u64, u32), compare: u64, swap: u64) -> Send {
        let mut send = Send::new(wr_id, IBV_WR_ATOMIC_CMP_AND_SWP);
        send.wr.wr.atomic = ibv_wr_atomic { remote_addr, compare_add: compare, swap, rkey };
        send
    }

    pub fn local_inv(wr_id: u64, rkey: u32) -> Send {
        let mut send = Send::new(wr_id, IBV_WR_LOCAL_INV);
        send.wr.data.invalidate_rkey = rkey;
        send
    }

    pub fn bind(wr_id: u64, mw: &Mw, rkey: u32, bind_info: ibv_mw_bind_info) -> Send {
        let mut send = Send::new(wr_id, IBV_WR_BIND_MW);
        send.wr.extra.bind_mw = ibv_wr_bind_mw { mw: mw.0, rkey, bind_info };
        send
    }

    pub fn to(mut self, ah: &Ah, remote_qpn: u32, remote_qkey: u32) -> Send {
        self.wr.wr.ud = ibv_wr_ud { ah: ah.0, remote_qpn, remote_qkey };
        self
    }

    /// Makes a send or an RDMA WRITE one with immediate data.
    pub fn imm(mut self, imm: u32) -> Send {
        self.wr.opcode = match self.wr.opcode {
            IBV_WR_SEND => IBV_WR_SEND_WITH_IMM,
            IBV_WR_RDMA_WRITE => IBV_WR_RDMA_WRITE_WITH_IMM,
            other => other,
        };
        self.wr.data.imm_data = imm.to_be();
        self
    }

    /// Makes a send one that invalidates the remote key `rkey`.
    pub fn inv(mut self, rkey: u32) -> Send {
        self.wr.opcode = IBV_WR_SEND_WITH_INV;
        self.wr.data.invalidate_rkey = rkey;
        self
    }

    pub fn sge(mut self, sge: ibv_sge) -> Send {
        self.sges.push(sge);
        self
    }

    pub fn flags(mut self, flags: u32) -> Send {
        self.wr.send_flags |= flags;
        self
    }

    pub fn unsignaled(mut self) -> Send {
        self.wr.send_flags &= !IBV_SEND_SIGNALED;
        self
    }

    pub fn finish(&mut self, next: *mut ibv_send_wr) -> *mut ibv_send_wr {
        self.wr.next = next;
        self.wr.sg_list = self.sges.as_mut_ptr();
        self.wr.num_sge = self.sges.len() as i32;
        &mut self.wr
    }
}

/// A receive work request.
pub struct Recv {
    wr_id: u64,
    sges: Vec<ibv_sge>,
}

/// One that C can read.
pub struct Built {
    pub wr: Box<ibv_recv_wr>,
    _sges: Vec<ibv_sge>,
}

impl Recv {
    pub fn new(wr_id: u64) -> Recv {
        Recv { wr_id, sges: Vec::new() }
    }

    pub fn sge(mut self, sge: ibv_sge) -> Recv {
        self.sges.push(sge);
        self
    }

    pub fn build(mut self) -> Built {
        let wr = ibv_recv_wr {
            wr_id: self.wr_id,
            next: std::ptr::null_mut(),
            sg_list: self.sges.as_mut_ptr(),
            num_sge: self.sges.len() as i32,
        };
        Built { wr: Box::new(wr), _sges: self.sges }
    }
}
