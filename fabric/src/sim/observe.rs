//! What the two ends of each connection see of a run from some time on: payload that arrives, and round trips of
//! segments as TIMELY's senders measure them (§3.1), whether or not congestion control is there to do it.

use std::collections::{BTreeMap, VecDeque};

use irnic_transports::Psn;
use irnic_transports::wire::{FeedbackKind, Headers, IrnEth, Syndrome};

use super::rounds::{Round, Rounds};

/// What is to be observed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Observe {
    /// What comes earlier does not count, ns.
    pub from: u64,
    /// Packets of a segment, 1 or more: sequence numbers that are a multiple of it begin one.
    pub segment: u32,
    /// Payload is also counted by intervals of so many ns, from time 0 on; 0 for none.
    pub interval: u64,
    /// Round trips are those of flows to this host, by its number in the topology; of all flows without one.
    pub to: Option<u32>,
    /// The time from when a packet is first sent to when its sender knows that it has arrived is noted, of transports
    /// whose receivers name each packet (NDP).
    pub latencies: bool,
    /// Rounds of senders are noted.
    pub rounds: bool,
}

/// What was observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// From when to when, ns.
    pub time: (u64, u64),
    /// Payload bytes of each flow that arrived in that time, repetitions included.
    pub bytes: Vec<u64>,
    /// Payload bytes of each flow in each interval of the run, the last of which may be a part of one; nothing after a
    /// flow's last byte.
    pub intervals: Vec<Vec<u64>>,
    /// Round trips, ns, in the order in which they ended: from when the last packet of a segment leaves its NIC to when
    /// its acknowledgement arrives there, less what sending that packet's payload takes. None of those under way when
    /// something is sent again.
    pub round_trips: Vec<u64>,
    /// With [`Observe::latencies`], ns, in the order in which they ended: from when a packet leaves its NIC for the
    /// first time, no earlier than [`Observe::from`], to when the answer that it has arrived reaches that NIC.
    pub latencies: Vec<u64>,
    /// With [`Observe::rounds`], of all flows whose round trips are observed, in the order in which they ended.
    pub rounds: Vec<Round>,
    /// PFC frames that arrived in that time.
    pub pfc_frames: u64,
}

/// Observes packets as they leave and reach NICs.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    what: Observe,
    observed: Observed,
    /// Flows by host and number of the queue pair.
    sources: BTreeMap<(u32, u32), u32>,
    sinks: BTreeMap<(u32, u32), u32>,
    /// By flow.
    senders: Vec<Sender>,
}

/// What a sender has under way.
#[derive(Clone, Debug, Default)]
struct Sender {
    /// The last packet that was new.
    high: Option<Psn>,
    /// Its round trips are observed.
    counts: bool,
    /// Last packets of segments that are not acknowledged, and when their payload had left.
    waiting: VecDeque<(Psn, u64)>,
    /// When packets that are not answered were first sent, by their numbers.
    first: BTreeMap<u32, u64>,
    rounds: Rounds,
}

impl Observer {
    pub(super) fn new(what: Observe, flows: usize) -> Observer {
        let observed = Observed { bytes: vec![0; flows], intervals: vec![Vec::new(); flows], ..Observed::default() };
        let senders = vec![Sender::default(); flows];
        Observer { what, observed, sources: BTreeMap::new(), sinks: BTreeMap::new(), senders }
    }

    /// A flow has queue pairs at its ends: hosts and numbers. They are its `own`, even if there were others with these
    /// numbers before, or those of the first flow that has had them.
    pub(super) fn connected(&mut self, flow: u32, source: (u32, u32), sink: (u32, u32), own: bool) {
        let flows = self.senders.len().max(flow as usize + 1);
        self.senders.resize(flows, Sender::default());
        self.observed.bytes.resize(flows, 0);
        self.observed.intervals.resize(flows, Vec::new());
        self.senders[flow as usize].counts = self.what.to.is_none_or(|to| to == sink.0);
        for (flows, end) in [(&mut self.sources, source), (&mut self.sinks, sink)] {
            let of = flows.entry(end).or_insert(flow);
            if own {
                *of = flow;
            }
        }
    }

    /// A packet for `dst` leaves its NIC by a link of `rate`, bit/s.
    pub(super) fn sent(&mut self, now: u64, rate: u64, dst: u32, headers: &Headers, payload: u32) {
        let Some(&flow) = self.sinks.get(&(dst, headers.bth.dest_qp)) else { return };
        if payload == 0 {
            return;
        }
        let psn = headers.bth.psn;
        let sender = &mut self.senders[flow as usize];
        if sender.high.is_some_and(|high| !high.before(psn)) {
            // Sent again: what waits for its acknowledgement would have waited for that, too.
            sender.waiting.clear();
            return;
        }
        sender.high = Some(psn);
        if self.what.latencies && now >= self.what.from {
            sender.first.insert(psn.get(), now);
        }
        if psn.plus(1).get().is_multiple_of(self.what.segment.max(1)) {
            sender.waiting.push_back((psn, now + u64::from(payload) * 8_000_000_000 / rate.max(1)));
        }
    }

    /// A packet has reached its host, and switches may have marked it.
    pub(super) fn arrived(&mut self, now: u64, host: u32, headers: &Headers, payload: u32, marked: bool) {
        let at = (host, headers.bth.dest_qp);
        if payload > 0 {
            if let Some(&flow) = self.sinks.get(&at) {
                self.payload(now, flow as usize, payload.into());
                if marked && self.what.rounds {
                    self.senders[flow as usize].rounds.marked(headers.bth.psn);
                }
            }
            return;
        }
        let Some(aeth) = headers.aeth else { return };
        let (Some(Syndrome::Ack { .. }), Some(&flow)) = (Syndrome::from_u8(aeth.syndrome), self.sources.get(&at))
        else {
            return;
        };
        if self.what.latencies
            && let Some(IrnEth::Feedback { kind, subject, .. }) = headers.irn
            && kind.has(FeedbackKind::ARRIVED)
            && let Some(first) = self.senders[flow as usize].first.remove(&subject.get())
        {
            self.observed.latencies.push(now - first);
        }
        let waiting = &mut self.senders[flow as usize].waiting;
        let mut left = None;
        while waiting.front().is_some_and(|(psn, _)| !headers.bth.psn.before(*psn)) {
            left = waiting.pop_front();
        }
        let trip = left.map(|(_, left)| now.saturating_sub(left).max(1));
        let sender = &mut self.senders[flow as usize];
        if self.what.rounds
            && let Some(high) = sender.high
            && let Some(round) = sender.rounds.acknowledged(headers.bth.psn, high, trip)
            && now >= self.what.from
            && sender.counts
        {
            self.observed.rounds.push(round);
        }
        // Of several that end together the latest says most of the network as it is.
        if let Some(trip) = trip
            && now >= self.what.from
            && self.senders[flow as usize].counts
        {
            self.observed.round_trips.push(trip);
        }
    }

    fn payload(&mut self, now: u64, flow: usize, bytes: u64) {
        if now >= self.what.from {
            self.observed.bytes[flow] += bytes;
        }
        if let Some(interval) = now.checked_div(self.what.interval) {
            let intervals = &mut self.observed.intervals[flow];
            if intervals.len() <= interval as usize {
                intervals.resize(interval as usize + 1, 0);
            }
            intervals[interval as usize] += bytes;
        }
    }

    /// The run is over; so many PFC frames came while it was observed.
    pub(super) fn finish(mut self, now: u64, pfc_frames: u64) -> Observed {
        self.observed.pfc_frames = pfc_frames;
        self.observed.time = (self.what.from.min(now), now);
        self.observed
    }
}
