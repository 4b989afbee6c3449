//! Work requests and work completions, in the terms of the verbs (IBA 10.8, 11.4).

use super::access::Access;
use crate::packet::Path;

/// Destination of a datagram.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Addresses of both ends: the verbs' address handle.
    pub path: Path,
    /// The receiver's queue pair number, 24 bits; [`MULTICAST_QPN`] with a group as `path.dst`.
    pub qpn: u32,
    /// Q_Key that the receiver must have. With its highest bit set the sending queue pair's own is used instead (IBA
    /// 3.5.3).
    pub qkey: u32,
}

/// The queue pair number in multicast packets (IBA 10.5).
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// Parameters of binding a memory window (IBA 10.6.7.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MwBind {
    /// Handle of the window.
    pub mw: u32,
    /// The window's new key. It may differ from the current one in its low 8 bits.
    pub rkey: u32,
    /// Local key of the memory region under the window.
    pub lkey: u32,
    /// First address, as in scatter/gather elements of that region.
    pub addr: u64,
    /// Length in bytes; 0 unbinds a type 1 window.
    pub len: u64,
    /// Access granted to peers.
    pub access: Access,
}

impl MwBind {
    /// Returns the operation, `remote_addr` and `rkey` of the corresponding work request.
    pub fn work_request(&self) -> (SendOp, u64, u32) {
        let MwBind { mw, rkey, lkey, addr, len, access } = *self;
        (SendOp::BindMw { mw, lkey, len, access }, addr, rkey)
    }
}

/// One scatter/gather element: a range of registered local memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Sge {
    /// Address in the application's memory.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Local key of the memory region that holds it.
    pub lkey: u32,
}

/// Operation of a send work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Sends a message into the peer's next receive WQE.
    Send,
    /// Sends a message into the peer's next receive WQE, with immediate data in its completion.
    SendImm(u32),
    /// Sends a message into the peer's next receive WQE. The peer invalidates this rkey of its own before the
    /// completion.
    SendInvalidate(u32),
    /// Writes to the peer's memory without notifying its application.
    Write,
    /// Writes to the peer's memory, and consumes a receive WQE to deliver immediate data.
    WriteImm(u32),
    /// Reads the peer's memory.
    Read,
    /// Atomic: if the 8 bytes equal `compare`, replaces them by `swap`; returns the previous value.
    CompareSwap {
        /// Value to compare with.
        compare: u64,
        /// Value to store if equal.
        swap: u64,
    },
    /// Atomic: adds to 8 bytes; returns the previous value.
    FetchAdd {
        /// Value to add, modulo 2⁶⁴.
        add: u64,
    },
    /// Writes eight bytes to the peer's memory atomically (IBA 1.5). The bytes are written in the order given. The work
    /// request has no data of its own.
    AtomicWrite([u8; 8]),
    /// Has all earlier writes to the peer's memory reach the requested visibility (IBA 1.5). The work request has no
    /// data.
    Flush {
        /// Bytes from [`SendWr::remote_addr`] on.
        len: u32,
        /// [`Feth::placement`](crate::wire::Feth).
        placement: u8,
        /// [`Feth::selectivity`](crate::wire::Feth).
        selectivity: u8,
    },
    /// Invalidates a local rkey, in order, without a packet.
    LocalInvalidate(u32),
    /// Binds a memory window, in order, without a packet. [`SendWr::remote_addr`] is the first address,
    /// [`SendWr::rkey`] the window's new key; see [`MwBind`].
    BindMw {
        /// Handle of the window.
        mw: u32,
        /// Local key of the memory region under the window.
        lkey: u32,
        /// Length in bytes; 0 unbinds a type 1 window.
        len: u64,
        /// Access granted to peers.
        access: Access,
    },
}

// It is copied with every work request.
const _: () = assert!(size_of::<SendOp>() == 24);

impl SendOp {
    /// Returns whether it consumes a receive WQE of the peer.
    #[inline]
    pub fn takes_recv_wqe(&self) -> bool {
        matches!(self, SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) | SendOp::WriteImm(_))
    }

    /// Returns whether it is answered by a response: READ, the atomics, ATOMIC WRITE and FLUSH, which `max_rd_atomic`
    /// limits.
    #[inline]
    pub fn is_read_or_atomic(&self) -> bool {
        matches!(self, SendOp::Read | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) || self.is_newer()
    }

    /// Returns whether it was added by IBA 1.5: ATOMIC WRITE and FLUSH, on reliable connections only.
    #[inline]
    pub fn is_newer(&self) -> bool {
        matches!(self, SendOp::AtomicWrite(_) | SendOp::Flush { .. })
    }

    /// Returns the bytes of the peer's memory, from [`SendWr::remote_addr`] on, that it reads or changes with a message
    /// of `len` bytes.
    pub(crate) fn remote_len(&self, len: u32) -> u32 {
        match self {
            SendOp::Write | SendOp::WriteImm(_) | SendOp::Read => len,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite(_) => 8,
            _ => 0,
        }
    }

    /// Returns whether it changes memory that it names.
    pub(crate) fn changes_remote(&self) -> bool {
        !matches!(self, SendOp::Read) && self.remote_len(1) > 0
    }

    /// Returns whether one that [changes memory](Self::changes_remote) may not start before an earlier one to the same
    /// memory is complete. IRN's responders place WRITEs as they arrive, and read memory again for responses that were
    /// lost (§4.4.3); atomics wait there for everything sent before them.
    pub(crate) fn must_follow(&self, earlier: &SendOp) -> bool {
        matches!(self, SendOp::Write | SendOp::WriteImm(_)) || matches!(earlier, SendOp::Read)
    }

    /// Returns whether it is executed locally, in its turn, without a packet.
    #[inline]
    pub fn is_local(&self) -> bool {
        matches!(self, SendOp::LocalInvalidate(_) | SendOp::BindMw { .. })
    }

    /// Returns the opcode of its completion.
    pub fn wc_opcode(&self) -> WcOpcode {
        match self {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => WcOpcode::Send,
            SendOp::Write | SendOp::WriteImm(_) => WcOpcode::RdmaWrite,
            SendOp::Read => WcOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::AtomicWrite(_) => WcOpcode::AtomicWrite,
            SendOp::Flush { .. } => WcOpcode::Flush,
            SendOp::LocalInvalidate(_) => WcOpcode::LocalInvalidate,
            SendOp::BindMw { .. } => WcOpcode::BindMw,
        }
    }
}

/// Location of a send work request's data.
#[derive(Copy, Clone, Debug)]
pub enum SendData<'a> {
    /// Gathered from registered memory when sent (or scattered there, for READ and atomics).
    Sges(&'a [Sge]),
    /// Copied while posting: the buffer may be reused at once. SEND and WRITE only.
    Inline(&'a [u8]),
}

/// A send work request.
#[derive(Copy, Clone, Debug)]
pub struct SendWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Operation.
    pub op: SendOp,
    /// Local bytes, at most 1 GiB in all.
    pub data: SendData<'a>,
    /// Remote address (WRITE, READ, atomics, ATOMIC WRITE, FLUSH).
    pub remote_addr: u64,
    /// Remote key (WRITE, READ, atomics, ATOMIC WRITE, FLUSH).
    pub rkey: u32,
    /// Whether to generate a completion even on success.
    pub signaled: bool,
    /// Whether the peer's completion wakes a CQ armed for solicited events only.
    pub solicited: bool,
    /// Whether to start only after all READs and atomics before it are complete.
    pub fence: bool,
    /// Destination, for datagrams only: connected services ignore it.
    pub to: Option<Address>,
    /// Number of the peer's shared receive queue, 24 bits (XRC). It also selects the memory that the request can
    /// access: the protection domain is the queue's.
    pub remote_srqn: u32,
}

impl<'a> SendWr<'a> {
    /// Returns a signaled work request without a remote address.
    pub fn new(wr_id: u64, op: SendOp, data: SendData<'a>) -> SendWr<'a> {
        SendWr {
            wr_id,
            op,
            data,
            remote_addr: 0,
            rkey: 0,
            signaled: true,
            solicited: false,
            fence: false,
            to: None,
            remote_srqn: 0,
        }
    }

    /// Returns a signaled RDMA WRITE of `data` to `remote_addr` of the peer, in the memory region with the key `rkey`.
    pub fn write(wr_id: u64, data: SendData<'a>, remote_addr: u64, rkey: u32) -> SendWr<'a> {
        SendWr { remote_addr, rkey, ..SendWr::new(wr_id, SendOp::Write, data) }
    }
}

/// A receive work request.
#[derive(Copy, Clone, Debug)]
pub struct RecvWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Scatter list of the message.
    pub sges: &'a [Sge],
}

/// Operation of a completion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the verbs' own names
pub enum WcOpcode {
    Send,
    RdmaWrite,
    RdmaRead,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
    LocalInvalidate,
    BindMw,
    Recv,
    RecvRdmaWithImm,
}

/// Status of a work request (IBA 11.6.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum WcStatus {
    /// Success.
    Success,
    /// A message too long for its receive WQE, or for the protocol.
    LocLenErr,
    /// The work request or the QP is inconsistent.
    LocQpOpErr,
    /// A local key, address or access right is invalid.
    LocProtErr,
    /// A memory window cannot be bound as requested.
    MwBindErr,
    /// The QP went to the error state before completion.
    WrFlushErr,
    /// The peer's response is invalid.
    BadRespErr,
    /// The peer reports an invalid request.
    RemInvReqErr,
    /// The peer reports an invalid rkey, address or access right.
    RemAccessErr,
    /// The peer could not execute it.
    RemOpErr,
    /// The peer did not answer within retries × timeout.
    RetryExcErr,
    /// The peer had no receive WQE for too long.
    RnrRetryExcErr,
}

impl WcStatus {
    /// Returns the text of `ibv_wc_status_str`.
    pub fn as_str(self) -> &'static str {
        match self {
            WcStatus::Success => "success",
            WcStatus::LocLenErr => "local length error",
            WcStatus::LocQpOpErr => "local QP operation error",
            WcStatus::LocProtErr => "local protection error",
            WcStatus::MwBindErr => "memory bind error",
            WcStatus::WrFlushErr => "Work Request Flushed Error",
            WcStatus::BadRespErr => "bad response error",
            WcStatus::RemInvReqErr => "remote invalid request error",
            WcStatus::RemAccessErr => "remote access error",
            WcStatus::RemOpErr => "remote operation error",
            WcStatus::RetryExcErr => "transport retry counter exceeded",
            WcStatus::RnrRetryExcErr => "RNR retry counter exceeded",
        }
    }
}

/// A work completion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Wc {
    /// `wr_id` of the work request.
    pub wr_id: u64,
    /// Status; unless it is [`WcStatus::Success`], only `wr_id`, `status` and `qp_num` are valid.
    pub status: WcStatus,
    /// Operation.
    pub opcode: WcOpcode,
    /// Bytes received, read, or (atomics) 8. For a datagram received, including the 40 bytes before it.
    pub byte_len: u32,
    /// Immediate data, if the message had it.
    pub imm: Option<u32>,
    /// The rkey that the message invalidated.
    pub invalidated: Option<u32>,
    /// The local QP.
    pub qp_num: u32,
    /// The sender's QP (datagrams received).
    pub src_qp: u32,
    /// Whether the first 40 bytes of the buffer hold the datagram's source ([`Grh::receive_area`](crate::wire::Grh)).
    pub grh: bool,
    /// Datagrams: whether the packet came over IPv4, so that the area holds an IPv4 header in its second half (IBA
    /// A17.4.5.1).
    pub ipv4: bool,
    /// Whether the peer requested to wake a CQ armed for solicited events.
    pub solicited: bool,
    /// Completion time, in ticks of the device's hardware clock.
    pub timestamp: u64,
}

impl Wc {
    /// A blank completion, to fill a polling buffer.
    pub const EMPTY: Wc = Wc {
        wr_id: 0,
        status: WcStatus::Success,
        opcode: WcOpcode::Send,
        byte_len: 0,
        imm: None,
        invalidated: None,
        qp_num: 0,
        src_qp: 0,
        grh: false,
        ipv4: false,
        solicited: false,
        timestamp: 0,
    };
}
