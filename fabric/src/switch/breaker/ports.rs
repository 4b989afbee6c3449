//! What a switch keeps of its ports.

use crate::network::{Fifo, PacketId, Packets, Port};
use crate::priorities::Priorities;

const PRIORITIES: usize = Priorities::COUNT;

/// The receiving end of a port.
#[derive(Debug)]
pub(super) struct Input {
    /// Priorities that the neighbour was asked to stop.
    pub requested: Priorities,
    /// A host is at the other end, which is in no loop.
    pub edge: bool,
    /// By when a control frame has come to bear at the other end, and what it sends for it is here, ns after it was
    /// sent.
    reply: u64,
    /// Of each priority: from when on nothing comes that was not granted, ns.
    settled: [u64; PRIORITIES],
    /// Until when a frame may come that was granted, ns.
    granted: [u64; PRIORITIES],
    /// Bytes of frames that came by a grant, less those that have left since the neighbour was stopped.
    excess: [i64; PRIORITIES],
}

impl Input {
    /// That of a port, for frames of at most `longest` bytes.
    pub(super) fn new(port: &Port, edge: bool, longest: u32) -> Input {
        // A packet that has just begun and seven PFC frames before the frame, another at the other end and one of each
        // priority before the packet that answers it.
        let bytes = (2 + PRIORITIES as u128) * u128::from(longest) + 8 * 64;
        let reply = 2 * port.delay + (bytes * 8_000_000_000 / u128::from(port.rate.max(1))) as u64;
        let none = [0; PRIORITIES];
        Input { requested: Priorities::NONE, edge, reply, settled: none, granted: none, excess: [0; PRIORITIES] }
    }

    /// The neighbour is asked to stop, or to go on. A frame that was granted before counts as if it was there.
    pub(super) fn note(&mut self, now: u64, priority: u8, stop: bool, place: u32) {
        if !stop {
            return self.requested.remove(priority);
        }
        self.requested.insert(priority);
        let at = usize::from(priority);
        self.settled[at] = now + self.reply;
        self.excess[at] = if self.granted[at] > now { place.into() } else { 0 };
        self.granted[at] = 0;
    }

    /// A packet has come.
    #[inline]
    pub(super) fn came(&mut self, now: u64, priority: u8, wire: u32) {
        let at = usize::from(priority);
        if self.requested.contains(priority) && now >= self.settled[at] {
            self.excess[at] += i64::from(wire);
            self.granted[at] = 0;
        }
    }

    /// A packet that came has left its queue.
    #[inline]
    pub(super) fn left(&mut self, priority: u8, wire: u32) {
        if self.requested.contains(priority) {
            self.excess[usize::from(priority)] -= i64::from(wire);
        }
    }

    /// Whether there is room for a frame of any length, of `place` bytes.
    pub(super) fn is_free(&self, now: u64, priority: u8) -> bool {
        let at = usize::from(priority);
        self.excess[at] <= 0 && now >= self.granted[at] && now >= self.settled[at]
    }

    /// Sets room aside for a frame; returns of how many bytes, if there is any and the neighbour waits for it.
    pub(super) fn grant(&mut self, now: u64, priority: u8, place: u32) -> Option<u32> {
        let at = usize::from(priority);
        let waits = self.requested.contains(priority) && now >= self.settled[at] && now >= self.granted[at];
        let room = (i64::from(place) - self.excess[at]).min(place.into());
        if self.edge || !waits || room <= 0 {
            return None;
        }
        self.granted[at] = now + self.reply;
        Some(room as u32)
    }
}

/// The sending end of a port.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Priorities that the neighbour has stopped, and of each since when, ns.
    stopped: Priorities,
    since: [u64; PRIORITIES],
    /// When the next token of each is due, ns.
    due: [u64; PRIORITIES],
    /// Until when a rotation of its own is under way, ns.
    busy: u64,
    /// Frames that go in spite of a pause.
    moving: Fifo,
    bytes: u64,
}

impl Output {
    /// The neighbour says what it has stopped; suspicion comes `wait` ns later.
    pub(super) fn note(&mut self, now: u64, stopped: Priorities, wait: u64) {
        for priority in stopped.without(self.stopped).iter() {
            self.since[usize::from(priority)] = now;
            self.due[usize::from(priority)] = now + wait;
        }
        self.stopped = stopped;
    }

    /// Whether a priority has been stopped for `wait` ns.
    pub(super) fn is_suspect(&self, now: u64, priority: u8, wait: u64) -> bool {
        self.stopped.contains(priority) && now >= self.since[usize::from(priority)] + wait
    }

    /// Priorities that are to send a token now, and do so again `wait` ns later.
    pub(super) fn take_due(&mut self, now: u64, wait: u64) -> Priorities {
        let mut due = Priorities::NONE;
        for priority in self.stopped.iter().filter(|priority| self.due[usize::from(*priority)] <= now) {
            due.insert(priority);
        }
        due.iter().for_each(|priority| self.due[usize::from(priority)] = now + wait);
        due
    }

    /// When the next token is due, ns.
    pub(super) fn next_due(&self) -> u64 {
        self.stopped.iter().map(|priority| self.due[usize::from(priority)]).min().unwrap_or(u64::MAX)
    }

    /// A rotation of its own goes on, for so long at most.
    pub(super) fn rotates(&mut self, until: u64) {
        self.busy = until;
    }

    /// Whether one is under way.
    pub(super) fn is_rotating(&self, now: u64) -> bool {
        now < self.busy
    }

    /// Has a frame go before all others.
    pub(super) fn push(&mut self, packets: &mut Packets, id: PacketId) {
        self.bytes += u64::from(packets.get(id).wire);
        self.moving.push(packets, id);
    }

    /// The first of these frames.
    #[inline]
    pub(super) fn pop(&mut self, packets: &Packets) -> Option<PacketId> {
        let id = self.moving.pop(packets)?;
        self.bytes -= u64::from(packets.get(id).wire);
        Some(id)
    }

    /// Bytes of these frames.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_for_one_frame_until_others_leave() {
        // 12 frames' worth of 1000 bytes and less take 84 µs at 1 Gbit/s, and 2 µs of way.
        let mut input = Input::new(&Port::new(0, 0, 1, 0, 1_000_000_000, 1_000, 0.0), false, 1_000);
        assert_eq!(input.grant(1_000_000, 3, 1_000), None, "nobody waits");
        input.note(0, 3, true, 1_000);
        assert_eq!(input.grant(10_000, 3, 1_000), None, "what was sent before the pause may still come");
        input.came(10_000, 3, 700);
        assert!(input.is_free(500_000, 3) && !input.is_free(10_000, 3));
        assert_eq!(input.grant(500_000, 3, 1_000), Some(1_000));
        assert_eq!(input.grant(500_001, 3, 1_000), None, "one is under way");
        input.came(510_000, 3, 700);
        assert_eq!((input.is_free(510_000, 3), input.grant(510_000, 3, 1_000)), (false, Some(300)));
        input.left(3, 900);
        input.left(4, 900);
        assert_eq!((input.is_free(900_000, 3), input.grant(900_000, 3, 1_000)), (true, Some(1_000)));
        // The pause ends and begins anew: the frame that was granted may come in between.
        input.note(900_001, 3, false, 1_000);
        input.note(900_002, 3, true, 1_000);
        assert_eq!(input.grant(2_000_000, 3, 1_000), None);
    }

    #[test]
    fn an_output_is_suspected_after_a_while() {
        let mut output = Output::default();
        assert_eq!(output.next_due(), u64::MAX);
        output.note(100, Priorities::of(2), 50);
        output.note(120, Priorities::from_bits(0b101), 50);
        assert_eq!([149, 150].map(|now| output.is_suspect(now, 2, 50)), [false, true]);
        assert!(!output.is_suspect(160, 0, 50) && !output.is_suspect(160, 1, 50));
        assert_eq!(output.next_due(), 150);
        assert_eq!((output.take_due(150, 50), output.next_due()), (Priorities::of(2), 170));
        output.note(160, Priorities::NONE, 50);
        assert!(!output.is_suspect(400, 2, 50) && output.take_due(400, 50).is_empty());
    }
}
