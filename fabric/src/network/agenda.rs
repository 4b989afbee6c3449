//! What is to be done, and in which order: by the one queue of a whole network, or by that of a part
//! ([`super::part`]).

use std::fmt::Debug;

use super::events::Waiting;
use super::{Control, EventQueue, PacketId, PortId};
use crate::priorities::Priorities;

/// Something to do, at a time.
#[derive(Copy, Clone, Debug)]
pub enum Event {
    /// A port has sent its packet.
    TxDone(PortId),
    /// A packet is there by this port, if the link has not gone down since the given epoch.
    Arrive(PortId, u16, PacketId),
    /// A PFC frame is there by this port, if the link has not gone down since: the priorities that the port is to
    /// pause.
    Pfc(PortId, u16, Priorities),
    /// Another control frame is there by this port, if the link has not gone down since: its place among all under way.
    Control(PortId, u16, u32),
    /// An endpoint has a deadline.
    Deadline(u32),
    /// A switch has one.
    Timer(u32),
    /// Link changes are due.
    LinkChange,
    /// The owner wants to be called.
    Call(u32),
    /// The owner wants to look at the network.
    Look(u32),
    /// Time to see whether anything moves.
    DeadlockCheck,
    /// A packet, known by this number, reaches its host in another part of the network: no event of this one.
    Announced(u32),
}

/// Five of them and a number fill a line of the cache in the event queue.
const _: () = assert!(size_of::<Event>() == 12);

impl Waiting for Event {}

impl Event {
    /// Whether each part of a network that is cut has the event, and all at the same place in their orders.
    #[inline]
    pub fn is_common(&self) -> bool {
        matches!(self, Event::LinkChange | Event::Call(_) | Event::Look(_) | Event::DeadlockCheck)
    }
}

/// The events of a network that wait.
pub trait Agenda: Debug {
    /// The network is a part of a larger one.
    const PARTED: bool;

    /// Adds an event at `at` ns, no earlier than the last that came out.
    fn push(&mut self, at: u64, event: Event);

    /// The next event and its time, ns, if that is no later than `until`.
    fn pop(&mut self, until: u64) -> Option<(u64, Event)>;

    /// When the next event is due, ns.
    fn next_at(&mut self) -> Option<u64>;

    /// The event that is going to come after `n` others, if nothing comes between. What is not near is not seen.
    fn coming(&self, n: usize) -> Option<Event>;

    /// All events that wait, in no particular order.
    fn waiting(&self) -> impl Iterator<Item = Event>;

    /// Events that wait.
    fn count(&self) -> usize;

    /// Events that came out.
    fn done(&self) -> u64;

    /// In a part: notes what the whole network is to be judged by. Packets that reached endpoints, packets under way,
    /// timers of switches and looks that wait.
    fn watched(&mut self, delivered: u64, packets: usize, timers: usize, looks: usize);

    /// Those of them that all parts have.
    fn common(&self) -> u64;

    /// What is pushed from now on belongs to the `n`-th of the things that an event does which all parts have
    /// ([`Event::is_common`]), at most 2²².
    fn turn(&mut self, n: u32);

    /// Whether packets without payload that reach this host are to be announced.
    fn awaits(&self, host: u32) -> bool;

    /// A host awaits one packet less that is to be announced.
    fn stop_awaiting(&mut self, host: u32);

    /// Announces that what is pushed next reaches its host at `at` ns, to the part of `node`.
    fn announce(&mut self, at: u64, node: u32, token: u32);

    /// A packet that was announced has reached its host and queue pair, or is lost.
    fn answer(&mut self, host: u32, qpn: u32);

    /// Packets that were announced and have come since this was last asked: hosts and queue pairs.
    fn take_answered(&mut self) -> Option<(u32, u32)>;

    /// Whether a node belongs to this part.
    fn owns(&self, node: u32) -> bool;

    /// Sends a packet to a node of another part: the time at which it arrives, ns, the port by which it does, and the
    /// epoch of that. It is the agenda's from now on.
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

    fn watched(&mut self, _delivered: u64, _packets: usize, _timers: usize, _looks: usize) {}

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
