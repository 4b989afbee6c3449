//! The simulation: hosts and switches joined by links, run in virtual time.
//!
//! Links are store-and-forward: a packet is at the other end when its last bit is. Everything that happens is an `Event` of the
//! [`Agenda`]; hosts are asked for a packet when their link is free, as hardware does, so what is sent next is the NIC's own choice.
//!
//! The loop is here. What events do is in `forward` (ports and switches), `nics` (the ends), `links` (failures), `deadlock` (whether
//! anything moves) and `outcome` (samples, the end); `observe` is what the ends of connections see.

mod ahead;
mod build;
mod config;
mod deadlock;
mod flows;
mod forward;
mod ideal;
mod links;
mod nics;
mod observe;
mod outcome;
#[cfg(test)]
mod tests;

use irnic_nic::NicError;
use rand_pcg::Pcg64Mcg;

pub use config::{Change, Detour, HeaderBytes, LinkChange, QpPolicy, Quit, Routing, SimConfig, SimError};
pub use ideal::{Train, ideal, packets};
pub use observe::{Observe, Observed};
pub use outcome::{Ending, FlowRecord, LinkRecord, Outcome, Sample};

use crate::agenda::Agenda;
use crate::host::Host;
use crate::packet::{PacketId, Packets};
use crate::port::{Pause, Port, PortId};
use crate::switch::Switch;
use crate::topology::Routes;
use flows::Flows;

/// Bytes around a RoCEv2 frame (BTH to ICRC) over IPv4: Ethernet header, IPv4, UDP, frame check sequence.
pub const ENCAPSULATION: u32 = 14 + 20 + 8 + 4;

/// Something to do, at a time.
#[derive(Copy, Clone, Debug)]
enum Event {
    /// A port has sent its packet.
    Free(PortId),
    /// A packet is there by this port, if the link has not gone down since the given epoch.
    Arrive(PortId, u16, PacketId),
    /// The same of a PFC frame: the priorities that this port is to stop.
    Obey(PortId, u16, u8),
    /// A NIC has a deadline.
    Deadline(u32),
    /// The next flows start.
    Start,
    /// Link events are due.
    Change,
    /// Flows end before they are complete.
    Quit,
    /// Queues are looked at.
    Sample,
    /// Time to see whether anything moves.
    Watch,
}

/// Five of them and a number fill a line of the cache in the agenda.
const _: () = assert!(size_of::<Event>() == 12);

/// A switch, where it is, and its chance.
#[derive(Debug)]
#[repr(align(64))]
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

impl SwitchNode {
    /// A number below `n` that depends on addresses and UDP source port.
    #[inline]
    fn hashed(&self, entropy: u32, n: usize) -> usize {
        ((u64::from(mix(entropy ^ self.salt)) * n as u64) >> 32) as usize
    }
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
    next_quit: usize,
    observer: Option<Box<observe::Observer>>,
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
            let Some((at, event)) = self.agenda.pop(self.config.until) else {
                if self.agenda.is_empty() {
                    self.ending = Some(self.standstill());
                } else {
                    self.now = self.config.until;
                    self.ending = Some(Ending::TimeUp);
                }
                return Ok(true);
            };
            self.now = at;
            self.look_ahead();
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
            Event::Quit => self.quit_flows()?,
            Event::Sample => self.sample(),
            Event::Watch => self.watch(),
        }
        Ok(())
    }
}

impl From<NicError> for SimError {
    fn from(e: NicError) -> SimError {
        SimError::Nic(e.to_string())
    }
}
