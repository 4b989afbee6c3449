//! Where a network is cut into parts.

use std::ops::Range;
use std::sync::Arc;

use crate::topology::{Topology, Wires};

/// What belongs to which part: about as many hosts to each, in their order, and to them the switches that most of their
/// links lead to.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// Of each node, its part.
    pub(crate) part_of: Arc<[u16]>,
    /// The hosts of each part.
    pub(crate) hosts: Vec<Range<u32>>,
}

impl Cut {
    /// Cuts a topology into so many parts, or into fewer if it has fewer hosts.
    pub(crate) fn new(topology: &Topology, parts: usize) -> Cut {
        let wires = Wires::new(topology);
        let hosts = topology.hosts;
        let parts = parts.clamp(1, (hosts.max(1) as usize).min(usize::from(u16::MAX))) as u32;
        let switch_of = |host: u32| wires.of(host).first().map(|&(_, peer)| peer);
        let mut ends = vec![0];
        for n in 1..parts {
            let even = (u64::from(hosts) * u64::from(n) / u64::from(parts)) as u32;
            // Beside it, if need be, where another switch begins.
            let reach = hosts / (4 * parts);
            let near = (0..=reach).flat_map(|by| [even - by, even + by]);
            let mut between = near.filter(|&at| at > 0 && at < hosts && switch_of(at - 1) != switch_of(at));
            ends.push(between.next().unwrap_or(even));
        }
        ends.push(hosts);
        let hosts: Vec<Range<u32>> = ends.windows(2).map(|ends| ends[0]..ends[1]).collect();
        let mut part_of = vec![u16::MAX; topology.nodes() as usize];
        for (part, range) in (0..).zip(&hosts) {
            part_of[range.start as usize..range.end as usize].fill(part);
        }
        let mut load = vec![0; hosts.len()];
        // From the hosts upwards. Those that lie between parts go where there is least.
        let tiers = topology.tiers();
        let mut switches: Vec<u32> = (topology.hosts..topology.nodes()).collect();
        switches.sort_by_key(|&switch| tiers[switch as usize]);
        for switch in switches {
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
        Cut { part_of: part_of.into(), hosts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_stay_whole_and_cores_are_shared_out() {
        let topology = Topology::fat_tree(8, 1_000_000_000, 1_000);
        let cut = Cut::new(&topology, 2);
        assert_eq!(cut.hosts, [0..64, 64..128]);
        let crossing = topology.links.iter().filter(|l| cut.part_of[l.a as usize] != cut.part_of[l.b as usize]);
        // Half of the links of each of the 16 core switches.
        assert_eq!(crossing.count(), 16 * 8 / 2);
        let cores = cut.part_of.iter().rev().take(16).filter(|part| **part == 0).count();
        assert_eq!(cores, 8);
    }

    #[test]
    fn every_part_has_hosts_and_every_node_a_part() {
        for parts in [1, 2, 3, 7, 100] {
            for topology in [Topology::star(9, 1, 1), Topology::dumbbell(3, 4, 1, 1, 1)] {
                let cut = Cut::new(&topology, parts);
                assert_eq!(cut.hosts.len(), parts.min(topology.hosts as usize));
                assert!(cut.hosts.iter().all(|hosts| !hosts.is_empty()));
                assert!(cut.part_of.iter().all(|part| usize::from(*part) < cut.hosts.len()));
            }
        }
    }
}
