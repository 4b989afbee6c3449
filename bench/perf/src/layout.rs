//! Memory layout of the messages of a test.

use irnic_nic::{Mr, Nic};

use crate::error::PerfError;
use crate::plan::{Plan, Verb};

/// Distance between the atomic variables of queue pairs, and alignment of messages, bytes: a cache line.
const LINE: u64 = 64;

/// Places for messages in an end's two regions, by queue pair. Message `n` has place `n` modulo the number of places.
#[derive(Copy, Clone, Debug)]
pub struct Layout {
    /// Number of places of a queue pair for data sent, or returned.
    pub local_places: u64,
    /// Number of places of a queue pair for data that arrives, or is read by the other end.
    pub remote_places: u64,
    /// Number of receives posted on a queue pair of a SEND test.
    pub receives: u32,
    /// Distance between places, bytes.
    stride: u64,
    /// Whether each queue pair has its own regions; or whether all share the receives.
    per_qp: bool,
    shared: bool,
}

impl Layout {
    /// Layout of a test with messages of `size` bytes. Verified messages have a place each, others share one.
    pub fn new(plan: &Plan, size: u32) -> Layout {
        let depth = u64::from(plan.depth(size));
        // Receives have places as well; no more are needed than the sender has outstanding.
        let senders = if plan.srq { u32::try_from(plan.qps).unwrap_or(u32::MAX) } else { 1 };
        let most = plan.depth(size).saturating_mul(senders);
        let receives = if plan.verify { plan.rx_depth.min(most) } else { plan.rx_depth };
        let (local_places, remote_places) = match plan.test.verb() {
            // The answer to a ping may arrive before its acknowledgement: room for a few.
            _ if plan.test.is_latency() => (4, 5),
            Verb::Send if plan.verify => (depth, u64::from(receives)),
            Verb::Write if plan.verify => (depth, depth),
            // One more than the local ones, so that a place that was not written still holds another message.
            Verb::Read if plan.verify => (depth, depth + 1),
            Verb::Atomic => (depth, 1),
            _ => (1, 1),
        };
        let receives = if plan.test.is_latency() { 4 } else { receives };
        let stride = u64::from(size).next_multiple_of(LINE);
        Layout { local_places, remote_places, receives, stride, per_qp: plan.mr_per_qp, shared: plan.srq }
    }

    /// Size of the local region of all queue pairs, bytes.
    pub fn local_bytes(&self, qps: usize) -> u64 {
        qps as u64 * self.local_places * self.stride
    }

    /// Size of the remote region of all queue pairs, bytes.
    pub fn remote_bytes(&self, qps: usize) -> u64 {
        let qps = if self.shared { 1 } else { qps as u64 };
        qps * self.remote_places * self.stride
    }

    /// Offset of message `number` in the local region.
    #[inline]
    pub fn local(&self, qp: usize, number: u64) -> u64 {
        let first = if self.per_qp { 0 } else { qp as u64 * self.local_places };
        (first + place(number, self.local_places)) * self.stride
    }

    /// Offset of message `number` in the remote region. With a shared receive queue, numbers are those of receives.
    #[inline]
    pub fn remote(&self, qp: usize, number: u64) -> u64 {
        let first = if self.per_qp || self.shared { 0 } else { qp as u64 * self.remote_places };
        (first + place(number, self.remote_places)) * self.stride
    }
}

/// A 64-bit division costs as much as the rest of posting, so it is skipped for a single place, without verification.
#[inline]
fn place(number: u64, places: u64) -> u64 {
    if places == 1 { 0 } else { number % places }
}

fn outside() -> PerfError {
    PerfError::failed("a message lies outside of its memory region")
}

/// Bytes of a region.
#[inline]
pub fn bytes<'a>(nic: &'a Nic, mr: &Mr, at: u64, len: u32) -> Result<&'a [u8], PerfError> {
    nic.bytes(mr).and_then(|all| all.get(at as usize..)?.get(..len as usize)).ok_or_else(outside)
}

/// Bytes of a region, mutably.
#[inline]
pub fn bytes_mut<'a>(nic: &'a mut Nic, mr: &Mr, at: u64, len: u32) -> Result<&'a mut [u8], PerfError> {
    nic.bytes_mut(mr).and_then(|all| all.get_mut(at as usize..)?.get_mut(..len as usize)).ok_or_else(outside)
}
