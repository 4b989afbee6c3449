//! Packets at low priority (RC3): sent when no queue pair may send any other packet, in strict order of priority, round
//! robin among the queue pairs of a priority.

use irnic_transports::{Payload, Time, TxPacket};

use super::Nic;
use super::slot::Slot;
use crate::scheduler::Scheduler;

impl Slot {
    /// Adds a queue pair to the ring of its next low-priority packet, if any. Returns when its rate allows that if not
    /// now.
    #[cold]
    pub(super) fn offer_low(&mut self, index: u32, now: Time, scheduler: &mut Scheduler) -> Time {
        let (Some(low), Some(priority)) = (&mut self.low, self.qp.low_priority()) else { return Time::NEVER };
        if let Some(pacer) = &mut self.pacer {
            let at = pacer.earliest(now, self.qp.path_mtu().bytes() as u32);
            if at > now {
                return at;
            }
        }
        if low.rings >> priority & 1 == 0 {
            low.rings |= 1 << priority;
            scheduler.push_low(priority, index);
        }
        Time::NEVER
    }
}

impl Nic {
    /// Passes low-priority packets to `sink`, as [`Nic::poll_transmit`] does. Returns how many.
    #[cold]
    pub(super) fn transmit_low(
        &mut self,
        now: Time,
        timestamp: u64,
        budget: usize,
        sink: &mut dyn FnMut(&TxPacket<'_>) -> bool,
    ) -> usize {
        let (mut sent, mut open) = (0, true);
        while open
            && sent < budget
            && let Some((priority, index)) = self.scheduler.pop_low()
        {
            let Some(slot) = self.qps[index as usize].as_mut() else { continue };
            if let Some(low) = &mut slot.low {
                low.rings &= !(1 << priority);
            }
            let Slot { qp, pacer, .. } = &mut **slot;
            let mtu = qp.path_mtu().bytes() as u32;
            let allowed = pacer.as_ref().is_none_or(|pacer| pacer.earliest(now, mtu) <= now);
            // The packet it was queued for may have been sent.
            if allowed
                && qp.low_priority() == Some(priority)
                && let Some(priority) = qp.poll_low(&mut self.device, &mut self.slot)
                && let Some(path) = qp.path()
            {
                let path = &path.with_priority(priority);
                let gather = self.device.memory.lend(qp, &self.slot.gather);
                let (headers, sideband) = (&self.slot.headers, self.slot.sideband(qp.qpn()));
                let packet = TxPacket { headers, path, payload: Payload::Gather(gather), timestamp, sideband };
                if let Some(pacer) = pacer {
                    pacer.spend(now, packet.payload.len() as u32);
                }
                sent += 1;
                open = sink(&packet);
            }
            self.touch(index);
        }
        sent
    }
}
