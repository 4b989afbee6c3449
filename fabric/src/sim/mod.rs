//! The simulation: hosts and switches joined by links, run in virtual time.
//!
//! Links are store-and-forward: a packet is at the other end when its last bit is. Everything that happens is an [`Event`] of the
//! [`Agenda`]; hosts are asked for a packet when their link is free, as hardware does, so what is sent next is the NIC's own choice.

mod config;
mod deadlock;
mod flows;
mod ideal;
mod outcome;
#[cfg(test)]
mod tests;

use irnic_nic::attach::{Icrc, emit_frame, receive_frame};
use irnic_nic::port::{RxFrame, RxIcrc};
use irnic_nic::{NicConfig, NicError};
use irnic_transports::qp::{Wc, WcOpcode};
use irnic_transports::{Payload, RxPacket, Time};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

pub use config::{Change, Detour, HeaderBytes, LinkChange, QpPolicy, Routing, SimConfig, SimError};
pub use ideal::{Train, ideal, packets};
pub use outcome::{Ending, FlowRecord, LinkRecord, Outcome, Sample};

use crate::agenda::Agenda;
use crate::host::{Host, host_of, succeeded};
use crate::packet::{Content, Packet, PacketId, Packets};
use crate::port::{Event, PFC_FRAME, Pause, Port, PortId};
use crate::switch::{Surroundings, Switch};
use crate::topology::Routes;
use flows::Flows;

/// Bytes around a RoCEv2 frame (BTH to ICRC) over IPv4: Ethernet header, IPv4, UDP, frame check sequence.
pub const ENCAPSULATION: u32 = 14 + 20 + 8 + 4;

/// How often a network is looked at that may have come to a standstill, ns.
const WATCH: u64 = 1_000_000;

/// A switch, where it is, and its chance.
#[derive(Debug)]
struct SwitchNode {
    switch: Box<dyn Switch>,
    chance: Pcg64Mcg,
    /// Its ports among all.
    first: PortId,
    count: u32,
    /// Mixed into hashes, so that switches decide independently.
    salt: u32,
    /// Packets sprayed so far.
    sprayed: u32,
}

/// A network in virtual time.
#[derive(Debug)]
pub struct Simulation {
    now: u64,
    config: SimConfig,
    agenda: Agenda<Event>,
    packets: Packets,
    ports: Vec<Port>,
    hosts: Vec<Host>,
    switches: Vec<SwitchNode>,
    routes: Routes,
    flows: Flows,
    asks: Vec<(u16, Pause)>,
    /// Chance of the links.
    chance: Pcg64Mcg,
    /// What happened so far.
    totals: outcome::Totals,
    samples: Vec<Sample>,
    next_change: usize,
    watched: deadlock::Watched,
    ending: Option<Ending>,
}

/// 32 bits that look random (the finalizer of MurmurHash3).
#[inline]
fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

impl Simulation {
    /// A network at time 0, in which nothing has happened.
    pub fn new(config: SimConfig) -> Result<Simulation, SimError> {
        config.check()?;
        let topology = &config.topology;
        let nodes = topology.hosts + topology.switches;
        let mut ports: Vec<Port> = Vec::new();
        let mut first = Vec::with_capacity(nodes as usize + 1);
        // Ports of a node lie together, in the order of its links.
        let mut ends = vec![[u32::MAX; 2]; topology.links.len()];
        for node in 0..nodes {
            first.push(ports.len() as PortId);
            for (local, (link, _)) in topology.ports(node).into_iter().enumerate() {
                let spec = &topology.links[link];
                ends[link][usize::from(spec.b == node)] = ports.len() as PortId;
                ports.push(Port::new(node, local as u16, u32::MAX, link as u32, spec.rate, spec.delay, spec.loss));
            }
        }
        first.push(ports.len() as PortId);
        for [a, b] in ends {
            ports[a as usize].peer = b;
            ports[b as usize].peer = a;
        }
        let mut hosts = Vec::with_capacity(topology.hosts as usize);
        for host in 0..topology.hosts {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&config.seed.to_le_bytes());
            seed[8..12].copy_from_slice(&host.to_le_bytes());
            let nic = NicConfig { seed, mtu: config.setup.mtu, timer_tick: config.timer_tick, ..NicConfig::default() };
            hosts.push(Host::new(nic, first[host as usize])?);
        }
        let switches = (topology.hosts..nodes)
            .map(|node| {
                let range = first[node as usize] as usize..first[node as usize + 1] as usize;
                SwitchNode {
                    switch: config.switch.build(&ports[range.clone()]),
                    chance: Pcg64Mcg::new(u128::from(config.seed) << 64 | u128::from(node) << 1 | 1),
                    first: range.start as PortId,
                    count: range.len() as u32,
                    salt: mix(config.seed as u32 ^ mix(node)),
                    sprayed: 0,
                }
            })
            .collect();
        let mut agenda = Agenda::new();
        let routes = routes(&config, &|_| false);
        let flows = Flows::new(&config);
        if let Some(at) = flows.next_start() {
            agenda.push(at, Event::Start);
        }
        if let Some(change) = config.changes.first() {
            agenda.push(change.at, Event::Change);
        }
        if let Some(every) = config.sample {
            agenda.push(every, Event::Sample);
        }
        agenda.push(WATCH, Event::Watch);
        Ok(Simulation {
            now: 0,
            agenda,
            packets: Packets::default(),
            ports,
            hosts,
            switches,
            routes,
            flows,
            asks: Vec::new(),
            chance: Pcg64Mcg::new(u128::from(config.seed) << 64 | 1),
            totals: outcome::Totals::default(),
            samples: Vec::new(),
            next_change: 0,
            watched: deadlock::Watched::default(),
            ending: None,
            config,
        })
    }

    /// Virtual time, ns.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Flows that are complete, and flows in all.
    pub fn progress(&self) -> (usize, usize) {
        (self.flows.done, self.flows.len())
    }

    /// Runs until all flows are complete, nothing moves any more, or `events` more events have come. Returns whether it is over.
    pub fn run(&mut self, events: u64) -> Result<bool, SimError> {
        for _ in 0..events {
            if self.ending.is_some() {
                return Ok(true);
            }
            if self.flows.done == self.flows.len() {
                self.ending = Some(Ending::Complete);
                return Ok(true);
            }
            let Some((at, event)) = self.agenda.pop() else {
                self.ending = Some(self.standstill());
                return Ok(true);
            };
            if at > self.config.until {
                self.now = self.config.until;
                self.ending = Some(Ending::TimeUp);
                return Ok(true);
            }
            self.now = at;
            self.handle(event)?;
        }
        Ok(self.ending.is_some())
    }

    /// Runs to the end.
    pub fn finish(mut self) -> Result<Outcome, SimError> {
        while !self.run(u64::MAX)? {}
        self.outcome()
    }

    #[inline]
    fn handle(&mut self, event: Event) -> Result<(), SimError> {
        match event {
            Event::Free(port) => {
                if self.ports[port as usize].awaited == self.now {
                    self.start(port);
                }
            }
            Event::Arrive(port, epoch, id) => self.arrive(port, epoch, id)?,
            Event::Obey(port, epoch, stopped) => self.obey(port, epoch, stopped),
            Event::Deadline(host) => {
                let h = &mut self.hosts[host as usize];
                if h.wakes == self.now {
                    h.wakes = u64::MAX;
                    h.on_deadline(self.now);
                    self.after_host(host)?;
                }
            }
            Event::Start => self.start_flows()?,
            Event::Change => self.change_links(),
            Event::Sample => self.sample(),
            Event::Watch => self.watch(),
        }
        Ok(())
    }

    /// Has a port that is free send its next packet, if it has one.
    #[inline]
    fn start(&mut self, id: PortId) {
        let port = &mut self.ports[id as usize];
        if port.free_at > self.now {
            // Called again when it is free.
            if std::mem::replace(&mut port.awaited, port.free_at) != port.free_at {
                self.agenda.push(port.free_at, Event::Free(id));
            }
            return;
        }
        if !port.up {
            return;
        }
        if let Some(stopped) = port.next_control() {
            let ends = port.send(self.now, PFC_FRAME);
            let (arrives, epoch) = (ends + port.delay, port.epoch);
            port.awaited = ends;
            self.agenda.push(ends, Event::Free(id));
            self.agenda.push(arrives, Event::Obey(id, epoch, stopped));
            return;
        }
        let stopped = port.stopped;
        let node = port.node;
        let hosts = self.hosts.len() as u32;
        let (next, more) = if node < hosts {
            let next = self.next_of_host(node, stopped);
            (next, self.hosts[node as usize].nic.wants_tx())
        } else {
            let local = port.local;
            let place = (node - hosts) as usize;
            let (node, mut surroundings) =
                surroundings(&mut self.switches[place], self.now, &mut self.packets, &mut self.ports, &mut self.asks);
            let next = node.next(&mut surroundings, local, stopped);
            let more = node.queued(local) > 0;
            if !self.asks.is_empty() {
                self.send_asks(place, Some(id));
            }
            (next, more)
        };
        let Some(packet) = next else { return };
        let wire = self.packets.get(packet).wire;
        let port = &mut self.ports[id as usize];
        let ends = port.send(self.now, wire);
        port.counters.packets += 1;
        port.counters.bytes += u64::from(wire);
        port.flying += u64::from(wire);
        let (arrives, epoch) = (ends + port.delay, port.epoch);
        // Most of the time nobody has anything more to send: whoever comes while the port is busy has it looked at then.
        if more || port.has_control() {
            port.awaited = ends;
            self.agenda.push(ends, Event::Free(id));
        }
        self.agenda.push(arrives, Event::Arrive(id, epoch, packet));
    }

    /// Sends the PFC frames that a switch wants sent, while its port `by`, if given, is about to send something else.
    #[cold]
    fn send_asks(&mut self, place: usize, by: Option<PortId>) {
        let first = self.switches[place].first;
        let mut asks = std::mem::take(&mut self.asks);
        for (input, pause) in asks.drain(..) {
            let port = first + u32::from(input);
            self.ports[port as usize].ask(pause);
            if by != Some(port) {
                self.start(port);
            }
        }
        self.asks = asks;
    }

    /// Asks a NIC for a packet.
    #[inline]
    fn next_of_host(&mut self, host: u32, stopped: u8) -> Option<PacketId> {
        let Simulation { hosts, packets, config, totals, now, .. } = self;
        let nic = &mut hosts[host as usize].nic;
        nic.set_stopped(stopped);
        if !nic.wants_tx() {
            return None;
        }
        let mut taken = None;
        nic.poll_transmit(Time(*now), 1, |packet| {
            let payload = packet.payload.len() as u32;
            let wire = match config.headers {
                HeaderBytes::Real => packet.headers.frame_len(payload as usize) as u32 + ENCAPSULATION,
                HeaderBytes::Fixed(bytes) => payload + bytes,
            };
            let frame = config.carry_bytes.then(|| {
                let mut frame = vec![0; packet.headers.frame_len(payload as usize)];
                emit_frame(packet, Some(packet.path), &mut frame);
                frame.into_boxed_slice()
            });
            let dst = host_of(packet.path.dst);
            let entropy = mix(host ^ mix(dst ^ mix(u32::from(packet.path.udp_src))));
            totals.injected(*now, wire);
            taken = Some(packets.add(
                Packet::new(wire, dst, entropy, packet.path.traffic_class >> 5),
                Content { headers: *packet.headers, path: *packet.path, payload, sent: *now, frame },
            ));
            false
        });
        self.schedule(host);
        taken
    }

    /// Sees to it that a NIC is woken for its next deadline.
    #[inline]
    fn schedule(&mut self, host: u32) {
        let h = &mut self.hosts[host as usize];
        let deadline = h.nic.next_deadline().0;
        if deadline < h.wakes {
            h.wakes = deadline.max(self.now);
            self.agenda.push(h.wakes, Event::Deadline(host));
        }
    }

    fn arrive(&mut self, from: PortId, epoch: u16, id: PacketId) -> Result<(), SimError> {
        let wire = self.packets.get(id).wire;
        let sender = &mut self.ports[from as usize];
        sender.flying -= u64::from(wire);
        let lost = epoch != sender.epoch || sender.loss > 0 && self.chance.random::<u64>() < sender.loss;
        if lost {
            sender.counters.lost += 1;
            self.totals.lost(self.now, self.packets.content(id).sent, wire);
            self.packets.remove(id);
            return Ok(());
        }
        let to = sender.peer;
        let &Port { node, local, .. } = &self.ports[to as usize];
        let hosts = self.hosts.len() as u32;
        if node < hosts {
            return self.deliver(node, id);
        }
        let packet = self.packets.get_mut(id);
        packet.input = local;
        packet.hops += 1;
        let (dst, entropy) = (packet.dst, packet.entropy);
        let place = (node - hosts) as usize;
        let Some(output) = self.route(place, node, dst, entropy) else {
            self.drop_at(to, id);
            return Ok(());
        };
        let (switch, mut surroundings) =
            surroundings(&mut self.switches[place], self.now, &mut self.packets, &mut self.ports, &mut self.asks);
        let admitted = switch.arrive(&mut surroundings, id, output);
        let out = self.switches[place].first + u32::from(output);
        if !admitted {
            self.drop_at(to, id);
        }
        if !self.asks.is_empty() {
            self.send_asks(place, None);
        }
        self.start(out);
        Ok(())
    }

    /// The output by which a switch sends a packet on.
    #[inline]
    fn route(&mut self, place: usize, node: u32, dst: u32, entropy: u32) -> Option<u16> {
        let choices = self.routes.ports(node, dst);
        let switch = &mut self.switches[place];
        match choices {
            [] => None,
            [only] => Some(*only),
            several => {
                let n = several.len() as u64;
                let at = match self.config.routing {
                    Routing::Ecmp => (u64::from(mix(entropy ^ switch.salt)) * n) >> 32,
                    Routing::Spray => {
                        switch.sprayed = switch.sprayed.wrapping_add(1);
                        u64::from(switch.sprayed) % n
                    }
                    Routing::Static => u64::from(dst) % n,
                };
                Some(several[at as usize])
            }
        }
    }

    fn drop_at(&mut self, input: PortId, id: PacketId) {
        self.ports[input as usize].counters.dropped += 1;
        self.totals.dropped(self.now, self.packets.content(id).sent, self.packets.get(id).wire);
        self.packets.remove(id);
    }

    fn deliver(&mut self, host: u32, id: PacketId) -> Result<(), SimError> {
        let now = Time(self.now);
        let content = self.packets.content(id);
        let nic = &mut self.hosts[host as usize].nic;
        match &content.frame {
            None => {
                let packet = RxPacket {
                    headers: &content.headers,
                    path: &content.path,
                    payload: Payload::Len(content.payload),
                    arrived: now,
                };
                nic.receive(now, &packet);
            }
            Some(bytes) => {
                let frame = RxFrame { path: content.path, bytes, arrived: now, icrc: RxIcrc::Exact };
                receive_frame(nic, now, &frame, Icrc::Checked);
            }
        }
        self.totals.delivered(self.now, content.sent, self.packets.get(id).wire, content.payload);
        self.packets.remove(id);
        self.after_host(host)
    }

    /// A NIC may have completions, something to send, and a new deadline.
    #[inline]
    fn after_host(&mut self, host: u32) -> Result<(), SimError> {
        let mut wcs = [Wc::EMPTY; 8];
        loop {
            let n = self.hosts[host as usize].poll(&mut wcs);
            for wc in &wcs[..n] {
                let flow = wc.wr_id as u32;
                if !succeeded(wc) {
                    return Err(SimError::Failed { flow, status: format!("{:?}", wc.status), at: self.now });
                }
                match wc.opcode {
                    WcOpcode::RecvRdmaWithImm => self.flows.delivered(flow, self.now, &mut self.hosts)?,
                    _ => self.flows.acknowledged(flow, self.now, &mut self.hosts)?,
                }
            }
            if n < wcs.len() {
                break;
            }
        }
        self.schedule(host);
        self.start(self.hosts[host as usize].port);
        Ok(())
    }

    fn start_flows(&mut self) -> Result<(), SimError> {
        while let Some(host) = self.flows.start_next(self.now, &self.config, &mut self.hosts)? {
            self.after_host(host)?;
        }
        if let Some(at) = self.flows.next_start() {
            self.agenda.push(at, Event::Start);
        }
        Ok(())
    }

    fn obey(&mut self, from: PortId, epoch: u16, stopped: u8) {
        let &Port { peer, epoch: now_epoch, .. } = &self.ports[from as usize];
        if epoch != now_epoch {
            return;
        }
        self.totals.pfc_frames += 1;
        self.ports[peer as usize].obey(self.now, stopped);
        self.start(peer);
    }

    fn change_links(&mut self) {
        while let Some(change) = self.config.changes.get(self.next_change).copied() {
            if change.at > self.now {
                self.agenda.push(change.at, Event::Change);
                break;
            }
            self.next_change += 1;
            self.change_link(change);
        }
    }

    fn change_link(&mut self, change: LinkChange) {
        let hosts = self.hosts.len() as u32;
        let ends: Vec<PortId> =
            (0..self.ports.len() as PortId).filter(|&p| self.ports[p as usize].link == change.link).collect();
        for id in ends {
            let port = &mut self.ports[id as usize];
            match change.what {
                Change::Rate(rate) => port.set_rate(rate),
                Change::Up if port.up => {}
                Change::Up => {
                    port.up = true;
                    // The other end has forgotten what it was asked for; XONs that were due meanwhile are no news to it.
                    port.reset_pauses(self.now);
                    let &mut Port { node, local, .. } = port;
                    if node >= hosts {
                        let stopping = self.switches[(node - hosts) as usize].switch.stopping();
                        for (_, priority) in stopping.into_iter().filter(|(input, _)| *input == local) {
                            self.ports[id as usize].ask(Pause { priority, stop: true });
                        }
                    }
                }
                Change::Down => {
                    port.up = false;
                    port.epoch = port.epoch.wrapping_add(1);
                    port.reset_pauses(self.now);
                    let &mut Port { node, local, .. } = port;
                    if node >= hosts {
                        let place = (node - hosts) as usize;
                        let (totals, now) = (&mut self.totals, self.now);
                        let mut lost = 0;
                        let (switch, mut surroundings) = surroundings(
                            &mut self.switches[place],
                            self.now,
                            &mut self.packets,
                            &mut self.ports,
                            &mut self.asks,
                        );
                        switch.flush(&mut surroundings, local, &mut |packets, packet| {
                            totals.lost(now, packets.content(packet).sent, packets.get(packet).wire);
                            packets.remove(packet);
                            lost += 1;
                        });
                        self.ports[id as usize].counters.lost += lost;
                        self.send_asks(place, Some(id));
                    }
                }
            }
        }
        if matches!(change.what, Change::Up | Change::Down) {
            let ports = &self.ports;
            let mut down = vec![false; self.config.topology.links.len()];
            ports.iter().for_each(|p| down[p.link as usize] |= !p.up);
            self.routes = routes(&self.config, &|link| down[link]);
        }
        for id in 0..self.ports.len() as PortId {
            self.start(id);
        }
    }

    fn sample(&mut self) {
        let Some(every) = self.config.sample else { return };
        self.samples.push(self.look());
        if self.flows.done < self.flows.len() {
            self.agenda.push(self.now + every, Event::Sample);
        }
    }

    /// Ends a run that would otherwise go on for ever without moving.
    fn watch(&mut self) {
        if let Some(cycle) = self.deadlock() {
            self.ending = Some(Ending::Deadlock(cycle));
            return;
        }
        // Samples alone move nothing.
        if self.agenda.len() <= usize::from(self.config.sample.is_some()) {
            self.ending = Some(self.standstill());
            return;
        }
        self.agenda.push(self.now + WATCH, Event::Watch);
    }
}

/// Shortest ways over the links that are not `down`, and detours.
fn routes(config: &SimConfig, down: &impl Fn(usize) -> bool) -> Routes {
    let mut routes = Routes::compute(&config.topology, down);
    for detour in &config.detours {
        let links = config.topology.ports(detour.node);
        let port = links.iter().position(|&(link, peer)| peer == detour.via && !down(link));
        if let Some(port) = port {
            routes.detour(detour.node, detour.dst, port as u16);
        }
    }
    routes
}

/// A switch and what it works with.
#[inline]
fn surroundings<'a>(
    node: &'a mut SwitchNode,
    now: u64,
    packets: &'a mut Packets,
    ports: &'a mut [Port],
    asks: &'a mut Vec<(u16, Pause)>,
) -> (&'a mut dyn Switch, Surroundings<'a>) {
    let own = node.first as usize..(node.first + node.count) as usize;
    let surroundings = Surroundings { now, packets, ports: &mut ports[own], chance: &mut node.chance, asks };
    (node.switch.as_mut(), surroundings)
}

impl From<NicError> for SimError {
    fn from(e: NicError) -> SimError {
        SimError::Nic(e.to_string())
    }
}
