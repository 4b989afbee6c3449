//! Packets at low priority (RC3): they leave when no other of any queue pair may, by strict priority among themselves,
//! the queue pairs of a priority in turn.

use irnic_transports::{Payload, Time, TxPacket};

use super::{Nic, Slot};
use crate::scheduler::Scheduler;

/// Where a queue pair that has low priorities stands.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct LowSlot {
    /// The rings of the scheduler that it is in, one bit a priority. In some it may be for what it has sent meanwhile.
    pub(super) rings: u8,
}

impl Slot {
    /// Puts a queue pair into the ring of its next packet at low priority, if it has any. Returns when its rate allows
    /// that if not now.
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
    /// Hands packets at low priority to `sink`, as [`Nic::poll_transmit`] does. Returns how many.
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
            // It may have sent what it was here for.
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
