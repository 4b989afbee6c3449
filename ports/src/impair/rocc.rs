//! A congestion point: the fair rate of a line, and the flows notified of it.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use irnic_transports::congestion::{FairRate, FairRateConfig};
use irnic_transports::time::SEC;
use irnic_transports::wire::{Opcode, RateNotice, parse};
use irnic_transports::{Path, Time};

use super::grammar::Rate;

/// Source address of ICMP messages of a router without an address (RFC 7600).
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// A remote queue pair: its address and number.
type Peer = (Ipv4Addr, u32);

/// See the module. The line computes when each frame leaves it on arrival; here frames wait until that time.
#[derive(Debug)]
pub(super) struct Rocc {
    point: FairRate,
    line: Rate,
    /// T, ns.
    period: u64,
    /// End of the period; never while nothing waits and the rate is that of the line.
    next: Time,
    waiting: VecDeque<Waiting>,
    /// Flows with frames in `waiting`, and those that had some in this period.
    flows: BTreeMap<Peer, Flow>,
    periods: u64,
}

/// A frame in the queue, or on its way there.
#[derive(Debug)]
struct Waiting {
    joins: Time,
    leaves: Time,
    bytes: u32,
    flow: Option<Peer>,
}

#[derive(Debug)]
struct Flow {
    frames: u32,
    /// The last period at whose end it had a frame in the queue.
    seen: u64,
    /// A notice about one of its frames.
    notice: RateNotice,
}

impl Rocc {
    /// Creates the congestion point of an idle line.
    pub(super) fn new(config: &FairRateConfig, rate: Rate) -> Rocc {
        Rocc {
            point: FairRate::new(config),
            line: rate,
            period: config.period.max(1),
            next: Time::NEVER,
            waiting: VecDeque::new(),
            flows: BTreeMap::new(),
            periods: 0,
        }
    }

    /// Adds a frame of `bytes`, as `rate` counts them without its overhead, that arrived at `now`, joins the queue at
    /// `joins`, and leaves the line at `leaves`. One that is not a request of RoCEv2 over IPv4 waits like others, but
    /// without a notice.
    pub(super) fn enter(&mut self, now: Time, [joins, leaves]: [Time; 2], bytes: u32, path: &Path, frame: &[u8]) {
        let flow = peer(path, frame);
        if let Some(peer) = flow {
            match self.flows.get_mut(&peer) {
                Some(flow) => flow.frames += 1,
                None => {
                    if let Some(notice) = notice(path, frame) {
                        self.flows.insert(peer, Flow { frames: 1, seen: 0, notice });
                    }
                }
            }
        }
        let bytes = bytes.saturating_add_signed(self.line.overhead);
        self.waiting.push_back(Waiting { joins, leaves, bytes, flow });
        if self.next == Time::NEVER {
            self.next = Time((now.0 / self.period + 1).saturating_mul(self.period));
        }
    }

    /// Ends the periods that are over. Passes the notices that this sends to `each`, with their times.
    pub(super) fn end_periods(&mut self, now: Time, each: &mut dyn FnMut(Time, &RateNotice)) {
        while self.next <= now {
            let at = self.next;
            self.next = if self.end_period(at, each) { at + self.period } else { Time::NEVER };
        }
    }

    /// Ends a period. Returns whether the end of the next one has work to do.
    fn end_period(&mut self, at: Time, each: &mut dyn FnMut(Time, &RateNotice)) -> bool {
        while self.waiting.front().is_some_and(|frame| frame.leaves <= at) {
            let peer = self.waiting.pop_front().and_then(|frame| frame.flow);
            if let Some(flow) = peer.and_then(|peer| self.flows.get_mut(&peer)) {
                flow.frames -= 1;
            }
        }
        self.periods += 1;
        let mut queue = 0;
        for frame in self.waiting.iter().filter(|frame| frame.joins <= at) {
            // The remaining bytes of the first.
            let left = if queue == 0 { self.bytes(frame.leaves.since(at)) } else { u64::MAX };
            queue += u64::from(frame.bytes).min(left).max(1);
            if let Some(flow) = frame.flow.and_then(|peer| self.flows.get_mut(&peer)) {
                flow.seen = self.periods;
            }
        }
        let rate = u32::try_from(self.point.step(queue) / 1_000).unwrap_or(u32::MAX);
        let queue = u32::try_from(queue).unwrap_or(u32::MAX);
        let Rocc { flows, periods, .. } = self;
        flows.retain(|_, flow| {
            if flow.seen == *periods {
                (flow.notice.rate, flow.notice.queue) = (rate, queue);
                each(at, &flow.notice);
            }
            flow.frames > 0
        });
        !self.waiting.is_empty() || !self.point.is_at_rest()
    }

    /// Returns the bytes that the line sends in `ns`.
    fn bytes(&self, ns: u64) -> u64 {
        u64::try_from(u128::from(ns) * u128::from(self.line.bits) / u128::from(8 * SEC)).unwrap_or(u64::MAX)
    }

    /// Returns the end of the period; never if there is nothing to do then.
    pub(super) fn next_deadline(&self) -> Time {
        self.next
    }

    /// Returns the fair rate, bit/s.
    pub(super) fn rate(&self) -> u64 {
        self.point.rate()
    }
}

/// Returns the destination queue pair of a request.
fn peer(path: &Path, frame: &[u8]) -> Option<Peer> {
    let IpAddr::V4(dst) = path.dst else { return None };
    // The destination queue pair follows opcode, flags, P_Key and a reserved byte (IBA 9.2).
    let qpn = frame.get(5..8)?;
    let is_request = Opcode::from_u8(*frame.first()?)?.is_request();
    is_request.then(|| (dst, u32::from_be_bytes([0, qpn[0], qpn[1], qpn[2]])))
}

/// Returns a notice about a frame.
fn notice(path: &Path, frame: &[u8]) -> Option<RateNotice> {
    let (headers, payload) = parse(frame).ok()?;
    let mut notice = RateNotice::about(path, &headers, u32::try_from(payload.len()).ok()?)?;
    notice.from = ADDRESS;
    Some(notice)
}
