//! Replays a schedule: the same packets enter at the same times, with headers derived from the schedule, and switches
//! see no more than that.

use std::collections::BTreeMap;
use std::sync::Arc;

use irnic_transports::wire::{Bth, Headers, Opcode};
use irnic_transports::{Path, Psn};

use super::{Detail, Schedule, Scheduled, vector};
use crate::network::{
    Content, Endpoint, EndpointCtx, Network, NetworkConfig, NetworkError, Packet, PacketId, Step, address,
};
use crate::priorities::Priorities;
use crate::sim::{ENCAPSULATION, ideal};
use crate::summary::percentile;

/// The value that the sender writes into the slack field ([`Packet::slack`]), ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// Total time for which the packet may wait: o(p) − i(p) − t_min(p), for least slack time first (§5.1.2).
    Slack,
    /// Time at which the packet is to leave the network, o(p): for earliest deadline first (appendix A.4), and as a
    /// static priority (§5.1.3, item 7).
    Exit,
    /// Time at which each switch is to send it (appendix A.1), from a schedule with [`super::Detail::Hops`]. Switches
    /// use these times, regardless of the type that the network gives them.
    Vector,
    /// These values, packet by packet; 0 for packets beyond the last.
    Given(Arc<Vec<i64>>),
}

/// An error of a replay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// An invalid network, or an error in it.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A packet that does not belong to this network.
    #[error(
        "packet {packet} of the schedule {what}; expected the network, the routing and the seed that it was recorded with"
    )]
    #[allow(missing_docs)]
    OtherNetwork { packet: usize, what: String },
    /// A packet that was sent while a missing one would still have occupied the link.
    #[error(
        "packet {packet} of the schedule was sent at {sent} ns, and could be only at {at}: packets before it are missing; \
         expected a record of a run that came to its end and lost none"
    )]
    #[allow(missing_docs)]
    Incomplete { packet: usize, sent: u64, at: u64 },
    /// Packets that are not in order.
    #[error("packet {0} of the schedule was sent before the one before it; expected packets in order of sent_ns")]
    Order(usize),
    /// A schedule without times at switches.
    #[error("the schedule does not say when switches sent packets; expected one recorded with its hops")]
    NoHops,
}

/// An endpoint that sends according to a schedule.
#[derive(Debug, Default)]
struct Replayer {
    /// Times at which packets are sent, ns, and their indices in the schedule, in order.
    packets: Vec<(u64, u32)>,
    next: usize,
    /// Packets from this one on that are due.
    due: usize,
}

/// State shared by all endpoints.
#[derive(Debug)]
struct Shared {
    schedule: Arc<Schedule>,
    header: Header,
    /// Arrival times of packets, ns; [`u64::MAX`] for those that have not arrived.
    left: Vec<u64>,
    delivered: u64,
    /// A packet that could not be sent at its time, and when it was sent, ns.
    misfit: Option<(usize, u64)>,
}

impl Endpoint for Replayer {
    type Shared = Shared;

    fn wants_tx(&mut self, paused: Priorities) -> bool {
        self.due > 0 && !paused.contains(0)
    }

    fn poll_transmit(&mut self, ctx: &mut EndpointCtx<'_, Shared>) -> Option<PacketId> {
        let &(sent, place) = self.packets.get(self.next)?;
        self.next += 1;
        self.due -= 1;
        let at = place as usize;
        if sent != ctx.now {
            ctx.shared.misfit.get_or_insert((at, ctx.now));
        }
        let scheduled = ctx.shared.schedule.packets()[at];
        let mut headers = Headers::new(Bth::new(Opcode::UcSendOnlyImm, 0, Psn::new(scheduled.psn & 0xff_ffff)));
        headers.imm = Some(place);
        let payload = scheduled.wire.saturating_sub(headers.frame_len(0) as u32 + ENCAPSULATION);
        let path = Path {
            src: address(ctx.host),
            dst: address(scheduled.dst),
            udp_src: 0xc000,
            traffic_class: 0,
            hop_limit: 64,
        };
        let mut packet = Packet::new(scheduled.wire, scheduled.dst, scheduled.entropy, 0);
        packet.src_qp = scheduled.flow;
        packet.slack = match &ctx.shared.header {
            Header::Slack => scheduled.queueing(),
            Header::Exit => scheduled.left as i64,
            Header::Vector => i64::from(place),
            Header::Given(all) => all.get(at).copied().unwrap_or(0),
        };
        Some(ctx.send(packet, Content::new(headers, path, payload)))
    }

    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, Shared>) {
        let place = ctx.packets.content(id).headers.imm.unwrap_or(u32::MAX) as usize;
        if let Some(left) = ctx.shared.left.get_mut(place) {
            *left = ctx.now;
            ctx.shared.delivered += 1;
        }
    }

    fn on_deadline(&mut self, now: u64) {
        while self.packets.get(self.next + self.due).is_some_and(|(sent, _)| *sent <= now) {
            self.due += 1;
        }
    }

    fn next_deadline(&self) -> u64 {
        self.packets.get(self.next + self.due).map_or(u64::MAX, |(sent, _)| *sent)
    }
}

/// A replay of a schedule.
#[derive(Debug)]
pub struct Replay {
    net: Network<Replayer>,
    schedule: Arc<Schedule>,
}

impl Replay {
    /// A network at time 0 that will replay a schedule.
    ///
    /// # Errors
    /// If the schedule is evidently not of this network.
    pub fn new(mut config: NetworkConfig, schedule: Arc<Schedule>, header: Header) -> Result<Replay, ReplayError> {
        let packets = schedule.packets();
        let hosts = config.topology.hosts;
        let mut replayers: Vec<Replayer> = (0..hosts).map(|_| Replayer::default()).collect();
        for (at, packet) in packets.iter().enumerate() {
            if at > 0 && packets[at - 1].sent > packet.sent {
                return Err(ReplayError::Order(at));
            }
            if packet.src >= hosts || packet.dst >= hosts || packet.src == packet.dst {
                let what = format!("goes from host {} to {}, of {hosts}", packet.src, packet.dst);
                return Err(ReplayError::OtherNetwork { packet: at, what });
            }
            replayers[packet.src as usize].packets.push((packet.sent, at as u32));
        }
        if header == Header::Vector {
            if !schedule.has_starts() {
                return Err(ReplayError::NoHops);
            }
            let longest = packets.iter().map(|packet| packet.wire).max().unwrap_or(1);
            config.switch = vector::switches(schedule.clone(), longest);
        }
        let left = vec![u64::MAX; packets.len()];
        let shared = Shared { schedule: schedule.clone(), header, left, delivered: 0, misfit: None };
        let topology = config.topology.clone();
        let net = Network::new(config, replayers, shared)?;
        let mut known = BTreeMap::new();
        for (at, packet) in packets.iter().enumerate() {
            let of = (packet.src, packet.dst, packet.wire);
            let takes = *known.entry(of).or_insert_with(|| {
                let routes = net.routes();
                // With several paths, the one taken cannot be predicted.
                let path = (routes.ways(of.0, of.1) == 1).then(|| routes.path(of.0, of.1)).flatten()?;
                let links: Vec<(u64, u64)> = topology.along(&path).map(|link| (link.rate, link.delay)).collect();
                Some(ideal(&[(of.2, 1)], &links))
            });
            if takes.is_some_and(|takes| takes != packet.ideal) {
                let what = format!("took {} ns on idle links, and would take {}", packet.ideal, takes.unwrap_or(0));
                return Err(ReplayError::OtherNetwork { packet: at, what });
            }
        }
        Ok(Replay { net, schedule })
    }

    /// Records a schedule of the replay itself, if it has not begun: [`Replayed::schedule`]. Interrupted packets count
    /// as sent from their first bit.
    pub fn record(&mut self, detail: Detail) {
        self.net.keep_journal(detail);
    }

    /// Runs until nothing is in flight any more, or `events` more events were processed. Returns whether the replay is
    /// over.
    ///
    /// # Errors
    /// If a packet could not be sent at its time.
    pub fn run(&mut self, events: u64) -> Result<bool, ReplayError> {
        for _ in 0..events {
            match self.net.step(u64::MAX) {
                Step::Endpoint(host) => self.net.settle(host),
                Step::Idle | Step::Standstill => return self.check().map(|()| true),
                _ => {}
            }
        }
        self.check().map(|()| false)
    }

    fn check(&self) -> Result<(), ReplayError> {
        let Some((packet, at)) = self.net.shared().misfit else { return Ok(()) };
        let sent = self.schedule.packets()[packet].sent;
        // Of back-to-back packets the second begins between two ns; if the first is missing, at the later of these.
        if at == sent + 1 {
            return Err(ReplayError::Incomplete { packet, sent, at });
        }
        Err(ReplayError::OtherNetwork { packet, what: format!("was sent at {sent} ns, and could be only at {at}") })
    }

    /// Numbers of packets that have arrived, and of all packets.
    pub fn progress(&self) -> (u64, u64) {
        (self.net.shared().delivered, self.schedule.packets().len() as u64)
    }

    /// Virtual time, ns.
    pub fn now(&self) -> u64 {
        self.net.now()
    }

    /// The results; packets that are late by more than `late`, ns, are counted separately.
    ///
    /// # Errors
    /// If the accounts of the network do not balance.
    pub fn outcome(self, late: u64) -> Result<Replayed, ReplayError> {
        self.net.check()?;
        let mut net = self.net;
        let left = std::mem::take(&mut net.shared_mut().left);
        let schedule = net.journal_mut().take().map(|journal| journal.finish());
        Ok(Replayed { schedule, ..Replayed::of(&self.schedule, left, late) })
    }
}

/// Numbers of packets, and of those that were overdue.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Packets that left later than in the schedule, or never.
    pub overdue: u64,
    /// Those overdue by more than rounding can cause: 1 ns for each switch and the host.
    pub beyond_rounding: u64,
    /// Those overdue by more than the threshold.
    pub late: u64,
    /// Packets that never left.
    pub lost: u64,
}

impl Counts {
    fn add(&mut self, packet: &Scheduled, left: u64, late: u64) {
        let by = left.saturating_sub(packet.left);
        self.packets += 1;
        self.overdue += u64::from(by > 0);
        self.beyond_rounding += u64::from(by > u64::from(packet.hops) + 1);
        self.late += u64::from(by > late);
        self.lost += u64::from(left == u64::MAX);
    }

    /// A number of packets as a share of all.
    pub fn share(&self, number: u64) -> f64 {
        number as f64 / self.packets.max(1) as f64
    }
}

/// Results of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Replayed {
    /// Times at which packets left, ns, in the order of the schedule; [`u64::MAX`] for those that never did.
    pub left: Vec<u64>,
    /// All packets.
    pub all: Counts,
    /// Packets by their number of congestion points in the schedule.
    pub by_points: Vec<Counts>,
    /// Ratio of the queueing time in the replay to that in the schedule, for each packet that waited there, ascending.
    pub ratios: Vec<f64>,
    /// The schedule of the replay, if it was recorded.
    pub schedule: Option<Schedule>,
    /// Largest delay of an overdue packet, ns.
    pub worst: u64,
}

impl Replayed {
    fn of(schedule: &Schedule, left: Vec<u64>, late: u64) -> Replayed {
        let mut replayed = Replayed::default();
        for (packet, &left) in schedule.packets().iter().zip(&left) {
            let points = usize::from(packet.points);
            if replayed.by_points.len() <= points {
                replayed.by_points.resize(points + 1, Counts::default());
            }
            replayed.all.add(packet, left, late);
            replayed.by_points[points].add(packet, left, late);
            if left == u64::MAX {
                continue;
            }
            replayed.worst = replayed.worst.max(left.saturating_sub(packet.left));
            let again = Scheduled { left, ..*packet }.queueing().max(0);
            // Rounding is not queueing.
            if packet.queueing() > i64::from(packet.hops) {
                replayed.ratios.push(again as f64 / packet.queueing() as f64);
            }
        }
        replayed.ratios.sort_unstable_by(f64::total_cmp);
        replayed.left = left;
        replayed
    }

    /// The quantile at `share` of the queueing ratios.
    pub fn ratio(&self, share: f64) -> Option<f64> {
        percentile(&self.ratios, share)
    }
}
