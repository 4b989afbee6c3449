//! The state machine of a queue pair, around what its service does with packets.

use super::Service;
use super::access::Access;
use super::attr::{ModifyError, QpAttr, QpState};
use super::common::{ClassPaths, Common, Fatal};
use super::engine::Engine;
use super::host::{CqId, Event, Host, PdId, PeerProcess, SrqId, TxSlot};
use super::send_queue::PostError;
use super::stats::QpStats;
use super::work::{RecvWr, SendData, SendOp, SendWr, WcStatus};
use crate::config::TransportConfig;
use crate::congestion::ControllerMetrics;
use crate::packet::{PacketClass, Path, RxPacket};
use crate::psn::Psn;
use crate::rc::Rc;
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::uc::Uc;
use crate::ud::Ud;
use crate::wire::{Mtu, Opcode, opcode};

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
    /// Returns the configuration of a reliable connection with one completion queue, and room for 16 work requests each way, of
    /// one scatter/gather element each and without inline data.
    pub fn new(pd: PdId, cq: CqId, transport: TransportConfig) -> QpConfig {
        QpConfig {
            service: Service::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            sq_sig_all: false,
            transport,
        }
    }
}

/// A queue pair.
#[derive(Clone, Debug)]
pub struct Qp {
    state: QpState,
    common: Common,
    engine: Engine,
    sq_sig_all: bool,
    /// SQD: an event is due when the send queue is drained.
    sqd_event: bool,
    /// No packet has arrived since RTR.
    silent: bool,
    sent_pkts: u64,
    rcvd_pkts: u64,
    rx_trimmed: u64,
}

impl Qp {
    /// A queue pair in RESET, by its number of 24 bits. `mtu` is the port's: that of a datagram, and of a connection until it is
    /// told its own.
    pub fn new(qpn: u32, mtu: Mtu, config: &QpConfig) -> Result<Qp, OutOfMemory> {
        let common = Common {
            service: config.service,
            qpn,
            pd: config.pd,
            send_cq: config.send_cq,
            recv_cq: config.recv_cq,
            config: config.transport,
            access: Access::default(),
            paths: None,
            path_mtu: mtu,
            mtu: mtu.bytes() as u32,
            dest_qp: 0,
            qkey: 0,
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            peer_capable: false,
        };
        let engine = match config.service {
            Service::Rc => Engine::Rc(Rc::new(&common, config)?),
            Service::Uc => Engine::Uc(Uc::new(config)?),
            Service::Ud => Engine::Ud(Ud::new(config)?),
        };
        Ok(Qp {
            state: QpState::Reset,
            common,
            engine,
            sq_sig_all: config.sq_sig_all,
            sqd_event: false,
            silent: true,
            sent_pkts: 0,
            rcvd_pkts: 0,
            rx_trimmed: 0,
        })
    }

    /// What it promises.
    #[inline]
    pub fn service(&self) -> Service {
        self.common.service
    }

    /// Its number.
    pub fn qpn(&self) -> u32 {
        self.common.qpn
    }

    /// Its state.
    #[inline]
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Its protection domain.
    pub fn pd(&self) -> PdId {
        self.common.pd
    }

    /// Completion queues of the send and of the receive queue.
    pub fn cqs(&self) -> (CqId, CqId) {
        (self.common.send_cq, self.common.recv_cq)
    }

    /// Its shared receive queue.
    pub fn srq(&self) -> Option<SrqId> {
        self.engine.recv_queue().srq()
    }

    /// Addresses of both ends, once known. A datagram queue pair has none: see [`Self::tx_path`].
    #[inline]
    pub fn path(&self) -> Option<&Path> {
        self.common.path()
    }

    /// Returns the path of the packet that [`Self::poll_transmit`] made last, whose class is [`TxSlot::class`].
    #[inline]
    pub fn tx_path(&self, class: PacketClass) -> Option<&Path> {
        match &self.engine {
            Engine::Ud(ud) => ud.tx_path(),
            _ => self.common.paths.as_ref().map(|paths| paths.of(class)),
        }
    }

    /// Whether a packet that came by `path` may be for it: connections have one peer and one address of their own.
    #[inline]
    pub fn knows(&self, path: &Path) -> bool {
        let connected = |own: &Path| own.dst == path.src && own.src == path.dst;
        self.common.path().is_some_and(connected) || self.common.service == Service::Ud
    }

    /// The priorities that its packets may have, one bit each: the upper three bits of the traffic class (RFC 2474), or any, of
    /// datagrams.
    #[inline]
    pub fn priorities(&self) -> u8 {
        match (&self.engine, &self.common.paths) {
            (Engine::Ud(_), _) => u8::MAX,
            (_, Some(paths)) => paths.priorities(),
            (_, None) => 0,
        }
    }

    /// Payload bytes of a full packet.
    pub fn path_mtu(&self) -> Mtu {
        self.common.path_mtu
    }

    /// The peer's queue pair number.
    pub fn dest_qp(&self) -> u32 {
        self.common.dest_qp
    }

    /// How it recovers losses, if its service does.
    pub fn config(&self) -> &TransportConfig {
        &self.common.config
    }

    /// Smoothed round trip of its requests in ns, 0 before the first sample and where nothing is acknowledged.
    pub fn smoothed_rtt(&self) -> u64 {
        match &self.engine {
            Engine::Rc(rc) => rc.requester.smoothed_rtt(),
            _ => 0,
        }
    }

    /// Returns what its congestion controller says of itself, if it has one.
    pub fn controller_metrics(&self) -> Option<ControllerMetrics> {
        match &self.engine {
            Engine::Rc(rc) => rc.requester.controller_metrics(),
            _ => None,
        }
    }

    /// Whether its requests have the IRN format by now (with `transport = auto`, once the peer is known).
    pub fn speaks_irn(&self) -> bool {
        matches!(&self.engine, Engine::Rc(rc) if rc.requester.speaks_irn())
    }

    /// Work requests in the send queue.
    pub fn send_queue_len(&self) -> u32 {
        self.engine.send_queue().len()
    }

    /// What it has done since it was created.
    pub fn stats(&self) -> QpStats {
        let mut stats = QpStats {
            sent_pkts: self.sent_pkts,
            rcvd_pkts: self.rcvd_pkts,
            rx_trimmed: self.rx_trimmed,
            ..QpStats::default()
        };
        if let Engine::Rc(rc) = &self.engine {
            let (requests, responses) = (&rc.requester.tally, &rc.responder.tally);
            stats.retransmitted = requests.retransmitted + responses.retransmitted;
            stats.timeouts = requests.timeouts + responses.timeouts;
            stats.rnr_naks = requests.rnr_naks;
            stats.rtt.clone_from(&rc.requester.rtt);
        }
        stats
    }

    /// Every attribute as it is now; PSNs are those of the next packet. `None` is what the service has not, or was not told.
    pub fn attributes(&self) -> QpAttr {
        let c = &self.common;
        let (rq_psn, sq_psn) = match &self.engine {
            Engine::Rc(rc) => (Some(rc.responder.expected()), rc.requester.next_psn()),
            Engine::Uc(uc) => (Some(uc.responder.expected), uc.requester.psn),
            Engine::Ud(ud) => (None, ud.psn),
        };
        let connected = c.service != Service::Ud;
        let reliable = c.service == Service::Rc;
        QpAttr {
            state: Some(self.state),
            access: connected.then_some(c.access),
            pkey_index: Some(0),
            port: Some(1),
            qkey: (!connected).then_some(c.qkey),
            path: c.path().copied(),
            path_mtu: Some(c.path_mtu),
            dest_qp: connected.then_some(c.dest_qp),
            rq_psn,
            sq_psn: Some(sq_psn),
            max_dest_rd_atomic: reliable.then_some(c.max_dest_rd_atomic),
            max_rd_atomic: reliable.then_some(c.max_rd_atomic),
            min_rnr_timer: reliable.then_some(c.min_rnr_timer),
            timeout: reliable.then_some(c.timeout),
            retry_cnt: reliable.then_some(c.retry_cnt),
            rnr_retry: reliable.then_some(c.rnr_retry),
            sqd_event: self.sqd_event,
        }
    }

    /// Changes attributes and state. On an error nothing is changed.
    pub fn modify(&mut self, attr: &QpAttr, host: &mut impl Host) -> Result<(), ModifyError> {
        let from = self.state;
        let to = attr.check(self.common.service, from)?;
        let c = &mut self.common;
        if let Some(access) = attr.access {
            c.access = access;
        }
        if let Some(mut path) = attr.path {
            if c.config.congestion.uses_ecn() && path.traffic_class & 3 == 0 {
                // RFC 3168: ECT(0).
                path.traffic_class |= 2;
            }
            c.paths = Some(ClassPaths::new(path, c.config.ack_priority));
        }
        if let Some(mtu) = attr.path_mtu {
            (c.path_mtu, c.mtu) = (mtu, mtu.bytes() as u32);
        }
        c.dest_qp = attr.dest_qp.unwrap_or(c.dest_qp);
        c.qkey = attr.qkey.unwrap_or(c.qkey);
        c.min_rnr_timer = attr.min_rnr_timer.unwrap_or(c.min_rnr_timer);
        c.timeout = attr.timeout.unwrap_or(c.timeout);
        c.retry_cnt = attr.retry_cnt.unwrap_or(c.retry_cnt);
        c.rnr_retry = attr.rnr_retry.unwrap_or(c.rnr_retry);
        c.max_rd_atomic = attr.max_rd_atomic.unwrap_or(c.max_rd_atomic);
        c.max_dest_rd_atomic = attr.max_dest_rd_atomic.unwrap_or(c.max_dest_rd_atomic);
        self.state = to;
        match (from, to) {
            (QpState::Init, QpState::Rtr) => self.start_receiving(attr.rq_psn.unwrap_or_default()),
            (QpState::Rtr, QpState::Rts) => self.start_sending(attr.sq_psn.unwrap_or_default()),
            (_, QpState::Reset) => match &mut self.engine {
                Engine::Rc(rc) => {
                    rc.requester.reset();
                    rc.responder.reset();
                }
                Engine::Uc(uc) => uc.reset(),
                Engine::Ud(ud) => ud.reset(),
            },
            (_, QpState::Err) if from != QpState::Err => self.fail(None, host),
            (_, QpState::Sqd) => {
                if from == QpState::Rts {
                    self.sqd_event = attr.sqd_event;
                }
                if let Engine::Rc(rc) = &mut self.engine {
                    if let Some(limit) = attr.max_rd_atomic {
                        rc.requester.set_max_rd_atomic(limit);
                    }
                    if let Some(depth) = attr.max_dest_rd_atomic {
                        rc.responder.set_depth(depth);
                    }
                }
                self.check_drained(host);
            }
            _ => {}
        }
        Ok(())
    }

    fn start_receiving(&mut self, psn: Psn) {
        let c = &mut self.common;
        self.silent = true;
        c.peer_capable = false;
        match &mut self.engine {
            Engine::Rc(rc) => rc.responder.start(c, psn, c.max_dest_rd_atomic),
            Engine::Uc(uc) => uc.responder.start(psn),
            Engine::Ud(_) => {}
        }
    }

    fn start_sending(&mut self, psn: Psn) {
        let c = &self.common;
        match &mut self.engine {
            Engine::Rc(rc) => rc.requester.start(c, psn, c.max_rd_atomic),
            Engine::Uc(uc) => uc.requester.psn = psn,
            Engine::Ud(ud) => ud.psn = psn,
        }
    }

    /// Posts a send work request. In ERR and SQE it is flushed at once.
    #[inline]
    pub fn post_send(&mut self, wr: &SendWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        match self.state {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => {}
            state => return Err(PostError::State(state)),
        }
        if self.common.service != Service::Rc {
            self.check_unreliable(wr)?;
        }
        let queue = self.engine.send_queue_mut();
        if self.sq_sig_all && !wr.signaled {
            queue.post(&SendWr { signaled: true, ..*wr })?;
        } else {
            queue.post(wr)?;
        }
        if matches!(self.state, QpState::Err | QpState::Sqe) {
            self.engine.flush_send(&self.common, WcStatus::WrFlushErr, host);
        }
        Ok(())
    }

    /// Takes back the last `n` send work requests, as far as they have not started.
    pub fn retract_sends(&mut self, n: u32) {
        self.engine.send_queue_mut().retract(n);
    }

    /// What the unreliable services do not take (IBA 9.2.1).
    #[inline(never)]
    fn check_unreliable(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let c = &self.common;
        let datagram = c.service == Service::Ud;
        match wr.op {
            SendOp::Send | SendOp::SendImm(_) => {}
            SendOp::Write | SendOp::WriteImm(_) | SendOp::LocalInvalidate(_) | SendOp::BindMw { .. } if !datagram => {}
            _ => return Err(PostError::Service(c.service)),
        }
        if datagram {
            if wr.to.is_none() {
                return Err(PostError::NoAddress);
            }
            let len = match wr.data {
                SendData::Sges(sges) => sges.iter().map(|s| u64::from(s.len)).sum(),
                SendData::Inline(bytes) => bytes.len() as u64,
            };
            if len > u64::from(c.mtu) {
                return Err(PostError::DatagramTooLong { len, mtu: c.mtu });
            }
        }
        Ok(())
    }

    /// Posts a receive work request. In ERR it is flushed at once.
    #[inline]
    pub fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        if self.state == QpState::Reset {
            return Err(PostError::State(self.state));
        }
        self.engine.recv_queue_mut().post(wr)?;
        if self.state == QpState::Err {
            self.engine.recv_queue_mut().flush(&self.common, WcStatus::WrFlushErr, host);
        } else if let Engine::Rc(rc) = &mut self.engine {
            rc.responder.posted();
        }
        Ok(())
    }

    /// A packet for this queue pair.
    #[inline]
    pub fn receive(&mut self, now: Time, packet: &RxPacket<'_>, host: &mut impl Host) {
        if packet.sideband.trimmed {
            return self.receive_trimmed();
        }
        let Engine::Rc(rc) = &mut self.engine else { return self.receive_unreliable(packet, host) };
        let bth = &packet.headers.bth;
        if !bth.opcode.is_rc() {
            if bth.opcode == Opcode::Cnp && matches!(self.state, QpState::Rts | QpState::Sqd) {
                host.counters().rcvd_pkts += 1;
                self.rcvd_pkts += 1;
                let cnp = packet.headers.cnp.unwrap_or_default();
                rc.requester.on_cnp(packet.arrived, &cnp, host);
            } else {
                host.counters().rx_dropped += 1;
            }
            return;
        }
        let response = bth.opcode.is_response();
        match self.state {
            QpState::Rts | QpState::Sqd | QpState::Sqe => {}
            QpState::Rtr if !response => {}
            QpState::Err if !response => {
                // Read acknowledgements are answered only if they ask for it: two ends would go on for ever otherwise.
                if bth.ack_req || bth.opcode.is_request() {
                    rc.responder.receive_after_error();
                }
                host.counters().rx_dropped += 1;
                return;
            }
            _ => {
                host.counters().rx_dropped += 1;
                return;
            }
        }
        host.counters().rcvd_pkts += 1;
        self.rcvd_pkts += 1;
        if self.silent {
            self.silent = false;
            if self.state == QpState::Rtr {
                host.event(Event::CommunicationEstablished(self.common.qpn));
            }
        }
        let expected = rc.responder.expected();
        let received = rc.receive(now, &self.common, packet, host);
        // Anybody can send a packet; one that comes in order the peer has sent.
        let accepted = rc.responder.expected() != expected;
        self.common.peer_capable |= accepted && bth.irn_capable && self.common.config.knows_irn();
        if let Err(fatal) = received {
            self.fail(Some(fatal), host);
        }
        if self.state == QpState::Sqd {
            self.check_drained(host);
        }
    }

    /// A switch has cut the payload off a packet for this queue pair. To today's services it is as good as lost; its
    /// length would end the connection as an invalid request.
    #[cold]
    fn receive_trimmed(&mut self) {
        self.rx_trimmed += 1;
    }

    // Apart, as is what follows: reliable connections are what costs are counted on.
    #[inline(never)]
    fn receive_unreliable(&mut self, packet: &RxPacket<'_>, host: &mut impl Host) {
        let ready = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        let service = packet.headers.bth.opcode.service();
        let received = match &mut self.engine {
            Engine::Uc(uc) if ready && service == opcode::Service::Uc => {
                host.counters().rcvd_pkts += 1;
                self.rcvd_pkts += 1;
                if std::mem::take(&mut self.silent) && self.state == QpState::Rtr {
                    host.event(Event::CommunicationEstablished(self.common.qpn));
                }
                uc.responder.receive(&self.common, packet, host)
            }
            Engine::Ud(ud) if ready && service == opcode::Service::Ud => {
                host.counters().rcvd_pkts += 1;
                self.rcvd_pkts += 1;
                ud.receive(&self.common, packet, host)
            }
            _ => {
                host.counters().rx_dropped += 1;
                return;
            }
        };
        if let Err(fatal) = received {
            self.fail(Some(fatal), host);
        }
    }

    fn check_drained(&mut self, host: &mut impl Host) {
        if self.sqd_event && !self.engine.busy() {
            self.sqd_event = false;
            host.event(Event::SqDrained(self.common.qpn));
        }
    }

    /// Whether [`Self::poll_transmit`] may have a packet.
    #[inline]
    pub fn wants_tx(&self) -> bool {
        let sending = self.state == QpState::Rts;
        match &self.engine {
            Engine::Rc(rc) => match self.state {
                QpState::Rtr | QpState::Err => rc.responder.wants_tx(),
                QpState::Rts | QpState::Sqd => rc.responder.wants_tx() || rc.requester.wants_tx(sending),
                _ => false,
            },
            Engine::Uc(uc) => uc.requester.wants_tx(sending) && matches!(self.state, QpState::Rts | QpState::Sqd),
            Engine::Ud(ud) => sending && ud.sq.len() > 0,
        }
    }

    /// Makes the next packet to send in `out`; false if there is none. Its path is [`Self::tx_path`]. `out` lists
    /// memory that may be read until this queue pair or the device's memory regions change.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, host: &mut impl Host, out: &mut TxSlot) -> bool {
        let c = &self.common;
        out.reset();
        let polled = match &mut self.engine {
            Engine::Rc(rc) => match self.state {
                QpState::Rtr | QpState::Err => rc.responder.poll_transmit(now, c, host, out),
                QpState::Rts | QpState::Sqd => rc.poll_both(now, self.state == QpState::Rts, c, host, out),
                _ => Ok(false),
            },
            _ => self.poll_unreliable(host, out),
        };
        match polled {
            Ok(made) => {
                host.counters().sent_pkts += u64::from(made);
                self.sent_pkts += u64::from(made);
                if self.state == QpState::Sqd {
                    self.check_drained(host);
                }
                made
            }
            Err(fatal) => {
                self.fail(Some(fatal), host);
                false
            }
        }
    }

    #[inline(never)]
    fn poll_unreliable(&mut self, host: &mut impl Host, out: &mut TxSlot) -> Result<bool, Fatal> {
        let c = &self.common;
        match (&mut self.engine, self.state) {
            (Engine::Uc(uc), QpState::Rts) => uc.requester.poll_transmit(true, c, host, out),
            (Engine::Uc(uc), QpState::Sqd) => uc.requester.poll_transmit(false, c, host, out),
            (Engine::Ud(ud), QpState::Rts) => ud.poll_transmit(c, host, out),
            _ => Ok(false),
        }
    }

    /// When [`Self::on_deadline`] is due.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        let Engine::Rc(rc) = &self.engine else { return Time::NEVER };
        match self.state {
            QpState::Rtr => rc.responder.next_deadline(),
            QpState::Rts | QpState::Sqd => rc.responder.next_deadline().min(rc.requester.next_deadline()),
            _ => Time::NEVER,
        }
    }

    /// Runs timers that are due. `process` says what is known of the process that has a queue pair number at an address; it is
    /// asked when the retries of a request are used up.
    pub fn on_deadline(
        &mut self,
        now: Time,
        host: &mut impl Host,
        process: &mut impl FnMut(&Path, u32) -> PeerProcess,
    ) {
        if self.next_deadline() > now {
            return;
        }
        let Engine::Rc(rc) = &mut self.engine else { return };
        let mut outcome = rc.responder.on_deadline(now, &self.common, host);
        if let (Ok(()), QpState::Rts | QpState::Sqd) = (outcome, self.state) {
            let c = &self.common;
            let ask = || c.path().map_or(PeerProcess::Unknown, |path| process(path, c.dest_qp));
            outcome = rc.requester.on_deadline(now, c, host, ask);
        }
        if let Err(fatal) = outcome {
            self.fail(Some(fatal), host);
        }
    }

    /// To an error state: the work request at fault ends with its status, the others of its queue are flushed. `None`: asked
    /// to.
    #[cold]
    fn fail(&mut self, fatal: Option<Fatal>, host: &mut impl Host) {
        let c = &self.common;
        let mut refused = None;
        if let (Engine::Rc(rc), Some(Fatal::Request | Fatal::Access | Fatal::Recv(_))) = (&mut self.engine, fatal)
            && c.is_own_peer()
        {
            refused = rc.refuse_own(c, host);
        }
        if let (Some(Fatal::Send(status)), Service::Uc | Service::Ud) = (fatal, c.service) {
            // Receiving goes on (IBA 10.3.1: SQE).
            self.state = QpState::Sqe;
            return self.engine.flush_send(c, status, host);
        }
        self.state = QpState::Err;
        let (send, recv) = match fatal {
            Some(Fatal::Send(status)) => (status, WcStatus::WrFlushErr),
            Some(Fatal::Recv(status)) => (WcStatus::WrFlushErr, status),
            _ => (WcStatus::WrFlushErr, WcStatus::WrFlushErr),
        };
        let send = refused.unwrap_or(send);
        match fatal {
            Some(Fatal::Request) => host.event(Event::QpRequestError(c.qpn)),
            Some(Fatal::Access) => host.event(Event::QpAccessError(c.qpn)),
            _ => {}
        }
        self.engine.flush_send(c, send, host);
        self.engine.recv_queue_mut().flush(c, recv, host);
        if let Engine::Rc(rc) = &mut self.engine {
            rc.responder.silence();
            rc.responder.receive_after_error();
        }
    }

    /// A completion queue of this queue pair overflowed.
    pub fn cq_failed(&mut self, host: &mut impl Host) {
        if !matches!(self.state, QpState::Err | QpState::Reset) {
            host.event(Event::QpFatal(self.common.qpn));
            self.fail(None, host);
        }
    }
}
