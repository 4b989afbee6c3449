//! A queue pair's place in the scheduler.

use irnic_transports::Time;
use irnic_transports::qp::Qp;

use crate::pacer::Pacer;
use crate::wheel::Wheel;

/// A queue pair and its place in the scheduler.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) qp: Qp,
    /// Whether it is in the ready ring.
    pub(super) ready: bool,
    /// Time at which the wheel will examine it.
    pub(super) timer: Time,
    pub(super) pacer: Option<Box<Pacer>>,
    /// State of pulled streams, if it uses them.
    pub(super) pulled: Option<PulledSlot>,
    /// State of low-priority packets, if it sends them.
    pub(super) low: Option<LowSlot>,
}

impl Slot {
    /// Returns whether the wheel examines it for the queue pair's own deadline alone.
    #[inline]
    pub(super) fn has_only_its_timer(&self) -> bool {
        self.pacer.is_none() && self.pulled.is_none() && self.low.is_none()
    }

    /// Has the wheel examine it at its new deadline, unless it does so earlier.
    #[inline]
    pub(super) fn set_timer(&mut self, index: u32, deadline: Time, wheel: &mut Wheel) {
        if deadline < self.timer {
            self.timer = deadline;
            wheel.schedule(index, deadline);
        }
    }
}

/// Scheduling state of a queue pair whose streams are pulled.
#[derive(Copy, Clone, Debug)]
pub(super) struct PulledSlot {
    /// Class of its pulls.
    pub(super) class: u8,
    /// Whether it is in the queue of pulls.
    pub(super) queued: bool,
    /// Whether it is in the ring of those whose responses go first.
    pub(super) urgent: bool,
}

/// Scheduling state of a queue pair with low-priority packets.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct LowSlot {
    /// The scheduler's rings that it is in, one bit per priority. Some may be stale, as the packets have been sent.
    pub(super) rings: u8,
}
