//! The cost of a packet on this machine, by policy: a queue of a thousand packets with one arrival per departure.

use std::hint::black_box;
use std::time::Instant;

use irnic_openqueue::{Engine, Host, Packet, Policy, Seen, Shipped, Surroundings, Verdict, Waiting};

use super::scenario::{Algorithm, heap};

/// Number of queued packets.
const WAITING: u32 = 1_000;
/// Number of packet ids, which are reused.
const PACKETS: usize = 4_096;
/// Packets per round.
const ROUND: u32 = 400_000;
/// Number of rounds, each with all policies in turn: the fastest of each counts.
const ROUNDS: usize = 7;

/// Packets without a network.
struct Bare {
    links: Box<[u32]>,
    packets: Box<[Packet]>,
    random: u64,
    free: Vec<u32>,
}

impl Waiting for Bare {
    #[inline]
    fn next(&self, id: u32) -> u32 {
        self.links[id as usize]
    }

    #[inline]
    fn seen(&self, id: u32) -> Seen {
        let Packet { size, input, priority, red, .. } = self.packets[id as usize];
        Seen { size, input, priority, red }
    }
}

impl Host for Bare {
    #[inline]
    fn set_next(&mut self, id: u32, next: u32) {
        self.links[id as usize] = next;
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.random
    }

    fn mark(&mut self, _id: u32) {}

    fn pause(&mut self, _input: u16, _priority: u8, _stop: bool) {}

    fn is_sending(&self, _output: u16) -> bool {
        false
    }

    fn push_out(&mut self, id: u32) {
        self.free.push(id);
    }
}

/// A policy under load.
struct Busy {
    engine: Engine,
    host: Bare,
    now: u64,
}

impl Busy {
    /// With a buffer for `room` packets, filled completely.
    fn new(mut policy: Policy, room: u32) -> Busy {
        // Every policy here has this parameter.
        policy.set("buffer", &(1_500 * u64::from(room)).to_string()).expect("a parameter");
        let plan = policy.plan(1).expect("a policy that a test reads");
        let engine =
            Engine::new(&plan, &Surroundings { rates: vec![10_000_000_000], headroom: vec![0], priorities: 8 });
        let host = Bare {
            links: vec![0; PACKETS].into(),
            packets: vec![Packet::default(); PACKETS].into(),
            random: 1,
            free: (0..PACKETS as u32).collect(),
        };
        let mut busy = Busy { engine, host, now: 0 };
        (0..WAITING).for_each(|_| busy.arrive());
        busy
    }

    #[inline]
    fn arrive(&mut self) {
        self.now += 1;
        let random = self.host.random();
        let priority = (random >> 61) as u8;
        let packet = Packet { arrival: self.now, size: 1_500, priority, flow: random >> 40, ..Packet::default() };
        let Some(id) = self.host.free.pop() else { return };
        self.host.packets[id as usize] = packet;
        if self.engine.arrive(&mut self.host, id, packet) == Verdict::Dropped {
            self.host.free.push(id);
        }
    }

    /// Runs a round with one arrival per departure, or two if `congested`; returns ns per packet.
    fn round(&mut self, congested: bool) -> f64 {
        let begun = Instant::now();
        for n in 0..ROUND {
            self.arrive();
            if !congested || n % 2 == 0 {
                let departed = self.engine.depart(&mut self.host, 0, 0);
                self.host.free.extend(black_box(departed));
            }
        }
        begun.elapsed().as_nanos() as f64 / f64::from(ROUND)
    }
}

fn shipped(name: &str) -> Policy {
    Shipped::named(name).and_then(|shipped| shipped.text.parse().ok()).expect("a policy of irnic's")
}

/// Measures and prints.
pub fn print() {
    println!(
        "\nns a packet of this machine, arrival and departure, {WAITING} packets waiting; least of {ROUNDS} rounds"
    );
    println!("  {:40} {:>10} {:>10}", "policy", "at ease", "congested");
    let fifo = [("first in, first out by a list", shipped("tail-drop")), ("first in, first out by a heap", heap())];
    let algorithms = [("A", Algorithm::A), ("B", Algorithm::B), ("C", Algorithm::C)];
    let algorithms = algorithms.map(|(name, algorithm)| (name, shipped(algorithm.policy())));
    let other = [("least-slack", shipped("least-slack"))];
    let all: Vec<(&str, Policy)> = fifo.into_iter().chain(algorithms).chain(other).collect();
    let mut busy: Vec<[Busy; 2]> =
        all.iter().map(|(_, policy)| [2 * WAITING, WAITING].map(|room| Busy::new(policy.clone(), room))).collect();
    let mut least = vec![[f64::INFINITY; 2]; all.len()];
    for _ in 0..ROUNDS {
        for (busy, least) in busy.iter_mut().zip(&mut least) {
            for (place, busy) in busy.iter_mut().enumerate() {
                least[place] = least[place].min(busy.round(place == 1));
            }
        }
    }
    for ((name, _), [ease, congested]) in all.iter().zip(&least) {
        println!("  {name:40} {ease:>10.1} {congested:>10.1}");
    }
}
