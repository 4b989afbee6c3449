//! Creation parameters of a queue pair.

use super::host::{CqId, PdId, SrqId, XrcdId};
use crate::config::TransportConfig;
use crate::wire::opcode::Service;

/// Creation parameters of a queue pair.
#[derive(Clone, Debug)]
pub struct QpConfig {
    /// Service type.
    pub service: Service,
    /// Protection domain.
    pub pd: PdId,
    /// Completion queue of the send queue.
    pub send_cq: CqId,
    /// Completion queue of the receive queue.
    pub recv_cq: CqId,
    /// Shared receive queue, instead of one of its own.
    pub srq: Option<SrqId>,
    /// Domain of an XRC target, whose requests name shared receive queues in it; `None` for other services.
    pub xrcd: Option<XrcdId>,
    /// Maximum number of work requests in the send queue.
    pub max_send_wr: u32,
    /// Maximum number of work requests in the receive queue; with a shared receive queue, taken from it at a time.
    pub max_recv_wr: u32,
    /// Maximum number of scatter/gather elements of a send work request.
    pub max_send_sge: u32,
    /// Maximum number of scatter/gather elements of a receive work request.
    pub max_recv_sge: u32,
    /// Maximum number of inline bytes.
    pub max_inline: u32,
    /// Whether every send work request generates a completion.
    pub sq_sig_all: bool,
    /// Transport of a reliable connection; other services recover no losses.
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
