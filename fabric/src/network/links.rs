//! Links that fail, recover or change their rate, and the resulting routes.

use super::{Agenda, Change, Endpoint, Event, LinkChange, Network, NetworkConfig, Pause, Port, PortId, Routing};
use crate::topology::Routes;

impl<E: Endpoint, A: Agenda> Network<E, A> {
    /// Makes the changes that are due, and schedules the next.
    pub(super) fn change_links(&mut self) {
        let mut turn = 0;
        while let Some(change) = self.config.changes.get(self.next_change).copied() {
            if change.at > self.now {
                self.events.turn(turn);
                self.events.push(change.at, Event::LinkChange);
                break;
            }
            self.next_change += 1;
            self.make_change(change, turn);
            turn += 2 + self.ports.len() as u32;
        }
    }

    /// Makes a change of a link now, regardless of its time.
    pub fn change_link(&mut self, change: LinkChange) {
        self.make_change(change, 0);
    }

    /// Makes a change of a link, as the `turn`-th step of this event and following ones: a step for each end and each
    /// port.
    fn make_change(&mut self, change: LinkChange, turn: u32) {
        let hosts = self.all_hosts;
        let ends: Vec<PortId> =
            (0..self.ports.len() as PortId).filter(|&p| self.ports[p as usize].link == change.link).collect();
        for (n, id) in (0..).zip(ends) {
            self.events.turn(turn + n);
            let port = &mut self.ports[id as usize];
            match change.what {
                Change::Rate(rate) => port.set_rate(rate),
                Change::RateFrom { node, rate } if port.node == node => port.set_rate(rate),
                Change::RateFrom { .. } => {}
                Change::Up if port.is_up() => {}
                Change::Up => {
                    port.set_up(true);
                    // The other end has forgotten its pauses; XONs that were due meanwhile are no change for it.
                    port.reset_controls(self.now);
                    let &mut Port { node, local, .. } = port;
                    if node >= hosts && !self.ports[id as usize].has_credits() {
                        let paused = self.switches[(node - hosts) as usize].switch.paused_upstreams();
                        for (_, priority) in paused.into_iter().filter(|(input, _)| *input == local) {
                            self.ports[id as usize].request_pause(Pause { priority, stop: true });
                        }
                    }
                }
                Change::Down => {
                    port.set_up(false);
                    port.epoch = port.epoch.wrapping_add(1);
                    self.ends[id as usize].epoch = port.epoch;
                    port.reset_controls(self.now);
                    let &mut Port { node, local, .. } = port;
                    if !self.events.owns(node) {
                        continue;
                    }
                    if node < hosts {
                        let paused = port.paused();
                        self.tell_host(node, paused);
                    } else {
                        let place = (node - hosts) as usize;
                        let mut lost = Vec::new();
                        let (switch, mut ctx) = self.with_switch(place);
                        switch.flush(&mut ctx, local, &mut lost);
                        if let Some(begun) = self.ports[id as usize].preemption_mut() {
                            begun.flush(&mut lost);
                        }
                        for &packet in &lost {
                            let (sent, wire) = (self.packets.content(packet).sent, self.packets.get(packet).wire);
                            self.ledger.totals.lost(self.now, sent, wire);
                            self.packets.remove(packet);
                        }
                        self.ports[id as usize].counters.lost += lost.len() as u64;
                        self.carry_out(place, Some(id));
                    }
                }
            }
        }
        if matches!(change.what, Change::Up | Change::Down) {
            let ports = &self.ports;
            let mut down = vec![false; self.config.topology.links.len()];
            ports.iter().for_each(|p| down[p.link as usize] |= !p.is_up());
            self.routes = routes(&self.config, &|link| down[link]);
        }
        for id in 0..self.ports.len() as PortId {
            if self.events.owns(self.ports[id as usize].node) {
                self.events.turn(turn + 2 + id);
                self.start(id);
            }
        }
    }
}

/// Shortest paths over the links that are not `down`, and detours.
pub(super) fn routes(config: &NetworkConfig, down: &impl Fn(usize) -> bool) -> Routes {
    let mut routes = match config.routing {
        Routing::Lowest => Routes::lowest(&config.topology, down),
        _ => Routes::compute(&config.topology, down),
    };
    for detour in &config.detours {
        let links = config.topology.ports(detour.node);
        let port = links.iter().position(|&(link, peer)| peer == detour.via && !down(link));
        if let Some(port) = port {
            routes.detour(detour.node, detour.dst, port as u16);
        }
    }
    routes
}
