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
    let asked =
        queue.buffer.is_some_and(|buffer| plan.buffers[buffer as usize].order.is_some()) || plan.tosses_coin(queue);
    match admission {
        PacketOrder::Arrival if list || !asked => Victim::Newest,
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
            Arc::new(Shared {
                orders: self.orders.clone().into(),
                rules: all_rules.into(),
                conditions: self.conditions.iter().map(|condition| Prepared::of(condition, largest)).collect(),
                arrangements: arranged.into(),
                limits: self.buffers.iter().map(limit).collect(),
                buffer_keys: self.buffers.iter().map(keys).collect(),
                classifier: self.classifier.clone(),
                targets: self.ports.iter().filter_map(|port| Some(port.way.as_ref()?.target.clone())).collect(),
            })
        };
        self.shared.0.get_or_init(make).clone()
    }
}

impl Engine {
    /// Builds an empty engine for a plan. `surroundings` are those of the switch, with as many ports as the plan.
    pub fn new(plan: &Plan, surroundings: &Surroundings) -> Engine {
        let shared = plan.shared();
        let mut queues = Vec::new();
        let (mut states, mut indices, mut seconds, mut buffer_places) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let keeps_fields = plan.keeps_fields();
        let arrangements = arrangements(plan).unwrap_or_default();
        let kind = |arrangement: &Arrangement| shared.arrangements.iter().position(|known| known == arrangement);
        let kinds: Vec<u16> = arrangements.iter().map(|arrangement| kind(arrangement).unwrap_or(0) as u16).collect();
        let (per_copy, ports_per_copy) = (plan.queues.len(), plan.ports.len());
        // Ports with links come first, of all copies.
        let linked = plan.linked();
        let port_of = |copy: usize, port: usize| match port.checked_sub(linked) {
            None => copy * linked + port,
            Some(line) => plan.copies * linked + copy * (ports_per_copy - linked) + line,
        };
        let mut place_at_port = vec![0; per_copy];
        let mut slots = vec![((0, 0), false); per_copy];
        for (port, arrangement) in plan.ports.iter().zip(&arrangements) {
            for (place, &queue) in port.queues.iter().enumerate() {
                place_at_port[queue as usize] = place as u16;
                if let Arrangement::Levels(levels) = arrangement {
                    slots[queue as usize] = (levels.places[place], levels.small);
                }
            }
        }
        let leads_inside = plan.ports.iter().any(|port| port.way.is_some());
        let mut place_in_buffer = vec![u32::MAX; per_copy];
        for buffer in plan.buffers.iter().filter(|buffer| buffer.order.is_some()) {
            buffer.queues.iter().enumerate().for_each(|(place, queue)| place_in_buffer[*queue as usize] = place as u32);
        }
        for copy in 0..plan.copies {
            for (place, spec) in plan.queues.iter().enumerate() {
                let own = rules(plan, spec);
                let known = shared.rules.iter().position(|known| *known == own).unwrap_or(0);
                let (shape, second) = shapes(plan, spec);
                let asked_by_buffer = spec.buffer.is_some_and(|buffer| plan.buffers[buffer as usize].order.is_some());
                let first_in = plan.orders[usize::from(spec.processing)] == PacketOrder::Arrival;
                queues.push(QueueState {
                    store: Store::new(shape, false),
                    bytes: 0,
                    size: spec.size,
                    packets: 0,
                    buffer: spec.buffer.map_or(u32::MAX, |buffer| buffer + (copy * plan.buffers.len()) as u32),
                    port: port_of(copy, spec.port as usize) as u32,
                    place: place_at_port[place],
                    slot: slots[place].0,
                    rules: known as u16,
                    congestion: spec.congestion.unwrap_or(NO_CONDITION),
                    after_admission: spec.after_admission.unwrap_or(NO_CONDITION),
                    plain: first_in && victim(plan, spec) == Victim::Newest && !asked_by_buffer && !keeps_fields,
                    small: slots[place].1,
                    watched: place_in_buffer[place] != u32::MAX || leads_inside,
                    ranked: place_in_buffer[place] != u32::MAX,
                    noted: false,
                    doubled: second.is_some_and(|shape| shape != Shape::Heap),
                });
                states.push(spec.states);
                let mut own = [0; 4];
                own.iter_mut().zip(&spec.indices).for_each(|(own, index)| *own = *index);
                indices.push(own);
                seconds.push(second.map(|shape| Store::new(shape, true)));
                buffer_places.push(place_in_buffer[place]);
            }
        }
        let mut of_ports = Vec::new();
        let mut ports = Vec::new();
        let fastest = surroundings.rates.iter().copied().max().unwrap_or(0);
        let mut lines = Vec::new();
        for ports_of_kind in [0..linked, linked..ports_per_copy] {
            for (copy, place) in (0..plan.copies).flat_map(|c| ports_of_kind.clone().map(move |place| (c, place))) {
                let spec = &plan.ports[place];
                let kind = kinds.get(place).copied().unwrap_or(0);
                let scheduling = match &shared.arrangements[usize::from(kind)] {
                    Arrangement::Levels(levels) => Scheduling::Bits(Bits::new(levels)),
                    Arrangement::Tournament(keys) => {
                        Scheduling::Tournament(Box::new(Tournament::new(spec.queues.len(), false).by(keys)))
                    }
                };
                let rate = match spec.way.as_ref().map(|way| way.pace) {
                    None => surroundings.rates.get(port_of(copy, place)).copied().unwrap_or(0),
                    Some(Pace::Rate(rate)) => rate,
                    Some(Pace::Share(share)) => {
                        let rate = u128::from(fastest) * u128::from(share.above.unsigned_abs());
                        (rate / u128::from(share.below.unsigned_abs().max(1))).min(u64::MAX.into()) as u64
                    }
                };
                if spec.way.is_some() {
                    lines.push(Line::new((place - linked) as u32, rate));
                }
                let keeps_only =
                    !keeps_fields && matches!(shared.arrangements[usize::from(kind)], Arrangement::Levels(_));
                let lists = spec.queues.iter().all(|queue| keeps_lists(plan, &plan.queues[*queue as usize]));
                ports.push(PortState {
                    bytes: 0,
                    scheduling,
                    sched_state: 0,
                    rate,
                    first_queue: of_ports.len() as u32,
                    queues: spec.queues.len() as u32,
                    only: NONE,
                    only_queue: 0,
                    keeps_only,
                    keeps_packet: keeps_only && !lists,
                    arrangement: kind,
                    after_scheduling: spec.after_scheduling,
                });
                of_ports.extend(spec.queues.iter().map(|queue| queue + (copy * per_copy) as u32));
            }
        }
        let mut buffers = Vec::new();
        for copy in 0..plan.copies {
            for (place, spec) in plan.buffers.iter().enumerate() {
                let worst = spec.order.as_ref().map(|_| {
                    let queues = spec.queues.iter().map(|queue| queue + (copy * per_copy) as u32).collect();
                    let changed = Vec::with_capacity(spec.queues.len());
                    Box::new(Worst { tournament: Tournament::new(spec.queues.len(), true), queues, changed })
                });
                let ledger = spec.accounts.as_ref().map(|accounts| {
                    Box::new(Ledger::new(accounts, spec.size, &surroundings.headroom, surroundings.priorities.into()))
                });
                buffers.push(BufferState {
                    bytes: 0,
                    size: spec.size,
                    adm_state: 0,
                    congestion: spec.congestion.unwrap_or(NO_CONDITION),
                    after_admission: spec.after_admission.unwrap_or(NO_CONDITION),
                    ledger,
                    worst,
                    spec: place as u32,
                });
            }
        }
        let (reds, red_ports) = if plan.looks_at_red_sizes() { (queues.len(), ports.len()) } else { (0, 0) };
        let alone = if ports.iter().any(|port| port.keeps_packet) { ports.len() } else { 0 };
        let senders = if plan.looks_at_sending() { ports.len() } else { 0 };
        let queue_count = queues.len();
        let world = World {
            queues: queues.into(),
            buffers: buffers.into(),
            ports: ports.into(),
            of_ports: of_ports.into(),
            states: states.into(),
            indices: indices.into(),
            buffer_places: buffer_places.into(),
            seconds: seconds.into(),
            items: Vec::new(),
            fields: Vec::new(),
            keeps_fields,
            looks_at_heads: plan.looks_at_heads(),
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
