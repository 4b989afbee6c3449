//! The fast path: what is ordinary, without a look at anything rare.

use super::Qp;
use crate::packet::Path;
use crate::qp::any_service::AnyService;
use crate::qp::attr::QpState;
use crate::qp::host::{Fast, Host, Taken, TxSlot};
use crate::time::Time;
use crate::wire::FastFrame;
use crate::wire::opcode::Service;

impl Qp {
    /// Receives a packet of the fast path as [`Self::receive`] would, unless that would do anything out of the
    /// ordinary.
    #[inline]
    pub fn receive_fast(&mut self, now: Time, frame: &FastFrame<'_>, host: &mut impl Host) -> Taken {
        let connected = self.state == QpState::Rts && self.context.service == Service::Rc;
        if !connected || self.no_rx_yet || self.beside.is_some() {
            return Taken::Nothing;
        }
        let AnyService::Rc(rc) = &mut self.service else { return Taken::Nothing };
        let before = host.counters().rcvd_bytes;
        let taken = rc.receive_fast(now, &mut self.context, frame, host);
        if taken != Taken::Nothing {
            let packets = if taken == Taken::All && frame.ack.is_some() { 2 } else { 1 };
            let counters = host.counters();
            counters.rcvd_pkts += packets;
            self.rcvd_pkts += packets;
            self.rcvd_bytes += counters.rcvd_bytes - before;
        }
        taken
    }

    /// Builds the next packet in `out` as [`Self::poll_transmit`] would, but its headers as bytes, if it is of the
    /// ordinary kind and in the IRN format. `carries` returns whether a small request to its peer may carry an
    /// acknowledgement: such a frame counts as two packets.
    #[inline]
    pub fn poll_fast(
        &mut self,
        now: Time,
        host: &mut impl Host,
        out: &mut TxSlot,
        carries: impl Fn(&Path, u32) -> bool,
    ) -> Fast {
        let connected = self.state == QpState::Rts && self.context.service == Service::Rc;
        if !connected || self.beside.is_some() {
            return Fast::FullPath;
        }
        let AnyService::Rc(rc) = &mut self.service else { return Fast::FullPath };
        let c = &self.context;
        let carries = || c.path().is_some_and(|path| carries(path, c.dest_qp));
        let made = rc.poll_fast(now, c, host, out, carries);
        if let Fast::Built(len) = made {
            let packets = if out.fast.carries_ack() { 2 } else { 1 };
            self.count_sent(packets, len, host);
        }
        made
    }

    /// Builds the next packet as [`Self::poll_fast`] does, right after one of a message that [goes
    /// on](TxSlot::rest).
    #[inline]
    pub fn poll_fast_rest(&mut self, now: Time, host: &mut impl Host, out: &mut TxSlot) -> Fast {
        let AnyService::Rc(rc) = &mut self.service else { return Fast::FullPath };
        let made = rc.poll_fast_rest(now, &self.context, host, out);
        if let Fast::Built(len) = made {
            self.count_sent(1, len, host);
        }
        made
    }

    #[inline]
    fn count_sent(&mut self, packets: u64, bytes: u32, host: &mut impl Host) {
        host.counters().sent_pkts += packets;
        self.sent_pkts += packets;
        self.sent_bytes += u64::from(bytes);
    }
}
