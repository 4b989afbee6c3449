//! Prefetching for coming events. A large network does not fit into the processor's caches. But the next events are
//! known, and so is most of the data they need: it is fetched in steps, each of which finds in the cache what the
//! previous one fetched.

use super::{Agenda, End, Endpoint, Event, Network, Routing};
use crate::prefetch::{fetch, fetch_all, fetch_first};

/// Number of events ahead at which each step is taken.
const FIRST: usize = 12;
const SECOND: usize = 8;
const THIRD: usize = 4;

/// Number of hosts from which on the queues of switches no longer stay in the cache by themselves.
const MANY_HOSTS: u32 = 256;

/// Cache lines of a switch to prefetch, in addition to the queues that [`crate::switch::Switch`] prefetches.
const SWITCH_LINES: usize = 4;

impl<E: Endpoint, A: Agenda> Network<E, A> {
    /// Prefetches data for each of three coming events. Changes no state.
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

    /// Step 1: the packet, the port that will be free, and the switch or endpoint.
    #[inline]
    fn fetch_first(&self, event: Event) {
        let at = match event {
            Event::Arrive(at, _, id) => {
                fetch(self.packets.get(id));
                at
            }
            Event::TxDone(at) => {
                fetch(&self.ports[at as usize]);
                at
            }
            _ => return,
        };
        let End { node, local, .. } = self.ends[at as usize];
        match ((node as usize).checked_sub(self.all_hosts as usize), event) {
            (Some(place), Event::TxDone(_)) => self.fetch_output(place, local, 0),
            (Some(place), _) => fetch(&self.switches[place]),
            (None, event) => {
                self.hosts[self.place_of(node)].endpoint.prefetch();
                if let Event::Arrive(_, _, id) = event {
                    fetch_all(self.packets.content(id));
                }
            }
        }
    }

    /// Prefetches what a switch's free output needs.
    #[inline]
    fn fetch_output(&self, place: usize, output: u16, step: usize) {
        if self.all_hosts >= MANY_HOSTS {
            self.switches[place].switch.prefetch_output(&self.packets, output, step);
        }
    }

    /// Step 2: the inside of the switch and its routes, or of the endpoint.
    #[inline]
    fn fetch_second(&self, event: Event) {
        let (Event::Arrive(at, ..) | Event::TxDone(at)) = event else { return };
        let End { node, local, .. } = self.ends[at as usize];
        match ((node as usize).checked_sub(self.all_hosts as usize), event) {
            (Some(place), Event::Arrive(_, _, id)) => {
                fetch_first(&*self.switches[place].switch, SWITCH_LINES);
                self.routes.fetch(node, self.packets.get(id).dst);
            }
            (Some(place), _) => self.fetch_output(place, local, 1),
            (None, Event::Arrive(_, _, id)) => {
                self.hosts[self.place_of(node)].endpoint.prefetch_receiver(self.packets.content(id));
            }
            (None, _) => self.hosts[self.place_of(node)].endpoint.prefetch_sender(),
        }
    }

    /// Step 3: the queue and the port by which an arriving packet leaves, as `route` will choose, or the queues of the
    /// port that becomes free; or what the endpoint needs.
    #[inline]
    fn fetch_third(&self, event: Event) {
        let (Event::Arrive(at, ..) | Event::TxDone(at)) = event else { return };
        let End { node, local, .. } = self.ends[at as usize];
        let place = (node as usize).checked_sub(self.all_hosts as usize);
        match (place, event) {
            (Some(place), Event::Arrive(_, _, id)) => {
                let packet = self.packets.get(id);
                let choices = self.routes.ports(node, packet.dst);
                let switch = &self.switches[place];
                let output = match (choices, self.config.routing) {
                    ([], _) => return,
                    (&[only], _) => only,
                    (_, Routing::Ecmp) => choices[switch.hashed(packet.entropy, choices.len())],
                    (_, Routing::Spray) => choices[(switch.sprayed as usize + 1) % choices.len()],
                    // A random choice cannot be predicted.
                    (_, Routing::Random) => return,
                    (_, Routing::Source) => choices[packet.entropy as usize % choices.len()],
                    (_, Routing::Lowest) => choices[0],
                    (_, Routing::Static) => choices[packet.dst as usize % choices.len()],
                };
                switch.switch.prefetch(&self.packets, id, local, output);
                fetch(&self.ports[(switch.first + u32::from(output)) as usize]);
            }
            (Some(place), _) => self.fetch_output(place, local, 2),
            (None, Event::Arrive(_, _, id)) => {
                self.hosts[self.place_of(node)].endpoint.prefetch_receive(self.packets.content(id));
            }
            (None, _) => self.hosts[self.place_of(node)].endpoint.prefetch_transmit(),
        }
    }
}
