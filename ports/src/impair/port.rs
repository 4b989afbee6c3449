//! A port behind an impaired network.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;

use irnic_transports::{Path, Time};

use super::engine::{Counters, Delivery, Frame, Impairment};
use super::grammar::{Impairments, Spec};
use super::line::Queue;
use crate::{Port, RxFrame, RxIcrc, TxFrame, forward_rest, packet_len};

/// Both bits of the ECN field (RFC 3168): congestion experienced.
const ECN_CE: u8 = 0b11;

/// A port that applies impairments to the frames that go through another port.
///
/// A frame is judged when the NIC sends it, or when it arrives. Delayed frames wait here, in buffers that are reused.
/// Bits are flipped after the ICRC was computed, so that the receiver detects them. A direction without impairments
/// passes straight through.
///
/// Delayed frames move in [`Port::flush`] and [`Port::receive`]; [`Port::next_deadline`] tells when to call one of
/// them, and a caller that waits must not wait longer. While the inner port has no room for a frame that is due, this
/// one has none either.
///
/// With [`crate::capture::Captured`]: `Captured<Impaired<P>>` records what the NIC sent and received,
/// `Impaired<Captured<P>>` what crossed the wire.
pub struct Impaired<P> {
    port: P,
    tx: Direction,
    rx: Direction,
}

impl<P: Port> Impaired<P> {
    /// Wraps `port`. `seed` is used for directions whose description has none; `instance` separates the random numbers
    /// of ports that share seed and description.
    pub fn new(port: P, impairments: &Impairments, seed: u64, instance: u64) -> Impaired<P> {
        let buffer = port.max_frame();
        let tx = Direction::new(&impairments.tx, seed, instance.wrapping_mul(2), buffer);
        let rx = Direction::new(&impairments.rx, seed, instance.wrapping_mul(2).wrapping_add(1), buffer);
        Impaired { port, tx, rx }
    }

    /// Returns what happened to the frames that the NIC sent. A direction without impairments counts nothing.
    pub fn tx_counters(&self) -> &Counters {
        self.tx.engine.counters()
    }

    /// Returns what happened to the frames that came for the NIC. A direction without impairments counts nothing.
    pub fn rx_counters(&self) -> &Counters {
        self.rx.engine.counters()
    }

    /// Returns the inner port.
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Returns the inner port mutably. Frames sent or received there directly are not impaired.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Passes frames that are due to the inner port. Returns false if it had no room for one.
    fn release_tx(&mut self, now: Time) -> bool {
        while let Some(held) = self.tx.held.due(now) {
            let bytes = &held.bytes;
            if !self.port.transmit(now, &held.frame(), &mut |to| to.copy_from_slice(bytes)) {
                return false;
            }
            self.tx.held.drop_first();
        }
        true
    }
}

impl<P: Port> Port for Impaired<P> {
    /// Returns true for a port whose outgoing frames are impaired: one bit of a frame may be flipped, which only an
    /// ICRC shows.
    fn needs_icrc(&self, path: &Path, dest_qp: u32) -> bool {
        !self.tx.idle || self.port.needs_icrc(path, dest_qp)
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        if self.tx.idle {
            return self.port.transmit(now, frame, fill);
        }
        let TxFrame { path, len, .. } = *frame;
        if !self.release_tx(now) {
            return false;
        }
        let held = &mut self.tx.held;
        let verdict = self.tx.engine.judge(now, describe(path, len), held.len());
        if let Some(copy) = verdict.only().filter(|copy| copy.at <= now) {
            let marked = TxFrame { path: &marked(path, copy), ..*frame };
            let mut filled = |to: &mut [u8]| {
                fill(to);
                flip(to, copy);
            };
            if self.port.transmit(now, &marked, &mut filled) {
                return true;
            }
        }
        let mut copies = verdict.deliveries().peekable();
        let mut bytes = held.buffer(len);
        fill(&mut bytes);
        while let Some(copy) = copies.next() {
            if copies.peek().is_some() {
                let mut twin = held.buffer(len);
                twin.copy_from_slice(&bytes);
                held.push(copy, frame.into(), twin);
            } else {
                held.push(copy, frame.into(), std::mem::take(&mut bytes));
            }
        }
        held.recycle(bytes);
        self.release_tx(now);
        true
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        if !self.release_tx(now) {
            self.port.flush(now)?;
            self.release_tx(now);
        }
        self.port.flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        if self.tx.held.next_deadline() <= now {
            self.flush(now)?;
        }
        if self.rx.idle {
            return self.port.receive(now, budget, each);
        }
        let Direction { engine, held, .. } = &mut self.rx;
        let mut given = held.release(now, budget, each);
        if given == budget {
            return Ok(given);
        }
        self.port.receive(now, budget - given, &mut |frame| {
            let RxFrame { path, bytes, arrived, icrc } = frame;
            let verdict = engine.judge(arrived, describe(&path, bytes.len()), held.len());
            for copy in verdict.deliveries() {
                if copy.at <= arrived {
                    // What fell due before this one arrived goes first.
                    given += 1 + held.release(arrived, usize::MAX, each);
                    if copy.flip_bit.is_none() {
                        each(RxFrame { path: marked(&path, copy), bytes, arrived, icrc });
                        continue;
                    }
                    let mut changed = held.copy_of(bytes);
                    flip(&mut changed, copy);
                    each(RxFrame { path: marked(&path, copy), bytes: &changed, arrived, icrc: flipped(icrc) });
                    held.recycle(changed);
                } else {
                    let bytes = held.copy_of(bytes);
                    let icrc = if copy.flip_bit.is_some() { flipped(icrc) } else { icrc };
                    held.push(copy, About { path, dest_qp: 0, irn: false, icrc }, bytes);
                }
            }
        })?;
        given += held.release(now, budget.saturating_sub(given), each);
        Ok(given)
    }

    fn impairments(&self) -> Option<[Report; 2]> {
        Some([&self.tx, &self.rx].map(|d| Report { counters: *d.engine.counters(), queue: d.engine.queue() }))
    }

    fn next_deadline(&self) -> Time {
        self.port.next_deadline().min(self.tx.held.next_deadline()).min(self.rx.held.next_deadline())
    }

    forward_rest!(self => self.port);
}

/// What happened to the frames of one direction.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Report {
    /// Counters of all impairments.
    pub counters: Counters,
    /// Length of the queue of `rate`; `None` without a `rate`.
    pub queue: Option<Queue>,
}

impl Report {
    /// Returns the names and values of all numbers, those of the queue only if there is one.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Counters { seen, dropped, marked, duplicated, reordered, corrupted, delayed, over_limit } = self.counters;
        let counters = [
            ("seen", seen),
            ("dropped", dropped),
            ("marked", marked),
            ("duplicated", duplicated),
            ("reordered", reordered),
            ("corrupted", corrupted),
            ("delayed", delayed),
            ("over_limit", over_limit),
        ];
        let queue = self.queue.map(|Queue { frames, mean_bytes, p50_bytes, p99_bytes, peak_bytes }| {
            [
                ("queue_frames", frames),
                ("queue_mean_bytes", mean_bytes),
                ("queue_p50_bytes", p50_bytes),
                ("queue_p99_bytes", p99_bytes),
                ("queue_peak_bytes", peak_bytes),
            ]
        });
        counters.into_iter().chain(queue.into_iter().flatten())
    }
}

struct Direction {
    engine: Impairment,
    /// Nothing is configured: the engine is not asked.
    idle: bool,
    held: DelayQueue,
}

impl Direction {
    fn new(spec: &Spec, seed: u64, stream: u64, buffer: usize) -> Direction {
        let held = DelayQueue { heap: BinaryHeap::new(), free: Vec::new(), arrivals: 0, capacity: buffer };
        Direction { engine: Impairment::new(spec, seed, stream), idle: spec.is_empty(), held }
    }
}

/// A frame that is delayed.
struct DelayedFrame {
    at: Time,
    /// Sequence number of the frame: frames that are due at the same time keep their order.
    arrival: u64,
    about: About,
    bytes: Vec<u8>,
}

/// The properties of a delayed frame besides its bytes.
struct About {
    path: Path,
    /// Destination queue pair, 0 for received frames.
    dest_qp: u32,
    irn: bool,
    icrc: RxIcrc,
}

impl From<&TxFrame<'_>> for About {
    fn from(frame: &TxFrame<'_>) -> About {
        let icrc = if frame.icrc { RxIcrc::Exact } else { RxIcrc::Absent };
        About { path: *frame.path, dest_qp: frame.dest_qp, irn: frame.irn, icrc }
    }
}

impl DelayedFrame {
    fn frame(&self) -> TxFrame<'_> {
        let About { path, dest_qp, irn, icrc } = &self.about;
        TxFrame { path, dest_qp: *dest_qp, len: self.bytes.len(), icrc: *icrc != RxIcrc::Absent, irn: *irn }
    }
}

/// Returns the ICRC state of a frame whose bits were flipped. A frame without ICRC is marked as having one, so that the
/// NIC checks and drops it.
fn flipped(icrc: RxIcrc) -> RxIcrc {
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
struct DelayQueue {
    heap: BinaryHeap<DelayedFrame>,
    /// Buffers for reuse.
    free: Vec<Vec<u8>>,
    arrivals: u64,
    /// Capacity of new buffers in bytes.
    capacity: usize,
}

impl DelayQueue {
    fn len(&self) -> usize {
        self.heap.len()
    }

    fn next_deadline(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |held| held.at)
    }

    fn due(&self, now: Time) -> Option<&DelayedFrame> {
        self.heap.peek().filter(|held| held.at <= now)
    }

    fn drop_first(&mut self) {
        if let Some(held) = self.heap.pop() {
            self.recycle(held.bytes);
        }
    }

    fn push(&mut self, copy: Delivery, about: About, mut bytes: Vec<u8>) {
        flip(&mut bytes, copy);
        let arrival = self.arrivals;
        self.arrivals += 1;
        let about = About { path: marked(&about.path, copy), ..about };
        self.heap.push(DelayedFrame { at: copy.at, arrival, about, bytes });
    }

    /// Delivers at most `budget` frames that are due, each with the time when it fell due. Returns how many.
    fn release(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut given = 0;
        while given < budget
            && let Some(held) = self.due(now)
        {
            let About { path, icrc, .. } = held.about;
            each(RxFrame { path, bytes: &held.bytes, arrived: held.at, icrc });
            self.drop_first();
            given += 1;
        }
        given
    }

    fn empty_buffer(&mut self) -> Vec<u8> {
        let mut bytes = self.free.pop().unwrap_or_else(|| Vec::with_capacity(self.capacity));
        bytes.clear();
        bytes
    }

    /// Returns a buffer of `len` zeroed bytes.
    fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = self.empty_buffer();
        bytes.resize(len, 0);
        bytes
    }

    fn copy_of(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut bytes = self.empty_buffer();
        bytes.extend_from_slice(frame);
        bytes
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() > 0 {
            self.free.push(bytes);
        }
    }
}

fn describe(path: &Path, len: usize) -> Frame {
    let bytes = |len| u32::try_from(len).unwrap_or(u32::MAX);
    Frame { bytes: bytes(len), wire_bytes: bytes(packet_len(path.dst, len)), ect: path.traffic_class & ECN_CE != 0 }
}

fn marked(path: &Path, copy: Delivery) -> Path {
    let ce = if copy.mark_ce { ECN_CE } else { 0 };
    Path { traffic_class: path.traffic_class | ce, ..*path }
}

fn flip(bytes: &mut [u8], copy: Delivery) {
    if let Some(bit) = copy.flip_bit
        && let Some(byte) = bytes.get_mut(bit as usize / 8)
    {
        *byte ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests;
