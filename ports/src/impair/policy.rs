//! A line whose queues and schedule are described by a policy ([`irnic_openqueue`]): that of `policy`, or the built-in
//! one of `prio`.

use irnic_openqueue::{Engine, Host, NamedPolicy, Packet, Seen, Surroundings, Verdict, Waiting};
use irnic_transports::{Colour, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::delay_queue::{DelayedFrame, ECN_CE};
use super::engine::Counters;
use super::frame_trim;
use super::grammar::{Rate, Room};
use super::line::{Lengths, LineClock, Queue};
use super::trimming::{Kind, Load, Refused};

/// See the module. A frame is on the line until [`PolicyLine::drop_first`] removes it; a late call takes effect as of
/// the time when it was due.
pub(super) struct PolicyLine {
    clock: LineClock,
    engine: Engine,
    frames: Frames,
    /// The frame on the line, and the time when its last bit leaves.
    sending: Option<(Time, DelayedFrame)>,
    random: Pcg64,
    /// Bytes in the queue as seen by the frames that joined it, including the frame on the line.
    met: Lengths,
}

/// Size of a frame as counted by the engine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    /// Each frame counts as one byte: the engine counts only bytes.
    Frames,
}

/// Waiting frames, by the engine's frame numbers.
struct Frames {
    unit: Unit,
    /// Bytes of all waiting frames, whatever the engine counts.
    bytes: u64,
    waiting: Vec<Option<DelayedFrame>>,
    /// The engine's links.
    links: Vec<u32>,
    free: Vec<u32>,
}

impl Frames {
    fn new(unit: Unit) -> Frames {
        Frames { unit, bytes: 0, waiting: Vec::new(), links: Vec::new(), free: Vec::new() }
    }

    /// Returns the size of a frame as counted by the engine.
    fn size(&self, frame: &DelayedFrame) -> u32 {
        match self.unit {
            Unit::Bytes => frame.wire_bytes(),
            Unit::Frames => 1,
        }
    }

    fn add(&mut self, frame: DelayedFrame) -> u32 {
        self.bytes += u64::from(frame.wire_bytes());
        match self.free.pop() {
            Some(id) => {
                self.waiting[id as usize] = Some(frame);
                id
            }
            None => {
                self.waiting.push(Some(frame));
                self.links.push(u32::MAX);
                self.waiting.len() as u32 - 1
            }
        }
    }

    fn take(&mut self, id: u32) -> Option<DelayedFrame> {
        let frame = self.waiting.get_mut(id as usize)?.take()?;
        self.bytes -= u64::from(frame.wire_bytes());
        self.free.push(id);
        Some(frame)
    }

    fn kind(&self, id: u32) -> Option<Kind> {
        Some(self.waiting.get(id as usize)?.as_ref()?.kind())
    }

    fn get(&mut self, id: u32) -> Option<&mut DelayedFrame> {
        self.waiting.get_mut(id as usize)?.as_mut()
    }
}

/// Executes the actions of the policy.
struct Doing<'a> {
    frames: &'a mut Frames,
    /// A frame is on the line.
    sending: bool,
    random: &'a mut Pcg64,
    counters: &'a mut Counters,
    refuse: &'a mut Refuse<'a>,
}

/// Called with each frame that does not stay with the line.
pub(super) type Refuse<'a> = dyn FnMut(Refused<DelayedFrame>, &mut Counters) + 'a;

impl Waiting for Frames {
    fn next(&self, id: u32) -> u32 {
        self.links[id as usize]
    }

    fn seen(&self, id: u32) -> Seen {
        let frame = self.waiting.get(id as usize).and_then(Option::as_ref);
        let about = |frame: &DelayedFrame| {
            let path = &frame.about.path;
            (self.size(frame), path.priority(), path.colour() == Colour::Red)
        };
        let (size, priority, red) = frame.map_or((0, 0, false), about);
        Seen { size, input: 0, priority, red }
    }
}

impl Waiting for Doing<'_> {
    fn next(&self, id: u32) -> u32 {
        self.frames.next(id)
    }

    fn seen(&self, id: u32) -> Seen {
        self.frames.seen(id)
    }
}

impl Host for Doing<'_> {
    fn set_next(&mut self, id: u32, next: u32) {
        self.frames.links[id as usize] = next;
    }

    fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn mark(&mut self, id: u32) {
        // The ICRC does not cover the ECN field.
        if let Some(frame) = self.frames.get(id)
            && frame.about.path.traffic_class & ECN_CE != 0
        {
            self.counters.marked += 1;
            frame.about.path.traffic_class |= ECN_CE;
        }
    }

    /// There is no neighbour. Policies that would pause one are refused.
    fn pause(&mut self, _input: u16, _priority: u8, _stop: bool) {}

    fn is_sending(&self, _output: u16) -> bool {
        self.sending
    }

    fn push_out(&mut self, id: u32) {
        if let Some(frame) = self.frames.take(id) {
            self.counters.pushed_out += 1;
            drop_frame(frame, self.counters, self.refuse);
        }
    }

    fn can_trim(&self, id: u32) -> bool {
        self.frames.kind(id) == Some(Kind::Trimmable)
    }

    fn trim(&mut self, id: u32) -> Option<u32> {
        let frame = self.frames.get(id)?;
        let before = frame.wire_bytes();
        if !frame.trim() {
            return None;
        }
        self.counters.trimmed += 1;
        let cut = before - frame.wire_bytes();
        self.frames.bytes -= u64::from(cut);
        Some(cut)
    }

    fn turn_back(&mut self, id: u32) -> bool {
        if self.frames.kind(id) != Some(Kind::Trimmed) {
            return false;
        }
        let Some(frame) = self.frames.take(id) else { return false };
        self.counters.returned += 1;
        (self.refuse)(Refused::Returned(frame), self.counters);
        true
    }
}

impl PolicyLine {
    /// Creates an idle line; `None` if the policy is not for one output. `seed` is for the policy's random decisions.
    pub(super) fn new(rate: Rate, policy: &NamedPolicy, seed: u64) -> Option<PolicyLine> {
        PolicyLine::with(rate, policy, seed, Unit::Bytes)
    }

    /// Creates an idle line of `prio`: the policy `strict-push-out`, which makes no random decisions.
    pub(super) fn prio(rate: Rate, room: Room) -> Option<PolicyLine> {
        let (unit, room) = match room {
            Room::Bytes(bytes) => (Unit::Bytes, bytes),
            Room::Packets(packets) => (Unit::Frames, packets.into()),
        };
        let policy = format!("strict-push-out,buffer={room}B").parse().ok()?;
        PolicyLine::with(rate, &policy, 0, unit)
    }

    fn with(rate: Rate, policy: &NamedPolicy, seed: u64, unit: Unit) -> Option<PolicyLine> {
        let plan = policy.policy.plan(1).ok()?;
        let surroundings = Surroundings { rates: vec![rate.bits], headroom: vec![0], priorities: 8 };
        Some(PolicyLine {
            clock: LineClock::new(rate),
            engine: Engine::new(&plan, &surroundings),
            frames: Frames::new(unit),
            sending: None,
            random: Pcg64::seed_from_u64(seed),
            met: Lengths::default(),
        })
    }

    /// Admits a frame at `now`; the caller must first have removed all frames that have left the line by then. Passes
    /// frames without room to `refuse`.
    pub(super) fn admit(&mut self, now: Time, frame: DelayedFrame, counters: &mut Counters, refuse: &mut Refuse<'_>) {
        let left = self
            .sending
            .as_ref()
            .map_or(0, |(end, frame)| self.clock.bytes(end.since(now)).min(frame.wire_bytes().into()));
        let met = self.frames.bytes + left;
        let packet = seen(now, &frame, self.frames.size(&frame));
        let id = self.frames.add(frame);
        let PolicyLine { engine, frames, random, sending, .. } = self;
        let sending = sending.is_some();
        let verdict = engine.arrive(&mut Doing { frames, sending, random, counters, refuse }, id, packet);
        if verdict == Verdict::Dropped {
            if let Some(frame) = self.frames.take(id) {
                drop_frame(frame, counters, refuse);
            }
        } else {
            self.met.record(met);
        }
        self.start(now, counters, refuse);
    }

    /// Puts the next frame on the line from `at` on, if the line is free.
    fn start(&mut self, at: Time, counters: &mut Counters, refuse: &mut Refuse<'_>) {
        if self.sending.is_some() {
            return;
        }
        let PolicyLine { engine, frames, random, .. } = self;
        let next = engine.depart(&mut Doing { frames, sending: false, random, counters, refuse }, 0, 0);
        if let Some(frame) = next.and_then(|id| self.frames.take(id)) {
            let end = self.clock.send(at, frame.wire_bytes());
            self.sending = Some((end, frame));
        }
    }

    /// Returns the first frame to leave the line and the time of that, if it has left by `now`.
    pub(super) fn due(&self, now: Time) -> Option<(Time, &DelayedFrame)> {
        self.sending.as_ref().filter(|(end, _)| *end <= now).map(|(end, frame)| (*end, frame))
    }

    /// Removes the frame on the line, and puts the next one there.
    pub(super) fn drop_first(&mut self, counters: &mut Counters, refuse: &mut Refuse<'_>) -> Option<DelayedFrame> {
        let (end, frame) = self.sending.take()?;
        counters.priority_frames[usize::from(frame.about.path.priority() & 7)] += 1;
        self.start(end, counters, refuse);
        Some(frame)
    }

    /// Returns when the frame on the line has been sent.
    pub(super) fn next_deadline(&self) -> Time {
        self.sending.as_ref().map_or(Time::NEVER, |(end, _)| *end)
    }

    /// Returns the length of all queues together.
    pub(super) fn queue(&self) -> Queue {
        self.met.queue()
    }
}

/// Drops a frame without room.
fn drop_frame(frame: DelayedFrame, counters: &mut Counters, refuse: &mut Refuse<'_>) {
    counters.over_limit += 1;
    counters.priority_drops[usize::from(frame.about.path.priority() & 7)] += 1;
    refuse(Refused::Dropped(frame), counters);
}

/// Returns a frame as policies see it, with size `size`.
fn seen(now: Time, frame: &DelayedFrame, size: u32) -> Packet {
    let path = &frame.about.path;
    // The destination queue pair follows opcode, flags, P_Key and a reserved byte (IBA 9.2).
    let qpn = frame.bytes.get(5..8).map_or(0, |b| u32::from_be_bytes([0, b[0], b[1], b[2]]));
    Packet {
        arrival: now.0,
        size,
        value: path.priority().into(),
        processing: 1,
        slack: 0,
        flow: u64::from(qpn) << 16 | u64::from(path.udp_src),
        input: 0,
        output: 0,
        priority: path.priority(),
        dscp: path.traffic_class >> 2,
        control: matches!(frame_trim::kind(path, &frame.bytes), Kind::Headers | Kind::Trimmed),
        red: path.colour() == Colour::Red,
    }
}
