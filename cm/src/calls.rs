//! Calls of the application on its connections.

use irnic_transports::wire::ip::to_ipv6;
use irnic_transports::wire::mad::PathRecord;
use irnic_transports::wire::mad::{
    Dreq, Mad, Message, Rej, RejReason, Rep, Req, ReqFields, Rtu, SidrRep, SidrReq, SidrStatus, TransportType, rejected,
};
use irnic_transports::{Path, Time};
use rand::RngExt;

use crate::connection::{Connection, Repeat, State, ack_timeout, nanos};
use crate::ip::IpHeader;
use crate::service::service_id;
use crate::{Cm, CmError, CmId, ConnParam, EventKind, PrivateData, QpKind, Route};

/// Default Q_Key of datagrams: `RDMA_UDP_QKEY`.
pub(crate) const DEFAULT_QKEY: u32 = 0x0123_4567;

/// The default P_Key, the only one.
const PKEY: u16 = 0xffff;

/// IBA's code of the rate announced for paths: "port's current rate".
const RATE: u8 = 0;

impl Cm {
    /// Requests a connection from the peer (REQ), or its datagram service (SIDR_REQ).
    pub fn connect(&mut self, now: Time, id: CmId, param: &ConnParam) -> Result<(), CmError> {
        let own = self.id(id)?;
        let route = match own.route {
            Some(route) if !own.used && own.listener.is_none() => route,
            _ => return Err(CmError::State { call: "connect", state: own.state_name() }),
        };
        let datagrams = own.kind == QpKind::Ud;
        let offset = own.user_data();
        let room = if datagrams { PrivateData::SIDR_REQ_IB } else { Req::PRIVATE_DATA } - offset;
        check_room(&param.private_data, room)?;
        check_qpn(param)?;
        let path = Path { traffic_class: own.traffic_class.unwrap_or(route.path.traffic_class), ..route.path };
        let mut connection = Connection::new(State::ReqSent, id, own.kind, path);
        connection.flow_label = own.flow_label;
        connection.service_id = route.service_id.unwrap_or(service_id(own.space, route.dst.port()));
        connection.max_retries = self.config.max_cm_retries;
        connection.interval = nanos(self.config.response_timeout);
        if datagrams {
            connection.state = State::SidrReqSent;
            self.send_sidr_req(now, connection, &route, &param.private_data, offset)?;
        } else {
            self.send_req(now, connection, &route, param, offset)?;
        }
        Ok(())
    }

    /// Sends a REQ.
    fn send_req(
        &mut self,
        now: Time,
        mut connection: Connection,
        route: &Route,
        param: &ConnParam,
        offset: usize,
    ) -> Result<(), CmError> {
        let Some(id) = connection.owner else { return Ok(()) };
        let own = self.id(id)?;
        let lifetime = match own.ack_timeout {
            Some(code) if code > 0 => code - 1,
            _ => route.packet_lifetime,
        };
        let ack = ack_timeout(self.config.ack_delay, lifetime);
        let c = &mut connection;
        (c.rq_psn, c.local_qpn, c.mtu) = (own.psn, param.qpn, route.mtu.min(self.config.mtu));
        (c.responder_resources, c.initiator_depth) = (param.responder_resources, param.initiator_depth);
        (c.retry_count, c.rnr_retry_count) = (param.retry_count.min(7), param.rnr_retry_count.min(7));
        c.ack_timeout = own.ack_timeout.unwrap_or(ack);
        c.interval += 2 * nanos(lifetime);
        let c = self.connections.add(connection).ok_or(CmError::Resources)?;
        let mut req = request(c, param, ack);
        let (fields, config) = (&mut req.fields, &self.config);
        fields.local_ca_guid = config.ca_guid;
        (fields.local_response_timeout, fields.remote_response_timeout) =
            (config.response_timeout, config.response_timeout);
        fields.max_cm_retries = config.max_cm_retries;
        write_private_data(&mut req.private_data, route, offset, &param.private_data);
        let comm_id = c.comm_id;
        self.request_from(now, id, comm_id, req.into())
    }

    /// Sends a SIDR_REQ.
    fn send_sidr_req(
        &mut self,
        now: Time,
        connection: Connection,
        route: &Route,
        private_data: &PrivateData,
        offset: usize,
    ) -> Result<(), CmError> {
        let Some(id) = connection.owner else { return Ok(()) };
        let c = self.connections.add(connection).ok_or(CmError::Resources)?;
        let mut req = SidrReq { request_id: c.comm_id, pkey: PKEY, service_id: c.service_id, ..SidrReq::default() };
        write_private_data(&mut req.private_data, route, offset, private_data);
        let comm_id = c.comm_id;
        self.request_from(now, id, comm_id, req.into())
    }

    /// Sends the first message of a connection that an id begins, and makes the id its owner.
    fn request_from(&mut self, now: Time, id: CmId, comm_id: u32, message: Message) -> Result<(), CmError> {
        let c = self.connections.get_mut(comm_id).ok_or(CmError::Resources)?;
        let (path, tid) = (c.path, c.own_tid());
        c.tid = tid;
        let own = self.id_mut(id)?;
        (own.connection, own.used) = (Some(comm_id), true);
        self.send_repeatedly(now, comm_id, path, Mad { tid, message });
        Ok(())
    }

    /// Sends a message that is repeated until answered.
    pub(crate) fn send_repeatedly(&mut self, now: Time, comm_id: u32, path: Path, mad: Mad) {
        let bytes = mad.to_bytes();
        self.send(path, bytes);
        let jitter = self.random.random();
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        let repeat = Repeat::new(now, bytes, self.config.first_repeat, c.interval, c.max_retries, jitter);
        let due = repeat.due();
        c.repeat = Some(repeat);
        self.connections.set_due(comm_id, due);
    }

    /// With parameters, on the passive side: accepts a request (REP, SIDR_REP). Without, on the active side: confirms
    /// the peer's answer (RTU).
    pub fn accept(&mut self, now: Time, id: CmId, param: Option<&ConnParam>) -> Result<(), CmError> {
        let c = self.connection(id, "accept")?;
        match (c.state, param) {
            (State::RepReceived, None) => {
                self.send_rtu(now, id);
                Ok(())
            }
            (State::ReqReceived, Some(param)) => self.send_rep(now, id, param),
            (State::SidrReqReceived, Some(param)) => {
                check_room(&param.private_data, PrivateData::SIDR_REP)?;
                check_qpn(param)?;
                let qkey = param.qkey.filter(|&qkey| qkey != 0).unwrap_or(DEFAULT_QKEY);
                let mut rep = SidrRep { status: SidrStatus::SUCCESS.0, qpn: param.qpn, qkey, ..SidrRep::default() };
                rep.private_data[..param.private_data.len()].copy_from_slice(&param.private_data);
                self.id_mut(id)?.qkey = Some(qkey);
                self.answer_sidr(now, id, rep);
                Ok(())
            }
            (state, _) => Err(CmError::State { call: "accept", state: state.name() }),
        }
    }

    /// Confirms a REP. The peer repeats the REP if this is lost; but one that received an MRA stays silent for a
    /// minute, and to it the RTU is sent several times.
    fn send_rtu(&mut self, now: Time, id: CmId) {
        let Ok(c) = self.connection(id, "accept") else { return };
        c.state = State::Established;
        let (comm_id, path, tid) = (c.comm_id, c.path, c.tid);
        let rtu = Rtu { local_comm_id: comm_id, remote_comm_id: c.remote_id, ..Rtu::default() };
        let answer = self.send_message(path, tid, rtu);
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        c.answer = Some(answer);
        if c.mra_sent {
            self.send_answer_repeatedly(now, comm_id);
        }
    }

    /// Accepts a REQ.
    fn send_rep(&mut self, now: Time, id: CmId, param: &ConnParam) -> Result<(), CmError> {
        check_room(&param.private_data, PrivateData::REP)?;
        check_qpn(param)?;
        let (guid, ack_delay, psn) = (self.config.ca_guid, self.config.ack_delay, self.id(id)?.psn);
        let c = self.connection(id, "accept")?;
        c.state = State::RepSent;
        (c.responder_resources, c.initiator_depth) = (param.responder_resources, param.initiator_depth);
        (c.local_qpn, c.rq_psn) = (param.qpn, psn);
        let mut rep = Rep {
            local_comm_id: c.comm_id,
            remote_comm_id: c.remote_id,
            starting_psn: c.rq_psn,
            responder_resources: c.responder_resources,
            target_ack_delay: ack_delay,
            rnr_retry_count: param.rnr_retry_count.min(7),
            local_ca_guid: guid,
            ..Rep::default()
        };
        if c.kind == QpKind::XrcRecv {
            (rep.srq, rep.local_eecn) = (true, c.local_qpn);
        } else {
            (rep.initiator_depth, rep.flow_control) = (c.initiator_depth, param.flow_control);
            (rep.srq, rep.local_qpn) = (param.srq, c.local_qpn);
        }
        rep.private_data[..param.private_data.len()].copy_from_slice(&param.private_data);
        let (comm_id, path, tid) = (c.comm_id, c.path, c.tid);
        self.accepted += 1;
        let number = self.accepted;
        if let Some(listener) = self.answered(id)
            && let Some(counts) = self.ids.get_mut(&listener).and_then(|l| l.listener.as_mut())
        {
            counts.unconfirmed.insert(number, comm_id);
            if let Some(c) = self.connections.get_mut(comm_id) {
                c.unconfirmed = Some((listener, number));
            }
        }
        self.send_repeatedly(now, comm_id, path, Mad { tid, message: rep.into() });
        Ok(())
    }

    /// Marks a request as answered by the application; returns its listener.
    pub(crate) fn answered(&mut self, id: CmId) -> Option<CmId> {
        let listener = self.ids.get_mut(&id)?.counted_by.take()?;
        if let Some(counts) = self.ids.get_mut(&listener).and_then(|l| l.listener.as_mut()) {
            counts.unanswered -= 1;
        }
        Some(listener)
    }

    /// Marks a connection as confirmed by the peer, or as never to be confirmed.
    pub(crate) fn confirmed(&mut self, comm_id: u32) {
        let Some((listener, number)) = self.connections.get_mut(comm_id).and_then(|c| c.unconfirmed.take()) else {
            return;
        };
        if let Some(counts) = self.ids.get_mut(&listener).and_then(|l| l.listener.as_mut()) {
            counts.unconfirmed.remove(&number);
        }
    }

    /// Answers a SIDR_REQ, and remembers the answer for as long as the peer may repeat the request.
    pub(crate) fn answer_sidr(&mut self, now: Time, id: CmId, mut rep: SidrRep) {
        self.answered(id);
        let Ok(c) = self.connection(id, "answer") else { return };
        (rep.request_id, rep.service_id) = (c.remote_id, c.service_id);
        let (comm_id, path, tid) = (c.comm_id, c.path, c.tid);
        let answer = self.send_message(path, tid, rep);
        self.end(now, comm_id, Some(answer));
    }

    /// Rejects a request, or on the active side the peer's answer (REJ, SIDR_REP), for `reason`: 28, consumer defined,
    /// is `rdma_reject`'s, 35, vendor option not supported, `rdma_reject_ece`'s.
    pub fn reject(&mut self, now: Time, id: CmId, reason: u16, private_data: &PrivateData) -> Result<(), CmError> {
        let c = self.connection(id, "reject")?;
        match c.state {
            State::SidrReqReceived => {
                check_room(private_data, PrivateData::SIDR_REP)?;
                let mut rep = SidrRep { status: SidrStatus::REJECT.0, ..SidrRep::default() };
                rep.private_data[..private_data.len()].copy_from_slice(private_data);
                self.answer_sidr(now, id, rep);
            }
            State::ReqSent
            | State::MraReqReceived
            | State::ReqReceived
            | State::RepSent
            | State::MraRepReceived
            | State::RepReceived => {
                check_room(private_data, PrivateData::REJ)?;
                let comm_id = c.comm_id;
                self.answered(id);
                self.refuse(now, comm_id, RejReason(reason), private_data);
            }
            state => return Err(CmError::State { call: "reject", state: state.name() }),
        }
        Ok(())
    }

    /// Sends a REJ for a connection that is being established, and remembers it. A peer whose confirmation was lost
    /// considers the connection established and sends nothing more, and one that received an MRA stays silent for a
    /// minute; to these the REJ is sent several times.
    pub(crate) fn refuse(&mut self, now: Time, comm_id: u32, reason: RejReason, private_data: &[u8]) {
        let is_silent = |c: &Connection| c.mra_sent || matches!(c.state, State::RepSent | State::MraRepReceived);
        let silent = self.connections.get(comm_id).is_some_and(is_silent);
        self.refuse_once(now, comm_id, reason, private_data);
        if silent {
            self.send_answer_repeatedly(now, comm_id);
        }
    }

    /// Sends the answer again and again for one interval, to a peer that is silent.
    fn send_answer_repeatedly(&mut self, now: Time, comm_id: u32) {
        let jitter = self.random.random();
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        let Some(mad) = c.answer else { return };
        let repeat = Repeat::new(now, mad, self.config.first_repeat, c.interval, 0, jitter);
        let due = repeat.due();
        c.repeat = Some(repeat);
        self.connections.set_due(comm_id, due);
    }

    /// Sends a REJ for a connection that is being established, and remembers it.
    pub(crate) fn refuse_once(&mut self, now: Time, comm_id: u32, reason: RejReason, private_data: &[u8]) {
        let guid = self.config.ca_guid;
        let Some(c) = self.connections.get(comm_id) else { return };
        let message_rejected = match c.state {
            State::ReqReceived => rejected::REQ,
            State::RepReceived => rejected::REP,
            _ => rejected::OTHER,
        };
        let mut rej = Rej {
            local_comm_id: comm_id,
            remote_comm_id: c.remote_id,
            message_rejected,
            reason: reason.0,
            ..Rej::default()
        };
        if reason == RejReason::TIMEOUT {
            set_guid(&mut rej, guid);
        }
        rej.private_data[..private_data.len()].copy_from_slice(private_data);
        let (path, tid) = (c.path, c.tid);
        let answer = self.send_message(path, tid, rej);
        self.end(now, comm_id, Some(answer));
    }

    /// Ends a connection (DREQ). The event `Disconnected` is raised when the peer has answered or timed out. In states
    /// other than "connected" the call has no effect, as in the kernel.
    pub fn disconnect(&mut self, now: Time, id: CmId) -> Result<(), CmError> {
        let own = self.id(id)?;
        if !own.used {
            return Err(CmError::State { call: "disconnect", state: own.state_name() });
        }
        if let Some(comm_id) = own.connection {
            self.send_dreq(now, comm_id);
        }
        Ok(())
    }

    /// Sends a DREQ for an established connection.
    pub(crate) fn send_dreq(&mut self, now: Time, comm_id: u32) {
        let longest = nanos(self.config.response_timeout);
        let Some(c) = self.connections.get_mut(comm_id).filter(|c| c.state == State::Established) else { return };
        c.state = State::DreqSent;
        let dreq =
            Dreq { local_comm_id: comm_id, remote_comm_id: c.remote_id, remote_qpn: c.remote_qpn, ..Dreq::default() };
        // One response timeout: no application is involved in the answer. The kernel waits for 16 of them (74 s).
        (c.interval, c.max_retries) = (c.interval.min(longest), 0);
        let (path, tid) = (c.path, c.own_tid());
        self.send_repeatedly(now, comm_id, path, Mad { tid, message: dreq.into() });
    }

    /// Establishes a connection on the passive side: data has arrived before the RTU (`IBV_EVENT_COMM_EST`).
    pub fn establish(&mut self, _now: Time, id: CmId) -> Result<(), CmError> {
        let c = self.connection(id, "establish")?;
        match c.state {
            State::RepSent | State::MraRepReceived => {
                let comm_id = c.comm_id;
                self.set_established(comm_id);
                Ok(())
            }
            State::Established => Err(CmError::Connected),
            state => Err(CmError::State { call: "establish", state: state.name() }),
        }
    }

    /// Marks a connection as established: the peer has confirmed.
    pub(crate) fn set_established(&mut self, comm_id: u32) {
        self.confirmed(comm_id);
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        (c.state, c.repeat) = (State::Established, None);
        let (owner, peer) = (c.owner, c.path.dst);
        self.seen.confirmed(peer);
        self.connections.set_due(comm_id, Time::NEVER);
        if let Some(id) = owner {
            self.raise(id, EventKind::Established, 0, crate::EventParam::None);
        }
    }

    /// Destroys an id in any state, with its events that were not taken. The peer is notified as by the kernel: with a
    /// REJ of a connection that is being established, with a DREQ of an established one; repeats and timewait continue
    /// internally. Requests to a listener that were not taken by [`Cm::poll_event`] are rejected; those taken belong to
    /// the caller.
    pub fn destroy(&mut self, now: Time, id: CmId) -> Result<(), CmError> {
        let own = self.id(id)?;
        let (connection, listens) = (own.connection, own.listener.is_some());
        if listens {
            self.listeners.retain(|&other| other != id);
            let requests: Vec<CmId> =
                self.events.iter().filter(|event| event.listener == Some(id)).map(|event| event.id).collect();
            for request in requests {
                self.destroy(now, request)?;
            }
        }
        if let Some(comm_id) = connection {
            self.leave(now, id, comm_id);
        }
        self.answered(id);
        if self.ids.remove(&id).is_some_and(|own| own.pending > 0) {
            self.events.retain(|event| event.id != id);
        }
        if let Some(comm_id) = connection {
            self.connections.disown(comm_id);
            self.limit_ended();
        }
        Ok(())
    }

    /// Notifies the peer that the id is destroyed.
    fn leave(&mut self, now: Time, id: CmId, comm_id: u32) {
        let Some(c) = self.connections.get(comm_id) else { return };
        match c.state {
            State::ReqSent | State::MraReqReceived => self.refuse(now, comm_id, RejReason::TIMEOUT, &[]),
            State::ReqReceived | State::RepSent | State::MraRepReceived | State::RepReceived => {
                self.refuse(now, comm_id, RejReason::CONSUMER_DEFINED, &[]);
            }
            // The peer may have more connections to the queue pair.
            State::Established if c.kind == QpKind::XrcRecv => {
                self.connections.remove(comm_id);
            }
            State::Established => self.send_dreq(now, comm_id),
            State::SidrReqSent => {
                self.connections.remove(comm_id);
            }
            State::SidrReqReceived => {
                self.answer_sidr(now, id, SidrRep { status: SidrStatus::REJECT.0, ..SidrRep::default() });
            }
            State::DreqSent | State::Timewait | State::Ended => {}
        }
    }
}

/// Puts the sender's GUID into a REJ: the receiver finds the connection by the GUID and the sender's communication id.
pub(crate) fn set_guid(rej: &mut Rej, guid: u64) {
    rej.info_len = 8;
    rej.info[..8].copy_from_slice(&guid.to_be_bytes());
}

fn check_room(data: &PrivateData, room: usize) -> Result<(), CmError> {
    if data.len() > room { Err(CmError::PrivateData { len: data.len(), room }) } else { Ok(()) }
}

fn check_qpn(param: &ConnParam) -> Result<(), CmError> {
    if param.qpn > 0xff_ffff { Err(CmError::Range("queue pair number")) } else { Ok(()) }
}

/// Writes the IP header, if any, and the user's private data.
fn write_private_data(room: &mut [u8], route: &Route, offset: usize, data: &PrivateData) {
    if offset > 0 {
        IpHeader { src: route.src, dst: route.dst.ip() }.emit(room);
    }
    room[offset..offset + data.len()].copy_from_slice(data);
}

/// Returns a REQ, without private data and the fields that come from the configuration.
fn request(c: &Connection, param: &ConnParam, ack: u8) -> Req {
    let fields = ReqFields {
        local_comm_id: c.comm_id,
        service_id: c.service_id,
        local_qpn: c.local_qpn,
        initiator_depth: c.initiator_depth,
        flow_control: param.flow_control,
        starting_psn: c.rq_psn,
        pkey: PKEY,
        path_mtu: c.mtu as u8,
        ..ReqFields::default()
    };
    let primary = PathRecord {
        local_lid: 0xffff,
        remote_lid: 0xffff,
        local_gid: to_ipv6(c.path.src),
        remote_gid: to_ipv6(c.path.dst),
        flow_label: c.flow_label,
        packet_rate: RATE,
        traffic_class: c.path.traffic_class,
        hop_limit: c.path.hop_limit,
        local_ack_timeout: ack,
        ..PathRecord::NONE
    };
    let mut req = Req { fields, primary, ..Req::default() };
    req.set_transport(match c.kind {
        QpKind::Uc => TransportType::Uc,
        QpKind::XrcSend | QpKind::XrcRecv => TransportType::Xrc,
        QpKind::Rc | QpKind::Ud => TransportType::Rc,
    });
    // Fields that the sender's kind of queue pair does not use (`cm_format_req` in the kernel).
    if c.kind != QpKind::XrcSend {
        req.fields.responder_resources = c.responder_resources;
        (req.fields.retry_count, req.fields.rnr_retry_count) = (c.retry_count, c.rnr_retry_count);
        req.fields.srq = param.srq;
    }
    req
}
