//! Whether the accounts of a network add up: what entered is somewhere, and stays as long as Little's law says.

use super::preempt::Preemption;
use super::{Agenda, Endpoint, Event, Network, NetworkError, Port, Totals};

/// The accounts of a network, or of a part of one, at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    totals: Totals,
    /// Bytes in switches, and on links.
    buffered: u64,
    flying: u64,
    /// Packets remembered.
    packets: u64,
}

impl<E: Endpoint, A: Agenda> Network<E, A> {
    pub(crate) fn account(&self) -> Account {
        let mut totals = self.ledger.totals.clone();
        totals.integrate(self.now);
        self.packets.iter().for_each(|(p, c)| totals.still_here(self.now, c.sent, p.wire));
        let flying = self.events.waiting().filter_map(|event| match event {
            Event::Arrive(_, _, packet) => Some(u64::from(self.packets.get(packet).wire)),
            _ => None,
        });
        let begun = self.ports.iter().filter_map(Port::preemption).flat_map(Preemption::packets);
        let flying = flying.sum::<u64>() + begun.map(|packet| u64::from(self.packets.get(packet).wire)).sum::<u64>();
        Account { totals, buffered: self.backlog().0, flying, packets: self.packets.len() as u64 }
    }

    /// Checks the accounts as they are now: what entered was delivered, dropped, lost, cut off, or is
    /// somewhere; and Little's law holds exactly. Returns bytes in the network added up over time, and the time that
    /// bytes stayed, which are equal, byte · ns.
    pub fn check(&self) -> Result<(u128, u128), NetworkError> {
        self.account().check()
    }
}

impl Account {
    /// Adds the account of another part at the same moment.
    pub(crate) fn add(&mut self, other: &Account) {
        self.totals.add(&other.totals);
        self.buffered += other.buffered;
        self.flying += other.flying;
        self.packets += other.packets;
    }

    /// What was counted.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// See [`Network::check`].
    pub(crate) fn check(&self) -> Result<(u128, u128), NetworkError> {
        let Account { totals: t, buffered, flying, packets } = self;
        let left = t.delivered_bytes + t.dropped_bytes + t.lost_bytes + t.trimmed_bytes + t.shrunk_bytes;
        let came = t.injected_bytes + t.emitted_bytes + t.grown_bytes;
        if left + buffered + flying != came {
            return Err(NetworkError::Invariant(format!(
                "{} bytes sent, {} made and {} added by switches, but {} delivered + {} dropped + {} lost + {} trimmed + {} taken \
                 off + {buffered} queued + {flying} on links = {}",
                t.injected_bytes,
                t.emitted_bytes,
                t.grown_bytes,
                t.delivered_bytes,
                t.dropped_bytes,
                t.lost_bytes,
                t.trimmed_bytes,
                t.shrunk_bytes,
                left + buffered + flying
            )));
        }
        let under_way =
            t.injected_packets + t.emitted_packets - t.delivered_packets - t.dropped_packets - t.lost_packets;
        if under_way != *packets {
            return Err(NetworkError::Invariant(format!("{under_way} packets under way, {packets} remembered")));
        }
        // Little's law: what is in the network on average is what comes in times how long it stays.
        if t.byte_time() != t.stay() {
            return Err(NetworkError::Invariant(format!(
                "{} byte·ns in the network, but its packets stayed {}",
                t.byte_time(),
                t.stay()
            )));
        }
        Ok((t.byte_time(), t.stay()))
    }
}
