//! How the network interrupts transmissions ([`super::preempt`]).

use irnic_transports::telemetry::Hop;

use super::preempt::Begun;
use super::{Agenda, End, Endpoint, Event, Network, Packet, PortId};

impl<E: Endpoint, A: Agenda> Network<E, A> {
    /// Interrupts the transmission of a port if a more urgent packet has arrived.
    #[cold]
    pub(super) fn interrupt(&mut self, id: PortId) {
        let port = &self.ports[id as usize];
        // Control frames are not interrupted. In any case, the port is served when its transmission ends.
        let Some(sending) = port.preemption().and_then(|state| state.sending) else { return };
        let rest = port.preemption().and_then(|state| state.next_rest(&self.packets, port.paused()));
        let waiting = self.waiting_rank(id);
        if !waiting.into_iter().chain(rest.map(|(_, rank)| rank)).any(|rank| rank < sending.rank) {
            return;
        }
        let port = &mut self.ports[id as usize];
        let left = port.stop(self.now);
        if let Some(state) = port.preemption_mut() {
            state.sending = None;
            state.add(Begun { left, ..sending });
        }
        self.serve(id);
    }

    /// Starts the next transmission of a free port that interrupts packets.
    #[cold]
    pub(super) fn serve(&mut self, id: PortId) {
        self.finish(id);
        let port = &self.ports[id as usize];
        if port.is_reserved() || port.is_paced() && self.waits_for_its_pace(id) {
            return;
        }
        let waiting = self.waiting_rank(id);
        let port = &self.ports[id as usize];
        let rest = port.preemption().and_then(|state| state.next_rest(&self.packets, port.paused()));
        match rest {
            // Of equals, the one that has begun came first.
            Some((place, rank)) if waiting.is_none_or(|waiting| rank <= waiting) => self.resume(id, place),
            _ => self.begin(id, waiting.unwrap_or(i64::MIN)),
        }
    }

    /// Ends a transmission of a port that interrupts packets: the packet is on the link.
    pub(super) fn finish(&mut self, id: PortId) {
        let port = &mut self.ports[id as usize];
        let Some(Begun { packet, end, .. }) = port.preemption_mut().and_then(|state| state.sending.take()) else {
            return;
        };
        debug_assert_eq!(end, self.now);
        let (peer, epoch, arrives) = (port.peer, port.epoch, end + port.delay);
        if A::PARTED && port.is_cut() {
            return self.mail_packet(arrives, peer, epoch, packet);
        }
        if A::PARTED {
            self.announce(arrives, peer, packet);
        }
        self.events.push(arrives, Event::Arrive(peer, epoch, packet));
    }

    /// The rank of the next packet that waits for a switch's port, if one may be sent.
    fn waiting_rank(&self, id: PortId) -> Option<i64> {
        let End { node, local, .. } = self.ends[id as usize];
        let place = node.checked_sub(self.all_hosts)?;
        self.switches[place as usize].switch.rank(&self.packets, local, self.ports[id as usize].paused())
    }

    /// Begins the transmission of a packet of this rank, if there is one.
    fn begin(&mut self, id: PortId, rank: i64) {
        let End { node, local, .. } = self.ends[id as usize];
        let Some(place) = node.checked_sub(self.all_hosts) else { return };
        let paused = self.ports[id as usize].paused();
        let (Some(packet), _) = self.next_of_switch(id, local, place, paused) else {
            if self.ports[id as usize].has_control() {
                self.start_control(id);
            }
            return;
        };
        if let Some(int) = self.packets.telemetry_mut(packet) {
            let queued = self.switches[place as usize].switch.backlog(local);
            let port = &self.ports[id as usize];
            int.push(id, Hop { rate: port.rate, at: self.now, sent: port.counters.bytes, queued });
        }
        self.note_start(id, node, packet);
        let &Packet { wire, .. } = self.packets.get(packet);
        let port = &mut self.ports[id as usize];
        let end = port.send(self.now, wire);
        port.counters.packets += 1;
        port.counters.bytes += u64::from(wire);
        self.sends(id, Begun { packet, rank, end, left: 0 });
    }

    /// Resumes the interrupted packet at this position.
    fn resume(&mut self, id: PortId, place: usize) {
        let port = &mut self.ports[id as usize];
        let Some(begun) = port.preemption_mut().map(|state| state.rests.remove(place)) else { return };
        let end = port.send_rest(self.now, begun.left);
        let (packet, later) = (begun.packet, end - begun.end);
        if let Some(journal) = &mut self.journal {
            journal.delayed(packet, later);
        }
        let End { node, local, .. } = self.ends[id as usize];
        if let Some(place) = node.checked_sub(self.all_hosts) {
            let (switch, mut ctx) = self.with_switch(place as usize);
            switch.delayed(&mut ctx, local, packet, later);
        }
        self.sends(id, Begun { end, left: 0, ..begun });
    }

    /// Notes the packet in transmission, and schedules its end.
    fn sends(&mut self, id: PortId, begun: Begun) {
        let port = &mut self.ports[id as usize];
        port.awaited = begun.end;
        if let Some(state) = port.preemption_mut() {
            state.sending = Some(begun);
        }
        self.events.push(begun.end, Event::TxDone(id));
    }
}
