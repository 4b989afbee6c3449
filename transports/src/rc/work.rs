//! Work requests and work completions, in the terms of the verbs (IBA 10.8, 11.4).

/// One scatter/gather element: a stretch of registered local memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Sge {
    /// Address in the application's memory.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Local key of the memory region that holds it.
    pub lkey: u32,
}

/// What a send work request does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Message into the peer's next receive WQE.
    Send,
    /// The same, with immediate data in its completion.
    SendImm(u32),
    /// The same; the peer's given rkey is invalidated before its completion.
    SendInvalidate(u32),
    /// Into the peer's memory; the peer's application is not told.
    Write,
    /// The same, and consumes a receive WQE to deliver immediate data.
    WriteImm(u32),
    /// From the peer's memory.
    Read,
    /// Atomic: if the 8 bytes equal `compare`, replace them by `swap`; the value before comes back.
    CompareSwap {
        /// Value to compare with.
        compare: u64,
        /// Value to store if equal.
        swap: u64,
    },
    /// Atomic: add to 8 bytes; the value before comes back.
    FetchAdd {
        /// Value to add, modulo 2⁶⁴.
        add: u64,
    },
    /// Invalidates a local rkey, in order, without a packet.
    LocalInvalidate(u32),
}

impl SendOp {
    /// Whether the peer spends a receive WQE on it.
    #[inline]
    pub fn takes_recv_wqe(&self) -> bool {
        matches!(self, SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) | SendOp::WriteImm(_))
    }

    /// Whether a response carries its result: READ and the atomics, which `max_rd_atomic` limits.
    #[inline]
    pub fn is_read_or_atomic(&self) -> bool {
        matches!(self, SendOp::Read | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// What its completion says.
    pub fn wc_opcode(&self) -> WcOpcode {
        match self {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => WcOpcode::Send,
            SendOp::Write | SendOp::WriteImm(_) => WcOpcode::RdmaWrite,
            SendOp::Read => WcOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::LocalInvalidate(_) => WcOpcode::LocalInvalidate,
        }
    }
}

/// Where a send work request's bytes are.
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
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Operation.
    pub op: SendOp,
    /// Local bytes, at most 1 GiB in all.
    pub data: SendData<'a>,
    /// Remote address (WRITE, READ, atomics).
    pub remote_addr: u64,
    /// Remote key (WRITE, READ, atomics).
    pub rkey: u32,
    /// Wants a completion even if it succeeds.
    pub signaled: bool,
    /// The peer's completion wakes a CQ armed for solicited events only.
    pub solicited: bool,
    /// Starts only after all READs and atomics before it are complete.
    pub fence: bool,
}

/// A receive work request.
#[derive(Copy, Clone, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// What a completion was for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the verbs' own names
pub enum WcOpcode {
    Send,
    RdmaWrite,
    RdmaRead,
    CompareSwap,
    FetchAdd,
    LocalInvalidate,
    Recv,
    RecvRdmaWithImm,
}

/// How a work request ended (IBA 11.6.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum WcStatus {
    /// Done.
    Success,
    /// A message too long for its receive WQE, or for the protocol.
    LocLenErr,
    /// The work request or the QP is inconsistent.
    LocQpOpErr,
    /// A local key, address or access right does not fit.
    LocProtErr,
    /// The QP went to the error state before this was done.
    WrFlushErr,
    /// The peer's response makes no sense.
    BadRespErr,
    /// The peer says that the request was invalid.
    RemInvReqErr,
    /// The peer says that rkey, address or rights do not fit.
    RemAccessErr,
    /// The peer could not carry it out.
    RemOpErr,
    /// The peer did not answer within retries × timeout.
    RetryExcErr,
    /// The peer had no receive WQE for too long.
    RnrRetryExcErr,
}

impl WcStatus {
    /// The sentence that `ibv_wc_status_str` users know.
    pub fn as_str(self) -> &'static str {
        match self {
            WcStatus::Success => "success",
            WcStatus::LocLenErr => "local length error",
            WcStatus::LocQpOpErr => "local QP operation error",
            WcStatus::LocProtErr => "local protection error",
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
    /// The work request's.
    pub wr_id: u64,
    /// How it ended; only `wr_id`, `status` and `qp_num` mean anything unless [`WcStatus::Success`].
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Bytes received, read, or (atomics) 8.
    pub byte_len: u32,
    /// Immediate data, if the message had it.
    pub imm: Option<u32>,
    /// The rkey that the message invalidated.
    pub invalidated: Option<u32>,
    /// The local QP.
    pub qp_num: u32,
    /// The peer asked to wake a CQ armed for solicited events.
    pub solicited: bool,
    /// When it completed, in ticks of the device's hardware clock.
    pub timestamp: u64,
}

impl Wc {
    /// A completion of nothing: what a polling buffer is filled with.
    pub const EMPTY: Wc = Wc {
        wr_id: 0,
        status: WcStatus::Success,
        opcode: WcOpcode::Send,
        byte_len: 0,
        imm: None,
        invalidated: None,
        qp_num: 0,
        solicited: false,
        timestamp: 0,
    };
}
