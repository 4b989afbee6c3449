//! Unreliable connection: messages in order, whole or not at all; losses are not reported (IBA 9.8.2).

mod requester;
mod responder;

use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::recv_queue::RecvQueue;
use crate::qp::send_queue::SendQueue;
use crate::qp::service::TransportService;
use crate::qp::{Host, PostError, QpConfig, QpState, SendOp, SendWr, Service, TxSlot, WcStatus};
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::wire::Bth;
use requester::Requester;
use responder::Responder;

/// Both halves of an unreliable connection.
#[derive(Clone, Debug)]
pub(crate) struct Uc {
    requester: Requester,
    responder: Responder,
}

impl Uc {
    pub(crate) fn new(config: &QpConfig) -> Result<Uc, OutOfMemory> {
        Ok(Uc { requester: Requester::new(config)?, responder: Responder::new(config)? })
    }
}

impl TransportService for Uc {
    fn send_queue(&self) -> &SendQueue {
        &self.requester.sq
    }

    fn send_queue_mut(&mut self) -> &mut SendQueue {
        &mut self.requester.sq
    }

    fn recv_queue(&self) -> &RecvQueue {
        &self.responder.rq
    }

    fn recv_queue_mut(&mut self) -> &mut RecvQueue {
        &mut self.responder.rq
    }

    fn next_psns(&self) -> (Option<Psn>, Psn) {
        (Some(self.responder.expected), self.requester.psn)
    }

    fn start_receiving(&mut self, _: &QpContext, psn: Psn) {
        self.responder.start(psn);
    }

    fn start_sending(&mut self, _: &QpContext, psn: Psn) {
        self.requester.psn = psn;
    }

    fn reset(&mut self) {
        self.requester.reset();
        self.responder.rq.reset();
        self.responder.start(Psn::new(0));
    }

    /// IBA 9.2.1: neither READs nor atomics, and no invalidation.
    #[inline(never)]
    fn check(&self, wr: &SendWr<'_>, _: &QpContext) -> Result<(), PostError> {
        match wr.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::Write | SendOp::WriteImm(_) => Ok(()),
            SendOp::LocalInvalidate(_) | SendOp::BindMw { .. } => Ok(()),
            _ => Err(PostError::Service(Service::Uc)),
        }
    }

    fn admits(&mut self, state: QpState, _: &Bth) -> bool {
        matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    // Not inlined, as are the next: reliable connections are optimized for.
    #[inline(never)]
    fn receive(
        &mut self,
        _: Time,
        c: &mut QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        self.responder.receive(c, packet, host)
    }

    fn wants_tx(&self, state: QpState) -> bool {
        matches!(state, QpState::Rts | QpState::Sqd) && self.requester.wants_tx(state == QpState::Rts)
    }

    #[inline(never)]
    fn poll_transmit(
        &mut self,
        _: Time,
        state: QpState,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, QpFailure> {
        match state {
            QpState::Rts | QpState::Sqd => self.requester.poll_transmit(state == QpState::Rts, c, host, out),
            _ => Ok(false),
        }
    }

    fn busy(&self) -> bool {
        self.requester.busy()
    }

    fn flush_send(&mut self, c: &QpContext, status: WcStatus, host: &mut impl Host) {
        self.requester.flush(c, status, host);
    }
}
