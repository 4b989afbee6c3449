//! A unit's communication manager: sent and received management datagrams, and the listener for its events.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use irnic_cm::{Cm, CmConfig, CmEvent, CmId};
use irnic_nic::Nic;
use irnic_ports::host::{ServiceClaim, Slot};
use irnic_ports::{Port, host_now as now};
use irnic_transports::Time;
use irnic_transports::time::US;
use irnic_transports::wire::Mtu;

use super::neighbours::Neighbours;
use super::state::State;
use super::unit::Unit;
use crate::device::{DeviceInfo, PortListener};

/// How often the end of a process is sent: with a loss of one packet in ten, one peer in a thousand does not receive
/// it.
const FAREWELLS: usize = 3;

/// An application that polls for events does so at intervals below this, ns.
const EVENT_POLLING: u64 = 50 * US;

/// Receives the events of a unit's communication manager.
///
/// Called with the unit's lock held, on whichever thread runs the unit: it must hand over the event and return.
pub(crate) trait CmListener: Send + Sync {
    /// Takes an event. Returns false if there is no taker: an id that is new with it is then destroyed.
    fn event(&self, event: &CmEvent) -> bool;

    /// Receives the result of [`Unit::find_way`]: status 0, −EHOSTUNREACH or −ETIMEDOUT.
    fn way(&self, id: CmId, status: i32);
}

/// A communication manager and its listener. Without a listener it rejects every request, as peers of an application
/// that does not listen expect.
pub(super) struct Manager {
    cm: Cm,
    listener: Option<Arc<dyn CmListener>>,
    neighbours: Neighbours,
    /// When the application last polled for events.
    pub(super) last_poll: Time,
    /// When [`State::run_cm`] next has work on its own. Read with every poll, so it is cached.
    next_deadline: Time,
}

impl Manager {
    pub(super) fn new(info: &DeviceInfo, nic: &Nic, seed: [u8; 32]) -> Manager {
        // A device that no other process shares may have no slot: any works.
        let slot = Slot::of(nic.qp_numbers().start).unwrap_or(Slot::FIRST);
        let config = CmConfig::new(seed, info.guid, slot.first_comm_id(), Slot::COMM_IDS);
        Manager {
            cm: Cm::new(config.with_mtu(info.mtu)),
            listener: None,
            neighbours: Neighbours::new(),
            last_poll: Time::ZERO,
            next_deadline: Time::NEVER,
        }
    }

    /// Limits the path MTU of future connections.
    pub(super) fn set_mtu(&mut self, mtu: Mtu) {
        self.cm.set_mtu(mtu);
    }

    /// Returns when [`State::run_cm`] next has work on its own.
    #[inline]
    pub(super) fn next_deadline(&self) -> Time {
        self.next_deadline
    }

    /// Returns whether [`State::run_cm`] must query the port after everything that arrives.
    #[inline]
    pub(super) fn waits_for_neighbours(&self) -> bool {
        !self.neighbours.is_empty()
    }

    /// Returns whether the ends of peers' processes are relevant.
    #[inline]
    pub(super) fn has_ids(&self) -> bool {
        self.cm.id_count() > 0
    }
}

impl State {
    /// Ends connections to processes that have ended.
    #[cold]
    pub(super) fn drop_peers(&mut self, now: Time) {
        let port = &*self.nic_port.port;
        // A query takes a system call, and many connections may be to few processes.
        let mut known = BTreeMap::new();
        self.manager.cm.end_dead_peers(now, |address, comm_id| {
            *known.entry((address, Slot::of_comm_id(comm_id))).or_insert_with(|| port.peer_ended(address, comm_id))
        });
        self.run_cm(now);
    }

    /// Ends all connections, at a time of the NIC, because the process ends. Lost packets cannot be retransmitted
    /// later, so each is sent several times.
    pub(super) fn close_cm(&mut self, now: Time) {
        if !self.manager.has_ids() {
            return;
        }
        self.manager.cm.destroy_all(now);
        let farewells: Vec<_> = std::iter::from_fn(|| self.manager.cm.poll_mad()).collect();
        for _ in 0..FAREWELLS {
            for (path, mad) in &farewells {
                self.nic_port.nic.post_mad(*path, mad);
            }
            self.run_cm(now);
            self.transmit(irnic_ports::host_now());
        }
    }

    /// Passes arrivals to the communication manager, runs its timers, queues what it sends, and dispatches its events,
    /// at a time of the NIC.
    #[cold]
    pub(super) fn run_cm(&mut self, now: Time) {
        let (nic, port) = (&mut self.nic_port.nic, &mut self.nic_port.port);
        let heard = &mut self.presence.heard;
        let Manager { cm, listener, neighbours, next_deadline, .. } = &mut self.manager;
        if !neighbours.is_empty() {
            neighbours.retain(|id| cm.kind(id).is_ok());
            neighbours.poll(now, &mut |dst| port.resolve(now, dst), &mut |id, status| {
                if let Some(listener) = listener {
                    *heard = true;
                    listener.way(id, status);
                }
            });
        }
        while let Some(datagram) = nic.poll_mad() {
            cm.receive(now, &datagram.path, &datagram.mad);
        }
        if now >= cm.next_deadline() {
            cm.on_deadline(now);
        }
        while let Some(event) = cm.poll_event() {
            *heard = true;
            if !listener.as_ref().is_some_and(|listener| listener.event(&event)) && event.listener.is_some() {
                // An id without a taker would never be destroyed.
                let _ = cm.destroy(now, event.id);
            }
        }
        while let Some((path, mad)) = cm.poll_mad() {
            // A datagram without room is retransmitted later.
            nic.post_mad(path, &mad);
        }
        *next_deadline = cm.next_deadline().min(neighbours.next_deadline());
        self.nic_port.alarm = *next_deadline;
    }
}

impl Unit {
    /// Calls the communication manager, and sends its messages. Its listener is notified of events before this returns.
    pub(crate) fn with_cm<R>(&self, call: impl FnOnce(&mut Cm, Time) -> R) -> R {
        let mut state = self.lock();
        let now = state.nic_time();
        let result = call(&mut state.manager.cm, now);
        state.run_cm(now);
        self.done(state);
        result
    }

    /// Finds out whether `dst` can be reached, for an id; the listener gets the result, at once or within `patience`
    /// (ns). Ports without a link layer of their own always return success.
    pub(crate) fn find_way(&self, id: CmId, dst: IpAddr, patience: u64) {
        let mut state = self.lock();
        let now = state.nic_time();
        state.manager.neighbours.wait(id, dst, now + patience);
        state.run_cm(now);
        self.done(state);
    }

    /// Sets the listener for the communication manager and the device's port, if there is none yet.
    pub(crate) fn listen_cm<L: CmListener + PortListener + 'static>(&self, listener: impl FnOnce() -> L) {
        let manager = &mut self.lock().manager;
        if manager.listener.is_none() {
            let listener = Arc::new(listener());
            let of_port: Arc<dyn PortListener> = listener.clone();
            self.live().listen(Arc::downgrade(&of_port));
            manager.listener = Some(listener);
        }
    }

    /// Claims a service id among the processes of the device. `None` if no other process can have it.
    pub(crate) fn claim_service(&self, service: u64) -> std::io::Result<Option<ServiceClaim>> {
        self.lock().port().claim_service(service)
    }

    /// Runs the unit once for an application that polls for an event of the communication manager without waiting here.
    /// Peers ring from then on, unless it polls repeatedly: it may wait for its descriptor to become readable, if there
    /// is `nothing` for it.
    pub(crate) fn poll_cm(&self, nothing: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        let now = now();
        let polls_again = now.since(state.manager.last_poll) < EVENT_POLLING;
        (state.last_progress, state.manager.last_poll) = (now, now);
        let moved = state.progress(now) > 0;
        let mut wakes = !moved && state.polled_empty(now);
        if moved {
            state.called(now);
        }
        if !wakes && !polls_again {
            state.arm_wakeup();
        }
        wakes |= state.oversleeps(now);
        state.sleeps_if(None, nothing);
        self.unlock(state);
        if wakes {
            self.wake();
        }
    }
}
