//! Reliable connection: requests, acknowledgements, loss recovery.
//!
//! The requester owns the send queue, the responder the receive queue; the loss recovery of each is in
//! [`crate::recovery`].

mod acks;
mod discipline;
mod fetch;
mod pull;
mod rc3;
mod requester;
mod responder;
mod timer;
mod watched;

pub use acks::MAX_NACKS_WAITING;

use crate::congestion::{ControllerMetrics, Point};
use crate::footprint::{flag, footprint, part};
use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::recv_queue::{RecvQueue, Source};
use crate::qp::send_queue::SendQueue;
use crate::qp::service::TransportService;
use crate::qp::{
    Fast, Host, PeerProcess, PostError, PullTurn, QpConfig, QpCounts, QpState, RttHistogram, SendWr, Service, Taken,
    TxSlot, WcStatus,
};
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::wire::{Bth, Cnp, FastAck, FastFrame, FastOp};
use requester::Requester;
use responder::Responder;

/// Both halves of a reliable connection, which take turns.
#[derive(Clone, Debug)]
pub(crate) struct Rc {
    requester: Requester,
    responder: Responder,
    /// Whether the responder sent last: the halves take turns.
    responder_sent: bool,
}

impl Rc {
    pub(crate) fn new(c: &QpContext, config: &QpConfig) -> Result<Rc, OutOfMemory> {
        let source = if config.service == Service::XrcTarget { Source::Named } else { config.srq.into() };
        let (send_sge, recv_sge) = (config.max_send_sge as usize, config.max_recv_sge as usize);
        Ok(Rc {
            requester: Requester::new(c, config.max_send_wr, send_sge, config.max_inline as usize)?,
            responder: Responder::new(c, config.max_recv_wr, recv_sge, source)?,
            responder_sent: false,
        })
    }

    /// Builds the next packet of either half. `sending`: work requests may start. Inlined, because its single caller is
    /// hot.
    #[inline(always)]
    fn poll_both(
        &mut self,
        now: Time,
        sending: bool,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, QpFailure> {
        out.gather.clear();
        if self.requester.poll_acks(c, host, out) {
            return Ok(true);
        }
        // Turns, so that neither direction starves the other. After idle time a request goes before the
        // acknowledgement: segmentation offload accepts a shorter packet last in a train of datagrams.
        if !self.responder_sent && self.responder.poll_transmit(now, c, host, out)? {
            self.responder_sent = true;
            return Ok(true);
        }
        let requested = self.requester.poll_transmit(now, sending, c, host, out)?;
        let responded = !requested && self.responder_sent && self.responder.poll_transmit(now, c, host, out)?;
        self.responder_sent = !requested;
        Ok(requested || responded)
    }

    /// Receives a packet as [`TransportService::receive`] would, unless that would do anything out of the ordinary.
    #[inline]
    pub(crate) fn receive_fast(
        &mut self,
        now: Time,
        c: &mut QpContext,
        frame: &FastFrame<'_>,
        host: &mut impl Host,
    ) -> Taken {
        let mut taken = Taken::Nothing;
        if let Some(ack) = frame.ack.as_ref().filter(|ack| ack.first) {
            if !self.receive_fast_ack(now, c, ack, host) {
                return Taken::Nothing;
            }
            taken = Taken::First;
        }
        let received = match &frame.op {
            FastOp::Response(_) | FastOp::AtomicAck(_) => self.requester.receive_fast_response(now, c, frame, host),
            FastOp::Ack(ack) => self.receive_fast_ack(now, c, ack, host),
            _ => {
                let received = self.responder.receive_fast(c, frame, host);
                c.peer_capable |= received && frame.irn_capable && c.knows_irn;
                received
            }
        };
        match frame.ack.as_ref().filter(|ack| !ack.first) {
            _ if !received => taken,
            Some(ack) if !self.receive_fast_ack(now, c, ack, host) => Taken::First,
            _ => Taken::All,
        }
    }

    /// Receives an acknowledgement.
    #[inline]
    fn receive_fast_ack(&mut self, now: Time, c: &QpContext, ack: &FastAck, host: &mut impl Host) -> bool {
        match ack.of_responses {
            false => self.requester.receive_fast_ack(now, c, ack, host),
            true => self.responder.receive_fast_ack(now, c, ack, host),
        }
    }

    /// Builds the next packet of either half in the state RTS as [`TransportService::poll_transmit`] would, if it is of
    /// the ordinary kind. A request or response takes along, if `carries` returns true, the acknowledgement that would
    /// precede or follow it.
    #[inline]
    pub(crate) fn poll_fast(
        &mut self,
        now: Time,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
        carries: impl Fn() -> bool,
    ) -> Fast {
        let has_read_ack = self.requester.owes_acks();
        if !self.requester.may_be_fast() || has_read_ack && !self.requester.has_read_ack() {
            return Fast::FullPath;
        }
        out.reset();
        out.gather.clear();
        let responds = self.responder.wants_tx();
        let requests_next = !responds || self.responder_sent;
        // It goes first.
        if has_read_ack && !(requests_next && self.requester.may_carry(c) && carries()) {
            return self.requester.poll_fast_read_ack(c, host, out);
        }
        if requests_next {
            match self.requester.poll_fast(now, c, host, out) {
                Fast::Nothing if responds => {}
                Fast::FullPath if has_read_ack => return self.requester.poll_fast_read_ack(c, host, out),
                Fast::FullPath => return Fast::FullPath,
                made => {
                    self.responder_sent = made == Fast::Nothing;
                    out.rest &= !has_read_ack && !responds;
                    let small = matches!(made, Fast::Built(len) if out.fast.may_carry(len));
                    let ack = if has_read_ack {
                        self.requester.take_read_ack(host)
                    } else if responds && small && self.responder.has_ack() && carries() {
                        self.responder_sent = true;
                        let ack = self.responder.take_ack(c, host);
                        out.is_last = !self.requester.has_fresh() && !self.responder.wants_tx();
                        ack
                    } else {
                        return made;
                    };
                    out.fast.carry(&ack);
                    return made;
                }
            }
        }
        let made = if !self.responder.has_response() {
            self.responder.poll_fast_ack(c, host, out)
        } else {
            let alone = !self.requester.is_idle() || !carries();
            self.responder.poll_fast_answer(now, alone, c, host, out)
        };
        self.responder_sent |= made != Fast::FullPath;
        made
    }

    /// Builds the next packet of the message that [is not over](TxSlot::rest).
    #[inline]
    pub(crate) fn poll_fast_rest(&mut self, now: Time, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> Fast {
        out.gather.clear();
        self.requester.poll_fast_part(now, true, c, host, out)
    }

    #[cold]
    fn rare_deadline(&self, deadline: Time, state: QpState) -> Time {
        let requests = if state == QpState::Rtr { Time::NEVER } else { self.requester.rare_deadline() };
        deadline.min(self.responder.rare_deadline()).min(requests)
    }
}

impl TransportService for Rc {
    fn send_queue(&self) -> &SendQueue {
        &self.requester.sq
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.requester.in_flight()
    }

    #[inline]
    fn send_queue_mut(&mut self) -> &mut SendQueue {
        &mut self.requester.sq
    }

    fn recv_queue(&self) -> &RecvQueue {
        &self.responder.rq
    }

    #[inline]
    fn recv_queue_mut(&mut self) -> &mut RecvQueue {
        &mut self.responder.rq
    }

    fn next_psns(&self) -> (Option<Psn>, Psn) {
        (Some(self.responder.expected()), self.requester.next_psn())
    }

    fn start_receiving(&mut self, c: &QpContext, psn: Psn) {
        self.responder.start(c, psn, c.max_dest_rd_atomic);
    }

    fn start_sending(&mut self, c: &QpContext, psn: Psn) {
        self.requester.start(c, psn, c.max_rd_atomic);
    }

    fn repeat_ack(&mut self) {
        self.responder.repeat_ack();
    }

    fn reset(&mut self) {
        self.requester.reset();
        self.responder.reset();
    }

    fn set_rd_atomic(&mut self, requester: Option<u8>, responder: Option<u8>) {
        if let Some(limit) = requester {
            self.requester.set_max_rd_atomic(limit);
        }
        if let Some(depth) = responder {
            self.responder.set_depth(depth);
        }
    }

    #[inline]
    fn check(&self, wr: &SendWr<'_>, c: &QpContext) -> Result<(), PostError> {
        let takes = match c.service {
            Service::XrcTarget => false,
            Service::XrcInitiator => !wr.op.is_newer(),
            _ => true,
        };
        if takes { Ok(()) } else { Err(PostError::Service(c.service)) }
    }

    #[inline]
    fn recv_posted(&mut self) -> bool {
        self.responder.posted()
    }

    #[inline]
    fn admits(&mut self, state: QpState, bth: &Bth) -> bool {
        let response = bth.opcode.is_response();
        match state {
            QpState::Rts | QpState::Sqd | QpState::Sqe => true,
            QpState::Rtr => !response,
            QpState::Err if !response => {
                // Read acknowledgements are answered only on request: otherwise two ends would answer each other for
                // ever.
                if bth.ack_req || bth.opcode.is_request() {
                    self.responder.receive_after_error();
                }
                false
            }
            _ => false,
        }
    }

    #[inline]
    fn receive(
        &mut self,
        now: Time,
        c: &mut QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        let bth = &packet.headers.bth;
        let expected = self.responder.expected();
        let received = if bth.opcode.is_response() {
            self.requester.receive(now, c, packet, host)
        } else {
            self.responder.receive(now, c, packet, host)
        };
        // A packet may be forged; one that is in order is taken to be from the peer.
        let accepted = self.responder.expected() != expected;
        c.peer_capable |= accepted && bth.irn_capable && c.knows_irn;
        received
    }

    fn receive_trimmed(&mut self, now: Time, c: &QpContext, packet: &RxPacket<'_>, host: &mut impl Host) {
        if packet.headers.bth.opcode.is_response() {
            self.requester.receive_trimmed(now, packet, host)
        } else {
            self.responder.receive_trimmed(now, c, packet, host)
        }
    }

    fn receive_returned(&mut self, now: Time, packet: &RxPacket<'_>) -> bool {
        // The packet that was sent: the responder's if it is a response.
        let bth = &packet.headers.bth;
        let response = bth.opcode.is_response();
        let half = if response { &mut self.responder.discipline } else { &mut self.requester.discipline };
        half.pulled_mut().map(|ends| ends.returned(now, bth.psn)).is_some()
    }

    fn grant_pull(&mut self) -> Option<PullTurn> {
        let mut halves = [self.responder.discipline.pulled_mut(), self.requester.discipline.pulled_mut()];
        let turn = halves.iter_mut().flatten().find_map(|ends| ends.grant_pull())?;
        Some(PullTurn { more: halves.iter().flatten().any(|ends| ends.owes_pulls()), ..turn })
    }

    fn wants_feedback(&self) -> bool {
        let halves = [&self.responder.discipline, &self.requester.discipline];
        halves.iter().filter_map(|discipline| discipline.pulled()).any(|ends| ends.wants_feedback())
    }

    fn poll_feedback(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> bool {
        self.responder.poll_feedback(c, host, out) || self.requester.poll_feedback(c, host, out)
    }

    fn low_priority(&self, state: QpState, c: &QpContext) -> Option<u8> {
        let sends = matches!(state, QpState::Rts | QpState::Sqd);
        let answer = if sends || state == QpState::Rtr { self.responder.low_priority() } else { None };
        let level = if sends { self.requester.wants_low(state == QpState::Rts) } else { None };
        let request = level.and_then(|level| c.low_priority(level));
        answer.max(request)
    }

    fn poll_low(
        &mut self,
        state: QpState,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<Option<u8>, QpFailure> {
        out.gather.clear();
        let Some(priority) = self.low_priority(state, c) else { return Ok(None) };
        // The shorter packet first.
        if self.responder.low_priority() == Some(priority) && self.responder.poll_low(priority, c, host, out) {
            return Ok(Some(priority));
        }
        let level = self.requester.poll_low(state == QpState::Rts, c, host, out)?;
        Ok(level.and_then(|level| c.low_priority(level)))
    }

    fn on_cnp(&mut self, state: QpState, at: Time, cnp: &Cnp, host: &mut impl Host) -> bool {
        let sends = matches!(state, QpState::Rts | QpState::Sqd);
        if sends {
            self.requester.on_cnp(at, cnp, host);
        }
        sends
    }

    fn on_fair_rate(&mut self, state: QpState, now: Time, point: Point, rate: u64, host: &mut impl Host) -> bool {
        let sends = matches!(state, QpState::Rts | QpState::Sqd);
        if sends {
            self.requester.on_fair_rate(now, point, rate, host);
        }
        sends
    }

    #[inline]
    fn wants_tx(&self, state: QpState) -> bool {
        match state {
            QpState::Rtr | QpState::Err => self.responder.wants_tx(),
            QpState::Rts | QpState::Sqd => self.responder.wants_tx() || self.requester.wants_tx(state == QpState::Rts),
            _ => false,
        }
    }

    #[inline]
    fn poll_transmit(
        &mut self,
        now: Time,
        state: QpState,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, QpFailure> {
        match state {
            QpState::Rtr | QpState::Err => self.responder.poll_transmit(now, c, host, out),
            QpState::Rts | QpState::Sqd => self.poll_both(now, state == QpState::Rts, c, host, out),
            _ => Ok(false),
        }
    }

    #[inline]
    fn next_deadline(&self, state: QpState) -> Time {
        let deadline = match state {
            QpState::Rtr => self.responder.next_deadline(),
            QpState::Rts | QpState::Sqd => self.responder.next_deadline().min(self.requester.next_deadline()),
            _ => return Time::NEVER,
        };
        if self.requester.has_rare_timers() { self.rare_deadline(deadline, state) } else { deadline }
    }

    fn on_deadline(
        &mut self,
        now: Time,
        state: QpState,
        c: &QpContext,
        host: &mut impl Host,
        mut process: impl FnMut() -> PeerProcess,
    ) -> Result<(), QpFailure> {
        self.responder.on_deadline(now, c, host, &mut process)?;
        if matches!(state, QpState::Rts | QpState::Sqd) {
            self.requester.on_deadline(now, c, host, process)?;
        }
        Ok(())
    }

    fn busy(&self) -> bool {
        self.requester.busy()
    }

    fn flush_send(&mut self, c: &QpContext, status: WcStatus, host: &mut impl Host) {
        self.requester.flush(c, status, host);
    }

    /// The NAK would arrive when the queue pair is in the error state.
    fn refuse_own(&mut self, c: &QpContext, host: &mut impl Host) -> Option<WcStatus> {
        let (psn, code) = self.responder.last_refusal()?;
        match self.requester.take_refusal(psn, code, c, host) {
            Err(QpFailure::Send(status)) => Some(status),
            _ => None,
        }
    }

    fn silence(&mut self) {
        self.responder.silence();
        self.responder.receive_after_error();
    }

    fn add_counts(&self, counts: &mut QpCounts) {
        let (requests, responses) = (&self.requester.tally, &self.responder.tally);
        counts.retransmitted = requests.retransmitted + responses.retransmitted;
        counts.timeouts = requests.timeouts + responses.timeouts;
        counts.rnr_naks = requests.rnr_naks;
    }

    fn rtt(&self) -> Option<&RttHistogram> {
        Some(&self.requester.rtt)
    }

    fn smoothed_rtt(&self) -> u64 {
        self.requester.smoothed_rtt()
    }

    fn speaks_irn(&self) -> bool {
        self.requester.speaks_irn()
    }

    fn controller_metrics(&self) -> Option<ControllerMetrics> {
        self.requester.controller_metrics()
    }
}

footprint!(Rc, |at| {
    requester => part(requester),
    responder => part(responder),
    responder_sent => flag(),
});
