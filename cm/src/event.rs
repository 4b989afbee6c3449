//! Events of the manager.

use irnic_transports::Path;

use crate::param::{CmId, PrivateData};

/// Kinds of events, with librdmacm's values (`RDMA_CM_EVENT_*`). Those of addresses and routes are raised by the
/// caller.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// A peer requests a connection, or a datagram service (UD).
    ConnectRequest = 4,
    /// The peer has accepted: the active side sets its queue pair and calls [`Cm::accept`](crate::Cm::accept).
    ConnectResponse = 5,
    /// The connection cannot be established for a local reason.
    ConnectError = 6,
    /// The peer does not answer, or rejects a datagram service: status −110, or the SIDR status.
    Unreachable = 7,
    /// The peer rejects: status is the reason.
    Rejected = 8,
    /// The connection is established, or the datagram service is known (UD).
    Established = 9,
    /// The connection has ended.
    Disconnected = 10,
    /// Packets of the connection have died out: its queue pair may be reused.
    TimewaitExit = 15,
}

/// An event of one of a [`Cm`](crate::Cm)'s ids.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CmEvent {
    /// The id concerned; the new one with [`EventKind::ConnectRequest`].
    pub id: CmId,
    /// The listener, with [`EventKind::ConnectRequest`].
    pub listener: Option<CmId>,
    /// Kind of event.
    pub kind: EventKind,
    /// 0, a negated errno, the reason of a REJ (positive) or the status of a SIDR_REP (positive).
    pub status: i32,
    /// Parameters.
    pub param: EventParam,
}

/// Parameters of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EventParam {
    /// Nothing.
    #[default]
    None,
    /// Parameters of a connection.
    Conn(ConnData),
    /// Parameters of a datagram service.
    Ud(UdData),
}

/// Parameters of a connection as its event reports them: from this side's view.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnData {
    /// The user's part of the private data, padded to the message's capacity.
    pub private_data: PrivateData,
    /// READs and atomics that the peer may have outstanding here: requested or agreed to by it.
    pub responder_resources: u8,
    /// READs and atomics that this side may have outstanding at the peer.
    pub initiator_depth: u8,
    /// Whether the peer wants hardware flow control.
    pub flow_control: bool,
    /// Retries after a timeout, 0 to 7 (REQ).
    pub retry_count: u8,
    /// Retries after an RNR NAK, 0 to 7.
    pub rnr_retry_count: u8,
    /// Whether the peer receives from a shared receive queue.
    pub srq: bool,
    /// The peer's queue pair number.
    pub qpn: u32,
}

/// Parameters of a datagram service as its event reports them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdData {
    /// The user's part of the private data, padded to the message's capacity.
    pub private_data: PrivateData,
    /// Path to the peer, for an address handle.
    pub path: Path,
    /// Flow label of the address handle, 20 bits.
    pub flow_label: u32,
    /// The peer's queue pair number; 0 in a request.
    pub qpn: u32,
    /// The peer's Q_Key; 0 in a request.
    pub qkey: u32,
}
