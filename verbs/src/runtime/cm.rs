//! How a unit runs its communication manager: management datagrams sent and received, timers, and events.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use irnic_cm::{Cm, CmId};
use irnic_ports::host::{ServiceClaim, Slot};
use irnic_ports::{Port, host_now as now};
use irnic_transports::Time;
use irnic_transports::time::US;

use super::manager::{CmListener, Manager};
use super::state::State;
use super::unit::Unit;
use crate::device::PortListener;

/// How often the end of a process is sent: with a loss of one packet in ten, one peer in a thousand does not receive
/// it.
const FAREWELLS: usize = 3;

/// An application that polls for events does so at intervals below this, ns.
const EVENT_POLLING: u64 = 50 * US;

impl State {
    /// Receives what has arrived, and then ends connections to processes that had ended before: a new process may have
    /// the slot of one of them already.
    #[cold]
    pub(super) fn drop_peers(&mut self, now: Time) {
        let port = &*self.nic_port.port;
        // A query takes a system call, and many connections may be to few processes.
        let mut known = BTreeMap::new();
        let dead = self.manager.cm.with_dead_peers(|address, comm_id| {
            *known.entry((address, Slot::of_comm_id(comm_id))).or_insert_with(|| port.peer_ended(address, comm_id))
        });
        self.run_cm(now);
        self.manager.cm.end_dead_peers(now, &dead);
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
        let Manager { cm, listener, neighbours, departures, next_deadline, .. } = &mut self.manager;
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
        while let Some(event) = departures.next_event(now, cm, |qpn| nic.has_unpolled(qpn)) {
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
        *next_deadline = cm.next_deadline().min(neighbours.next_deadline()).min(departures.next_deadline(now));
        if cm.take_mra() {
            port.look_again();
            if port.take_lost() {
                self.drop_peers(now);
            }
        }
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
        (state.model.last_progress, state.manager.last_poll) = (now, now);
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
