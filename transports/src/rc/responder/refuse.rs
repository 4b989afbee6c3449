//! Requests that are not carried out: what the peer is told, and when that ends the queue pair.

use super::Responder;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::host::{Host, MemError};
use crate::qp::work::WcStatus;
use crate::wire::{NakCode, RnrTimer, Syndrome};

/// Why a request packet is not carried out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No receive WQE.
    NotReady,
    /// An error of the request.
    Nak(NakCode),
    /// An error of an earlier request, whose turn it is now.
    NakAt(Psn, NakCode),
    /// An error of the receive WQE, which ends with this status.
    Recv(NakCode, WcStatus),
    /// Nothing to be said.
    Drop,
}

/// The commonest.
pub(super) const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);

impl Responder {
    /// The request packet at `psn` was refused.
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
                // What follows in plain RoCE is out of sequence by that, which the peer knows.
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

    /// Fails with `fatal`, after the responses that are still to go.
    fn refuse(&mut self, fatal: QpFailure) -> Result<(), QpFailure> {
        // The NAK acknowledges what came before; an ACK might acknowledge more.
        self.acks.clear();
        self.pending = Some(fatal);
        self.refuse_when_answered()
    }

    /// Fails if a refusal waits and nothing is left for it to wait for.
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

    /// The NAK that ended the queue pair.
    pub(crate) fn last_refusal(&self) -> Option<(Psn, NakCode)> {
        match self.terminal_nak {
            Some((psn, Syndrome::Nak(code))) => Some((psn, code)),
            _ => None,
        }
    }

    /// In the error state: repeats why, if the peer asks again.
    pub(crate) fn receive_after_error(&mut self) {
        if let Some(words) = self.terminal_nak {
            self.nak = Some(words);
        }
    }
}

pub(super) fn access_refused(error: MemError, host: &mut impl Host) -> Refusal {
    host.counters().resp_remote_access_errors += 1;
    Refusal::Nak(if matches!(error, MemError::Alignment(_)) {
        NakCode::InvalidRequest
    } else {
        NakCode::RemoteAccessError
    })
}
