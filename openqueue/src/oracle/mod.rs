//! Compares the engine with a naive interpreter: queues are vectors that are sorted by the comparator each time,
//! expressions are evaluated on the syntax tree, and nothing is cached between queries.

mod levels;
mod naive;
mod optimum;
mod random;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::{Engine, Host, Packet, Policy, Seen, Surroundings, Verdict, Waiting};
use naive::Naive;

/// A host that records requests.
#[derive(Clone)]
struct Notes {
    rng: Pcg64Mcg,
    done: Vec<(char, u32)>,
    links: Vec<u32>,
    packets: Vec<Packet>,
}

impl Waiting for Notes {
    fn next(&self, id: u32) -> u32 {
        self.links[id as usize]
    }

    fn seen(&self, id: u32) -> Seen {
        let Packet { size, input, priority, red, .. } = self.packets[id as usize];
        Seen { size, input, priority, red }
    }
}

impl Notes {
    /// Records a packet that is about to arrive.
    fn have(&mut self, id: u32, packet: Packet) {
        let room = self.packets.len().max(id as usize + 1);
        self.packets.resize(room, Packet::default());
        self.links.resize(room, 0);
        self.packets[id as usize] = packet;
    }

    fn new(seed: u64) -> Notes {
        Notes { rng: Pcg64Mcg::seed_from_u64(seed), done: Vec::new(), links: Vec::new(), packets: Vec::new() }
    }
}

impl Host for Notes {
    fn set_next(&mut self, id: u32, next: u32) {
        self.links[id as usize] = next;
    }

    fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    fn mark(&mut self, id: u32) {
        self.done.push(('m', id));
    }

    fn pause(&mut self, input: u16, priority: u8, stop: bool) {
        self.done.push((if stop { 's' } else { 'r' }, u32::from(input) * 8 + u32::from(priority)));
    }

    fn is_sending(&self, _output: u16) -> bool {
        false
    }

    fn push_out(&mut self, id: u32) {
        self.done.push(('p', id));
    }

    fn can_trim(&self, id: u32) -> bool {
        !self.packets[id as usize].control
    }

    fn trim(&mut self, id: u32) -> Option<u32> {
        self.done.push(('t', id));
        let packet = &mut self.packets[id as usize];
        // One in sixteen is damaged.
        if packet.dscp % 16 == 5 {
            return None;
        }
        let cut = packet.size.saturating_sub(64);
        (packet.size, packet.control) = (packet.size - cut, true);
        Some(cut)
    }

    fn turn_back(&mut self, id: u32) -> bool {
        let goes = self.packets[id as usize].control && self.packets[id as usize].dscp.is_multiple_of(2);
        if goes {
            self.done.push(('b', id));
        }
        goes
    }
}

/// Runs one random policy on random packets, in both implementations.
fn compare(seed: u64, packets: usize) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let description = random::Description::draw(&mut rng);
    let text = description.text();
    let policy: Policy = text.parse().unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    let plan = policy.plan(1).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    let mut engine = Engine::new(&plan, &Surroundings { rates: vec![1_000_000_000], headroom: vec![0], priorities: 8 });
    let mut naive = Naive::new(&description);
    let (mut host, mut naive_host) = (Notes::new(seed), Notes::new(seed));
    let mut free: Vec<u32> = (0..4_096).rev().collect();
    let load = rng.random_range(0.3..1.5);
    for step in 0..packets {
        if rng.random::<f64>() < load / (1.0 + load) {
            let id = free.pop().expect("a number");
            let packet = description.packet(&mut rng, step as u64);
            host.have(id, packet);
            let verdict = engine.arrive(&mut host, id, packet);
            naive_host.have(id, packet);
            let expected = naive.arrive(&mut naive_host, id, &packet);
            assert_eq!(verdict, expected, "seed {seed}, step {step}: packet {id}\n{text}");
            if verdict == Verdict::Dropped {
                free.push(id);
            }
        } else {
            let paused = if rng.random_range(0..4) == 0 { rng.random::<u8>() } else { 0 };
            let (next, expected) = (engine.depart(&mut host, 0, paused), naive.depart(&mut naive_host, paused));
            assert_eq!(next, expected, "seed {seed}, step {step}, paused {paused:b}\n{text}");
            free.extend(next);
        }
        assert_eq!(host.done, naive_host.done, "seed {seed}, step {step}\n{text}");
        free.extend(host.done.iter().filter(|(what, _)| matches!(what, 'p' | 'b')).map(|(_, id)| *id));
        host.done.clear();
        naive_host.done.clear();
        for (queue, (bytes, count)) in naive.queues().enumerate() {
            assert_eq!(engine.queue(queue), (bytes, count), "seed {seed}, step {step}: queue {queue}\n{text}");
            assert!(bytes <= engine.queue_size(queue), "seed {seed}: queue {queue} above its size\n{text}");
        }
        assert_eq!(engine.backlog(0), naive.queues().map(|(bytes, _)| bytes).sum::<u64>());
    }
    let counters = engine.counters();
    let departed = [counters.refused, counters.pushed_out, counters.returned, counters.sent, (0, counters.trimmed.1)];
    let left: (u64, u64) = (naive.queues().map(|q| u64::from(q.1)).sum(), engine.backlog(0));
    let (packets, bytes) = departed.iter().fold(left, |sum, next| (sum.0 + next.0, sum.1 + next.1));
    assert_eq!((packets, bytes), counters.arrived, "seed {seed}: what came went or waits\n{text}");
}

/// A number of random policies; `IRNIC_OPENQUEUE=n` for more, `IRNIC_FIRST=s` to begin at another seed.
#[test]
fn the_engine_does_what_a_naive_interpreter_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("IRNIC_FIRST").unwrap_or(1);
    let policies = number("IRNIC_OPENQUEUE").unwrap_or(400);
    (first..first + policies).for_each(|seed| compare(seed, 150));
}

/// Packets of a flow stay in order where all queues are FIFO.
#[test]
fn first_in_first_out_keeps_the_order_of_flows() {
    let policy: Policy = "for p in priorities { q[p] = Queue(20KB); }
        out = Port(100%, q);
        queue = q[priority];
        fifo(p1, p2) = p1.arrival < p2.arrival
        q.procPrio = fifo;
        q.congestion() = (currSize > 10KB, drop(0.3));
        b = Buffer(40KB, q);"
        .parse()
        .expect("a policy");
    let mut engine = Engine::new(&policy.plan(1).expect("a plan"), &Surroundings::default());
    let mut host = Notes::new(1);
    let mut rng = Pcg64Mcg::seed_from_u64(9);
    let (mut last, mut priorities) = ([0; 8], vec![0; 20_000]);
    for id in 0..20_000u32 {
        let priority = rng.random_range(0..8);
        priorities[id as usize] = priority;
        let packet = Packet { arrival: id.into(), size: rng.random_range(60..1_500), priority, ..Packet::default() };
        host.have(id, packet);
        engine.arrive(&mut host, id, packet);
        while rng.random_range(0..3) == 0
            && let Some(next) = engine.depart(&mut host, 0, 0)
        {
            let last = &mut last[usize::from(priorities[next as usize])];
            assert!(next >= *last, "packet {next} after {last}");
            *last = next;
        }
    }
    assert!(engine.counters().sent.0 > 1_000 && engine.counters().refused.0 > 1_000);
}
