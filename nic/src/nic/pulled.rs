//! NIC support for pulled streams (NDP): one queue of pulls for all queue pairs, responses ahead of all data, and
//! returned packets.

use irnic_transports::qp::TxSlot;
use irnic_transports::{Colour, Path, Payload, RxPacket, Time, TxPacket};

use super::Nic;
use super::slot::Slot;
use crate::scheduler::Scheduler;

impl Slot {
    /// Adds a queue pair whose streams are pulled to the ring of those whose responses go first, if it has any.
    #[cold]
    pub(super) fn hurry(&mut self, index: u32, scheduler: &mut Scheduler) {
        if let Some(pulled) = &mut self.pulled
            && !pulled.urgent
            && self.qp.wants_feedback()
        {
            pulled.urgent = true;
            scheduler.urgent.push_back(index);
        }
    }
}

impl Nic {
    /// Queues the pulls that a queue pair owes. One leaves at once if no other waits; the rest wait their turn.
    #[cold]
    pub(super) fn queue_pulls(&mut self, now: Time, index: u32) {
        self.device.pulls_owed = false;
        let Some(slot) = self.qps[index as usize].as_mut() else { return };
        let Some(pulled) = slot.pulled.as_mut().filter(|pulled| !pulled.queued) else { return };
        let mut more = true;
        if self.pulls.is_idle(now)
            && let Some(turn) = slot.qp.grant_pull()
        {
            self.pulls.spend(now, turn.interval, false);
            more = turn.more;
        }
        if more {
            pulled.queued = true;
            self.pulls.push(index, pulled.class);
        }
    }

    /// Sends the pulls that are due.
    #[cold]
    pub(super) fn run_pulls(&mut self, now: Time) {
        while let Some(index) = self.pulls.pop_due(now) {
            let Some(slot) = self.qps[index as usize].as_mut() else { continue };
            let Some(pulled) = slot.pulled.as_mut() else { continue };
            pulled.queued = false;
            // None if everything has arrived meanwhile.
            let Some(turn) = slot.qp.grant_pull() else { continue };
            self.pulls.spend(now, turn.interval, true);
            if turn.more {
                pulled.queued = true;
                self.pulls.push(index, pulled.class);
            }
            self.touch(index);
        }
    }

    /// Passes responses and pulls to `sink`, as [`Nic::poll_transmit`] does. Returns how many, and whether it accepts
    /// more.
    #[cold]
    pub(super) fn transmit_feedback(
        &mut self,
        timestamp: u64,
        budget: usize,
        sink: &mut dyn FnMut(&TxPacket<'_>) -> bool,
    ) -> (usize, bool) {
        let mut sent = 0;
        while sent < budget
            && let Some(&index) = self.scheduler.urgent.front()
        {
            let Some(slot) = self.qps[index as usize].as_mut() else {
                self.scheduler.urgent.pop_front();
                continue;
            };
            let paused = self.scheduler.pauses(|| slot.qp.priorities());
            let Slot { qp, pulled, ready, .. } = &mut **slot;
            if paused || !qp.poll_feedback(&mut self.device, &mut self.slot) {
                self.scheduler.urgent.pop_front();
                if let Some(pulled) = pulled {
                    pulled.urgent = false;
                }
                if paused && !*ready {
                    *ready = true;
                    self.scheduler.park(index);
                }
                continue;
            }
            let Some(path) = qp.tx_path(self.slot.class) else { continue };
            let path = &own_path(path, &self.slot);
            let (headers, sideband) = (&self.slot.headers, self.slot.sideband(qp.qpn()));
            sent += 1;
            if !sink(&TxPacket { headers, path, payload: Payload::EMPTY, timestamp, sideband }) {
                return (sent, false);
            }
        }
        (sent, true)
    }

    /// Handles a returned packet of one of the queue pairs.
    #[cold]
    pub(super) fn receive_returned(&mut self, now: Time, packet: &RxPacket<'_>) {
        let source = packet.headers.ndp.map(|word| word.source());
        let Some((index, slot, device)) = source.and_then(|source| self.find(source).ok()) else {
            self.device.counters.rx_dropped += 1;
            return;
        };
        if !slot.qp.knows(packet.path) {
            device.counters.rx_dropped += 1;
            return;
        }
        slot.qp.receive_returned(now, packet, device);
        self.touch(index);
    }
}

/// Returns `path` adapted to a packet with its own route or colour.
#[cold]
pub(super) fn own_path(path: &Path, slot: &TxSlot) -> Path {
    let udp_src = slot.path.map_or(path.udp_src, |number| 0xc000 | number & 0x3fff);
    let path = Path { udp_src, ..*path };
    if slot.colour == Colour::Red { path.with_colour(Colour::Red) } else { path }
}
