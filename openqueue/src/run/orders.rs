//! Updates of the orders of packets in queues and of queues, on arrivals and departures.

use super::engine::Engine;
use super::host::{Host, Waiting};
use super::items::{Item, NONE, Packet, Seen};
use super::schedule::Arrangement;
use super::state::{Scene, Scheduling, Victim, World};
use super::store::{New, Store};
use crate::order::SortKey;

impl Engine {
    /// Inserts a packet into its queue's order, or orders.
    #[inline]
    pub(super) fn place(&mut self, host: &mut impl Host, queue: usize, id: u32, packet: &Packet) {
        let state = &mut self.world.queues[queue];
        if state.plain
            && let Store::List(list) = &mut state.store
        {
            return list.append(host, id);
        }
        self.place_in_order(queue, id, packet);
    }

    #[inline(never)]
    pub(super) fn place_in_order(&mut self, queue: usize, id: u32, packet: &Packet) {
        let world = &mut self.world;
        let place = id as usize;
        if world.items.len() <= place {
            world.items.resize(place + 1, Item::EMPTY);
        }
        let item = &mut world.items[place];
        item.size = packet.size;
        item.queue = queue as u32;
        item.input = packet.input;
        item.priority = packet.priority;
        item.red = packet.red;
        self.arrived += 1;
        if world.keeps_fields {
            if world.fields.len() <= place {
                world.fields.resize(place + 1, Packet::default());
            }
            world.fields[place] = *packet;
        }
        let new = New { id, arrived: self.arrived, packet, fields: &world.fields };
        let state = &mut world.queues[queue];
        let rules = &world.shared.rules[usize::from(state.rules)];
        state.store.push(&mut world.items, 0, &world.shared.orders[usize::from(rules.processing)], new);
        if rules.victim != Victim::OfSecond {
            return;
        }
        let order = &world.shared.orders[usize::from(rules.admission)];
        if !state.doubled {
            let entry = new.entry(order);
            if world.later.len() <= place {
                world.later.resize(place + 1, entry);
            }
            world.later[place] = entry;
        } else if let Some(second) = &mut world.seconds[queue] {
            second.push(&mut world.items, 1, order, new);
        }
    }

    /// Inserts the packets of a queue into its second order, if it is not in use: it is not needed until a packet has
    /// to be dropped. From now on it is kept up to date, until the queue is empty.
    pub(super) fn double(&mut self, queue: usize) {
        let world = &mut self.world;
        let state = &mut world.queues[queue];
        let Some(second) = world.seconds[queue].as_mut().filter(|_| !state.doubled) else { return };
        state.doubled = true;
        let order = &world.shared.orders[usize::from(world.shared.rules[usize::from(state.rules)].admission)];
        state.store.list(&world.items, &mut world.listed);
        for id in world.listed.drain(..) {
            second.push_later(&mut world.items, 1, order, &world.fields, world.later[id as usize]);
        }
    }

    /// Removes a packet from its queue's orders. Returns its attributes.
    #[inline]
    pub(super) fn take_out(&mut self, host: &impl Waiting, queue: usize, id: u32) -> Seen {
        let state = &mut self.world.queues[queue];
        if state.plain
            && let Store::List(list) = &mut state.store
        {
            debug_assert_eq!(list.head, id, "only the first is taken out");
            list.take_first(host);
            return host.seen(id);
        }
        let item = &mut self.world.items[id as usize];
        item.queue = NONE;
        let seen = Seen { size: item.size, input: item.input, priority: item.priority, red: item.red };
        self.take_out_of_order(queue, id);
        seen
    }

    #[inline(never)]
    pub(super) fn take_out_of_order(&mut self, queue: usize, id: u32) {
        let world = &mut self.world;
        let state = &mut world.queues[queue];
        let rules = &world.shared.rules[usize::from(state.rules)];
        let order = &world.shared.orders[usize::from(rules.processing)];
        state.store.remove(&mut world.items, 0, order, &world.fields, id);
        if state.doubled
            && let Some(second) = &mut world.seconds[queue]
        {
            second.remove(&mut world.items, 1, &world.shared.orders[usize::from(rules.admission)], &world.fields, id);
            state.doubled = !second.is_empty_heap();
        }
    }

    /// Reports a change of a queue to those that select among queues, unless its only packet is alone at its port.
    #[inline(always)]
    pub(super) fn changed(&mut self, queue: usize) {
        let state = &self.world.queues[queue];
        if state.watched || self.world.ports[state.port as usize].only == NONE {
            self.note_change(queue);
        }
    }

    /// Handles a change of a queue's states by a rule. If nothing else changes its rank, [`Self::note_change`] skips
    /// it.
    pub(super) fn states_changed(&mut self, queue: usize) {
        let state = &self.world.queues[queue];
        if let Scheduling::Tournament(tournament) = &self.world.ports[state.port as usize].scheduling
            && tournament.is_settled(state.place.into(), state.packets > 0)
        {
            self.rank_at_port(queue);
        }
        self.changed(queue);
    }

    /// Reports a change of a queue to its port, its buffer, and the levels.
    pub(super) fn note_change(&mut self, queue: usize) {
        let world = &mut self.world;
        let state = &world.queues[queue];
        let port = &mut world.ports[state.port as usize];
        match &mut port.scheduling {
            _ if port.only != NONE => {}
            Scheduling::Bits(bits) if state.small => bits.note(state.slot, state.packets > 0),
            Scheduling::Bits(bits) => {
                if let Arrangement::Levels(levels) = &world.shared.arrangements[usize::from(port.arrangement)] {
                    if state.packets == 0 {
                        bits.clear(levels, state.place.into());
                    } else {
                        bits.set(levels, state.place.into());
                    }
                }
            }
            Scheduling::Tournament(tournament) if tournament.is_settled(state.place.into(), state.packets > 0) => {}
            Scheduling::Tournament(_) => self.rank_at_port(queue),
        }
        self.note_in_buffer(queue);
        if self.world.levels.is_some() {
            self.note_in_levels(queue);
        }
    }

    pub(super) fn keys_of(world: &World, keys: &[SortKey], queue: usize) -> Option<[i64; 2]> {
        if world.queues[queue].packets == 0 {
            return None;
        }
        let nothing = Packet::default();
        let scene = Scene { queue, packet: &nothing };
        let mut values = [0; 2];
        for (value, key) in values.iter_mut().zip(keys) {
            let number = key.program.run(|source| world.load(scene, source));
            *value = if key.descending { !number } else { number };
        }
        Some(values)
    }

    #[inline(never)]
    pub(super) fn rank_at_port(&mut self, queue: usize) {
        let world = &mut self.world;
        let (port, place) = (world.queues[queue].port as usize, usize::from(world.queues[queue].place));
        let Arrangement::Tournament(keys) = &world.shared.arrangements[usize::from(world.ports[port].arrangement)]
        else {
            return;
        };
        let keys = Self::keys_of(world, keys, queue);
        if let Scheduling::Tournament(tournament) = &mut world.ports[port].scheduling {
            tournament.update(place, keys);
        }
    }

    /// Marks a changed queue, among those that its buffer selects from, to be examined when the buffer next selects.
    #[inline]
    pub(super) fn note_in_buffer(&mut self, queue: usize) {
        let world = &mut self.world;
        let state = &mut world.queues[queue];
        if !state.ranked || state.noted {
            return;
        }
        if let Some(worst) = &mut world.buffers[state.buffer as usize].worst {
            state.noted = true;
            worst.changed.push(queue as u32);
        }
    }

    /// Updates the order of a buffer's queues.
    pub(super) fn rank_in_buffer(&mut self, buffer: usize) {
        let Some(mut worst) = self.world.buffers[buffer].worst.take() else { return };
        let world = &mut self.world;
        for queue in worst.changed.drain(..) {
            let queue = queue as usize;
            world.queues[queue].noted = false;
            let keys = &world.shared.buffer_keys[world.buffers[buffer].spec as usize];
            let keys = Self::keys_of(world, keys, queue);
            worst.tournament.update(world.buffer_places[queue] as usize, keys);
        }
        self.world.buffers[buffer].worst = Some(worst);
    }
}
