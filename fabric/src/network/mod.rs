//! A network in virtual time: endpoints and switches joined by links. It is independent of NICs: its ends are
//! [`Endpoint`]s.
//!
//! Links are store-and-forward: a packet arrives when its last bit does. Everything that happens is an event of the
//! [`EventQueue`]; endpoints are polled for a packet when their link is free.
//!
//! The loop is here. Events are handled in `forward` (ports and switches), `endpoint_events` (endpoints), `links`
//! (failures) and `deadlock` (standstills); `totals` keeps the accounts.

mod account;
mod agenda;
mod build;
mod config;
mod credits;
mod deadlock;
mod endpoint;
mod endpoint_events;
mod events;
mod forward;
mod hash;
mod links;
mod order;
pub(crate) mod packet;
mod part;
mod partition;
pub(crate) mod port;
mod preempt;
mod preempt_events;
mod prefetch_events;
mod tap;
mod tap_events;
mod totals;

#[doc(hidden)]
pub use agenda::{Agenda, Event};
use irnic_transports::telemetry::Int;
use rand_pcg::Pcg64Mcg;

pub use config::{Change, Detour, LinkChange, NetworkConfig, NetworkError, Routing};
pub use credits::CreditConfig;
pub use deadlock::Standstill;
use endpoint::Host;
pub use endpoint::{Endpoint, EndpointCtx, Mishap, Put, address, host_of};
pub use events::{EventQueue, Waiting};
pub(crate) use hash::mix;
pub(crate) use order::{Record, Records};
pub use packet::{Content, Fifo, NONE, Packet, PacketId, Packets};
pub(crate) use part::{Moment, Next, Part, Published};
pub(crate) use partition::Partition;
use port::End;
pub use port::{CONTROL_FRAME, Control, Pause, Port, PortCounters, PortId};
pub use tap::{Recorder, Tapped};
pub use totals::Totals;

use crate::schedule::Journal;
use crate::switch::{Ledger, Switch};
use crate::topology::Routes;

/// Result of a step of the network.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An event without interest to the owner.
    Done,
    /// The endpoint of this host has received a packet or handled a deadline. It may have news for its owner, which
    /// then calls [`Network::settle`].
    Endpoint(u32),
    /// The time of [`Network::call_at`] or [`Network::observe_at`] with this token has come.
    Call(u32),
    /// In a part of a network: a packet with this token reaches its host in another part.
    Announced(u32),
    /// No event is left, or none up to the given time.
    Idle,
    /// Nothing will move any more: see [`Network::watch`] and [`Network::standstill`].
    Standstill,
}

/// A switch with its ports and random numbers.
#[derive(Debug)]
#[repr(align(64))]
struct SwitchNode {
    switch: Box<dyn Switch>,
    rng: Pcg64Mcg,
    /// The first of the switch's ports, which are contiguous, and their number.
    first: PortId,
    count: u32,
    /// Mixed into hashes, so that switches decide independently.
    salt: u32,
    /// Number of packets sprayed so far.
    sprayed: u32,
    /// Time of its earliest timer event, ns.
    wakes: u64,
}

const _: () = assert!(size_of::<SwitchNode>() == 64);

impl SwitchNode {
    /// A hash of addresses and UDP source port below `n`.
    #[inline]
    fn hashed(&self, entropy: u32, n: usize) -> usize {
        ((u64::from(mix(entropy ^ self.salt)) * n as u64) >> 32) as usize
    }
}

/// A network in virtual time, with an endpoint at each host.
///
/// It is driven by [`Self::run_until`], or event by event by [`Self::step`] if the owner needs to know what endpoints
/// have received. Between calls, endpoints can be read and changed ([`Self::endpoint_mut`]), followed by
/// [`Self::settle`]; packets can be put on hosts' links from outside ([`Self::put`]). Time never goes back.
#[derive(Debug)]
pub struct Network<E: Endpoint, A: Agenda = EventQueue<Event>> {
    now: u64,
    config: NetworkConfig,
    events: A,
    packets: Packets,
    ports: Vec<Port>,
    /// By port, what arrivals need.
    ends: Vec<End>,
    /// Whether a link loses packets at random.
    lossy: bool,
    /// Hosts of this part of the network, if it is not the whole.
    hosts: Vec<Host<E>>,
    all_hosts: u32,
    /// In a part: the index of each host in `hosts`.
    places: Vec<u32>,
    switches: Vec<SwitchNode>,
    routes: Routes,
    /// Random numbers of the links.
    rng: Pcg64Mcg,
    ledger: Ledger,
    /// Control frames in flight except PFC, and free slots.
    controls: Vec<Control>,
    free_controls: Vec<u32>,
    next_change: usize,
    /// Time from which arriving PFC frames are counted separately, ns.
    late: u64,
    /// Pending events that move nothing by themselves: observations, and timers of switches.
    observations: usize,
    timers: usize,
    watched: deadlock::Watched,
    /// Record of packets, if enabled.
    journal: Option<Box<Journal>>,
    shared: E::Shared,
}

/// One direction of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkRecord {
    /// Sending node.
    pub from: u32,
    /// Receiving node.
    pub to: u32,
    /// Rate, bit/s.
    pub rate: u64,
    /// Whether it leads away from the hosts.
    pub upwards: bool,
    /// Counters of the sending port.
    pub counters: PortCounters,
}

impl<E: Endpoint, A: Agenda> Network<E, A> {
    /// Processes the next event, if it is no later than `until`, ns.
    #[inline]
    pub fn step(&mut self, until: u64) -> Step {
        let Some((at, event)) = self.events.pop(until) else { return Step::Idle };
        self.now = at;
        self.look_ahead();
        self.handle(event)
    }

    /// Runs until the time `until`, ns, and settles every endpoint on the way. Returns earlier if nothing moves any
    /// more, which is only detected by [`Self::watch`]. Calls by [`Self::call_at`] are skipped.
    pub fn run_until(&mut self, until: u64) -> Option<Standstill> {
        loop {
            match self.step(until) {
                Step::Endpoint(host) => self.settle(host),
                Step::Done | Step::Call(_) | Step::Announced(_) => {}
                Step::Standstill => return Some(self.standstill()),
                Step::Idle => {
                    if until != u64::MAX {
                        self.now = self.now.max(until);
                    }
                    return None;
                }
            }
        }
    }

    // Kept out of the loop, which has no registers left.
    #[inline(never)]
    fn handle(&mut self, event: Event) -> Step {
        match event {
            Event::TxDone(port) => {
                if self.ports[port as usize].awaited == self.now {
                    self.start(port);
                }
            }
            Event::Arrive(port, epoch, id) => return self.arrive(port, epoch, id),
            Event::Pfc(port, epoch, paused) => self.pfc(port, epoch, paused),
            Event::Control(port, epoch, place) => return self.control(port, epoch, place),
            Event::Deadline(host) => {
                let place = self.place_of(host);
                let h = &mut self.hosts[place];
                if h.wakes == self.now {
                    h.wakes = u64::MAX;
                    h.endpoint.on_deadline(self.now);
                    return Step::Endpoint(host);
                }
            }
            Event::Timer(place) => self.timer(place as usize),
            Event::LinkChange => self.change_links(),
            Event::Call(token) => return Step::Call(token),
            Event::Observe(token) => {
                self.observations -= 1;
                return Step::Call(token);
            }
            Event::Announced(token) => return Step::Announced(token),
            Event::DeadlockCheck => {
                if self.stands_still() {
                    return Step::Standstill;
                }
            }
        }
        Step::Done
    }

    /// Index of a host in this part.
    #[inline(always)]
    fn place_of(&self, host: u32) -> usize {
        if A::PARTED { self.places[host as usize] as usize } else { host as usize }
    }

    /// Virtual time, ns.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Has [`Self::step`] return [`Step::Call`] with `token` at `at`, ns.
    pub fn call_at(&mut self, at: u64, token: u32) {
        self.events.push(at.max(self.now), Event::Call(token));
    }

    /// Has [`Self::step`] return [`Step::Call`] with `token` at `at`, ns, for an observer: a network in which nothing
    /// else is due still counts as standing still.
    pub fn observe_at(&mut self, at: u64, token: u32) {
        self.observations += 1;
        self.events.push(at.max(self.now), Event::Observe(token));
    }

    /// Totals of the network so far.
    pub fn totals(&self) -> &Totals {
        &self.ledger.totals
    }

    /// Packets in flight.
    pub fn packets(&self) -> &Packets {
        &self.packets
    }

    #[cfg(test)]
    pub(crate) fn packets_mut(&mut self) -> &mut Packets {
        &mut self.packets
    }

    /// Ports, by number.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Current paths through the network.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Whether a node belongs to this part of the network.
    #[inline]
    pub(crate) fn owns(&self, node: u32) -> bool {
        self.events.owns(node)
    }

    /// See [`Agenda::take_answered`].
    #[inline]
    pub(crate) fn take_answered(&mut self) -> Option<(u32, u32)> {
        self.events.take_answered()
    }

    /// See [`Agenda::stop_awaiting`].
    pub(crate) fn stop_awaiting(&mut self, host: u32) {
        self.events.stop_awaiting(host);
    }

    /// See [`Agenda::turn`].
    #[inline]
    pub(crate) fn turn(&mut self, n: u32) {
        self.events.turn(n);
    }

    /// State shared by all endpoints.
    pub fn shared(&self) -> &E::Shared {
        &self.shared
    }

    /// State shared by all endpoints, mutably.
    pub fn shared_mut(&mut self) -> &mut E::Shared {
        &mut self.shared
    }

    /// Attaches telemetry to a packet in flight, for switches to fill in.
    pub fn set_telemetry(&mut self, id: PacketId, telemetry: Int) {
        self.packets.set_telemetry(id, telemetry);
    }

    /// Time of the next event, ns; [`u64::MAX`] if there is none.
    pub fn next_event(&mut self) -> u64 {
        self.events.next_at().unwrap_or(u64::MAX)
    }

    /// Returns whether no packet is in flight, and no event is due except link changes.
    pub fn is_idle(&self) -> bool {
        // Only the next change is among the events.
        let change = self.next_change < self.config.changes.len();
        self.events.count() <= usize::from(change)
    }

    /// Number of pending events, and of events processed.
    pub fn events(&self) -> (usize, u64) {
        (self.events.count(), self.events.done())
    }

    /// Number of events processed that all parts of a network have.
    pub(crate) fn common_events(&self) -> u64 {
        self.events.common()
    }

    /// Bytes in the switches, and the most queued for one port.
    pub fn backlog(&self) -> (u64, u64) {
        let of = |s: &SwitchNode| (0..s.count as u16).map(|o| s.switch.backlog(o)).collect::<Vec<_>>();
        let all: Vec<u64> = self.switches.iter().flat_map(of).collect();
        (all.iter().sum(), all.iter().copied().max().unwrap_or(0))
    }

    /// Bytes queued in its switch for a port; 0 for a host's, which queues packets itself.
    pub fn backlog_of(&self, port: PortId) -> u64 {
        let Port { node, local, .. } = self.ports[port as usize];
        let place = node.checked_sub(self.all_hosts);
        place.map_or(0, |place| self.switches[place as usize].switch.backlog(local))
    }

    /// Counts PFC frames that arrive from `late` ns on separately, in [`Totals::late_pfc_frames`].
    pub(crate) fn count_late_pfc(&mut self, late: u64) {
        self.late = late;
    }

    /// Advances the time to `now`, ns, though nothing happened then.
    pub(crate) fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// The nodes at the two ends of a port.
    pub fn nodes_of(&self, port: PortId) -> (u32, u32) {
        let port = &self.ports[port as usize];
        (port.node, self.ports[port.peer as usize].node)
    }

    /// Both directions of every link, with their counters.
    pub fn links(&self) -> impl Iterator<Item = LinkRecord> {
        let tiers = self.config.topology.tiers();
        self.ports.iter().enumerate().map(move |(id, port)| {
            let (from, to) = self.nodes_of(id as PortId);
            let upwards = tiers[from as usize] < tiers[to as usize];
            LinkRecord { from, to, rate: port.rate, upwards, counters: port.counters_at(self.now) }
        })
    }
}
