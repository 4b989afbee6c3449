//! Bandwidth: as many outstanding messages as the queue holds, checked on arrival.

use irnic_nic::{Mr, Nic};
use irnic_transports::Time;
use irnic_transports::qp::{SendData, SendOp, SendWr, Sge, Wc};

use crate::end::{End, Measured};
use crate::endpoint::{BATCH, CONTROLS, Endpoint};
use crate::error::PerfError;
use crate::layout::{Layout, bytes, bytes_mut};
use crate::pacing::Windows;
use crate::pattern::{Corrupted, Stream};
use crate::peak::Peak;
use crate::plan::{Plan, Verb};
use crate::variable::{FinalRead, Variable};
use crate::window::Window;

/// Work request ids of control messages and of the final read of an atomic variable; messages count from 0.
const CONTROL: u64 = 1 << 63;
const FINAL_READ: u64 = CONTROL | 1;
/// A verified WRITE's control messages are empty SENDs, which are ordered after the preceding WRITEs. Their immediate
/// data counts messages: those announced by the initiator, or with this bit, those checked by the target.
const CHECKED: u32 = 1 << 31;

/// One queue pair's messages, in both roles.
#[derive(Clone, Debug)]
struct Flow {
    /// Stream that this end sends or requests, and that of the other end.
    out: Stream,
    inn: Stream,
    posted: u64,
    completed: u64,
    /// Whether the last posted message is signaled.
    signaled: bool,
    /// Number of the next signaled message, by `cq_mod`.
    signal_at: u64,
    /// Verified WRITE: messages announced to the target, and those confirmed by it.
    announced: u64,
    confirmed: u64,
    /// As target: messages that arrived and were checked, and those reported to the initiator.
    received: u64,
    answered: u64,
    /// Receives waiting until a full list can be posted.
    unposted: Vec<u64>,
    variable: Variable,
    final_read: FinalRead,
    /// Whether it is in the list of ready queue pairs.
    queued: bool,
    /// Whether nothing is left to do as initiator.
    finished: bool,
}

/// One end of a bandwidth test.
pub struct Bandwidth {
    end: Endpoint,
    verb: Verb,
    size: u32,
    verify: bool,
    initiator: bool,
    depth: u64,
    cq_mod: u64,
    post_list: u64,
    /// Buffer for inline messages.
    inline: Option<Vec<u8>>,
    layout: Layout,
    /// Number of messages of a queue pair, including warm-up; `None`: something else ends the run.
    iters: Option<u64>,
    /// Duration, ns.
    duration: Option<u64>,
    window: Window,
    /// Number of receives posted at a time.
    recv_post_list: u64,
    flows: Vec<Flow>,
    /// Queue pairs that may have something to post, and the spare half of the double buffer.
    ready: Vec<u32>,
    spare: Vec<u32>,
    /// Number of unfinished queue pairs.
    unfinished: usize,
    completed: u64,
    received: u64,
    start: Option<Time>,
    last: Time,
    /// Whether time is up.
    stop: bool,
    peak: Peak,
    /// Rate limit of all queue pairs together, bit/s, and measurement of what leaves.
    windows: Option<(f64, Windows)>,
    wcs: [Wc; BATCH],
}

impl Bandwidth {
    /// Initializes an end: fills the memory to be read, posts receive requests.
    pub fn new(plan: &Plan, size: u32, end: Endpoint, nic: &mut Nic) -> Result<Bandwidth, PerfError> {
        let (initiator, target) = plan.roles(end.side);
        let verb = plan.test.verb();
        let iters = plan.length.messages().map(|n| n + plan.warm_up);
        let total = iters.map(|n| n.saturating_mul(plan.qps as u64));
        let side = end.side;
        let cq_mod = u64::from(plan.cq_mod(size));
        let flow = |qp| {
            let (out, inn) = (Stream::new(plan.seed, side, qp), Stream::new(plan.seed, 1 - side, qp));
            Flow {
                out,
                inn,
                posted: 0,
                completed: 0,
                signaled: true,
                signal_at: cq_mod - 1,
                announced: 0,
                confirmed: 0,
                received: 0,
                answered: 0,
                unposted: Vec::new(),
                variable: Variable::new(out, plan.atomic),
                final_read: FinalRead::of(verb == Verb::Atomic && plan.verify && initiator),
                queued: initiator,
                finished: !initiator,
            }
        };
        let mut this = Bandwidth {
            verb,
            size,
            verify: plan.verify,
            initiator,
            depth: plan.depth(size).into(),
            cq_mod,
            post_list: u64::from(plan.post_list).min(plan.depth(size).into()),
            inline: (size <= plan.inline).then(|| vec![0; size as usize]),
            layout: Layout::new(plan, size),
            iters,
            duration: plan.length.duration().map(|d| d.as_nanos() as u64),
            window: Window::new(plan),
            recv_post_list: plan.recv_post_list.into(),
            flows: (0..plan.qps).map(flow).collect(),
            ready: if initiator { (0..plan.qps as u32).collect() } else { Vec::new() },
            spare: Vec::new(),
            unfinished: if initiator { plan.qps } else { 0 },
            completed: 0,
            received: 0,
            start: None,
            last: Time::ZERO,
            stop: false,
            peak: Peak::new(total.filter(|_| initiator && plan.peak)),
            windows: plan.rate_limit.filter(|_| initiator).map(|r| (r as f64 * plan.qps as f64, Windows::default())),
            wcs: [Wc::EMPTY; BATCH],
            end,
        };
        this.prepare(nic, target)?;
        Ok(this)
    }

    /// Fills the memory that the other end reads or changes, and posts receive requests.
    fn prepare(&mut self, nic: &mut Nic, target: bool) -> Result<(), PerfError> {
        for qp in 0..self.flows.len() {
            let inn = self.flows[qp].inn;
            let receives = match self.verb {
                // A shared queue has all of them from the start.
                Verb::Send if self.end.srq.is_some() && qp > 0 => 0,
                Verb::Send if target => self.layout.receives,
                Verb::Write => CONTROLS,
                _ => 0,
            };
            for number in 0..u64::from(receives) {
                self.post_recv(nic, qp, number)?;
            }
            match self.verb {
                Verb::Read if target => {
                    for place in 0..self.layout.remote_places {
                        let at = self.layout.remote(qp, place);
                        inn.fill(place, bytes_mut(nic, self.end.remote(qp), at, self.size)?);
                    }
                }
                Verb::Atomic if target => {
                    let first = Variable::first(inn).to_ne_bytes();
                    bytes_mut(nic, self.end.remote(qp), self.layout.remote(qp, 0), 8)?.copy_from_slice(&first);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Posts the `number`-th receive.
    #[inline]
    fn post_recv(&self, nic: &mut Nic, qp: usize, number: u64) -> Result<(), PerfError> {
        if self.verb != Verb::Send {
            return self.end.post_recv(nic, qp, number, 0, 0);
        }
        let at = self.layout.remote(qp, number);
        self.end.post_recv(nic, qp, number, self.end.remote(qp).addr + at, self.size)
    }

    /// Checks that message `number` holds the `content`-th of a stream.
    #[inline]
    fn check(
        &self,
        nic: &Nic,
        (mr, at): (&Mr, u64),
        (from, content): (Stream, u64),
        qp: usize,
        number: u64,
    ) -> Result<(), PerfError> {
        from.check(content, bytes(nic, mr, at, self.size)?).map_err(|offset| self.corrupted(qp, number, offset))
    }

    #[cold]
    fn corrupted(&self, qp: usize, number: u64, offset: usize) -> PerfError {
        PerfError::failed(Corrupted { qp, number, offset, len: self.size as usize })
    }

    #[inline]
    fn enqueue(&mut self, qp: usize) {
        if !std::mem::replace(&mut self.flows[qp].queued, true) {
            self.ready.push(qp as u32);
        }
    }

    /// Whether a queue pair will post no more messages.
    #[inline]
    fn posting_ended(&self, flow: &Flow) -> bool {
        match self.iters {
            Some(iters) => flow.posted >= iters,
            // The last message must be signaled.
            None => self.stop && flow.signaled,
        }
    }

    fn take_sent(&mut self, now: Time, nic: &mut Nic) -> Result<usize, PerfError> {
        let n = self.end.poll(nic, self.end.send_cq, &mut self.wcs)?;
        for i in 0..n {
            let wc = self.wcs[i];
            let qp = (wc.qp_num - self.end.first_qpn) as usize;
            match wc.wr_id {
                // A slot is free, possibly awaited.
                CONTROL => {
                    self.enqueue(qp);
                    continue;
                }
                FINAL_READ => {
                    let at = self.layout.local(qp, 0);
                    self.expect_value(nic, qp, self.flows[qp].completed, at, self.flows[qp].variable.last())?;
                    self.flows[qp].final_read = FinalRead::Done;
                }
                number => {
                    let before = self.flows[qp].completed;
                    if self.verify && matches!(self.verb, Verb::Read | Verb::Atomic) {
                        for number in before..=number {
                            self.check_returned(nic, qp, number)?;
                        }
                    }
                    self.flows[qp].completed = number + 1;
                    self.completed += number + 1 - before;
                    self.peak.completed(now, self.completed);
                }
            }
            self.last = now;
            self.enqueue(qp);
        }
        Ok(n)
    }

    /// Checks the data returned by a READ or an atomic.
    fn check_returned(&mut self, nic: &Nic, qp: usize, number: u64) -> Result<(), PerfError> {
        let at = self.layout.local(qp, number);
        if self.verb == Verb::Read {
            let place = number % self.layout.remote_places;
            return self.check(nic, (self.end.local(qp), at), (self.flows[qp].out, place), qp, number);
        }
        let value = self.flows[qp].variable.complete();
        self.expect_value(nic, qp, number, at, value)
    }

    fn expect_value(&self, nic: &Nic, qp: usize, number: u64, at: u64, value: u64) -> Result<(), PerfError> {
        let found = bytes(nic, self.end.local(qp), at, 8)?;
        match found.iter().zip(value.to_ne_bytes()).position(|(&a, b)| a != b) {
            Some(offset) => Err(self.corrupted(qp, number, offset)),
            None => Ok(()),
        }
    }

    fn take_received(&mut self, now: Time, nic: &mut Nic) -> Result<usize, PerfError> {
        let n = self.end.poll(nic, self.end.recv_cq, &mut self.wcs)?;
        for i in 0..n {
            let wc = self.wcs[i];
            let qp = (wc.qp_num - self.end.first_qpn) as usize;
            if self.verb == Verb::Send {
                let (number, inn) = (self.flows[qp].received, self.flows[qp].inn);
                if self.verify {
                    if wc.byte_len != self.size {
                        return Err(self.corrupted(qp, number, wc.byte_len.min(self.size) as usize));
                    }
                    let at = (self.end.remote(qp), self.layout.remote(qp, wc.wr_id));
                    self.check(nic, at, (inn, number), qp, number)?;
                }
                self.flows[qp].received += 1;
                self.received += 1;
                self.repost(nic, qp, wc.wr_id + u64::from(self.layout.receives))?;
            } else {
                self.post_recv(nic, qp, wc.wr_id)?;
                self.take_control(now, nic, qp, wc.imm.unwrap_or(0))?;
            }
        }
        Ok(n)
    }

    /// Posts the `number`-th receive, once a full list is available.
    #[inline]
    fn repost(&mut self, nic: &mut Nic, qp: usize, number: u64) -> Result<(), PerfError> {
        if self.recv_post_list == 1 {
            return self.post_recv(nic, qp, number);
        }
        let queue = if self.end.srq.is_some() { 0 } else { qp };
        self.flows[queue].unposted.push(number);
        if self.flows[queue].unposted.len() as u64 >= self.recv_post_list {
            let mut list = std::mem::take(&mut self.flows[queue].unposted);
            for number in list.drain(..) {
                self.post_recv(nic, qp, number)?;
            }
            self.flows[queue].unposted = list;
        }
        Ok(())
    }

    /// Handles a control message of a verified WRITE.
    fn take_control(&mut self, now: Time, nic: &Nic, qp: usize, imm: u32) -> Result<(), PerfError> {
        let count = |since: u64| since + u64::from(imm.wrapping_sub(since as u32) & (CHECKED - 1));
        if imm & CHECKED != 0 {
            self.flows[qp].confirmed = count(self.flows[qp].confirmed);
            self.last = now;
        } else {
            let (before, inn) = (self.flows[qp].received, self.flows[qp].inn);
            let after = count(before);
            for number in before..after {
                let at = (self.end.remote(qp), self.layout.remote(qp, number));
                self.check(nic, at, (inn, number), qp, number)?;
            }
            self.flows[qp].received = after;
            self.received += after - before;
        }
        self.enqueue(qp);
        Ok(())
    }

    /// Posts what a queue pair may post. Returns the number of messages, and whether the queue was full.
    fn post(&mut self, now: Time, nic: &mut Nic, qp: usize) -> Result<(usize, bool), PerfError> {
        let controlled = self.verify && self.verb == Verb::Write;
        let mut posted = 0;
        if controlled && self.flows[qp].answered < self.flows[qp].received {
            let checked = self.flows[qp].received;
            if !self.post_control(nic, qp, checked as u32 | CHECKED)? {
                return Ok((posted, true));
            }
            self.flows[qp].answered = checked;
            posted += 1;
        }
        if self.flows[qp].finished {
            return Ok((posted, false));
        }
        loop {
            let flow = &self.flows[qp];
            let ended = self.posting_ended(flow);
            let done = if controlled { flow.completed.min(flow.confirmed) } else { flow.completed };
            let room = done + self.depth - flow.posted;
            let list = self.post_list.min(self.iters.map_or(u64::MAX, |n| n - flow.posted));
            let blocked = ended || room < list;
            if controlled {
                let news = flow.posted - flow.announced;
                // Announcements of less than half of the places are deferred, unless nothing else would make progress.
                if news > 0 && (news >= self.depth.div_ceil(2) || blocked && flow.confirmed == flow.announced) {
                    let all = flow.posted;
                    if !self.post_control(nic, qp, all as u32 & (CHECKED - 1))? {
                        return Ok((posted, true));
                    }
                    self.flows[qp].announced = all;
                    posted += 1;
                }
            }
            if blocked {
                break;
            }
            for left in (0..list).rev() {
                self.post_message(now, nic, qp, left == 0 && self.post_list > 1)?;
            }
            posted += list as usize;
        }
        let flow = &self.flows[qp];
        if self.posting_ended(flow) && flow.completed == flow.posted && (!controlled || flow.confirmed == flow.posted) {
            match flow.final_read {
                FinalRead::Done => {
                    self.flows[qp].finished = true;
                    self.unfinished -= 1;
                }
                FinalRead::Due => {
                    self.flows[qp].final_read = FinalRead::Posted;
                    self.post_read_of_variable(nic, qp)?;
                    posted += 1;
                }
                FinalRead::Posted => {}
            }
        }
        Ok((posted, false))
    }

    fn post_control(&self, nic: &mut Nic, qp: usize, imm: u32) -> Result<bool, PerfError> {
        let wr = SendWr {
            wr_id: CONTROL,
            op: SendOp::SendImm(imm),
            data: SendData::Sges(&[]),
            remote_addr: 0,
            rkey: 0,
            // Polling its completion frees the slot.
            signaled: true,
            solicited: false,
            fence: false,
            to: None,
            remote_srqn: 0,
        };
        self.end.post_send(nic, qp, &wr)
    }

    fn post_read_of_variable(&self, nic: &mut Nic, qp: usize) -> Result<(), PerfError> {
        let addr = self.end.local(qp).addr + self.layout.local(qp, 0);
        let wr = SendWr {
            wr_id: FINAL_READ,
            op: SendOp::Read,
            data: SendData::Sges(&[Sge { addr, len: 8, lkey: self.end.local(qp).lkey }]),
            remote_addr: self.end.target(qp).0 + self.layout.remote(qp, 0),
            rkey: self.end.target(qp).1,
            signaled: true,
            solicited: false,
            fence: false,
            to: None,
            remote_srqn: 0,
        };
        self.must_post(nic, qp, &wr)
    }

    #[inline]
    fn must_post(&self, nic: &mut Nic, qp: usize, wr: &SendWr<'_>) -> Result<(), PerfError> {
        match self.end.post_send(nic, qp, wr)? {
            true => Ok(()),
            false => Err(PerfError::failed("the send queue is full although its work requests are complete")),
        }
    }

    #[inline]
    fn post_message(&mut self, now: Time, nic: &mut Nic, qp: usize, end_of_list: bool) -> Result<(), PerfError> {
        let flow = &self.flows[qp];
        let (number, out) = (flow.posted, flow.out);
        let moderated = number == flow.signal_at;
        let at = self.layout.local(qp, number);
        let op = match self.verb {
            Verb::Send => SendOp::Send,
            Verb::Write => SendOp::Write,
            Verb::Read => SendOp::Read,
            Verb::Atomic => self.flows[qp].variable.post(),
        };
        let signaled = moderated || self.iters == Some(number + 1) || end_of_list;
        if self.verify && matches!(self.verb, Verb::Send | Verb::Write) {
            match &mut self.inline {
                Some(bytes) => out.fill(number, bytes),
                None => out.fill(number, bytes_mut(nic, self.end.local(qp), at, self.size)?),
            }
        }
        let sges = [Sge { addr: self.end.local(qp).addr + at, len: self.size, lkey: self.end.local(qp).lkey }];
        let wr = SendWr {
            wr_id: number,
            op,
            data: self.inline.as_ref().map_or(SendData::Sges(&sges), |bytes| SendData::Inline(bytes)),
            remote_addr: self.end.target(qp).0 + self.layout.remote(qp, number),
            rkey: self.end.target(qp).1,
            signaled,
            solicited: false,
            fence: false,
            to: None,
            remote_srqn: 0,
        };
        self.must_post(nic, qp, &wr)?;
        let flow = &mut self.flows[qp];
        flow.posted += 1;
        flow.signaled = signaled;
        if moderated {
            flow.signal_at += self.cq_mod;
        }
        self.peak.posted(now);
        Ok(())
    }
}

impl End for Bandwidth {
    #[inline]
    fn step(&mut self, now: Time, nic: &mut Nic) -> Result<usize, PerfError> {
        let mut moved = self.take_sent(now, nic)? + self.take_received(now, nic)?;
        if self.initiator && self.unfinished > 0 {
            let start = *self.start.get_or_insert(now);
            self.window.update(now, start, self.completed);
            if !self.stop && self.duration.is_some_and(|d| now.since(start) >= d) {
                self.stop = true;
                // Idle queue pairs must now finish.
                (0..self.flows.len()).for_each(|qp| self.enqueue(qp));
            }
            if let Some((_, windows)) = &mut self.windows
                && !self.stop
            {
                windows.update(now, nic.counters().sent_bytes);
            }
        }
        if self.ready.is_empty() {
            return Ok(moved);
        }
        let mut list = std::mem::replace(&mut self.ready, std::mem::take(&mut self.spare));
        for qp in list.drain(..) {
            self.flows[qp as usize].queued = false;
            let (posted, full) = self.post(now, nic, qp as usize)?;
            moved += posted;
            if full {
                self.enqueue(qp as usize);
            }
        }
        self.spare = list;
        Ok(moved)
    }

    fn finished(&self) -> bool {
        self.unfinished == 0
    }

    fn sent(&self) -> u64 {
        self.completed
    }

    fn received(&self, sent: u64) -> bool {
        self.verb != Verb::Send || self.received >= sent
    }

    fn progress(&self) -> (u64, Option<u64>) {
        let flows = if self.initiator { self.flows.len() as u64 } else { 0 };
        (self.completed, self.iters.map(|n| n * flows))
    }

    fn measured(&self) -> Measured {
        let (messages, elapsed) = self.window.measured(self.start.unwrap_or(self.last), self.last, self.completed);
        Measured {
            messages,
            elapsed,
            peak: self.peak.per_second(),
            latency: None,
            pacing: self.windows.as_ref().and_then(|(rate, windows)| windows.pacing(*rate)),
            events: self.end.events(),
        }
    }
}
