//! Reliable connection: requests, acknowledgements, loss recovery.
//!
//! The requester owns the send queue, the responder the receive queue; the loss recovery of each is in
//! [`crate::recovery`].

mod acks;
mod fetch;
mod requester;
mod responder;
mod timer;

pub use acks::MAX_NACKS_WAITING;

use crate::packet::RxPacket;
use crate::qp::common::{Common, Fatal};
use crate::qp::{Host, QpConfig, TxSlot, WcStatus};
use crate::room::OutOfMemory;
use crate::time::Time;
use requester::Requester;
use responder::Responder;

/// Both halves of a reliable connection, and whose turn it is.
#[derive(Clone, Debug)]
pub(crate) struct Rc {
    pub requester: Requester,
    pub responder: Responder,
    /// Which half sent last: they take turns.
    responder_sent: bool,
}

impl Rc {
    pub fn new(c: &Common, config: &QpConfig) -> Result<Rc, OutOfMemory> {
        let (send_sge, recv_sge) = (config.max_send_sge as usize, config.max_recv_sge as usize);
        Ok(Rc {
            requester: Requester::new(c, config.max_send_wr, send_sge, config.max_inline as usize)?,
            responder: Responder::new(c, config.max_recv_wr, recv_sge, config.srq)?,
            responder_sent: false,
        })
    }

    #[inline]
    pub fn receive(&mut self, now: Time, c: &Common, packet: &RxPacket<'_>, host: &mut impl Host) -> Result<(), Fatal> {
        if packet.headers.bth.opcode.is_response() {
            self.requester.receive(now, c, packet, host)
        } else {
            self.responder.receive(now, c, packet, host)
        }
    }

    /// The responder has refused a request of its own requester, which would be in the error state when the NAK came: it takes
    /// it now. Returns what the request ends with.
    pub fn refuse_own(&mut self, c: &Common, host: &mut impl Host) -> Option<WcStatus> {
        let (psn, code) = self.responder.last_refusal()?;
        match self.requester.take_refusal(psn, code, c, host) {
            Err(Fatal::Send(status)) => Some(status),
            _ => None,
        }
    }

    /// The next packet of either half. `sending`: work requests may start. Inlined, as the one place that needs it is hot.
    #[inline(always)]
    pub fn poll_both(
        &mut self,
        now: Time,
        sending: bool,
        c: &Common,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, Fatal> {
        out.gather.clear();
        if self.requester.poll_acks(c, host, out) {
            return Ok(true);
        }
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
}
