//! Departures: selection of the queue to serve, and of its packet.

use super::admission::count;
use super::engine::Engine;
use super::host::{Host, Waiting};
use super::items::NONE;
use super::schedule::{Arrangement, Bits};
use super::state::{Scheduling, Sent};
use super::store::Store;

impl Engine {
    /// The link of an output is free: takes out the next packet, among those whose priority is not `paused`, a bit
    /// each.
    #[inline]
    pub fn depart(&mut self, host: &mut impl Host, output: u16, paused: u8) -> Option<u32> {
        let world = &mut self.world;
        let port = &mut world.ports[usize::from(output)];
        let after = port.after_scheduling;
        let (id, queue, seen);
        let alone = port.only != NONE;
        if alone {
            (id, queue, seen) = (port.only, port.only_queue as usize, host.seen(port.only));
            if paused >> (seen.priority % 8) & 1 == 1 {
                return None;
            }
            port.only = NONE;
        } else {
            queue = self.next_queue(host, output, paused)?;
            id = self.first_of(queue)?;
            seen = self.take_out(host, queue, id);
        }
        self.served(output.into(), queue);
        self.release_backlog(output, seen.size);
        self.unbook(queue, seen);
        self.note_sent(queue, seen.size);
        if !alone || self.world.queues[queue].watched {
            self.note_change(queue);
        }
        count(&mut self.counters.sent, seen.size.into());
        if let Some(condition) = after {
            let packet = self.remembered(id, seen);
            self.act(host, condition, queue, id, &packet, true);
        }
        Some(id)
    }

    /// Notes that the port of a queue has begun to send a packet of it.
    #[inline(always)]
    pub(super) fn note_sent(&mut self, queue: usize, bytes: u32) {
        if let Some(sent) = self.world.sent.get_mut(self.world.queues[queue].port as usize) {
            *sent = Sent { queue: queue as u32, bytes };
        }
    }

    /// The next packet of a queue.
    #[inline]
    pub(super) fn first_of(&self, queue: usize) -> Option<u32> {
        let state = &self.world.queues[queue];
        match &state.store {
            Store::List(list) if state.plain => (list.head != NONE).then_some(list.head),
            store => {
                let rules = &self.world.shared.rules[usize::from(state.rules)];
                store.first(&self.world.shared.orders[usize::from(rules.processing)])
            }
        }
    }

    /// The next queue that an output serves.
    #[inline]
    pub(super) fn next_queue(&self, packets: &impl Waiting, output: u16, paused: u8) -> Option<usize> {
        let stopped = |queue: usize| {
            let priority = |id: u32| packets.seen(id).priority % 8;
            self.first_of(queue).is_none_or(|id| paused >> priority(id) & 1 == 1)
        };
        self.pick(output.into(), Some(paused), stopped)
    }

    /// The next queue that a port serves, of those not stopped, either by `paused` priorities or individually.
    #[inline]
    pub(super) fn pick(&self, port: usize, paused: Option<u8>, stopped: impl Fn(usize) -> bool) -> Option<usize> {
        let world = &self.world;
        let port = &world.ports[port];
        let queue_at = |place: usize| world.of_ports[port.first_queue as usize + place] as usize;
        let stopped = |place: usize| stopped(queue_at(place));
        let place = match (&port.scheduling, &world.shared.arrangements[usize::from(port.arrangement)]) {
            (Scheduling::Bits(bits), Arrangement::Levels(levels)) if paused == Some(0) && levels.small => {
                Bits::queue_at(levels, bits.first_small(levels)?)
            }
            (Scheduling::Bits(bits), Arrangement::Levels(levels)) => bits.first(levels, paused, stopped)?,
            (Scheduling::Tournament(tournament), _) if paused == Some(0) => tournament.first()?,
            (Scheduling::Tournament(tournament), _) => tournament.first_going(stopped)?,
            (Scheduling::Bits(_), Arrangement::Tournament(_)) => return None,
        };
        Some(queue_at(place))
    }
}
