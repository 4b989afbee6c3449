//! Reliable connection: one queue pair's protocol.
//!
//! [`Qp`] is the state machine. Its halves are the [`requester`], which owns the send queue, and the [`responder`], which
//! owns the receive queue; the loss recovery of each is in [`crate::recovery`]. What a queue pair needs of the device
//! around it is [`Host`].

mod acks;
mod attr;
mod common;
mod config;
mod counters;
mod host;
mod qp;
mod recv_queue;
mod requester;
mod responder;
mod send_queue;
mod work;

pub use acks::MAX_NACKS_WAITING;
pub use attr::{MAX_RD_ATOMIC, ModifyError, QpAttr, QpState};
pub use config::{ConfigError, FlowControl, Timer, TransportConfig, WireFormat, paper, parse_time, real_time};
pub use counters::Counters;
pub use host::{Access, AtomicOp, CqId, Event, GatherList, Host, MemError, PdId, RecvWqe, SrqId, TxSlot};
pub use qp::{Qp, QpInit};
pub use send_queue::{MAX_MESSAGE, PostError};
pub use work::{RecvWr, SendData, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};
