//! Reasons why requests are refused.

use crate::psn::Psn;
use crate::qp::host::{Host, MemError};
use crate::qp::work::WcStatus;
use crate::wire::NakCode;

/// Reason why a request packet is not executed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No receive WQE.
    NotReady,
    /// An error of the request.
    Nak(NakCode),
    /// An error of an earlier request, whose turn it is now.
    NakAt(Psn, NakCode),
    /// An error of the receive WQE, which completes with this status.
    Recv(NakCode, WcStatus),
    /// No answer.
    Drop,
}

/// The most common refusal.
pub(super) const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);

/// Returns the refusal of an access that memory protection denies, or that a driver cannot execute.
pub(super) fn access_refused(error: MemError, host: &mut impl Host) -> Refusal {
    if matches!(error, MemError::Copy(_)) {
        return Refusal::Nak(NakCode::RemoteOperationalError);
    }
    host.counters().resp_remote_access_errors += 1;
    Refusal::Nak(if matches!(error, MemError::Alignment(_)) {
        NakCode::InvalidRequest
    } else {
        NakCode::RemoteAccessError
    })
}
