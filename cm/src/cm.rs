//! The manager's calls.

use std::net::SocketAddr;

use irnic_transports::qp::QpState;
use irnic_transports::wire::mad::MAD_LEN;
use irnic_transports::{Path, Time};

use crate::{
    Addresses, CmConfig, CmError, CmEvent, CmId, ConnParam, PortSpace, PrivateData, QpAttributes, QpKind, Route,
};

/// The communication manager of one port of a NIC.
///
/// After each call but the pure questions (`&self`) there may be MADs to send ([`Cm::poll_mad`]), events
/// ([`Cm::poll_event`]) and a nearer deadline ([`Cm::next_deadline`]). `now` never goes back.
///
/// An id goes through the calls of librdmacm: the active side `create`, `resolve`, `connect`, then after
/// `ConnectResponse` `accept` without parameters; the passive side `create`, `bind`, `listen`, then for the new id of a
/// `ConnectRequest` `accept` with parameters, or `reject`. In any state `destroy`.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
}

impl Cm {
    /// Returns a manager without ids.
    pub fn new(config: CmConfig) -> Cm {
        Cm { config }
    }

    /// Receives the payload of a datagram to queue pair 1. `path` is as received: its source is the peer's address.
    /// What is no message of the communication manager is dropped.
    pub fn receive(&mut self, _now: Time, _path: &Path, _mad: &[u8]) {}

    /// Takes the next MAD to be sent to queue pair 1 at `path.dst`. The destination may be the port itself.
    pub fn poll_mad(&mut self) -> Option<(Path, [u8; MAD_LEN])> {
        None
    }

    /// Takes the next event. Events of an id come in their order; none comes after the id was destroyed.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        None
    }

    /// Returns when [`Cm::on_deadline`] is due, [`Time::NEVER`] if nothing is waited for.
    pub fn next_deadline(&self) -> Time {
        Time::NEVER
    }

    /// Does what is due: repeats, timeouts, ends of timewait. Too early does no harm.
    pub fn on_deadline(&mut self, _now: Time) {}

    /// Makes an id.
    pub fn create(&mut self, _space: PortSpace, _kind: QpKind) -> Result<CmId, CmError> {
        Err(CmError::Resources)
    }

    /// Ends an id, in whatever state, and its events that were not taken. The peer is told what the kernel tells it: a
    /// REJ of a connection that is being made, a DREQ of one that stands; repeats and timewait go on inside. Requests
    /// to a listener that were not taken by [`Cm::poll_event`] are refused; those taken belong to the caller.
    pub fn destroy(&mut self, _now: Time, _id: CmId) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Binds an id to an address with a port. The unspecified address stands for all. With `reuse` ids that said so,
    /// too, may share an address as long as none of them listens.
    ///
    /// Only ids of this manager are looked at: claims between processes are the caller's.
    pub fn bind(&mut self, _id: CmId, _addr: SocketAddr, _reuse: bool) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Binds an id to all service ids that equal `service` where `mask` has ones (`AF_IB`).
    pub fn bind_service(&mut self, _id: CmId, _service: u64, _mask: u64) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Whether an id that is bound to the unspecified IPv6 address leaves IPv4 alone (`RDMA_OPTION_ID_AFONLY`).
    pub fn set_afonly(&mut self, _id: CmId, _afonly: bool) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Listens on what the id is bound to. `backlog` is the number of requests that may be half open, between arrival
    /// and confirmation; 0 or one above the configured ceiling counts as the ceiling.
    pub fn listen(&mut self, _id: CmId, _backlog: u32) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Says where the peer is. The id counts as bound to `route.src` from then on, without a check.
    pub fn resolve(&mut self, _id: CmId, _route: Route) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Sets the traffic class of an id's packets (`RDMA_OPTION_ID_TOS`), MADs included. Before `connect`.
    pub fn set_tos(&mut self, _id: CmId, _traffic_class: u8) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Sets the Local ACK Timeout code of an id's queue pair, 0 to 31 (`RDMA_OPTION_ID_ACK_TIMEOUT`).
    pub fn set_ack_timeout(&mut self, _id: CmId, _code: u8) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Asks the peer for a connection (REQ), or for its datagram service (SIDR_REQ).
    pub fn connect(&mut self, _now: Time, _id: CmId, _param: &ConnParam) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// The passive side, with parameters: accepts a request (REP, SIDR_REP). The active side, without: confirms the
    /// peer's answer (RTU).
    pub fn accept(&mut self, _now: Time, _id: CmId, _param: Option<&ConnParam>) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Refuses a request, or as the active side the peer's answer (REJ, SIDR_REP), for `reason`: 28, consumer defined,
    /// is `rdma_reject`'s, 33 `rdma_reject_ece`'s.
    pub fn reject(&mut self, _now: Time, _id: CmId, _reason: u16, _private_data: &PrivateData) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Ends a connection (DREQ). The event `Disconnected` comes when the peer has answered or does not answer.
    pub fn disconnect(&mut self, _now: Time, _id: CmId) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// The passive side: data has come before the RTU (`IBV_EVENT_COMM_EST`), so the connection stands.
    pub fn establish(&mut self, _now: Time, _id: CmId) -> Result<(), CmError> {
        Err(CmError::UnknownId)
    }

    /// Returns what to set for the transition of the id's queue pair to INIT, RTR or RTS.
    pub fn qp_attr(&mut self, _id: CmId, _state: QpState) -> Result<QpAttributes, CmError> {
        Err(CmError::UnknownId)
    }

    /// Returns the id's port space and kind of queue pair.
    pub fn kind(&self, _id: CmId) -> Result<(PortSpace, QpKind), CmError> {
        Err(CmError::UnknownId)
    }

    /// Returns the socket addresses of both ends.
    pub fn addresses(&self, _id: CmId) -> Result<Addresses, CmError> {
        Err(CmError::UnknownId)
    }

    /// Returns the way to the peer: what [`Cm::resolve`] was told, or what a request came by. `None` if there is none
    /// yet.
    pub fn route(&self, _id: CmId) -> Result<Option<Route>, CmError> {
        Err(CmError::UnknownId)
    }

    /// Returns the number of ids.
    pub fn id_count(&self) -> usize {
        0
    }

    /// Returns the configuration.
    pub fn config(&self) -> &CmConfig {
        &self.config
    }
}
