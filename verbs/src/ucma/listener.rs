//! Events of communication managers, converted to events of ids.

use irnic_cm::{CmEvent, CmId, ConnData, EventKind, EventParam, QpKind, UdData};

use super::abi::{ConnParam, EventResp, MAX_PRIVATE_DATA, UdParam, event, put, zeroed};
use super::attributes::ah_attr;
use super::state::{Id, Queued, state};
use crate::device::{DeviceInfo, PortEvent, PortListener};
use crate::objects::devices;
use crate::runtime::CmListener;

/// Receives the events of one device's communication manager and port.
pub(super) struct DeviceListener {
    /// The device's index in the list.
    pub(super) device: usize,
}

impl CmListener for DeviceListener {
    fn event(&self, event: &CmEvent) -> bool {
        let Some(device) = devices().get(self.device) else { return false };
        match event.kind {
            EventKind::ConnectRequest => self.request(event, device.info()),
            _ => {
                let mut state = state();
                let Some(id) = state.handle_of((self.device, event.id)) else { return false };
                // Shared with the listener; an active id keeps the port that it is bound to.
                if event.kind == EventKind::Established && state.id(id).is_ok_and(|id| id.passive) {
                    state.release_claims(id);
                }
                state.push(Queued { id, new: None, group: None, resp: resp(event, device.info()) })
            }
        }
    }

    fn way(&self, id: CmId, status: i32) {
        let mut state = state();
        if let Some(id) = state.handle_of((self.device, id)) {
            state.queue_resolution(id, status);
        }
    }
}

impl PortListener for DeviceListener {
    fn port_event(&self, event: PortEvent) {
        let event = match event {
            PortEvent::Moved => event::ADDR_CHANGE,
            PortEvent::Removed => event::DEVICE_REMOVAL,
            PortEvent::Down | PortEvent::Up | PortEvent::Gids => return,
        };
        state().queue_device_event(self.device, event);
    }
}

impl DeviceListener {
    /// Creates an id for a request and notifies the listener. Returns false if that no longer exists.
    fn request(&self, event: &CmEvent, info: &DeviceInfo) -> bool {
        let mut state = state();
        let listener = event.listener.and_then(|listener| state.handle_of((self.device, listener)));
        let Some(listener) = listener else { return false };
        let Ok(of) = state.id(listener) else { return false };
        let mut new = Id::new(0, of.file, of.space, of.kind);
        (new.device, new.cm_ids, new.passive) = (Some(self.device), vec![(self.device, event.id)], true);
        new.route_resolved = true;
        // If the reply is lost the request is repeated, when the listener may no longer exist: it still has to arrive
        // here.
        let claims = if of.kind == QpKind::Ud { Vec::new() } else { of.claims.clone() };
        let Ok(new) = state.add_id(new) else { return false };
        let queued = state.push(Queued { id: listener, new: Some(new), group: None, resp: resp(event, info) });
        if queued {
            state.share_claims(new, claims);
        } else {
            state.remove(new);
        }
        queued
    }
}

fn resp(event: &CmEvent, info: &DeviceInfo) -> EventResp {
    let mut resp = EventResp { event: code(event.kind), status: event.status as u32, ..zeroed() };
    match &event.param {
        EventParam::None => {}
        EventParam::Conn(conn) => put(&mut resp.param, &conn_param(conn)),
        EventParam::Ud(ud) => put(&mut resp.param, &ud_param(ud, info)),
    }
    resp
}

fn code(kind: EventKind) -> u32 {
    match kind {
        EventKind::ConnectRequest => event::CONNECT_REQUEST,
        EventKind::ConnectResponse => event::CONNECT_RESPONSE,
        EventKind::ConnectError => event::CONNECT_ERROR,
        EventKind::Unreachable => event::UNREACHABLE,
        EventKind::Rejected => event::REJECTED,
        EventKind::Established => event::ESTABLISHED,
        EventKind::Disconnected => event::DISCONNECTED,
        EventKind::TimewaitExit => event::TIMEWAIT_EXIT,
    }
}

/// Returns private data in the form of a structure, and its length.
fn private_data(from: &[u8]) -> ([u8; MAX_PRIVATE_DATA], u8) {
    let mut bytes = [0; MAX_PRIVATE_DATA];
    let len = from.len().min(u8::MAX.into());
    bytes[..len].copy_from_slice(&from[..len]);
    (bytes, len as u8)
}

fn conn_param(conn: &ConnData) -> ConnParam {
    let (private_data, private_data_len) = private_data(&conn.private_data);
    ConnParam {
        qp_num: conn.qpn,
        private_data,
        private_data_len,
        srq: conn.srq.into(),
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        flow_control: conn.flow_control.into(),
        retry_count: conn.retry_count,
        rnr_retry_count: conn.rnr_retry_count,
        ..zeroed()
    }
}

fn ud_param(ud: &UdData, info: &DeviceInfo) -> UdParam {
    let (private_data, private_data_len) = private_data(&ud.private_data);
    let ah_attr = ah_attr(info, &ud.path, ud.flow_label);
    UdParam { qp_num: ud.qpn, qkey: ud.qkey, ah_attr, private_data, private_data_len, reserved: [0; 7] }
}
