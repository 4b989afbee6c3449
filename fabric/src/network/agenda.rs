//! Events and their order: by the one queue of a whole network, or by that of a part ([`super::part`]).

use std::fmt::Debug;

use super::events::Waiting;
use super::{Control, EventQueue, PacketId, PortId};
use crate::priorities::Priorities;

/// An event.
#[derive(Copy, Clone, Debug)]
pub enum Event {
    /// The transmission of a port has ended.
    TxDone(PortId),
    /// A packet arrives by this port, if the link has not gone down since the given epoch.
    Arrive(PortId, u16, PacketId),
    /// A PFC frame arrives by this port, if the link has not gone down since the given epoch: the priorities that the
    /// port is to pause.
    Pfc(PortId, u16, Priorities),
    /// Another control frame arrives by this port, if the link has not gone down since the given epoch: its slot among
    /// those in flight.
    Control(PortId, u16, u32),
    /// A deadline of an endpoint.
    Deadline(u32),
    /// A timer of a switch.
    Timer(u32),
    /// Link changes are due.
    LinkChange,
    /// The owner has requested a call.
    Call(u32),
    /// The owner has requested an observation.
    Observe(u32),
    /// Time to check whether anything moves.
    DeadlockCheck,
    /// A packet with this token reaches its host in another part of the network: no event of this one.
    Announced(u32),
}

/// Five of them and a number fill a cache line in the event queue.
const _: () = assert!(size_of::<Event>() == 12);

impl Waiting for Event {}

impl Event {
    /// Whether every part of a partitioned network has the event, at the same place in its order.
    #[inline]
    pub fn is_common(&self) -> bool {
        matches!(self, Event::LinkChange | Event::Call(_) | Event::Observe(_) | Event::DeadlockCheck)
    }
}

/// The pending events of a network.
pub trait Agenda: Debug {
    /// Whether the network is a part of a larger one.
    const PARTED: bool;

    /// Adds an event at `at` ns, no earlier than the last event returned.
    fn push(&mut self, at: u64, event: Event);

    /// Removes the next event and its time, ns, if it is no later than `until`.
    fn pop(&mut self, until: u64) -> Option<(u64, Event)>;

    /// Time of the next event, ns.
    fn next_at(&mut self) -> Option<u64>;

    /// The event that will come out after `n` others, if none is pushed in between. Only the near ones are visible.
    fn coming(&self, n: usize) -> Option<Event>;

    /// All pending events, in no particular order.
    fn waiting(&self) -> impl Iterator<Item = Event>;

    /// Number of pending events.
    fn count(&self) -> usize;

    /// Number of events returned so far.
    fn done(&self) -> u64;

    /// In a part: notes the data by which the whole network is checked for a standstill: packets delivered to
    /// endpoints, packets in flight, pending timers of switches and observations.
    fn watched(&mut self, delivered: u64, packets: usize, timers: usize, observations: usize);

    /// Number of events returned so far that all parts have.
    fn common(&self) -> u64;

    /// Assigns what is pushed from now on to the `n`-th step of an event that all parts have ([`Event::is_common`]), at
    /// most 2²².
    fn turn(&mut self, n: u32);

    /// Whether packets without payload that reach this host are announced.
    fn awaits(&self, host: u32) -> bool;

    /// Reduces the number of announced packets that a host awaits by one.
    fn stop_awaiting(&mut self, host: u32);

    /// Announces to the part of `node` that the packet pushed next reaches its host at `at` ns.
    fn announce(&mut self, at: u64, node: u32, token: u32);

    /// Reports that an announced packet has reached its host and queue pair, or is lost.
    fn answer(&mut self, host: u32, qpn: u32);

    /// Takes the next announced packet that has arrived: host and queue pair.
    fn take_answered(&mut self) -> Option<(u32, u32)>;

    /// Whether a node belongs to this part.
    fn owns(&self, node: u32) -> bool;

    /// Sends a packet, which the agenda then owns, to a node of another part: the time at which it arrives, ns, and its
    /// port with the epoch.
    fn mail_packet(&mut self, at: u64, node: u32, to: (PortId, u16), id: PacketId);

    /// Sends a control frame to a node of another part.
    fn mail_control(&mut self, at: u64, node: u32, to: (PortId, u16), control: Control);
}

impl Agenda for EventQueue<Event> {
    const PARTED: bool = false;

    #[inline]
    fn push(&mut self, at: u64, event: Event) {
        EventQueue::push(self, at, event);
    }

    #[inline]
    fn pop(&mut self, until: u64) -> Option<(u64, Event)> {
        EventQueue::pop(self, until)
    }

    fn next_at(&mut self) -> Option<u64> {
        EventQueue::next_at(self)
    }

    #[inline]
    fn coming(&self, n: usize) -> Option<Event> {
        EventQueue::coming(self, n)
    }

    fn waiting(&self) -> impl Iterator<Item = Event> {
        self.iter().copied()
    }

    fn count(&self) -> usize {
        EventQueue::len(self)
    }

    fn done(&self) -> u64 {
        self.pushed() - EventQueue::len(self) as u64
    }

    fn watched(&mut self, _delivered: u64, _packets: usize, _timers: usize, _observations: usize) {}

    fn common(&self) -> u64 {
        0
    }

    #[inline]
    fn turn(&mut self, _n: u32) {}

    #[inline]
    fn awaits(&self, _host: u32) -> bool {
        false
    }

    fn stop_awaiting(&mut self, _host: u32) {}

    fn announce(&mut self, _at: u64, _node: u32, _token: u32) {}

    fn answer(&mut self, _host: u32, _qpn: u32) {}

    #[inline]
    fn take_answered(&mut self) -> Option<(u32, u32)> {
        None
    }

    #[inline]
    fn owns(&self, _node: u32) -> bool {
        true
    }

    fn mail_packet(&mut self, _at: u64, _node: u32, _to: (PortId, u16), _id: PacketId) {
        unreachable!("no link is cut");
    }

    fn mail_control(&mut self, _at: u64, _node: u32, _to: (PortId, u16), _control: Control) {
        unreachable!("no link is cut");
    }
}
