//! A unit's communication manager, and the listener for its events.

use std::sync::Arc;

use irnic_cm::{Cm, CmConfig, CmEvent, CmId, Departures};
use irnic_nic::Nic;
use irnic_ports::host::Slot;
use irnic_transports::Time;
use irnic_transports::wire::Mtu;

use super::neighbours::Neighbours;
use crate::device::DeviceInfo;

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
    pub(super) cm: Cm,
    pub(super) listener: Option<Arc<dyn CmListener>>,
    pub(super) neighbours: Neighbours,
    pub(super) departures: Departures,
    /// When the application last polled for events.
    pub(super) last_poll: Time,
    /// When [`State::run_cm`] next has work on its own. Read with every poll, so it is cached.
    pub(super) next_deadline: Time,
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
            departures: Departures::default(),
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
