//! Queue pair attributes of a connection (`rdma_init_qp_attr`).

use irnic_transports::Path;
use irnic_transports::qp::{Access, MAX_RD_ATOMIC, QpAttr, QpState};

use crate::calls::DEFAULT_QKEY;
use crate::connection::{Connection, State};
use crate::id::Id;
use crate::{Cm, CmError, CmId, QpKind};

/// Attributes for one transition of an id's queue pair, as returned by `rdma_init_qp_attr`. Those that are `Some` make
/// up the mask.
#[derive(Copy, Clone, Debug, Default)]
#[non_exhaustive]
pub struct QpAttributes {
    /// The attributes. The path is that of the address vector.
    pub attr: QpAttr,
    /// Flow label of the address vector, 20 bits.
    pub flow_label: u32,
}

impl Cm {
    /// Returns the attributes to set for the transition of the id's queue pair to INIT, RTR or RTS. INIT is available
    /// at any time, RTR and RTS of a connected queue pair once its peer is known.
    pub fn qp_attr(&mut self, id: CmId, state: QpState) -> Result<QpAttributes, CmError> {
        let own = self.id_mut(id)?;
        if own.kind == QpKind::Ud {
            return datagram_attributes(own, state);
        }
        let (ack_timeout, name) = (own.ack_timeout, own.state_name());
        let connection = own.connection.and_then(|comm_id| self.connections.get(comm_id));
        let invalid = || CmError::State { call: "qp_attr", state: connection.map_or(name, |c| c.state.name()) };
        match (state, connection) {
            (QpState::Init, None) => Ok(init(Access::default())),
            (QpState::Init, Some(c))
                if c.state.knows_peer() || c.state == State::ReqSent || c.state == State::MraReqReceived =>
            {
                let remote_reads = Access::REMOTE_READ | Access::REMOTE_ATOMIC;
                let reads = if c.responder_resources > 0 { remote_reads } else { Access::default() };
                Ok(init(Access::REMOTE_WRITE | reads))
            }
            (QpState::Rtr, Some(c)) if is_ready(c) => Ok(rtr(c)),
            (QpState::Rts, Some(c)) if is_ready(c) => Ok(rts(c, ack_timeout)),
            _ => Err(invalid()),
        }
    }
}

/// Returns whether the queue pair's peer is known.
fn is_ready(c: &Connection) -> bool {
    c.state.knows_peer() && c.state != State::DreqSent
}

/// `cm_init_qp_init_attr` in the kernel.
fn init(access: Access) -> QpAttributes {
    let attr = QpAttr {
        state: Some(QpState::Init),
        access: Some(access),
        pkey_index: Some(0),
        port: Some(1),
        ..QpAttr::default()
    };
    QpAttributes { attr, flow_label: 0 }
}

/// `cm_init_qp_rtr_attr` in the kernel.
fn rtr(c: &Connection) -> QpAttributes {
    let responds = matches!(c.kind, QpKind::Rc | QpKind::XrcRecv);
    let attr = QpAttr {
        state: Some(QpState::Rtr),
        path: Some(Path { ..c.path }),
        path_mtu: Some(c.mtu),
        dest_qp: Some(c.remote_qpn),
        rq_psn: Some(c.rq_psn),
        max_dest_rd_atomic: responds.then_some(c.responder_resources.min(MAX_RD_ATOMIC)),
        min_rnr_timer: responds.then_some(0),
        ..QpAttr::default()
    };
    QpAttributes { attr, flow_label: c.flow_label }
}

/// `cm_init_qp_rts_attr` in the kernel.
fn rts(c: &Connection, ack_timeout: Option<u8>) -> QpAttributes {
    let requests = matches!(c.kind, QpKind::Rc | QpKind::XrcSend);
    let reliable = requests || c.kind == QpKind::XrcRecv;
    let attr = QpAttr {
        state: Some(QpState::Rts),
        sq_psn: Some(c.sq_psn),
        timeout: reliable.then_some(ack_timeout.unwrap_or(c.ack_timeout)),
        retry_cnt: requests.then_some(c.retry_count),
        rnr_retry: requests.then_some(c.rnr_retry_count),
        max_rd_atomic: requests.then_some(c.initiator_depth.min(MAX_RD_ATOMIC)),
        ..QpAttr::default()
    };
    QpAttributes { attr, flow_label: c.flow_label }
}

/// Datagram queue pairs need no information about peers.
fn datagram_attributes(own: &mut Id, state: QpState) -> Result<QpAttributes, CmError> {
    let qkey = Some(*own.qkey.get_or_insert(DEFAULT_QKEY));
    let attr = QpAttr { state: Some(state), ..QpAttr::default() };
    let attr = match state {
        QpState::Init => QpAttr { qkey, pkey_index: Some(0), port: Some(1), ..attr },
        QpState::Rtr => attr,
        QpState::Rts => QpAttr { sq_psn: Some(own.psn), ..attr },
        _ => return Err(CmError::Range("queue pair state")),
    };
    Ok(QpAttributes { attr, flow_label: 0 })
}
