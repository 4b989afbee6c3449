//! Per-queue-pair state of the NIC in addition to the queue pair itself, and state shared by all of them.

use irnic_transports::footprint::{Field, Footprint, Per, width};
use irnic_transports::qp::Qp;

use super::Nic;
use super::slot::{LowSlot, PulledSlot, Slot};
use crate::pulls::Pulls;
use crate::scheduler::Scheduler;
use crate::wheel::Wheel;

/// Bits of a queue pair's number in rings and lists.
const QP: u64 = 16;

impl Nic {
    /// Returns the state that a hardware NIC would keep of a queue pair, field by field, and its size in memory here.
    /// `None` if it does not exist, is no reliable connection, or is not connected.
    pub fn footprint(&self, qpn: u32) -> Option<Footprint> {
        let slot = self.qps.get(qpn.checked_sub(self.first_qpn)? as usize)?.as_ref()?;
        let mut footprint = slot.qp.footprint()?;
        footprint.memory.queue_pair += size_of::<Slot>() - size_of::<Qp>() + Wheel::BYTES_EACH + size_of::<u32>();
        for field in &mut footprint.fields {
            field.name.insert_str(0, if field.per == Per::Nic { "" } else { "qp." });
        }
        let mut add = |name: &str, per, bits, left| {
            footprint.fields.push(Field { name: name.into(), per, bits, item: None, left });
        };
        let Slot { qp: _, ready: _, timer: _, pacer: _, pulled, low } = &**slot;
        add("ready", Per::QueuePair, 1, None);
        // Neighbours in its list of the wheel, and the list's number. The time itself is in the queue pair.
        add("timer", Per::QueuePair, 2 * QP + 10, None);
        add("pacer", Per::QueuePair, 0, Some("of rate limits, which a program may set"));
        let Scheduler { ready: _, urgent: _, interrupted: _, paused: _, parked: _, low: _, low_waiting: _ } =
            &self.scheduler;
        add("scheduler.ready", Per::QueuePair, QP, None);
        add("scheduler.parked", Per::QueuePair, 0, Some("takes the place of `scheduler.ready`"));
        add("scheduler.interrupted", Per::Nic, 1 + QP + 8, None);
        add("scheduler.paused", Per::Nic, 8, None);
        if let Some(PulledSlot { class: _, queued: _, urgent: _ }) = pulled {
            add("pulled.class", Per::Nic, 3, None);
            add("pulled.queued", Per::QueuePair, 1, None);
            add("pulled.urgent", Per::QueuePair, 1, None);
            add("scheduler.urgent", Per::QueuePair, QP, None);
            let Pulls { rings: _, waiting: _, open: _, ps: _, deadline: _ } = &self.pulls;
            add("pulls.rings", Per::QueuePair, QP, None);
            add("pulls.waiting", Per::Nic, QP, None);
            add("pulls.open", Per::Nic, width::TIME, None);
            add("pulls.ps", Per::Nic, 10, None);
            add("pulls.deadline", Per::Nic, 0, Some("follows from other fields"));
        }
        if let Some(LowSlot { rings: _ }) = low {
            let levels = u64::from(slot.qp.config().discipline.low_levels());
            add("low.rings", Per::QueuePair, levels, None);
            add("scheduler.low", Per::QueuePair, levels * QP, None);
            add("scheduler.low_waiting", Per::Nic, 8, None);
        }
        Some(footprint)
    }
}
