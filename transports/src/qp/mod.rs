//! Queue pairs: what an application sees of one, whatever its service.
//!
//! [`Qp`] is the state machine: states and attributes, work requests in, completions out. What a service does with packets is
//! behind it, in [`crate::rc`], `uc` and `ud`; the queues, which all services have in common, are here.
//! What a queue pair needs of the device around it is [`Host`].

pub(crate) mod access;
mod attr;
pub(crate) mod common;
mod connect;
mod counters;
mod engine;
pub(crate) mod host;
mod pair;
pub(crate) mod recv_queue;
pub(crate) mod send_queue;
pub(crate) mod stats;
pub(crate) mod work;

pub use access::Access;
pub use attr::{MAX_RD_ATOMIC, ModifyError, QpAttr, QpState};
pub use connect::ConnectParams;
pub use counters::Counters;
pub use host::{AtomicOp, Caller, CqId, Event, GatherList, Host, MemError, PdId, PeerProcess, RecvWqe, SrqId, TxSlot};
pub use pair::{Qp, QpConfig};
pub use send_queue::{MAX_MESSAGE, PostError};
pub use stats::{QpStats, RttHistogram};
pub use work::{Address, MULTICAST_QPN, MwBind, RecvWr, SendData, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};

/// What a queue pair promises (IBA 9.7, 9.8).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection: each message arrives once and in order, or the queue pair fails.
    Rc,
    /// Unreliable connection: messages arrive in order, whole or not at all.
    Uc,
    /// Unreliable datagram: messages of one packet, to and from anybody.
    Ud,
}
