//! The work requests of a queue pair: posting, and the slots that they occupy.

use super::Qp;
use crate::qp::attr::QpState;
use crate::qp::host::{Frees, Host, SrqId};
use crate::qp::send_queue::PostError;
use crate::qp::service::TransportService;
use crate::qp::work::{RecvWr, SendWr, WcStatus};

impl Qp {
    /// Posts a send work request. In ERR and SQE it is flushed at once.
    #[inline]
    pub fn post_send(&mut self, wr: &SendWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        match self.state {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => {}
            state => return Err(PostError::State(state)),
        }
        self.service.check(wr, &self.context)?;
        let queue = self.service.send_queue_mut();
        let waits = if self.sq_sig_all && !wr.signaled {
            queue.post(&SendWr { signaled: true, ..*wr })?
        } else {
            queue.post(wr)?
        };
        if waits {
            host.counters().overlap_fences += 1;
        }
        if matches!(self.state, QpState::Err | QpState::Sqe) {
            self.service.flush_send(&self.context, WcStatus::WrFlushErr, host);
        }
        Ok(())
    }

    /// Retracts the last `n` send work requests that have not started.
    pub fn retract_sends(&mut self, n: u32) {
        self.service.send_queue_mut().retract(n);
    }

    /// Returns the number of send work requests that can be posted.
    pub fn send_room(&self) -> u32 {
        self.service.send_queue().room()
    }

    /// Frees the slots held by a completion that was polled.
    #[inline]
    pub fn free(&mut self, frees: Frees) {
        match frees {
            Frees::Sends(next) => self.service.send_queue_mut().free(next),
            Frees::Receive => self.service.recv_queue_mut().free(),
            Frees::Shared(_) => {}
        }
    }

    /// Returns the shared receive queues whose work requests the QP has taken and not completed, once for each.
    pub fn held_receives(&self) -> impl Iterator<Item = SrqId> {
        self.service.recv_queue().held()
    }

    /// Copies the data of datagrams that wait in the send queue, so that their memory may be reused before they
    /// complete. Has no effect for other services.
    #[inline]
    pub fn copy_waiting_sends(&mut self, host: &mut impl Host) {
        self.service.copy_waiting(&self.context, host);
    }

    /// Posts a receive work request. In ERR it is flushed at once. Returns whether there is something to send for it.
    #[inline]
    pub fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<bool, PostError> {
        if self.state == QpState::Reset {
            return Err(PostError::State(self.state));
        }
        if self.context.service.is_xrc() {
            return Err(PostError::Service(self.context.service));
        }
        self.service.recv_queue_mut().post(wr)?;
        if self.state == QpState::Err {
            self.service.recv_queue_mut().flush(&self.context, WcStatus::WrFlushErr, host);
            return Ok(false);
        }
        Ok(self.service.recv_posted())
    }
}
