//! The backbone of RC3's evaluation: Internet-2 with ten cores and ten hosts at each (§2.4.1; capacities, delays and
//! routes are those of the authors' scenario file, NetSys/RC3, `internet2-fanout10`).

use std::collections::VecDeque;

use irnic_fabric::sim::Detour;
use irnic_fabric::topology::{LinkSpec, Topology};
use irnic_fabric::workload::poisson::Pair;

const CORES: u32 = 10;
/// Hosts at each core.
const FANOUT: u32 = 10;
pub const HOSTS: u32 = CORES * FANOUT;
/// Delay of links between cores, and of a host's link, ns.
const CORE_DELAY: u64 = 10_000_000;
const HOST_DELAY: u64 = 1_000_000;

/// Links between cores, and the number of the ninety ordered pairs of cores that use each in one direction: its
/// capacity is its share of what hosts may send, so that no core link is narrower than the hosts together.
const LINKS: [(u32, u32, u64); 16] = [
    (0, 1, 5),
    (0, 2, 7),
    (0, 3, 13),
    (1, 2, 3),
    (2, 4, 3),
    (1, 5, 5),
    (4, 5, 1),
    (3, 5, 3),
    (3, 4, 5),
    (5, 6, 4),
    (3, 6, 9),
    (3, 7, 13),
    (7, 8, 1),
    (6, 8, 8),
    (8, 9, 2),
    (7, 9, 7),
];

/// Length of a full packet on the wire here, and in the paper: 1,024 of payload and [`HEADER`] around it, 1,460 and
/// TCP's and IP's 40. Rates and buffers are scaled by that ratio, so that a packet takes the same time as there.
const PACKET: u64 = 1_024 + HEADER as u64;
const PAPERS_PACKET: u64 = 1_500;
/// Bytes around the payload, and length of an acknowledgement: the same share of a packet as there.
pub const HEADER: u32 = 28;

/// Scales a number of bytes, or a rate, of the paper to packets here.
pub fn scaled(papers: u64) -> u64 {
    papers * PACKET / PAPERS_PACKET
}

/// The core of a host.
pub fn core_of(host: u32) -> u32 {
    host / FANOUT
}

/// The switch of a core.
fn switch(core: u32) -> u32 {
    HOSTS + core
}

/// Hops between cores.
fn hops(from: u32) -> [u32; CORES as usize] {
    let mut hops = [u32::MAX; CORES as usize];
    hops[from as usize] = 0;
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        for next in neighbours(at) {
            if hops[next as usize] == u32::MAX {
                hops[next as usize] = hops[at as usize] + 1;
                queue.push_back(next);
            }
        }
    }
    hops
}

fn neighbours(core: u32) -> impl Iterator<Item = u32> {
    LINKS.iter().filter_map(move |&(a, b, _)| match core {
        _ if core == a => Some(b),
        _ if core == b => Some(a),
        _ => None,
    })
}

/// The next core on the way to another one: the neighbour with the lowest number among those on shortest paths, for
/// which the capacities of the links are dimensioned.
fn next(at: u32, to: u32) -> u32 {
    let hops = hops(to);
    let nearer = neighbours(at).filter(|next| hops[*next as usize] < hops[at as usize]);
    nearer.min().unwrap_or(to)
}

/// Internet-2 with hosts' links of `rate` bit/s in the paper's units and `stretch` times its delays; each link loses a
/// share `loss` of all packets.
pub fn internet2(rate: u64, stretch: u64, loss: f64) -> (Topology, Vec<Detour>) {
    let spec = |a, b, rate: u64, delay: u64| LinkSpec { a, b, rate: scaled(rate), delay: delay * stretch, loss };
    let hosts = (0..HOSTS).map(|host| spec(host, switch(core_of(host)), rate, HOST_DELAY));
    // Ten hosts of a core, divided among nine others.
    let share = |pairs: u64| (pairs * u64::from(FANOUT) * rate).div_ceil(u64::from(CORES) - 1);
    let cores = LINKS.iter().map(|&(a, b, pairs)| spec(switch(a), switch(b), share(pairs), CORE_DELAY));
    let links = hosts.chain(cores).collect();
    let topology = Topology { name: "internet2".to_owned(), hosts: HOSTS, switches: CORES, links, ids: Vec::new() };
    let mut detours = Vec::new();
    for dst in 0..HOSTS {
        for core in (0..CORES).filter(|core| *core != core_of(dst)) {
            detours.push(Detour { node: switch(core), dst, via: switch(next(core, core_of(dst))) });
        }
    }
    (topology, detours)
}

/// Uniform traffic from each host to each at another core, offering a share `load` of the hosts' links, of `rate` bit/s
/// in the paper's units: counts payload only, as the authors do.
pub fn pairs(rate: u64, load: f64) -> Vec<Pair> {
    let others = f64::from(HOSTS - FANOUT);
    let offered = scaled(rate) as f64 * load * (PAPERS_PACKET as f64 / 1_460.0) / others;
    let all = (0..HOSTS).flat_map(|src| (0..HOSTS).map(move |dst| (src, dst)));
    let apart = all.filter(|(src, dst)| core_of(*src) != core_of(*dst));
    apart.map(|(src, dst)| Pair { src, dst, rate: offered, class: 0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hops between the cores of each ordered pair.
    fn distances() -> Vec<u32> {
        let pairs = (0..CORES).flat_map(|a| (0..CORES).filter(move |b| *b != a).map(move |b| (a, b)));
        pairs.map(|(a, b)| hops(b)[a as usize]).collect()
    }

    /// Each link carries as many pairs of cores as it is dimensioned for, in both directions.
    #[test]
    fn routes_are_those_that_the_capacities_are_for() {
        let mut used = Vec::new();
        for from in 0..CORES {
            for to in (0..CORES).filter(|to| *to != from) {
                let mut at = from;
                while at != to {
                    let via = next(at, to);
                    used.push((at, via));
                    at = via;
                }
            }
        }
        for (a, b, pairs) in LINKS {
            for way in [(a, b), (b, a)] {
                assert_eq!(used.iter().filter(|used| **used == way).count() as u64, pairs, "{way:?}");
            }
        }
    }

    #[test]
    fn round_trips_are_those_of_the_text() {
        let distances = distances();
        let with = |hops| distances.iter().filter(|d| **d == hops).count();
        assert_eq!([1, 2, 3, 4].map(with), [32, 34, 18, 6]);
        let mean = distances.iter().sum::<u32>() as f64 / distances.len() as f64;
        let round_trip = 2.0 * (2.0 * HOST_DELAY as f64 + mean * CORE_DELAY as f64) / 1e6;
        assert!((round_trip - 43.6).abs() < 0.1, "{round_trip} ms");
    }

    #[test]
    fn packets_take_the_time_that_they_take_there() {
        // 12 us at 1 Gbit/s, and 320 ns for 40 bytes.
        let ns = |bytes: u64| bytes as f64 * 8e9 / scaled(1_000_000_000) as f64;
        assert!((ns(PACKET) - 12_000.0).abs() < 0.1 && (ns(HEADER.into()) - 320.0).abs() < 1.0);
        let (topology, detours) = internet2(1_000_000_000, 1, 0.0);
        assert_eq!((topology.links.len(), detours.len()), (116, 900));
        assert_eq!(topology.links[102].rate, scaled(14_444_444_445));
    }
}
