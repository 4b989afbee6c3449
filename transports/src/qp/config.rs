//! What a queue pair is created with.

use super::host::{CqId, PdId, SrqId, XrcdId};
use crate::config::TransportConfig;
use crate::wire::opcode::Service;

/// What a queue pair is created with.
#[derive(Clone, Debug)]
pub struct QpConfig {
    /// What it promises.
    pub service: Service,
    /// Protection domain.
    pub pd: PdId,
    /// Completion queue of the send queue.
    pub send_cq: CqId,
    /// Completion queue of the receive queue.
    pub recv_cq: CqId,
    /// Shared receive queue, in place of an own one.
    pub srq: Option<SrqId>,
    /// Domain of an XRC target, whose requests name shared receive queues in it; `None` for other services.
    pub xrcd: Option<XrcdId>,
    /// Most work requests in the send queue.
    pub max_send_wr: u32,
    /// Most work requests in the receive queue; with a shared receive queue, most taken from it at a time.
    pub max_recv_wr: u32,
    /// Most scatter/gather elements of a send work request.
    pub max_send_sge: u32,
    /// Most scatter/gather elements of a receive work request.
    pub max_recv_sge: u32,
    /// Most inline bytes.
    pub max_inline: u32,
    /// Every send work request wants a completion.
    pub sq_sig_all: bool,
    /// How a reliable connection recovers losses; the other services do not.
    pub transport: TransportConfig,
}

impl QpConfig {
    /// Returns the configuration of a reliable connection with one completion queue, and room for 16 work requests each
    /// way, of one scatter/gather element each and without inline data.
    pub fn new(pd: PdId, cq: CqId, transport: TransportConfig) -> QpConfig {
        QpConfig {
            service: Service::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            xrcd: None,
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            sq_sig_all: false,
            transport,
        }
    }

    /// Returns the configuration of an XRC initiator, with room for 16 work requests of one scatter/gather element each
    /// and without inline data.
    pub fn xrc_initiator(pd: PdId, cq: CqId, transport: TransportConfig) -> QpConfig {
        QpConfig { service: Service::XrcInitiator, max_recv_wr: 0, ..QpConfig::new(pd, cq, transport) }
    }

    /// Returns the configuration of an XRC target. Protection domain and completion queue are those of the shared
    /// receive queues in its domain.
    pub fn xrc_target(xrcd: XrcdId, transport: TransportConfig) -> QpConfig {
        QpConfig {
            service: Service::XrcTarget,
            xrcd: Some(xrcd),
            max_send_wr: 0,
            max_recv_wr: 0,
            ..QpConfig::new(PdId::NONE, CqId::NONE, transport)
        }
    }
}
