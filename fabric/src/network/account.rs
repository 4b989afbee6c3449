//! Checks of a network's accounts: everything that entered is accounted for, and Little's law holds.

use super::preempt::Preemption;
use super::{Agenda, Endpoint, Event, Network, NetworkError, Port, Totals};

/// The accounts of a network, or of a part of one, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    totals: Totals,
    /// Bytes in switches, and on links.
    buffered: u64,
    flying: u64,
    /// Packets in the slab.
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

    /// Checks the accounts at this moment: what entered was delivered, dropped, lost, trimmed, or is in the network;
    /// and Little's law holds exactly. Returns the time integral of the bytes in the network, and the total time that
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

    /// The totals.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// See [`Network::check`].
    pub(crate) fn check(&self) -> Result<(u128, u128), NetworkError> {
        let Account { totals: t, buffered, flying, packets } = self;
        let left = t.delivered_bytes + t.dropped_bytes + t.lost_bytes + t.trimmed_bytes + t.shrunk_bytes;
        let entered = t.injected_bytes + t.emitted_bytes + t.grown_bytes;
        if left + buffered + flying != entered {
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
        // Little's law: the average content of the network is the arrival rate times the average stay.
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
