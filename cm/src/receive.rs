//! Messages about known connections. Requests are in `request`.

use std::net::IpAddr;

use irnic_transports::wire::mad::{
    Apr, Drep, Dreq, Lap, Mad, Message, Mra, Rej, RejReason, Rep, Rtu, SidrRep, SidrStatus, rejected,
};
use irnic_transports::{Path, Time};

use crate::calls::set_guid;
use crate::connection::{Connection, State, ack_timeout, nanos};
use crate::{Cm, ConnData, EventKind, EventParam, PrivateData, QpKind, UdData};

/// Code of the time that an MRA requests: 65 s (`CMA_CM_MRA_SETTING` in the kernel).
const SERVICE_TIMEOUT: u8 = 24;

/// APR status: alternate paths are not supported (`IB_CM_APR_UNSUPPORTED`).
const APR_UNSUPPORTED: u8 = 2;

impl Cm {
    /// Receives the payload of a datagram to queue pair 1. `path` is as received: its source is the peer's address.
    /// Anything but a message of the communication manager is dropped.
    pub fn receive(&mut self, now: Time, path: &Path, mad: &[u8]) {
        let Ok(Mad { tid, message }) = Mad::parse(mad) else { return };
        let back = reply_path(path);
        // A message about a connection is accepted only from that connection's peer.
        let peer = back.dst;
        match message {
            Message::Req(req) => self.receive_req(now, back, tid, &req),
            Message::SidrReq(req) => self.receive_sidr_req(now, back, tid, &req),
            Message::Rep(rep) => self.receive_rep(now, back, tid, &rep),
            Message::Rtu(rtu) => self.receive_rtu(back, tid, &rtu),
            Message::Rej(rej) => self.receive_rej(now, peer, &rej),
            Message::Mra(mra) => self.receive_mra(now, peer, &mra),
            Message::Dreq(dreq) => self.receive_dreq(now, back, tid, &dreq),
            Message::Drep(drep) => self.receive_drep(now, peer, &drep),
            Message::SidrRep(rep) => self.receive_sidr_rep(peer, &rep),
            Message::Lap(lap) => self.receive_lap(back, tid, &lap),
            // No LAP was sent.
            Message::Apr(_) => {}
        }
    }

    fn receive_rep(&mut self, now: Time, back: Path, tid: u64, rep: &Rep) {
        let comm_id = rep.remote_comm_id;
        let Some(c) = self.connections.with(back.dst, comm_id) else {
            return self.refuse_rep(back, tid, rep, RejReason::INVALID_COMM_ID);
        };
        match c.state {
            State::ReqSent | State::MraReqReceived => self.receive_first_rep(now, back, tid, rep),
            _ if c.remote_id != 0 && c.remote_id != rep.local_comm_id => {}
            State::RepReceived => self.send_mra(comm_id, rejected::REP),
            // The RTU was lost, or the REJ.
            State::Established => self.send_answer(comm_id),
            State::Ended if c.remote_id != 0 => self.send_answer(comm_id),
            // Given up before the peer's communication id was known.
            State::Ended if !c.passive => self.refuse_rep(back, tid, rep, RejReason::TIMEOUT),
            _ => {}
        }
    }

    /// Handles the first REP: the peer accepts.
    fn receive_first_rep(&mut self, now: Time, back: Path, tid: u64, rep: &Rep) {
        let comm_id = rep.remote_comm_id;
        let guid = rep.local_ca_guid;
        if self.connections.by_remote_id(back.dst, guid, rep.local_comm_id).is_some_and(|other| other != comm_id) {
            return;
        }
        let Some(c) = self.connections.get(comm_id) else { return };
        let remote_qpn = if c.kind == QpKind::XrcSend { rep.local_eecn } else { rep.local_qpn };
        if let Some(stale) = self.stale(back.dst, guid, remote_qpn, comm_id) {
            self.refuse_rep(back, tid, rep, RejReason::STALE_CONN);
            self.send_dreq(now, stale);
            return;
        }
        let ack_delay = rep.target_ack_delay;
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        (c.state, c.repeat) = (State::RepReceived, None);
        (c.remote_id, c.remote_guid, c.remote_qpn) = (rep.local_comm_id, guid, remote_qpn);
        (c.responder_resources, c.initiator_depth) = (rep.initiator_depth, rep.responder_resources);
        (c.sq_psn, c.rnr_retry_count) = (rep.starting_psn, rep.rnr_retry_count);
        c.ack_timeout = ack_timeout(ack_delay, c.ack_timeout.saturating_sub(1));
        let param = ConnData {
            private_data: PrivateData::of(&rep.private_data),
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.flow_control,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            qpn: remote_qpn,
            ..ConnData::default()
        };
        let owner = c.owner;
        self.connections.index(comm_id);
        self.connections.set_due(comm_id, Time::NEVER);
        if let Some(id) = owner {
            self.raise(id, EventKind::ConnectResponse, 0, EventParam::Conn(param));
        }
    }

    /// Rejects a REP that belongs to no connection.
    fn refuse_rep(&mut self, back: Path, tid: u64, rep: &Rep, reason: RejReason) {
        let mut rej = Rej {
            local_comm_id: rep.remote_comm_id,
            remote_comm_id: rep.local_comm_id,
            message_rejected: rejected::REP,
            reason: reason.0,
            ..Rej::default()
        };
        if reason == RejReason::TIMEOUT {
            set_guid(&mut rej, self.config.ca_guid);
        }
        self.send_message(back, tid, rej);
    }

    /// Returns a connection, established or in progress, to a peer's queue pair that now has another.
    pub(crate) fn stale(&self, peer: IpAddr, guid: u64, qpn: u32, comm_id: u32) -> Option<u32> {
        self.connections.by_remote_qpn(peer, guid, qpn).filter(|&other| other != comm_id)
    }

    fn receive_rtu(&mut self, back: Path, tid: u64, rtu: &Rtu) {
        let comm_id = rtu.remote_comm_id;
        match self.connections.pair(back.dst, comm_id, rtu.local_comm_id).map(|c| (c.state, c.passive)) {
            Some((State::RepSent | State::MraRepReceived, _)) => self.set_established(comm_id),
            // The REJ was lost, and the peer considers the connection established.
            Some((State::Ended, true)) => self.send_answer(comm_id),
            Some(_) => {}
            // The same, but after the connection was forgotten.
            None => {
                let rej = Rej {
                    local_comm_id: comm_id,
                    remote_comm_id: rtu.local_comm_id,
                    message_rejected: rejected::OTHER,
                    reason: RejReason::INVALID_COMM_ID.0,
                    ..Rej::default()
                };
                self.send_message(back, tid, rej);
            }
        }
    }

    /// Returns the connection that a REJ is about (`cm_acquire_rejected_id` in the kernel).
    fn rejected_connection(&self, peer: IpAddr, rej: &Rej) -> Option<&Connection> {
        let own = || self.connections.with(peer, rej.remote_comm_id);
        if rej.reason == RejReason::TIMEOUT.0 {
            let guid = u64::from_be_bytes(std::array::from_fn(|i| rej.info[i]));
            let by_guid = self.connections.by_remote_id(peer, guid, rej.local_comm_id);
            return by_guid.and_then(|comm_id| self.connections.get(comm_id));
        }
        if rej.message_rejected == rejected::REQ {
            own().filter(|c| !c.passive && c.remote_id == 0)
        } else {
            // Or its REP was lost, and with it its communication id.
            own().filter(|c| c.remote_id == rej.local_comm_id || !c.passive && c.remote_id == 0)
        }
    }

    fn receive_rej(&mut self, now: Time, peer: IpAddr, rej: &Rej) {
        let Some(c) = self.rejected_connection(peer, rej) else { return };
        let (comm_id, state, owner) = (c.comm_id, c.state, c.owner);
        let param =
            EventParam::Conn(ConnData { private_data: PrivateData::of(&rej.private_data), ..ConnData::default() });
        match state {
            State::ReqSent | State::MraReqReceived | State::ReqReceived | State::RepSent | State::MraRepReceived => {
                if rej.reason == RejReason::STALE_CONN.0 {
                    self.enter_timewait(now, comm_id);
                } else {
                    self.end(now, comm_id, None);
                }
            }
            State::RepReceived | State::Established => self.enter_timewait(now, comm_id),
            State::DreqSent => return self.set_disconnected(now, comm_id, 0),
            State::Timewait | State::Ended | State::SidrReqSent | State::SidrReqReceived => return,
        }
        if let Some(id) = owner {
            self.raise(id, EventKind::Rejected, i32::from(rej.reason), param);
        }
    }

    fn receive_mra(&mut self, now: Time, peer: IpAddr, mra: &Mra) {
        let wait = |c: &Connection| nanos(mra.service_timeout) + nanos(c.ack_timeout);
        let Some(c) = self.connections.get_mut(mra.remote_comm_id).filter(|c| c.path.dst == peer) else { return };
        c.state = match (c.state, mra.message_mraed) {
            (State::ReqSent, rejected::REQ) => {
                self.mra_arrived = true;
                State::MraReqReceived
            }
            (State::RepSent, rejected::REP) if c.remote_id == mra.local_comm_id => State::MraRepReceived,
            // Only the first one counts, so that a peer cannot extend its time without end.
            _ => return,
        };
        c.mra_id = mra.local_comm_id;
        let (wait, retries) = (wait(c), c.max_retries);
        let Some(repeat) = &mut c.repeat else { return };
        repeat.postpone(now, wait, retries);
        let due = repeat.due();
        self.connections.set_due(mra.remote_comm_id, due);
    }

    /// Notifies the peer that its message has arrived and that the application needs time.
    pub(crate) fn send_mra(&mut self, comm_id: u32, message_mraed: u8) {
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        c.mra_sent = true;
        let mra = Mra {
            local_comm_id: comm_id,
            remote_comm_id: c.remote_id,
            message_mraed,
            service_timeout: SERVICE_TIMEOUT,
            ..Mra::default()
        };
        let (path, tid) = (c.path, c.tid);
        self.send_message(path, tid, mra);
    }

    /// Resends the message that the peer has missed.
    pub(crate) fn send_answer(&mut self, comm_id: u32) {
        if let Some(c) = self.connections.get(comm_id)
            && let Some(answer) = c.answer
        {
            self.send(c.path, answer);
        }
    }

    fn receive_dreq(&mut self, now: Time, back: Path, tid: u64, dreq: &Dreq) {
        let comm_id = dreq.remote_comm_id;
        let drep = Drep { local_comm_id: comm_id, remote_comm_id: dreq.local_comm_id, ..Drep::default() };
        let Some(c) = self.connections.pair(back.dst, comm_id, dreq.local_comm_id).filter(|c| c.state != State::Ended)
        else {
            // A side without the connection agrees that it has ended.
            self.send_message(back, tid, drep);
            return;
        };
        if c.local_qpn != dreq.remote_qpn {
            return;
        }
        match c.state {
            State::RepSent | State::MraRepReceived | State::Established | State::DreqSent => {
                self.send_message(back, tid, drep);
                self.set_disconnected(now, comm_id, 0);
            }
            State::Timewait => {
                self.send_message(back, tid, drep);
            }
            _ => {}
        }
    }

    fn receive_drep(&mut self, now: Time, peer: IpAddr, drep: &Drep) {
        let state = self.connections.pair(peer, drep.remote_comm_id, drep.local_comm_id).map(|c| c.state);
        if state == Some(State::DreqSent) {
            self.set_disconnected(now, drep.remote_comm_id, 0);
        }
    }

    /// Marks a connection as ended; its packets may still be in flight.
    pub(crate) fn set_disconnected(&mut self, now: Time, comm_id: u32, status: i32) {
        self.enter_timewait(now, comm_id);
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        c.disconnected = true;
        if let Some(id) = c.owner {
            self.raise(id, EventKind::Disconnected, status, EventParam::None);
        }
    }

    /// Alternate paths do not exist in RoCE.
    fn receive_lap(&mut self, back: Path, tid: u64, lap: &Lap) {
        let known = self.connections.pair(back.dst, lap.remote_comm_id, lap.local_comm_id);
        if known.is_some_and(|c| c.state == State::Established) {
            let apr = Apr {
                local_comm_id: lap.remote_comm_id,
                remote_comm_id: lap.local_comm_id,
                status: APR_UNSUPPORTED,
                ..Apr::default()
            };
            self.send_message(back, tid, apr);
        }
    }

    fn receive_sidr_rep(&mut self, peer: IpAddr, rep: &SidrRep) {
        let Some(c) = self.connections.with(peer, rep.request_id).filter(|c| c.state == State::SidrReqSent) else {
            return;
        };
        let (owner, path, flow_label) = (c.owner, c.path, c.flow_label);
        self.connections.remove(rep.request_id);
        let Some(id) = owner else { return };
        let accepted = rep.status == SidrStatus::SUCCESS.0;
        let private_data = PrivateData::of(&rep.private_data);
        let (qpn, qkey) = if accepted { (rep.qpn, rep.qkey) } else { (0, 0) };
        let param = EventParam::Ud(UdData { private_data, path, flow_label, qpn, qkey });
        if accepted {
            self.raise(id, EventKind::Established, 0, param);
        } else {
            self.raise(id, EventKind::Unreachable, i32::from(rep.status), param);
        }
    }
}

/// Returns the path back to the sender of a datagram.
fn reply_path(path: &Path) -> Path {
    // Congestion marks are not reflected.
    Path { src: path.dst, dst: path.src, udp_src: 0xc000, traffic_class: path.traffic_class & 0xfc, hop_limit: 64 }
}
