//! The state machine of a queue pair, around its service's packet handling.

mod fast;
mod queues;

use crate::footprint::{Footprint, bits, flag, footprint, left, part, why};
use std::sync::Arc;

use super::access::Access;
use super::any_service::AnyService;
use super::attr::{ModifyError, QpAttr, QpState};
use super::config::QpConfig;
use super::context::{ClassPaths, QpContext, QpFailure};
use super::counters::{Counters, QpCounts};
use super::host::{CqId, Event, Host, PdId, PeerProcess, PullTurn, SrqId, TxSlot, XrcdId};
use super::service::TransportService;
use super::slack_state::SlackState;
use super::stats::{QpStats, RttHistogram};
use super::work::WcStatus;
use crate::config::TransportConfig;
use crate::congestion::{ControllerMetrics, Point};
use crate::edge::Verdict;
use crate::packet::{Mark, PacketClass, Path, RxPacket};
use crate::psn::Psn;
use crate::rc::Rc;
use crate::room::OutOfMemory;
use crate::slack::Slack;
use crate::time::Time;
use crate::uc::Uc;
use crate::ud::Ud;
use crate::wire::opcode::Service;
use crate::wire::{Mtu, Opcode};

/// A queue pair.
#[derive(Clone, Debug)]
pub struct Qp {
    state: QpState,
    context: QpContext,
    service: AnyService,
    sq_sig_all: bool,
    /// SQD: whether an event is due when the send queue is drained.
    sqd_event: bool,
    /// Whether a connection has received no packet since RTR.
    no_rx_yet: bool,
    sent_pkts: u64,
    rcvd_pkts: u64,
    rx_trimmed: u64,
    sent_bytes: u64,
    retransmitted_bytes: u64,
    rcvd_bytes: u64,
    /// State of slack and edge, if used.
    beside: Option<Box<SlackState>>,
}

impl Qp {
    /// Creates a queue pair in RESET with a number of 24 bits. `mtu` is the port's: that of a datagram, and the initial
    /// one of a connection.
    ///
    /// `transport` is `config.transport`, shared with other queue pairs that have the same.
    pub fn new(qpn: u32, mtu: Mtu, config: &QpConfig, transport: Arc<TransportConfig>) -> Result<Qp, OutOfMemory> {
        debug_assert_eq!(*transport, config.transport);
        let context = QpContext {
            service: config.service,
            qpn,
            pd: config.pd,
            send_cq: config.send_cq,
            recv_cq: config.recv_cq,
            xrcd: config.xrcd,
            knows_irn: transport.knows_irn(),
            evidence: transport.evidence,
            credits: transport.credits,
            slack: transport.slack != Slack::None,
            config: transport,
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
        let service = match config.service {
            Service::Rc | Service::XrcInitiator | Service::XrcTarget => AnyService::Rc(Rc::new(&context, config)?),
            Service::Uc => AnyService::Uc(Uc::new(config)?),
            Service::Ud => AnyService::Ud(Ud::new(config)?),
        };
        let beside = SlackState::new(&context.config);
        Ok(Qp {
            state: QpState::Reset,
            context,
            service,
            sq_sig_all: config.sq_sig_all,
            sqd_event: false,
            no_rx_yet: false,
            sent_pkts: 0,
            rcvd_pkts: 0,
            rx_trimmed: 0,
            sent_bytes: 0,
            retransmitted_bytes: 0,
            rcvd_bytes: 0,
            beside,
        })
    }

    /// Returns the transport service.
    #[inline]
    pub fn service(&self) -> Service {
        self.context.service
    }

    /// Returns the number of the queue pair, 24 bits.
    pub fn qpn(&self) -> u32 {
        self.context.qpn
    }

    /// Returns the state.
    #[inline]
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> PdId {
        self.context.pd
    }

    /// Returns the completion queues of the send and of the receive queue.
    pub fn cqs(&self) -> (CqId, CqId) {
        (self.context.send_cq, self.context.recv_cq)
    }

    /// Returns the domain of an XRC target.
    pub fn xrcd(&self) -> Option<XrcdId> {
        self.context.xrcd
    }

    /// Returns the shared receive queue, if it takes from one.
    pub fn srq(&self) -> Option<SrqId> {
        self.service.recv_queue().srq()
    }

    /// Returns the addresses of both ends, once known. A datagram queue pair has none: see [`Self::tx_path`].
    #[inline]
    pub fn path(&self) -> Option<&Path> {
        self.context.path()
    }

    /// Returns the path of the packet last built by [`Self::poll_transmit`], whose class is [`TxSlot::class`].
    #[inline]
    pub fn tx_path(&self, class: PacketClass) -> Option<&Path> {
        self.service.tx_path(&self.context, class)
    }

    /// Returns whether a packet received on `path` may be for it: connections have one peer and one address of their
    /// own.
    #[inline]
    pub fn knows(&self, path: &Path) -> bool {
        let connected = |own: &Path| own.dst == path.src && own.src == path.dst;
        self.context.path().is_some_and(connected) || self.context.service == Service::Ud
    }

    /// Returns the priorities that its packets may have, one bit each: the upper three bits of the traffic class (RFC
    /// 2474), or any, for datagrams.
    #[inline]
    pub fn priorities(&self) -> u8 {
        match (self.context.service, &self.context.paths) {
            (Service::Ud, _) => u8::MAX,
            (_, Some(paths)) => paths.priorities(),
            (_, None) => 0,
        }
    }

    /// Returns whether it uses switches' notices of fair rates.
    #[inline]
    pub fn heeds_notices(&self) -> bool {
        self.context.config.congestion.uses_fair_rate()
    }

    /// Returns the payload bytes of a full packet.
    pub fn path_mtu(&self) -> Mtu {
        self.context.path_mtu
    }

    /// Returns the peer's queue pair number.
    pub fn dest_qp(&self) -> u32 {
        self.context.dest_qp
    }

    /// Returns its transport; only reliable services recover losses.
    pub fn config(&self) -> &TransportConfig {
        &self.context.config
    }

    /// Returns the smoothed round trip of its requests in ns, 0 before the first sample and for services without
    /// acknowledgements.
    pub fn smoothed_rtt(&self) -> u64 {
        self.service.smoothed_rtt()
    }

    /// Returns the state of its congestion controller, if it has one.
    pub fn controller_metrics(&self) -> Option<ControllerMetrics> {
        self.service.controller_metrics()
    }

    /// Returns whether its requests now have the IRN format (with `transport = auto`, once the peer is known).
    pub fn speaks_irn(&self) -> bool {
        self.service.speaks_irn()
    }

    /// Returns the number of work requests in the send queue.
    pub fn send_queue_len(&self) -> u32 {
        self.service.send_queue().len()
    }

    /// Returns the number of unacknowledged request packets; 0 for services without acknowledgements.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.service.in_flight()
    }

    /// Returns its statistics since it was created.
    pub fn stats(&self) -> QpStats {
        QpStats { counts: self.counts(), rtt: self.rtt().cloned().unwrap_or_default() }
    }

    /// Returns its counters since it was created.
    pub fn counts(&self) -> QpCounts {
        let mut counts = QpCounts {
            sent_pkts: self.sent_pkts,
            rcvd_pkts: self.rcvd_pkts,
            rx_trimmed: self.rx_trimmed,
            sent_bytes: self.sent_bytes,
            retransmitted_bytes: self.retransmitted_bytes,
            rcvd_bytes: self.rcvd_bytes,
            ..QpCounts::default()
        };
        self.service.add_counts(&mut counts);
        counts
    }

    /// Returns the state that a hardware NIC would keep, if it is a connected reliable connection.
    pub fn footprint(&self) -> Option<Footprint> {
        let c = &self.context;
        let connected = c.service == Service::Rc && c.paths.is_some();
        let at = c.config.setup(c.mtu, c.max_rd_atomic, c.max_dest_rd_atomic);
        connected.then(|| crate::footprint::of(self, size_of::<Qp>(), &*c.config, &at))
    }

    /// Returns the measured round trips, if its service has acknowledgements.
    pub fn rtt(&self) -> Option<&RttHistogram> {
        self.service.rtt()
    }

    /// Returns the current attributes; PSNs are those of the next packet. `None` for attributes that the service does
    /// not have, or that were not set.
    pub fn attributes(&self) -> QpAttr {
        let c = &self.context;
        let (rq_psn, sq_psn) = self.service.next_psns();
        let connected = c.service != Service::Ud;
        let requests = matches!(c.service, Service::Rc | Service::XrcInitiator);
        let responds = matches!(c.service, Service::Rc | Service::XrcTarget);
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
            max_dest_rd_atomic: responds.then_some(c.max_dest_rd_atomic),
            max_rd_atomic: requests.then_some(c.max_rd_atomic),
            min_rnr_timer: responds.then_some(c.min_rnr_timer),
            timeout: (requests || responds).then_some(c.timeout),
            retry_cnt: requests.then_some(c.retry_cnt),
            rnr_retry: requests.then_some(c.rnr_retry),
            sqd_event: self.sqd_event,
        }
    }

    /// Changes attributes and state. On an error nothing is changed.
    pub fn modify(&mut self, attr: &QpAttr, host: &mut impl Host) -> Result<(), ModifyError> {
        let from = self.state;
        let to = attr.check(self.context.service, from)?;
        let c = &mut self.context;
        if let Some(access) = attr.access {
            c.access = access;
        }
        if let Some(mut path) = attr.path {
            if c.config.congestion.uses_ecn() && path.traffic_class & 3 == 0 {
                // RFC 3168: ECT(0).
                path.traffic_class |= 2;
            }
            if c.discipline().has_marks() {
                // Those bits are for switches to set.
                path = path.with_mark(Mark::Whole);
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
            (QpState::Rtr, QpState::Rts) => {
                self.service.start_sending(&self.context, attr.sq_psn.unwrap_or_default());
            }
            (_, QpState::Reset) => {
                self.beside.iter_mut().for_each(|beside| beside.reset());
                self.service.reset();
            }
            (_, QpState::Err) if from != QpState::Err => self.fail(None, host),
            (_, QpState::Sqd) => {
                if from == QpState::Rts {
                    self.sqd_event = attr.sqd_event;
                }
                self.service.set_rd_atomic(attr.max_rd_atomic, attr.max_dest_rd_atomic);
                self.check_drained(host);
            }
            _ => {}
        }
        Ok(())
    }

    fn start_receiving(&mut self, psn: Psn) {
        self.no_rx_yet = self.context.service != Service::Ud;
        self.context.peer_capable = false;
        self.service.start_receiving(&self.context, psn);
    }

    /// Has the next packet repeat the last acknowledgement. For a QP about to be destroyed: its peer may have missed
    /// it, and its retries would get no answer.
    pub fn repeat_ack(&mut self) {
        if matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe) {
            self.service.repeat_ack();
        }
    }

    /// Receives a packet for this queue pair.
    #[inline]
    pub fn receive(&mut self, now: Time, packet: &RxPacket<'_>, host: &mut impl Host) {
        if packet.sideband.trimmed {
            return self.receive_trimmed(now, packet, host);
        }
        if self.beside.is_some() {
            return self.receive_at_edge(now, packet, host);
        }
        self.receive_whole(now, packet, host);
    }

    /// Receives a packet, applying edge queue management.
    #[inline(never)]
    fn receive_at_edge(&mut self, now: Time, packet: &RxPacket<'_>, host: &mut impl Host) {
        let verdict = self.beside.as_mut().map_or(Verdict::Take, |beside| beside.judge(now, packet, &self.context));
        match verdict {
            Verdict::Take => self.receive_whole(now, packet, host),
            Verdict::Drop => host.counters().rx_dropped += 1,
            Verdict::Mark => {
                let path = packet.path.marked();
                let RxPacket { headers, payload, arrived, sideband, .. } = *packet;
                self.receive_whole(now, &RxPacket { headers, path: &path, payload, arrived, sideband }, host);
            }
        }
    }

    #[inline(always)]
    fn receive_whole(&mut self, now: Time, packet: &RxPacket<'_>, host: &mut impl Host) {
        let bth = &packet.headers.bth;
        if bth.opcode.service() != Some(self.context.service) {
            return self.receive_other(packet, host);
        }
        if !self.service.admits(self.state, bth) {
            host.counters().rx_dropped += 1;
            return;
        }
        let counters = host.counters();
        counters.rcvd_pkts += 1;
        let before = counters.rcvd_bytes;
        self.rcvd_pkts += 1;
        if self.no_rx_yet {
            self.no_rx_yet = false;
            if self.state == QpState::Rtr {
                host.event(Event::CommunicationEstablished(self.context.qpn));
            }
        }
        if let Err(failure) = self.service.receive(now, &mut self.context, packet, host) {
            self.fail(Some(failure), host);
        }
        self.rcvd_bytes += host.counters().rcvd_bytes - before;
        if self.state == QpState::Sqd {
            self.check_drained(host);
        }
    }

    /// Receives a packet that belongs to no service, such as a congestion notification, or to another one.
    #[cold]
    fn receive_other(&mut self, packet: &RxPacket<'_>, host: &mut impl Host) {
        let cnp = packet.headers.cnp.unwrap_or_default();
        if packet.headers.bth.opcode == Opcode::Cnp && self.service.on_cnp(self.state, packet.arrived, &cnp, host) {
            host.counters().rcvd_pkts += 1;
            self.rcvd_pkts += 1;
        } else {
            host.counters().rx_dropped += 1;
        }
    }

    /// Handles a switch's notice of the fair rate, bit/s, of a port that this queue pair's packets pass. Returns
    /// whether it sends.
    pub fn on_fair_rate(&mut self, now: Time, point: Point, rate: u64, host: &mut impl Host) -> bool {
        let taken = self.service.on_fair_rate(self.state, now, point, rate, host);
        self.rcvd_pkts += u64::from(taken);
        taken
    }

    /// Receives a packet whose payload was cut off by a switch. It is treated as lost, except by a pulled stream.
    #[cold]
    fn receive_trimmed(&mut self, now: Time, packet: &RxPacket<'_>, host: &mut impl Host) {
        self.rx_trimmed += 1;
        let bth = &packet.headers.bth;
        if packet.headers.ndp.is_some()
            && bth.opcode.service() == Some(self.context.service)
            && self.service.admits(self.state, bth)
        {
            self.service.receive_trimmed(now, &self.context, packet, host);
        }
    }

    /// Receives a packet of this queue pair that was returned without its payload for lack of room (NDP §3.2.4).
    #[cold]
    pub fn receive_returned(&mut self, now: Time, packet: &RxPacket<'_>, host: &mut impl Host) {
        let sends = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        if !(sends && packet.headers.bth.dest_qp == self.context.dest_qp && self.service.receive_returned(now, packet))
        {
            host.counters().rx_dropped += 1;
        }
    }

    /// Sends one of the pulls requested through [`Host::owes_pulls`]. `None` if none is owed any more.
    pub fn grant_pull(&mut self) -> Option<PullTurn> {
        self.service.grant_pull()
    }

    /// Returns the class of its pulls, 0 to 7, if it sends any: lower classes go first.
    #[inline]
    pub fn pull_class(&self) -> Option<u8> {
        self.context.discipline().pull().map(|pull| pull.class)
    }

    /// Returns whether [`Self::poll_feedback`] has a packet.
    #[inline]
    pub fn wants_feedback(&self) -> bool {
        self.service.wants_feedback()
    }

    /// Builds the next packet that goes ahead of the data of all queue pairs; returns false if there is none.
    pub fn poll_feedback(&mut self, host: &mut impl Host, out: &mut TxSlot) -> bool {
        out.reset();
        let made = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
            && self.service.poll_feedback(&self.context, host, out);
        host.counters().sent_pkts += u64::from(made);
        self.sent_pkts += u64::from(made);
        made
    }

    /// Returns whether it may have packets that go after those of all other queue pairs (RC3).
    #[inline]
    pub fn has_low(&self) -> bool {
        self.context.discipline().low_levels() > 0
    }

    /// Returns the priority of the next packet of [`Self::poll_low`], 0 to 7, if there may be one.
    pub fn low_priority(&self) -> Option<u8> {
        self.service.low_priority(self.state, &self.context)
    }

    /// Builds the next packet that goes after all others, as [`Self::poll_transmit`] does. Returns its priority, with
    /// which it takes the path of data; `None` if there is none.
    pub fn poll_low(&mut self, host: &mut impl Host, out: &mut TxSlot) -> Option<u8> {
        out.reset();
        let before = host.counters().sent_bytes;
        match self.service.poll_low(self.state, &self.context, host, out) {
            Ok(priority) => {
                let counters = host.counters();
                let made = u64::from(priority.is_some());
                counters.sent_pkts += made;
                self.sent_pkts += made;
                self.sent_bytes += counters.sent_bytes - before;
                priority
            }
            Err(failure) => {
                self.fail(Some(failure), host);
                None
            }
        }
    }

    fn check_drained(&mut self, host: &mut impl Host) {
        if self.sqd_event && !self.service.busy() {
            self.sqd_event = false;
            host.event(Event::SqDrained(self.context.qpn));
        }
    }

    /// Returns whether [`Self::poll_transmit`] may have a packet.
    #[inline]
    pub fn wants_tx(&self) -> bool {
        self.service.wants_tx(self.state)
    }

    /// Builds the next packet to send in `out`; returns false if there is none. Its path is [`Self::tx_path`]. `out`
    /// lists memory that may be read until this queue pair or the device's memory regions change.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, host: &mut impl Host, out: &mut TxSlot) -> bool {
        out.reset();
        let Counters { sent_bytes, retransmitted_pkts, .. } = *host.counters();
        match self.service.poll_transmit(now, self.state, &self.context, host, out) {
            Ok(made) => {
                let counters = host.counters();
                counters.sent_pkts += u64::from(made);
                self.sent_pkts += u64::from(made);
                let bytes = counters.sent_bytes - sent_bytes;
                self.sent_bytes += bytes;
                if bytes > 0
                    && let Some(assignment) = self.beside.as_mut().and_then(|beside| beside.assignment.as_mut())
                {
                    out.slack = assignment.of(now, std::mem::take(&mut out.piece), self.context.mtu);
                }
                if counters.retransmitted_pkts != retransmitted_pkts {
                    self.retransmitted_bytes += bytes;
                }
                if self.state == QpState::Sqd {
                    self.check_drained(host);
                }
                made
            }
            Err(failure) => {
                self.fail(Some(failure), host);
                false
            }
        }
    }

    /// Returns whether any work request of its send queue has begun and not completed.
    pub fn is_sending(&self) -> bool {
        self.service.busy()
    }

    /// Returns when [`Self::on_deadline`] is due.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        self.service.next_deadline(self.state)
    }

    /// Runs timers that are due. `process` returns what is known of the process that has a queue pair number at an
    /// address; it is called when the retries of a request are used up.
    pub fn on_deadline(
        &mut self,
        now: Time,
        host: &mut impl Host,
        process: &mut impl FnMut(&Path, u32) -> PeerProcess,
    ) {
        if self.next_deadline() > now {
            return;
        }
        let c = &self.context;
        let ask = || c.path().map_or(PeerProcess::Unknown, |path| process(path, c.dest_qp));
        if let Err(failure) = self.service.on_deadline(now, self.state, c, host, ask) {
            self.fail(Some(failure), host);
        }
    }

    /// Moves to an error state: the failed work request completes with its status, the others of its queue are flushed.
    /// `None`: on request of the application.
    #[cold]
    fn fail(&mut self, failure: Option<QpFailure>, host: &mut impl Host) {
        let c = &self.context;
        let mut refused = None;
        if let Some(QpFailure::Request | QpFailure::Access | QpFailure::Recv(_)) = failure
            && c.is_own_peer()
        {
            refused = self.service.refuse_own(c, host);
        }
        if let (Some(QpFailure::Send(status)), Service::Uc | Service::Ud) = (failure, c.service) {
            // Receiving continues (IBA 10.3.1: SQE).
            self.state = QpState::Sqe;
            return self.service.flush_send(c, status, host);
        }
        self.state = QpState::Err;
        let (send, recv) = match failure {
            Some(QpFailure::Send(status)) => (status, WcStatus::WrFlushErr),
            Some(QpFailure::Recv(status)) => (WcStatus::WrFlushErr, status),
            _ => (WcStatus::WrFlushErr, WcStatus::WrFlushErr),
        };
        let send = refused.unwrap_or(send);
        match failure {
            Some(QpFailure::Request) => host.event(Event::QpRequestError(c.qpn)),
            Some(QpFailure::Access) => host.event(Event::QpAccessError(c.qpn)),
            _ => {}
        }
        self.service.flush_send(c, send, host);
        self.service.recv_queue_mut().flush(c, recv, host);
        self.service.silence();
    }

    /// Handles the overflow of a completion queue of this queue pair.
    pub fn cq_failed(&mut self, host: &mut impl Host) {
        if !matches!(self.state, QpState::Err | QpState::Reset) {
            host.event(Event::QpFatal(self.context.qpn));
            self.fail(None, host);
        }
    }
}

footprint!(Qp, |at| {
    state => bits(3),
    context => part(context),
    service => part(service),
    sq_sig_all => flag(),
    sqd_event => flag(),
    no_rx_yet => flag(),
    sent_pkts => left(why::STATISTICS),
    rcvd_pkts => left(why::STATISTICS),
    rx_trimmed => left(why::STATISTICS),
    sent_bytes => left(why::STATISTICS),
    retransmitted_bytes => left(why::STATISTICS),
    rcvd_bytes => left(why::STATISTICS),
    beside => beside.as_ref().map_or(left(why::OFF), |beside| bits(beside.bits().into())),
});
