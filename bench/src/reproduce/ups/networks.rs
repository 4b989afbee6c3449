//! The chapter's networks (§5.1.3), and who sends to whom by which way.

use irnic_fabric::sim::Detour;
use irnic_fabric::topology::{LinkSpec, Topology};

const G: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Core routers, and at each so many edge routers with a host each.
const CORES: u32 = 10;
const EDGES: u32 = 10;
const HOSTS: u32 = CORES * EDGES;
/// Links between core routers, and how many ordered pairs of these are routed over each in either direction.
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

/// A network with a way for each pair of hosts that send.
pub struct Wired {
    pub topology: Topology,
    pub detours: Vec<Detour>,
    /// Senders and receivers.
    pub pairs: Vec<(u32, u32)>,
}

fn core(host: u32) -> u32 {
    host / EDGES
}

/// The node of a core router.
fn node(core: u32) -> u32 {
    2 * HOSTS + core
}

fn neighbours(core: u32) -> impl Iterator<Item = u32> {
    let other = move |&(a, b, _): &(u32, u32, u64)| match core {
        _ if core == a => Some(b),
        _ if core == b => Some(a),
        _ => None,
    };
    LINKS.iter().filter_map(other)
}

/// Links from each core router to one.
fn distances(to: u32) -> [u32; CORES as usize] {
    let mut all = [u32::MAX; CORES as usize];
    all[to as usize] = 0;
    let mut reached = vec![to];
    let mut at = 0;
    while let Some(&from) = reached.get(at) {
        for next in neighbours(from) {
            if all[next as usize] == u32::MAX {
                all[next as usize] = all[from as usize] + 1;
                reached.push(next);
            }
        }
        at += 1;
    }
    all
}

/// The core router to which one sends what is for another: of those on a shortest way the one with the lowest number.
fn next(from: u32, to: u32) -> Option<u32> {
    let distance = distances(to);
    neighbours(from).filter(|n| distance[*n as usize] + 1 == distance[from as usize]).min()
}

/// Internet-2: hosts at `host` Gbit/s on edge routers at `edge` on core routers, all rates divided by `by`. Links between
/// core routers have the rate at which each pair of them could use its share of ten hosts at 1 Gbit/s, and take 10 ms, the
/// others 1 ms. Hosts send to those at other core routers.
pub fn internet2(host: u64, edge: u64, by: u64) -> Wired {
    let link = |a, b, rate: u64, delay| LinkSpec { a, b, rate: rate / by, delay, loss: 0.0 };
    let mut links = Vec::new();
    for of in 0..HOSTS {
        links.push(link(of, HOSTS + of, host * G, MS));
        links.push(link(HOSTS + of, node(core(of)), edge * G, MS));
    }
    for (a, b, pairs) in LINKS {
        let mbps = (pairs * 10_000).div_ceil(9);
        links.push(link(node(a), node(b), mbps * 1_000_000, 10 * MS));
    }
    let name = format!("internet2-{host}G-{edge}G");
    let topology = Topology { name, hosts: HOSTS, switches: HOSTS + CORES, links, ids: Vec::new() };
    let all = |n: u32| (0..n).flat_map(move |a| (0..n).map(move |b| (a, b)));
    let detours = all(CORES).filter_map(|(from, to)| Some((from, to, next(from, to)?)));
    let detours = detours.flat_map(|(from, to, via)| {
        let hosts = to * EDGES..(to + 1) * EDGES;
        hosts.map(move |dst| Detour { node: node(from), dst, via: node(via) })
    });
    let pairs = all(HOSTS).filter(|&(a, b)| core(a) != core(b)).collect();
    Wired { topology, detours: detours.collect(), pairs }
}

/// A fat-tree of 128 hosts, all links at 10 Gbit/s. The text says "full bisection" and nothing of delays: 1 µs here.
pub fn fat_tree() -> Wired {
    let topology = Topology::fat_tree(8, 10 * G, 1_000);
    let hosts = topology.hosts;
    let pairs = (0..hosts).flat_map(|a| (0..hosts).filter(move |b| *b != a).map(move |b| (a, b))).collect();
    Wired { topology, detours: Vec::new(), pairs }
}

#[cfg(test)]
mod tests {
    use irnic_fabric::sim::SimConfig;
    use irnic_fabric::switch::{SharedBufferConfig, SwitchConfig};
    use irnic_transports::config::TransportConfig;

    use super::*;

    /// The rates of core links are what the routing was made for: ours is that routing.
    #[test]
    fn each_core_link_has_the_pairs_that_it_is_made_for() {
        let mut found = std::collections::BTreeMap::new();
        for from in 0..CORES {
            for to in 0..CORES {
                let mut at = from;
                while let Some(via) = next(at, to) {
                    *found.entry((at, via)).or_insert(0) += 1;
                    at = via;
                }
                assert_eq!(at, to);
            }
        }
        for (a, b, pairs) in LINKS {
            assert_eq!((found.get(&(a, b)), found.get(&(b, a))), (Some(&pairs), Some(&pairs)), "{a}-{b}");
        }
    }

    #[test]
    fn packets_take_that_way() {
        let wired = internet2(10, 1, 1);
        let switch = SwitchConfig::SharedBuffer(SharedBufferConfig::new(1 << 30, 1460));
        let transport = TransportConfig::preset("irn").expect("a preset");
        let mut config = SimConfig::new(wired.topology, Vec::new(), switch, transport);
        config.detours = wired.detours;
        let net = irnic_fabric::sim::Simulation::new(config).expect("a valid configuration");
        let routes = net.network().routes();
        let mut hops = [0; 8];
        for &(src, dst) in &wired.pairs {
            assert_eq!(routes.ways(src, dst), 1);
            hops[routes.path(src, dst).expect("a way").len() - 1] += 1;
        }
        // Switches on the way: 4 to 7, for 32, 34, 18 and 6 of 90 pairs of core routers.
        assert_eq!(hops, [0, 0, 0, 0, 3_200, 3_400, 1_800, 600]);
    }
}
