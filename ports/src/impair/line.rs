//! The link of `rate`, which sends frames one after the other, and the queue before it.

use irnic_transports::Time;
use irnic_transports::qp::RttHistogram;
use irnic_transports::time::SEC;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::grammar::{Rate, Red};

/// Length of the queue before a link, as seen by the frames that joined it, in bytes as `rate` counts them. A frame
/// being sent counts with what is left of it.
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

/// A link with a rate. Its queue is not stored: its length follows from the time when the link will be free.
#[derive(Clone, Debug)]
pub(super) struct Line {
    rate: Rate,
    /// When the last frame has been sent.
    free: Time,
    /// Remainder of `free` in units of 1 / `rate` ns.
    rest: u128,
    red: Option<Red>,
    /// How long frames waited, in ns: a histogram and the sum.
    waits: RttHistogram,
    waited: u128,
}

impl Line {
    pub(super) fn new(rate: Rate, red: Option<Red>) -> Line {
        Line { rate, free: Time::ZERO, rest: 0, red, waits: RttHistogram::default(), waited: 0 }
    }

    /// Returns when a frame that is ready at `ready` has been sent, after those before it, and whether the queue marks
    /// it.
    pub(super) fn send(&mut self, ready: Time, wire_bytes: u32, random: &mut Pcg64) -> (Time, bool) {
        let wait = self.free.since(ready);
        self.waits.record(wait);
        self.waited += u128::from(wait);
        let marks = self.red.is_some_and(|red| marks(&red, self.bytes(wait), random));
        if ready > self.free {
            (self.free, self.rest) = (ready, 0);
        }
        let units = self.units(wire_bytes) + self.rest;
        let bits = u128::from(self.rate.bits);
        self.free += u64::try_from(units / bits).unwrap_or(u64::MAX);
        self.rest = units % bits;
        (self.free, marks)
    }

    /// Returns when a frame that goes before all others has been sent, and whether the queue marks it. The others wait
    /// that much longer.
    pub(super) fn overtake(&mut self, now: Time, wire_bytes: u32, random: &mut Pcg64) -> (Time, bool) {
        let (_, marks) = self.send(now, wire_bytes, random);
        let ns = self.units(wire_bytes) / u128::from(self.rate.bits);
        (now + u64::try_from(ns).unwrap_or(u64::MAX), marks)
    }

    /// Returns the length of the queue so far.
    pub(super) fn queue(&self) -> Queue {
        let frames = self.waits.count();
        let mean = self.waited / u128::from(frames.max(1));
        Queue {
            frames,
            mean_bytes: self.bytes(u64::try_from(mean).unwrap_or(u64::MAX)),
            p50_bytes: self.bytes(self.waits.percentile(50.0)),
            p99_bytes: self.bytes(self.waits.percentile(99.0)),
            peak_bytes: self.bytes(self.waits.max()),
        }
    }

    /// Returns the bytes that the link sends in `ns`, to the nearest.
    fn bytes(&self, ns: u64) -> u64 {
        let byte = u128::from(8 * SEC);
        u64::try_from((u128::from(ns) * u128::from(self.rate.bits) + byte / 2) / byte).unwrap_or(u64::MAX)
    }

    fn units(&self, wire_bytes: u32) -> u128 {
        let bytes = i64::from(wire_bytes) + i64::from(self.rate.overhead);
        u128::from(bytes.max(0).unsigned_abs()) * 8 * u128::from(SEC)
    }
}

/// Returns whether a frame that meets `queued` bytes is marked: the probability rises from 0 at `min` to `probability`
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
