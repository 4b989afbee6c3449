//! Detection of standstills: a cycle of ports, each of which is paused by a switch that itself waits for the next.

use super::{Agenda, Endpoint, Event, Network, PortId};

/// Interval at which a network that may have come to a standstill is examined, ns.
const WATCH: u64 = 1_000_000;

/// The reason why a network with packets in flight does not move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standstill {
    /// A cycle of ports that wait for each other forever.
    Deadlock(Vec<PortId>),
    /// No event would ever come, without a deadlock: packets were lost and there is no timer.
    Stuck,
}

/// State at the last check.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Packets that had been delivered to NICs.
    delivered: u64,
    /// A cycle of ports without progress, and the packets that they had sent.
    cycle: Option<(Vec<PortId>, u64)>,
    /// A cycle without progress in two checks.
    found: Option<Vec<PortId>>,
    /// Time at which the first such cycle was found, ns.
    pub first: Option<u64>,
    /// Whether a deadlock is only noted and the network continues.
    go_on: bool,
}

impl<E: Endpoint, A: Agenda> Network<E, A> {
    /// Checks every millisecond from now on whether anything moves: [`Self::step`] reports when nothing will any more.
    pub fn watch(&mut self) {
        self.events.push(self.now + WATCH, Event::DeadlockCheck);
    }

    /// Has deadlocks only noted ([`Self::first_deadlock`]): [`Self::step`] reports a standstill only when no event is
    /// due. For switches that resolve deadlocks over time, and to study the effect of a deadlock on the rest of the
    /// network.
    pub fn go_on(&mut self) {
        self.watched.go_on = true;
    }

    /// Time at which a deadlock was first found, ns: up to two milliseconds after it arose.
    pub fn first_deadlock(&self) -> Option<u64> {
        self.watched.first
    }

    /// Whether the network would run forever without moving. If not, schedules the next check.
    pub(super) fn stands_still(&mut self) -> bool {
        if A::PARTED {
            let delivered = self.ledger.totals.delivered_packets;
            self.events.watched(delivered, self.packets.len(), self.timers, self.observations);
            self.watch();
            return false;
        }
        if let Some(cycle) = self.deadlock() {
            self.watched.first.get_or_insert(self.now);
            if !self.watched.go_on {
                self.watched.found = Some(cycle);
                return true;
            }
        }
        // Observations move nothing, nor do timers of switches without packets.
        let idle = self.observations + if self.packets.is_empty() { self.timers } else { 0 };
        if self.events.count() <= idle {
            return true;
        }
        self.watch();
        false
    }

    /// A cycle of paused ports, if nothing has reached a NIC since the last check, and no port of the cycle has sent
    /// anything since it was seen then: with slow links, packets may take longer than that.
    fn deadlock(&mut self) -> Option<Vec<PortId>> {
        let delivered = self.ledger.totals.delivered_packets;
        let still = std::mem::replace(&mut self.watched.delivered, delivered) == delivered && !self.packets.is_empty();
        let cycle = still.then(|| self.pause_cycle()).flatten().and_then(|cycle| {
            let ports = || cycle.iter().map(|&p| &self.ports[p as usize]);
            let sent = ports().map(|p| p.counters.packets).sum();
            let flying = self.events.waiting().any(|event| match event {
                Event::Arrive(to, ..) => cycle.contains(&self.ports[to as usize].peer),
                _ => false,
            });
            (!flying && !ports().any(|p| p.is_busy(self.now))).then_some((cycle, sent))
        });
        let before = std::mem::replace(&mut self.watched.cycle, cycle);
        if before.is_some() && before == self.watched.cycle { before.map(|(cycle, _)| cycle) } else { None }
    }

    /// A cycle of paused ports, each waiting for the next.
    pub(crate) fn pause_cycle(&self) -> Option<Vec<PortId>> {
        let n = self.ports.len();
        // 0 not visited, 1 on the path, 2 done.
        let mut seen = vec![0u8; n];
        let mut way: Vec<(PortId, Vec<PortId>)> = Vec::new();
        for start in 0..n as PortId {
            if seen[start as usize] != 0 || self.ports[start as usize].paused().is_empty() {
                continue;
            }
            seen[start as usize] = 1;
            way.push((start, self.waits_for(start)));
            while let Some((at, next)) = way.last_mut() {
                let Some(to) = next.pop() else {
                    seen[*at as usize] = 2;
                    way.pop();
                    continue;
                };
                match seen[to as usize] {
                    0 => {
                        seen[to as usize] = 1;
                        way.push((to, self.waits_for(to)));
                    }
                    1 => {
                        let from = way.iter().position(|(p, _)| *p == to)?;
                        return Some(way[from..].iter().map(|(p, _)| *p).collect());
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// The paused ports that must move before a paused port may: those of the switch at its other end that have packets
    /// from it queued.
    fn waits_for(&self, port: PortId) -> Vec<PortId> {
        let there = &self.ports[self.ports[port as usize].peer as usize];
        let Some(place) = (there.node as usize).checked_sub(self.all_hosts as usize) else { return Vec::new() };
        let node = &self.switches[place];
        let paused = node.switch.paused_upstreams();
        let mut found = Vec::new();
        for (_, priority) in paused.into_iter().filter(|(input, _)| *input == there.local) {
            for output in 0..node.count as u16 {
                let id = node.first + u32::from(output);
                let stopped = self.ports[id as usize].paused().contains(priority);
                if stopped && node.switch.blocks(&self.packets, there.local, priority, output) {
                    found.push(id);
                }
            }
        }
        found
    }

    /// The reason for a standstill, when no event will come.
    pub fn standstill(&self) -> Standstill {
        match self.watched.found.clone().or_else(|| self.pause_cycle()) {
            Some(cycle) => Standstill::Deadlock(cycle),
            None => Standstill::Stuck,
        }
    }
}
