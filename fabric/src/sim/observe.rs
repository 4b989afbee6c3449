//! Observations at both ends of each connection from a given time on: payload that arrives, and round trips of segments
//! as TIMELY's senders measure them (§3.1), whether or not congestion control measures them.

use std::collections::{BTreeMap, VecDeque};

use irnic_transports::Psn;
use irnic_transports::wire::{FeedbackKind, Headers, IrnEth, Syndrome};

use super::rounds::{Round, Rounds};

/// Configuration of observations.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Observe {
    /// Start of the observation, ns.
    pub from: u64,
    /// Packets of a segment, 1 or more: sequence numbers that are a multiple of it begin a segment.
    pub segment: u32,
    /// Length of the intervals in which payload is also counted, from time 0, ns; 0 for none.
    pub interval: u64,
    /// Host whose incoming flows have their round trips measured, by its number in the topology; `None` for all flows.
    pub to: Option<u32>,
    /// Whether to measure the time from the first transmission of a packet until its sender learns of its arrival, for
    /// transports whose receivers acknowledge each packet individually (NDP).
    pub latencies: bool,
    /// Whether to record rounds of senders.
    pub rounds: bool,
}

/// Results of observations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Start and end of the observation, ns.
    pub time: (u64, u64),
    /// Payload bytes of each flow that arrived in that time, including duplicates.
    pub bytes: Vec<u64>,
    /// Payload bytes of each flow in each interval of the run, the last of which may be incomplete; nothing after a
    /// flow's last byte.
    pub intervals: Vec<Vec<u64>>,
    /// Round trips, ns, in the order in which they ended: from when the last packet of a segment leaves its NIC until
    /// its acknowledgement arrives there, less the transmission time of that packet's payload. Those in progress when
    /// something is retransmitted are omitted.
    pub round_trips: Vec<u64>,
    /// With [`Observe::latencies`], ns, in the order in which they ended: from when a packet first leaves its NIC, no
    /// earlier than [`Observe::from`], until its acknowledgement reaches that NIC.
    pub latencies: Vec<u64>,
    /// With [`Observe::rounds`], of all flows whose round trips are measured, in the order in which they ended.
    pub rounds: Vec<Round>,
    /// PFC frames that arrived in that time.
    pub pfc_frames: u64,
}

/// Observes packets as they leave and reach NICs.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    what: Observe,
    observed: Observed,
    /// Flows by host and queue pair number.
    sources: BTreeMap<(u32, u32), u32>,
    sinks: BTreeMap<(u32, u32), u32>,
    /// By flow.
    senders: Vec<Sender>,
}

/// Outstanding packets of a sender.
#[derive(Clone, Debug, Default)]
struct Sender {
    /// The last packet sent for the first time.
    high: Option<Psn>,
    /// Whether its round trips are measured.
    counts: bool,
    /// Last packets of segments without acknowledgement, with the times at which their payload had left.
    waiting: VecDeque<(Psn, u64)>,
    /// Times of the first transmission of unacknowledged packets, by sequence number.
    first: BTreeMap<u32, u64>,
    rounds: Rounds,
}

impl Observer {
    pub(super) fn new(what: Observe, flows: usize) -> Observer {
        let observed = Observed { bytes: vec![0; flows], intervals: vec![Vec::new(); flows], ..Observed::default() };
        let senders = vec![Sender::default(); flows];
        Observer { what, observed, sources: BTreeMap::new(), sinks: BTreeMap::new(), senders }
    }

    /// Registers the queue pairs of a flow, as hosts and numbers. With `own` they belong to this flow, even if others
    /// had these numbers before; otherwise to the first flow that used them.
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

    /// Records a packet for `dst` that leaves its NIC by a link of `rate`, bit/s.
    pub(super) fn sent(&mut self, now: u64, rate: u64, dst: u32, headers: &Headers, payload: u32) {
        let Some(&flow) = self.sinks.get(&(dst, headers.bth.dest_qp)) else { return };
        if payload == 0 {
            return;
        }
        let psn = headers.bth.psn;
        let sender = &mut self.senders[flow as usize];
        if sender.high.is_some_and(|high| !high.before(psn)) {
            // A retransmission: pending acknowledgements would include its delay.
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

    /// Records a packet that reached its host, possibly marked by switches.
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
        // Of several that end together, the latest best reflects the current state of the network.
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

    /// Ends the observation, during which `pfc_frames` arrived.
    pub(super) fn finish(mut self, now: u64, pfc_frames: u64) -> Observed {
        self.observed.pfc_frames = pfc_frames;
        self.observed.time = (self.what.from.min(now), now);
        self.observed
    }
}
