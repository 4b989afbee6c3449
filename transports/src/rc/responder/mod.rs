//! The responder: execution of request packets, their acknowledgements and READ responses.
//!
//! `plain` accepts requests in order only and answers duplicates per IBA; `irn` places them in any order (§4.4.3);
//! `answered` executes requests with a response of their own, `respond` builds the packets sent back, `refuse` handles
//! requests that are not executed. Placement and the rules for receive WQEs are shared, and here.

mod answered;
mod fast;
mod irn;
mod plain;
mod refusal;
mod refuse;
mod respond;

use std::collections::VecDeque;

use super::acks::{AckQueue, Echo};
use super::discipline::{Discipline, Hooks};
use super::fetch::Fetch;
use super::timer::RetransmitTimer;
use super::watched::Held;
use crate::config::WireFormat;
use crate::packet::{Payload, RxPacket};
use crate::psn::Psn;
use crate::qp::access::Access;
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::host::{Caller, Frees, Host, XrcSrq};
use crate::qp::recv_queue::{Filling, PrematureCqe, RecvQueue, Source, Word};
use crate::qp::send_queue::MAX_MESSAGE;
use crate::qp::stats::Tally;
use crate::qp::work::{Wc, WcOpcode, WcStatus};
use crate::recovery::{Receiver, Recovery, Sender};
use crate::room::OutOfMemory;
use crate::telemetry::Int;
use crate::time::Time;
use crate::wire::opcode::Operation;
use crate::wire::{Headers, Importance, NakCode, Opcode, Reth, Syndrome};

use crate::footprint::{Item, bits, flag, footprint, instant, left, maybe, part, sequence, times, why, width};
use answered::{ReadKind, ReadOp};
use refusal::{INVALID, Refusal, access_refused};

/// Plain RoCE: pending response packets `next..end` of an operation.
#[derive(Copy, Clone, Debug)]
struct Job {
    op: ReadOp,
    start: u32,
    next: u32,
    end: u32,
    /// Whether the request extended beyond `end`: the peer has requested the rest again.
    cut: bool,
    /// Whether this is a repeated request.
    again: bool,
}

/// Plain RoCE: a message that is not complete.
#[derive(Copy, Clone, Debug)]
enum Message {
    Send {
        offset: u32,
    },
    /// The rest of the range, and the bytes received.
    Write {
        left: Reth,
        done: u32,
    },
}

/// Destination of held bytes: the identity for access checks, the key and the address.
type Destination = (Caller, u32, u64);

#[derive(Clone, Debug)]
pub(crate) struct Responder {
    pub rq: RecvQueue,
    /// XRC: the shared receive queue named by the current request, if it exists.
    named: Option<XrcSrq>,
    /// Requests that have arrived: ePSN, MSN, and with IRN the 2-bitmap.
    pub(super) rx: Receiver,
    pub(super) irn: bool,
    /// Whether a request was accepted without C: the peer will not use IRN.
    plain_peer: bool,
    message: Option<Message>,
    /// IRN: ends of WRITEs that arrived before the preceding packets, with the identity, key and address of their
    /// placement. Allocated on first use.
    held: Option<Box<Held<Destination>>>,
    acks: AckQueue,
    /// A NAK to be sent, with its PSN.
    nak: Option<(Psn, Syndrome)>,
    /// A refusal whose NAK waits for the responses to earlier requests (IBA 9.7.5.1: in order).
    pub(super) pending: Option<QpFailure>,
    /// The NAK that ended the QP, repeated for a peer that retries: it may have been lost.
    terminal_nak: Option<(Psn, Syndrome)>,
    /// Plain: the latest READs and atomics, to answer duplicates; at most `max_dest_rd_atomic`.
    /// IRN: the Read WQE buffer, slot `sn % max_dest_rd_atomic`. Like `history` and `jobs` it takes no memory before
    /// the first READ.
    history: VecDeque<ReadOp>,
    buffer: Box<[Option<ReadOp>]>,
    jobs: VecDeque<Job>,
    depth: u8,
    /// IRN: read_WQE_SN to execute next, and the oldest whose response is not acknowledged.
    next_read_sn: Psn,
    oldest_read_sn: Psn,
    /// IRN: the response stream, and one past its last assigned rPSN.
    pub(super) tx: Sender,
    tx_assigned: Psn,
    /// Selects and marks IRN's responses, in addition to `tx`.
    pub(super) discipline: Discipline,
    fetch: Fetch,
    pub(super) timer: RetransmitTimer,
    pub tally: Tally,
    /// IRN: whether the peer has been silent for too long: no response is sent until it is heard from.
    peer_silent: bool,
    /// Whether a packet with congestion experienced has arrived since the last acknowledgement: the next reports it
    /// (BECN).
    marked: bool,
    /// Whether a congestion notification is to be sent, and the earliest time of the next one.
    cnp: bool,
    next_cnp: Time,
    /// Telemetry of the latest request with some, allocated on first use, and whether no acknowledgement has returned
    /// it yet.
    telemetry: Option<Box<Int>>,
    unanswered: bool,
    /// Whether the last credits advertised were none: a posted receive then has to be announced.
    zero_credits_sent: bool,
}

impl Responder {
    pub(super) fn new(c: &QpContext, rq_limit: u32, max_sge: usize, source: Source) -> Result<Responder, OutOfMemory> {
        let zero = Psn::new(0);
        Ok(Responder {
            rq: RecvQueue::new(rq_limit, max_sge, source)?,
            named: None,
            rx: Receiver::new(zero, zero, 0),
            irn: false,
            plain_peer: false,
            message: None,
            held: None,
            acks: AckQueue::default(),
            nak: None,
            pending: None,
            terminal_nak: None,
            history: VecDeque::new(),
            buffer: Box::default(),
            jobs: VecDeque::new(),
            depth: 0,
            next_read_sn: zero,
            oldest_read_sn: zero,
            tx: Sender::new(Recovery::GoBackN, zero, 1, 1),
            tx_assigned: zero,
            discipline: Discipline::of_responder(c)?,
            fetch: Fetch::new(0, zero),
            timer: RetransmitTimer::new(&c.config),
            tally: Tally::default(),
            peer_silent: false,
            marked: false,
            cnp: false,
            next_cnp: Time::ZERO,
            telemetry: None,
            unanswered: false,
            zero_credits_sent: false,
        })
    }

    /// Handles INIT to RTR, with the first PSN and the limit.
    pub(super) fn start(&mut self, c: &QpContext, rq_psn: Psn, max_dest_rd_atomic: u8) {
        let config = &c.config;
        self.rx = Receiver::new(rq_psn, Psn::new(0), if config.knows_irn() { config.tracked() } else { 0 });
        (self.irn, self.plain_peer) = (false, false);
        self.message = None;
        self.held = None;
        self.acks.clear();
        (self.nak, self.pending, self.terminal_nak) = (None, None, None);
        self.depth = max_dest_rd_atomic;
        (self.history, self.buffer, self.jobs) = (VecDeque::new(), Box::default(), VecDeque::new());
        (self.next_read_sn, self.oldest_read_sn) = (Psn::new(0), Psn::new(0));
        self.timer = RetransmitTimer::new(config);
        (self.peer_silent, self.zero_credits_sent) = (false, false);
        (self.marked, self.cnp, self.next_cnp) = (false, false, Time::ZERO);
        self.unanswered = false;
        self.discipline.start_receiving(c);
    }

    /// Returns the PSN of the next request in order.
    pub(super) fn expected(&self) -> Psn {
        self.rx.expected()
    }

    /// Sets a new limit on the READs and atomics that the peer may have outstanding, while it has none.
    pub(super) fn set_depth(&mut self, depth: u8) {
        self.depth = depth;
        let slots = usize::from(depth).next_power_of_two();
        if !self.buffer.is_empty() && slots > self.buffer.len() {
            let old = std::mem::replace(&mut self.buffer, vec![None; slots].into_boxed_slice());
            for op in old.into_iter().flatten() {
                let slot = self.read_slot(op.sn);
                self.buffer[slot] = Some(op);
            }
        }
        while self.history.len() > self.depth.into() {
            self.history.pop_front();
        }
    }

    /// Repeats the last acknowledgement, if messages have arrived.
    pub(super) fn repeat_ack(&mut self) {
        if self.rx.msn() != Psn::default() {
            self.acks.push_cumulative();
        }
    }

    /// Resets all state (RESET).
    pub(super) fn reset(&mut self) {
        self.rq.reset();
        self.silence();
        self.terminal_nak = None;
    }

    /// Sends nothing more except the final NAK (ERR).
    pub(super) fn silence(&mut self) {
        self.acks.clear();
        self.cnp = false;
        (self.nak, self.pending) = (None, None);
        self.jobs.clear();
        self.message = None;
        self.held.iter_mut().for_each(|held| held.clear());
        self.tx_assigned = self.tx.acked();
        self.tx = Sender::new(Recovery::GoBackN, self.tx_assigned, 1, 1);
        self.fetch = Fetch::new(0, self.tx_assigned);
        self.discipline.stop(self.tx_assigned);
        self.timer.stop();
    }

    /// Handles a posted receive WQE. Returns whether it has to be announced, to a peer without credit.
    #[inline]
    pub(super) fn posted(&mut self) -> bool {
        let announces = std::mem::take(&mut self.zero_credits_sent);
        if announces {
            self.acks.push_cumulative();
        }
        announces
    }

    /// Receives a packet for the responder: a request, or a read acknowledgement.
    pub(super) fn receive(
        &mut self,
        now: Time,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure> {
        let headers = packet.headers;
        let irn = headers.irn.is_some();
        if irn && !self.irn {
            if !self.may_enter_irn(c, headers) {
                self.refuse_format(c, headers, host);
                return Ok(());
            }
            self.enter_irn(c);
        }
        if irn != self.irn {
            self.refuse_format(c, headers, host);
            return Ok(());
        }
        match headers.bth.opcode.operation() {
            Operation::ReadAcknowledge => {
                self.heard(now, c);
                self.read_ack(now, c, headers, host);
                return self.refuse_when_answered();
            }
            Operation::ReadFeedback => {
                self.heard(now, c);
                self.read_feedback(now, c, headers, host);
                return self.refuse_when_answered();
            }
            Operation::Clock => {
                self.clock(now, c, packet, host);
                return self.refuse_when_answered();
            }
            _ => {}
        }
        if !self.discipline.expects(headers) {
            host.counters().rx_unexpected += 1;
            return Ok(());
        }
        if packet.path.is_congested() {
            self.congested(packet.arrived, c, host);
        }
        if let Some(int) = packet.sideband.telemetry {
            self.store_telemetry(int);
        }
        let psn = headers.bth.psn;
        self.heard(now, c);
        // Until a refusal is sent, only plain READs and atomics accepted before it are answered, again.
        let opcode = headers.bth.opcode;
        let answers = opcode.is_answered();
        if self.pending.is_some() && (irn || !answers || !psn.before(self.rx.expected())) {
            host.counters().rx_dropped += 1;
            return self.refuse_when_answered();
        }
        if let Some(domain) = c.xrcd {
            self.named = headers.xrc.and_then(|number| host.xrc_srq(domain, number));
        }
        let expected = self.rx.expected();
        let outcome = if irn { self.irn_request(now, c, packet, host) } else { self.plain_request(c, packet, host) };
        self.plain_peer |= !headers.bth.irn_capable && self.rx.expected() != expected;
        match outcome {
            Ok(()) => Ok(()),
            Err(refusal) => self.refused(psn, refusal, c, host),
        }
    }

    /// Returns whether an acknowledgement may arrive before responses sent earlier: in plain RoCE it would mean that
    /// they are lost.
    pub(super) fn acks_may_overtake(&self) -> bool {
        self.irn || self.history.is_empty()
    }

    /// Handles a packet that has met congestion, as the notification point (RoCEv2, IBA A17.9.3), at most once in an
    /// interval.
    #[cold]
    fn congested(&mut self, at: Time, c: &QpContext, host: &mut impl Host) {
        host.counters().np_ecn_marked_roce_packets += 1;
        self.marked = true;
        if let Some(interval) = c.config.congestion.cnp_interval()
            && at >= self.next_cnp
        {
            self.cnp = true;
            self.next_cnp = at + interval;
        }
    }

    /// TLT: answers a clock of the requests, which has no payload, at once.
    #[cold]
    fn clock(&mut self, now: Time, c: &QpContext, packet: &RxPacket<'_>, host: &mut impl Host) {
        if packet.path.is_congested() {
            self.congested(packet.arrived, c, host);
        }
        if let Some(int) = packet.sideband.telemetry {
            self.store_telemetry(int);
        }
        self.heard(now, c);
        let psn = packet.headers.bth.psn;
        self.acks.push_echo(Echo { importance: Importance::Clock, psn, arrived: false });
    }

    /// Stores the telemetry of a packet, to be returned by the next acknowledgement.
    #[cold]
    fn store_telemetry(&mut self, int: &Int) {
        let answer = int.answer();
        match &mut self.telemetry {
            Some(kept) => **kept = answer,
            None => self.telemetry = Some(Box::new(answer)),
        }
        self.unanswered = true;
    }

    /// Returns whether a packet with the extension may be the first. It must be a request: anything else is late, for
    /// an earlier queue pair with this number. With `auto` it must be the request expected next, from a peer that has
    /// not shown that it lacks the extension: any other might be forged. With an IRN preset, which uses no other
    /// format, it may be any in the window.
    #[cold]
    pub(super) fn may_enter_irn(&self, c: &QpContext, headers: &Headers) -> bool {
        let ahead = headers.bth.psn.distance(self.rx.expected());
        let begins = match c.config.wire {
            WireFormat::Roce => false,
            WireFormat::Auto => ahead == 0 && !self.plain_peer,
            WireFormat::Irn => ahead >= 0 && (ahead as u32) < c.config.tracked(),
        };
        begins && headers.bth.opcode.is_request()
    }

    /// Counts a packet of another format, which is dropped. Plain RoCE never uses IRN's: requests with it are from a
    /// peer with another transport. Plain ones may be late, from before the peer used IRN's.
    #[cold]
    fn refuse_format(&self, c: &QpContext, headers: &Headers, host: &mut impl Host) {
        host.counters().rx_unexpected += 1;
        let never = c.config.wire == WireFormat::Roce && headers.irn.is_some();
        host.counters().rx_other_transport += u64::from(never && headers.bth.opcode.is_request());
    }

    /// Handles the first packet with the extension: the peer has received everything sent before, so both sequence
    /// spaces begin at what is expected now.
    pub(super) fn enter_irn(&mut self, c: &QpContext) {
        self.irn = true;
        // A message begun in plain RoCE continues: every IRN packet identifies its own place.
        self.message = None;
        self.jobs.clear();
        let first = self.rx.expected();
        self.tx = c.config.response_stream(first);
        self.timer.follow(&self.tx);
        self.discipline.start(first, c);
        self.tx_assigned = first;
        self.fetch = Fetch::new(c.config.retransmit_delay, first);
    }

    /// Returns the identity under which the current request accesses memory: the queue pair's protection domain, or for
    /// an XRC target that of the shared receive queue named.
    #[inline]
    fn caller(&self, c: &QpContext) -> Caller {
        match &self.named {
            None => c.caller(),
            Some(named) => Caller { pd: named.pd, qpn: c.qpn },
        }
    }

    /// Refuses an XRC request that names no shared receive queue of the domain: an access error (qedr raises
    /// IB_EVENT_QP_ACCESS_ERR for it, and the XRC series for Linux's rxe sends this NAK).
    #[inline]
    fn check_named(&self, c: &QpContext) -> Result<(), Refusal> {
        if c.xrcd.is_some() && self.named.is_none() { Err(Refusal::Nak(NakCode::RemoteAccessError)) } else { Ok(()) }
    }

    /// Returns the receive WQE with this number. All packets of an XRC message name the same queue.
    #[inline]
    fn slot(&mut self, sn: Psn, host: &mut impl Host) -> Result<Filling<'_>, Refusal> {
        let Some(named) = &self.named else { return self.rq.by_sn(sn, host).ok_or(Refusal::NotReady) };
        let (slot, from) = self.rq.by_sn_from(sn, named, host).ok_or(Refusal::NotReady)?;
        if from == *named { Ok(slot) } else { Err(INVALID) }
    }

    /// Places a SEND packet's payload into the receive WQE with this number.
    fn place_send(
        &mut self,
        c: &QpContext,
        sn: Psn,
        offset: u32,
        payload: &Payload<'_>,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        let pd = self.caller(c).pd;
        let wqe = self.slot(sn, host)?;
        let len = payload.len() as u64;
        if u64::from(offset) + len > wqe.len().min(u64::from(crate::qp::send_queue::MAX_MESSAGE)) {
            return Err(Refusal::Recv(NakCode::InvalidRequest, WcStatus::LocLenErr));
        }
        host.place_local(pd, wqe.sges, u64::from(offset), payload).map_err(|_| {
            host.counters().local_protection_errors += 1;
            Refusal::Recv(NakCode::RemoteOperationalError, WcStatus::LocProtErr)
        })?;
        host.counters().rcvd_bytes += len;
        Ok(())
    }

    /// Places a WRITE packet's payload into memory, if the whole range of `reth` is remotely writable. Without bytes no
    /// key is checked (IBA 9.7.4.1.6).
    fn place_write(
        &mut self,
        c: &QpContext,
        reth: &Reth,
        payload: &Payload<'_>,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        self.check_granted(c, Access::REMOTE_WRITE, host)?;
        if reth.len == 0 {
            return Ok(());
        }
        if reth.len > MAX_MESSAGE {
            return Err(INVALID);
        }
        host.place_remote(self.caller(c), reth.rkey, reth.va, u64::from(reth.len), payload)
            .map_err(|e| access_refused(e, host))?;
        host.counters().rcvd_bytes += payload.len() as u64;
        Ok(())
    }

    /// Checks the queue pair's own rights, whatever the region's: an operation that it does not allow is an invalid
    /// request (IBA 9.7.4.1.3), not an access error.
    fn check_granted(&self, c: &QpContext, needed: Access, host: &mut impl Host) -> Result<(), Refusal> {
        if c.access.allows(needed) {
            return Ok(());
        }
        host.counters().resp_remote_access_errors += 1;
        Err(INVALID)
    }

    /// Checks that the receive WQE of a message's last packet exists, and is claimed by no other message.
    fn unclaimed(&mut self, sn: Psn, host: &mut impl Host) -> Result<(), Refusal> {
        if self.slot(sn, host)?.slot.premature.is_some() { Err(INVALID) } else { Ok(()) }
    }

    /// Records the contents of a message's last packet in its receive WQE.
    fn note_last(&mut self, sn: Psn, headers: &Headers, byte_len: u32, host: &mut impl Host) -> Result<(), Refusal> {
        let Filling { slot, .. } = self.slot(sn, host)?;
        if slot.premature.is_some() {
            // Two messages claim one WQE.
            return Err(INVALID);
        }
        let write = headers.bth.opcode.operation() == Operation::Write;
        slot.premature = Some(PrematureCqe {
            opcode: if write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv },
            byte_len,
            word: match (headers.imm, headers.ieth) {
                (Some(imm), _) => Word::Immediate(imm),
                (None, Some(rkey)) => Word::Invalidate(rkey),
                (None, None) => Word::Nothing,
            },
            solicited: headers.bth.solicited,
            psn: headers.bth.psn,
        });
        Ok(())
    }

    /// Delivers the completions of `count` messages, now complete and in order.
    fn deliver(&mut self, c: &QpContext, count: u32, host: &mut impl Host) -> Result<(), Refusal> {
        for _ in 0..count {
            // Only a peer with inconsistent numbers completes a WQE that has no message.
            let Some(cqe) = self.rq.take_premature() else { return Err(INVALID) };
            let from = self.rq.take_origin();
            let Some(wr_id) = self.rq.pop() else { return Err(Refusal::Drop) };
            let (cq, pd, frees) = match from {
                None => (c.recv_cq, c.pd, self.rq.frees()),
                Some(from) if c.finds(&from, host) => (from.cq, from.pd, Frees::Shared(from.id)),
                // It was destroyed while earlier messages were missing.
                Some(_) => return Err(Refusal::NakAt(cqe.psn, NakCode::RemoteOperationalError)),
            };
            let (imm, invalidated) = match cqe.word {
                Word::Nothing => (None, None),
                Word::Immediate(imm) => (Some(imm), None),
                Word::Invalidate(rkey) => (None, Some(rkey)),
            };
            let mut wc = Wc {
                wr_id,
                opcode: cqe.opcode,
                byte_len: cqe.byte_len,
                imm,
                invalidated,
                qp_num: c.qpn,
                solicited: cqe.solicited,
                ..Wc::EMPTY
            };
            if let Some(rkey) = invalidated
                && host.invalidate(Caller { pd, qpn: c.qpn }, rkey).is_err()
            {
                wc.status = WcStatus::RemInvReqErr;
                host.complete(cq, wc, frees);
                return Err(Refusal::NakAt(cqe.psn, NakCode::RemoteAccessError));
            }
            host.complete(cq, wc, frees);
        }
        Ok(())
    }

    /// Checks a packet's payload length against its position in the message.
    fn check_length(&self, c: &QpContext, opcode: Opcode, len: usize) -> Result<(), Refusal> {
        let mtu = c.mtu as usize;
        let fits = if opcode.is_first() || opcode.is_middle() {
            len == mtu
        } else if opcode.is_last() {
            (1..=mtu).contains(&len)
        } else {
            len <= mtu
        };
        if fits { Ok(()) } else { Err(INVALID) }
    }
}

footprint!(Responder, |at| {
    rq => part(rq),
    named => left("of the request at hand"),
    rx => part(rx),
    irn => flag().when(at.irn && at.plain, why::SHARED),
    plain_peer => flag().when(at.irn && at.plain, why::SHARED),
    held => left("beyond IRN: what an application may watch"),
    message => bits(2 + width::ADDRESS + width::KEY + 2 * width::LENGTH).when(at.plain, why::PLAIN),
    acks => part(acks),
    nak => maybe(width::PSN + 8),
    pending => maybe(3),
    terminal_nak => maybe(width::PSN + 8),
    history => left("plain RoCE's `buffer`").heap(at.answers as usize * size_of::<ReadOp>()),
    buffer => times(at.answers, ReadOp::NONE)
        .heap(at.answers.next_power_of_two() as usize * size_of::<Option<ReadOp>>()),
    jobs => times(at.answers, Job { op: ReadOp::NONE, start: 0, next: 0, end: 0, cut: false, again: false }).when(at.plain, why::PLAIN)
        .heap(at.answers as usize * size_of::<Job>()),
    depth => left("an attribute, listed there"),
    next_read_sn => sequence().is(Item::ReadProgress).when(at.irn, why::IRN),
    oldest_read_sn => sequence().when(at.irn, why::IRN),
    tx => part(&*at.responses).when(at.irn, why::IRN),
    tx_assigned => sequence().when(at.irn, why::IRN),
    discipline => part(discipline),
    fetch => part(fetch),
    timer => part(timer).when(at.irn, why::IRN),
    tally => left(why::STATISTICS),
    peer_silent => flag().when(at.irn, why::IRN),
    marked => flag(),
    cnp => flag().when(at.cnps, why::OFF),
    next_cnp => instant().when(at.cnps, why::OFF),
    telemetry => bits(8 * u64::from(Int::LEN)).when(at.telemetry, why::OFF)
        .heap(if at.telemetry { size_of::<Int>() } else { 0 }),
    unanswered => flag().when(at.telemetry, why::OFF),
    zero_credits_sent => flag(),
});

footprint!(Job, |at| {
    op => bits(8),
    start => sequence(),
    next => sequence(),
    end => sequence(),
    cut => flag(),
    again => flag(),
});
