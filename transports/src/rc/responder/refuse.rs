//! Refused requests: the answer to the peer, and whether it ends the queue pair.

use super::Responder;
use super::refusal::Refusal;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::host::Host;
use crate::wire::{NakCode, RnrTimer, Syndrome};

impl Responder {
    /// Handles the refusal of the request packet at `psn`.
    pub(super) fn refused(
        &mut self,
        psn: Psn,
        refusal: Refusal,
        c: &QpContext,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        match refusal {
            Refusal::Drop => Ok(()),
            Refusal::NotReady => {
                host.counters().out_of_buffer += 1;
                self.zero_credits_sent = true;
                self.nak = Some((psn, Syndrome::Rnr { timer: RnrTimer::new(c.min_rnr_timer) }));
                // In plain RoCE later packets are thereby out of sequence, as the peer knows.
                self.rx.not_ready();
                Ok(())
            }
            Refusal::Nak(code) => {
                host.counters().resp_remote_errors += 1;
                let fatal = self.say_last(psn, code);
                self.refuse(fatal)
            }
            Refusal::NakAt(psn, code) => {
                host.counters().resp_remote_errors += 1;
                let fatal = self.say_last(psn, code);
                self.refuse(fatal)
            }
            Refusal::Recv(code, status) => {
                host.counters().resp_remote_errors += 1;
                self.say_last(psn, code);
                self.refuse(QpFailure::Recv(status))
            }
        }
    }

    /// Fails with `fatal`, after the responses still to be sent.
    fn refuse(&mut self, fatal: QpFailure) -> Result<(), QpFailure> {
        // The NAK acknowledges everything before it; an ACK might acknowledge more.
        self.acks.clear();
        self.pending = Some(fatal);
        self.refuse_when_answered()
    }

    /// Fails if a refusal is pending and no responses are left before it.
    pub(super) fn refuse_when_answered(&mut self) -> Result<(), QpFailure> {
        let answered = if self.irn {
            self.peer_silent || (!self.tx.outstanding() && self.tx.high() == self.tx_assigned)
        } else {
            self.jobs.is_empty()
        };
        match self.pending {
            Some(fatal) if answered => Err(fatal),
            _ => Ok(()),
        }
    }

    fn say_last(&mut self, psn: Psn, code: NakCode) -> QpFailure {
        self.terminal_nak = Some((psn, Syndrome::Nak(code)));
        if code == NakCode::RemoteAccessError { QpFailure::Access } else { QpFailure::Request }
    }

    /// Returns the NAK that ended the queue pair.
    pub(crate) fn last_refusal(&self) -> Option<(Psn, NakCode)> {
        match self.terminal_nak {
            Some((psn, Syndrome::Nak(code))) => Some((psn, code)),
            _ => None,
        }
    }

    /// Repeats the reason, in the error state, for a peer that retries.
    pub(crate) fn receive_after_error(&mut self) {
        if let Some(nak) = self.terminal_nak {
            self.nak = Some(nak);
        }
    }
}
