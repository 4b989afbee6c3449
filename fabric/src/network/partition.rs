//! Partition of a network into parts.

use std::sync::Arc;

use super::Record;
use crate::topology::{Topology, Wires};

/// Assignment of nodes to parts. Hosts stay with their switches; each part has about the same number of hosts, in
/// order, plus the switches that most of its links lead to.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    /// Part of each node.
    pub(crate) part_of: Arc<[u16]>,
    /// Hosts of each part, in order.
    pub(crate) hosts: Vec<Vec<u32>>,
}

impl Partition {
    /// Partitions a topology into this many parts, or fewer if fewer switches have hosts.
    pub(crate) fn new(topology: &Topology, parts: usize) -> Partition {
        let wires = Wires::new(topology);
        let switch_of = |host: u32| wires.of(host).first().map_or(host, |&(_, peer)| peer);
        // Switches by their first host, with their number of hosts.
        let mut switches: Vec<(u32, usize)> = Vec::new();
        let mut known = vec![usize::MAX; topology.nodes() as usize];
        for host in 0..topology.hosts {
            let switch = switch_of(host);
            if known[switch as usize] == usize::MAX {
                known[switch as usize] = switches.len();
                switches.push((switch, 0));
            }
            switches[known[switch as usize]].1 += 1;
        }
        let parts = parts.clamp(1, switches.len().clamp(1, Record::PARTS));
        let mut part_of = vec![u16::MAX; topology.nodes() as usize];
        let (mut part, mut before) = (0, 0);
        for (at, &(switch, hosts)) in switches.iter().enumerate() {
            // The next part begins once the hosts before it reach its share, or if each remaining switch needs a part
            // of its own.
            let due = (part + 1) * topology.hosts as usize;
            let full = (2 * before + hosts) * parts > 2 * due || switches.len() - at < parts - part;
            if full && at > 0 && part + 1 < parts && part_of[switches[at - 1].0 as usize] == part as u16 {
                part += 1;
            }
            part_of[switch as usize] = part as u16;
            before += hosts;
        }
        let mut hosts = vec![Vec::new(); parts];
        for host in 0..topology.hosts {
            let part = part_of[switch_of(host) as usize];
            part_of[host as usize] = part;
            hosts[usize::from(part)].push(host);
        }
        let mut load = vec![0; hosts.len()];
        // From the hosts upwards. Switches between parts go to the least loaded one.
        let tiers = topology.tiers();
        let mut switches: Vec<u32> = (topology.hosts..topology.nodes()).collect();
        switches.sort_by_key(|&switch| tiers[switch as usize]);
        for switch in switches.into_iter().filter(|&switch| known[switch as usize] == usize::MAX) {
            let mut links = vec![0; hosts.len()];
            for &(_, peer) in wires.of(switch) {
                if let Some(links) = links.get_mut(usize::from(part_of[peer as usize])) {
                    *links += 1;
                }
            }
            let best = (0..hosts.len()).min_by_key(|&part| (std::cmp::Reverse(links[part]), load[part]));
            let best = best.unwrap_or(0);
            part_of[switch as usize] = best as u16;
            load[best] += wires.of(switch).len();
        }
        Partition { part_of: part_of.into(), hosts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::LinkSpec;

    #[test]
    fn pods_stay_whole_and_cores_are_shared_out() {
        let topology = Topology::fat_tree(8, 1_000_000_000, 1_000);
        let cut = Partition::new(&topology, 2);
        assert_eq!(cut.hosts, [Vec::from_iter(0..64), Vec::from_iter(64..128)]);
        let crossing = topology.links.iter().filter(|l| cut.part_of[l.a as usize] != cut.part_of[l.b as usize]);
        // Half of the links of each of the 16 core switches.
        assert_eq!(crossing.count(), 16 * 8 / 2);
        let cores = cut.part_of.iter().rev().take(16).filter(|part| **part == 0).count();
        assert_eq!(cores, 8);
    }

    #[test]
    fn every_part_has_hosts_which_stay_with_their_switch() {
        let of_one_host = LinkSpec { a: 0, b: 3, rate: 1, delay: 1, loss: 0.0 };
        let links = [(1, 4), (2, 3), (3, 4)].map(|(a, b)| LinkSpec { a, b, ..of_one_host });
        let links = [vec![of_one_host], links.to_vec()].concat();
        let mixed = Topology { name: "mixed".into(), hosts: 3, switches: 2, links, ids: Vec::new() };
        for parts in [1, 2, 3, 7, 100] {
            for (topology, switches) in [
                (&Topology::star(9, 1, 1), 1),
                (&Topology::dumbbell(3, 4, 1, 1, 1), 2),
                (&Topology::leaf_spine(10, 3, 2, 1, 1, 1), 10),
                (&mixed, 2),
            ] {
                let cut = Partition::new(topology, parts);
                assert_eq!(cut.hosts.len(), parts.min(switches));
                assert!(cut.hosts.iter().all(|hosts| !hosts.is_empty()), "{:?}", cut.hosts);
                assert!(cut.part_of.iter().all(|part| usize::from(*part) < cut.hosts.len()));
                let ends = topology.links.iter().filter(|link| link.a < topology.hosts);
                ends.for_each(|link| assert_eq!(cut.part_of[link.a as usize], cut.part_of[link.b as usize]));
            }
        }
    }
}
