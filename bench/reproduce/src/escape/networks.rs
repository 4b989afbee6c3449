//! The chapter's networks, with senders, receivers and paths.

use irnic_fabric::sim::Detour;
use irnic_fabric::topology::{LinkSpec, Topology};

const G: u64 = 1_000_000_000;
/// Delay of each link, ns: not given by the text; that of RoCC's evaluation in the same simulator (§3.5.1).
const DELAY: u64 = 1_500;

/// A network with a path for each relevant pair of hosts.
pub struct Wired {
    pub topology: Topology,
    pub detours: Vec<Detour>,
    /// Sender and receiver of each pair.
    pub pairs: Vec<(u32, u32)>,
    /// Number of links of the longest path.
    pub longest: u64,
    /// Directed links that form a cycle, by their nodes.
    pub cycle: Vec<(u32, u32)>,
}

impl Wired {
    /// Round trip of a full packet and its acknowledgement on the longest of the paths, ns.
    pub fn round_trip(&self) -> u64 {
        // 1,024 bytes of payload and 62 around it, without telemetry, and 62 and 4 of an acknowledgement.
        let link = 2 * DELAY + (1_086 + 66) * 8 / 40;
        self.longest * link
    }
}

fn topology(hosts: u32, switches: u32, links: &[(u32, u32, u64)]) -> Topology {
    let link = |&(a, b, rate): &(u32, u32, u64)| LinkSpec { a, b, rate: rate * G, delay: DELAY, loss: 0.0 };
    let links = links.iter().map(link).collect();
    Topology { name: "escape".to_owned(), hosts, switches, links, ids: Vec::new() }
}

/// Routes packets for a host through these switches, in order.
fn way(dst: u32, switches: &[u32]) -> impl Iterator<Item = Detour> {
    switches.windows(2).map(move |pair| Detour { node: pair[0], dst, via: pair[1] })
}

/// Figure 4.6: three switches in a ring, each with a host, which sends to the one at the second switch after its own.
pub fn ring() -> Wired {
    let topology = Topology::ring(3, 1, 40 * G, DELAY);
    let next = |i: u32| 3 + (i + 1) % 3;
    Wired {
        detours: (0..3).map(|i| Detour { node: 3 + i, dst: (i + 2) % 3, via: next(i) }).collect(),
        pairs: (0..3).map(|i| (i, (i + 2) % 3)).collect(),
        longest: 4,
        cycle: (0..3).map(|i| (3 + i, next(i))).collect(),
        topology,
    }
}

/// Figure 4.11: eight edge, eight aggregation and four core switches. Of the text's names s₁ and s₂ are the first two
/// core switches, s₃ to s₆ the aggregation switches of the four pods linked to these; h₁ is host 0. `failed`: the links
/// s₁–s₆ and s₂–s₃ are missing, and their traffic takes the paths of §4.6.3.
pub fn fat_tree(failed: bool) -> Wired {
    let mut topology = Topology::fat_tree(4, 40 * G, DELAY);
    let edge = |host: u32| 16 + (host - 1) / 2;
    let [s1, s2] = [32, 33];
    let [s3, s4, s5, s6] = [24, 26, 28, 30];
    // Of the other aggregation switches and their core.
    let (t4, t5, core) = (27, 29, 34);
    if failed {
        let removed = [(s6, s1), (s3, s2)];
        topology.links.retain(|link| !removed.contains(&(link.a, link.b)));
    }
    let (out, back) = if failed {
        (vec![s3, s1, s5, s2, s6], vec![s6, s2, s4, s1, s3])
    } else {
        (vec![s3, s1, s6], vec![s6, s2, s3])
    };
    let mut detours = Vec::new();
    let mut pairs = Vec::new();
    for (sources, dst, by) in [
        (&[1, 3][..], 16, &out),
        (&[13, 15], 4, &back),
        (&[7], 12, &vec![s4, s1, s5]),
        (&[11], 8, &vec![s5, s2, s4]),
        (&[5], 10, &vec![t4, core, t5]),
        (&[9], 6, &vec![t5, core, t4]),
    ] {
        for &source in sources {
            pairs.push((source - 1, dst - 1));
            detours.push(Detour { node: edge(source), dst: dst - 1, via: by[0] });
        }
        detours.extend(way(dst - 1, by));
    }
    let longest = if failed { 8 } else { 6 };
    Wired { topology, detours, pairs, longest, cycle: vec![(s1, s5), (s5, s2), (s2, s4), (s4, s1)] }
}

/// Figure 4.14: two levels, with n₁ and n₂ as the upper and n₃ to n₆ as the lower, two hosts at each of these. The
/// links n₁–n₆ and n₂–n₃ are assumed to be missing, so that the named flows close the cycle n₁ n₅ n₂ n₄.
pub fn two_levels() -> Wired {
    let [n1, n2, n3, n4, n5, n6] = [12, 13, 8, 9, 10, 11];
    let hosts = (0..8).map(|host| (host, 8 + host / 2, 40));
    let links = [(n3, n1), (n4, n1), (n5, n1), (n4, n2), (n5, n2), (n6, n2)].map(|(a, b)| (a, b, 40));
    let mut detours = Vec::new();
    for (dst, by) in
        [(7, &[n3, n1, n5, n2, n6][..]), (1, &[n6, n2, n4, n1, n3]), (5, &[n4, n1, n5]), (3, &[n5, n2, n4])]
    {
        detours.extend(way(dst - 1, by));
    }
    Wired {
        topology: topology(8, 6, &hosts.chain(links).collect::<Vec<_>>()),
        detours,
        pairs: [(2, 7), (4, 5), (6, 3), (8, 1)].map(|(src, dst)| (src - 1, dst - 1)).to_vec(),
        longest: 6,
        cycle: vec![(n1, n5), (n5, n2), (n2, n4), (n4, n1)],
    }
}

/// Figure 4.16: h₁ and h₂ at s₂, h₃ and h₄ at s₃, with 100 Gbit/s; h₅ at s₄ and h₆ at s₅ with 40; s₁ between the four.
/// Flows of h₁ and h₃ to h₆ come first, then the innocent ones of h₂ and h₄ to h₅.
pub fn incast() -> Wired {
    let [s1, s2, s3, s4, s5] = [6, 7, 8, 9, 10];
    let hosts = [(0, s2, 100), (1, s2, 100), (2, s3, 100), (3, s3, 100), (4, s4, 40), (5, s5, 40)];
    let links = [s2, s3, s4, s5].map(|switch| (switch, s1, 100));
    Wired {
        topology: topology(6, 5, &[&hosts[..], &links].concat()),
        detours: Vec::new(),
        pairs: vec![(0, 5), (2, 5), (1, 4), (3, 4)],
        longest: 4,
        cycle: vec![(s1, s5)],
    }
}

#[cfg(test)]
mod tests {
    use irnic_fabric::topology::Routes;

    use super::*;

    /// The switches on the path of a pair.
    fn passed(wired: &Wired, pair: usize) -> Vec<u32> {
        let (src, dst) = wired.pairs[pair];
        let routes = Routes::compute(&wired.topology, &|_| false);
        let next = |at: u32| {
            let detour = wired.detours.iter().find(|detour| (detour.node, detour.dst) == (at, dst));
            detour.map_or_else(
                || match routes.ports(at, dst) {
                    [only] => wired.topology.ports(at)[usize::from(*only)].1,
                    several => panic!("{} ways from {at} to {dst}", several.len()),
                },
                |detour| detour.via,
            )
        };
        let mut way = vec![next(src)];
        while let Some(&at) = way.last().filter(|at| **at != dst) {
            way.push(next(at));
        }
        way.pop();
        assert!((way.len() as u64) < wired.longest);
        way
    }

    #[test]
    fn ways_are_those_of_the_text() {
        assert_eq!(passed(&ring(), 0), [3, 4, 5]);
        let (before, after) = (fat_tree(false), fat_tree(true));
        assert_eq!(passed(&before, 0), [16, 24, 32, 30, 23]);
        // h₁ by s₃ s₁ s₅ s₂ s₆, h₁₃ by s₆ s₂ s₄ s₁ s₃, h₇ by s₁ s₅.
        assert_eq!(passed(&after, 0), [16, 24, 32, 28, 33, 30, 23]);
        assert_eq!(passed(&after, 2), [22, 30, 33, 26, 32, 24, 17]);
        assert_eq!(passed(&after, 4), [19, 26, 32, 28, 21]);
        assert_eq!(passed(&two_levels(), 0), [8, 12, 10, 13, 11]);
        assert_eq!(passed(&two_levels(), 3), [11, 13, 9, 12, 8]);
        assert_eq!(passed(&incast(), 2), [7, 6, 9]);
    }

    #[test]
    fn cycles_are_links_that_are_there() {
        for wired in [ring(), fat_tree(false), fat_tree(true), two_levels(), incast()] {
            for (from, to) in wired.cycle {
                assert!(wired.topology.ports(from).iter().any(|(_, peer)| *peer == to), "{from} {to}");
            }
        }
    }
}
