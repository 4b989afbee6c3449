//! Responses with IRN: (N)ACKs of the request stream, and the response stream in its own sequence numbers (§4.4.2,
//! §4.4.4).

use super::Requester;
use crate::config::Nak;
use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::context::{QpContext, QpFailure, ends, position};
use crate::qp::host::Host;
use crate::qp::work::WcStatus;
use crate::rc::acks::{DUPLICATE, Echo};
use crate::rc::discipline::{Acknowledged, Delivery, Hooks};
use crate::recovery::{Arrival, Class, Recovery, Sack};
use crate::time::Time;
use crate::wire::opcode::Operation;
use crate::wire::{Headers, Importance, IrnEth, NakCode, Syndrome};

impl Requester {
    pub(super) fn receive_irn(
        &mut self,
        now: Time,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        let headers = packet.headers;
        match headers.bth.opcode.operation() {
            Operation::Acknowledge => self.irn_ack(now, c, headers, host),
            Operation::ReadClock => {
                let psn = headers.bth.psn;
                self.read_acks.push_echo(Echo { importance: Importance::Clock, psn, arrived: false });
                Ok(())
            }
            Operation::Feedback => {
                self.feedback(now, c, headers, host);
                Ok(())
            }
            _ => self.irn_response(now, c, packet, host),
        }
    }

    fn irn_ack(&mut self, now: Time, c: &QpContext, headers: &Headers, host: &mut impl Host) -> Result<(), QpFailure> {
        let psn = headers.bth.psn;
        let (Some(IrnEth::Ack { selective, run }), Some(aeth)) = (headers.irn, headers.aeth) else { return Ok(()) };
        let (cumulative, nack) = match Syndrome::from_u8(aeth.syndrome) {
            Some(Syndrome::Ack { .. }) => (psn.plus(1), None),
            Some(Syndrome::Nak(NakCode::PsnSequenceError)) => {
                host.counters().packet_seq_err += 1;
                host.counters().irn_nacks_rcvd += 1;
                (psn, Some(Sack { last: selective, run }))
            }
            Some(_) => (psn, None),
            None => {
                host.counters().rx_unexpected += 1;
                return Ok(());
            }
        };
        if let Some(sack) = nack {
            self.timer.news(now, c);
            let sample = self.timer.arrived(now, sack, c);
            self.measured(sample);
        } else if run == DUPLICATE && headers.bth.importance == Importance::None {
            self.timer.news(now, c);
            self.stream.receive_duplicate(selective);
        }
        let before = self.stream.acked();
        let bumps = self.stream.bumps();
        if !self.stream.receive_acks(now, cumulative, nack) {
            host.counters().rx_unexpected += 1;
            return Ok(());
        }
        self.take_sample(now, c);
        host.counters().rc3_ack_bumps += u64::from(self.stream.bumps() != bumps);
        let cumulative = match self.discipline.on_cumulative(now, cumulative, false) {
            None => cumulative,
            Some(acked) => {
                self.stream.receive_ack(now, acked, None);
                acked
            }
        };
        self.update_credits(&aeth);
        if before.before(cumulative) {
            self.advanced(now, cumulative, c);
        }
        if !self.discipline.is_plain() {
            self.pass_ack_on(now, Some((headers.bth.importance, selective)), nack, before, host);
        }
        match Syndrome::from_u8(aeth.syndrome) {
            Some(Syndrome::Rnr { timer }) => self.on_rnr(now, c, psn, timer.nanos(), host),
            Some(Syndrome::Nak(code)) if code != NakCode::PsnSequenceError => {
                // A READ may be refused after its request was acknowledged, if its region has been deregistered.
                if psn.before(self.stream.high()) { self.on_nak(psn, code, c, host) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Passes an acknowledgement on to the discipline, given that everything before `before` was acknowledged already:
    /// the packet it may echo, and its selective acknowledgement.
    #[cold]
    fn pass_ack_on(
        &mut self,
        now: Time,
        echo: Option<(Importance, Psn)>,
        sack: Option<Sack>,
        before: Psn,
        host: &mut impl Host,
    ) {
        let (news, srtt) = (before.before(self.stream.acked()), self.timer.srtt());
        self.discipline.on_ack(&Acknowledged { now, echo, sack, news, srtt }, &mut self.stream, host);
    }

    /// Acknowledges a response: in the discipline's way, or as in IRN.
    fn answer_response(&mut self, now: Time, packet: &RxPacket<'_>, delivery: Delivery, host: &mut impl Host) {
        let bth = &packet.headers.bth;
        if self.discipline.answer(now, packet, delivery, self.responses.expected(), host) {
            return;
        }
        if bth.importance != Importance::None {
            self.read_acks.push_echo(Echo { importance: bth.importance, psn: bth.psn, arrived: true });
        } else {
            self.acknowledge_response(bth.psn);
        }
    }

    fn irn_response(
        &mut self,
        now: Time,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        let headers = packet.headers;
        if !self.discipline.expects(headers) {
            host.counters().rx_unexpected += 1;
            return Ok(());
        }
        let psn = headers.bth.psn;
        let ahead = match self.responses.locate(psn) {
            Arrival::InOrder => 0,
            Arrival::OutOfOrder(ahead) => ahead,
            Arrival::Duplicate => {
                self.answer_response(now, packet, Delivery::Again, host);
                if c.evidence && headers.ndp.is_none() {
                    self.read_acks.push_duplicate(psn);
                }
                return Ok(());
            }
            Arrival::OutOfWindow => {
                host.counters().rx_unexpected += 1;
                return Ok(());
            }
        };
        let Some((index, k)) = self.find_response(psn) else {
            host.counters().rx_unexpected += 1;
            return Ok(());
        };
        if ahead > 0 && c.config.recovery == Recovery::GoBackN {
            if self.responses.nacks(c.config.nak == Nak::PerPacket) {
                self.read_acks.push_selective(self.responses.expected());
            }
            return Ok(());
        }
        if let Err(status) = self.place_response(c, (index, k), packet, ahead == 0, host) {
            return self.fail_wqe(index, status, c, host);
        }
        let w = self.sq.get(index);
        let class = if ends(position(k, w.resp_packets)) { Class::Last } else { Class::Middle };
        // A READ is executed once every request up to it has arrived, so its response acknowledges them.
        let request_end = w.first.plus(1);
        let acked = self.stream.acked();
        self.responses.receive_data(psn, class);
        if self.held.as_ref().is_some_and(|held| !held.is_empty())
            && let Some(failed) = self.place_held(c, host)
        {
            return self.fail_wqe(failed, WcStatus::LocProtErr, c, host);
        }
        host.counters().irn_ooo_placed += u64::from(ahead > 0);
        self.answer_response(now, packet, Delivery::Whole, host);
        self.acknowledge(now, c, request_end);
        self.progressed(now, c);
        if !self.discipline.is_plain() {
            self.pass_ack_on(now, None, None, acked, host);
        }
        while let Some(&index) = self.reads.front()
            && self.is_done(index)
        {
            self.reads.pop_front();
        }
        Ok(())
    }

    fn acknowledge_response(&mut self, psn: Psn) {
        if psn.before(self.responses.expected()) {
            self.read_acks.push_cumulative();
        } else {
            self.read_acks.push_selective(psn);
        }
    }

    /// Returns the READ or atomic whose response includes `psn`, and the index of the packet in it.
    pub(in crate::rc) fn find_response(&self, psn: Psn) -> Option<(u32, u32)> {
        self.reads.iter().find_map(|&index| {
            let w = self.sq.get(index);
            let k = psn.distance(w.resp_first);
            (k >= 0 && (k as u32) < w.resp_packets).then_some((index, k as u32))
        })
    }
}
