//! A reliable-connection queue pair: the state machine around requester and responder.

use super::attr::{ModifyError, QpAttr, QpState};
use super::common::{Common, Fatal};
use super::config::TransportConfig;
use super::host::{Access, CqId, Event, Host, PdId, SrqId, TxSlot};
use super::requester::Requester;
use super::responder::Responder;
use super::send_queue::PostError;
use super::work::{RecvWr, SendWr, WcStatus};
use crate::packet::{Path, RxPacket};
use crate::time::Time;
use crate::wire::Mtu;

/// What a queue pair is created with.
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Queue pair number, 24 bits.
    pub qpn: u32,
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
    /// Every work request wants a completion.
    pub sq_sig_all: bool,
    /// The transport.
    pub config: TransportConfig,
}

/// A queue pair.
#[derive(Clone, Debug)]
pub struct Qp {
    state: QpState,
    common: Common,
    requester: Requester,
    responder: Responder,
    sq_sig_all: bool,
    /// SQD: an event is due when the send queue is drained.
    sqd_event: bool,
    /// No packet has arrived since RTR.
    silent: bool,
    /// Which half sent last: they take turns.
    responder_sent: bool,
}

impl Qp {
    /// A queue pair in RESET.
    pub fn new(init: &QpInit) -> Qp {
        let path_mtu = Mtu::B1024;
        let common = Common {
            qpn: init.qpn,
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            config: init.config,
            access: Access::default(),
            path: None,
            path_mtu,
            mtu: path_mtu.bytes() as u32,
            dest_qp: 0,
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            peer_capable: false,
        };
        let requester = Requester::new(&common, init.max_send_wr, init.max_send_sge as usize, init.max_inline as usize);
        let responder = Responder::new(&common, init.max_recv_wr, init.max_recv_sge as usize, init.srq);
        Qp {
            state: QpState::Reset,
            common,
            requester,
            responder,
            sq_sig_all: init.sq_sig_all,
            sqd_event: false,
            silent: true,
            responder_sent: false,
        }
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
        self.responder.rq.srq()
    }

    /// Addresses of both ends, once known.
    #[inline]
    pub fn path(&self) -> Option<&Path> {
        self.common.path.as_ref()
    }

    /// Payload bytes of a full packet.
    pub fn path_mtu(&self) -> Mtu {
        self.common.path_mtu
    }

    /// The peer's queue pair number.
    pub fn dest_qp(&self) -> u32 {
        self.common.dest_qp
    }

    /// Its transport.
    pub fn config(&self) -> &TransportConfig {
        &self.common.config
    }

    /// Smoothed round trip of its requests in ns, 0 before the first sample.
    pub fn smoothed_rtt(&self) -> u64 {
        self.requester.smoothed_rtt()
    }

    /// Whether its requests have the IRN format by now (with `transport = auto`, once the peer is known).
    pub fn speaks_irn(&self) -> bool {
        self.requester.speaks_irn()
    }

    /// Work requests in the send queue.
    pub fn send_queue_len(&self) -> u32 {
        self.requester.sq.len()
    }

    /// Changes attributes and state. On an error nothing is changed.
    pub fn modify(&mut self, attr: &QpAttr, host: &mut impl Host) -> Result<(), ModifyError> {
        let from = self.state;
        let to = attr.check(from)?;
        let c = &mut self.common;
        if let Some(access) = attr.access {
            c.access = access;
        }
        if let Some(path) = attr.path {
            c.path = Some(path);
        }
        if let Some(mtu) = attr.path_mtu {
            (c.path_mtu, c.mtu) = (mtu, mtu.bytes() as u32);
        }
        c.dest_qp = attr.dest_qp.unwrap_or(c.dest_qp);
        c.min_rnr_timer = attr.min_rnr_timer.unwrap_or(c.min_rnr_timer);
        c.timeout = attr.timeout.unwrap_or(c.timeout);
        c.retry_cnt = attr.retry_cnt.unwrap_or(c.retry_cnt);
        c.rnr_retry = attr.rnr_retry.unwrap_or(c.rnr_retry);
        if let (QpState::Init, QpState::Rtr, Some(psn)) = (from, to, attr.rq_psn) {
            self.silent = true;
            c.peer_capable = false;
            self.responder.start(c, psn, attr.max_dest_rd_atomic.unwrap_or(0));
        }
        if let (QpState::Rtr, QpState::Rts, Some(psn)) = (from, to, attr.sq_psn) {
            self.requester.start(c, psn, attr.max_rd_atomic.unwrap_or(0));
        }
        self.state = to;
        match to {
            QpState::Reset => {
                self.requester.reset();
                self.responder.reset();
            }
            QpState::Err if from != QpState::Err => self.fail(None, host),
            QpState::Sqd => {
                if from == QpState::Rts {
                    self.sqd_event = attr.sqd_event;
                }
                if let Some(limit) = attr.max_rd_atomic {
                    self.requester.set_max_rd_atomic(limit);
                }
                if let Some(depth) = attr.max_dest_rd_atomic {
                    self.responder.set_depth(depth);
                }
                self.check_drained(host);
            }
            _ => {}
        }
        Ok(())
    }

    /// Posts a send work request. In ERR it is flushed at once.
    #[inline]
    pub fn post_send(&mut self, wr: &SendWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        match self.state {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => {}
            state => return Err(PostError::State(state)),
        }
        if self.sq_sig_all && !wr.signaled {
            self.requester.sq.post(&SendWr { signaled: true, ..*wr })?;
        } else {
            self.requester.sq.post(wr)?;
        }
        if self.state == QpState::Err {
            self.requester.flush(&self.common, WcStatus::WrFlushErr, host);
        }
        Ok(())
    }

    /// Posts a receive work request. In ERR it is flushed at once.
    #[inline]
    pub fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        if self.state == QpState::Reset {
            return Err(PostError::State(self.state));
        }
        self.responder.rq.post(wr)?;
        if self.state == QpState::Err {
            self.responder.flush(&self.common, WcStatus::WrFlushErr, host);
        } else {
            self.responder.posted();
        }
        Ok(())
    }

    /// A packet for this queue pair.
    #[inline]
    pub fn receive(&mut self, now: Time, packet: &RxPacket<'_>, host: &mut impl Host) {
        let bth = &packet.headers.bth;
        if !bth.opcode.is_rc() {
            host.counters().rx_dropped += 1;
            return;
        }
        let response = bth.opcode.is_response();
        match self.state {
            QpState::Rts | QpState::Sqd | QpState::Sqe => {}
            QpState::Rtr if !response => {}
            QpState::Err if !response => {
                // Read acknowledgements are answered only if they ask for it: two ends would go on for ever otherwise.
                if bth.ack_req || bth.opcode.is_request() {
                    self.responder.receive_after_error();
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
        if self.silent {
            self.silent = false;
            if self.state == QpState::Rtr {
                host.event(Event::CommunicationEstablished(self.common.qpn));
            }
        }
        self.common.peer_capable |= bth.irn_capable && self.common.config.knows_irn();
        let outcome = if response {
            self.requester.receive(now, &self.common, packet, host)
        } else {
            self.responder.receive(now, &self.common, packet, host)
        };
        if let Err(fatal) = outcome {
            self.fail(Some(fatal), host);
        }
        if self.state == QpState::Sqd {
            self.check_drained(host);
        }
    }

    fn check_drained(&mut self, host: &mut impl Host) {
        if self.sqd_event && !self.requester.busy() {
            self.sqd_event = false;
            host.event(Event::SqDrained(self.common.qpn));
        }
    }

    /// Whether [`Self::poll_transmit`] may have a packet.
    #[inline]
    pub fn wants_tx(&self) -> bool {
        match self.state {
            QpState::Rtr | QpState::Err => self.responder.wants_tx(),
            QpState::Rts | QpState::Sqd => {
                self.responder.wants_tx() || self.requester.wants_tx(self.state == QpState::Rts)
            }
            _ => false,
        }
    }

    /// Makes the next packet to send in `out`; false if there is none. Its addresses are [`Self::path`]. `out` lists memory
    /// that may be read until this queue pair or the device's memory regions change.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, host: &mut impl Host, out: &mut TxSlot) -> bool {
        let polled = match self.state {
            QpState::Rtr | QpState::Err => self.responder.poll_transmit(now, &self.common, host, out),
            QpState::Rts | QpState::Sqd => self.poll_both(now, host, out),
            _ => Ok(false),
        };
        match polled {
            Ok(made) => {
                host.counters().sent_pkts += u64::from(made);
                made
            }
            Err(fatal) => {
                self.fail(Some(fatal), host);
                false
            }
        }
    }

    #[inline]
    fn poll_both(&mut self, now: Time, host: &mut impl Host, out: &mut TxSlot) -> Result<bool, Fatal> {
        let c = &self.common;
        out.gather.clear();
        if self.requester.poll_acks(c, host, out) {
            return Ok(true);
        }
        let sending = self.state == QpState::Rts;
        // Turns, so that neither direction starves the other. After a rest a request goes before the acknowledgement: the
        // shorter packet last is what segmentation offload takes as one datagram train.
        if !self.responder_sent && self.responder.poll_transmit(now, c, host, out)? {
            self.responder_sent = true;
            return Ok(true);
        }
        let requested = self.requester.poll_transmit(now, sending, c, host, out)?;
        let responded = !requested && self.responder_sent && self.responder.poll_transmit(now, c, host, out)?;
        self.responder_sent = !requested;
        Ok(requested || responded)
    }

    /// When [`Self::on_deadline`] is due.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        match self.state {
            QpState::Rtr => self.responder.next_deadline(),
            QpState::Rts | QpState::Sqd => self.responder.next_deadline().min(self.requester.next_deadline()),
            _ => Time::NEVER,
        }
    }

    /// Runs timers that are due.
    pub fn on_deadline(&mut self, now: Time, host: &mut impl Host) {
        if self.next_deadline() > now {
            return;
        }
        let mut outcome = self.responder.on_deadline(now, &self.common, host);
        if let (Ok(()), QpState::Rts | QpState::Sqd) = (outcome, self.state) {
            outcome = self.requester.on_deadline(now, &self.common, host);
        }
        if let Err(fatal) = outcome {
            self.fail(Some(fatal), host);
        }
    }

    /// To the error state: the work request at fault ends with its status, all others are flushed. `None`: asked to.
    fn fail(&mut self, fatal: Option<Fatal>, host: &mut impl Host) {
        self.state = QpState::Err;
        let (send, recv) = match fatal {
            Some(Fatal::Send(status)) => (status, WcStatus::WrFlushErr),
            Some(Fatal::Recv(status)) => (WcStatus::WrFlushErr, status),
            _ => (WcStatus::WrFlushErr, WcStatus::WrFlushErr),
        };
        match fatal {
            Some(Fatal::Request) => host.event(Event::QpRequestError(self.common.qpn)),
            Some(Fatal::Access) => host.event(Event::QpAccessError(self.common.qpn)),
            _ => {}
        }
        self.requester.flush(&self.common, send, host);
        self.responder.flush(&self.common, recv, host);
        self.responder.silence();
        self.responder.receive_after_error();
    }

    /// A completion queue of this queue pair overflowed.
    pub fn cq_failed(&mut self, host: &mut impl Host) {
        if !matches!(self.state, QpState::Err | QpState::Reset) {
            host.event(Event::QpFatal(self.common.qpn));
            self.fail(None, host);
        }
    }
}
