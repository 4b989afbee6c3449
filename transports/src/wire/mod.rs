//! RoCEv2 on the wire: headers, opcodes, ICRC, and the IRN extension (`docs/wire.md`).
//!
//! What lives here is bytes and their meaning; what a queue pair does with them does not.

pub mod opcode;

pub use opcode::Opcode;

use crate::psn::Psn;

/// Base transport header (IBA 9.2), less what the opcode and the port imply.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Service type and operation.
    pub opcode: Opcode,
    /// Solicited event: the receiver's completion shall wake a CQ armed for solicited events only.
    pub solicited: bool,
    /// MigReq: the sender's automatic path migration state; 1 in RoCE.
    pub migreq: bool,
    /// Bytes of padding after the payload, 0 to 3.
    pub pad: u8,
    /// Partition key, 0xffff by default.
    pub pkey: u16,
    /// Forward congestion notification (IBA A10). Not covered by the ICRC.
    pub fecn: bool,
    /// Backward congestion notification. Not covered by the ICRC.
    pub becn: bool,
    /// Destination queue pair number, 24 bits.
    pub dest_qp: u32,
    /// The sender asks for an acknowledgement.
    pub ack_req: bool,
    /// The sender can speak the IRN extension (irnic's reserved bit C).
    pub irn_capable: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

/// RDMA extended transport header (IBA 9.3.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Reth {
    /// Virtual address in the remote region. On an IRN WRITE packet that of this packet's first byte.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the whole request; on an IRN WRITE packet the bytes from this packet to the end of the message.
    pub len: u32,
}

/// Acknowledge extended transport header (IBA 9.3.5).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Aeth {
    /// ACK with credits, RNR NAK with timer, or NAK with code (IBA 9.7.5.2.1), as on the wire.
    pub syndrome: u8,
    /// Message sequence number.
    pub msn: Psn,
}

/// Atomic extended transport header (IBA 9.3.4).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct AtomicEth {
    /// Virtual address, a multiple of 8.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to swap in, or to add.
    pub swap_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// Datagram extended transport header (IBA 9.3.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// The sender's queue pair number, 24 bits.
    pub src_qp: u32,
}

/// What the IRN extension adds to a packet (`docs/wire.md`); which variant is implied by the opcode.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IrnEth {
    /// SEND packets: which receive WQE, and how many packets into the message (IRN §4.4.3).
    Send {
        /// Sequence number of the receive WQE that this message consumes.
        recv_wqe_sn: Psn,
        /// Packets of the message before this one.
        psn_offset: u32,
    },
    /// WRITE packets without immediate: no field of its own, but a RETH on every packet.
    Write,
    /// Last (or only) WRITE packet with immediate.
    WriteImm {
        /// Sequence number of the receive WQE that this message consumes.
        recv_wqe_sn: Psn,
    },
    /// READ and ATOMIC requests.
    Read {
        /// Index of this request among the READ and ATOMIC requests of the QP.
        read_wqe_sn: Psn,
    },
    /// Acknowledgements and read acknowledgements: the packet that triggered them.
    Ack {
        /// PSN of the packet that arrived; on a NACK the selective acknowledgement, equal to the BTH's PSN if none.
        selective: Psn,
    },
    /// READ and ATOMIC responses: no field; the PSN counts in the rPSN space.
    Response,
}

/// A packet's parsed headers. Which of the optional ones are there is fixed by the opcode and `irn`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// Datagram header (UD).
    pub deth: Option<Deth>,
    /// RDMA header (READ request, first or only WRITE; every WRITE with IRN).
    pub reth: Option<Reth>,
    /// Acknowledge header (ACK, first, last and only READ response, ATOMIC response).
    pub aeth: Option<Aeth>,
    /// Atomic request header.
    pub atomic: Option<AtomicEth>,
    /// Atomic response: the value before.
    pub atomic_ack: Option<u64>,
    /// Immediate data, host order of the big-endian word.
    pub imm: Option<u32>,
    /// Key to invalidate.
    pub ieth: Option<u32>,
    /// IRN extension; its presence is the BTH's bit X.
    pub irn: Option<IrnEth>,
}
