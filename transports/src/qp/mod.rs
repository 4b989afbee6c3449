//! Queue pairs as seen by applications, whatever their service.
//!
//! [`Qp`] is the state machine: states and attributes, work requests in, completions out. The services' packet handling
//! is in [`crate::rc`], `uc` and `ud`; the queues, which all services share, are here. [`Host`] is the interface to the
//! device.

pub(crate) mod access;
mod any_service;
mod attr;
mod config;
mod connect;
pub(crate) mod context;
mod counters;
pub(crate) mod host;
#[allow(clippy::module_inception)] // named after the type
mod qp;
pub(crate) mod recv_queue;
pub(crate) mod send_queue;
pub(crate) mod service;
mod slack_state;
pub(crate) mod stats;
pub(crate) mod work;

pub use crate::wire::opcode::Service;
pub use access::Access;
pub use attr::{MAX_RD_ATOMIC, ModifyError, QpAttr, QpState};
pub use config::QpConfig;
pub use connect::ConnectParams;
pub use counters::{Counters, QpCounts};
pub use host::{
    AtomicOp, Caller, CqId, Event, Fast, Frees, GatherList, Host, MemError, PdId, PeerProcess, PullTurn, Reader,
    RecvWqe, SrqId, Taken, TxSlot, XrcSrq, XrcdId,
};
pub use qp::Qp;
pub use send_queue::{MAX_MESSAGE, PostError};
pub use stats::{QpStats, RttHistogram};
pub use work::{Address, MULTICAST_QPN, MwBind, RecvWr, SendData, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};
