//! One direction of an impaired port: the engine, waiting frames, and the line if it has queues of its own.

use std::collections::VecDeque;

use irnic_transports::Time;

use super::delay_queue::{About, DelayQueue, DelayedFrame, flipped};
use super::engine::{Counters, Delivery, Impairment};
use super::frame_trim;
use super::grammar::Spec;
use super::policy::PolicyLine;
use super::port::Report;
use super::rocc::Rocc;
use super::trimming::{Kind, Load, Refused, Trimming};
use crate::{RxFrame, packet_len};

/// Maximum number of returned frames that wait for room in a port; further ones are dropped.
const MAX_RETURNED: usize = 1_000;

pub(super) struct Direction {
    pub(super) engine: Impairment,
    /// Nothing is configured: the engine is not consulted.
    pub(super) idle: bool,
    /// Bits of frames may be flipped, or payloads cut off.
    pub(super) changes_frames: bool,
    pub(super) held: DelayQueue,
    /// The line, if it trims or has a policy. Any other is in the engine.
    line: Option<Box<Line>>,
    /// The line is one of `prio`.
    has_priorities: bool,
    /// The line is one of `policy`.
    has_policy: bool,
    /// The congestion point of the engine's line.
    pub(super) rocc: Option<Box<Rocc>>,
}

struct Line {
    queues: Queues,
    /// Trimmed frames on their way back to their sender.
    returned: VecDeque<DelayedFrame>,
}

#[expect(clippy::large_enum_variant, reason = "there is one a line, and each frame looks at it")]
enum Queues {
    Trimming(Trimming<DelayedFrame>),
    Policy(PolicyLine),
}

impl Queues {
    fn next_deadline(&self) -> Time {
        match self {
            Queues::Trimming(line) => line.next_deadline(),
            Queues::Policy(line) => line.next_deadline(),
        }
    }

    fn due(&self, now: Time) -> Option<(Time, &DelayedFrame)> {
        match self {
            Queues::Trimming(line) => line.due(now),
            Queues::Policy(line) => line.due(now),
        }
    }
}

/// Queues a frame returned by a line for its way back, or frees a dropped one.
fn settle(
    refused: Refused<DelayedFrame>,
    held: &mut DelayQueue,
    returned: &mut VecDeque<DelayedFrame>,
    counters: &mut Counters,
) {
    match refused {
        Refused::Returned(frame) if returned.len() < MAX_RETURNED => returned.push_back(frame),
        Refused::Returned(frame) => {
            counters.returned -= 1;
            counters.header_drops += 1;
            held.recycle(frame.bytes);
        }
        Refused::Dropped(frame) => held.recycle(frame.bytes),
    }
}

impl Direction {
    /// Creates the direction described by `spec`, with buffers of `buffer` bytes for waiting frames.
    pub(super) fn new(spec: &Spec, seed: u64, stream: u64, buffer: usize) -> Direction {
        // A stream other than the engine's, so that trimming does not change which frames are lost before it.
        const COIN: u64 = 1 << 63;
        let queues = |rate| {
            let seed = Impairment::seed(spec, seed, stream) ^ COIN;
            match (&spec.trim, spec.prio, &spec.policy) {
                (Some(trim), ..) => Some(Queues::Trimming(Trimming::new(rate, trim, seed))),
                (_, Some(room), _) => PolicyLine::prio(rate, room).map(Queues::Policy),
                (.., Some(policy)) => PolicyLine::new(rate, policy.policy(), seed).map(Queues::Policy),
                _ => None,
            }
        };
        let line = spec.rate.and_then(queues).map(|queues| Box::new(Line { queues, returned: VecDeque::new() }));
        Direction {
            engine: Impairment::new(spec, seed, stream),
            idle: spec.is_empty(),
            changes_frames: spec.corrupt.is_some() || spec.trim.is_some(),
            held: DelayQueue::new(buffer),
            line,
            has_priorities: spec.prio.is_some(),
            has_policy: spec.policy.is_some(),
            rocc: spec.fair_rate().zip(spec.rate).map(|(config, rate)| Box::new(Rocc::new(&config, rate))),
        }
    }

    /// Returns whether frames wait in queues before a line, even those without a delay.
    pub(super) fn has_queues(&self) -> bool {
        self.line.is_some()
    }

    /// Keeps a copy of a received frame until it is due.
    pub(super) fn hold(&mut self, copy: Delivery, frame: &RxFrame<'_>) {
        let RxFrame { path, bytes, icrc, .. } = *frame;
        let bytes = self.held.copy_of(bytes);
        let icrc = if copy.flip_bit.is_some() { flipped(icrc) } else { icrc };
        self.held.push(copy, About { path, dest_qp: 0, irn: false, icrc }, bytes);
    }

    /// Returns the first frame to leave by `now`, and when it fell due. Frames whose delay has passed by then have
    /// joined the line's queue.
    pub(super) fn due(&mut self, now: Time) -> Option<(Time, &DelayedFrame)> {
        let Direction { engine, held, line, .. } = self;
        let Some(line) = line else { return held.due(now).map(|frame| (frame.at, frame)) };
        // A frame that leaves when another joins has left.
        while line.queues.next_deadline() > held.next_deadline().min(now) {
            let frame = held.due(now).is_some().then(|| held.pop()).flatten()?;
            let counters = engine.counters_mut();
            let Line { queues, returned } = &mut **line;
            let refuse = &mut |refused, counters: &mut Counters| settle(refused, held, returned, counters);
            match queues {
                Queues::Trimming(queues) => {
                    if let Some(refused) = queues.admit(frame.at, frame, counters) {
                        refuse(refused, counters);
                    }
                }
                Queues::Policy(queues) => queues.admit(frame.at, frame, counters, refuse),
            }
        }
        line.queues.due(now)
    }

    /// Removes the frame that [`Direction::due`] returned.
    pub(super) fn drop_first(&mut self) {
        let first = match &mut self.line {
            Some(line) => {
                let counters = self.engine.counters_mut();
                counters.delayed += 1;
                let Line { queues, returned } = &mut **line;
                match queues {
                    Queues::Trimming(queues) => queues.drop_first(),
                    Queues::Policy(queues) => {
                        let held = &mut self.held;
                        queues.drop_first(counters, &mut |refused, counters| settle(refused, held, returned, counters))
                    }
                }
            }
            None => self.held.pop(),
        };
        if let Some(frame) = first {
            self.held.recycle(frame.bytes);
        }
    }

    /// Delivers at most `budget` due frames, each with the time when it fell due. Returns their number.
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

    /// Removes the frame that [`Direction::first_returned`] returned.
    pub(super) fn drop_returned(&mut self) {
        if let Some(frame) = self.line.as_mut().and_then(|line| line.returned.pop_front()) {
            self.held.recycle(frame.bytes);
        }
    }

    /// Returns the counters and queue lengths so far.
    pub(super) fn report(&self) -> Report {
        let [data, headers] = self.line.as_ref().map_or([None; 2], |line| match &line.queues {
            Queues::Trimming(queues) => queues.queues().map(Some),
            Queues::Policy(queues) => [Some(queues.queue()), None],
        });
        Report {
            counters: *self.engine.counters(),
            has_priorities: self.has_priorities,
            has_policy: self.has_policy,
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
        frame_trim::kind(&self.about.path, &self.bytes)
    }

    fn trim(&mut self) -> bool {
        let About { path, icrc, .. } = &mut self.about;
        frame_trim::trim(path, icrc, &mut self.bytes)
    }
}
