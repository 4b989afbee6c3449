//! A network with external hosts: their frames enter with the time at which they began to leave, and are delivered with
//! their arrival time.
//!
//! The owner of the hosts drives it: [`Lab::send`] for each frame that a host has sent, [`Lab::run_until`] to advance
//! to a time. A frame reaches a switch at least [`Lab::lookahead`] after the host sent it, so that nothing is too late
//! as long as the network is no more than that ahead of the slowest host (conservative synchronization: Chandy and
//! Misra, 1979).
//!
//! Faults are injected on demand: rules about frames ([`Rule`]), and planned changes to links and hosts
//! ([`Lab::plan`]). [`Command`] is their text form.

mod command;
mod faults;
mod flows;
mod goodput;
mod plan;

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
use goodput::Goodput;
pub use plan::Plan;

/// Bytes on the wire of the shortest Ethernet frame.
const SHORTEST: u32 = 64;

/// A network between external hosts.
#[derive(Debug)]
pub struct Lab {
    network: Network<Station>,
    hosts: u32,
    lookahead: u64,
    ect: bool,
    late: Late,
    refused: u64,
    flows: Option<Box<FlowLog>>,
    /// Payload without repetitions, if it is counted.
    goodput: Option<Box<Goodput>>,
    /// Fault rules, if there are any.
    faults: Option<Box<Faults>>,
    /// Frames of hosts to themselves, in order of time.
    turned: VecDeque<Turned>,
    /// Planned changes with their times, in order.
    plans: Vec<(u64, Plan)>,
    /// By host, the priorities paused by the network, and by plans.
    paused: Vec<(Priorities, Priorities)>,
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

/// Frames that arrived after the time at which they should have reached the first switch.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// Number of late frames.
    pub frames: u64,
    /// The largest delay, ns.
    pub worst: u64,
}

/// A frame that a host sends.
#[derive(Copy, Clone, Debug)]
pub struct Sent<'a> {
    /// Time at which the frame begins to leave, ns. It waits for those that the host has sent before.
    pub start: u64,
    /// Destination host.
    pub dst: u32,
    /// UDP source port, by which switches choose among paths.
    pub udp_src: u16,
    /// IP traffic class: the priority in the upper three bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Bytes from the BTH to the ICRC.
    pub frame: &'a [u8],
    /// Telemetry for switches to fill in; it makes the packet longer ([`Int::LEN`]).
    pub telemetry: Option<Int>,
}

/// A frame or notification that reaches a host.
#[derive(Copy, Clone, Debug)]
pub struct Arrival<'a> {
    /// The host.
    pub host: u32,
    /// Time at which it has arrived completely, ns.
    pub at: u64,
    /// The frame or notification.
    pub what: What<'a>,
}

/// A frame, or a notification from the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A frame.
    Frame {
        /// Source host.
        src: u32,
        /// UDP source port, as sent.
        udp_src: u16,
        /// Traffic class, with the changes by switches.
        traffic_class: u8,
        /// Bytes from the BTH to the ICRC; of a trimmed frame, what is left.
        frame: &'a [u8],
        /// Telemetry written by switches.
        telemetry: Option<&'a Int>,
        /// Whether a bit was flipped, so that the ICRC is wrong.
        corrupted: bool,
    },
    /// The host is to pause exactly these priorities.
    Pause(Priorities),
    /// The host's link has failed, or works again.
    Link {
        /// Whether it works.
        up: bool,
    },
}

/// A frame that arrived, or [`None`] with the paused priorities.
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

/// The bytes of frames in flight by packet number, and the deliveries of the current run.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<Vec<u8>>,
    /// Telemetry of those deliveries that have some.
    telemetry: Vec<Int>,
    /// Receiver of the frames of tapped ports.
    recorder: Option<Box<dyn Recorder>>,
    arrived: Vec<Delivery>,
}

/// The end of a host's link. The frames of the host are put there from outside ([`Network::put`]).
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
        // Packets created by switches have no frame.
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
        // Packets created by switches have none.
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

    /// Builds the network. `ect`: frames of hosts are ECN-capable, whatever their traffic class says.
    ///
    /// # Errors
    /// The error states what is wrong with the configuration.
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
            goodput: None,
            turned: VecDeque::new(),
        })
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Returns the current time, ns.
    pub fn now(&self) -> u64 {
        self.network.now()
    }

    /// Returns the minimum time from the start of a frame's transmission to its arrival at a switch, ns: the minimum
    /// over hosts of the link's delay plus the shortest frame's transmission time.
    pub fn lookahead(&self) -> u64 {
        self.lookahead
    }

    /// Returns the time of the next event, ns; [`u64::MAX`] if nothing is in flight.
    pub fn next_event(&mut self) -> u64 {
        let planned = self.plans.first().map_or(u64::MAX, |(at, _)| *at);
        let turned = self.turned.front().map_or(u64::MAX, |turned| turned.at);
        self.network.next_event().min(planned).min(turned)
    }

    /// Returns whether nothing is in flight that a host may wait for; link changes and planned pauses do not count.
    pub fn is_idle(&self) -> bool {
        let undone = |(_, plan): &(u64, Plan)| matches!(plan, Plan::Up { .. } | Plan::Resume { .. });
        self.network.is_idle() && self.turned.is_empty() && !self.plans.iter().any(undone)
    }

    /// Accepts a frame of a host. Returns the time at which its last bit has left the host, ns. Frames without a
    /// destination, or that are not RoCE, are counted and discarded.
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

    /// Accepts a frame of a host to itself: it arrives when it would at the switch, since NICs do not send such frames
    /// on.
    #[cold]
    fn turn_back(&mut self, host: u32, sent: &Sent<'_>) {
        let at = (sent.start + self.lookahead).max(self.now());
        let place = self.turned.partition_point(|turned| turned.at <= at);
        let Sent { udp_src, traffic_class, frame, telemetry, .. } = *sent;
        let frame = frame.to_vec();
        self.turned.insert(place, Turned { host, at, udp_src, traffic_class, frame, telemetry });
    }

    /// Delivers frames of hosts to themselves, up to a time.
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

    /// Puts a frame on the link of its host.
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

    /// Puts a frame to which a rule may apply on the link of its host. Returns the time at which its last bit has left,
    /// ns.
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
            // The last byte before the ICRC, and the ICRC. The queue pair number, by which the process is found, is
            // earlier.
            if corrupted && let Some(rest) = bytes.len().checked_sub(ICRC_LEN + 1) {
                bytes[rest] ^= 1;
                bytes[rest + 1..].fill(0xff);
            }
        }
        left
    }

    /// Runs until `until`, ns. `each` is called with what reaches hosts, in order of time.
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

    /// Like [`Self::run_until`], without planned changes.
    fn run_undisturbed(&mut self, until: u64, each: &mut impl FnMut(Arrival<'_>)) {
        self.network.run_until(until);
        let Lab { network, faults, paused: pauses, lookahead, .. } = self;
        let frames = network.shared_mut();
        if let Some(recorder) = &mut frames.recorder {
            // Frames sent from now on may have begun to leave that long ago.
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
            if let (Some(goodput), What::Frame { src, frame, corrupted: false, .. }) = (&mut self.goodput, what) {
                goodput.arrived(src, host, frame);
            }
            each(Arrival { host, at, what });
        }
    }

    /// Records frames that leave by these ports from now on.
    pub fn record(&mut self, ports: impl IntoIterator<Item = PortId>, recorder: Box<dyn Recorder>) {
        ports.into_iter().for_each(|port| self.network.tap(port));
        self.network.shared_mut().recorder = Some(recorder);
    }

    /// Returns whether frames are recorded.
    pub fn is_recording(&mut self) -> bool {
        self.network.shared_mut().recorder.is_some()
    }

    /// Ends a recording. Returns whether there was one.
    pub fn stop_recording(&mut self) -> bool {
        self.network.untap();
        self.network.shared_mut().recorder.take().is_some()
    }

    /// Tracks flows from now on, for [`Lab::flows`].
    pub fn keep_flows(&mut self) {
        self.flows = Some(Box::default());
    }

    /// Returns the flows between queue pairs, in order of their start.
    pub fn flows(&self) -> Vec<SeenFlow> {
        self.flows.as_ref().map_or_else(Vec::new, |flows| flows.all())
    }

    /// Counts from now on what reaches hosts for the first time, for [`Lab::goodput`].
    pub fn count_goodput(&mut self) {
        self.goodput = Some(Box::default());
    }

    /// Returns the payload that has reached hosts without repetitions, bytes; 0 if it is not counted. A packet of a
    /// reliable queue pair is a repetition if one with its number has arrived before, even if the NIC dropped that.
    pub fn goodput(&self) -> u64 {
        self.goodput.as_ref().map_or(0, |goodput| goodput.bytes)
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

    /// Fails or restores a link, and notifies the host at its end.
    fn turn_link(&mut self, link: u32, up: bool, each: &mut impl FnMut(Arrival<'_>)) {
        let at = self.now();
        self.change_link(LinkChange { at, link, what: if up { Change::Up } else { Change::Down } });
        if let Some(host) = (0..self.hosts()).find(|host| self.network.port_of(*host).link == link) {
            each(Arrival { host, at, what: What::Link { up } });
        }
    }

    /// Plans a change at a time, ns, or now if that time has passed; earlier plans for the same link, or the same
    /// priority of the same host, are discarded. `lasts`: the change is undone this many ns later. Returns the time of
    /// the change.
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

    /// Adds a rule about frames that are sent from now on. Returns its number.
    pub fn add_rule(&mut self, rule: Rule) -> u32 {
        self.faults.get_or_insert_default().add(rule)
    }

    /// Removes the rule with this number, or all. Returns the number of rules removed. Frames in flight stay as they
    /// are.
    pub fn remove_rules(&mut self, id: Option<u32>) -> usize {
        self.faults.as_mut().map_or(0, |faults| faults.remove(id))
    }

    /// Returns the rules in force and their counters.
    pub fn rules(&self) -> &[Placed] {
        self.faults.as_ref().map_or(&[], |faults| faults.rules())
    }

    /// Changes a link now.
    pub fn change_link(&mut self, change: LinkChange) {
        self.network.change_link(change);
    }

    /// Returns the count of late frames.
    pub fn late(&self) -> Late {
        self.late
    }

    /// Returns the number of frames without a destination or that were not RoCE.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the network, for inspection.
    pub fn network(&self) -> &Network<impl Endpoint> {
        &self.network
    }
}
