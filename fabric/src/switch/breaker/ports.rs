//! State of a port.

use crate::network::{Fifo, PacketId, Packets, Port};
use crate::priorities::Priorities;

const PRIORITIES: usize = Priorities::COUNT;

/// The receiving end of a port.
#[derive(Debug)]
pub(super) struct Input {
    /// Priorities that the neighbour was asked to pause.
    pub requested: Priorities,
    /// Whether a host is at the other end, which is part of no loop.
    pub edge: bool,
    /// Time from sending a control frame until it has taken effect at the other end and what that end sends in response
    /// has arrived, ns.
    reply: u64,
    /// By priority, the time from which only granted frames arrive, ns.
    settled: [u64; PRIORITIES],
    /// Time until which a granted frame may arrive, ns.
    granted: [u64; PRIORITIES],
    /// Bytes of frames that arrived by a grant, less those that have left since the neighbour was paused.
    excess: [i64; PRIORITIES],
}

impl Input {
    /// The state of a port, for frames of at most `longest` bytes.
    pub(super) fn new(port: &Port, edge: bool, longest: u32) -> Input {
        // A packet that has just begun and seven PFC frames ahead of the control frame; at the other end another
        // packet, and one of each priority ahead of the response.
        let bytes = (2 + PRIORITIES as u128) * u128::from(longest) + 8 * 64;
        let reply = 2 * port.delay + (bytes * 8_000_000_000 / u128::from(port.rate.max(1))) as u64;
        let none = [0; PRIORITIES];
        Input { requested: Priorities::NONE, edge, reply, settled: none, granted: none, excess: [0; PRIORITIES] }
    }

    /// Notes that the neighbour is asked to pause or resume. A frame granted earlier counts as arrived.
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

    /// Accounts for a packet that arrived.
    #[inline]
    pub(super) fn arrived(&mut self, now: u64, priority: u8, wire: u32) {
        let at = usize::from(priority);
        if self.requested.contains(priority) && now >= self.settled[at] {
            self.excess[at] += i64::from(wire);
            self.granted[at] = 0;
        }
    }

    /// Accounts for a packet that has left its queue.
    #[inline]
    pub(super) fn left(&mut self, priority: u8, wire: u32) {
        if self.requested.contains(priority) {
            self.excess[usize::from(priority)] -= i64::from(wire);
        }
    }

    /// Whether there is room for a frame of any length up to `place` bytes.
    pub(super) fn is_free(&self, now: u64, priority: u8) -> bool {
        let at = usize::from(priority);
        self.excess[at] <= 0 && now >= self.granted[at] && now >= self.settled[at]
    }

    /// Reserves room for a frame. Returns its bytes, if there is room and the neighbour is paused.
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
    /// Priorities that the neighbour has paused, with the time of each, ns.
    stopped: Priorities,
    since: [u64; PRIORITIES],
    /// When the next token of each is due, ns.
    due: [u64; PRIORITIES],
    /// Time until which a rotation started here is under way, ns.
    busy: u64,
    /// Frames that are sent in spite of a pause.
    moving: Fifo,
    bytes: u64,
}

impl Output {
    /// Notes the priorities that the neighbour has paused; they become suspect `wait` ns later.
    pub(super) fn note(&mut self, now: u64, stopped: Priorities, wait: u64) {
        for priority in stopped.without(self.stopped).iter() {
            self.since[usize::from(priority)] = now;
            self.due[usize::from(priority)] = now + wait;
        }
        self.stopped = stopped;
    }

    /// Whether a priority has been paused for `wait` ns.
    pub(super) fn is_suspect(&self, now: u64, priority: u8, wait: u64) -> bool {
        self.stopped.contains(priority) && now >= self.since[usize::from(priority)] + wait
    }

    /// Returns the priorities whose token is due; the next one is due `wait` ns later.
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

    /// Notes a rotation started here, under way until `until` at most.
    pub(super) fn rotates(&mut self, until: u64) {
        self.busy = until;
    }

    /// Whether a rotation started here is under way.
    pub(super) fn is_rotating(&self, now: u64) -> bool {
        now < self.busy
    }

    /// Queues a frame ahead of all others.
    pub(super) fn push(&mut self, packets: &mut Packets, id: PacketId) {
        self.bytes += u64::from(packets.get(id).wire);
        self.moving.push(packets, id);
    }

    /// Takes the first of these frames.
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
        // 12 frames' worth of 1000 bytes and less take 84 µs at 1 Gbit/s, plus 2 µs of propagation.
        let mut input = Input::new(&Port::new(0, 0, 1, 0, 1_000_000_000, 1_000, 0.0), false, 1_000);
        assert_eq!(input.grant(1_000_000, 3, 1_000), None, "nobody waits");
        input.note(0, 3, true, 1_000);
        assert_eq!(input.grant(10_000, 3, 1_000), None, "what was sent before the pause may still come");
        input.arrived(10_000, 3, 700);
        assert!(input.is_free(500_000, 3) && !input.is_free(10_000, 3));
        assert_eq!(input.grant(500_000, 3, 1_000), Some(1_000));
        assert_eq!(input.grant(500_001, 3, 1_000), None, "one is under way");
        input.arrived(510_000, 3, 700);
        assert_eq!((input.is_free(510_000, 3), input.grant(510_000, 3, 1_000)), (false, Some(300)));
        input.left(3, 900);
        input.left(4, 900);
        assert_eq!((input.is_free(900_000, 3), input.grant(900_000, 3, 1_000)), (true, Some(1_000)));
        // The pause ends and begins anew: the granted frame may arrive in between.
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
