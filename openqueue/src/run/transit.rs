//! The movement of packets between queues: each port that leads to queues carries one at a time, for the time given by
//! its rate.

use std::cmp::Reverse;

use super::admission::{Entrance, count};
use super::engine::Engine;
use super::host::{Host, Verdict};
use super::items::{NONE, Packet};
use super::levels::Carried;
use super::schedule::{Arrangement, Bits};
use super::state::{Scheduling, account};

/// ps of a second.
const SECOND: u128 = 1_000_000_000_000;

impl Engine {
    /// Whether packets move from queue to queue, so that [`Engine::advance`] must be called.
    #[inline]
    pub fn has_levels(&self) -> bool {
        self.world.levels.is_some()
    }

    /// Handles a change of a queue: its port may have something to send, and there may be room for blocked queues.
    #[inline(never)]
    pub(super) fn note_in_levels(&mut self, queue: usize) {
        let Some(levels) = &mut self.world.levels else { return };
        let queues = &self.world.queues;
        let line = |queue: usize| (queues[queue].port as usize).checked_sub(levels.linked);
        if let Some(line) = line(queue) {
            levels.ask(line);
        }
        while let Some(waiting) = levels.waiting[queue].pop_front() {
            if let Some(line) = (queues[waiting as usize].port as usize).checked_sub(levels.linked) {
                levels.ask(line);
            }
        }
    }

    /// Advances to `now`, ns: packets arrive at the queues to which ports lead, and others start. To be called after
    /// arrivals and departures, and at the time that the last call returned, when the next event is due.
    pub fn advance(&mut self, host: &mut impl Host, now: u64) -> Option<u64> {
        loop {
            let levels = self.world.levels.as_mut()?;
            if let Some(&Reverse((ends, line))) = levels.due.peek()
                && ends <= now * 1000
            {
                levels.due.pop();
                self.land(host, line as usize, now);
            } else if let Some(line) = levels.pending.pop_front() {
                levels.lines[line as usize].pending = false;
                self.send_on(host, line as usize, now);
            } else {
                return levels.due.peek().map(|Reverse((ends, _))| ends.div_ceil(1000));
            }
        }
    }

    /// The target queue of a packet that leaves by a line.
    fn next_level(&self, line: usize, packet: &Packet) -> Option<usize> {
        let target = self.world.levels.as_ref()?.lines[line].target;
        Some(self.place_of(&self.world.shared.targets[target as usize], packet))
    }

    /// The target queue of the first packet of a line's queue, and the packet.
    fn going_to(&self, line: usize, queue: usize) -> Option<(usize, u32)> {
        let id = self.first_of(queue)?;
        Some((self.next_level(line, &self.world.fields[id as usize])?, id))
    }

    /// Whether there is room for a packet in a queue. A packet that never fits is dropped there.
    fn has_room(&self, queue: usize, size: u32) -> bool {
        let (state, size) = (&self.world.queues[queue], u64::from(size));
        let coming = self.world.levels.as_ref().map_or(0, |levels| levels.coming[queue]);
        size > state.size || state.bytes + coming + size <= state.size
    }

    /// Has an idle line send the first packet of the first queue whose packet has room.
    fn send_on(&mut self, host: &mut impl Host, line: usize, now: u64) {
        let Some(levels) = &self.world.levels else { return };
        let port = levels.linked + line;
        if levels.lines[line].carried.is_some() || self.world.ports[port].bytes == 0 {
            return;
        }
        let blocked = |queue: usize| {
            self.going_to(line, queue).is_none_or(|(to, id)| !self.has_room(to, self.world.fields[id as usize].size))
        };
        let Some(queue) = self.pick(port, None, blocked) else { return self.wait_for_room(line, port) };
        let Some((to, id)) = self.going_to(line, queue) else { return };
        let packet = self.world.fields[id as usize];
        let seen = self.take_out(host, queue, id);
        self.served(port, queue);
        self.unbook_inside(queue, seen);
        if let Some(levels) = &mut self.world.levels {
            levels.coming[to] += u64::from(seen.size);
            let line_state = &mut levels.lines[line];
            line_state.carried = Some(Carried { id, queue: to as u32, packet });
            // The event that ended the previous packet was up to 1 ns late.
            let at = now * 1000;
            let start = if line_state.ends + 1000 > at { line_state.ends } else { at };
            let takes = u128::from(seen.size) * 8 * SECOND / u128::from(line_state.rate.max(1));
            line_state.ends = start.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX));
            let ends = line_state.ends;
            levels.due.push(Reverse((ends, line as u32)));
        }
        self.changed(queue);
        if let Some(condition) = self.world.ports[port].after_scheduling {
            host.turn_to(packet.output);
            self.act(host, condition, queue, id, &packet, true);
        }
    }

    /// Registers all queues of a line as waiting for room where their first packets go.
    fn wait_for_room(&mut self, line: usize, port: usize) {
        let first = self.world.ports[port].first_queue as usize;
        for place in 0..self.world.ports[port].queues as usize {
            let queue = self.world.of_ports[first + place] as usize;
            let Some((to, _)) = self.going_to(line, queue) else { continue };
            let Some(levels) = &mut self.world.levels else { return };
            if !levels.waiting[to].contains(&(queue as u32)) {
                levels.waiting[to].push_back(queue as u32);
            }
        }
    }

    /// Notes that a port has served a queue, for round robin.
    #[inline]
    pub(super) fn served(&mut self, port: usize, queue: usize) {
        let slot = self.world.queues[queue].slot;
        let port = &mut self.world.ports[port];
        if let (Scheduling::Bits(bits), Arrangement::Levels(levels)) =
            (&mut port.scheduling, &self.world.shared.arrangements[usize::from(port.arrangement)])
        {
            Bits::turn(bits, levels, slot);
        }
    }

    /// Handles the arrival of a packet at the end of a line.
    fn land(&mut self, host: &mut impl Host, line: usize, now: u64) {
        let Some(levels) = &mut self.world.levels else { return };
        levels.ask(line);
        let Some(Carried { id, queue, mut packet }) = levels.lines[line].carried.take() else { return };
        levels.coming[queue as usize] -= u64::from(packet.size);
        // Dropped in transit: no longer known.
        if id == NONE {
            return self.note_in_levels(queue as usize);
        }
        host.turn_to(packet.output);
        packet.arrival = now;
        let before = packet.size;
        let verdict = self.take_in(host, id, &mut packet, Entrance::Inside { line, queue: queue as usize });
        let Some(levels) = &mut self.world.levels else { return };
        let backlog = &mut levels.backlog[usize::from(packet.output)];
        *backlog -= u64::from(before);
        match verdict {
            Verdict::Queued | Verdict::Trimmed(_) => *backlog += u64::from(packet.size),
            Verdict::Returned => {}
            Verdict::Dropped => {
                count(&mut self.counters.pushed_out, packet.size.into());
                host.push_out(id);
            }
        }
    }

    /// The target queue of a packet that was trimmed in transit by a line.
    pub(super) fn next_level_of_cut(&self, line: usize, packet: &Packet, otherwise: usize) -> usize {
        self.next_level(line, packet).unwrap_or(otherwise)
    }

    /// The link of an output went down: removes all packets queued for it or in transit to it.
    pub fn flush(&mut self, host: &mut impl Host, output: u16, lost: &mut Vec<u32>) {
        while let Some(id) = self.depart(host, output, 0) {
            lost.push(id);
        }
        if self.world.levels.is_none() {
            return;
        }
        for id in 0..self.world.items.len() as u32 {
            let queue = self.world.items[id as usize].queue;
            if queue == NONE || self.world.fields[id as usize].output != output {
                continue;
            }
            let seen = self.take_out(host, queue as usize, id);
            self.unbook(queue as usize, seen);
            self.release_backlog(output, seen.size);
            self.changed(queue as usize);
            lost.push(id);
        }
        let Some(levels) = &mut self.world.levels else { return };
        let mut bytes = 0;
        for line in &mut levels.lines {
            if let Some(carried) = line.carried.as_mut().filter(|c| c.id != NONE && c.packet.output == output) {
                lost.push(std::mem::replace(&mut carried.id, NONE));
                let Packet { size, input, priority, .. } = carried.packet;
                bytes += size;
                if let Some(ingress) = self.world.ingress.get_mut(account(input, priority)) {
                    *ingress -= u64::from(size);
                }
            }
        }
        self.release_backlog(output, bytes);
    }

    /// Subtracts bytes for an output that have left.
    #[inline]
    pub(super) fn release_backlog(&mut self, output: u16, bytes: u32) {
        if let Some(levels) = &mut self.world.levels {
            levels.backlog[usize::from(output)] -= u64::from(bytes);
        }
    }
}
