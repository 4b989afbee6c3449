//! What came of a run.

use irnic_nic::Nic;
use irnic_transports::qp::Counters;

use super::ideal::{ideal, packets};
use super::{Event, Observed, SimError, Simulation};
use crate::port::{PortCounters, PortId};
use crate::workload::Flow;

/// Sums over the network.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    injected_packets: u64,
    injected_bytes: u64,
    pub delivered_packets: u64,
    delivered_bytes: u64,
    payload_bytes: u64,
    dropped_packets: u64,
    dropped_bytes: u64,
    lost_packets: u64,
    lost_bytes: u64,
    pub pfc_frames: u64,
    /// Bytes in the network since `since`, ns, and before that, added up over time.
    level: u64,
    since: u64,
    byte_time: u128,
    /// Time that packets spent in the network until they left it, times their bytes.
    stay: u128,
}

impl Totals {
    #[inline]
    fn integrate(&mut self, now: u64) {
        self.byte_time += u128::from(self.level) * u128::from(now - self.since);
        self.since = now;
    }

    /// A packet left the network at `now` that was `sent` into it.
    #[inline]
    fn left(&mut self, now: u64, sent: u64, wire: u32) {
        self.integrate(now);
        self.level -= u64::from(wire);
        self.stay += u128::from(wire) * u128::from(now - sent);
    }

    #[inline]
    pub fn injected(&mut self, now: u64, wire: u32) {
        self.integrate(now);
        self.level += u64::from(wire);
        self.injected_packets += 1;
        self.injected_bytes += u64::from(wire);
    }

    #[inline]
    pub fn delivered(&mut self, now: u64, sent: u64, wire: u32, payload: u32) {
        self.left(now, sent, wire);
        self.delivered_packets += 1;
        self.delivered_bytes += u64::from(wire);
        self.payload_bytes += u64::from(payload);
    }

    pub fn dropped(&mut self, now: u64, sent: u64, wire: u32) {
        self.left(now, sent, wire);
        self.dropped_packets += 1;
        self.dropped_bytes += u64::from(wire);
    }

    pub fn lost(&mut self, now: u64, sent: u64, wire: u32) {
        self.left(now, sent, wire);
        self.lost_packets += 1;
        self.lost_bytes += u64::from(wire);
    }
}

/// A flow and what became of it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowRecord {
    /// When the receiver had all of it, ns.
    pub delivered: Option<u64>,
    /// When the sender knew, ns.
    pub acknowledged: Option<u64>,
    /// What it would have taken in an empty network, ns.
    pub ideal: u64,
    /// Packets sent again, if the flow had a queue pair of its own.
    pub retransmitted: u64,
    /// Timeouts, likewise.
    pub timeouts: u64,
}

impl FlowRecord {
    pub(super) fn note(&mut self, nic: &Nic, qpn: u32) {
        if let Some(stats) = nic.qp(qpn).map(|qp| qp.stats()) {
            self.retransmitted = stats.retransmitted;
            self.timeouts = stats.timeouts;
        }
    }

    /// Flow completion time, ns: from the start to the last byte at the receiver.
    pub fn fct(&self, flow: &Flow) -> Option<u64> {
        self.delivered.map(|at| at - flow.start)
    }

    /// Flow completion time in units of what it would have been in an empty network.
    pub fn slowdown(&self, flow: &Flow) -> Option<f64> {
        self.fct(flow).map(|fct| fct as f64 / self.ideal.max(1) as f64)
    }
}

/// One direction of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkRecord {
    /// Sending node.
    pub from: u32,
    /// Receiving node.
    pub to: u32,
    /// Bit/s.
    pub rate: u64,
    /// What went through the sending port.
    pub counters: PortCounters,
}

/// The network at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// ns.
    pub at: u64,
    /// Bytes in all switches.
    pub buffered: u64,
    /// Bytes waiting for the port for which most wait.
    pub longest: u64,
    /// Ports that are stopped.
    pub stopped: u32,
    /// Payload bytes delivered so far, repetitions included.
    pub delivered: u64,
    /// Flows under way.
    pub active: u32,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All flows are complete.
    Complete,
    /// The time that it was given is over.
    TimeUp,
    /// Ports that wait for each other for ever.
    Deadlock(Vec<PortId>),
    /// Nothing would ever happen again, and it is no deadlock: packets were lost and nobody has a timer.
    Stuck,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// When, ns.
    pub ended: u64,
    /// The flows.
    pub flows: Vec<Flow>,
    /// What became of them.
    pub records: Vec<FlowRecord>,
    /// Packets that NICs sent, and their bytes on the wire.
    pub injected: (u64, u64),
    /// Packets that reached NICs.
    pub delivered: (u64, u64),
    /// Packets that found no room.
    pub dropped: (u64, u64),
    /// Packets lost on links.
    pub lost: (u64, u64),
    /// Payload bytes that reached NICs, repetitions included.
    pub payload: u64,
    /// Bytes in the network, added up over time, byte · ns. Divided by [`Self::ended`]: how many there were on average.
    pub byte_time: u128,
    /// Time that packets spent in the network, until they left it or the run ended, times their bytes, byte · ns.
    pub stay: u128,
    /// PFC frames that arrived.
    pub pfc_frames: u64,
    /// Links, both directions of each.
    pub links: Vec<LinkRecord>,
    /// The counters of all NICs, added up.
    pub nics: Counters,
    /// The network at intervals.
    pub samples: Vec<Sample>,
    /// What the ends of connections saw, if it was wanted.
    pub observed: Option<Observed>,
    /// Events handled.
    pub events: u64,
    /// Ports in a deadlock, as pairs of nodes.
    pub deadlock: Vec<(u32, u32)>,
}

impl Outcome {
    /// Packets times links crossed.
    pub fn packet_hops(&self) -> u64 {
        self.links.iter().map(|l| l.counters.packets).sum()
    }

    /// ns that ports were stopped, added up.
    pub fn paused(&self) -> u64 {
        self.links.iter().map(|l| l.counters.paused).sum()
    }

    /// Share of the packets sent that found no room.
    pub fn drop_rate(&self) -> f64 {
        self.dropped.0 as f64 / self.injected.0.max(1) as f64
    }
}

impl Simulation {
    /// Notes what the network is like, and when to do so again.
    pub(super) fn sample(&mut self) {
        let Some(every) = self.config.sample else { return };
        self.samples.push(self.look());
        if self.flows.done < self.flows.len() {
            self.agenda.push(self.now + every, Event::Sample);
        }
    }

    pub(super) fn look(&self) -> Sample {
        let waiting = |s: &super::SwitchNode| (0..s.count as u16).map(|o| s.switch.queued(o)).max().unwrap_or(0);
        Sample {
            at: self.now,
            buffered: self.switches.iter().map(|s| s.switch.buffered()).sum(),
            longest: self.switches.iter().map(waiting).max().unwrap_or(0),
            stopped: self.ports.iter().filter(|p| p.stopped != 0).count() as u32,
            delivered: self.totals.payload_bytes,
            active: self.flows.active(),
        }
    }

    /// What came of it, with everything checked that must hold.
    pub fn outcome(mut self) -> Result<Outcome, SimError> {
        self.totals.integrate(self.now);
        self.totals.stay +=
            self.packets.iter().map(|(p, c)| u128::from(p.wire) * u128::from(self.now - c.sent)).sum::<u128>();
        self.check_conservation()?;
        let ending = self.ending.take().unwrap_or(Ending::TimeUp);
        let deadlock = match &ending {
            Ending::Deadlock(cycle) => cycle.iter().map(|&p| self.nodes_of(p)).collect(),
            _ => Vec::new(),
        };
        let mut nics = Counters::default();
        for host in &self.hosts {
            nics.add(host.nic.counters());
        }
        self.check_nics(&ending, &nics)?;
        self.fill_ideals();
        let t = &self.totals;
        let links = self.ports.iter().enumerate().map(|(id, port)| {
            let (from, to) = self.nodes_of(id as PortId);
            LinkRecord { from, to, rate: port.rate, counters: port.counters_at(self.now) }
        });
        Ok(Outcome {
            ending,
            ended: self.now,
            injected: (t.injected_packets, t.injected_bytes),
            delivered: (t.delivered_packets, t.delivered_bytes),
            dropped: (t.dropped_packets, t.dropped_bytes),
            lost: (t.lost_packets, t.lost_bytes),
            payload: t.payload_bytes,
            byte_time: t.byte_time,
            stay: t.stay,
            pfc_frames: t.pfc_frames,
            links: links.collect(),
            nics,
            events: self.agenda.pushed() - self.agenda.len() as u64,
            deadlock,
            records: std::mem::take(&mut self.flows.records),
            samples: self.samples,
            observed: self.observer.map(|observer| observer.finish(self.now)),
            flows: self.config.flows,
        })
    }

    fn nodes_of(&self, port: PortId) -> (u32, u32) {
        let port = &self.ports[port as usize];
        (port.node, self.ports[port.peer as usize].node)
    }

    /// What was sent was delivered, dropped, lost, or is somewhere.
    fn check_conservation(&self) -> Result<(), SimError> {
        let t = &self.totals;
        let buffered: u64 = self.switches.iter().map(|s| s.switch.buffered()).sum();
        let flying = self.agenda.iter().filter_map(|event| match *event {
            Event::Arrive(_, _, packet) => Some(u64::from(self.packets.get(packet).wire)),
            _ => None,
        });
        let flying: u64 = flying.sum();
        let sum = t.delivered_bytes + t.dropped_bytes + t.lost_bytes + buffered + flying;
        if sum != t.injected_bytes {
            return Err(SimError::Invariant(format!(
                "{} bytes sent, but {} delivered + {} dropped + {} lost + {buffered} queued + {flying} on links = {sum}",
                t.injected_bytes, t.delivered_bytes, t.dropped_bytes, t.lost_bytes
            )));
        }
        let under_way = t.injected_packets - t.delivered_packets - t.dropped_packets - t.lost_packets;
        if under_way != self.packets.len() as u64 {
            return Err(SimError::Invariant(format!(
                "{under_way} packets under way, {} remembered",
                self.packets.len()
            )));
        }
        // Little's law: what is in the network on average is what comes in times how long it stays.
        if t.byte_time != t.stay {
            return Err(SimError::Invariant(format!(
                "{} byte·ns in the network, but its packets stayed {}",
                t.byte_time, t.stay
            )));
        }
        Ok(())
    }

    /// NICs have sent and received what the network says, and nothing is left in them of flows that are complete.
    fn check_nics(&self, ending: &Ending, nics: &Counters) -> Result<(), SimError> {
        let t = &self.totals;
        let received = nics.rcvd_pkts + nics.rx_dropped + nics.rx_icrc_encapsulated + nics.rx_malformed;
        for (what, by_nics, by_network) in
            [("sent", nics.sent_pkts, t.injected_packets), ("received", received, t.delivered_packets)]
        {
            if by_nics != by_network {
                return Err(SimError::Invariant(format!(
                    "{by_nics} packets {what} by NICs, {by_network} by the network"
                )));
            }
        }
        if *ending != Ending::Complete {
            return Ok(());
        }
        let queue_pairs: usize = self.hosts.iter().map(|h| h.nic.qp_count()).sum();
        let connections = self.flows.open_connections();
        if queue_pairs != 2 * connections {
            return Err(SimError::Invariant(format!("{queue_pairs} queue pairs left of {connections} connections")));
        }
        if let Some(id) = self.flows.records.iter().position(|r| r.delivered > r.acknowledged || r.delivered.is_none())
        {
            return Err(SimError::Invariant(format!("flow {id} is acknowledged, but not delivered before")));
        }
        Ok(())
    }

    fn fill_ideals(&mut self) {
        let config = &self.config;
        for i in 0..self.flows.len() {
            let flow = *self.flows.flow(i);
            let links = self.routes.path(flow.src, flow.dst).unwrap_or_default();
            let path: Vec<(u64, u64)> = config.topology.along(&links).map(|l| (l.rate, l.delay)).collect();
            self.flows.records[i].ideal = ideal(&packets(flow.bytes, config.setup_of(&flow), config.headers), &path);
        }
    }
}
