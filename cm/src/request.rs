//! Requests of peers: REQ and SIDR_REQ.

use std::net::{IpAddr, SocketAddr};

use irnic_transports::time::MS;
use irnic_transports::wire::Mtu;
use irnic_transports::wire::mad::{
    Mad, Message, Rej, RejReason, Req, SidrRep, SidrReq, SidrStatus, TransportType, rejected,
};
use irnic_transports::{Path, Time};

use crate::connection::{Connection, State, nanos};
use crate::ip::IpHeader;
use crate::{Cm, CmEvent, CmId, ConnData, EventKind, EventParam, PrivateData, QpKind, Route, UdData};

/// Repeats of a REP after which its connection may make room for another: the peer has had 150 ms or more.
const PATIENCE: u32 = 2;

/// Time after an overflow for which only repeated requests and those of peers that have connected before are admitted,
/// ns. irnic repeats requests within 75 ms.
const CROWDED: u64 = 200 * MS;

/// Key of a repeated request: its sender's address, GUID and number for it.
type Asker = (IpAddr, u64, u32);

/// Reason why a request gets no id.
enum Refusal {
    /// The peer is to repeat the request: no answer is sent.
    Later,
    /// No listener serves the service id.
    NoListener,
    /// A listener serves the service id at another address, or with other queue pairs.
    NotThis,
}

impl Cm {
    pub(crate) fn receive_req(&mut self, now: Time, back: Path, tid: u64, req: &Req) {
        let fields = &req.fields;
        if let Some(comm_id) = self.connections.by_remote_id(back.dst, fields.local_ca_guid, fields.local_comm_id) {
            return self.repeat_answer(comm_id);
        }
        if let Some(stale) = self.stale(back.dst, fields.local_ca_guid, fields.local_qpn, 0) {
            self.refuse_req(back, tid, req, RejReason::STALE_CONN);
            return self.send_dreq(now, stale);
        }
        let Some(transport) = req.transport() else {
            return self.refuse_req(back, tid, req, RejReason::INVALID_TRANSPORT_TYPE);
        };
        let Some(mtu) = req.path_mtu() else {
            return self.refuse_req(back, tid, req, RejReason::INVALID_MTU);
        };
        let kind = match transport {
            TransportType::Rc => QpKind::Rc,
            TransportType::Uc => QpKind::Uc,
            TransportType::Xrc => QpKind::XrcRecv,
        };
        let header = IpHeader::parse(&req.private_data);
        let asker = (back.dst, fields.local_ca_guid, fields.local_comm_id);
        let listener = match self.find_listener(now, fields.service_id, header.as_ref(), kind, asker) {
            Ok(listener) => listener,
            Err(Refusal::Later) => return,
            Err(Refusal::NoListener) => return self.refuse_req(back, tid, req, RejReason::INVALID_SERVICE_ID),
            Err(Refusal::NotThis) => return self.refuse_req(back, tid, req, RejReason::CONSUMER_DEFINED),
        };
        let path =
            Path { udp_src: udp_source(req.primary.flow_label), traffic_class: req.primary.traffic_class, ..back };
        let route = self.request_route(listener, header.as_ref(), path, mtu, fields.service_id);
        let route = Route { packet_lifetime: req.primary.local_ack_timeout.saturating_sub(1), ..route };
        let Some(id) = self.add_request(listener, kind, route) else { return };
        if !self.add_passive(id, tid, req, kind, &route) {
            self.forget_request(id);
            return self.refuse_req(back, tid, req, RejReason::NO_RESOURCES);
        }
        let offset = self.ids.get(&listener).map_or(0, |l| l.user_data());
        let param = EventParam::Conn(ConnData {
            private_data: PrivateData::of(&req.private_data[offset..]),
            responder_resources: fields.initiator_depth,
            initiator_depth: fields.responder_resources,
            flow_control: fields.flow_control,
            retry_count: fields.retry_count,
            rnr_retry_count: fields.rnr_retry_count,
            srq: fields.srq,
            qpn: fields.local_qpn,
        });
        self.raise_event(CmEvent { id, listener: Some(listener), kind: EventKind::ConnectRequest, status: 0, param });
    }

    /// Answers a repeated REQ.
    fn repeat_answer(&mut self, comm_id: u32) {
        let Some(c) = self.connections.get(comm_id).filter(|c| c.passive) else { return };
        match c.state {
            State::ReqReceived => self.send_mra(comm_id, rejected::REQ),
            State::RepSent | State::MraRepReceived => {
                let (path, mad) = (c.path, c.repeat.as_ref().map(|repeat| repeat.mad));
                if let Some(mad) = mad {
                    self.send(path, mad);
                }
            }
            // It was rejected, perhaps after a REP that was lost: the REJ now answers the REQ.
            State::Ended => {
                let path = c.path;
                if let Some(Ok(Mad { tid, message: Message::Rej(rej) })) = c.answer.map(|mad| Mad::parse(&mad)) {
                    self.send_message(path, tid, Rej { message_rejected: rejected::REQ, ..rej });
                }
            }
            _ => {}
        }
    }

    /// Adds the connection of a request. Returns false if no communication id is free.
    fn add_passive(&mut self, id: CmId, tid: u64, req: &Req, kind: QpKind, route: &Route) -> bool {
        let fields = &req.fields;
        let mut c = Connection::new(State::ReqReceived, id, kind, route.path);
        c.passive = true;
        (c.tid, c.service_id, c.flow_label) = (tid, fields.service_id, req.primary.flow_label);
        (c.remote_id, c.remote_guid, c.remote_qpn) = (fields.local_comm_id, fields.local_ca_guid, fields.local_qpn);
        (c.sq_psn, c.mtu) = (fields.starting_psn, route.mtu);
        (c.responder_resources, c.initiator_depth) = (fields.initiator_depth, fields.responder_resources);
        (c.retry_count, c.rnr_retry_count) = (fields.retry_count, fields.rnr_retry_count);
        c.ack_timeout = (route.packet_lifetime + 1).min(31);
        (c.interval, c.max_retries) = (nanos(fields.local_response_timeout), fields.max_cm_retries);
        let Some(comm_id) = self.connections.add(c).map(|c| c.comm_id) else { return false };
        self.connections.index(comm_id);
        if let Some(own) = self.ids.get_mut(&id) {
            own.connection = Some(comm_id);
            if let Some(c) = self.connections.get_mut(comm_id) {
                c.rq_psn = own.psn;
            }
        }
        true
    }

    /// Rejects a REQ without creating a connection for it.
    fn refuse_req(&mut self, back: Path, tid: u64, req: &Req, reason: RejReason) {
        let rej = Rej {
            remote_comm_id: req.fields.local_comm_id,
            message_rejected: rejected::REQ,
            reason: reason.0,
            ..Rej::default()
        };
        self.send_message(back, tid, rej);
    }

    pub(crate) fn receive_sidr_req(&mut self, now: Time, back: Path, tid: u64, req: &SidrReq) {
        if let Some(comm_id) = self.connections.by_request(back.dst, req.request_id) {
            // Repeated before or after the application has answered.
            return self.send_answer(comm_id);
        }
        let refuse = |status: SidrStatus| SidrRep {
            request_id: req.request_id,
            service_id: req.service_id,
            status: status.0,
            ..SidrRep::default()
        };
        let header = IpHeader::parse(&req.private_data);
        let asker = (back.dst, 0, req.request_id);
        let listener = match self.find_listener(now, req.service_id, header.as_ref(), QpKind::Ud, asker) {
            Ok(listener) => listener,
            Err(Refusal::Later) => return,
            Err(refusal) => {
                let absent = matches!(refusal, Refusal::NoListener);
                self.send_message(back, tid, refuse(if absent { SidrStatus::UNSUPPORTED } else { SidrStatus::REJECT }));
                return;
            }
        };
        let route = self.request_route(listener, header.as_ref(), back, self.config.mtu, req.service_id);
        let Some(id) = self.add_request(listener, QpKind::Ud, route) else { return };
        let mut c = Connection::new(State::SidrReqReceived, id, QpKind::Ud, route.path);
        c.passive = true;
        (c.tid, c.service_id, c.remote_id) = (tid, req.service_id, req.request_id);
        (c.interval, c.max_retries) = (nanos(self.config.response_timeout), self.config.max_cm_retries);
        let Some(comm_id) = self.connections.add(c).map(|c| c.comm_id) else { return self.forget_request(id) };
        self.connections.index(comm_id);
        let mut flow_label = 0;
        if let Some(own) = self.ids.get_mut(&id) {
            own.connection = Some(comm_id);
            flow_label = own.flow_label;
        }
        let offset = self.ids.get(&listener).map_or(0, |l| l.user_data());
        let private_data = PrivateData::of(&req.private_data[offset..]);
        let param = EventParam::Ud(UdData { private_data, path: route.path, flow_label, qpn: 0, qkey: 0 });
        self.raise_event(CmEvent { id, listener: Some(listener), kind: EventKind::ConnectRequest, status: 0, param });
    }

    /// Returns the listener of a request that has room for it.
    fn find_listener(
        &mut self,
        now: Time,
        service: u64,
        header: Option<&IpHeader>,
        kind: QpKind,
        asker: Asker,
    ) -> Result<CmId, Refusal> {
        let mut refusal = Refusal::NoListener;
        for &listener in &self.listeners {
            let Some(own) = self.ids.get(&listener).filter(|own| own.serves(service)) else { continue };
            refusal = Refusal::NotThis;
            if own.kind == kind && own.is_meant(header) {
                return if self.make_room(now, listener, asker) { Ok(listener) } else { Err(Refusal::Later) };
            }
        }
        Err(refusal)
    }

    /// Returns whether a listener has room for one more request.
    ///
    /// The oldest accepted request that its peer has not confirmed makes room. While there are more requests than room,
    /// only repeated ones and those of peers that have connected before are admitted, and the last quarter of the room
    /// is reserved for them. Thus a flood of forged requests, each of which comes once, neither blocks nor displaces
    /// genuine clients.
    fn make_room(&mut self, now: Time, listener: CmId, (peer, guid, number): Asker) -> bool {
        let Some(counts) = self.ids.get_mut(&listener).and_then(|own| own.listener.as_mut()) else { return false };
        let most = self.config.max_backlog.max(1).max(counts.backlog) as usize;
        let taken = counts.unconfirmed.len() + counts.unanswered as usize;
        let oldest = counts.unconfirmed.first_key_value().map(|(_, &comm_id)| comm_id);
        let has_waited = |comm_id: u32| {
            let repeat = self.connections.get(comm_id).and_then(|c| c.repeat.as_ref());
            repeat.is_none_or(|repeat| repeat.count >= PATIENCE)
        };
        let oldest = oldest.filter(|&oldest| has_waited(oldest));
        let is_full = counts.unanswered >= counts.backlog;
        let scarce = taken >= most - most / 4;
        let crowded = is_full || now < counts.crowded_until || scarce && oldest.is_none();
        if is_full || scarce {
            counts.crowded_until = now + CROWDED;
        }
        let known = crowded && self.seen.request(peer, guid, number);
        if is_full || crowded && !known {
            return false;
        }
        if !scarce || known && taken < most {
            return true;
        }
        if let Some(oldest) = oldest {
            self.give_up(now, oldest);
        }
        oldest.is_some()
    }

    /// Creates an id for a request.
    fn add_request(&mut self, listener: CmId, kind: QpKind, route: Route) -> Option<CmId> {
        let space = self.ids.get(&listener)?.space;
        let id = self.add_id(space, kind)?;
        let own = self.ids.get_mut(&id)?;
        (own.route, own.used, own.counted_by) = (Some(route), true, Some(listener));
        let counts = self.ids.get_mut(&listener)?.listener.as_mut()?;
        counts.unanswered += 1;
        Some(id)
    }

    /// Removes the id of a request that was not reported yet.
    fn forget_request(&mut self, id: CmId) {
        self.answered(id);
        self.ids.remove(&id);
    }

    /// Returns the route of a request: with the socket addresses of the IP header (`cma_save_ip_info` in the kernel),
    /// or the devices'.
    fn request_route(&self, listener: CmId, header: Option<&IpHeader>, path: Path, mtu: Mtu, service: u64) -> Route {
        let offset = self.ids.get(&listener).map_or(0, |own| own.user_data());
        let port = service as u16;
        let (src, dst) = match header {
            Some(header) if offset > 0 => (SocketAddr::new(header.dst, port), header.src),
            _ => (SocketAddr::new(path.src, 0), SocketAddr::new(path.dst, 0)),
        };
        let mut route = Route::new(src, dst, path, mtu.min(self.config.mtu));
        route.service_id = (offset == 0).then_some(service);
        route
    }
}

/// Returns the UDP source port of a flow label (`rdma_flow_label_to_udp_sport` in the kernel).
fn udp_source(flow_label: u32) -> u16 {
    let (low, high) = (flow_label & 0x3fff, (flow_label & 0xf_c000) >> 14);
    0xc000 | (low ^ high) as u16
}
