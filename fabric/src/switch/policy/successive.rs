//! Switches whose policy changes while they run: packets already queued leave by the policy under which they arrived.

use std::collections::VecDeque;
use std::sync::Arc;

use irnic_openqueue::{Booked, Host, Plan, Seen, Surroundings, Verdict as Admission, Waiting};

use super::{Doing, Planned};
use crate::network::{PacketId, Packets, Port};
use crate::priorities::Priorities;
use crate::switch::{Dequeue, Switch, SwitchCtx, Verdict};

/// A future policy, with the time from which it applies, ns.
type Change = (u64, Arc<Plan>);

/// A switch that runs one policy after the other. Packets that arrive after a change fall under the next policy. Those
/// already queued go first, in the order of the policy under which they arrived; the next policy counts their bytes in
/// the queues to which it would send them, and pauses and resumes neighbours.
///
/// A change takes effect on the first arrival, departure or timer at or after its time.
#[derive(Debug)]
pub(crate) struct Successive {
    /// The policies that still have packets, oldest first; the last is the current one.
    policies: VecDeque<Planned>,
    /// Number of policies before the first of [`Self::policies`].
    past: u32,
    to_come: VecDeque<Change>,
    surroundings: Surroundings,
    packets: Tickets,
    /// By output, the last packet it dequeued, which may still be in transmission.
    on_lines: Box<[Option<irnic_openqueue::Packet>]>,
}

/// State of a queued packet.
#[derive(Copy, Clone, Debug)]
struct Ticket {
    /// The policy under which it arrived, counted from the first; `None` if it is not queued.
    policy: Option<u32>,
    output: u16,
    /// Its position in the order of arrival.
    arrived: u64,
    /// Its booking in the current policy, for a packet of an earlier one.
    booked: Option<Booked>,
}

/// Tickets by packet number.
#[derive(Debug, Default)]
struct Tickets {
    of: Vec<Ticket>,
    arrived: u64,
    /// Number of queued packets, by policy.
    waiting: Vec<u64>,
}

impl Tickets {
    fn enter(&mut self, id: PacketId, policy: u32, output: u16) {
        const VACANT: Ticket = Ticket { policy: None, output: 0, arrived: 0, booked: None };
        let place = id as usize;
        if self.of.len() <= place {
            self.of.resize(place + 1, VACANT);
        }
        self.arrived += 1;
        self.of[place] = Ticket { policy: Some(policy), output, arrived: self.arrived, booked: None };
        self.waiting.resize(self.waiting.len().max(policy as usize + 1), 0);
        self.waiting[policy as usize] += 1;
    }

    /// Removes a packet that is no longer queued.
    fn leave(&mut self, id: PacketId) -> Option<Ticket> {
        let ticket = self.of.get_mut(id as usize)?;
        let policy = ticket.policy.take()?;
        self.waiting[policy as usize] -= 1;
        Some(*ticket)
    }

    fn waits_of(&self, policy: u32) -> u64 {
        self.waiting.get(policy as usize).copied().unwrap_or(0)
    }

    /// All queued packets, in order of arrival.
    fn in_order(&self) -> Vec<PacketId> {
        let waits = |(id, ticket): (usize, &Ticket)| ticket.policy.map(|_| (ticket.arrived, id as PacketId));
        let mut all: Vec<(u64, PacketId)> = self.of.iter().enumerate().filter_map(waits).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }
}

/// The network as seen by the current policy: packets that it pushes out are no longer queued.
struct Watched<'w, 'c, 's> {
    doing: Doing<'c, 's>,
    packets: &'w mut Tickets,
}

impl Waiting for Watched<'_, '_, '_> {
    fn next(&self, id: PacketId) -> PacketId {
        self.doing.next(id)
    }

    fn seen(&self, id: PacketId) -> Seen {
        self.doing.seen(id)
    }
}

impl Host for Watched<'_, '_, '_> {
    fn set_next(&mut self, id: PacketId, next: PacketId) {
        self.doing.set_next(id, next);
    }

    fn random(&mut self) -> u64 {
        self.doing.random()
    }

    fn mark(&mut self, id: PacketId) {
        self.doing.mark(id);
    }

    fn pause(&mut self, input: u16, priority: u8, stop: bool) {
        self.doing.pause(input, priority, stop);
    }

    fn is_sending(&self, output: u16) -> bool {
        self.doing.is_sending(output)
    }

    fn push_out(&mut self, id: PacketId) {
        self.packets.leave(id);
        self.doing.push_out(id);
    }

    fn coin(&mut self) -> bool {
        self.doing.coin()
    }

    fn can_trim(&self, id: PacketId) -> bool {
        self.doing.can_trim(id)
    }

    fn trim(&mut self, id: PacketId) -> Option<u32> {
        self.doing.trim(id)
    }

    fn turn_back(&mut self, id: PacketId) -> bool {
        let goes = self.doing.turn_back(id);
        if goes {
            self.packets.leave(id);
        }
        goes
    }
}

impl Successive {
    /// A switch that begins with the first plan, and changes to the others in the order of their times.
    pub(crate) fn new(
        first: &Plan,
        to_come: impl IntoIterator<Item = Change>,
        ports: &[Port],
        longest: u32,
        priorities: u8,
    ) -> Successive {
        let surroundings = Planned::surroundings(ports, longest, priorities);
        let mut to_come: VecDeque<Change> = to_come.into_iter().collect();
        to_come.make_contiguous().sort_by_key(|(at, _)| *at);
        Successive {
            policies: [Planned::around(first, &surroundings)].into(),
            past: 0,
            to_come,
            surroundings,
            packets: Tickets::default(),
            on_lines: vec![None; ports.len()].into(),
        }
    }

    /// The number of the current policy.
    fn number(&self) -> u32 {
        self.past + self.policies.len() as u32 - 1
    }

    /// Changes to the policies that are due.
    #[inline]
    fn keep_up(&mut self, ctx: &mut SwitchCtx<'_>) {
        while let Some((at, _)) = self.to_come.front()
            && *at <= ctx.now
        {
            self.change(ctx);
        }
    }

    #[cold]
    fn change(&mut self, ctx: &mut SwitchCtx<'_>) {
        let Some((_, plan)) = self.to_come.pop_front() else { return };
        let mut next = Planned::around(&plan, &self.surroundings);
        let mut booked = Vec::new();
        let waiting = self.packets.in_order();
        for &id in &waiting {
            let ticket = &mut self.packets.of[id as usize];
            if let (Some(before), Some(present)) = (ticket.booked.take(), self.policies.back_mut()) {
                present.engine.forget(before);
            }
            let output = ticket.output;
            let packet = next.seen(ctx, id, output);
            let of_next = next.engine.book_foreign(&mut Doing { ctx, output }, &packet);
            ticket.booked = Some(of_next);
            booked.push((id, of_next));
        }
        for (output, packet) in (0..).zip(&self.on_lines) {
            if ctx.ports[usize::from(output)].is_busy(ctx.now)
                && let Some(packet) = packet
            {
                next.engine.note_foreign_sent(&mut Doing { ctx, output }, packet);
            }
        }
        if let Some(present) = self.policies.back_mut() {
            let stopped = present.engine.retire();
            next.engine.take_over(&mut Doing { ctx, output: 0 }, stopped, &booked);
        }
        self.policies.push_back(next);
        self.forget_empty();
    }

    /// Drops policies without queued packets.
    fn forget_empty(&mut self) {
        while self.policies.len() > 1 && self.packets.waits_of(self.past) == 0 {
            self.policies.pop_front();
            self.past += 1;
        }
    }

    /// Dequeues the next packet of the policies before the current one.
    #[cold]
    fn drain(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Option<PacketId> {
        let before = self.policies.len() - 1;
        let mut old = self.policies.iter_mut().take(before);
        let id = old.find_map(|old| old.engine.depart(&mut Doing { ctx, output }, output, paused.bits()))?;
        ctx.count_drained(id);
        self.on_lines[usize::from(output)] = Some(self.present().seen(ctx, id, output));
        let booked = self.packets.leave(id).and_then(|ticket| ticket.booked);
        if let (Some(booked), Some(present)) = (booked, self.policies.back_mut()) {
            present.engine.depart_foreign(&mut Doing { ctx, output }, id, booked);
        }
        self.forget_empty();
        Some(id)
    }

    fn present(&self) -> &Planned {
        &self.policies[self.policies.len() - 1]
    }
}

impl Switch for Successive {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        self.keep_up(ctx);
        let number = self.number();
        let Some(present) = self.policies.back_mut() else { return Verdict::Dropped };
        let packet = present.seen(ctx, id, output);
        let mut host = Watched { doing: Doing { ctx, output }, packets: &mut self.packets };
        let admission = present.engine.arrive(&mut host, id, packet);
        if matches!(admission, Admission::Queued | Admission::Trimmed(_)) {
            self.packets.enter(id, number, output);
        }
        present.admitted(ctx, id, output, admission)
    }

    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        self.keep_up(ctx);
        if self.policies.len() > 1
            && let Some(id) = self.drain(ctx, output, paused)
        {
            return Dequeue::Packet(id);
        }
        let Some(present) = self.policies.back_mut() else { return Dequeue::Idle };
        let mut host = Watched { doing: Doing { ctx, output }, packets: &mut self.packets };
        let Some(id) = present.engine.depart(&mut host, output, paused.bits()) else { return Dequeue::Idle };
        self.packets.leave(id);
        self.on_lines[usize::from(output)] = Some(present.seen(ctx, id, output));
        Dequeue::Packet(id)
    }

    /// Packets queued under earlier policies are included in the bytes of its queues.
    fn backlog(&self, output: u16) -> u64 {
        self.present().backlog(output)
    }

    fn paused_upstreams(&self) -> Vec<(u16, u8)> {
        self.present().paused_upstreams()
    }

    fn blocks(&self, packets: &Packets, input: u16, priority: u8, output: u16) -> bool {
        self.policies.iter().any(|policy| policy.blocks(packets, input, priority, output))
    }

    fn prefetch(&self, packets: &Packets, id: PacketId, input: u16, output: u16) {
        self.present().prefetch(packets, id, input, output);
    }

    fn prefetch_output(&self, packets: &Packets, output: u16, step: usize) {
        self.present().prefetch_output(packets, output, step);
    }
}
