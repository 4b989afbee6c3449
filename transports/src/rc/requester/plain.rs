//! Responses in plain RoCE: acknowledgements and READ responses in one PSN space (IBA 9.7.5).

use super::{Format, Requester};
use crate::packet::{Payload, RxPacket};
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::host::{Host, MemError};
use crate::qp::work::{SendOp, WcStatus};
use crate::rc::discipline::Hooks;
use crate::rc::watched;
use crate::time::Time;
use crate::wire::opcode::Operation;
use crate::wire::{Headers, NakCode, Syndrome};

impl Requester {
    pub(super) fn receive_plain(
        &mut self,
        now: Time,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        let headers = packet.headers;
        match headers.bth.opcode.operation() {
            Operation::Acknowledge => self.plain_ack(now, c, headers, host),
            _ => self.plain_response(now, c, packet, host),
        }
    }

    /// Returns the response packet that the oldest incomplete READ or atomic waits for.
    fn awaited(&self) -> Option<Psn> {
        let w = self.sq.get(*self.reads.front()?);
        Some(w.resp_first.plus(w.resp_arrived))
    }

    fn plain_ack(
        &mut self,
        now: Time,
        c: &QpContext,
        headers: &Headers,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        let psn = headers.bth.psn;
        let Some(syndrome) = headers.aeth.and_then(|a| Syndrome::from_u8(a.syndrome)) else {
            host.counters().rx_unexpected += 1;
            return Ok(());
        };
        // An ACK includes its PSN; a NAK names the first missing one.
        let cumulative = if matches!(syndrome, Syndrome::Ack { .. }) { psn.plus(1) } else { psn };
        if self.stream.high().before(cumulative) || cumulative.before(self.stream.acked()) {
            // Beyond what was sent, or a late duplicate.
            if self.stream.high().before(cumulative) {
                host.counters().rx_unexpected += 1;
            }
            return Ok(());
        }
        // A responder that refused is in the error state: it will not answer the READ again.
        let refused = matches!(syndrome, Syndrome::Nak(code) if code != NakCode::PsnSequenceError);
        if let Some(awaited) = self.awaited()
            && awaited.before(cumulative)
            && !refused
        {
            // A request after the READ was answered, so the READ's response is lost (IBA 9.7.5.1.1: implied NAK).
            return self.implied_nak(now, c, awaited, host);
        }
        self.acknowledge(now, c, cumulative);
        if let Some(aeth) = headers.aeth {
            self.update_credits(&aeth);
        }
        match syndrome {
            Syndrome::Ack { .. } => Ok(()),
            Syndrome::Rnr { timer } => self.on_rnr(now, c, psn, timer.nanos(), host),
            Syndrome::Nak(NakCode::PsnSequenceError) => {
                host.counters().packet_seq_err += 1;
                self.timer.news(now, c);
                self.stream.receive_ack(now, psn, Some(psn));
                Ok(())
            }
            Syndrome::Nak(code) => self.on_nak(psn, code, c, host),
        }
    }

    /// Handles a cumulative acknowledgement: everything before `cumulative` has arrived.
    pub(super) fn acknowledge(&mut self, now: Time, c: &QpContext, cumulative: Psn) {
        let cumulative = self.discipline.on_cumulative(now, cumulative, false).unwrap_or(cumulative);
        if self.stream.acked().before(cumulative) && self.stream.receive_ack(now, cumulative, None) {
            self.take_sample(now, c);
            self.advanced(now, cumulative, c);
        }
    }

    fn implied_nak(&mut self, now: Time, c: &QpContext, awaited: Psn, host: &mut impl Host) -> Result<(), QpFailure> {
        host.counters().implied_nak_seq_err += 1;
        self.acknowledge(now, c, awaited);
        if self.went_back_at != Some(awaited) {
            self.went_back_at = Some(awaited);
            self.stream.go_back();
            self.cancel_debt(now);
        }
        Ok(())
    }

    fn plain_response(
        &mut self,
        now: Time,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        let headers = packet.headers;
        let psn = headers.bth.psn;
        let Some(awaited) = self.awaited() else {
            host.counters().rx_unexpected += 1;
            return Ok(());
        };
        let ahead = psn.distance(awaited);
        if ahead < 0 {
            return Ok(());
        }
        if !psn.before(self.stream.high()) {
            host.counters().rx_unexpected += 1;
            return Ok(());
        }
        if ahead > 0 {
            return self.implied_nak(now, c, awaited, host);
        }
        let index = *self.reads.front().expect("awaited() found it");
        let k = self.sq.get(index).resp_arrived;
        if let Err(status) = self.place_response(c, (index, k), packet, true, host) {
            return self.fail_wqe(index, status, c, host);
        }
        let w = self.sq.get_mut(index);
        w.resp_arrived += 1;
        let complete = w.resp_arrived == w.packets;
        self.went_back_at = None;
        self.acknowledge(now, c, psn.plus(1));
        if let Some(aeth) = headers.aeth {
            self.update_credits(&aeth);
        }
        if complete {
            self.reads.pop_front();
            let waiting = self.stream.outstanding() || !self.reads.is_empty();
            let sample = self.timer.progress(now, waiting, self.stream.acked(), c);
            self.measured(sample);
        }
        Ok(())
    }

    /// Places the `k`-th response packet of a READ from `resp_first` on, or an atomic's result, except for the part
    /// held until everything before it has arrived, as it has if the packet is `in_order`.
    pub(super) fn place_response(
        &mut self,
        c: &QpContext,
        (index, k): (u32, u32),
        packet: &RxPacket<'_>,
        in_order: bool,
        host: &mut impl Host,
    ) -> Result<(), WcStatus> {
        let (headers, payload) = (packet.headers, &packet.payload);
        let w = *self.sq.get(index);
        if w.op.is_newer() {
            // Linux's rxe (`send_read_response_ack`): a READ response of no bytes.
            let empty = headers.bth.opcode.is_read_response() && payload.is_empty();
            return if empty { Ok(()) } else { Err(WcStatus::BadRespErr) };
        }
        if w.op != SendOp::Read {
            let Some(value) = headers.atomic_ack else { return Err(WcStatus::BadRespErr) };
            // The verbs deliver it in host byte order.
            let (value, psn) = (value.to_ne_bytes(), headers.bth.psn);
            return self.place_local(c, (index, psn), 0, &Payload::Bytes(&value), (in_order, true), host);
        }
        let before = if self.format == Format::Irn { w.resp_arrived } else { 0 };
        let offset = (before + k) * c.mtu;
        let expected = (w.len - offset).min(c.mtu);
        if headers.bth.opcode.operation() == Operation::AtomicAcknowledge || payload.len() != expected as usize {
            return Err(WcStatus::BadRespErr);
        }
        let (place, ends) = ((index, headers.bth.psn), k + 1 == w.resp_packets);
        self.place_local(c, place, u64::from(offset), payload, (in_order, ends), host)?;
        host.counters().rcvd_bytes += u64::from(expected);
        Ok(())
    }

    /// Places bytes of a response packet into the scatter list of a work request, or holds back those that an
    /// application may poll.
    fn place_local(
        &mut self,
        c: &QpContext,
        (index, psn): (u32, Psn),
        offset: u64,
        payload: &Payload<'_>,
        (in_order, ends): (bool, bool),
        host: &mut impl Host,
    ) -> Result<(), WcStatus> {
        let kept = if in_order { 0 } else { watched::kept(c.config.placement, ends, payload) };
        let mut now = *payload;
        if let (Payload::Bytes(bytes), 1..) = (payload, kept) {
            let (first, later) = bytes.split_at(bytes.len() - kept);
            let at = offset + first.len() as u64;
            // Without memory it is placed too early instead.
            if self.held.get_or_insert_default().keep(psn, (index, at), later) {
                now = Payload::Bytes(first);
            }
        }
        let late = in_order && !ends && !self.responses.has_gap();
        let placed = host.placing(late, |host| host.place_local(c.pd, self.sq.sges(index), offset, &now));
        placed.map_err(|_| WcStatus::LocProtErr)
    }

    /// Places the held parts of responses before which everything has arrived. Returns the work request of the first
    /// that a driver cannot place.
    #[cold]
    pub(super) fn place_held(&mut self, c: &QpContext, host: &mut impl Host) -> Option<u32> {
        let mut failed = None;
        if let Some(held) = &mut self.held {
            held.release(self.responses.expected(), |_, (index, offset), bytes| {
                // If refused, the application has released the memory since the work request was posted.
                let placed = host.place_local(c.pd, self.sq.sges(index), offset, &Payload::Bytes(bytes));
                if failed.is_none() && matches!(placed, Err(MemError::Copy(_))) {
                    failed = Some(index);
                }
            });
        }
        failed
    }
}
