//! Handover from one policy to the next while packets are queued. Each stays where it is, and leaves under the policy
//! by which it arrived; the next policy counts its bytes in the queue to which it would send it, so that the buffer
//! space is shared.

use super::engine::Engine;
use super::host::Host;
use super::items::{Packet, Seen};
use super::state::NO_CONDITION;

/// Neighbours that were asked to pause, by input, a bit for each priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped(Box<[u8]>);

/// The booking of a packet that is queued in another engine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    queue: u32,
    seen: Seen,
}

impl Engine {
    /// Retires this policy: from now on it sends neighbours no requests. Returns the paused neighbours, for
    /// [`Engine::take_over`] of the next.
    pub fn retire(&mut self) -> Stopped {
        Stopped(std::mem::take(&mut self.world.stopped))
    }

    /// Books a packet that is queued in another engine: its bytes count in `currSize` of the queue that the policy
    /// would send it to, of that queue's port and buffer, and of its ingress. It is not in the queue.
    pub fn book_foreign(&mut self, host: &mut impl Host, packet: &Packet) -> Booked {
        let mut packet = *packet;
        let queue = self.classify(host, &mut packet);
        self.add_bytes(queue, packet.seen());
        let buffer = self.world.queues[queue].buffer as usize;
        if let Some(ledger) = self.world.buffers.get_mut(buffer).and_then(|buffer| buffer.ledger.as_mut()) {
            ledger.force(super::state::account(packet.input, packet.priority), packet.size.into());
        }
        self.changed(queue);
        Booked { queue: queue as u32, seen: packet.seen() }
    }

    /// Notes that an output has begun to send a packet of another engine, which this one has not booked.
    pub fn note_foreign_sent(&mut self, host: &mut impl Host, packet: &Packet) {
        let mut packet = *packet;
        let queue = self.classify(host, &mut packet);
        self.note_sent(queue, packet.size);
    }

    /// Handles the departure of a packet of another engine: its output sends it. Neighbours may be resumed.
    pub fn depart_foreign(&mut self, host: &mut impl Host, id: u32, booked: Booked) {
        self.forget(booked);
        self.note_sent(booked.queue as usize, booked.seen.size);
        let queue = booked.queue as usize;
        if let Some(condition) = self.world.ports[self.world.queues[queue].port as usize].after_scheduling {
            self.act(host, condition, queue, id, &Packet::of(booked.seen), false);
        }
    }

    /// Releases the bytes of a packet that is queued in another engine.
    pub fn forget(&mut self, booked: Booked) {
        self.take_bytes(booked.queue as usize, booked.seen);
        self.changed(booked.queue as usize);
    }

    /// Takes over from a policy that has paused neighbours. `booked` are the packets queued in other engines that this
    /// one has booked, in the order in which they arrived. Neighbours are paused or resumed as this policy requires;
    /// those without queued packets may resume.
    pub fn take_over(&mut self, host: &mut impl Host, before: Stopped, booked: &[(u32, Booked)]) {
        let mut waiting = vec![0u8; before.0.len()];
        for (_, Booked { seen, .. }) in booked {
            if let Some(set) = waiting.get_mut(usize::from(seen.input)) {
                *set |= 1 << (seen.priority % 8);
            }
        }
        for (input, stopped) in before.0.iter().enumerate() {
            let kept = if self.pauses { stopped & waiting[input] } else { 0 };
            if let Some(set) = self.world.stopped.get_mut(input) {
                *set = kept;
            }
            for priority in (0..8).filter(|priority| (stopped & !kept) >> priority & 1 == 1) {
                host.pause(input as u16, priority, false);
            }
        }
        for (id, Booked { queue, seen }) in booked {
            let state = &self.world.queues[*queue as usize];
            let of_buffer = self.world.buffers.get(state.buffer as usize).map(|buffer| buffer.after_admission);
            let of_port = self.world.ports[state.port as usize].after_scheduling;
            let conditions = [Some(state.after_admission), of_buffer, of_port];
            for condition in conditions.into_iter().flatten().filter(|condition| *condition != NO_CONDITION) {
                self.act(host, condition, *queue as usize, *id, &Packet::of(*seen), false);
            }
        }
    }
}
