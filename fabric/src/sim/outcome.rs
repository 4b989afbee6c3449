//! Results of a run.

use irnic_nic::Nic;
use irnic_transports::qp::Counters;

use super::ideal::{ideal, packets};
use super::{LinkRecord, Observed, SAMPLE, SimError, Site};
use crate::network::{Agenda, NetworkError, PortCounters, PortId, Totals};
use crate::schedule::Schedule;
use crate::switch::{BreakerCounters, EscapeCounters, HolConfig, SharedBufferConfig, SwitchConfig};
use crate::workload::Flow;

/// A flow's record.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowRecord {
    /// Time at which the receiver had all of it, ns.
    pub delivered: Option<u64>,
    /// Time at which the sender knew, ns; of an open-loop flow, the time at which its last packet began to leave.
    pub acknowledged: Option<u64>,
    /// Completion time in an empty network, including the connection's setup, ns.
    pub ideal: u64,
    /// Packets sent again, if the flow had a queue pair of its own.
    pub retransmitted: u64,
    /// Timeouts, if the flow had a queue pair of its own.
    pub timeouts: u64,
    /// For a response, the start time of its request, ns.
    pub called: Option<u64>,
    /// Time to set up the connection beforehand, ns ([`SimConfig::setup_rtts`]).
    ///
    /// [`SimConfig::setup_rtts`]: super::SimConfig::setup_rtts
    pub setup: u64,
}

impl FlowRecord {
    pub(super) fn note(&mut self, nic: &Nic, qpn: u32) {
        if let Some(counts) = nic.qp(qpn).map(|qp| qp.counts()) {
            self.retransmitted = counts.retransmitted;
            self.timeouts = counts.timeouts;
        }
    }

    /// Flow completion time, ns: from the start to the last byte at the receiver, plus the time to set up the
    /// connection.
    pub fn fct(&self, flow: &Flow) -> Option<u64> {
        self.delivered.map(|at| at - flow.start + self.setup)
    }

    /// For a response, the time of the whole call, ns: from the start of the request to the last byte of the response
    /// at the client.
    pub fn call(&self) -> Option<u64> {
        Some(self.delivered? - self.called?)
    }

    /// Flow completion time in units of that in an empty network.
    pub fn slowdown(&self, flow: &Flow) -> Option<f64> {
        self.fct(flow).map(|fct| fct as f64 / self.ideal.max(1) as f64)
    }
}

/// The network at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time, ns.
    pub at: u64,
    /// Bytes in all switches.
    pub buffered: u64,
    /// Bytes queued for the port with the longest queue.
    pub longest: u64,
    /// Paused ports.
    pub stopped: u32,
    /// Payload bytes delivered so far, including duplicates.
    pub delivered: u64,
    /// Payload bytes that NICs have taken so far, each once.
    pub placed: u64,
    /// Flows in progress.
    pub active: u32,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Ending {
    /// All flows are complete.
    Complete,
    /// The end time was reached.
    TimeUp,
    /// A cycle of ports that wait for each other forever.
    Deadlock(Vec<PortId>),
    /// No event would ever come, without a deadlock: packets were lost and there is no timer.
    Stuck,
}

/// Packets of each colour (TLT): sent and dropped.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ColourTotals {
    /// Packets that NICs sent red, and their bytes on the wire.
    pub red: (u64, u64),
    /// Packets with payload that NICs sent green, and their bytes on the wire.
    pub green_data: (u64, u64),
    /// Packets without payload, all of them green, and their bytes on the wire.
    pub control: (u64, u64),
    /// Red packets dropped by switches.
    pub red_dropped: u64,
    /// Green packets with payload dropped by switches.
    pub green_dropped: u64,
    /// Packets without payload dropped by switches.
    pub control_dropped: u64,
    /// Largest number of bytes of red packets in one queue.
    pub red_peak: u64,
}

impl ColourTotals {
    fn of(t: &Totals, links: &[LinkRecord]) -> ColourTotals {
        let sum = |of: fn(&PortCounters) -> u64| links.iter().map(|link| of(&link.counters)).sum();
        ColourTotals {
            red: (t.red_packets, t.red_bytes),
            green_data: (
                t.injected_packets - t.red_packets - t.control_packets,
                t.injected_bytes - t.red_bytes - t.control_bytes,
            ),
            control: (t.control_packets, t.control_bytes),
            red_dropped: sum(|c| c.red_dropped),
            green_dropped: sum(|c| c.green_dropped),
            control_dropped: sum(|c| c.control_dropped),
            red_peak: links.iter().map(|link| link.counters.red_peak).max().unwrap_or(0),
        }
    }

    /// Share of the green packets, including those without payload, that were dropped, 0 to 1.
    pub fn green_loss_rate(&self) -> f64 {
        let (lost, sent) = (self.green_dropped + self.control_dropped, self.green_data.0 + self.control.0);
        lost as f64 / sent.max(1) as f64
    }

    /// Share of the bytes on the wire of packets with payload that are green, 0 to 1.
    pub fn green_share(&self) -> f64 {
        self.green_data.1 as f64 / (self.green_data.1 + self.red.1).max(1) as f64
    }
}

/// Results of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// How the run ended.
    pub ending: Ending,
    /// Time at which the run ended, ns.
    pub ended: u64,
    /// The flows.
    pub flows: Vec<Flow>,
    /// Records of the flows, in the same order.
    pub records: Vec<FlowRecord>,
    /// Packets that NICs sent, and their bytes on the wire.
    pub injected: (u64, u64),
    /// Packets that reached NICs.
    pub delivered: (u64, u64),
    /// Packets that switches dropped, and their bytes on the wire.
    pub dropped: (u64, u64),
    /// Packets trimmed by switches, and the bytes cut.
    pub trimmed: (u64, u64),
    /// Packets created by switches, and their bytes on the wire.
    pub emitted: (u64, u64),
    /// Packets lost on links.
    pub lost: (u64, u64),
    /// Payload bytes that reached NICs, including duplicates.
    pub payload: u64,
    /// Integral over time of the bytes in the network, byte · ns. Divided by [`Self::ended`]: the average.
    pub byte_time: u128,
    /// Time that packets spent in the network, until they left it or the run ended, times their bytes, byte · ns.
    pub stay: u128,
    /// Packets by colour, if switches use colours.
    pub colours: Option<ColourTotals>,
    /// Packets that left switches under a policy that had been replaced, and their bytes on the wire; if policies
    /// change.
    pub drained: Option<(u64, u64)>,
    /// Counters of Escape, if switches have it.
    pub escape: Option<EscapeCounters>,
    /// Counters of loop breakers, if switches have them.
    pub breaker: Option<BreakerCounters>,
    /// PFC frames that arrived.
    pub pfc_frames: u64,
    /// Links, both directions of each.
    pub links: Vec<LinkRecord>,
    /// Sums of the counters of all NICs.
    pub nics: Counters,
    /// Samples of the network at intervals.
    pub samples: Vec<Sample>,
    /// The network at the end of the run.
    pub last: Sample,
    /// Observations at the ends of connections, if requested.
    pub observed: Option<Observed>,
    /// Times at which packets entered and left the network, if requested ([`super::SimConfig::schedule`]).
    pub schedule: Option<Schedule>,
    /// Events handled.
    pub events: u64,
    /// Ports in a deadlock, as pairs of nodes.
    pub deadlock: Vec<(u32, u32)>,
    /// Time at which a deadlock was first found, ns, whether or not the run ended then.
    pub deadlocked_at: Option<u64>,
}

impl Outcome {
    /// Sum over packets of links crossed.
    pub fn packet_hops(&self) -> u64 {
        self.links.iter().map(|l| l.counters.packets).sum()
    }

    /// Total time for which ports were paused, ns.
    pub fn paused(&self) -> u64 {
        self.links.iter().map(|l| l.counters.paused).sum()
    }

    /// Share of the packets sent that were dropped.
    pub fn drop_rate(&self) -> f64 {
        self.dropped.0 as f64 / self.injected.0.max(1) as f64
    }
}

impl<A: Agenda> Site<A> {
    /// Samples the network, and schedules the next sample.
    pub(super) fn sample(&mut self) {
        let Some(every) = self.config.sample else { return };
        self.samples.push(self.take_sample());
        self.net.observe_at(self.net.now() + every, SAMPLE);
    }

    fn take_sample(&self) -> Sample {
        let (buffered, longest) = self.net.backlog();
        Sample {
            at: self.net.now(),
            buffered,
            longest,
            stopped: self.net.ports().iter().filter(|p| !p.paused().is_empty()).count() as u32,
            delivered: self.net.totals().payload_bytes,
            placed: self.net.endpoints().map(|endpoint| endpoint.nic().counters().rcvd_bytes).sum(),
            active: self.flows.active(),
        }
    }
}

impl Sample {
    /// Adds another part of the network at the same moment.
    fn add(&mut self, other: &Sample) {
        self.buffered += other.buffered;
        self.longest = self.longest.max(other.longest);
        self.stopped += other.stopped;
        self.delivered += other.delivered;
        self.placed += other.placed;
        self.active += other.active;
    }
}

impl FlowRecord {
    /// Merges the record of the other end.
    fn add(&mut self, other: &FlowRecord) {
        self.delivered = self.delivered.or(other.delivered);
        self.acknowledged = self.acknowledged.or(other.acknowledged);
        self.retransmitted += other.retransmitted;
        self.timeouts += other.timeouts;
    }
}

/// The outcome of a network, or of all parts of one, with all invariants checked.
pub(super) fn of<A: Agenda>(mut sites: Vec<Site<A>>, ending: Ending) -> Result<Outcome, SimError> {
    let now = sites.iter().map(|site| site.net.now()).max().unwrap_or(0);
    for site in &mut sites {
        site.net.advance(now);
    }
    let accounts = sites.iter().map(|site| site.net.account());
    let account = accounts.reduce(|mut all, part| {
        all.add(&part);
        all
    });
    let account = account.ok_or_else(|| invariant("no network".into()))?;
    let (byte_time, stay) = account.check()?;
    let t = account.totals();
    let mut nics = Counters::default();
    sites.iter().flat_map(|site| site.net.endpoints()).for_each(|endpoint| nics.add(endpoint.nic().counters()));
    let links = links(&sites);
    let events = events(&sites);
    let trimmed = sites.iter().map(|site| site.net.shared().trimmed).sum();
    check_nics(t, trimmed, &nics)?;
    if ending == Ending::Complete {
        check_queue_pairs(&sites)?;
    }
    let mut last = sites[0].take_sample();
    sites.iter().skip(1).for_each(|site| last.add(&site.take_sample()));
    let mut rest = sites.split_off(1);
    let mut first = sites.remove(0);
    for part in &mut rest {
        first.flows.records.iter_mut().zip(&part.flows.records).for_each(|(record, other)| record.add(other));
        first.samples.iter_mut().zip(&part.samples).for_each(|(sample, other)| sample.add(other));
    }
    if ending == Ending::Complete
        && let Some(id) = first.unfinished()
    {
        return Err(invariant(format!("flow {id} is acknowledged, but not delivered before")));
    }
    first.fill_ideals();
    let deadlock = match &ending {
        Ending::Deadlock(cycle) => cycle.iter().map(|&p| first.net.nodes_of(p)).collect(),
        _ => Vec::new(),
    };
    let observer = first.net.shared_mut().observer.take();
    let mut observed = observer.map(|observer| observer.finish(now, t.late_pfc_frames));
    let schedule = first.net.journal_mut().take().map(|journal| journal.finish());
    let (flows, records) = first.flows.take(observed.as_mut());
    let coloured = first.config.switches().any(|switch| match switch {
        SwitchConfig::SharedBuffer(SharedBufferConfig { colour, .. }) => colour.is_some(),
        SwitchConfig::Policy(policy) => policy.counts_red(),
        _ => false,
    });
    let changing =
        first.config.switches().any(|switch| matches!(switch, SwitchConfig::Policy(policy) if policy.changes()));
    Ok(Outcome {
        ending,
        ended: now,
        injected: (t.injected_packets, t.injected_bytes),
        delivered: (t.delivered_packets, t.delivered_bytes),
        dropped: (t.dropped_packets, t.dropped_bytes),
        trimmed: (t.trimmed_packets, t.trimmed_bytes),
        emitted: (t.emitted_packets, t.emitted_bytes),
        lost: (t.lost_packets, t.lost_bytes),
        payload: t.payload_bytes,
        byte_time,
        stay,
        drained: changing.then_some((t.drained_packets, t.drained_bytes)),
        escape: matches!(first.config.hol, Some(HolConfig::Escape(_))).then_some(t.escape),
        breaker: matches!(first.config.hol, Some(HolConfig::Breaker(_))).then_some(t.breaker),
        pfc_frames: t.pfc_frames,
        colours: coloured.then(|| ColourTotals::of(t, &links)),
        links,
        nics,
        events,
        deadlock,
        deadlocked_at: first.net.first_deadlock(),
        records,
        samples: first.samples,
        last,
        observed,
        schedule,
        flows,
    })
}

/// The links, whose ports are counted by the parts that send, and losses by the parts that receive.
fn links<A: Agenda>(sites: &[Site<A>]) -> Vec<LinkRecord> {
    let mut links: Vec<LinkRecord> = sites.iter().take(1).flat_map(|site| site.net.links()).collect();
    for site in sites.iter().skip(1) {
        for (link, other) in links.iter_mut().zip(site.net.links()) {
            let lost = link.counters.lost + other.counters.lost;
            if site.net.owns(link.from) {
                *link = other;
            }
            link.counters.lost = lost;
        }
    }
    links
}

/// Number of events processed. Those that every part has count once.
fn events<A: Agenda>(sites: &[Site<A>]) -> u64 {
    let all: u64 = sites.iter().map(|site| site.net.events().1).sum();
    all - sites.iter().skip(1).map(|site| site.net.common_events()).sum::<u64>()
}

/// Checks that NICs have sent and received what the network counted.
fn check_nics(t: &Totals, trimmed: u64, nics: &Counters) -> Result<(), SimError> {
    let received = nics.rcvd_pkts + nics.rx_dropped + nics.rx_icrc_encapsulated + nics.rx_malformed + trimmed;
    for (what, by_nics, by_network) in
        [("sent", nics.sent_pkts, t.injected_packets), ("received", received, t.delivered_packets)]
    {
        if by_nics != by_network {
            return Err(invariant(format!("{by_nics} packets {what} by NICs, {by_network} by the network")));
        }
    }
    Ok(())
}

/// Checks that NICs have no queue pairs left of complete flows.
fn check_queue_pairs<A: Agenda>(sites: &[Site<A>]) -> Result<(), SimError> {
    let all: usize = sites.iter().flat_map(|site| site.net.endpoints()).map(|e| e.nic().qp_count()).sum();
    let known: usize = sites.iter().map(|site| site.flows.queue_pairs).sum();
    if all != known {
        return Err(invariant(format!("{all} queue pairs left, expected {known}")));
    }
    Ok(())
}

impl<A: Agenda> Site<A> {
    /// A flow that is not delivered, or was acknowledged before it was delivered.
    fn unfinished(&self) -> Option<usize> {
        self.flows.records.iter().enumerate().position(|(id, record)| {
            let open = self.config.setup_of(self.flows.flow(id)).is_open_loop();
            record.delivered.is_none() || !open && record.delivered > record.acknowledged
        })
    }

    fn fill_ideals(&mut self) {
        let config = &self.config;
        for i in 0..self.flows.len() {
            let flow = *self.flows.flow(i);
            let links = self.net.routes().path(flow.src, flow.dst).unwrap_or_default();
            let path: Vec<(u64, u64)> = config.topology.along(&links).map(|l| (l.rate, l.delay)).collect();
            let time = |bytes| ideal(&packets(bytes, config.setup_of(&flow), config.headers), &path);
            let setup = if config.setup_rtts == 0 { 0 } else { 2 * time(0) * u64::from(config.setup_rtts) };
            let record = &mut self.flows.records[i];
            let handshake = if config.handshake { 2 * time(0) } else { 0 };
            (record.setup, record.ideal) = (setup, time(flow.bytes) + setup + handshake);
        }
    }
}

pub(super) fn invariant(what: String) -> SimError {
    SimError::Network(NetworkError::Invariant(what))
}
