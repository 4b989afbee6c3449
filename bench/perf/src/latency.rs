//! Latency: one message at a time. SEND and WRITE go there and back, and half of the time is reported; READ and atomics
//! come back by themselves.

use hdrhistogram::Histogram;
use irnic_nic::Nic;
use irnic_transports::Time;
use irnic_transports::qp::{SendData, SendOp, SendWr, Sge, Wc};
use irnic_transports::time::SEC;

use crate::end::{End, Latency, Measured};
use crate::endpoint::{BATCH, Endpoint};
use crate::error::PerfError;
use crate::layout::{Layout, bytes, bytes_mut};
use crate::pattern::{Corrupted, Stream};
use crate::plan::{Plan, Verb};
use crate::variable::{FinalRead, Variable};

/// Work request id of the final read of the atomic variable.
const FINAL_READ: u64 = 1 << 63;
/// Time for the rest of a WRITE to arrive after its last byte: out-of-order placement delivers them in any order.
const STRAGGLERS: u64 = 10 * SEC;

/// One end of a latency test.
pub struct LatencyEnd {
    end: Endpoint,
    verb: Verb,
    size: u32,
    verify: bool,
    inline: Option<Vec<u8>>,
    layout: Layout,
    iters: Option<u64>,
    /// Duration, ns.
    duration: Option<u64>,
    /// Measurement window: start and end after the start of the test, ns.
    window: (u64, u64),
    /// Minimum time between messages, ns.
    gap: u64,
    out: Stream,
    inn: Stream,
    variable: Variable,
    posted: u64,
    completed: u64,
    /// Messages that arrived, or came back.
    received: u64,
    /// Time at which the last byte of a WRITE was first seen while others were missing.
    incomplete: Option<Time>,
    final_read: FinalRead,
    start: Option<Time>,
    /// Time at which the current message was posted, and at which the last one arrived.
    posted_at: Time,
    last: Time,
    stop: bool,
    latency: Latency,
    wcs: [Wc; BATCH],
}

impl LatencyEnd {
    /// Initializes an end: fills the memory to be read, posts receive requests.
    pub fn new(plan: &Plan, size: u32, end: Endpoint, nic: &mut Nic) -> Result<LatencyEnd, PerfError> {
        let out = Stream::new(plan.seed, end.side, 0);
        let inn = Stream::new(plan.seed, 1 - end.side, 0);
        let layout = Layout::new(plan, size);
        match plan.test.verb() {
            Verb::Read => {
                for place in 0..layout.remote_places {
                    inn.fill(place, bytes_mut(nic, end.remote(0), layout.remote(0, place), size)?);
                }
            }
            Verb::Atomic => {
                bytes_mut(nic, end.remote(0), 0, 8)?.copy_from_slice(&Variable::first(inn).to_ne_bytes());
            }
            Verb::Send | Verb::Write => {}
        }
        let samples = Histogram::new(3).map_err(PerfError::failed)?;
        let this = LatencyEnd {
            verb: plan.test.verb(),
            size,
            verify: plan.verify,
            inline: (size <= plan.inline).then(|| vec![0; size as usize]),
            layout,
            iters: plan.length.messages(),
            duration: plan.length.duration().map(|d| d.as_nanos() as u64),
            window: plan.length.window(),
            gap: plan.gap,
            out,
            inn,
            variable: Variable::new(out, plan.atomic),
            posted: 0,
            completed: 0,
            received: 0,
            incomplete: None,
            final_read: FinalRead::of(plan.test.verb() == Verb::Atomic && plan.verify && end.side == 0),
            start: None,
            posted_at: Time::ZERO,
            last: Time::ZERO,
            stop: false,
            latency: Latency { samples, min: u64::MAX, max: 0, all: plan.samples.then(Vec::new) },
            wcs: [Wc::EMPTY; BATCH],
            end,
        };
        if this.verb == Verb::Send {
            for number in 0..u64::from(this.layout.receives) {
                this.post_recv(nic, number)?;
            }
        }
        Ok(this)
    }

    fn post_recv(&self, nic: &mut Nic, number: u64) -> Result<(), PerfError> {
        let addr = self.end.remote(0).addr + self.layout.remote(0, number);
        self.end.post_recv(nic, 0, number, addr, self.size)
    }

    fn client(&self) -> bool {
        self.end.side == 0
    }

    #[cold]
    fn corrupted(&self, offset: usize) -> PerfError {
        PerfError::failed(Corrupted { qp: 0, number: self.received, offset, len: self.size as usize })
    }

    /// The last byte of a WRITE, by which the target distinguishes it from the previous one in the same place.
    fn stamp(number: u64) -> u8 {
        number.wrapping_add(1) as u8
    }

    /// Polls completions. Returns their number, and the number of messages that arrived with them.
    fn take(&mut self, nic: &mut Nic) -> Result<(usize, u64), PerfError> {
        let mut arrived = 0;
        let sent = self.end.poll(nic, self.end.send_cq, &mut self.wcs)?;
        for i in 0..sent {
            if self.wcs[i].wr_id == FINAL_READ {
                self.expect_value(nic, 0, self.variable.last())?;
                self.final_read = FinalRead::Done;
                continue;
            }
            self.completed += 1;
            match self.verb {
                Verb::Read => {
                    if self.verify {
                        let at = self.layout.local(0, self.received);
                        let content = self.received % self.layout.remote_places;
                        let found = bytes(nic, self.end.local(0), at, self.size)?;
                        self.out.check(content, found).map_err(|offset| self.corrupted(offset))?;
                    }
                    arrived += 1;
                }
                Verb::Atomic => {
                    if self.verify {
                        let value = self.variable.complete();
                        self.expect_value(nic, self.layout.local(0, self.received), value)?;
                    }
                    arrived += 1;
                }
                Verb::Send | Verb::Write => {}
            }
        }
        if self.verb != Verb::Send {
            return Ok((sent, arrived));
        }
        let got = self.end.poll(nic, self.end.recv_cq, &mut self.wcs)?;
        for i in 0..got {
            let wc = self.wcs[i];
            if self.verify {
                if wc.byte_len != self.size {
                    return Err(self.corrupted(wc.byte_len.min(self.size) as usize));
                }
                let found = bytes(nic, self.end.remote(0), self.layout.remote(0, wc.wr_id), self.size)?;
                self.inn.check(self.received, found).map_err(|offset| self.corrupted(offset))?;
            }
            self.post_recv(nic, wc.wr_id + u64::from(self.layout.receives))?;
            arrived += 1;
        }
        Ok((sent + got, arrived))
    }

    fn expect_value(&self, nic: &Nic, at: u64, value: u64) -> Result<(), PerfError> {
        let found = bytes(nic, self.end.local(0), at, 8)?;
        match found.iter().zip(value.to_ne_bytes()).position(|(&a, b)| a != b) {
            Some(offset) => Err(self.corrupted(offset)),
            None => Ok(()),
        }
    }

    /// Polls memory for the next WRITE.
    fn poll_memory(&mut self, now: Time, nic: &Nic) -> Result<bool, PerfError> {
        let found = bytes(nic, self.end.remote(0), self.layout.remote(0, self.received), self.size)?;
        let Some((&last, rest)) = found.split_last() else { return Ok(false) };
        if last != Self::stamp(self.received) {
            return Ok(false);
        }
        if self.verify
            && let Err(offset) = self.inn.check(self.received, rest)
        {
            let since = *self.incomplete.get_or_insert(now);
            return if now.since(since) < STRAGGLERS { Ok(false) } else { Err(self.corrupted(offset)) };
        }
        self.incomplete = None;
        Ok(true)
    }

    fn post(&mut self, now: Time, nic: &mut Nic) -> Result<(), PerfError> {
        let number = self.posted;
        let at = self.layout.local(0, number);
        let op = match self.verb {
            Verb::Send => SendOp::Send,
            Verb::Write => SendOp::Write,
            Verb::Read => SendOp::Read,
            Verb::Atomic => self.variable.post(),
        };
        if matches!(self.verb, Verb::Send | Verb::Write) {
            let message = match &mut self.inline {
                Some(message) => message,
                None => bytes_mut(nic, self.end.local(0), at, self.size)?,
            };
            if self.verify {
                self.out.fill(number, message);
            }
            if self.verb == Verb::Write
                && let Some(last) = message.last_mut()
            {
                *last = Self::stamp(number);
            }
        }
        let remote = if self.verb == Verb::Atomic { 0 } else { self.layout.remote(0, number) };
        self.post_wr(nic, number, op, at, remote)?;
        self.posted += 1;
        self.posted_at = now;
        Ok(())
    }

    fn post_wr(&self, nic: &mut Nic, wr_id: u64, op: SendOp, at: u64, remote: u64) -> Result<(), PerfError> {
        let sges = [Sge { addr: self.end.local(0).addr + at, len: self.size, lkey: self.end.local(0).lkey }];
        let wr = SendWr {
            wr_id,
            op,
            data: self.inline.as_ref().map_or(SendData::Sges(&sges), |message| SendData::Inline(message)),
            remote_addr: self.end.target(0).0 + remote,
            rkey: self.end.target(0).1,
            signaled: true,
            solicited: false,
            fence: false,
            to: None,
            remote_srqn: 0,
        };
        match self.end.post_send(nic, 0, &wr)? {
            true => Ok(()),
            false => Err(PerfError::failed("the send queue is full although its work requests are complete")),
        }
    }

    fn record(&mut self, now: Time) -> Result<(), PerfError> {
        let at = self.posted_at.since(self.start.unwrap_or(now));
        if at < self.window.0 || at >= self.window.1 {
            return Ok(());
        }
        let there_and_back = matches!(self.verb, Verb::Send | Verb::Write);
        let time = now.since(self.posted_at) / if there_and_back { 2 } else { 1 };
        let latency = &mut self.latency;
        (latency.min, latency.max) = (latency.min.min(time), latency.max.max(time));
        if let Some(all) = &mut latency.all {
            all.push(time);
        }
        latency.samples.record(time).map_err(PerfError::failed)
    }

    /// Time at which the next message may be posted.
    fn next_at(&self) -> Time {
        if self.posted == 0 || self.gap == 0 { Time::ZERO } else { self.posted_at + self.gap }
    }

    fn posting_ended(&self) -> bool {
        self.stop || self.iters.is_some_and(|n| self.posted >= n)
    }
}

impl End for LatencyEnd {
    #[inline]
    fn step(&mut self, now: Time, nic: &mut Nic) -> Result<usize, PerfError> {
        let (mut moved, mut arrived) = self.take(nic)?;
        let under_way = self.client() && self.posted > self.received;
        if self.verb == Verb::Write && (under_way || !self.client()) && self.poll_memory(now, nic)? {
            arrived += 1;
        }
        if arrived > 0 {
            self.received += arrived;
            moved += arrived as usize;
            self.last = now;
            if self.client() {
                self.record(now)?;
            }
        }
        if !self.client() {
            // A pong for each ping.
            while matches!(self.verb, Verb::Send | Verb::Write) && self.posted < self.received {
                self.post(now, nic)?;
                moved += 1;
            }
            return Ok(moved);
        }
        let start = *self.start.get_or_insert(now);
        self.stop |= self.duration.is_some_and(|d| now.since(start) >= d);
        if self.posted > self.received {
            return Ok(moved);
        }
        if !self.posting_ended() {
            if now >= self.next_at() && self.posted < self.completed + self.layout.local_places {
                self.post(now, nic)?;
                moved += 1;
            }
        } else if self.final_read == FinalRead::Due {
            self.final_read = FinalRead::Posted;
            self.post_wr(nic, FINAL_READ, SendOp::Read, 0, 0)?;
            moved += 1;
        }
        Ok(moved)
    }

    fn finished(&self) -> bool {
        let all_received = !self.client() || (self.posting_ended() && self.received == self.posted);
        all_received && self.posted == self.completed && self.final_read == FinalRead::Done
    }

    fn sent(&self) -> u64 {
        self.posted
    }

    fn received(&self, sent: u64) -> bool {
        !matches!(self.verb, Verb::Send | Verb::Write) || self.received >= sent
    }

    fn progress(&self) -> (u64, Option<u64>) {
        if self.client() { (self.received, self.iters) } else { (0, Some(0)) }
    }

    fn due(&self) -> Time {
        let waits = self.gap > 0 && self.client() && self.posted == self.received && !self.posting_ended();
        if waits { self.next_at() } else { Time::NEVER }
    }

    fn latency(&self) -> Option<&Latency> {
        self.client().then_some(&self.latency)
    }

    fn measured(&self) -> Measured {
        Measured {
            messages: self.latency.samples.len(),
            elapsed: self.start.map_or(0, |start| self.last.since(start)),
            peak: 0.0,
            latency: self.client().then(|| self.latency.clone()),
            pacing: None,
            events: self.end.events(),
        }
    }
}
