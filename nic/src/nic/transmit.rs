//! Transmission and turns of queue pairs.

use irnic_transports::{Payload, Time, TxPacket};

use super::Nic;
use super::pulled::own_path;
use super::slot::Slot;

impl Nic {
    /// Returns whether [`Self::poll_transmit`] may have a packet.
    #[inline]
    pub fn wants_tx(&self) -> bool {
        !self.scheduler.is_empty() || self.mads_wait
    }

    /// Passes packets to `sink` until it returns false (it took that packet, but wants no more), nothing is left to
    /// send, or `budget` packets are out. Queue pairs take turns of [`quantum`](super::NicConfig::quantum) packets,
    /// which may be spread over several calls. Low-priority packets (RC3) go when no others may. Returns the number of
    /// packets sent.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, budget: usize, mut sink: impl FnMut(&TxPacket<'_>) -> bool) -> usize {
        self.transmit(now, budget, &mut sink)
    }

    // Neither generic nor inlined, like all calls on the packet and work path: the NIC is compiled once, in this crate.
    fn transmit(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(&TxPacket<'_>) -> bool) -> usize {
        self.device.now = now;
        let timestamp = self.device.clock.ticks(now);
        let mut sent = 0;
        if self.mads_wait {
            let (mads, open) = self.gsi.transmit(timestamp, budget, sink);
            self.mads_wait = self.gsi.wants_tx();
            sent = mads;
            if !open {
                return sent;
            }
        }
        if !self.scheduler.urgent.is_empty() {
            let (answers, open) = self.transmit_feedback(timestamp, budget - sent, sink);
            sent += answers;
            if !open {
                return sent;
            }
        }
        let mut open = true;
        while sent < budget
            && let Some(index) = self.scheduler.pop()
        {
            let Some(slot) = self.qps[index as usize].as_mut() else { continue };
            if self.scheduler.pauses(|| slot.qp.priorities()) {
                self.scheduler.park(index);
                continue;
            }
            slot.ready = false;
            let Slot { qp, pacer, .. } = &mut **slot;
            let mtu = qp.path_mtu().bytes() as u32;
            let mut left = self.scheduler.begin_turn(index, self.quantum);
            while left > 0 && open && sent < budget {
                if pacer.as_ref().is_some_and(|p| p.earliest(now, mtu) > now) {
                    break;
                }
                if !qp.poll_transmit(now, &mut self.device, &mut self.slot) {
                    break;
                }
                let Some(path) = qp.tx_path(self.slot.class) else { break };
                let own;
                let path = if self.slot.takes_usual_path() {
                    path
                } else {
                    own = own_path(path, &self.slot);
                    &own
                };
                let gather = self.device.memory.lend(qp, &self.slot.gather);
                let headers = &self.slot.headers;
                let sideband = self.slot.sideband(qp.qpn());
                let payload = Payload::Gather(gather);
                let packet = TxPacket { headers, path, payload, timestamp, sideband };
                if let Some(pacer) = pacer {
                    pacer.spend(now, packet.payload.len() as u32);
                }
                sent += 1;
                left -= 1;
                open = sink(&packet);
            }
            self.touch(index);
            if left > 0 && (!open || sent == budget) {
                self.scheduler.interrupt_turn(index, left);
            }
            if !open {
                break;
            }
        }
        if open && sent < budget && self.scheduler.has_low() {
            sent += self.transmit_low(now, timestamp, budget - sent, sink);
        }
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
        sent
    }

    /// Pauses priorities (priority flow control, IEEE 802.1Qbb): queue pairs that send with a priority in `stopped`,
    /// one bit each, send nothing until the next call; low-priority packets each have their own. The priority of a
    /// packet is the upper three bits of its traffic class (its class selector, RFC 2474). Datagram queue pairs, whose
    /// packets may have any, wait for all.
    #[inline]
    pub fn set_stopped(&mut self, stopped: u8) {
        self.scheduler.set_paused(stopped);
    }
}
