//! The link of `rate`, which sends frames one after another, and the queue before it.

use std::collections::VecDeque;

use irnic_transports::Time;
use irnic_transports::qp::RttHistogram;
use irnic_transports::time::SEC;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::engine::Frame;
use super::grammar::{Rate, Red, Room};

/// Length of the queue before a link, as seen by the frames that joined it, in bytes as `rate` counts them. A frame
/// being sent counts with its remaining bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Queue {
    /// Frames that joined the queue.
    pub frames: u64,
    /// Mean length in bytes.
    pub mean_bytes: u64,
    /// Median length in bytes, exact to one part in 16.
    pub p50_bytes: u64,
    /// 99th percentile of the length in bytes, exact to one part in 16.
    pub p99_bytes: u64,
    /// Largest length in bytes.
    pub peak_bytes: u64,
}

impl Queue {
    /// Returns the fields in declaration order.
    pub(super) fn numbers(&self) -> [u64; 5] {
        let Queue { frames, mean_bytes, p50_bytes, p99_bytes, peak_bytes } = *self;
        [frames, mean_bytes, p50_bytes, p99_bytes, peak_bytes]
    }
}

/// Time when a link that sends frames back to back is free, exact to a bit.
#[derive(Clone, Debug)]
pub(super) struct LineClock {
    rate: Rate,
    /// Time when the last frame has been sent.
    free: Time,
    /// Remainder of `free` in units of 1 / `rate` ns.
    rest: u128,
}

impl LineClock {
    pub(super) fn new(rate: Rate) -> LineClock {
        LineClock { rate, free: Time::ZERO, rest: 0 }
    }

    /// Returns when a frame that is ready at `ready` has been sent, after those before it.
    pub(super) fn send(&mut self, ready: Time, wire_bytes: u32) -> Time {
        if ready > self.free {
            (self.free, self.rest) = (ready, 0);
        }
        let units = self.units(wire_bytes) + self.rest;
        let bits = u128::from(self.rate.bits);
        self.free += u64::try_from(units / bits).unwrap_or(u64::MAX);
        self.rest = units % bits;
        self.free
    }

    /// Returns the transmission time of a frame, in ns, rounded down.
    fn duration(&self, wire_bytes: u32) -> u64 {
        u64::try_from(self.units(wire_bytes) / u128::from(self.rate.bits)).unwrap_or(u64::MAX)
    }

    /// Returns the bytes that the link sends in `ns`, rounded to nearest.
    pub(super) fn bytes(&self, ns: u64) -> u64 {
        let byte = u128::from(8 * SEC);
        u64::try_from((u128::from(ns) * u128::from(self.rate.bits) + byte / 2) / byte).unwrap_or(u64::MAX)
    }

    fn units(&self, wire_bytes: u32) -> u128 {
        let bytes = i64::from(wire_bytes) + i64::from(self.rate.overhead);
        u128::from(bytes.max(0).unsigned_abs()) * 8 * u128::from(SEC)
    }
}

/// A distribution of lengths in bytes, or of times in ns, and their sum.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    histogram: RttHistogram,
    sum: u128,
}

impl Lengths {
    pub(super) fn record(&mut self, length: u64) {
        self.histogram.record(length);
        self.sum += u128::from(length);
    }

    /// Returns the queue statistics of these lengths in bytes.
    pub(super) fn queue(&self) -> Queue {
        self.queue_with(|bytes| bytes)
    }

    /// Returns the queue statistics, with recorded values converted to bytes by `bytes`.
    fn queue_with(&self, bytes: impl Fn(u64) -> u64) -> Queue {
        let frames = self.histogram.count();
        let mean = self.sum / u128::from(frames.max(1));
        Queue {
            frames,
            mean_bytes: bytes(u64::try_from(mean).unwrap_or(u64::MAX)),
            p50_bytes: bytes(self.histogram.percentile(50.0)),
            p99_bytes: bytes(self.histogram.percentile(99.0)),
            peak_bytes: bytes(self.histogram.max()),
        }
    }
}

/// A link with a rate. Its queue is not stored: its length follows from the time when the link becomes free.
#[derive(Clone, Debug)]
pub(super) struct Line {
    clock: LineClock,
    marking: Option<Red>,
    colour: Option<RedFrames>,
    /// Waiting times of frames, in ns.
    waits: Lengths,
}

impl Line {
    /// Creates an idle line whose queue marks frames by `marking`, and holds at most `red` red ones.
    pub(super) fn new(rate: Rate, marking: Option<Red>, red: Option<Room>) -> Line {
        Line { clock: LineClock::new(rate), marking, colour: red.map(RedFrames::new), waits: Lengths::default() }
    }

    /// Returns whether the queue has room for a frame that arrives at `now` and is ready at `ready`: only red frames
    /// are limited, by the number of red ones in the queue.
    pub(super) fn has_room(&mut self, now: Time, ready: Time, frame: &Frame) -> bool {
        match &mut self.colour {
            Some(colour) if frame.red => colour.has_room(now, ready, frame.wire_bytes),
            _ => true,
        }
    }

    /// Returns when a frame that is ready at `ready` has been sent, after those before it, and whether the queue marks
    /// it.
    pub(super) fn send(&mut self, ready: Time, frame: &Frame, random: &mut Pcg64) -> (Time, bool) {
        let wait = self.clock.free.since(ready);
        self.waits.record(wait);
        let marks = self.marking.is_some_and(|red| marks(&red, self.clock.bytes(wait), random));
        let end = self.clock.send(ready, frame.wire_bytes);
        if let Some(colour) = self.colour.as_mut().filter(|_| frame.red) {
            colour.push(ready, end, frame.wire_bytes);
        }
        (end, marks)
    }

    /// Returns when a frame that overtakes all others has been sent, and whether the queue marks it. The others wait
    /// that much longer.
    pub(super) fn overtake(&mut self, now: Time, frame: &Frame, random: &mut Pcg64) -> (Time, bool) {
        let (_, marks) = self.send(now, frame, random);
        (now + self.clock.duration(frame.wire_bytes), marks)
    }

    /// Returns the queue length so far.
    pub(super) fn queue(&self) -> Queue {
        self.waits.queue_with(|ns| self.clock.bytes(ns))
    }

    /// Returns the queue length in red frames so far; `None` if colours do not matter.
    pub(super) fn red_queue(&self) -> Option<Queue> {
        self.colour.as_ref().map(|colour| colour.met.queue())
    }
}

/// The red frames of a line's queue, the one on the line included.
#[derive(Clone, Debug)]
struct RedFrames {
    room: Room,
    /// For each one that has not left, in order: time when it leaves, and bytes of all red frames up to it.
    ends: VecDeque<(Time, u64)>,
    /// Bytes of the red frames that have left.
    sent: u64,
    /// Bytes of all red frames.
    all: u64,
    /// Bytes of red frames in the queue as seen by the red frames that joined it.
    met: Lengths,
}

impl RedFrames {
    fn new(room: Room) -> RedFrames {
        RedFrames { room, ends: VecDeque::new(), sent: 0, all: 0, met: Lengths::default() }
    }

    fn has_room(&mut self, now: Time, ready: Time, wire_bytes: u32) -> bool {
        while let Some((_, up_to)) = self.ends.front().filter(|(end, _)| *end <= now) {
            self.sent = *up_to;
            self.ends.pop_front();
        }
        let (frames, bytes) = self.waiting(ready);
        match self.room {
            Room::Packets(most) => frames < most as usize,
            Room::Bytes(most) => bytes + u64::from(wire_bytes) <= most,
        }
    }

    /// Returns the red frames that have not left at `ready`, and their bytes.
    fn waiting(&self, ready: Time) -> (usize, u64) {
        let left = self.ends.partition_point(|(end, _)| *end <= ready);
        let sent = left.checked_sub(1).map_or(self.sent, |last| self.ends[last].1);
        (self.ends.len() - left, self.all - sent)
    }

    fn push(&mut self, ready: Time, end: Time, wire_bytes: u32) {
        self.met.record(self.waiting(ready).1);
        self.all += u64::from(wire_bytes);
        self.ends.push_back((end, self.all));
    }
}

/// Returns whether a frame that finds `queued` bytes is marked: the probability rises from 0 at `min` to `probability`
/// at `max`, and is 1 beyond (RED on the instantaneous length, as in DCQCN: Zhu et al., SIGCOMM 2015, §3.1).
fn marks(red: &Red, queued: u64, random: &mut Pcg64) -> bool {
    if queued <= red.min {
        return false;
    }
    if queued > red.max {
        return true;
    }
    let Some(threshold) = red.probability.threshold() else { return false };
    let (above, span) = (u128::from(queued - red.min), u128::from(red.max - red.min));
    // Below 2^64 times 2^40: sizes are at most a terabyte.
    u128::from(random.next_u64()) * span < u128::from(threshold) * above
}
