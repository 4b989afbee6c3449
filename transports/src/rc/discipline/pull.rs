//! Both ends of a pulled stream (NDP), as used by a queue pair: the sender selects packets and their paths, the
//! receiver answers each arrival and requests one packet for each that has arrived.

mod ends;

pub(super) use ends::Ends;

use std::collections::VecDeque;
use std::net::IpAddr;

use super::hooks::Delivery;
use crate::config::{PullConfig, Timer};
use crate::footprint::{bits, flag, footprint, instant, left, maybe, part, sequence, why, width};
use crate::packet::{PacketClass, RxPacket};
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, PullTurn, TxSlot};
use crate::rc::acks::MAX_NACKS_WAITING;
use crate::recovery::{Answer, Feedback, Paths, Penalty, Pulled, Turn, Unexpected};
use crate::room::OutOfMemory;
use crate::time::{MS, Time};
use crate::wire::{Aeth, FeedbackKind, Headers, IrnEth, NdpWord, Opcode};

/// Overhead of a packet on a link in addition to its payload, bytes: Ethernet with its FCS (18), IPv4 (20), UDP (8),
/// BTH (12), the RETH that every WRITE packet has (16), NDP's word and the ICRC. Pulls are spaced as full packets of
/// that length.
const OVERHEAD: u64 = 82;

/// Timeouts for which a stream is stuck before one packet is sent without a request. The receiver may be serving
/// thousands of others first.
const SILENCE: u64 = 256;

/// Time without a packet, ns, after which a receiver that misses some and owes no pull repeats the latest pull, which
/// may have been lost. It doubles each time, [`REPEATS`] times at most.
const REPEAT: u64 = MS;
const REPEATS: u8 = 10;

/// Returns the maximum time that a packet may be without an answer, ns, 0 for ever.
fn rto(c: &QpContext) -> u64 {
    match c.config.timer {
        Timer::Fixed(Some(time)) => time,
        Timer::Fixed(None) => c.local_ack_timeout().unwrap_or(0),
        Timer::Irn { high, .. } => high,
        Timer::Tcp { max, .. } | Timer::Estimated { max, .. } => max,
    }
}

/// Returns the seed of the order of a stream's paths: different for each queue pair of each host and for data and
/// responses, the same in each run. Queue pairs of different hosts often have the same numbers, and hosts that choose
/// their paths in step collide on each of them (FNV-1a).
fn order(c: &QpContext, of: u8) -> u32 {
    let mut hash = 0x811c_9dc5;
    let mut add = |bytes: &[u8]| bytes.iter().for_each(|b| hash = (hash ^ u32::from(*b)).wrapping_mul(0x0100_0193));
    if let Some(path) = c.path() {
        for address in [path.src, path.dst] {
            match address {
                IpAddr::V4(address) => add(&address.octets()),
                IpAddr::V6(address) => add(&address.octets()),
            }
        }
        add(&path.udp_src.to_be_bytes());
    }
    add(&c.qpn.to_be_bytes());
    add(&c.dest_qp.to_be_bytes());
    add(&[of]);
    hash
}

/// The sending end.
#[derive(Clone, Debug)]
pub(in crate::rc) struct PullSender {
    stream: Pulled,
    paths: Paths,
    returns: bool,
    /// The packet last selected, and its path.
    turn: Option<(Turn, u16)>,
    /// Time at which a stuck stream sends without a request; [`Time::NEVER`] if it is not stuck.
    silent: Time,
}

impl PullSender {
    /// Returns `None` unless the transport pulls.
    pub(super) fn new(c: &QpContext) -> Result<Option<PullSender>, OutOfMemory> {
        let Some(pull) = c.discipline().pull() else { return Ok(None) };
        Ok(Some(PullSender {
            stream: Pulled::new(Psn::new(0), pull.window, c.config.window, 0)?,
            paths: Paths::new(pull.paths.max(1), pull.penalty, 0)?,
            returns: pull.returns,
            turn: None,
            silent: Time::NEVER,
        }))
    }

    /// Begins a stream with `first`.
    pub(super) fn start(&mut self, first: Psn, c: &QpContext) {
        self.stream.restart(first, rto(c));
        self.paths.restart(order(c, 0));
        self.silent = Time::NEVER;
    }

    #[inline]
    pub(super) fn wants_tx(&self, more: bool) -> bool {
        self.stream.wants_tx(more)
    }

    /// Selects the packet to send now; returns it, and whether it was never sent.
    pub(super) fn tx_free(&mut self, now: Time, more: bool) -> Option<(Psn, bool)> {
        if !self.stream.wants_tx(more) {
            return None;
        }
        let mut path = self.paths.next_path();
        let turn = self.stream.tx_free(now, more, path)?;
        self.silent = Time::NEVER;
        if turn.lost_on == Some(path) {
            path = self.paths.other_path(path);
            self.stream.set_path(turn.psn, path);
        }
        self.turn = Some((turn, path));
        Some((turn.psn, turn.fresh))
    }

    /// Completes the packet last selected: its path and its word. `more`: another new one waits.
    pub(super) fn mark(&mut self, more: bool, c: &QpContext, out: &mut TxSlot) {
        let Some((turn, path)) = self.turn.take() else { return };
        if turn.fresh && !more {
            self.stream.mark_last();
        }
        out.headers.ndp = NdpWord::new(c.qpn, self.stream.is_last(turn.psn));
        out.path = (self.paths.count() > 1).then_some(path);
    }

    /// Processes feedback. Returns the resulting cumulative acknowledgement.
    pub(in crate::rc) fn feedback(&mut self, now: Time, headers: &Headers) -> Result<Psn, Unexpected> {
        let Some(IrnEth::Feedback { kind, subject, pull, .. }) = headers.irn else { return Err(Unexpected) };
        let answer = if kind.has(FeedbackKind::ARRIVED) {
            Some((subject, Answer::Arrived { again: kind.has(FeedbackKind::AGAIN) }))
        } else {
            kind.has(FeedbackKind::TRIMMED).then_some((subject, Answer::Trimmed))
        };
        let feedback = Feedback {
            cumulative: headers.bth.psn,
            answer,
            pull: kind.has(FeedbackKind::PULL).then_some(pull),
            owes_none: kind.has(FeedbackKind::OWES_NONE),
        };
        match self.stream.receive(&feedback)? {
            Some((path, true)) => self.paths.arrived(path),
            Some((path, false)) => self.paths.failed(path, 1),
            None => {}
        }
        self.listen(now);
        Ok(self.stream.acked())
    }

    /// Processes a cumulative acknowledgement from a packet other than feedback: everything before `cumulative` has
    /// arrived. Returns the resulting cumulative acknowledgement.
    pub(super) fn acknowledge(&mut self, now: Time, cumulative: Psn) -> Psn {
        let feedback = Feedback { cumulative, answer: None, pull: None, owes_none: false };
        // An acknowledgement of a packet that was never sent has no effect.
        if self.stream.receive(&feedback).is_ok() {
            self.listen(now);
        }
        self.stream.acked()
    }

    /// Handles a returned packet.
    pub(super) fn returned(&mut self, now: Time, psn: Psn) {
        if self.returns
            && let Some(path) = self.stream.returned(psn)
        {
            self.paths.failed(path, 3);
        }
        self.listen(now);
    }

    /// See [`Pulled::go_back`].
    pub(super) fn go_back(&mut self) {
        self.stream.go_back();
    }

    /// Returns whether a packet waits for an answer.
    pub(super) fn is_flying(&self) -> bool {
        self.stream.flying() > 0
    }

    /// Handles a receiver's inquiry: it owes no pull, and the stream has stalled.
    fn nudge(&mut self) {
        self.stream.nudge();
    }

    fn listen(&mut self, now: Time) {
        if !self.stream.is_stuck() || self.stream.rto() == 0 {
            self.silent = Time::NEVER;
        } else if self.silent == Time::NEVER {
            self.silent = now + SILENCE * self.stream.rto();
        }
    }

    /// Returns when [`Self::on_deadline`] is due.
    #[inline]
    pub(super) fn next_deadline(&self) -> Time {
        self.stream.next_deadline().min(self.silent)
    }

    /// Runs the timers that are due. Returns the number of packets that timed out.
    pub(super) fn on_deadline(&mut self, now: Time) -> u32 {
        if self.silent <= now {
            self.stream.nudge();
            self.silent = Time::NEVER;
            self.listen(now);
        }
        self.stream.on_deadline(now)
    }
}

/// Pending feedback on a packet that has arrived.
#[derive(Copy, Clone, Debug)]
struct Arrived {
    psn: Psn,
    kind: FeedbackKind,
    path: u8,
}

/// The receiving end.
#[derive(Clone, Debug)]
pub(in crate::rc) struct PullReceiver {
    answers: VecDeque<Arrived>,
    /// Pulls that the NIC has not granted yet, and those that wait for the link.
    owed: u32,
    granted: u32,
    /// Pulls sent.
    sent: Psn,
    /// One past the latest packet of the stream that was seen; whether it is the end of the stream; whether it and all
    /// before it have arrived.
    seen: Option<Psn>,
    last: bool,
    over: bool,
    /// Whether to repeat the latest pull.
    again: bool,
    /// Arrival of the latest packet; the deadline of a repeat; the number of repeats so far.
    heard: Time,
    repeat: Time,
    repeats: u8,
    interval: u64,
    /// Paths of responses.
    paths: Paths,
}

impl PullReceiver {
    /// Returns `None` unless the transport pulls.
    pub(super) fn new(c: &QpContext) -> Result<Option<PullReceiver>, OutOfMemory> {
        let Some(pull) = c.discipline().pull() else { return Ok(None) };
        let mut answers = VecDeque::new();
        let bytes = MAX_NACKS_WAITING * size_of::<Arrived>();
        answers.try_reserve_exact(MAX_NACKS_WAITING).map_err(|_| OutOfMemory(bytes))?;
        Ok(Some(PullReceiver {
            answers,
            owed: 0,
            granted: 0,
            sent: Psn::new(0),
            seen: None,
            last: false,
            over: true,
            again: false,
            heard: Time::ZERO,
            repeat: Time::NEVER,
            repeats: 0,
            interval: 0,
            paths: Paths::new(pull.paths.max(1), Penalty::Off, 0)?,
        }))
    }

    /// Begins a stream.
    pub(super) fn start(&mut self, c: &QpContext) {
        self.clear();
        self.sent = Psn::new(0);
        self.paths.restart(order(c, 1));
        let rate = c.discipline().pull().map_or(PullConfig::FULL_RATE, |pull| pull.rate);
        let bits = 8 * (u64::from(c.mtu) + OVERHEAD);
        // At most 2¹⁷ bits · 10¹² · 10³: 2⁸⁷.
        let ps = u128::from(bits) * 1_000_000_000_000 * u128::from(PullConfig::FULL_RATE);
        let rate = u128::from(c.config.line_rate.max(1)) * u128::from(rate.max(1));
        self.interval = u64::try_from(ps / rate).unwrap_or(u64::MAX);
    }

    /// Stops sending.
    pub(super) fn clear(&mut self) {
        self.answers.clear();
        (self.owed, self.granted, self.seen, self.last) = (0, 0, None, false);
        (self.over, self.again, self.repeat, self.repeats) = (true, false, Time::NEVER, 0);
    }

    /// Handles a packet that has arrived, with its payload or `trimmed`, or, `known`, again. `expected` is the first
    /// missing one now.
    pub(in crate::rc) fn arrived(
        &mut self,
        now: Time,
        packet: &RxPacket<'_>,
        delivery: Delivery,
        expected: Psn,
        host: &mut impl Host,
    ) {
        let headers = packet.headers;
        let path = packet.path.udp_src as u8;
        let psn = headers.bth.psn;
        let kind = match delivery {
            Delivery::Whole => FeedbackKind::ARRIVED,
            Delivery::Again => FeedbackKind::ARRIVED.and(FeedbackKind::AGAIN),
            Delivery::Trimmed => FeedbackKind::TRIMMED,
        };
        if self.answers.len() < MAX_NACKS_WAITING {
            self.answers.push_back(Arrived { psn, kind, path });
        }
        let end = psn.plus(1);
        if self.seen.is_none_or(|seen| !end.before(seen)) {
            self.seen = Some(end);
            self.last = headers.ndp.is_some_and(NdpWord::is_last);
        }
        self.owed += u32::from(delivery != Delivery::Again);
        self.over = self.last && self.seen == Some(expected);
        if self.owed > 0 && !self.over {
            host.owes_pulls();
        }
        if self.over {
            self.owed = 0;
            self.repeat = Time::NEVER;
        } else {
            self.heard = now;
            self.repeats = 0;
            if self.repeat == Time::NEVER {
                self.repeat = now + REPEAT;
            }
        }
    }

    /// Returns whether pulls wait for the NIC to grant them.
    #[inline]
    pub(super) fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// Grants one pull. `None` if none is owed.
    pub(super) fn grant(&mut self) -> Option<PullTurn> {
        self.owed = self.owed.checked_sub(1)?;
        self.granted += 1;
        Some(PullTurn { more: self.owed > 0, interval: self.interval })
    }

    #[inline]
    pub(super) fn wants_tx(&self) -> bool {
        !self.answers.is_empty() || self.granted > 0 || self.again
    }

    /// Builds the next feedback packet; returns false if there is none.
    pub(in crate::rc) fn poll(
        &mut self,
        c: &QpContext,
        opcode: Opcode,
        expected: Psn,
        aeth: Aeth,
        out: &mut TxSlot,
    ) -> bool {
        if !self.wants_tx() {
            return false;
        }
        let answer = self.answers.pop_front();
        let Arrived { psn, mut kind, path } =
            answer.unwrap_or(Arrived { psn: expected, kind: FeedbackKind::default(), path: 0 });
        if self.granted > 0 || self.again {
            self.sent = self.sent.plus(std::mem::take(&mut self.granted));
            self.again = false;
            kind = kind.and(FeedbackKind::PULL);
            if self.owed == 0 {
                kind = kind.and(FeedbackKind::OWES_NONE);
            }
        }
        out.gather.clear();
        out.class = PacketClass::Ack;
        out.path = (self.paths.count() > 1).then(|| self.paths.next_path());
        out.headers = c.headers(opcode, expected);
        out.headers.aeth = Some(aeth);
        out.headers.irn = Some(IrnEth::Feedback { kind, subject: psn, path, pull: self.sent });
        true
    }

    /// Returns when [`Self::on_deadline`] is due.
    #[inline]
    pub(super) fn next_deadline(&self) -> Time {
        self.repeat
    }

    /// Repeats the latest pull if packets are missing and none has arrived for long.
    pub(super) fn on_deadline(&mut self, now: Time) {
        if now < self.repeat {
            return;
        }
        let due = self.heard + (REPEAT << self.repeats);
        if now >= due && self.owed == 0 && self.granted == 0 {
            self.again = true;
            self.repeats += 1;
        }
        self.repeat = if self.repeats > REPEATS { Time::NEVER } else { due.max(now) + (REPEAT << self.repeats) };
    }
}

footprint!(PullSender, |at| {
    stream => part(stream),
    paths => part(paths),
    returns => left(why::SHARED),
    turn => left("of the packet that is being made"),
    silent => instant(),
});

footprint!(PullReceiver, |at| {
    answers => left(why::PORT).heap(MAX_NACKS_WAITING * size_of::<Arrived>()),
    owed => bits(width::COUNT),
    granted => bits(width::COUNT),
    sent => sequence(),
    seen => maybe(width::PSN),
    last => flag(),
    over => flag(),
    again => flag(),
    heard => instant(),
    repeat => instant(),
    repeats => bits(4),
    interval => left(why::SHARED),
    paths => part(paths),
});
