//! Compares queues in levels with a naive interpreter: all queues are vectors, all pending packets are in one list, and
//! time advances from one arrival at a queue to the next.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Notes;
use super::naive::{evaluate, of_packets, packet_field, rule};
use crate::ast::{ActionKind, Body, Case, Path};
use crate::{Engine, Host, Packet, Policy, Surroundings, Verdict};

const ORDERS: [&str; 4] = [
    "p1.arrival < p2.arrival",
    "p1.priority > p2.priority",
    "p1.value < p2.value || p1.value == p2.value && p1.size < p2.size",
    "p1.value * p2.size > p2.value * p1.size",
];
const SCHEDULES: [(&str, Schedule); 3] = [
    ("q1.currSize > q2.currSize", Schedule::Longest),
    ("q1.turn < q2.turn", Schedule::Turn),
    ("q1.i > q2.i", Schedule::Last),
];
const CONGESTION: [Option<&str>; 3] = [
    None,
    Some("(currSize > 2500, drop(0.5))"),
    Some("(currSize >= size, drop).(packet.value > 12 && packets > 1, drop)"),
];

#[derive(Copy, Clone)]
enum Schedule {
    Longest,
    Turn,
    Last,
}

/// A level of queues with ports, which lead to the next level by a field; the last level has the link.
struct Level {
    /// Number of queues of each port.
    ports: Vec<usize>,
    size: u64,
    order: &'static str,
    admission: &'static str,
    congestion: Option<&'static str>,
    schedule: usize,
    /// Rate, bit/s.
    rate: u64,
    /// Field by which a packet selects among the queues.
    field: &'static str,
}

impl Level {
    fn draw(rng: &mut Pcg64Mcg, last: bool) -> Level {
        Level {
            ports: (0..if last { 1 } else { rng.random_range(1..4) }).map(|_| rng.random_range(1..4)).collect(),
            size: rng.random_range(1_500..6_000),
            order: ORDERS[rng.random_range(0..ORDERS.len())],
            admission: ORDERS[rng.random_range(0..ORDERS.len())],
            congestion: CONGESTION[rng.random_range(0..CONGESTION.len())],
            schedule: rng.random_range(0..SCHEDULES.len()),
            rate: rng.random_range(1..12) * 1_000_000_000,
            field: ["flow", "priority", "value"][rng.random_range(0..3)],
        }
    }

    fn queues(&self) -> usize {
        self.ports.iter().sum()
    }
}

fn text(levels: &[Level]) -> String {
    let mut text = String::new();
    for (n, level) in levels.iter().enumerate() {
        text += &format!("for i in 0..{} {{ q{n}[i] = Queue({}); }}\n", level.queues(), level.size);
        text += &format!("q{n}.procPrio(p1, p2) = {};\nq{n}.admPrio(p1, p2) = {};\n", level.order, level.admission);
        if let Some(cases) = level.congestion {
            text += &format!("q{n}.congestion() = {cases};\n");
        }
        let mut first = 0;
        for (port, queues) in level.ports.iter().enumerate() {
            let all: Vec<String> = (first..first + queues).map(|queue| format!("q{n}[{queue}]")).collect();
            first += queues;
            text += &match levels.get(n + 1) {
                Some(next) => {
                    let (rate, field) = (level.rate, next.field);
                    format!("p{n}_{port} = Port({rate}bps, {}) -> q{}[{field}];\n", all.join(", "), n + 1)
                }
                None => format!("p{n}_{port} = Port(100%, {});\n", all.join(", ")),
            };
            text += &format!("p{n}_{port}.schedPrio(q1, q2) = {};\n", SCHEDULES[level.schedule].0);
        }
    }
    text + &format!("queue = q0[{}];\n", levels[0].field)
}

type Waiting = (u32, u64, Packet);

struct Port {
    level: usize,
    queues: Vec<usize>,
    turn: usize,
    ends: u64,
    /// The packet in transit, and its target queue.
    carried: Option<(u32, usize, Packet)>,
}

struct Naive<'l> {
    levels: &'l [Level],
    /// Queues of all levels, one level after the other.
    queues: Vec<Vec<Waiting>>,
    of_level: Vec<usize>,
    ports: Vec<Port>,
    pending: Vec<usize>,
    /// Blocked queues, and the queue that has no room for their packets.
    blocked: Vec<(usize, usize)>,
    arrived: u64,
}

fn bytes(queue: &[Waiting]) -> u64 {
    queue.iter().map(|(_, _, packet)| u64::from(packet.size)).sum()
}

impl<'l> Naive<'l> {
    fn new(levels: &'l [Level]) -> Naive<'l> {
        let (mut ports, mut of_level) = (Vec::new(), Vec::new());
        for (level, each) in levels.iter().enumerate() {
            for queues in &each.ports {
                let queues = (of_level.len()..of_level.len() + queues).collect();
                of_level.extend(vec![level; Vec::len(&queues)]);
                ports.push(Port { level, queues, turn: 0, ends: 0, carried: None });
            }
        }
        let queues = vec![Vec::new(); of_level.len()];
        Naive { levels, queues, of_level, ports, pending: Vec::new(), blocked: Vec::new(), arrived: 0 }
    }

    fn queue(&self, level: usize, packet: &Packet) -> usize {
        let index = packet_field(packet, self.levels[level].field).0 as usize % self.levels[level].queues();
        self.of_level.iter().position(|of| *of == level).expect("a queue") + index
    }

    fn ask(&mut self, port: usize) {
        if self.ports[port].level + 1 < self.levels.len() && !self.pending.contains(&port) {
            self.pending.push(port);
        }
    }

    fn changed(&mut self, queue: usize) {
        let port_of = |ports: &[Port], queue| ports.iter().position(|port| port.queues.contains(&queue)).expect("one");
        self.ask(port_of(&self.ports, queue));
        for (waits, _) in self.blocked.clone().into_iter().filter(|(_, at)| *at == queue) {
            self.ask(port_of(&self.ports, waits));
        }
        self.blocked.retain(|(_, at)| *at != queue);
    }

    fn first(&self, queue: usize) -> Option<&Waiting> {
        let order = rule(self.levels[self.of_level[queue]].order);
        self.queues[queue].iter().min_by(|a, b| of_packets(&order, a, b))
    }

    fn holds(&self, cases: &[Case], queue: usize, packet: &Packet) -> Option<usize> {
        let size = self.levels[self.of_level[queue]].size;
        let read = |path: &Path| match (path.name.text.as_str(), path.fields.first()) {
            ("packet", Some(field)) => packet_field(packet, &field.text),
            ("currSize", None) => (bytes(&self.queues[queue]).into(), 1),
            ("size", None) => (size.into(), 1),
            ("packets", None) => (self.queues[queue].len() as i128, 1),
            other => panic!("{other:?}"),
        };
        cases.iter().position(|case| evaluate(&case.when, &read).0 != 0)
    }

    /// Returns whether the packet was admitted.
    fn enter(&mut self, host: &mut impl Host, queue: usize, id: u32, packet: &Packet) -> bool {
        let level = &self.levels[self.of_level[queue]];
        if u64::from(packet.size) > level.size {
            return false;
        }
        self.arrived += 1;
        self.queues[queue].push((id, self.arrived, *packet));
        let cases = match level.congestion.map(rule) {
            Some(Body::Cases(cases)) => cases,
            _ => Vec::new(),
        };
        let mut decided = false;
        loop {
            let mut drops = bytes(&self.queues[queue]) > level.size;
            if let Some(case) = self.holds(&cases, queue, packet) {
                match &cases[case].actions[0].kind {
                    ActionKind::Drop(None) => drops = true,
                    // Probability one half.
                    ActionKind::Drop(Some(_)) if !decided => {
                        decided = true;
                        drops |= host.random() >> 63 == 0;
                    }
                    _ => {}
                }
            }
            if !drops {
                break;
            }
            let order = rule(level.admission);
            let last = self.queues[queue].iter().max_by(|a, b| of_packets(&order, a, b)).expect("a packet").0;
            self.queues[queue].retain(|(id, ..)| *id != last);
            if last == id {
                self.changed(queue);
                return false;
            }
            self.changed(queue);
            host.push_out(last);
        }
        self.changed(queue);
        true
    }

    /// The queue that a port serves, of those that `may` be served.
    fn choose(&self, port: usize, may: impl Fn(usize) -> bool) -> Option<usize> {
        let queues = &self.ports[port].queues;
        let going = (0..queues.len()).filter(|place| may(queues[*place]));
        let turn = |place: usize| (place + queues.len() - self.ports[port].turn) % queues.len();
        let place = match SCHEDULES[self.levels[self.ports[port].level].schedule].1 {
            Schedule::Longest => going.rev().max_by_key(|place| bytes(&self.queues[queues[*place]])),
            Schedule::Turn => going.min_by_key(|place| turn(*place)),
            Schedule::Last => going.max(),
        };
        place.map(|place| queues[place])
    }

    fn serve(&mut self, port: usize, queue: usize) -> Waiting {
        let first = *self.first(queue).expect("a packet");
        self.queues[queue].retain(|(id, ..)| *id != first.0);
        let place = self.ports[port].queues.iter().position(|of| *of == queue).expect("its own");
        self.ports[port].turn = (place + 1) % self.ports[port].queues.len();
        first
    }

    fn has_room(&self, queue: usize, size: u32) -> bool {
        let on_their_way = self.ports.iter().filter_map(|port| port.carried.as_ref());
        let coming: u64 = on_their_way.filter(|(_, to, _)| *to == queue).map(|(_, _, p)| u64::from(p.size)).sum();
        let (limit, size) = (self.levels[self.of_level[queue]].size, u64::from(size));
        size > limit || bytes(&self.queues[queue]) + coming + size <= limit
    }

    fn advance(&mut self, host: &mut impl Host, now: u64) -> Option<u64> {
        loop {
            let carrying = (0..self.ports.len()).filter(|port| self.ports[*port].carried.is_some());
            let next = carrying.min_by_key(|port| (self.ports[*port].ends, *port));
            if let Some(port) = next.filter(|port| self.ports[*port].ends <= now * 1000) {
                self.ask(port);
                let (id, queue, mut packet) = self.ports[port].carried.take().expect("one");
                packet.arrival = now;
                if !self.enter(host, queue, id, &packet) {
                    host.push_out(id);
                }
            } else if !self.pending.is_empty() {
                let port = self.pending.remove(0);
                self.send_on(port, now);
            } else {
                return next.map(|port| self.ports[port].ends.div_ceil(1000));
            }
        }
    }

    fn send_on(&mut self, port: usize, now: u64) {
        if self.ports[port].carried.is_some() {
            return;
        }
        let level = self.ports[port].level;
        let to = |naive: &Naive<'_>, queue| {
            naive.first(queue).map(|(_, _, packet)| (naive.queue(level + 1, packet), packet.size))
        };
        let may = |queue| to(self, queue).is_some_and(|(to, size)| self.has_room(to, size));
        let Some(queue) = self.choose(port, may) else {
            for queue in self.ports[port].queues.clone() {
                if let Some((to, _)) = to(self, queue)
                    && !self.blocked.contains(&(queue, to))
                {
                    self.blocked.push((queue, to));
                }
            }
            return;
        };
        let (to, _) = to(self, queue).expect("a packet");
        let (id, _, packet) = self.serve(port, queue);
        let rate = self.levels[level].rate;
        let state = &mut self.ports[port];
        let start = if state.ends + 1000 > now * 1000 { state.ends } else { now * 1000 };
        state.ends = start + u64::from(packet.size) * 8_000_000_000 / (rate / 1_000);
        state.carried = Some((id, to, packet));
        self.changed(queue);
    }

    fn depart(&mut self) -> Option<u32> {
        let port = self.ports.len() - 1;
        let queue = self.choose(port, |queue| !self.queues[queue].is_empty())?;
        let (id, ..) = self.serve(port, queue);
        self.changed(queue);
        Some(id)
    }
}

/// Runs random levels on random packets, in both implementations.
fn compare(seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let depth = rng.random_range(2..5);
    let levels: Vec<Level> = (0..depth).map(|n| Level::draw(&mut rng, n + 1 == depth)).collect();
    let text = text(&levels);
    let policy: Policy = text.parse().unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    let mut engine = Engine::new(&policy.plan(1).expect("a plan"), &Surroundings::default());
    let mut naive = Naive::new(&levels);
    let (mut host, mut naive_host) = (Notes::new(seed), Notes::new(seed));
    let (mut now, mut next) = (0, None);
    for id in 0..200 {
        now += rng.random_range(0..1_500);
        let at = next.filter(|at| *at <= now);
        if let Some(at) = at {
            now = at;
        } else if rng.random_range(0..5) < 3 {
            let packet = Packet {
                arrival: now,
                size: rng.random_range(60..1_600),
                value: rng.random_range(0..20),
                flow: rng.random_range(0..12),
                priority: rng.random_range(0..8),
                ..Packet::default()
            };
            host.have(id, packet);
            let verdict = engine.arrive(&mut host, id, packet);
            let queue = naive.queue(0, &packet);
            let taken = naive.enter(&mut naive_host, queue, id, &packet);
            assert_eq!(verdict == Verdict::Queued, taken, "seed {seed}, packet {id}\n{text}");
        } else {
            assert_eq!(engine.depart(&mut host, 0, 0), naive.depart(), "seed {seed}, step {id}\n{text}");
        }
        next = engine.advance(&mut host, now);
        assert_eq!(next, naive.advance(&mut naive_host, now), "seed {seed}, step {id} at {now}\n{text}");
        assert_eq!(host.done, naive_host.done, "seed {seed}, step {id}\n{text}");
        let on_their_way = naive.ports.iter().filter_map(|port| port.carried.as_ref());
        let inside = naive.queues.iter().map(|queue| bytes(queue)).sum::<u64>()
            + on_their_way.map(|(_, _, packet)| u64::from(packet.size)).sum::<u64>();
        assert_eq!(engine.backlog(0), inside, "seed {seed}, step {id}\n{text}");
    }
    assert_eq!(host.rng.next_u64(), naive_host.rng.next_u64(), "seed {seed}: chance was asked as often");
}

#[test]
fn levels_do_what_a_naive_interpreter_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("IRNIC_FIRST").unwrap_or(1);
    (first..first + number("IRNIC_OPENQUEUE").unwrap_or(300)).for_each(compare);
}
