//! A network whose hosts are outside: their frames come with the time at which they began to leave, and go with the
//! time at which they arrive.
//!
//! Whoever has the hosts drives it: [`Lab::send`] for each frame that a host has sent, [`Lab::run_until`] for what
//! happens up to a time. What a host sends at a time reaches a switch [`Lab::lookahead`] later at the earliest, so that
//! nothing comes too late as long as the network is no further ahead than that of the slowest host (conservative
//! synchronization: Chandy and Misra, 1979).
//!
//! Faults come on demand: rules about frames ([`Rule`]), and what happens to links and hosts at a time
//! ([`Lab::plan`]). [`Command`] is how people and tests write them.

mod command;
mod faults;
mod flows;

use std::collections::VecDeque;

use irnic_transports::telemetry::Int;
use irnic_transports::wire::{Headers, ICRC_LEN, parse};
use irnic_transports::{Mark, Path};

pub use command::{Command, CommandError};
pub use faults::{Action, Kind, Placed, Rule};
use faults::{Faults, Verdict};

use crate::network::{
    Change, Content, Endpoint, EndpointCtx, LinkChange, Mishap, Network, NetworkConfig, NetworkError, Packet, PacketId,
    Port, PortId, Put, Recorder, Tapped, address, host_of, mix,
};
use crate::priorities::Priorities;
use crate::sim::ENCAPSULATION;

use flows::FlowLog;
pub use flows::SeenFlow;

/// Bytes on the wire of the shortest Ethernet frame.
const SHORTEST: u32 = 64;

/// A network between hosts that are outside.
#[derive(Debug)]
pub struct Lab {
    network: Network<Station>,
    hosts: u32,
    lookahead: u64,
    ect: bool,
    late: Late,
    refused: u64,
    flows: Option<Box<FlowLog>>,
    /// What befalls frames, if anything.
    faults: Option<Box<Faults>>,
    /// What hosts have sent themselves, in order of time.
    turned: VecDeque<Turned>,
    /// What is to happen, and when, in order of time.
    plans: Vec<(u64, Plan)>,
    /// What each host was told to pause by the network, and by plans.
    paused: Vec<(Priorities, Priorities)>,
}

/// What happens to a link or a host at a time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// A link fails.
    Down {
        /// Its number in the topology.
        link: u32,
    },
    /// A link works again.
    Up {
        /// Its number in the topology.
        link: u32,
    },
    /// A host pauses a priority, whatever the network says.
    Pause {
        /// The host.
        host: u32,
        /// 0 to 7.
        priority: u8,
    },
    /// A host pauses a priority only if the network says so.
    Resume {
        /// The host.
        host: u32,
        /// 0 to 7.
        priority: u8,
    },
}

impl Plan {
    /// Returns whether both are about the same link, or the same priority of the same host.
    fn is_about_the_same(self, other: Plan) -> bool {
        let subject = |plan| match plan {
            Plan::Down { link } | Plan::Up { link } => (link, None),
            Plan::Pause { host, priority } | Plan::Resume { host, priority } => (host, Some(priority)),
        };
        subject(self) == subject(other)
    }
}

/// A frame of a host to itself.
#[derive(Debug)]
struct Turned {
    host: u32,
    at: u64,
    udp_src: u16,
    traffic_class: u8,
    frame: Vec<u8>,
    telemetry: Option<Int>,
}

/// Frames that came after they should have been at the first switch.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// How many.
    pub frames: u64,
    /// By how much the worst did, ns.
    pub worst: u64,
}

/// What a host sends.
#[derive(Copy, Clone, Debug)]
pub struct Sent<'a> {
    /// When the frame begins to leave, ns. It waits for those that the host has sent before.
    pub start: u64,
    /// The host that it goes to.
    pub dst: u32,
    /// UDP source port, by which switches choose among ways.
    pub udp_src: u16,
    /// IP's traffic class: the priority in the upper three bits, ECN in the lower two.
    pub traffic_class: u8,
    /// From the BTH to the ICRC.
    pub frame: &'a [u8],
    /// What switches are to write on; it makes the packet longer ([`Int::LEN`]).
    pub telemetry: Option<Int>,
}

/// What reaches a host.
#[derive(Copy, Clone, Debug)]
pub struct Arrival<'a> {
    /// The host.
    pub host: u32,
    /// When it has arrived whole, ns.
    pub at: u64,
    /// What it is.
    pub what: What<'a>,
}

/// A frame, or news from the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A frame.
    Frame {
        /// The host that sent it.
        src: u32,
        /// As it was sent.
        udp_src: u16,
        /// With what switches have written.
        traffic_class: u8,
        /// From the BTH to the ICRC; of a trimmed frame what is left.
        frame: &'a [u8],
        /// What switches have written beside it.
        telemetry: Option<&'a Int>,
        /// A bit of it is wrong: its ICRC does not hold.
        corrupted: bool,
    },
    /// The host is to pause these priorities, and no others.
    Pause(Priorities),
    /// The host's link has failed, or works again.
    Link {
        /// It works.
        up: bool,
    },
}

/// A frame that arrived, or [`None`] and what is paused.
#[derive(Copy, Clone, Debug)]
struct Delivery {
    host: u32,
    at: u64,
    frame: Option<Whole>,
    paused: Priorities,
}

#[derive(Copy, Clone, Debug)]
struct Whole {
    id: PacketId,
    path: Path,
    len: usize,
    has_telemetry: bool,
}

/// The bytes of frames under way by the numbers of their packets, and what has arrived in the present run.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<Vec<u8>>,
    /// What those that have arrived with telemetry had with them.
    telemetry: Vec<Int>,
    /// Who is shown packets of ports that are watched.
    recorder: Option<Box<dyn Recorder>>,
    arrived: Vec<Delivery>,
}

/// The end of a host's link. What the host sends comes from outside ([`Network::put`]).
#[derive(Debug)]
struct Station;

impl Endpoint for Station {
    type Shared = Frames;

    fn wants_tx(&mut self, _: Priorities) -> bool {
        false
    }

    fn poll_transmit(&mut self, _: &mut EndpointCtx<'_, Frames>) -> Option<PacketId> {
        None
    }

    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, Frames>) {
        let content = ctx.packets.content(id);
        // Packets that switches make have no frame.
        if content.frame.is_none() {
            return;
        }
        let len = match ctx.packets.get(id).is_trimmed() {
            true => content.headers.len(),
            false => ctx.shared.bytes[id as usize].len(),
        };
        let packet = ctx.packets.get(id);
        let path = match (packet.is_trimmed(), packet.is_returned()) {
            (false, _) => content.path,
            (true, false) => content.path.with_mark(Mark::Trimmed),
            (true, true) => content.path.with_mark(Mark::Returned),
        };
        let telemetry = ctx.packets.telemetry(id);
        if let Some(int) = telemetry {
            let place = id as usize;
            if ctx.shared.telemetry.len() <= place {
                ctx.shared.telemetry.resize(place + 1, Int::EMPTY);
            }
            ctx.shared.telemetry[place] = *int;
        }
        let frame = Some(Whole { id, path, len, has_telemetry: telemetry.is_some() });
        ctx.shared.arrived.push(Delivery { host: ctx.host, at: ctx.now, frame, paused: Priorities::NONE });
    }

    fn on_tap(frames: &mut Frames, tapped: Tapped<'_>) {
        let Frames { bytes, recorder: Some(recorder), .. } = frames else { return };
        let frame = tapped.packet.and_then(|id| bytes.get(id as usize)).map_or(&[][..], Vec::as_slice);
        // Packets that switches make have none.
        tapped.record(&mut **recorder, |content| if content.frame.is_some() { (frame, frame.len()) } else { (&[], 0) });
    }

    fn on_pause(&mut self, paused: Priorities, ctx: &mut EndpointCtx<'_, Frames>) {
        ctx.shared.arrived.push(Delivery { host: ctx.host, at: ctx.now, frame: None, paused });
    }

    fn on_deadline(&mut self, _: u64) {}

    fn next_deadline(&self) -> u64 {
        u64::MAX
    }
}

impl Lab {
    /// Bytes on the wire around a frame: Ethernet, IPv4 and UDP.
    pub const ENCAPSULATION: u32 = ENCAPSULATION;

    /// Makes the network. `ect`: what hosts send is ECN-capable, whatever its traffic class says.
    ///
    /// # Errors
    /// What makes no sense in the configuration.
    pub fn new(config: NetworkConfig, ect: bool) -> Result<Lab, NetworkError> {
        let hosts = config.topology.hosts;
        let rates = config.changes.iter().filter_map(|change| match change.what {
            Change::Rate(rate) | Change::RateFrom { rate, .. } => Some(rate),
            Change::Up | Change::Down => None,
        });
        let fastest = rates.max().unwrap_or(0);
        let network = Network::new(config, (0..hosts).map(|_| Station).collect(), Frames::default())?;
        let shortest = |host| {
            let port: &Port = network.port_of(host);
            let rate = u128::from(port.rate.max(fastest));
            port.delay + (u128::from(SHORTEST) * 8_000_000_000 / rate) as u64
        };
        let lookahead = (0..hosts).map(shortest).min().unwrap_or(0).max(1);
        let paused = vec![(Priorities::NONE, Priorities::NONE); hosts as usize];
        let late = Late::default();
        Ok(Lab {
            network,
            hosts,
            lookahead,
            ect,
            late,
            refused: 0,
            faults: None,
            plans: Vec::new(),
            paused,
            flows: None,
            turned: VecDeque::new(),
        })
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Returns the time that has been reached, ns.
    pub fn now(&self) -> u64 {
        self.network.now()
    }

    /// Returns how long after it began to leave a frame is at a switch at the earliest, ns: the least there is of the
    /// delay of a host's link and the time of the shortest frame on it.
    pub fn lookahead(&self) -> u64 {
        self.lookahead
    }

    /// Returns when the network next has something to do, ns; [`u64::MAX`] if nothing is under way.
    pub fn next_event(&mut self) -> u64 {
        let planned = self.plans.first().map_or(u64::MAX, |(at, _)| *at);
        let turned = self.turned.front().map_or(u64::MAX, |turned| turned.at);
        self.network.next_event().min(planned).min(turned)
    }

    /// Returns whether nothing is under way that a host may wait for: links that change and pauses that begin are none.
    pub fn is_idle(&self) -> bool {
        let undone = |(_, plan): &(u64, Plan)| matches!(plan, Plan::Up { .. } | Plan::Resume { .. });
        self.network.is_idle() && self.turned.is_empty() && !self.plans.iter().any(undone)
    }

    /// Takes a frame of a host. Returns when its last bit has left the host, ns. What has no destination, or is no
    /// frame of RoCE, is counted and goes no further.
    pub fn send(&mut self, host: u32, sent: &Sent<'_>) -> u64 {
        let parsed = parse(sent.frame).ok().filter(|_| sent.dst < self.hosts());
        let Some((headers, payload)) = parsed else {
            self.refused += 1;
            return sent.start;
        };
        if sent.dst == host {
            self.turn_back(host, sent);
            return sent.start;
        }
        let payload = payload.len() as u32;
        match &mut self.faults {
            None => self.put(host, sent, headers, payload, Mishap::default()).left,
            Some(faults) => {
                let verdict = faults.judge(host, sent.dst, &headers);
                self.put_with(host, sent, headers, payload, verdict)
            }
        }
    }

    /// Takes a frame of a host to itself: it arrives as late as it would at the switch, past which no NIC sends it.
    #[cold]
    fn turn_back(&mut self, host: u32, sent: &Sent<'_>) {
        let at = (sent.start + self.lookahead).max(self.now());
        let place = self.turned.partition_point(|turned| turned.at <= at);
        let Sent { udp_src, traffic_class, frame, telemetry, .. } = *sent;
        let frame = frame.to_vec();
        self.turned.insert(place, Turned { host, at, udp_src, traffic_class, frame, telemetry });
    }

    /// Passes on what hosts have sent themselves, up to a time.
    fn pass_back(&mut self, until: u64, each: &mut impl FnMut(Arrival<'_>)) {
        while self.turned.front().is_some_and(|turned| turned.at <= until) {
            let Some(turned) = self.turned.pop_front() else { return };
            let Turned { host, at, udp_src, traffic_class, frame, telemetry } = &turned;
            let (host, at, udp_src, traffic_class, telemetry) =
                (*host, *at, *udp_src, *traffic_class, telemetry.as_ref());
            let what = What::Frame { src: host, udp_src, traffic_class, frame, telemetry, corrupted: false };
            each(Arrival { host, at, what });
        }
    }

    /// Puts a frame onto the link of its host.
    #[inline]
    fn put(&mut self, host: u32, sent: &Sent<'_>, headers: Headers, payload: u32, mishap: Mishap) -> Put {
        let wire = sent.frame.len() as u32 + ENCAPSULATION + sent.telemetry.map_or(0, |_| Int::LEN);
        // ECN-capable transport (RFC 3168).
        let capable = if self.ect && sent.traffic_class & 3 == 0 { 2 } else { 0 };
        let path = Path {
            src: address(host),
            dst: address(sent.dst),
            udp_src: sent.udp_src,
            traffic_class: sent.traffic_class | capable,
            hop_limit: 64,
        };
        let entropy = mix(host ^ mix(sent.dst ^ mix(u32::from(sent.udp_src))));
        let mut packet = Packet::new(wire, sent.dst, entropy, path.priority());
        packet.set_colour(path.colour());
        if let Some(flows) = &mut self.flows {
            flows.sent(host, sent.dst, sent.start, &headers, payload);
        }
        let content = Content { frame: Some(Box::default()), ..Content::new(headers, path, payload) };
        let put = self.network.put_with(host, sent.start, packet, content, mishap);
        if let Some(int) = sent.telemetry {
            self.network.set_telemetry(put.id, int);
        }
        if put.late > 0 {
            self.late.frames += 1;
            self.late.worst = self.late.worst.max(put.late);
        }
        let frames = &mut self.network.shared_mut().bytes;
        let place = put.id as usize;
        if frames.len() <= place {
            frames.resize_with(place + 1, Vec::new);
        }
        frames[place].clear();
        frames[place].extend_from_slice(sent.frame);
        if self.network.port_of(host).is_tapped() {
            self.network.show_put(host, &put);
        }
        put
    }

    /// Puts a frame that a rule may be for onto the link of its host. Returns when its last bit has left, ns.
    #[cold]
    fn put_with(&mut self, host: u32, sent: &Sent<'_>, headers: Headers, payload: u32, verdict: Verdict) -> u64 {
        let Verdict { lost, corrupted, twice, later } = verdict;
        let mut left = sent.start;
        for _ in 0..=u32::from(twice) {
            let put = self.put(host, sent, headers, payload, Mishap { lost, later });
            left = put.left;
            if let Some(faults) = &mut self.faults {
                faults.note(put.id, corrupted);
            }
            let bytes = &mut self.network.shared_mut().bytes[put.id as usize];
            // The last byte before the ICRC, and that. The number of the queue pair, by which the process is found, is
            // further ahead.
            if corrupted && let Some(rest) = bytes.len().checked_sub(ICRC_LEN + 1) {
                bytes[rest] ^= 1;
                bytes[rest + 1..].fill(0xff);
            }
        }
        left
    }

    /// Lets happen what happens until `until`, ns. `each` gets what reaches hosts, in order of time.
    pub fn run_until(&mut self, until: u64, mut each: impl FnMut(Arrival<'_>)) {
        loop {
            let planned = self.plans.first().map_or(u64::MAX, |(at, _)| *at);
            let turned = self.turned.front().map_or(u64::MAX, |turned| turned.at);
            let next = planned.min(turned);
            if next > until {
                break;
            }
            self.run_undisturbed(next, &mut each);
            self.pass_back(next, &mut each);
            if planned == next {
                let (_, plan) = self.plans.remove(0);
                self.carry_out(plan, &mut each);
            }
        }
        self.run_undisturbed(until, &mut each);
    }

    /// Does as [`Self::run_until`], without what is planned.
    fn run_undisturbed(&mut self, until: u64, each: &mut impl FnMut(Arrival<'_>)) {
        self.network.run_until(until);
        let Lab { network, faults, paused: pauses, lookahead, .. } = self;
        let frames = network.shared_mut();
        if let Some(recorder) = &mut frames.recorder {
            // What is sent now may have begun to leave so long ago.
            recorder.passed(until.saturating_sub(*lookahead));
        }
        for Delivery { host, at, frame, paused } in frames.arrived.drain(..) {
            let what = match frame {
                None => {
                    let (network, planned) = &mut pauses[host as usize];
                    *network = paused;
                    What::Pause(paused.and(*planned))
                }
                Some(Whole { id, path, len, has_telemetry }) => What::Frame {
                    src: host_of(path.src),
                    udp_src: path.udp_src,
                    traffic_class: path.traffic_class,
                    frame: &frames.bytes[id as usize][..len],
                    telemetry: has_telemetry.then(|| &frames.telemetry[id as usize]),
                    corrupted: faults.as_mut().is_some_and(|faults| faults.arrived(id)),
                },
            };
            if let (Some(flows), What::Frame { src, frame, .. }) = (&mut self.flows, what) {
                flows.arrived(src, host, at, frame);
            }
            each(Arrival { host, at, what });
        }
    }

    /// Shows what leaves by these ports from now on.
    pub fn record(&mut self, ports: impl IntoIterator<Item = PortId>, recorder: Box<dyn Recorder>) {
        ports.into_iter().for_each(|port| self.network.tap(port));
        self.network.shared_mut().recorder = Some(recorder);
    }

    /// Keeps account of flows from now on, for [`Lab::flows`].
    pub fn keep_flows(&mut self) {
        self.flows = Some(Box::default());
    }

    /// Returns what queue pairs have sent each other, in the order in which they began.
    pub fn flows(&self) -> Vec<SeenFlow> {
        self.flows.as_ref().map_or_else(Vec::new, |flows| flows.all())
    }

    #[cold]
    fn carry_out(&mut self, plan: Plan, each: &mut impl FnMut(Arrival<'_>)) {
        let at = self.now();
        let (host, priority, stop) = match plan {
            Plan::Down { link } => return self.turn_link(link, false, each),
            Plan::Up { link } => return self.turn_link(link, true, each),
            Plan::Pause { host, priority } => (host, priority, true),
            Plan::Resume { host, priority } => (host, priority, false),
        };
        let (network, planned) = &mut self.paused[host as usize];
        if stop {
            planned.insert(priority)
        } else {
            planned.remove(priority)
        }
        each(Arrival { host, at, what: What::Pause(network.and(*planned)) });
    }

    /// Has a link fail, or work again, of which a host at its end hears.
    fn turn_link(&mut self, link: u32, up: bool, each: &mut impl FnMut(Arrival<'_>)) {
        let at = self.now();
        self.change_link(LinkChange { at, link, what: if up { Change::Up } else { Change::Down } });
        if let Some(host) = (0..self.hosts()).find(|host| self.network.port_of(*host).link == link) {
            each(Arrival { host, at, what: What::Link { up } });
        }
    }

    /// Has something happen at a time, ns, or now if that is over; what was planned for the same link, or the same
    /// priority of the same host, is forgotten. `lasts`: it is undone so many ns later. Returns the time of the change.
    pub fn plan(&mut self, at: u64, plan: Plan, lasts: Option<u64>) -> u64 {
        let at = at.max(self.now());
        self.plans.retain(|(_, other)| !plan.is_about_the_same(*other));
        self.plans.push((at, plan));
        let undone = match plan {
            Plan::Down { link } => Some(Plan::Up { link }),
            Plan::Pause { host, priority } => Some(Plan::Resume { host, priority }),
            Plan::Up { .. } | Plan::Resume { .. } => None,
        };
        if let (Some(undone), Some(lasts)) = (undone, lasts) {
            self.plans.push((at.saturating_add(lasts), undone));
        }
        self.plans.sort_by_key(|(at, _)| *at);
        at
    }

    /// Puts a rule about frames into force, for those that are sent from now on. Returns its number.
    pub fn add_rule(&mut self, rule: Rule) -> u32 {
        self.faults.get_or_insert_default().add(rule)
    }

    /// Takes away the rule with this number, or all. Returns how many those were. Frames that are under way stay as
    /// they are.
    pub fn remove_rules(&mut self, id: Option<u32>) -> usize {
        self.faults.as_mut().map_or(0, |faults| faults.remove(id))
    }

    /// Returns the rules in force and what they have done.
    pub fn rules(&self) -> &[Placed] {
        self.faults.as_ref().map_or(&[], |faults| faults.rules())
    }

    /// Changes a link now.
    pub fn change_link(&mut self, change: LinkChange) {
        self.network.change_link(change);
    }

    /// Returns the frames that came too late.
    pub fn late(&self) -> Late {
        self.late
    }

    /// Returns how many frames had no destination or were none of RoCE.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the network, to look at.
    pub fn network(&self) -> &Network<impl Endpoint> {
        &self.network
    }
}
