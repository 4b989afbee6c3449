//! Calls of endpoints: polling for packets, delivery, and deadlines.

use super::{Agenda, Content, Endpoint, EndpointCtx, Event, Host, Mishap, Network, Packet, PacketId, Port, Put, Step};
use crate::priorities::Priorities;

impl<E: Endpoint, A: Agenda> Network<E, A> {
    /// The endpoint of a host.
    #[inline]
    pub fn endpoint(&self, host: u32) -> &E {
        &self.hosts[self.place_of(host)].endpoint
    }

    /// The endpoint of a host, mutably. Call [`Self::settle`] after a change.
    #[inline]
    pub fn endpoint_mut(&mut self, host: u32) -> &mut E {
        let place = self.place_of(host);
        &mut self.hosts[place].endpoint
    }

    /// All endpoints, by host.
    pub fn endpoints(&self) -> impl Iterator<Item = &E> {
        self.hosts.iter().map(|host| &host.endpoint)
    }

    /// The port of a host.
    pub fn port_of(&self, host: u32) -> &Port {
        &self.ports[self.hosts[self.place_of(host)].port as usize]
    }

    /// Handles a change of an endpoint, which may have something to send and a new deadline.
    #[inline]
    pub fn settle(&mut self, host: u32) {
        self.schedule(host);
        self.start(self.hosts[self.place_of(host)].port);
    }

    /// Puts a packet on a host's link from outside, for hosts that keep the time of their link themselves. It begins to
    /// leave at `start`, ns, or after the packets put there before, and is lost if the link is down. A packet that
    /// should already have reached the other end arrives now.
    pub fn put(&mut self, host: u32, start: u64, packet: Packet, content: Content) -> Put {
        self.put_with(host, start, packet, content, Mishap::default())
    }

    /// Like [`Self::put`], with a fault applied to the packet.
    #[inline]
    pub fn put_with(&mut self, host: u32, start: u64, packet: Packet, content: Content, mishap: Mishap) -> Put {
        let place = self.place_of(host);
        let port = &mut self.ports[self.hosts[place].port as usize];
        port.counters.packets += 1;
        port.counters.bytes += u64::from(packet.wire);
        let began = start.max(port.free_at());
        let left = port.send(start, packet.wire);
        let arrives = left.saturating_add(port.delay).saturating_add(mishap.later);
        let late = self.now.saturating_sub(arrives);
        // A packet of an earlier epoch is lost when it arrives.
        let arrived = port.is_up() && !mishap.lost;
        let epoch = if arrived { port.epoch } else { port.epoch.wrapping_sub(1) };
        let peer = port.peer;
        self.ledger.totals.injected(self.now, &packet, content.payload);
        let id = self.packets.add(packet, Content { sent: self.now, slack: packet.slack, ..content });
        self.events.push(arrives + late, Event::Arrive(peer, epoch, id));
        Put { id, began, left, late }
    }

    /// An endpoint and its context.
    #[inline]
    fn with_endpoint(&mut self, host: u32) -> (&mut E, EndpointCtx<'_, E::Shared>) {
        let place = self.place_of(host);
        let Host { endpoint, port, .. } = &mut self.hosts[place];
        let ctx = EndpointCtx {
            now: self.now,
            host,
            shared: &mut self.shared,
            packets: &mut self.packets,
            port: &mut self.ports[*port as usize],
            totals: &mut self.ledger.totals,
        };
        (endpoint, ctx)
    }

    /// Polls an endpoint for a packet, and whether it has more.
    #[inline]
    pub(super) fn next_of_host(&mut self, host: u32, paused: Priorities) -> (Option<PacketId>, bool) {
        let (endpoint, mut ctx) = self.with_endpoint(host);
        if !endpoint.wants_tx(paused) {
            return (None, false);
        }
        let next = endpoint.poll_transmit(&mut ctx);
        let more = endpoint.wants_tx(paused);
        self.schedule(host);
        (next, more)
    }

    /// Arms the timer for the next deadline of an endpoint.
    #[inline]
    pub(super) fn schedule(&mut self, host: u32) {
        let place = self.place_of(host);
        let h = &mut self.hosts[place];
        let deadline = h.endpoint.next_deadline();
        if deadline < h.wakes {
            h.wakes = deadline.max(self.now);
            self.events.push(h.wakes, Event::Deadline(host));
        }
    }

    /// Delivers a packet to its host.
    #[inline]
    pub(super) fn deliver(&mut self, host: u32, id: PacketId) -> Step {
        if let Some(journal) = &mut self.journal {
            journal.arrives(self.now, id);
        }
        let (endpoint, mut ctx) = self.with_endpoint(host);
        endpoint.receive(id, &mut ctx);
        if A::PARTED && self.packets.get(id).is_announced() {
            self.events.answer(host, self.packets.content(id).headers.bth.dest_qp);
        }
        let content = self.packets.content(id);
        let (sent, payload) = (content.sent, content.payload);
        self.ledger.totals.delivered(self.now, sent, self.packets.get(id).wire, payload);
        self.packets.remove(id);
        Step::Endpoint(host)
    }

    /// Notifies a host of the priorities paused on its link.
    pub(super) fn tell_host(&mut self, host: u32, paused: Priorities) {
        let (endpoint, mut ctx) = self.with_endpoint(host);
        endpoint.on_pause(paused, &mut ctx);
    }

    /// Delivers a control frame to its host.
    pub(super) fn deliver_control(&mut self, host: u32, control: super::Control) -> Step {
        let (endpoint, mut ctx) = self.with_endpoint(host);
        endpoint.on_control(control, &mut ctx);
        Step::Endpoint(host)
    }
}
