//! The engine of one switch: its state and queries.

use super::host::{Counters, Host, Waiting};
use super::items::{Item, List, NONE, Packet};
use super::state::{QueueState, World};
use super::store::Store;
use crate::plan::{Plan, Target, When};
use crate::program::Operand;
use crate::source::{PacketField, Source};

/// Runs a plan: packets are numbers given by the host, each in at most one queue.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(super) world: World,
    queues_per_copy: usize,
    copied: bool,
    direct: Option<Direct>,
    pub(super) pauses: bool,
    pub(super) arrived: u64,
    pub(super) counters: Counters,
    /// The packet to be trimmed for the arriving one, or [`NONE`]. It is in no queue.
    pub(super) cut: u32,
}

/// Classification that depends only on output, input and priority, each in its range: the queue is a sum.
#[derive(Copy, Clone, Debug)]
struct Direct {
    base: u32,
    /// For output, input and priority, the number of values and the stride of their queues.
    of: [(u32, u32); 3],
}

impl Direct {
    fn of(plan: &Plan) -> Option<Direct> {
        let [(When::Always, target)] = &plan.classifier.queue[..] else { return None };
        if !plan.classifier.fields.is_empty() {
            return None;
        }
        let mut direct = Direct { base: target.base, of: [(u32::MAX, 0); 3] };
        if plan.copies > 1 {
            direct.of[0] = (plan.copies as u32, plan.queues.len() as u32);
        }
        for term in &target.terms {
            let place = match (&term.index.operations[..], term.index.result) {
                ([], Operand::Load(Source::Packet(PacketField::Output))) => 0,
                ([], Operand::Load(Source::Packet(PacketField::Input))) => 1,
                ([], Operand::Load(Source::Packet(PacketField::Priority))) => 2,
                _ => return None,
            };
            if direct.of[place].1 != 0 {
                return None;
            }
            direct.of[place] = (term.count, term.stride);
        }
        Some(direct)
    }

    #[inline]
    fn queue(&self, packet: &Packet) -> Option<usize> {
        let fields = [packet.output.into(), packet.input.into(), u32::from(packet.priority)];
        let mut queue = self.base;
        let mut all_within = true;
        for (field, (count, stride)) in fields.into_iter().zip(self.of) {
            all_within &= field < count;
            queue = queue.wrapping_add(field.wrapping_mul(stride));
        }
        all_within.then_some(queue as usize)
    }
}

impl Engine {
    pub(super) fn with(world: World, plan: &Plan) -> Engine {
        Engine {
            direct: Direct::of(plan),
            world,
            queues_per_copy: plan.queues.len(),
            copied: plan.copies > 1,
            pauses: plan.pauses(),
            arrived: 0,
            counters: Counters::default(),
            cut: NONE,
        }
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes queued for an output.
    #[inline]
    pub fn backlog(&self, output: u16) -> u64 {
        match &self.world.levels {
            None => self.world.ports[usize::from(output)].bytes,
            Some(levels) => levels.backlog[usize::from(output)],
        }
    }

    /// Largest number of bytes of red packets in a queue for an output, if the policy reads them.
    pub fn red_peak(&self, output: u16) -> Option<u64> {
        self.world.red_peaks.get(usize::from(output)).copied()
    }

    /// Location of an output's state, for prefetching.
    pub fn place_of_port(&self, output: u16) -> &(impl Sized + use<>) {
        &self.world.ports[usize::from(output)]
    }

    /// Location of the queue that is served next, if nothing arrives before; `None` if a packet is alone at its port.
    pub fn place_of_next_queue<W: Waiting>(&self, packets: &W, output: u16) -> Option<&(impl Sized + use<W>)> {
        let port = &self.world.ports[usize::from(output)];
        if port.bytes == 0 || port.only != NONE {
            return None;
        }
        Some(&self.world.queues[self.next_queue(packets, output, 0)?])
    }

    /// The next packet, if nothing arrives before.
    pub fn next_of(&self, packets: &impl Waiting, output: u16) -> Option<u32> {
        let port = &self.world.ports[usize::from(output)];
        if port.bytes == 0 || port.only != NONE {
            return Some(port.only).filter(|id| *id != NONE);
        }
        self.first_of(self.next_queue(packets, output, 0)?)
    }

    /// Locations that a packet from `input` for `output` will access, for prefetching.
    pub fn places_of_arrival(&self, input: u16, output: u16) -> (&(impl Sized + use<>), Option<&(impl Sized + use<>)>) {
        let packet = Packet { input, output, ..Packet::default() };
        let queue = self.direct.as_ref().and_then(|direct| direct.queue(&packet)).unwrap_or(0);
        (&self.world.ports[usize::from(output)], self.world.queues.get(queue))
    }

    /// Location of a packet in the engine's own order or orders, if they are not kept by the host.
    pub fn places_of_packet(&self, id: u32) -> Option<(&(impl Sized + use<>), Option<&(impl Sized + use<>)>)> {
        let place = id as usize;
        Some((self.world.items.get(place)?, self.world.later.get(place)))
    }

    /// Bytes and packets in a queue of the plan.
    pub fn queue(&self, queue: usize) -> (u64, u32) {
        (self.world.queues[queue].bytes, self.world.queues[queue].packets)
    }

    /// Maximum bytes of a queue of the plan.
    pub fn queue_size(&self, queue: usize) -> u64 {
        self.world.queues[queue].size
    }

    /// Inputs whose neighbours are paused, each with the priority.
    pub fn stopped(&self) -> impl Iterator<Item = (u16, u8)> + '_ {
        let each = |(input, set): (usize, &u8)| {
            let set = *set;
            (0..8).filter(move |priority| set >> priority & 1 == 1).map(move |priority| (input as u16, priority))
        };
        self.world.stopped.iter().enumerate().flat_map(each)
    }

    /// Whether a packet of an input and a priority waits for an output. Linear in the queued packets.
    pub fn waits(&self, packets: &impl Waiting, input: u16, priority: u8, output: u16) -> bool {
        let is = |id: u32| {
            let seen = packets.seen(id);
            (seen.input, seen.priority) == (input, priority)
        };
        let world = &self.world;
        let port = &world.ports[usize::from(output)];
        if port.only != NONE {
            return is(port.only);
        }
        if let Some(levels) = &world.levels {
            let waits = |(item, packet): (&Item, &Packet)| {
                item.queue != NONE && (packet.input, packet.priority, packet.output) == (input, priority, output)
            };
            return world.items.iter().zip(&world.fields).any(waits) || levels.carries(input, priority, output);
        }
        let ordered = |item: &Item| {
            (item.input, item.priority) == (input, priority)
                && world.queues.get(item.queue as usize).is_some_and(|queue| queue.port == u32::from(output))
        };
        let listed = |queue: &QueueState| {
            let Store::List(List { head, .. }) = queue.store else { return false };
            let next = |id: &u32| Some(packets.next(*id)).filter(|next| *next != NONE);
            std::iter::successors((head != NONE).then_some(head), next).any(is)
        };
        let mut plain = world.queues.iter().filter(|queue| queue.plain && queue.port == u32::from(output));
        plain.any(listed) || world.items.iter().any(ordered)
    }

    /// The queue of a packet.
    #[inline]
    pub(super) fn classify(&self, host: &mut impl Host, packet: &mut Packet) -> usize {
        match self.direct.as_ref().and_then(|direct| direct.queue(packet)) {
            Some(queue) => queue,
            None => self.classify_by_cases(host, packet),
        }
    }

    #[inline(never)]
    fn classify_by_cases(&self, host: &mut impl Host, packet: &mut Packet) -> usize {
        for (field, cases) in &self.world.shared.classifier.fields {
            let found = cases.iter().find(|(when, _)| holds(host, when, packet));
            if let Some((_, program)) = found {
                let value = program.run(|source| super::view::of_packet(packet, source));
                packet.set(*field, value.div_euclid(program.denominator));
            }
        }
        let mut target = &self.world.shared.classifier.queue[0].1;
        if self.world.shared.classifier.queue.len() > 1 || self.world.shared.classifier.queue[0].0 != When::Always {
            let found = self.world.shared.classifier.queue.iter().find(|(when, _)| holds(host, when, packet));
            target = found.map_or(target, |(_, target)| target);
        }
        self.place_of(target, packet)
    }

    /// The queue of a target.
    pub(super) fn place_of(&self, target: &Target, packet: &Packet) -> usize {
        let mut queue = target.base;
        for term in &target.terms {
            let index = term.index.run(|source| super::view::of_packet(packet, source));
            queue += index.rem_euclid(i64::from(term.count)) as u32 * term.stride;
        }
        let copy = if self.copied { usize::from(packet.output) * self.queues_per_copy } else { 0 };
        copy + queue as usize
    }
}

/// Decides an event of a given probability by a random number: exact, and the same on every machine.
#[inline]
pub(super) fn happens(random: u64, above: i64, below: i64) -> bool {
    // 53 bits, as of a float between 0 and 1.
    i128::from(random >> 11) * i128::from(below) < i128::from(above) << 53
}

fn holds(host: &mut impl Host, when: &When, packet: &Packet) -> bool {
    match when {
        When::Always => true,
        When::Holds(program) => program.run(|source| super::view::of_packet(packet, source)) != 0,
        When::Chance(program) => happens(host.random(), program.run(|_| 0), program.denominator),
    }
}
