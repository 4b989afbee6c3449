//! The requester: send queue, request packets, and completions on their acknowledgements.
//!
//! One file per aspect: `transmit` builds packets, `plain` and `irn` process responses in the two wire formats, `timer`
//! runs the retransmission timers. Shared parts are here: the state, completion and failure.

mod fast;
mod irn;
mod plain;
mod throttle;
mod timer;
mod transmit;

use std::collections::VecDeque;

use super::acks::AckQueue;
use super::discipline::{Discipline, Hooks};
use super::fetch::Fetch;
use super::timer::RetransmitTimer;
use super::watched::Held;
use crate::config::{Overlap, PLAIN_CAP, WireFormat};
use crate::congestion::{ControllerMetrics, Point};
use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::host::{Frees, Host};
use crate::qp::send_queue::SendQueue;
use crate::qp::stats::{RttHistogram, Tally};
use crate::qp::work::{Wc, WcStatus};
use crate::recovery::{Receiver, Recovery, Sack, Sender};
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::wire::{Aeth, Cnp, IrnEth, NakCode, Syndrome};

use crate::footprint::{bits, flag, footprint, left, maybe, part, sequence, why, width};
use throttle::Throttle;

/// Format of the requests.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Plain,
    Irn,
    /// `transport = auto`, the peer unknown: one plain packet at a time until its acknowledgement decides.
    Negotiating,
}

#[derive(Clone, Debug)]
pub(crate) struct Requester {
    pub sq: SendQueue,
    format: Format,
    /// The request stream: sPSN with IRN, otherwise the PSN space that requests and READ responses share.
    pub(super) stream: Sender,
    fetch: Fetch,
    /// One past the last sequence number that belongs to a started WQE.
    pub(super) assigned: Psn,
    /// IRN: the response stream, rPSN.
    pub(super) responses: Receiver,
    /// IRN: rPSN of the next READ or atomic.
    next_response: Psn,
    /// READs and atomics in progress, oldest first: indices into `sq`. Never longer than `max_rd_atomic`.
    reads: VecDeque<u32>,
    max_rd_atomic: u8,
    /// IRN: ends of responses that arrived before the preceding packets, by the index in `sq` and the offset at which
    /// they are placed. Allocated on first use.
    held: Option<Box<Held<(u32, u64)>>>,
    /// IRN: acknowledgements of responses.
    read_acks: AckQueue,
    /// IRN: whether the next of them requests an answer, if the responder has one.
    probe: bool,
    /// Where [`SendQueue::find`] starts its search.
    pub(super) hint: u32,
    /// Message number of the last started WQE (IBA 9.7.7.2: SSN), and the last one permitted by credits.
    pub(super) ssn: Psn,
    /// Message number of the last completed WQE: a lower bound of the peer's MSN, whatever acknowledgements were lost.
    done_ssn: Psn,
    credit_limit: Option<Psn>,
    /// A message begun without credit stops here, after its first packet, until that is acknowledged.
    pub(super) credit_stop: Option<Psn>,
    next_recv_sn: Psn,
    next_read_sn: Psn,
    /// A WQE that failed locally. It puts the QP into the error state when everything before it is complete.
    pub(super) broken: Option<(u32, WcStatus)>,
    /// Plain: `acked` at the last implied NAK acted upon, so that one loss causes going back once.
    went_back_at: Option<Psn>,
    pub(super) timer: RetransmitTimer,
    /// Congestion control.
    throttle: Option<Box<Throttle>>,
    /// Selects and marks packets, in addition to `stream`.
    pub(super) discipline: Discipline,
    pub tally: Tally,
    pub rtt: RttHistogram,
    pub(super) rnr_until: Option<Time>,
    rnr_left: u8,
}

impl Requester {
    /// Returns the number of unacknowledged packets.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.stream.in_flight()
    }

    pub(super) fn new(
        c: &QpContext,
        sq_limit: u32,
        max_sge: usize,
        max_inline: usize,
    ) -> Result<Requester, OutOfMemory> {
        let zero = Psn::new(0);
        let queue = SendQueue::new(sq_limit, max_sge, max_inline, c.service)?;
        Ok(Requester {
            sq: match c.config.overlap {
                Overlap::Application => queue,
                Overlap::Fence => queue.with_overlap_fences()?,
            },
            format: Format::Plain,
            stream: Sender::new(Recovery::GoBackN, zero, 1, 1),
            fetch: Fetch::new(0, zero),
            assigned: zero,
            responses: Receiver::new(zero, zero, 0),
            next_response: zero,
            reads: VecDeque::new(),
            max_rd_atomic: 0,
            held: None,
            read_acks: AckQueue::default(),
            probe: false,
            hint: 0,
            ssn: zero,
            done_ssn: zero,
            credit_limit: None,
            credit_stop: None,
            next_recv_sn: zero,
            next_read_sn: zero,
            broken: None,
            went_back_at: None,
            timer: RetransmitTimer::new(&c.config),
            throttle: None,
            discipline: Discipline::of_requester(c)?,
            tally: Tally::default(),
            rtt: RttHistogram::default(),
            rnr_until: None,
            rnr_left: 0,
        })
    }

    /// Handles RTR to RTS, with the first PSN and the limit.
    pub(super) fn start(&mut self, c: &QpContext, sq_psn: Psn, max_rd_atomic: u8) {
        let config = &c.config;
        self.format = match config.wire {
            WireFormat::Roce => Format::Plain,
            WireFormat::Irn => Format::Irn,
            WireFormat::Auto => Format::Negotiating,
        };
        self.assigned = sq_psn;
        self.next_response = sq_psn;
        self.max_rd_atomic = max_rd_atomic;
        self.reads = VecDeque::with_capacity(max_rd_atomic.into());
        self.hint = self.sq.head;
        (self.ssn, self.done_ssn) = (Psn::new(0), Psn::new(0));
        (self.next_recv_sn, self.next_read_sn) = (Psn::new(0), Psn::new(0));
        (self.credit_limit, self.credit_stop) = (None, None);
        (self.broken, self.went_back_at, self.rnr_until) = (None, None, None);
        self.rnr_left = c.rnr_retry;
        self.timer = RetransmitTimer::new(config);
        self.throttle = Throttle::new(config, c.mtu);
        self.set_streams(c, sq_psn);
    }

    /// Sets a new limit on outstanding READs and atomics, while drained.
    pub(super) fn set_max_rd_atomic(&mut self, limit: u8) {
        self.max_rd_atomic = limit;
        self.reads.reserve(usize::from(limit).saturating_sub(self.reads.len()));
    }

    fn set_streams(&mut self, c: &QpContext, first: Psn) {
        let config = &c.config;
        self.discipline.start_receiving(c);
        self.discipline.start(first, c);
        let alone = self.format == Format::Irn && !self.discipline.recovers();
        let scheme = if alone { config.recovery } else { Recovery::GoBackN };
        let pipe = self.throttle.as_ref().is_some_and(|t| t.counts_pipe());
        let stream = Sender::new(scheme, first, config.cap(), config.nack_threshold)
            .with_evidence(config.evidence)
            .with_pipe(pipe);
        self.stream = self.discipline.prepare(stream, c);
        self.timer.follow(&self.stream);
        self.fetch = Fetch::new(config.retransmit_delay, first);
        self.responses = Receiver::new(first, Psn::new(0), if self.format == Format::Irn { config.window } else { 0 });
        if let Some(throttle) = &self.throttle {
            self.stream.set_window(throttle.window());
        }
    }

    /// Resets all state (RESET).
    pub(super) fn reset(&mut self) {
        self.sq.reset();
        self.reads.clear();
        self.held = None;
        self.read_acks.clear();
        self.probe = false;
        self.timer.stop();
        (self.broken, self.rnr_until, self.credit_stop) = (None, None, None);
        self.discipline.stop(self.stream.acked());
    }

    /// Returns whether there are deadlines in addition to [`Self::next_deadline`].
    #[inline]
    pub(super) fn has_rare_timers(&self) -> bool {
        self.discipline.has_timers()
    }

    pub(super) fn speaks_irn(&self) -> bool {
        self.format == Format::Irn
    }

    /// Returns the PSN of the next new packet.
    pub(super) fn next_psn(&self) -> Psn {
        self.stream.high()
    }

    pub(super) fn smoothed_rtt(&self) -> u64 {
        self.timer.srtt()
    }

    pub(super) fn controller_metrics(&self) -> Option<ControllerMetrics> {
        self.throttle.as_ref().map(|throttle| throttle.metrics())
    }

    /// Returns whether a started WQE is not complete.
    pub(super) fn busy(&self) -> bool {
        self.sq.head != self.sq.started
    }

    /// Receives a packet for the requester: an acknowledgement or a response.
    pub(super) fn receive(
        &mut self,
        now: Time,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        let irn = packet.headers.irn.is_some();
        if irn != (self.format == Format::Irn) {
            host.counters().rx_unexpected += 1;
            return Ok(());
        }
        if packet.headers.bth.low {
            return self.receive_low(c, packet.headers, host);
        }
        let (acked, losses) = (self.stream.acked(), self.stream.losses());
        let (delivered_low, spurious) = (self.stream.delivered_low(), self.stream.spurious());
        if irn {
            self.receive_irn(now, c, packet, host)?
        } else {
            self.receive_plain(now, c, packet, host)?
        }
        host.counters().irn_spurious_timeouts += u64::from(self.stream.spurious().wrapping_sub(spurious));
        if self.throttle.is_some() {
            // Packets delivered at low priority are not counted.
            let acked = acked.plus(self.stream.delivered_low().wrapping_sub(delivered_low));
            self.feed_congestion(c, packet, acked, losses, host);
        }
        if self.format == Format::Negotiating && self.stream.acked() != acked {
            self.negotiate(c, packet.headers.bth.irn_capable, host);
        }
        self.fetch.observe(now, &self.stream);
        self.complete(c, host)
    }

    /// Reports the effect of a packet to congestion control: `acked` and `losses` are the values before it.
    #[inline(never)]
    fn feed_congestion(&mut self, c: &QpContext, packet: &RxPacket<'_>, acked: Psn, losses: u32, host: &mut impl Host) {
        let Some(throttle) = &mut self.throttle else { return };
        let headers = packet.headers;
        // READ responses are sent by the responder, but throttled here, where they are requested; so marks on them
        // count here.
        let marked = packet.path.is_congested() && headers.bth.opcode.is_read_response();
        if marked {
            host.counters().np_ecn_marked_roce_packets += 1;
            throttle.on_marked_response(packet.arrived, c.config.congestion.cnp_interval());
        }
        let nack =
            headers.aeth.and_then(|a| Syndrome::from_u8(a.syndrome)) == Some(Syndrome::Nak(NakCode::PsnSequenceError));
        let sack = match headers.irn {
            Some(IrnEth::Ack { selective, run }) if nack => Some(Sack { last: selective, run }),
            _ => None,
        };
        let now_acked = self.stream.acked();
        let packets = now_acked.distance(acked).max(0) as u32;
        let outstanding = self.stream.unacknowledged();
        let at = packet.arrived;
        throttle.on_ack(at, now_acked, packets, outstanding, sack, marked || headers.bth.becn);
        if let Some(int) = packet.sideband.telemetry.filter(|int| int.is_answer()) {
            throttle.on_telemetry(at, int);
        }
        if self.stream.losses() != losses {
            throttle.on_loss(at);
        }
        self.stream.set_window(throttle.window());
        if self.stream.losses() != losses {
            self.cancel_debt(at);
        }
    }

    /// Has congestion control cancel the debt of READs, as requests, including READs, are being resent.
    fn cancel_debt(&mut self, now: Time) {
        if let Some(throttle) = &mut self.throttle
            && !self.reads.is_empty()
        {
            throttle.cancel_debt(now);
        }
    }

    /// Handles a congestion notification packet.
    pub(super) fn on_cnp(&mut self, now: Time, cnp: &Cnp, host: &mut impl Host) {
        let Some(throttle) = &mut self.throttle else {
            host.counters().rp_cnp_ignored += 1;
            return;
        };
        host.counters().rp_cnp_handled += 1;
        throttle.on_cnp(now, cnp);
        self.stream.set_window(throttle.window());
    }

    /// Handles the fair rate of a port of a switch, bit/s.
    pub(super) fn on_fair_rate(&mut self, now: Time, point: Point, rate: u64, host: &mut impl Host) {
        let Some(throttle) = &mut self.throttle else {
            host.counters().rp_cnp_ignored += 1;
            return;
        };
        host.counters().rp_cnp_handled += 1;
        throttle.on_fair_rate(now, point, rate);
    }

    /// Selects the format (`transport = auto`) by what is known of the peer, once all outstanding requests are
    /// answered.
    fn negotiate(&mut self, c: &QpContext, capable: bool, host: &mut impl Host) {
        if self.stream.outstanding() {
            return;
        }
        let first = self.stream.next();
        if !(capable || c.peer_capable) {
            self.format = Format::Plain;
            self.stream.limit(PLAIN_CAP);
            return;
        }
        self.format = Format::Irn;
        host.counters().irn_upgrades += 1;
        self.set_streams(c, first);
        self.next_response = first;
        // A READ of which only the first packet was requested continues as a READ of the rest.
        if let Some(&index) = self.reads.front() {
            let read_sn = self.next_read_sn;
            let w = self.sq.get_mut(index);
            if w.resp_arrived < w.packets {
                w.resp_packets = w.packets - w.resp_arrived;
                (w.first, w.packets, w.resp_first) = (first, 1, first);
                w.sn = read_sn;
                self.next_response = first.plus(w.resp_packets);
                self.next_read_sn = read_sn.plus(1);
                self.ssn = self.ssn.plus(1);
                self.sq.get_mut(index).ssn = self.ssn;
                self.assigned = first.plus(1);
            }
        }
    }

    /// Handles progress of the stream: everything before `cumulative` is acknowledged now.
    pub(super) fn advanced(&mut self, now: Time, cumulative: Psn, c: &QpContext) {
        if self.credit_stop.is_some_and(|stop| !cumulative.before(stop)) {
            self.credit_stop = None;
        }
        self.progressed(now, c);
    }

    /// Handles progress: `acked` moved, or a response arrived.
    fn progressed(&mut self, now: Time, c: &QpContext) {
        self.rnr_left = c.rnr_retry;
        let waiting = self.stream.outstanding() || !self.reads.is_empty();
        let sample = self.timer.progress(now, waiting, self.stream.acked(), c);
        self.measured(sample);
    }

    /// Records the stream's round-trip sample.
    #[inline]
    fn take_sample(&mut self, now: Time, c: &QpContext) {
        let sample = self.timer.measured(now, &mut self.stream, c);
        self.measured(sample);
    }

    #[inline]
    fn measured(&mut self, sample: Option<u64>) {
        if let Some(rtt) = sample {
            self.rtt.record(rtt);
        }
    }

    /// Applies the credits of an acknowledgement (IBA 9.7.7.2.2).
    pub(super) fn update_credits(&mut self, aeth: &Aeth) {
        let Some(Syndrome::Ack { credits }) = Syndrome::from_u8(aeth.syndrome) else { return };
        let limit = credits.count().map(|n| aeth.msn.plus(n));
        // A reordered acknowledgement must not take credits back.
        match (limit, self.credit_limit) {
            (Some(new), Some(old)) if new.before(old) => {}
            _ => self.credit_limit = limit,
        }
    }

    /// Returns the last message number permitted by credits, `None` for no limit.
    pub(super) fn credit_limit(&self) -> Option<Psn> {
        let limit = self.credit_limit?;
        Some(if limit.before(self.done_ssn) { self.done_ssn } else { limit })
    }

    /// Returns whether a WQE has received everything it waits for.
    #[inline]
    fn is_done(&self, index: u32) -> bool {
        let w = self.sq.get(index);
        let end = w.first.plus(w.packets);
        let acked = !self.stream.acked().before(end);
        match self.format {
            Format::Irn if w.op.is_read_or_atomic() => {
                acked && !self.responses.expected().before(w.resp_first.plus(w.resp_packets))
            }
            _ if w.op.is_read_or_atomic() => w.resp_arrived == w.packets,
            _ => acked,
        }
    }

    /// Completes WQEs in posting order.
    pub(super) fn complete(&mut self, c: &QpContext, host: &mut impl Host) -> Result<(), QpFailure> {
        while self.sq.head != self.sq.started {
            let index = self.sq.head;
            if let Some((broken, status)) = self.broken
                && broken == index
            {
                return Err(QpFailure::Send(status));
            }
            if !self.is_done(index) {
                return Ok(());
            }
            let w = *self.sq.get(index);
            if self.reads.front() == Some(&index) {
                self.reads.pop_front();
            }
            self.sq.head = index.wrapping_add(1);
            self.done_ssn = w.ssn;
            if w.signaled {
                host.complete(c.send_cq, w.success(c), Frees::Sends(self.sq.head));
            }
        }
        if !self.busy() {
            self.timer.idle(self.stream.outstanding());
        }
        Ok(())
    }

    /// Ends every WQE: the oldest with `status`, the others flushed (IBA 10.10.2.2).
    pub(super) fn flush(&mut self, c: &QpContext, status: WcStatus, host: &mut impl Host) {
        self.sq.flush(c, status, host);
        self.reads.clear();
        self.read_acks.clear();
        self.discipline.stop(self.stream.acked());
        self.timer.stop();
        self.rnr_until = None;
    }

    /// Handles a NAK of an error that did not arrive in a packet.
    pub(super) fn take_refusal(
        &mut self,
        psn: Psn,
        code: NakCode,
        c: &QpContext,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        self.stream.receive_ack(Time::ZERO, psn, None);
        self.on_nak(psn, code, c, host)
    }

    /// Handles a NAK of an error: the peer refused the request at `psn`. Everything before it is thereby acknowledged.
    fn on_nak(&mut self, psn: Psn, code: NakCode, c: &QpContext, host: &mut impl Host) -> Result<(), QpFailure> {
        let Some(index) = self.sq.find(psn, &mut self.hint) else {
            // IRN: the responder cannot resend a response that was received already. Its acknowledgement was lost.
            if self.format == Format::Irn {
                self.read_acks.push_cumulative();
            }
            return Ok(());
        };
        host.counters().req_remote_errors += 1;
        let status = match code {
            NakCode::RemoteAccessError => WcStatus::RemAccessErr,
            NakCode::RemoteOperationalError => WcStatus::RemOpErr,
            _ => WcStatus::RemInvReqErr,
        };
        self.complete(c, host)?;
        if self.sq.head == index {
            return Err(QpFailure::Send(status));
        }
        // Earlier incomplete READs will never be answered: they are flushed in order.
        while self.sq.head != index {
            let w = *self.sq.get(self.sq.head);
            self.sq.head = self.sq.head.wrapping_add(1);
            let wc = Wc { status: WcStatus::WrFlushErr, ..w.success(c) };
            host.complete(c.send_cq, wc, Frees::Sends(self.sq.head));
        }
        Err(QpFailure::Send(status))
    }

    /// Handles an RNR NAK: goes back after a delay (IBA 9.7.5.2.8).
    fn on_rnr(&mut self, now: Time, c: &QpContext, psn: Psn, wait: u64, host: &mut impl Host) -> Result<(), QpFailure> {
        let outstanding = psn.distance(self.stream.acked()) >= 0 && psn.before(self.stream.high());
        if !outstanding || self.rnr_until.is_some() {
            return Ok(());
        }
        host.counters().rnr_nak_retry_err += 1;
        self.tally.rnr_naks += 1;
        if self.rnr_left == 0 {
            host.counters().rnr_retry_exceeded_err += 1;
            // In its turn: responses of READs before it may still be in flight.
            let Some(index) = self.sq.find(psn, &mut self.hint) else { return Ok(()) };
            return self.fail_wqe(index, WcStatus::RnrRetryExcErr, c, host);
        }
        if self.rnr_left != 7 {
            self.rnr_left -= 1;
        }
        self.discipline.go_back(&mut self.stream);
        self.timer.stop();
        self.rnr_until = Some(now + wait);
        Ok(())
    }

    /// Fails a started WQE with a local error, in its turn.
    pub(super) fn fail_wqe(
        &mut self,
        index: u32,
        status: WcStatus,
        c: &QpContext,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        if self.broken.is_none_or(|(b, _)| index.wrapping_sub(self.sq.head) < b.wrapping_sub(self.sq.head)) {
            self.broken = Some((index, status));
            host.counters().local_protection_errors += u64::from(status == WcStatus::LocProtErr);
        }
        self.complete(c, host)
    }
}

footprint!(Requester, |at| {
    sq => part(sq),
    format => bits(2).when(at.irn && at.plain, why::SHARED),
    stream => part(stream),
    fetch => part(fetch),
    assigned => sequence(),
    responses => part(responses).when(at.irn, why::IRN),
    next_response => sequence().when(at.irn, why::IRN),
    reads => bits(at.reads * width::INDEX).heap(at.reads as usize * size_of::<u32>()),
    max_rd_atomic => left("an attribute, listed there"),
    held => left("beyond IRN: what an application may watch"),
    read_acks => part(read_acks).when(at.irn, why::IRN),
    probe => flag().when(at.irn, why::IRN),
    hint => left(why::SPEED),
    ssn => sequence(),
    done_ssn => sequence(),
    credit_limit => maybe(width::PSN),
    credit_stop => maybe(width::PSN),
    next_recv_sn => left(DRIVER).when(at.irn, why::IRN),
    next_read_sn => left(DRIVER).when(at.irn, why::IRN),
    broken => maybe(width::INDEX + 4),
    went_back_at => maybe(width::PSN).when(at.plain, why::PLAIN),
    timer => part(timer),
    throttle => throttle.as_ref().map_or(left(why::OFF), |throttle| {
        part(&**throttle).heap(size_of::<Throttle>())
    }),
    discipline => part(discipline),
    tally => left(why::STATISTICS),
    rtt => left(why::STATISTICS).heap(RttHistogram::HEAP),
    rnr_until => maybe(width::TIME),
    rnr_left => bits(3),
});

/// Reason for counters that number work requests.
const DRIVER: &str = "in host memory: the driver numbers work requests when they are posted (IRN §4.5.1)";
