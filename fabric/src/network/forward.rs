//! Forwarding of packets and control frames from port to port.

use irnic_transports::telemetry::Hop;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::{
    Agenda, Control, End, Endpoint, Event, Network, Packet, PacketId, Packets, Port, PortId, Routing, Step, SwitchNode,
};
use crate::priorities::Priorities;
use crate::switch::{Dequeue, Effect, Ledger, Switch, SwitchCtx, Verdict, Via};

impl<E: Endpoint, A: Agenda> Network<E, A> {
    /// Starts the next transmission of a free port, if it has a frame to send.
    #[inline]
    pub(super) fn start(&mut self, id: PortId) {
        let port = &mut self.ports[id as usize];
        if port.is_busy(self.now) {
            if port.is_preemptive() {
                return self.interrupt(id);
            }
            // Called again when it is free.
            let free_at = port.free_at();
            if std::mem::replace(&mut port.awaited, free_at) != free_at {
                self.events.push(free_at, Event::TxDone(id));
            }
            return;
        }
        if !port.is_up() {
            return;
        }
        if port.has_control() {
            return self.start_control(id);
        }
        let (paused, special) = (port.paused(), port.is_special());
        if special {
            if port.is_preemptive() {
                return self.serve(id);
            }
            if port.is_reserved() || port.is_paced() && self.waits_for_its_pace(id) {
                return;
            }
        }
        let End { node, local, .. } = self.ends[id as usize];
        let hosts = self.all_hosts;
        let (next, more) = match node.checked_sub(hosts) {
            None => self.next_of_host(node, paused),
            Some(place) => self.next_of_switch(id, local, place, paused),
        };
        let Some(packet) = next else {
            // The endpoint may have had nothing else to send.
            if self.ports[id as usize].has_control() {
                self.start_control(id);
            }
            return;
        };
        let wire = self.packets.get(packet).wire;
        if node >= hosts
            && let Some(int) = self.packets.telemetry_mut(packet)
        {
            let queued = self.switches[(node - hosts) as usize].switch.backlog(local);
            let port = &self.ports[id as usize];
            int.push(id, Hop { rate: port.rate, at: self.now, sent: port.counters.bytes, queued });
        }
        if special {
            self.note_start(id, node, packet);
        }
        let port = &mut self.ports[id as usize];
        let ends = port.send(self.now, wire);
        port.counters.packets += 1;
        port.counters.bytes += u64::from(wire);
        let (peer, epoch) = (port.peer, port.epoch);
        let arrives = ends + port.delay;
        // Usually nothing more is waiting: whatever arrives while the port is busy schedules its next start itself.
        if more || port.has_control() {
            port.awaited = ends;
            self.events.push(ends, Event::TxDone(id));
        }
        if A::PARTED && self.ports[id as usize].is_cut() {
            return self.mail_packet(arrives, peer, epoch, packet);
        }
        if A::PARTED {
            self.announce(arrives, peer, packet);
        }
        self.events.push(arrives, Event::Arrive(peer, epoch, packet));
    }

    /// Handles the start of a packet on a special port.
    #[cold]
    pub(super) fn note_start(&mut self, id: PortId, node: u32, packet: PacketId) {
        let port = &self.ports[id as usize];
        let is_limited = port.is_limited();
        if port.is_watched() {
            self.show(id, packet);
        }
        let &Packet { priority, wire, .. } = self.packets.get(packet);
        let port = &mut self.ports[id as usize];
        if is_limited && port.note_packet(self.now, priority, wire) && node < self.all_hosts {
            let paused = port.paused();
            self.tell_host(node, paused);
        }
    }

    /// Whether a paced port may not send yet. If so, schedules its start.
    #[cold]
    pub(super) fn waits_for_its_pace(&mut self, id: PortId) -> bool {
        let port = &mut self.ports[id as usize];
        let at = port.may_send_at();
        if at <= self.now {
            return false;
        }
        if std::mem::replace(&mut port.awaited, at) != at {
            self.events.push(at, Event::TxDone(id));
        }
        true
    }

    /// Sends the next control frame of a free port, if any.
    #[cold]
    pub(super) fn start_control(&mut self, id: PortId) {
        if self.ports[id as usize].is_preemptive() {
            self.finish(id);
        }
        let port = &mut self.ports[id as usize];
        let Some(control) = port.next_control() else { return };
        if port.is_tapped() {
            self.show_control(id, control);
        }
        let port = &mut self.ports[id as usize];
        let ends = port.send(self.now, control.wire());
        port.awaited = ends;
        let (peer, epoch, arrives) = (port.peer, port.epoch, ends + port.delay);
        let cut = A::PARTED && port.is_cut();
        self.events.push(ends, Event::TxDone(id));
        if cut {
            return self.mail_control(arrives, peer, epoch, control);
        }
        let event = match control {
            Control::Pfc(paused) => Event::Pfc(peer, epoch, paused),
            other => Event::Control(peer, epoch, self.keep(other)),
        };
        self.events.push(arrives, event);
    }

    /// Stores a control frame while it is in flight; returns its slot.
    pub(super) fn keep(&mut self, control: Control) -> u32 {
        let place = self.free_controls.pop().unwrap_or(self.controls.len() as u32);
        match self.controls.get_mut(place as usize) {
            Some(free) => *free = control,
            None => self.controls.push(control),
        }
        place
    }

    /// Sends a packet over a cut link.
    pub(super) fn mail_packet(&mut self, at: u64, to: PortId, epoch: u16, id: PacketId) {
        let packet = *self.packets.get(id);
        self.ledger.totals.handed_over(self.now, at, packet.wire);
        let node = self.ports[to as usize].node;
        self.events.mail_packet(at, node, (to, epoch), id);
    }

    /// Notifies another part of the network, if necessary, of the time at which a packet about to be sent arrives by
    /// the port `to`.
    #[inline]
    pub(super) fn announce(&mut self, at: u64, to: PortId, id: PacketId) {
        let host = self.ends[to as usize].node;
        if host >= self.all_hosts || !self.events.awaits(host) || !self.packets.get(id).is_control() {
            return;
        }
        if let Some((node, token)) = self.hosts[self.place_of(host)].endpoint.awaits(self.packets.content(id)) {
            self.packets.get_mut(id).set_announced();
            self.events.announce(at, node, token);
        }
    }

    /// Sends a control frame over a cut link.
    #[cold]
    fn mail_control(&mut self, at: u64, to: PortId, epoch: u16, control: Control) {
        let node = self.ports[to as usize].node;
        self.events.mail_control(at, node, (to, epoch), control);
    }

    /// Polls a switch for the next packet of an output, and whether more wait.
    #[inline(always)]
    pub(super) fn next_of_switch(
        &mut self,
        id: PortId,
        local: u16,
        place: u32,
        paused: Priorities,
    ) -> (Option<PacketId>, bool) {
        let place = place as usize;
        let (switch, mut ctx) = self.with_switch(place);
        let answer = switch.dequeue(&mut ctx, local, paused);
        let mut more = switch.backlog(local) > 0;
        let next = match answer {
            Dequeue::Packet(packet) => Some(packet),
            Dequeue::Idle => None,
            Dequeue::RetryAt(at) => {
                self.ports[id as usize].awaited = at;
                self.events.push(at, Event::TxDone(id));
                None
            }
        };
        if !self.ledger.effects.is_empty() {
            self.ports[id as usize].reserve(next.is_some());
            self.carry_out(place, next.map(|_| id));
            self.ports[id as usize].reserve(false);
            more = self.switches[place].switch.backlog(local) > 0;
        }
        (next, more)
    }

    /// Carries out the requests of a switch, while its port `by`, if given, is about to send another frame.
    #[cold]
    pub(super) fn carry_out(&mut self, place: usize, by: Option<PortId>) {
        let first = self.switches[place].first;
        let mut effects = std::mem::take(&mut self.ledger.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::RequestPause(input, pause) => {
                    let port = first + u32::from(input);
                    self.ports[port as usize].request_pause(pause);
                    if by != Some(port) {
                        self.start(port);
                    }
                }
                Effect::Control(port, control) => {
                    let port = first + u32::from(port);
                    // Nothing leaves by a link that is down; what has not left when it goes down is lost.
                    if self.ports[port as usize].is_up() {
                        self.ports[port as usize].push_control(control);
                    }
                    if by != Some(port) {
                        self.start(port);
                    }
                }
                Effect::ReturnCredit(input, priority, bytes) => {
                    let port = first + u32::from(input);
                    self.ports[port as usize].return_credit(priority, bytes);
                    if by != Some(port) {
                        self.start(port);
                    }
                }
                Effect::Submit(id, via) => self.submit(place, id, via),
                Effect::Poll(output) => self.start(first + u32::from(output)),
                Effect::WakeAt(at) => {
                    let node = &mut self.switches[place];
                    if at < node.wakes {
                        node.wakes = at;
                        self.timers += 1;
                        self.events.push(at, Event::Timer(place as u32));
                    }
                }
            }
        }
        self.ledger.effects = effects;
    }

    /// Handles a packet's arrival by the port `to`, unless it was lost on the way. Both ends of a link have the same
    /// epoch and loss rate.
    #[inline]
    pub(super) fn arrive(&mut self, to: PortId, epoch: u16, id: PacketId) -> Step {
        let End { node, local, epoch: now_epoch } = self.ends[to as usize];
        if epoch != now_epoch || self.lossy && self.is_unlucky(to) {
            return self.lose(to, id);
        }
        let hosts = self.all_hosts;
        if node < hosts {
            return self.deliver(node, id);
        }
        let packet = self.packets.get_mut(id);
        packet.input = local;
        let (dst, entropy) = (packet.dst, packet.entropy);
        let place = (node - hosts) as usize;
        match self.route(place, node, id, dst, entropy) {
            Some(output) => self.offer(place, id, output),
            None => self.drop_at(to, id),
        }
        Step::Done
    }

    /// Draws whether a packet that arrives by the port `to` is lost.
    #[cold]
    fn is_unlucky(&mut self, to: PortId) -> bool {
        let loss = self.ports[to as usize].loss;
        loss > 0 && self.rng.random::<u64>() < loss
    }

    /// Accounts for a lost packet that should have arrived by the port `to`.
    #[cold]
    fn lose(&mut self, to: PortId, id: PacketId) -> Step {
        if A::PARTED && self.packets.get(id).is_announced() {
            self.events.answer(self.ends[to as usize].node, self.packets.content(id).headers.bth.dest_qp);
        }
        let peer = self.ports[to as usize].peer;
        self.ports[peer as usize].counters.lost += 1;
        let &Packet { priority, wire, .. } = self.packets.get(id);
        self.ledger.totals.lost(self.now, self.packets.content(id).sent, wire);
        self.packets.remove(id);
        self.make_good(to, priority, wire);
        Step::Done
    }

    /// Offers a packet to a switch for one of its outputs.
    #[inline(always)]
    fn offer(&mut self, place: usize, id: PacketId, output: u16) {
        let out = self.switches[place].first + u32::from(output);
        if self.journal.is_some() && self.ports[out as usize].is_noted() {
            self.note_queued(place, id, output);
        }
        let (switch, mut ctx) = self.with_switch(place);
        match switch.enqueue(&mut ctx, id, output) {
            Verdict::Queued => {}
            Verdict::Trimmed { cut } => {
                debug_assert!(cut == 0 || self.packets.get(id).is_trimmed(), "packet {id} is said to be trimmed");
            }
            Verdict::Dropped => {
                let input = self.switches[place].first + u32::from(self.packets.get(id).input);
                self.drop_at(input, id);
            }
        }
        if !self.ledger.effects.is_empty() {
            self.carry_out(place, None);
        }
        self.start(out);
    }

    /// Offers a packet to a switch that created it or had it before.
    #[cold]
    fn submit(&mut self, place: usize, id: PacketId, via: Via) {
        let packet = self.packets.get(id);
        let (input, dst, entropy) = (packet.input, packet.dst, packet.entropy);
        let first = self.switches[place].first;
        let known = dst < self.all_hosts;
        let output = match via {
            Via::Port(port) => Some(port),
            Via::Route if known => self.route(place, self.ports[first as usize].node, id, dst, entropy),
            Via::Route => None,
        };
        match output {
            Some(output) => self.offer(place, id, output),
            None => self.drop_at(first + u32::from(input), id),
        }
    }

    /// The output by which a switch forwards a packet.
    #[inline(always)]
    fn route(&mut self, place: usize, node: u32, id: PacketId, dst: u32, entropy: u32) -> Option<u16> {
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
                    Routing::Random => at_random(&mut switch.rng, n),
                    Routing::Source => by_label(self.packets.get_mut(id), n),
                    Routing::Static => dst as usize % n,
                    // The routes have a single path each.
                    Routing::Lowest => 0,
                };
                Some(several[at])
            }
        }
    }

    /// Handles a PFC frame that arrives by the port `to` and pauses exactly these priorities.
    pub(super) fn pfc(&mut self, to: PortId, epoch: u16, paused: Priorities) {
        let port = &mut self.ports[to as usize];
        if epoch != port.epoch {
            return;
        }
        self.ledger.totals.pfc_arrived(self.now >= self.late);
        port.set_paused(self.now, paused);
        let (node, local) = (port.node, port.local);
        match node.checked_sub(self.all_hosts) {
            Some(place) => self.tell_switch(place as usize, local, Control::Pfc(paused)),
            None => self.tell_host(node, paused),
        }
        self.start(to);
    }

    /// Handles another control frame that arrives by the port `to`.
    pub(super) fn control(&mut self, to: PortId, epoch: u16, at: u32) -> Step {
        let control = self.controls[at as usize];
        self.free_controls.push(at);
        let &Port { node, local, epoch: now_epoch, .. } = &self.ports[to as usize];
        if epoch != now_epoch {
            return Step::Done;
        }
        self.ledger.totals.control_frames += 1;
        match control {
            Control::Rate { halvings } => {
                self.ports[to as usize].pace(halvings);
                self.start(to);
                return Step::Done;
            }
            Control::CreditLimit { priority, limit } => {
                let port = &mut self.ports[to as usize];
                if port.allow(self.now, priority, limit) {
                    let paused = port.paused();
                    if node < self.all_hosts {
                        self.tell_host(node, paused);
                    }
                    self.start(to);
                }
                return Step::Done;
            }
            _ => {}
        }
        let Some(place) = node.checked_sub(self.all_hosts) else {
            return self.deliver_control(node, control);
        };
        self.tell_switch(place as usize, local, control);
        self.poll_all(place as usize);
        Step::Done
    }

    #[cold]
    fn tell_switch(&mut self, place: usize, port: u16, control: Control) {
        let (switch, mut ctx) = self.with_switch(place);
        switch.on_control(&mut ctx, port, control);
        if !self.ledger.effects.is_empty() {
            self.carry_out(place, None);
        }
    }

    /// Handles a timer of a switch, if it is the earliest.
    pub(super) fn timer(&mut self, place: usize) {
        self.timers -= 1;
        if self.switches[place].wakes != self.now {
            return;
        }
        self.switches[place].wakes = u64::MAX;
        let (switch, mut ctx) = self.with_switch(place);
        switch.on_timer(&mut ctx);
        if !self.ledger.effects.is_empty() {
            self.carry_out(place, None);
        }
        self.poll_all(place);
    }

    /// Starts all outputs of a switch that have packets queued.
    fn poll_all(&mut self, place: usize) {
        for output in 0..self.switches[place].count as u16 {
            if self.switches[place].switch.backlog(output) > 0 {
                self.start(self.switches[place].first + u32::from(output));
            }
        }
    }

    #[cold]
    fn drop_at(&mut self, input: PortId, id: PacketId) {
        self.ports[input as usize].counters.dropped += 1;
        let &Packet { priority, wire, .. } = self.packets.get(id);
        self.ledger.totals.dropped(self.now, self.packets.content(id).sent, wire);
        self.packets.remove(id);
        self.make_good(input, priority, wire);
    }

    /// Returns the credit of a packet that arrived, or should have arrived, by a port: its sender may send another.
    fn make_good(&mut self, port: PortId, priority: u8, bytes: u32) {
        if self.ports[port as usize].has_credits() {
            self.ports[port as usize].return_credit(priority, bytes);
            self.start(port);
        }
    }

    /// A switch and its context.
    #[inline]
    pub(super) fn with_switch(&mut self, place: usize) -> (&mut dyn Switch, SwitchCtx<'_>) {
        switch_ctx(&mut self.switches[place], self.now, &mut self.packets, &mut self.ports, &mut self.ledger)
    }
}

#[inline]
fn switch_ctx<'a>(
    node: &'a mut SwitchNode,
    now: u64,
    packets: &'a mut Packets,
    ports: &'a mut [Port],
    ledger: &'a mut Ledger,
) -> (&'a mut dyn Switch, SwitchCtx<'a>) {
    let own = node.first as usize..(node.first + node.count) as usize;
    let ctx = SwitchCtx { now, packets, ports: &mut ports[own], rng: &mut node.rng, ledger };
    (node.switch.as_mut(), ctx)
}

// Kept out of the arrival path, which has no registers left.
#[inline(never)]
fn at_random(rng: &mut Pcg64Mcg, n: usize) -> usize {
    rng.random_range(0..n)
}

#[inline(never)]
fn by_label(packet: &mut Packet, n: usize) -> usize {
    let label = packet.entropy;
    packet.entropy = label / n as u32;
    label as usize % n
}
