//! Packets from port to port: links and switches.

use irnic_transports::telemetry::Hop;
use rand::RngExt;

use super::{Event, Routing, SimError, Simulation, SwitchNode};
use crate::packet::{PacketId, Packets};
use crate::port::{PFC_FRAME, Pause, Port, PortId};
use crate::switch::{Surroundings, Switch};

impl Simulation {
    /// Has a port that is free send its next packet, if it has one.
    #[inline]
    pub(super) fn start(&mut self, id: PortId) {
        let port = &mut self.ports[id as usize];
        if port.free_at > self.now {
            // Called again when it is free.
            if std::mem::replace(&mut port.awaited, port.free_at) != port.free_at {
                self.agenda.push(port.free_at, Event::Free(id));
            }
            return;
        }
        if !port.up {
            return;
        }
        if let Some(stopped) = port.next_control() {
            let ends = port.send(self.now, PFC_FRAME);
            let obey = Event::Obey(port.peer, port.epoch, stopped);
            port.awaited = ends;
            self.agenda.push(ends, Event::Free(id));
            self.agenda.push(ends + port.delay, obey);
            return;
        }
        let stopped = port.stopped;
        let node = port.node;
        let hosts = self.hosts.len() as u32;
        let (next, more) = if node < hosts {
            let next = self.next_of_host(node, stopped);
            (next, self.hosts[node as usize].nic.wants_tx())
        } else {
            let local = port.local;
            let place = (node - hosts) as usize;
            let (node, mut surroundings) =
                surroundings(&mut self.switches[place], self.now, &mut self.packets, &mut self.ports, &mut self.asks);
            let next = node.next(&mut surroundings, local, stopped);
            let more = node.queued(local) > 0;
            if let Some(again) = surroundings.again {
                self.ports[id as usize].awaited = again;
                self.agenda.push(again, Event::Free(id));
            }
            if !self.asks.is_empty() {
                self.send_asks(place, Some(id));
            }
            (next, more)
        };
        let Some(packet) = next else { return };
        let wire = self.packets.get(packet).wire;
        let port = &mut self.ports[id as usize];
        if node >= hosts
            && let Some(int) = self.packets.telemetry_mut(packet)
        {
            let queued = self.switches[(node - hosts) as usize].switch.queued(port.local);
            int.push(id, Hop { rate: port.rate, at: self.now, sent: port.counters.bytes, queued });
        }
        let ends = port.send(self.now, wire);
        port.counters.packets += 1;
        port.counters.bytes += u64::from(wire);
        let arrive = Event::Arrive(port.peer, port.epoch, packet);
        let arrives = ends + port.delay;
        // Most of the time nobody has anything more to send: whoever comes while the port is busy has it looked at then.
        if more || port.has_control() {
            port.awaited = ends;
            self.agenda.push(ends, Event::Free(id));
        }
        self.agenda.push(arrives, arrive);
    }

    /// Sends the PFC frames that a switch wants sent, while its port `by`, if given, is about to send something else.
    #[cold]
    pub(super) fn send_asks(&mut self, place: usize, by: Option<PortId>) {
        let first = self.switches[place].first;
        let mut asks = std::mem::take(&mut self.asks);
        for (input, pause) in asks.drain(..) {
            let port = first + u32::from(input);
            self.ports[port as usize].ask(pause);
            if by != Some(port) {
                self.start(port);
            }
        }
        self.asks = asks;
    }

    /// A packet is there by the port `to`, unless it was lost on the way. Both ends of a link have the same epoch and loss.
    pub(super) fn arrive(&mut self, to: PortId, epoch: u16, id: PacketId) -> Result<(), SimError> {
        let &Port { node, local, peer, loss, epoch: now_epoch, .. } = &self.ports[to as usize];
        if epoch != now_epoch || loss > 0 && self.chance.random::<u64>() < loss {
            self.ports[peer as usize].counters.lost += 1;
            self.totals.lost(self.now, self.packets.content(id).sent, self.packets.get(id).wire);
            self.packets.remove(id);
            return Ok(());
        }
        let hosts = self.hosts.len() as u32;
        if node < hosts {
            return self.deliver(node, id);
        }
        let packet = self.packets.get_mut(id);
        packet.input = local;
        let (dst, entropy) = (packet.dst, packet.entropy);
        let place = (node - hosts) as usize;
        let Some(output) = self.route(place, node, dst, entropy) else {
            self.drop_at(to, id);
            return Ok(());
        };
        let (switch, mut surroundings) =
            surroundings(&mut self.switches[place], self.now, &mut self.packets, &mut self.ports, &mut self.asks);
        let admitted = switch.arrive(&mut surroundings, id, output);
        let out = self.switches[place].first + u32::from(output);
        if !admitted {
            self.drop_at(to, id);
        }
        if !self.asks.is_empty() {
            self.send_asks(place, None);
        }
        self.start(out);
        Ok(())
    }

    /// The output by which a switch sends a packet on.
    #[inline]
    fn route(&mut self, place: usize, node: u32, dst: u32, entropy: u32) -> Option<u16> {
        let choices = self.routes.ports(node, dst);
        let switch = &mut self.switches[place];
        match choices {
            [] => None,
            [only] => Some(*only),
            several => {
                let n = several.len();
                let at = match self.config.routing {
                    Routing::Ecmp => switch.hashed(entropy, n),
                    Routing::Spray => {
                        switch.sprayed = switch.sprayed.wrapping_add(1);
                        switch.sprayed as usize % n
                    }
                    Routing::Static => dst as usize % n,
                };
                Some(several[at])
            }
        }
    }

    /// The other end of the port `to` asks it to stop these priorities, and no others.
    pub(super) fn obey(&mut self, to: PortId, epoch: u16, stopped: u8) {
        let port = &mut self.ports[to as usize];
        if epoch != port.epoch {
            return;
        }
        self.totals.pfc_frames += 1;
        port.obey(self.now, stopped);
        self.start(to);
    }

    fn drop_at(&mut self, input: PortId, id: PacketId) {
        self.ports[input as usize].counters.dropped += 1;
        self.totals.dropped(self.now, self.packets.content(id).sent, self.packets.get(id).wire);
        self.packets.remove(id);
    }
}

/// A switch and what it works with.
#[inline]
pub(super) fn surroundings<'a>(
    node: &'a mut SwitchNode,
    now: u64,
    packets: &'a mut Packets,
    ports: &'a mut [Port],
    asks: &'a mut Vec<(u16, Pause)>,
) -> (&'a mut dyn Switch, Surroundings<'a>) {
    let own = node.first as usize..(node.first + node.count) as usize;
    let surroundings =
        Surroundings { now, packets, ports: &mut ports[own], chance: &mut node.chance, asks, again: None };
    (node.switch.as_mut(), surroundings)
}
