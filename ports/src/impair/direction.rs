//! One direction of an impaired port: the engine, frames that wait, and the line if it trims.

use std::collections::VecDeque;

use irnic_transports::Time;

use super::cut;
use super::engine::{Delivery, Impairment};
use super::grammar::Spec;
use super::held::{About, DelayQueue, DelayedFrame, flipped};
use super::port::Report;
use super::rocc::Rocc;
use super::trimming::{Kind, Load, Refused, Trimming};
use crate::{RxFrame, packet_len};

/// Most returned frames that wait for room in a port; more are dropped.
const MAX_RETURNED: usize = 1_000;

pub(super) struct Direction {
    pub(super) engine: Impairment,
    /// Nothing is configured: the engine is not asked.
    pub(super) idle: bool,
    pub(super) held: DelayQueue,
    /// The line, if it trims. The engine has any other.
    line: Option<Box<Line>>,
    /// The congestion point of the engine's line.
    pub(super) rocc: Option<Box<Rocc>>,
}

struct Line {
    queues: Trimming<DelayedFrame>,
    /// Trimmed frames on their way back to their sender.
    returned: VecDeque<DelayedFrame>,
}

impl Direction {
    /// Creates what `spec` describes, with buffers of so many bytes for frames that wait.
    pub(super) fn new(spec: &Spec, seed: u64, stream: u64, buffer: usize) -> Direction {
        // Another stream than the engine's, so that trimming changes nothing about what is lost before.
        const COIN: u64 = 1 << 63;
        let line = spec.rate.zip(spec.trim).map(|(rate, trim)| {
            let seed = Impairment::seed(spec, seed, stream) ^ COIN;
            Box::new(Line { queues: Trimming::new(rate, &trim, seed), returned: VecDeque::new() })
        });
        Direction {
            engine: Impairment::new(spec, seed, stream),
            idle: spec.is_empty(),
            held: DelayQueue::new(buffer),
            line,
            rocc: spec.fair_rate().zip(spec.rate).map(|(config, rate)| Box::new(Rocc::new(&config, rate))),
        }
    }

    /// Returns whether frames wait for a line that trims, even those that nothing delays.
    pub(super) fn trims(&self) -> bool {
        self.line.is_some()
    }

    /// Keeps a copy of a received frame until it is due.
    pub(super) fn hold(&mut self, copy: Delivery, frame: &RxFrame<'_>) {
        let RxFrame { path, bytes, icrc, .. } = *frame;
        let bytes = self.held.copy_of(bytes);
        let icrc = if copy.flip_bit.is_some() { flipped(icrc) } else { icrc };
        self.held.push(copy, About { path, dest_qp: 0, irn: false, icrc }, bytes);
    }

    /// Returns the first frame that is to leave by `now`, and when it fell due. Frames whose delay has passed by then
    /// have joined the line's queue.
    pub(super) fn due(&mut self, now: Time) -> Option<(Time, &DelayedFrame)> {
        let Direction { engine, held, line, .. } = self;
        let Some(line) = line else { return held.due(now).map(|frame| (frame.at, frame)) };
        // What leaves when another joins has left.
        while line.queues.next_deadline() > held.next_deadline().min(now) {
            let frame = held.due(now).is_some().then(|| held.pop()).flatten()?;
            let counters = engine.counters_mut();
            match line.queues.admit(frame.at, frame, counters) {
                Some(Refused::Returned(frame)) if line.returned.len() < MAX_RETURNED => line.returned.push_back(frame),
                Some(Refused::Returned(frame)) => {
                    counters.returned -= 1;
                    counters.header_drops += 1;
                    held.recycle(frame.bytes);
                }
                Some(Refused::Dropped(frame)) => held.recycle(frame.bytes),
                None => {}
            }
        }
        line.queues.due(now)
    }

    /// Forgets the frame that [`Direction::due`] returned.
    pub(super) fn drop_first(&mut self) {
        let first = match &mut self.line {
            Some(line) => {
                self.engine.counters_mut().delayed += 1;
                line.queues.drop_first()
            }
            None => self.held.pop(),
        };
        if let Some(frame) = first {
            self.held.recycle(frame.bytes);
        }
    }

    /// Delivers at most `budget` frames that are due, each with the time when it fell due. Returns how many.
    pub(super) fn release(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut given = 0;
        while given < budget
            && let Some((at, held)) = self.due(now)
        {
            let About { path, icrc, .. } = held.about;
            each(RxFrame { path, bytes: &held.bytes, arrived: at, icrc });
            self.drop_first();
            given += 1;
        }
        given
    }

    /// Returns when the next frame falls due or joins the line's queue.
    pub(super) fn next_deadline(&self) -> Time {
        let line = self.line.as_ref().map_or(Time::NEVER, |line| line.queues.next_deadline());
        let period = self.rocc.as_ref().map_or(Time::NEVER, |rocc| rocc.next_deadline());
        self.held.next_deadline().min(line).min(period)
    }

    /// Returns whether trimmed frames wait for their way back.
    pub(super) fn has_returned(&self) -> bool {
        self.line.as_ref().is_some_and(|line| !line.returned.is_empty())
    }

    /// Returns the first trimmed frame that waits for its way back.
    pub(super) fn first_returned(&mut self) -> Option<&mut DelayedFrame> {
        self.line.as_mut()?.returned.front_mut()
    }

    /// Forgets the frame that [`Direction::first_returned`] returned.
    pub(super) fn drop_returned(&mut self) {
        if let Some(frame) = self.line.as_mut().and_then(|line| line.returned.pop_front()) {
            self.held.recycle(frame.bytes);
        }
    }

    /// Returns what happened so far.
    pub(super) fn report(&self) -> Report {
        let [data, headers] = self.line.as_ref().map_or([None; 2], |line| line.queues.queues().map(Some));
        Report {
            counters: *self.engine.counters(),
            queue: data.or_else(|| self.engine.queue()),
            headers,
            red: self.engine.red_queue(),
            fair_rate: self.rocc.as_ref().map(|rocc| rocc.rate()),
        }
    }
}

impl Load for DelayedFrame {
    fn wire_bytes(&self) -> u32 {
        u32::try_from(packet_len(self.about.path.dst, self.bytes.len())).unwrap_or(u32::MAX)
    }

    fn kind(&self) -> Kind {
        cut::kind(&self.about.path, &self.bytes)
    }

    fn trim(&mut self) -> bool {
        let About { path, icrc, .. } = &mut self.about;
        cut::trim(path, icrc, &mut self.bytes)
    }
}
