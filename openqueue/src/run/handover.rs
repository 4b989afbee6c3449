//! From one policy to the next while packets wait. Each waits where it is, and leaves by the policy by which it came;
//! the next policy has its bytes in the queue to which it would send it, so that room is one.

use super::engine::Engine;
use super::host::Host;
use super::items::{Packet, Seen};
use super::state::NO_CONDITION;

/// Neighbours that were asked to stop, by input, a bit for each priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped(Box<[u8]>);

/// A packet that waits elsewhere, as an engine has booked it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    queue: u32,
    seen: Seen,
}

impl Engine {
    /// Another policy takes this one's place: from now on neighbours hear nothing of this one. Returns who was asked to
    /// stop, for [`Engine::take_over`] of the next.
    pub fn retire(&mut self) -> Stopped {
        Stopped(std::mem::take(&mut self.world.stopped))
    }

    /// Books a packet that waits elsewhere: its bytes are in `currSize` of the queue that the policy would send it to,
    /// of that queue's port and buffer, and of its ingress. It is no packet of the queue.
    pub fn book_elsewhere(&mut self, host: &mut impl Host, packet: &Packet) -> Booked {
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

    /// An output has begun to send a packet that waited elsewhere, which the engine has not booked.
    pub fn sends_elsewhere(&mut self, host: &mut impl Host, packet: &Packet) {
        let mut packet = *packet;
        let queue = self.classify(host, &mut packet);
        self.note_sent(queue, packet.size);
    }

    /// A packet that waited elsewhere has gone: its output sends it. Neighbours hear of it.
    pub fn gone_elsewhere(&mut self, host: &mut impl Host, id: u32, booked: Booked) {
        self.forget(booked);
        self.note_sent(booked.queue as usize, booked.seen.size);
        let queue = booked.queue as usize;
        if let Some(condition) = self.world.ports[self.world.queues[queue].port as usize].after_scheduling {
            self.act(host, condition, queue, id, &Packet::of(booked.seen), false);
        }
    }

    /// Gives back the room of a packet that waits elsewhere.
    pub fn forget(&mut self, booked: Booked) {
        self.take_bytes(booked.queue as usize, booked.seen);
        self.changed(booked.queue as usize);
    }

    /// Takes the place of a policy that has asked neighbours to stop. Of packets that wait elsewhere this one has
    /// booked those that are given, in the order in which they came. Neighbours are asked to stop or to go on as this
    /// policy would have it; those of whose packets none waits may go on.
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
