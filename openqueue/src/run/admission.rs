//! Arrivals: admission, drops, and the actions afterwards.

use super::accounts::Ledger;
use super::engine::{Engine, happens};
use super::host::{Host, Verdict};
use super::items::{NONE, Packet, Seen};
use super::state::{NO_CONDITION, Scene, Victim, account};
use crate::order::PacketOrder;
use crate::plan::{ConditionId, Cut, Deed, Probability};
use crate::program::Program;
use crate::source::Source;

/// The object whose congestion condition is evaluated.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Level {
    Queue,
    Buffer,
}

/// How a packet enters.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    /// It has arrived from outside, and is to be classified.
    Outside,
    /// By a port that leads to this queue.
    Inside { line: usize, queue: usize },
}

/// Outcome of congestion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Relief {
    Room,
    ArrivingDropped,
    /// The arriving packet is dropped, and may be returned to its sender.
    Return,
    Trim,
}

/// Adds a packet to a counter of packets and bytes.
pub(super) fn count(counter: &mut (u64, u64), bytes: u64) {
    counter.0 += 1;
    counter.1 += bytes;
}

impl Engine {
    /// Handles the arrival of a packet.
    #[inline]
    pub fn arrive(&mut self, host: &mut impl Host, id: u32, mut packet: Packet) -> Verdict {
        count(&mut self.counters.arrived, packet.size.into());
        if let Some(sent) = self.world.sent.get_mut(usize::from(packet.output))
            && !host.is_sending(packet.output)
        {
            sent.bytes = 0;
        }
        let verdict = self.take_in(host, id, &mut packet, Entrance::Outside);
        if verdict == Verdict::Dropped {
            count(&mut self.counters.refused, packet.size.into());
        } else if let Some(levels) = &mut self.world.levels {
            levels.backlog[usize::from(packet.output)] += u64::from(packet.size);
        }
        verdict
    }

    /// Admits a packet, possibly trimmed.
    #[inline(always)]
    pub(super) fn take_in(
        &mut self,
        host: &mut impl Host,
        id: u32,
        packet: &mut Packet,
        entrance: Entrance,
    ) -> Verdict {
        let queue = match entrance {
            Entrance::Outside => self.classify(host, packet),
            Entrance::Inside { queue, .. } => queue,
        };
        let verdict = match self.offer(host, id, packet, queue, entrance != Entrance::Outside) {
            Relief::Room => Verdict::Queued,
            Relief::ArrivingDropped => Verdict::Dropped,
            Relief::Return => self.turn_back(host, id, packet),
            Relief::Trim => self.take_in_cut(host, id, packet, entrance),
        };
        if self.cut != NONE {
            self.take_in_waiting_cut(host, packet.arrival);
        }
        verdict
    }

    /// Admits the rest of a trimmed packet. It is classified again, and cannot be trimmed further.
    fn take_in_cut(&mut self, host: &mut impl Host, id: u32, packet: &mut Packet, entrance: Entrance) -> Verdict {
        let Some(cut) = host.trim(id) else { return Verdict::Dropped };
        let cut = cut.min(packet.size);
        count(&mut self.counters.trimmed, cut.into());
        packet.size -= cut;
        packet.control = true;
        let queue = match entrance {
            Entrance::Outside => self.classify(host, packet),
            Entrance::Inside { line, queue } => self.next_level_of_cut(line, packet, queue),
        };
        match self.offer(host, id, packet, queue, false) {
            Relief::Room => Verdict::Trimmed(cut),
            Relief::ArrivingDropped | Relief::Trim => Verdict::Dropped,
            Relief::Return => self.turn_back(host, id, packet),
        }
    }

    /// Admits the rest of a queued packet that was trimmed for one that arrived at `now`, ns.
    #[cold]
    fn take_in_waiting_cut(&mut self, host: &mut impl Host, now: u64) {
        let id = std::mem::replace(&mut self.cut, NONE);
        let mut packet = Packet { arrival: now, ..self.world.fields[id as usize] };
        if self.take_in_cut(host, id, &mut packet, Entrance::Outside) == Verdict::Dropped {
            count(&mut self.counters.pushed_out, packet.size.into());
            host.push_out(id);
        }
    }

    /// Returns a packet to its sender, or drops it.
    fn turn_back(&mut self, host: &mut impl Host, id: u32, packet: &Packet) -> Verdict {
        if !host.turn_back(id) {
            return Verdict::Dropped;
        }
        count(&mut self.counters.returned, packet.size.into());
        Verdict::Returned
    }

    /// Offers a packet to a queue; `inside`: it is already accounted for at its input.
    #[inline]
    fn offer(&mut self, host: &mut impl Host, id: u32, packet: &Packet, queue: usize, inside: bool) -> Relief {
        let size = u64::from(packet.size);
        let state = &self.world.queues[queue];
        let (congestion, after, buffer) = (state.congestion, state.after_admission, state.buffer as usize);
        if size > state.size {
            return self.refuse(packet, inside);
        }
        let (mut buffer_congestion, mut buffer_after) = (NO_CONDITION, NO_CONDITION);
        if let Some(buffer) = self.world.buffers.get(buffer) {
            if size > buffer.size {
                return self.refuse(packet, inside);
            }
            (buffer_congestion, buffer_after) = (buffer.congestion, buffer.after_admission);
            if buffer.ledger.is_some() && !self.take_account(queue, packet) {
                return Relief::ArrivingDropped;
            }
        }
        self.book(queue, packet);
        if inside {
            self.take_ingress(packet.seen());
        }
        let mut placed = false;
        let mut relief = Relief::Room;
        let state = &self.world.queues[queue];
        if state.bytes > state.size || self.is_congested(congestion, queue, packet) {
            relief = self.relieve(host, (Level::Queue, congestion), queue, id, packet, &mut placed);
        }
        if relief == Relief::Room
            && let Some(state) = self.world.buffers.get(buffer)
            && (state.bytes > state.size || self.is_congested(buffer_congestion, queue, packet))
        {
            relief = self.relieve(host, (Level::Buffer, buffer_congestion), queue, id, packet, &mut placed);
        }
        if relief != Relief::Room {
            if placed {
                self.take_out(host, queue, id);
            }
            self.unbook(queue, packet.seen());
            self.changed(queue);
            return relief;
        }
        if !placed {
            self.enter(host, queue, id, packet);
        }
        if packet.red {
            self.note_red(queue);
        }
        self.changed(queue);
        for condition in [after, buffer_after] {
            if condition != NO_CONDITION {
                self.act(host, condition, queue, id, packet, true);
            }
        }
        Relief::Room
    }

    /// Rejects a packet that is larger than its queue or buffer.
    #[cold]
    fn refuse(&mut self, packet: &Packet, inside: bool) -> Relief {
        if inside {
            self.take_ingress(packet.seen());
        }
        Relief::ArrivingDropped
    }

    /// Removes a packet in transit from its input's bytes, before it is booked again or because it is dropped.
    fn take_ingress(&mut self, seen: Seen) {
        if let Some(bytes) = self.world.ingress.get_mut(account(seen.input, seen.priority)) {
            *bytes -= u64::from(seen.size);
        }
    }

    /// Removes a packet that moves to another queue: it stays accounted for at its input.
    pub(super) fn unbook_inside(&mut self, queue: usize, seen: Seen) {
        self.unbook(queue, seen);
        if let Some(bytes) = self.world.ingress.get_mut(account(seen.input, seen.priority)) {
            *bytes += u64::from(seen.size);
        }
    }

    /// Updates the peak after a red packet was queued.
    #[cold]
    fn note_red(&mut self, queue: usize) {
        if let (Some(bytes), Some(peak)) =
            (self.world.red.get(queue), self.world.red_peaks.get_mut(self.world.queues[queue].port as usize))
        {
            *peak = (*peak).max(*bytes);
        }
    }

    /// Inserts a packet into its queue's order, unless it is alone at its port.
    #[inline]
    fn enter(&mut self, host: &mut impl Host, queue: usize, id: u32, packet: &Packet) {
        let port = self.world.queues[queue].port as usize;
        let state = &mut self.world.ports[port];
        if state.keeps_only {
            if state.bytes == u64::from(packet.size) {
                (state.only, state.only_queue) = (id, queue as u32);
                if state.keeps_packet {
                    self.world.alone[port] = *packet;
                }
                return;
            }
            self.queue_up(host, port);
        }
        self.place(host, queue, id, packet);
    }

    /// Inserts the only packet of a port into its queue's order, if it is in none.
    #[inline]
    fn queue_up(&mut self, host: &mut impl Host, port: usize) {
        let state = &mut self.world.ports[port];
        let (only, queue) = (std::mem::replace(&mut state.only, NONE), state.only_queue as usize);
        if only != NONE {
            let packet = if state.keeps_packet { self.world.alone[port] } else { Packet::of(host.seen(only)) };
            self.place(host, queue, only, &packet);
            self.changed(queue);
        }
    }

    /// Books the packet in its ingress account, where neighbours are paused before the buffer overflows.
    fn take_account(&mut self, queue: usize, packet: &Packet) -> bool {
        let buffer = self.world.queues[queue].buffer as usize;
        let account = account(packet.input, packet.priority);
        let Some((limit, below)) =
            self.world.shared.limits.get(self.world.buffers[buffer].spec as usize).and_then(|limit| {
                let limit = limit.as_ref()?;
                Some((self.run(limit, queue, packet), limit.denominator))
            })
        else {
            return true;
        };
        let Some(ledger) = &mut self.world.buffers[buffer].ledger else { return true };
        let within = i128::from(ledger.shared(account)) * i128::from(below) <= i128::from(limit);
        Ledger::admit(ledger, account, packet.size.into(), within)
    }

    #[inline]
    pub(super) fn book(&mut self, queue: usize, packet: &Packet) {
        self.world.queues[queue].packets += 1;
        self.add_bytes(queue, packet.seen());
    }

    #[inline(always)]
    pub(super) fn unbook(&mut self, queue: usize, seen: Seen) {
        self.world.queues[queue].packets -= 1;
        self.take_bytes(queue, seen);
    }

    #[inline]
    pub(super) fn add_bytes(&mut self, queue: usize, seen: Seen) {
        let size = u64::from(seen.size);
        let world = &mut self.world;
        let state = &mut world.queues[queue];
        state.bytes += size;
        world.ports[state.port as usize].bytes += size;
        if let Some(buffer) = world.buffers.get_mut(state.buffer as usize) {
            buffer.bytes += size;
        }
        if let Some(bytes) = world.ingress.get_mut(account(seen.input, seen.priority)) {
            *bytes += size;
        }
        if seen.red
            && let Some(bytes) = world.red.get_mut(queue)
        {
            *bytes += size;
        }
    }

    #[inline(always)]
    pub(super) fn take_bytes(&mut self, queue: usize, seen: Seen) {
        let (size, account) = (u64::from(seen.size), account(seen.input, seen.priority));
        let world = &mut self.world;
        let state = &mut world.queues[queue];
        state.bytes -= size;
        world.ports[state.port as usize].bytes -= size;
        if let Some(buffer) = world.buffers.get_mut(state.buffer as usize) {
            buffer.bytes -= size;
            if let Some(ledger) = &mut buffer.ledger {
                ledger.release(account, size);
            }
        }
        if let Some(bytes) = world.ingress.get_mut(account) {
            *bytes -= size;
        }
        if seen.red
            && let Some(bytes) = world.red.get_mut(queue)
        {
            *bytes -= size;
        }
    }

    #[inline]
    pub(super) fn run(&self, program: &Program, queue: usize, packet: &Packet) -> i64 {
        let scene = Scene { queue, packet };
        program.run(|source: Source| self.world.load(scene, source))
    }

    /// The first case of a condition that holds.
    #[inline]
    fn case(&self, condition: ConditionId, queue: usize, packet: &Packet) -> Option<usize> {
        let condition = self.world.shared.conditions.get(usize::from(condition))?;
        condition.cases.iter().position(|case| self.world.holds(&case.when, queue, packet))
    }

    /// Whether a condition, if there is one, may apply. Conditions on head-of-line packets are evaluated later, when
    /// the arriving packet is among them.
    #[inline]
    fn is_congested(&self, condition: ConditionId, queue: usize, packet: &Packet) -> bool {
        condition != NO_CONDITION && (self.world.reads_heads || self.case(condition, queue, packet).is_some())
    }

    /// Decides an action by its probability.
    fn draw(&self, host: &mut impl Host, probability: &Probability, queue: usize, packet: &Packet) -> bool {
        match probability {
            Probability::Always => true,
            Probability::Of(program) => happens(host.random(), self.run(program, queue, packet), program.denominator),
        }
    }

    /// Drops packets until there is room, or the arriving one is dropped.
    #[inline(never)]
    fn relieve(
        &mut self,
        host: &mut impl Host,
        (level, condition): (Level, ConditionId),
        queue: usize,
        id: u32,
        packet: &Packet,
        placed: &mut bool,
    ) -> Relief {
        // Conditions on head-of-line packets include the arriving one.
        if self.world.reads_heads && !*placed {
            self.place(host, queue, id, packet);
            *placed = true;
        }
        // Cases already decided at random for this packet.
        let mut decided = 0u64;
        'relieving: loop {
            let over = match level {
                Level::Queue => self.world.queues[queue].bytes > self.world.queues[queue].size,
                Level::Buffer => {
                    let buffer = &self.world.buffers[self.world.queues[queue].buffer as usize];
                    buffer.bytes > buffer.size
                }
            };
            let (mut drops, mut returns) = (over, false);
            if let Some(case) = self.case(condition, queue, packet) {
                for deed in 0..self.world.shared.conditions[usize::from(condition)].cases[case].deeds.len() {
                    match &self.world.shared.conditions[usize::from(condition)].cases[case].deeds[deed] {
                        Deed::Trim(which) if host.can_trim(id) => {
                            if *which == Cut::Coin && self.cut_last(host, (condition, case), queue, id, packet, placed)
                            {
                                continue 'relieving;
                            }
                            return Relief::Trim;
                        }
                        Deed::Trim(_) | Deed::Drop(Probability::Always) => drops = true,
                        Deed::Return => (drops, returns) = (true, true),
                        Deed::Drop(probability) if decided >> (case % 64) & 1 == 0 => {
                            decided |= 1 << (case % 64);
                            drops |= self.draw(host, probability, queue, packet);
                        }
                        _ => {}
                    }
                }
            }
            if !drops {
                return Relief::Room;
            }
            let from = match level {
                Level::Queue => queue,
                Level::Buffer => self.worst(queue),
            };
            let victim = self.victim(host, from, queue, id, packet, placed);
            if victim == id {
                return if returns { Relief::Return } else { Relief::ArrivingDropped };
            }
            self.push_out(host, victim, returns);
        }
    }

    /// Removes the last queued packet of the arriving one's queue for trimming, if a coin says so and the case no
    /// longer holds without its bytes. Returns whether it has.
    fn cut_last(
        &mut self,
        host: &mut impl Host,
        (condition, case): (ConditionId, usize),
        queue: usize,
        id: u32,
        packet: &Packet,
        placed: &mut bool,
    ) -> bool {
        if !host.coin() || self.cut != NONE {
            return false;
        }
        let mut last = self.last_of(queue);
        if *placed && last == Some(id) {
            self.take_out(host, queue, id);
            *placed = false;
            last = self.last_of(queue);
        }
        let Some(last) = last.filter(|last| host.can_trim(*last)) else { return false };
        let waiting = self.world.fields[last as usize];
        self.unbook(queue, waiting.seen());
        let state = &self.world.queues[queue];
        let cases = &self.world.shared.conditions[usize::from(condition)].cases;
        if state.bytes > state.size || self.world.holds(&cases[case].when, queue, packet) {
            self.book(queue, &waiting);
            return false;
        }
        self.take_out(host, queue, last);
        self.cut = last;
        self.let_go_on(host, queue, last, waiting.seen());
        true
    }

    /// The queue of a buffer that drops a packet; that of the arriving packet if the buffer has no order.
    fn worst(&mut self, queue: usize) -> usize {
        self.note_in_buffer(queue);
        let buffer = self.world.queues[queue].buffer as usize;
        self.rank_in_buffer(buffer);
        let buffer = &self.world.buffers[buffer];
        let chosen = buffer.worst.as_ref().and_then(|worst| Some(worst.queues[worst.tournament.first()?] as usize));
        chosen.unwrap_or(queue)
    }

    /// The packet that a queue drops, possibly the arriving one.
    fn victim(
        &mut self,
        host: &mut impl Host,
        from: usize,
        queue: usize,
        id: u32,
        packet: &Packet,
        placed: &mut bool,
    ) -> u32 {
        let rules = &self.world.shared.rules[usize::from(self.world.queues[from].rules)];
        if rules.victim == Victim::Newest && from == queue {
            return id;
        }
        self.queue_up(host, self.world.queues[from].port as usize);
        if from == queue && !*placed {
            self.place(host, queue, id, packet);
            *placed = true;
        }
        self.last_of(from).unwrap_or(id)
    }

    /// The last packet of a queue, among those in its order, by the drop order.
    fn last_of(&mut self, from: usize) -> Option<u32> {
        let rules = &self.world.shared.rules[usize::from(self.world.queues[from].rules)];
        let (victim, processing, admission) = (rules.victim, rules.processing, rules.admission);
        let world = &self.world;
        let store = &world.queues[from].store;
        let order = &world.shared.orders[usize::from(processing)];
        match victim {
            Victim::Newest => store.last(&PacketOrder::Arrival),
            Victim::Oldest => store.last(&PacketOrder::Reverse),
            Victim::LastProcessed => store.last(order),
            Victim::OfSecond => {
                self.double(from);
                let world = &self.world;
                let second = world.seconds[from].as_ref();
                second.and_then(|second| second.last(&world.shared.orders[usize::from(admission)]))
            }
        }
    }

    /// A formerly queued packet, with the fields that were kept.
    pub(super) fn remembered(&self, id: u32, seen: Seen) -> Packet {
        match self.world.fields.get(id as usize) {
            Some(packet) if self.world.keeps_fields => *packet,
            _ => Packet::of(seen),
        }
    }

    /// Drops a queued packet, or returns it to its sender.
    fn push_out(&mut self, host: &mut impl Host, id: u32, returns: bool) {
        let queue = self.world.items[id as usize].queue as usize;
        let seen = self.take_out(host, queue, id);
        self.unbook(queue, seen);
        self.changed(queue);
        if self.world.levels.is_some() {
            self.release_backlog(self.world.fields[id as usize].output, seen.size);
        }
        if returns && host.turn_back(id) {
            count(&mut self.counters.returned, seen.size.into());
        } else {
            count(&mut self.counters.pushed_out, seen.size.into());
            host.push_out(id);
        }
        self.let_go_on(host, queue, id, seen);
    }

    /// Lets neighbours resume after the room of a queued packet was freed.
    fn let_go_on(&mut self, host: &mut impl Host, queue: usize, id: u32, seen: Seen) {
        if let Some(condition) = self.world.ports[self.world.queues[queue].port as usize].after_scheduling {
            let packet = self.remembered(id, seen);
            self.act(host, condition, queue, id, &packet, false);
        }
    }

    /// Carries out a condition after a packet has arrived or left. For a dropped packet, only requests to neighbours
    /// are carried out.
    pub(super) fn act(
        &mut self,
        host: &mut impl Host,
        condition: ConditionId,
        queue: usize,
        id: u32,
        packet: &Packet,
        is_there: bool,
    ) {
        let Some(prepared) = self.world.shared.conditions.get(usize::from(condition)) else { return };
        let mut matter = prepared.cases.len();
        if prepared.only_notifies {
            let Some(stopped) = self.world.stopped.get(usize::from(packet.input)) else { return };
            let is_stopped = stopped >> (packet.priority % 8) & 1 == 1;
            matter = if is_stopped { prepared.while_stopped } else { prepared.while_going };
        }
        let mut cases = prepared.cases[..matter].iter();
        let Some(case) = cases.position(|case| self.world.holds(&case.when, queue, packet)) else { return };
        for deed in 0..prepared.cases[case].deeds.len() {
            match &self.world.shared.conditions[usize::from(condition)].cases[case].deeds[deed] {
                Deed::Stop | Deed::Resume if self.world.stopped.is_empty() => {}
                deed @ (Deed::Stop | Deed::Resume) => {
                    let stop = *deed == Deed::Stop;
                    let stopped = &mut self.world.stopped[usize::from(packet.input)];
                    let bit = 1u8 << (packet.priority % 8);
                    if (*stopped & bit != 0) != stop {
                        *stopped ^= bit;
                        host.pause(packet.input, packet.priority, stop);
                    }
                }
                _ if !is_there => {}
                Deed::Mark(probability) => {
                    if self.draw(host, probability, queue, packet) {
                        host.mark(id);
                    }
                }
                Deed::Modify(state, program) => {
                    let value = self.run(program, queue, packet).div_euclid(program.denominator);
                    self.world.modify(queue, *state, value);
                    self.states_changed(queue);
                }
                Deed::Drop(_) | Deed::Trim(_) | Deed::Return => {}
            }
        }
    }
}
