//! A line that trims payloads instead of dropping frames (NDP §3.1): a short queue for frames with payload, and one for
//! those without, which gets almost all turns.

use std::collections::VecDeque;

use irnic_transports::Time;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::engine::Counters;
use super::grammar::{Rate, Room, Trim};
use super::line::{Lengths, LineClock, Queue};

/// What a line may do with a frame without room.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It has payload that must not be cut off.
    Whole,
    /// It has payload that may be cut off.
    Trimmable,
    /// It has no payload.
    Headers,
    /// Its payload was cut off. It may be returned to its sender.
    Trimmed,
}

/// A frame that a line sends.
pub(super) trait Load {
    /// Returns its bytes on the line, without the line's overhead.
    fn wire_bytes(&self) -> u32;

    /// Returns what may be done with it.
    fn kind(&self) -> Kind;

    /// Cuts off the payload of a trimmable frame. Returns false for a frame that was damaged on its way and is dropped
    /// instead: a new ICRC would hide the damage.
    fn trim(&mut self) -> bool;
}

/// Fate of a frame that did not stay with the line: the arriving one, or one that waited.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused<T> {
    /// It is lost.
    Dropped(T),
    /// It is returned to its sender.
    Returned(T),
}

/// One of the two queues.
#[derive(Clone, Debug)]
struct Waiting<T> {
    frames: VecDeque<T>,
    /// Bytes of all `frames`.
    bytes: u64,
    room: Room,
    /// Bytes in the queue as seen by the frames that joined it.
    met: Lengths,
}

impl<T: Load> Waiting<T> {
    fn new(room: Room) -> Waiting<T> {
        Waiting { frames: VecDeque::new(), bytes: 0, room, met: Lengths::default() }
    }

    /// Returns whether `frame` fits in addition to what waits and, if that is of this queue, the frame on the line.
    fn has_room(&self, frame: &T, on_line: Option<&T>) -> bool {
        let bytes = |frame: &T| u64::from(frame.wire_bytes());
        match self.room {
            Room::Packets(most) => self.frames.len() + usize::from(on_line.is_some()) < most as usize,
            Room::Bytes(most) => self.bytes + on_line.map_or(0, bytes) + bytes(frame) <= most,
        }
    }

    fn push(&mut self, frame: T) {
        self.bytes += u64::from(frame.wire_bytes());
        self.frames.push_back(frame);
    }

    fn pop(&mut self) -> Option<T> {
        let frame = self.frames.pop_front()?;
        self.bytes -= u64::from(frame.wire_bytes());
        Some(frame)
    }

    fn pop_back(&mut self) -> Option<T> {
        let frame = self.frames.pop_back()?;
        self.bytes -= u64::from(frame.wire_bytes());
        Some(frame)
    }
}

/// The frame on the line.
#[derive(Clone, Debug)]
struct Sending<T> {
    frame: T,
    /// Time when its last bit leaves.
    end: Time,
    /// The queue that it is from; it takes room there until it has left.
    is_data: bool,
}

/// A line with its two queues. A frame is on the line until [`Trimming::drop_first`] removes it; a late call takes
/// effect as of the time when it was due.
#[derive(Clone, Debug)]
pub(super) struct Trimming<T> {
    clock: LineClock,
    data: Waiting<T>,
    headers: Waiting<T>,
    sending: Option<Sending<T>>,
    /// Headers sent for each frame with payload while both wait.
    ratio: u32,
    /// Headers sent in a row while frames with payload waited, too.
    run: u32,
    returns: bool,
    coin: Pcg64,
}

impl<T: Load> Trimming<T> {
    /// Creates an idle line. `seed` determines which frames are trimmed.
    pub(super) fn new(rate: Rate, trim: &Trim, seed: u64) -> Trimming<T> {
        Trimming {
            clock: LineClock::new(rate),
            data: Waiting::new(trim.data),
            headers: Waiting::new(Room::Bytes(trim.headers)),
            sending: None,
            ratio: trim.ratio,
            run: 0,
            returns: trim.returns,
            coin: Pcg64::seed_from_u64(seed),
        }
    }

    /// Admits a frame at `now`; the caller must first have removed all frames that have left the line by then. Returns
    /// the frame without room, if any.
    pub(super) fn admit(&mut self, now: Time, frame: T, counters: &mut Counters) -> Option<Refused<T>> {
        let refused = match frame.kind() {
            Kind::Whole | Kind::Trimmable => self.admit_data(now, frame, counters),
            Kind::Headers | Kind::Trimmed => self.admit_headers(now, frame, counters),
        };
        self.start(now);
        refused
    }

    /// Returns the first frame to leave the line and the time of that, if it has left by `now`.
    pub(super) fn due(&self, now: Time) -> Option<(Time, &T)> {
        self.sending.as_ref().filter(|sending| sending.end <= now).map(|sending| (sending.end, &sending.frame))
    }

    /// Removes the frame on the line, and puts the next one there.
    pub(super) fn drop_first(&mut self) -> Option<T> {
        let Sending { frame, end, .. } = self.sending.take()?;
        self.start(end);
        Some(frame)
    }

    /// Returns when the frame on the line has been sent.
    pub(super) fn next_deadline(&self) -> Time {
        self.sending.as_ref().map_or(Time::NEVER, |sending| sending.end)
    }

    /// Returns the lengths of the queues of frames with payload and of those without.
    pub(super) fn queues(&self) -> [Queue; 2] {
        [self.data.met.queue(), self.headers.met.queue()]
    }

    fn admit_data(&mut self, now: Time, mut frame: T, counters: &mut Counters) -> Option<Refused<T>> {
        if self.data.has_room(&frame, self.on_line(true)) {
            self.join_data(now, frame);
            return None;
        }
        if frame.kind() == Kind::Trimmable {
            // The coin toss keeps synchronized senders from always losing the same frames (NDP §3.1).
            if self.coin.next_u64() >> 63 == 1
                && self.data.frames.back().is_some_and(|last| last.kind() == Kind::Trimmable)
            {
                frame = self.instead_of_last(now, frame);
            }
            if frame.trim() {
                counters.trimmed += 1;
                return self.admit_headers(now, frame, counters);
            }
        }
        counters.over_limit += 1;
        Some(Refused::Dropped(frame))
    }

    /// Replaces the last waiting frame by `frame` and returns that one; or returns `frame`, if the last one is so much
    /// shorter that `frame` does not fit in its place.
    fn instead_of_last(&mut self, now: Time, frame: T) -> T {
        let Some(last) = self.data.pop_back() else { return frame };
        if self.data.has_room(&frame, self.on_line(true)) {
            self.join_data(now, frame);
            return last;
        }
        self.data.push(last);
        frame
    }

    fn admit_headers(&mut self, now: Time, frame: T, counters: &mut Counters) -> Option<Refused<T>> {
        if self.headers.has_room(&frame, self.on_line(false)) {
            self.headers.met.record(self.headers.bytes + self.left(now, false));
            self.headers.push(frame);
            return None;
        }
        if self.returns && frame.kind() == Kind::Trimmed {
            counters.returned += 1;
            return Some(Refused::Returned(frame));
        }
        counters.header_drops += 1;
        Some(Refused::Dropped(frame))
    }

    fn join_data(&mut self, now: Time, frame: T) {
        self.data.met.record(self.data.bytes + self.left(now, true));
        self.data.push(frame);
    }

    /// Returns the frame on the line if it is of the queue of frames with payload, or else without.
    fn on_line(&self, is_data: bool) -> Option<&T> {
        self.sending.as_ref().filter(|sending| sending.is_data == is_data).map(|sending| &sending.frame)
    }

    /// Returns the remaining bytes of the frame on the line if it is of that queue.
    fn left(&self, now: Time, is_data: bool) -> u64 {
        let sending = self.sending.as_ref().filter(|sending| sending.is_data == is_data);
        // A frame that is admitted late may have arrived before this one went on the line.
        sending.map_or(0, |sending| self.clock.bytes(sending.end.since(now)).min(sending.frame.wire_bytes().into()))
    }

    /// Puts the next frame on the line from `at` on, if the line is free.
    fn start(&mut self, at: Time) {
        if self.sending.is_some() {
            return;
        }
        let is_data = match (self.data.frames.is_empty(), self.headers.frames.is_empty()) {
            // Turns count only while both wait: a queue that was empty has earned nothing.
            (false, false) => {
                self.run = if self.run < self.ratio { self.run + 1 } else { 0 };
                self.run == 0
            }
            (no_data, _) => !no_data,
        };
        let queue = if is_data { &mut self.data } else { &mut self.headers };
        if let Some(frame) = queue.pop() {
            let end = self.clock.send(at, frame.wire_bytes());
            self.sending = Some(Sending { frame, end, is_data });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
