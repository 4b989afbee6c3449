//! Waiting frames, in buffers that are reused.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use irnic_transports::{Path, Time};

use super::engine::Delivery;
use crate::{RxIcrc, TxFrame};

/// Both bits of the ECN field (RFC 3168): congestion experienced.
pub(super) const ECN_CE: u8 = 0b11;

/// A frame that is delayed.
pub(super) struct DelayedFrame {
    /// When it is delivered, or joins the queues of a line that has its own.
    pub(super) at: Time,
    /// Sequence number of the frame: frames due at the same time keep their order.
    arrival: u64,
    pub(super) about: About,
    pub(super) bytes: Vec<u8>,
}

/// The properties of a delayed frame other than its bytes.
pub(super) struct About {
    pub(super) path: Path,
    /// Destination queue pair, 0 for received frames.
    pub(super) dest_qp: u32,
    pub(super) irn: bool,
    pub(super) icrc: RxIcrc,
}

impl From<&TxFrame<'_>> for About {
    fn from(frame: &TxFrame<'_>) -> About {
        let icrc = if frame.icrc { RxIcrc::Exact } else { RxIcrc::Absent };
        About { path: *frame.path, dest_qp: frame.dest_qp, irn: frame.irn, icrc }
    }
}

impl DelayedFrame {
    pub(super) fn frame(&self) -> TxFrame<'_> {
        let About { path, dest_qp, irn, icrc } = &self.about;
        TxFrame { path, dest_qp: *dest_qp, len: self.bytes.len(), icrc: *icrc != RxIcrc::Absent, irn: *irn }
    }
}

/// Returns the ICRC state of a frame whose bits were flipped. A frame without ICRC is marked as having one, so that the
/// NIC checks and drops it.
pub(super) fn flipped(icrc: RxIcrc) -> RxIcrc {
    if icrc == RxIcrc::Absent { RxIcrc::Exact } else { icrc }
}

impl Ord for DelayedFrame {
    /// Reversed, so that the greatest element of the heap is the first due.
    fn cmp(&self, other: &DelayedFrame) -> Ordering {
        (other.at, other.arrival).cmp(&(self.at, self.arrival))
    }
}

impl PartialOrd for DelayedFrame {
    fn partial_cmp(&self, other: &DelayedFrame) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DelayedFrame {
    fn eq(&self, other: &DelayedFrame) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DelayedFrame {}

/// Delayed frames, first due first. Bounded by the engine's limit, plus at most one frame that found no room in the
/// inner port.
pub(super) struct DelayQueue {
    heap: BinaryHeap<DelayedFrame>,
    /// Buffers for reuse.
    pub(super) free: Vec<Vec<u8>>,
    arrivals: u64,
    /// Capacity of new buffers in bytes.
    capacity: usize,
}

impl DelayQueue {
    /// Creates an empty queue with buffers of `capacity` bytes.
    pub(super) fn new(capacity: usize) -> DelayQueue {
        DelayQueue { heap: BinaryHeap::new(), free: Vec::new(), arrivals: 0, capacity }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn next_deadline(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |held| held.at)
    }

    pub(super) fn due(&self, now: Time) -> Option<&DelayedFrame> {
        self.heap.peek().filter(|held| held.at <= now)
    }

    pub(super) fn pop(&mut self) -> Option<DelayedFrame> {
        self.heap.pop()
    }

    pub(super) fn push(&mut self, copy: Delivery, about: About, mut bytes: Vec<u8>) {
        flip(&mut bytes, copy);
        let arrival = self.arrivals;
        self.arrivals += 1;
        let about = About { path: marked(&about.path, copy), ..about };
        self.heap.push(DelayedFrame { at: copy.at, arrival, about, bytes });
    }

    fn empty_buffer(&mut self) -> Vec<u8> {
        let mut bytes = self.free.pop().unwrap_or_else(|| Vec::with_capacity(self.capacity));
        bytes.clear();
        bytes
    }

    /// Returns a buffer of `len` zeroed bytes.
    pub(super) fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = self.empty_buffer();
        bytes.resize(len, 0);
        bytes
    }

    pub(super) fn copy_of(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut bytes = self.empty_buffer();
        bytes.extend_from_slice(frame);
        bytes
    }

    pub(super) fn recycle(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() > 0 {
            self.free.push(bytes);
        }
    }
}

pub(super) fn marked(path: &Path, copy: Delivery) -> Path {
    let ce = if copy.mark_ce { ECN_CE } else { 0 };
    Path { traffic_class: path.traffic_class | ce, ..*path }
}

pub(super) fn flip(bytes: &mut [u8], copy: Delivery) {
    if let Some(bit) = copy.flip_bit
        && let Some(byte) = bytes.get_mut(bit as usize / 8)
    {
        *byte ^= 1 << (bit % 8);
    }
}
