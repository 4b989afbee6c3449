//! Memory of a large network does not fit into the processor's caches. But the next events are known, and so is most of
//! what they will need: it is fetched in steps, each of which finds in the cache what the one before had fetched.

use super::{Endpoint, Event, Network, Port, Routing};
use crate::prefetch::{fetch, fetch_all};

/// How many events before its turn each step is taken for an event.
const FIRST: usize = 12;
const SECOND: usize = 8;
const THIRD: usize = 4;

impl<E: Endpoint> Network<E> {
    /// Fetches something for each of three coming events. Changes nothing.
    #[inline]
    pub(super) fn look_ahead(&self) {
        if let Some(event) = self.events.coming(FIRST) {
            self.fetch_first(event);
        }
        if let Some(event) = self.events.coming(SECOND) {
            self.fetch_second(event);
        }
        if let Some(event) = self.events.coming(THIRD) {
            self.fetch_third(event);
        }
    }

    /// The port, and the packet.
    #[inline]
    fn fetch_first(&self, event: Event) {
        match event {
            Event::Arrive(to, _, id) => {
                fetch(&self.ports[to as usize]);
                fetch(self.packets.get(id));
            }
            Event::TxDone(port) => fetch(&self.ports[port as usize]),
            _ => {}
        }
    }

    /// What knows where to go on: the switch, or the endpoint and the rest of the packet.
    #[inline]
    fn fetch_second(&self, event: Event) {
        let (Event::Arrive(at, ..) | Event::TxDone(at)) = event else { return };
        let node = self.ports[at as usize].node;
        match (node as usize).checked_sub(self.hosts.len()) {
            Some(place) => {
                let switch = &self.switches[place];
                fetch(switch);
                if let Event::Arrive(_, _, id) = event {
                    self.routes.fetch(node, self.packets.get(id).dst);
                }
            }
            None => {
                self.hosts[node as usize].endpoint.prefetch();
                if let Event::Arrive(_, _, id) = event {
                    fetch_all(self.packets.content(id));
                }
            }
        }
    }

    /// The queue and the port by which an arriving packet leaves, as `route` will choose; or what the endpoint needs.
    #[inline]
    fn fetch_third(&self, event: Event) {
        let (Event::Arrive(at, ..) | Event::TxDone(at)) = event else { return };
        let &Port { node, local, .. } = &self.ports[at as usize];
        let place = (node as usize).checked_sub(self.hosts.len());
        match (place, event) {
            (Some(place), Event::Arrive(_, _, id)) => {
                let packet = self.packets.get(id);
                let choices = self.routes.ports(node, packet.dst);
                let switch = &self.switches[place];
                let output = match (choices, self.config.routing) {
                    ([], _) => return,
                    (_, Routing::Ecmp) => choices[switch.hashed(packet.entropy, choices.len())],
                    (_, Routing::Spray) => choices[(switch.sprayed as usize + 1) % choices.len()],
                    (_, Routing::Static) => choices[packet.dst as usize % choices.len()],
                };
                switch.switch.prefetch(local, output);
                let port = &self.ports[(switch.first + u32::from(output)) as usize];
                fetch(port);
                fetch(&port.counters);
            }
            (Some(_), _) => {}
            (None, Event::Arrive(_, _, id)) => {
                self.hosts[node as usize].endpoint.prefetch_receive(self.packets.content(id));
            }
            (None, _) => self.hosts[node as usize].endpoint.prefetch_transmit(),
        }
    }
}
