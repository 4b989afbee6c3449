//! Construction of an empty engine from a plan.

use std::sync::Arc;

use super::accounts::Ledger;
use super::engine::Engine;
use super::host::Surroundings;
use super::items::{NONE, Packet};
use super::levels::{Levels, Line};
use super::schedule::{Arrangement, Bits, Tournament};
use super::state::{
    BufferState, NO_CONDITION, PortState, QueueState, Rules, Scheduling, Sent, Shared, Victim, World, Worst,
};
use super::store::{Shape, Store};
use super::weigh::Prepared;
use crate::order::{PacketOrder, QueueKey};
use crate::plan::{BufferSpec, Pace, Plan, QueueSpec};

/// The packet that a queue drops, and thus whether it needs a second order of its packets.
pub(crate) fn victim(plan: &Plan, queue: &QueueSpec) -> Victim {
    let processing = &plan.orders[usize::from(queue.processing)];
    let admission = &plan.orders[usize::from(queue.admission)];
    let list = matches!(processing, PacketOrder::Arrival | PacketOrder::Reverse);
    // Whether more than the arriving packet is considered: a buffer may drop one of another queue, a coin a queued one.
    let considers_queued =
        queue.buffer.is_some_and(|buffer| plan.buffers[buffer as usize].order.is_some()) || plan.tosses_coin(queue);
    match admission {
        PacketOrder::Arrival if list || !considers_queued => Victim::Newest,
        PacketOrder::Reverse if list => Victim::Oldest,
        _ if admission == processing && !matches!(admission, PacketOrder::Comparator(_)) => Victim::LastProcessed,
        _ => Victim::OfSecond,
    }
}

/// The structures of a queue: for processing, and for drops.
pub(crate) fn shapes(plan: &Plan, queue: &QueueSpec) -> (Shape, Option<Shape>) {
    let victim = victim(plan, queue);
    let processing = plan.orders[usize::from(queue.processing)].shape(victim == Victim::LastProcessed);
    let second = (victim == Victim::OfSecond).then(|| plan.orders[usize::from(queue.admission)].shape(false));
    (processing, second)
}

/// The orders of the queues of ports and buffers; the error gives the port and the reason why there is none.
pub(crate) fn arrangements(plan: &Plan) -> Result<Vec<Arrangement>, (usize, String)> {
    let of = |(place, port): (usize, &crate::plan::PortSpec)| {
        let queues: Vec<&QueueSpec> = port.queues.iter().map(|queue| &plan.queues[*queue as usize]).collect();
        Arrangement::of(&port.order, &queues).map_err(|why| (place, why))
    };
    plan.ports.iter().enumerate().map(of).collect()
}

/// Whether the order of a queue depends on arrival only.
fn keeps_lists(plan: &Plan, queue: &QueueSpec) -> bool {
    let list = matches!(plan.orders[usize::from(queue.processing)], PacketOrder::Arrival | PacketOrder::Reverse);
    list && matches!(victim(plan, queue), Victim::Newest | Victim::Oldest)
}

fn rules(plan: &Plan, queue: &QueueSpec) -> Rules {
    Rules { processing: queue.processing, admission: queue.admission, victim: victim(plan, queue) }
}

impl Plan {
    /// State shared by all engines of the plan.
    fn shared(&self) -> Arc<Shared> {
        let make = || {
            let mut all_rules: Vec<Rules> = Vec::new();
            for own in self.queues.iter().map(|queue| rules(self, queue)) {
                if !all_rules.contains(&own) {
                    all_rules.push(own);
                }
            }
            let mut arranged: Vec<Arrangement> = Vec::new();
            for own in arrangements(self).unwrap_or_default() {
                if !arranged.contains(&own) {
                    arranged.push(own);
                }
            }
            let keys = |buffer: &BufferSpec| {
                let order = buffer.order.iter().flat_map(|order| &order.0);
                order.filter_map(QueueKey::as_number).cloned().collect()
            };
            let sizes = self.queues.iter().map(|queue| queue.size).chain(self.buffers.iter().map(|buffer| buffer.size));
            let largest = sizes.max().unwrap_or(0);
            let limit = |buffer: &BufferSpec| Some(buffer.accounts.as_ref()?.limit.clone());
            Shared {
                orders: self.orders.clone().into(),
                rules: all_rules.into(),
                conditions: self.conditions.iter().map(|condition| Prepared::of(condition, largest)).collect(),
                arrangements: arranged.into(),
                limits: self.buffers.iter().map(limit).collect(),
                buffer_keys: self.buffers.iter().map(keys).collect(),
                classifier: self.classifier.clone(),
                targets: self.ports.iter().filter_map(|port| Some(port.way.as_ref()?.target.clone())).collect(),
            }
        };
        self.derived.get_or_init(make)
    }
}

impl Engine {
    /// Builds an empty engine for a plan. `surroundings` are those of the switch, with as many ports as the plan.
    pub fn new(plan: &Plan, surroundings: &Surroundings) -> Engine {
        let mut builder = Builder::new(plan, surroundings);
        let queues = builder.queues();
        let (ports, of_ports, lines) = builder.ports();
        let buffers = builder.buffers();
        let Builder { shared, keeps_fields, linked, states, indices, seconds, places, .. } = builder;
        let (reds, red_ports) = if plan.reads_red_sizes() { (queues.len(), ports.len()) } else { (0, 0) };
        let alone = if ports.iter().any(|port| port.keeps_packet) { ports.len() } else { 0 };
        let senders = if plan.reads_sending() { ports.len() } else { 0 };
        let queue_count = queues.len();
        let world = World {
            queues: queues.into(),
            buffers: buffers.into(),
            ports: ports.into(),
            of_ports: of_ports.into(),
            states: states.into(),
            indices: indices.into(),
            buffer_places: places.into(),
            seconds: seconds.into(),
            items: Vec::new(),
            fields: Vec::new(),
            keeps_fields,
            reads_heads: plan.reads_heads(),
            later: Vec::new(),
            listed: Vec::new(),
            levels: (!lines.is_empty()).then(|| Box::new(Levels::new(plan.copies * linked, lines, queue_count))),
            alone: vec![Packet::default(); alone].into(),
            red: vec![0; reds].into(),
            red_peaks: vec![0; red_ports].into(),
            sent: vec![Sent::default(); senders].into(),
            ingress: vec![0; if plan.has_ingress() { plan.ports_in_all * 8 } else { 0 }].into(),
            stopped: vec![0; plan.ports_in_all].into(),
            shared,
        };
        Engine::with(world, plan)
    }
}

/// Where a queue of one copy is: in the order of its port, and in that of its buffer.
#[derive(Copy, Clone)]
struct Position {
    at_port: u16,
    slot: (u16, u16),
    small: bool,
    /// `u32::MAX` if its buffer has no order.
    in_buffer: u32,
}

/// What the parts of an engine are built from, and the lists that go beside its queues.
struct Builder<'a> {
    plan: &'a Plan,
    surroundings: &'a Surroundings,
    shared: Arc<Shared>,
    keeps_fields: bool,
    /// Ports with links, of a copy; they come first.
    linked: usize,
    /// Whether ports lead to queues.
    leads_inside: bool,
    /// The arrangement of each port.
    kinds: Vec<u16>,
    /// Of the queues of a copy.
    positions: Vec<Position>,
    states: Vec<[i64; 4]>,
    indices: Vec<[i64; 4]>,
    seconds: Vec<Option<Store>>,
    places: Vec<u32>,
}

impl<'a> Builder<'a> {
    fn new(plan: &'a Plan, surroundings: &'a Surroundings) -> Builder<'a> {
        let shared = plan.shared();
        let arrangements = arrangements(plan).unwrap_or_default();
        let kind = |arrangement: &Arrangement| shared.arrangements.iter().position(|known| known == arrangement);
        let kinds = arrangements.iter().map(|arrangement| kind(arrangement).unwrap_or(0) as u16).collect();
        let nowhere = Position { at_port: 0, slot: (0, 0), small: false, in_buffer: u32::MAX };
        let mut positions = vec![nowhere; plan.queues.len()];
        for (port, arrangement) in plan.ports.iter().zip(&arrangements) {
            for (place, &queue) in port.queues.iter().enumerate() {
                let position = &mut positions[queue as usize];
                position.at_port = place as u16;
                if let Arrangement::Levels(levels) = arrangement {
                    (position.slot, position.small) = (levels.places[place], levels.small);
                }
            }
        }
        for buffer in plan.buffers.iter().filter(|buffer| buffer.order.is_some()) {
            let places = buffer.queues.iter().enumerate();
            places.for_each(|(place, queue)| positions[*queue as usize].in_buffer = place as u32);
        }
        Builder {
            plan,
            surroundings,
            keeps_fields: plan.keeps_fields(),
            linked: plan.linked(),
            leads_inside: plan.ports.iter().any(|port| port.way.is_some()),
            kinds,
            positions,
            shared,
            states: Vec::new(),
            indices: Vec::new(),
            seconds: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Returns the number of a copy's port among those of all copies: ports with links come first.
    fn port_of(&self, copy: usize, port: usize) -> usize {
        match port.checked_sub(self.linked) {
            None => copy * self.linked + port,
            Some(line) => self.plan.copies * self.linked + copy * (self.plan.ports.len() - self.linked) + line,
        }
    }

    /// Builds the queues of all copies, and the lists beside them.
    fn queues(&mut self) -> Vec<QueueState> {
        let plan = self.plan;
        let mut queues = Vec::new();
        for copy in 0..plan.copies {
            for (place, spec) in plan.queues.iter().enumerate() {
                let (shape, second) = shapes(plan, spec);
                queues.push(self.queue(copy, place, spec, (shape, second)));
                self.states.push(spec.states);
                let mut own = [0; 4];
                own.iter_mut().zip(&spec.indices).for_each(|(own, index)| *own = *index);
                self.indices.push(own);
                self.seconds.push(second.map(|shape| Store::new(shape, true)));
                self.places.push(self.positions[place].in_buffer);
            }
        }
        queues
    }

    fn queue(
        &self,
        copy: usize,
        place: usize,
        spec: &QueueSpec,
        (shape, second): (Shape, Option<Shape>),
    ) -> QueueState {
        let plan = self.plan;
        let own = rules(plan, spec);
        let known = self.shared.rules.iter().position(|known| *known == own).unwrap_or(0);
        let ordered_by_buffer = spec.buffer.is_some_and(|buffer| plan.buffers[buffer as usize].order.is_some());
        let first_in = plan.orders[usize::from(spec.processing)] == PacketOrder::Arrival;
        let Position { at_port, slot, small, in_buffer } = self.positions[place];
        QueueState {
            store: Store::new(shape, false),
            bytes: 0,
            size: spec.size,
            packets: 0,
            buffer: spec.buffer.map_or(u32::MAX, |buffer| buffer + (copy * plan.buffers.len()) as u32),
            port: self.port_of(copy, spec.port as usize) as u32,
            place: at_port,
            slot,
            rules: known as u16,
            congestion: spec.congestion.unwrap_or(NO_CONDITION),
            after_admission: spec.after_admission.unwrap_or(NO_CONDITION),
            plain: first_in && victim(plan, spec) == Victim::Newest && !ordered_by_buffer && !self.keeps_fields,
            small,
            watched: in_buffer != u32::MAX || self.leads_inside,
            ranked: in_buffer != u32::MAX,
            noted: false,
            doubled: second.is_some_and(|shape| shape != Shape::Heap),
        }
    }

    /// Builds the ports of all copies. Returns them, their queues, and the ports that lead to queues.
    fn ports(&self) -> (Vec<PortState>, Vec<u32>, Vec<Line>) {
        let (mut ports, mut of_ports, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        let per_copy = self.plan.queues.len();
        for of_kind in [0..self.linked, self.linked..self.plan.ports.len()] {
            for (copy, place) in (0..self.plan.copies).flat_map(|c| of_kind.clone().map(move |place| (c, place))) {
                let spec = &self.plan.ports[place];
                let rate = self.rate(copy, place);
                if spec.way.is_some() {
                    lines.push(Line::new((place - self.linked) as u32, rate));
                }
                ports.push(self.port(place, rate, of_ports.len() as u32));
                of_ports.extend(spec.queues.iter().map(|queue| queue + (copy * per_copy) as u32));
            }
        }
        (ports, of_ports, lines)
    }

    /// Returns the rate of a port, bit/s.
    fn rate(&self, copy: usize, place: usize) -> u64 {
        let rates = &self.surroundings.rates;
        match self.plan.ports[place].way.as_ref().map(|way| way.pace) {
            None => rates.get(self.port_of(copy, place)).copied().unwrap_or(0),
            Some(Pace::Rate(rate)) => rate,
            Some(Pace::Share(share)) => {
                let fastest = rates.iter().copied().max().unwrap_or(0);
                let rate = u128::from(fastest) * u128::from(share.above.unsigned_abs());
                (rate / u128::from(share.below.unsigned_abs().max(1))).min(u64::MAX.into()) as u64
            }
        }
    }

    fn port(&self, place: usize, rate: u64, first_queue: u32) -> PortState {
        let spec = &self.plan.ports[place];
        let kind = self.kinds.get(place).copied().unwrap_or(0);
        let arrangement = &self.shared.arrangements[usize::from(kind)];
        let scheduling = match arrangement {
            Arrangement::Levels(levels) => Scheduling::Bits(Bits::new(levels)),
            Arrangement::Tournament(keys) => {
                Scheduling::Tournament(Box::new(Tournament::new(spec.queues.len(), false).by(keys)))
            }
        };
        let keeps_only = !self.keeps_fields && matches!(arrangement, Arrangement::Levels(_));
        let lists = spec.queues.iter().all(|queue| keeps_lists(self.plan, &self.plan.queues[*queue as usize]));
        PortState {
            bytes: 0,
            scheduling,
            sched_state: 0,
            rate,
            first_queue,
            queues: spec.queues.len() as u32,
            only: NONE,
            only_queue: 0,
            keeps_only,
            keeps_packet: keeps_only && !lists,
            arrangement: kind,
            after_scheduling: spec.after_scheduling,
        }
    }

    /// Builds the buffers of all copies.
    fn buffers(&self) -> Vec<BufferState> {
        let of_copy =
            |copy| self.plan.buffers.iter().enumerate().map(move |(place, spec)| self.buffer(copy, place, spec));
        (0..self.plan.copies).flat_map(of_copy).collect()
    }

    fn buffer(&self, copy: usize, place: usize, spec: &BufferSpec) -> BufferState {
        let Surroundings { headroom, priorities, .. } = self.surroundings;
        let worst = spec.order.as_ref().map(|_| {
            let queues = spec.queues.iter().map(|queue| queue + (copy * self.plan.queues.len()) as u32).collect();
            let changed = Vec::with_capacity(spec.queues.len());
            Box::new(Worst { tournament: Tournament::new(spec.queues.len(), true), queues, changed })
        });
        let ledger = spec
            .accounts
            .as_ref()
            .map(|accounts| Box::new(Ledger::new(accounts, spec.size, headroom, (*priorities).into())));
        BufferState {
            bytes: 0,
            size: spec.size,
            adm_state: 0,
            congestion: spec.congestion.unwrap_or(NO_CONDITION),
            after_admission: spec.after_admission.unwrap_or(NO_CONDITION),
            ledger,
            worst,
            spec: place as u32,
        }
    }
}
