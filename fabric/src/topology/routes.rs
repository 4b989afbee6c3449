//! Routing tables: all shortest paths by number of links. Hosts do not forward.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{LinkSpec, Topology};

/// Distance of unreachable nodes.
const UNREACHABLE: u32 = u32::MAX;
/// The empty set of ports.
const NOWHERE: u32 = 0;
/// No node.
const NO_NODE: u32 = u32::MAX;

/// For every node and destination host, the ports on shortest paths.
///
/// Hosts with one link to the same switch are one destination for all but that switch, and have no rows of their own;
/// equal sets of ports are stored once. A fat-tree of 1,024 servers thus takes a quarter of a megabyte.
#[derive(Clone, Debug)]
pub struct Routes {
    wires: Wires,
    /// By host, its destination group.
    group: Vec<u32>,
    groups: usize,
    /// By host, the last switch of all packets for it, or `NO_NODE` if it is a group of its own.
    gate: Vec<u32>,
    /// By host with a gate, the set of ports at the gate, and at the host.
    last: Vec<(u32, u32)>,
    /// By node, its row in the table, unless it is a host with a gate.
    row: Vec<u32>,
    /// By row and group, the set of ports. Nodes with equal rows share them.
    table: Vec<u32>,
    sets: Sets,
}

/// Sets of ports, each stored once.
#[derive(Clone, Debug)]
struct Sets {
    /// Start of each set in `ports`, and end of the last one.
    starts: Vec<u32>,
    ports: Vec<u16>,
}

/// The links of each node, in port order.
#[derive(Clone, Debug)]
pub(crate) struct Wires {
    starts: Vec<u32>,
    /// Link, and the node at its other end.
    ends: Vec<(u32, u32)>,
    hosts: u32,
}

impl Wires {
    pub(crate) fn new(topology: &Topology) -> Wires {
        let mut starts = vec![0u32; topology.nodes() as usize + 1];
        for link in &topology.links {
            starts[link.a as usize + 1] += 1;
            starts[link.b as usize + 1] += 1;
        }
        for node in 1..starts.len() {
            starts[node] += starts[node - 1];
        }
        let mut next = starts.clone();
        let mut ends = vec![(0, 0); 2 * topology.links.len()];
        for (at, link) in topology.links.iter().enumerate() {
            for node in [link.a, link.b] {
                ends[next[node as usize] as usize] = (at as u32, link.peer(node));
                next[node as usize] += 1;
            }
        }
        Wires { starts, ends, hosts: topology.hosts }
    }

    pub(crate) fn of(&self, node: u32) -> &[(u32, u32)] {
        &self.ends[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }

    /// The port of `node` that is an end of `link`.
    fn port(&self, node: u32, link: u32) -> u16 {
        port_number(self.of(node).iter().position(|(of, _)| *of == link).expect("a link has two ends"))
    }

    fn nodes(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// Computes the number of links from every node to `to`, over links that are not `down`, into `distance`.
    fn distances(&self, to: u32, down: &impl Fn(usize) -> bool, queue: &mut Vec<u32>, distance: &mut Vec<u32>) {
        distance.clear();
        distance.resize(self.nodes() as usize, UNREACHABLE);
        distance[to as usize] = 0;
        queue.clear();
        queue.push(to);
        let mut at = 0;
        while at < queue.len() {
            let node = queue[at];
            at += 1;
            if node < self.hosts && node != to {
                continue;
            }
            for &(link, peer) in self.of(node) {
                if distance[peer as usize] == UNREACHABLE && !down(link as usize) {
                    distance[peer as usize] = distance[node as usize] + 1;
                    queue.push(peer);
                }
            }
        }
    }
}

/// Numbers sets of ports in order of first use.
struct Interner {
    known: BTreeMap<Vec<u16>, u32>,
    sets: Sets,
}

impl Interner {
    fn new() -> Interner {
        Interner {
            known: BTreeMap::from([(Vec::new(), NOWHERE)]),
            sets: Sets { starts: vec![0, 0], ports: Vec::new() },
        }
    }

    fn number(&mut self, ports: &[u16]) -> u32 {
        if let Some(&number) = self.known.get(ports) {
            return number;
        }
        let number = self.known.len() as u32;
        self.known.insert(ports.to_vec(), number);
        self.sets.ports.extend_from_slice(ports);
        self.sets.starts.push(self.sets.ports.len() as u32);
        number
    }
}

impl Routes {
    /// Computes all routes over the links that are not `down`. To be called again when a link fails or recovers.
    ///
    /// # Panics
    /// If a node has more than 65,536 links.
    pub fn compute(topology: &Topology, down: &impl Fn(usize) -> bool) -> Routes {
        Routes::find(topology, down, false)
    }

    /// Computes one route from every node to every host: of the neighbours on shortest paths, the one with the lowest
    /// number.
    ///
    /// # Panics
    /// As [`Self::compute`].
    pub fn lowest(topology: &Topology, down: &impl Fn(usize) -> bool) -> Routes {
        Routes::find(topology, down, true)
    }

    fn find(topology: &Topology, down: &impl Fn(usize) -> bool, lowest: bool) -> Routes {
        let wires = Wires::new(topology);
        let hosts = topology.hosts as usize;
        let mut sets = Interner::new();
        let (mut group, mut gate, mut last) = (vec![0; hosts], vec![NO_NODE; hosts], vec![(NOWHERE, NOWHERE); hosts]);
        // The target of every group's paths: a switch, or a host that does not have exactly one link to a switch.
        let mut targets = Vec::new();
        let mut group_of_switch = BTreeMap::new();
        for host in 0..topology.hosts {
            let mut up = wires.of(host).iter().filter(|(link, _)| !down(*link as usize));
            let target = match (up.next(), up.next()) {
                (Some(&(link, switch)), None) if !topology.is_host(switch) => {
                    gate[host as usize] = switch;
                    let mut port = |node| sets.number(&[wires.port(node, link)]);
                    last[host as usize] = (port(switch), port(host));
                    switch
                }
                _ => host,
            };
            group[host as usize] = match group_of_switch.entry(target) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    targets.push(target);
                    *new.insert(targets.len() as u32 - 1)
                }
            };
        }

        let groups = targets.len();
        let with_row = |node: &u32| gate.get(*node as usize).is_none_or(|gate| *gate == NO_NODE);
        let nodes: Vec<u32> = (0..topology.nodes()).filter(with_row).collect();
        let mut row = vec![0; topology.nodes() as usize];
        for (at, node) in nodes.iter().enumerate() {
            row[*node as usize] = at as u32;
        }
        let mut table = vec![NOWHERE; nodes.len() * groups];
        let (mut queue, mut distance, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        for (at, &target) in targets.iter().enumerate() {
            wires.distances(target, down, &mut queue, &mut distance);
            for &node in nodes.iter().filter(|node| distance[**node as usize] != UNREACHABLE) {
                ports.clear();
                for (port, &(link, peer)) in wires.of(node).iter().enumerate() {
                    let passes = peer == target || !topology.is_host(peer);
                    let closer = distance[peer as usize] != UNREACHABLE
                        && distance[peer as usize] + 1 == distance[node as usize];
                    if passes && closer && !down(link as usize) {
                        ports.push(port_number(port));
                    }
                }
                if lowest && let Some(first) = ports.iter().min_by_key(|port| wires.of(node)[usize::from(**port)].1) {
                    ports = vec![*first];
                }
                table[row[node as usize] as usize * groups + at] = sets.number(&ports);
            }
        }
        // A gate's entry for its own hosts is never used here, and may equal any other.
        for (at, &target) in targets.iter().enumerate().filter(|(_, target)| !topology.is_host(**target)) {
            let first = row[target as usize] as usize * groups;
            table[first + at] = table[first + if at == 0 { groups - 1 } else { 0 }];
        }
        let mut known = BTreeMap::new();
        let mut shared = Vec::new();
        for node in nodes {
            let own = &table[row[node as usize] as usize * groups..][..groups];
            row[node as usize] = *known.entry(own).or_insert_with(|| {
                shared.extend_from_slice(own);
                (shared.len() / groups.max(1)) as u32 - 1
            });
        }
        Routes { wires, group, groups, gate, last, row, table: shared, sets: sets.sets }
    }

    /// The ports of `node` on shortest paths to the host `dst`, ascending. Empty if it is unreachable, or is the node
    /// itself.
    #[inline]
    pub fn ports(&self, node: u32, dst: u32) -> &[u16] {
        let set = self.set(node, dst);
        let sets = &self.sets;
        &sets.ports[sets.starts[set as usize] as usize..sets.starts[set as usize + 1] as usize]
    }

    /// Prefetches what [`Self::ports`] reads.
    #[inline]
    pub fn fetch(&self, node: u32, dst: u32) {
        let place = self.row[node as usize] as usize * self.groups + self.group[dst as usize] as usize;
        if let Some(set) = self.table.get(place) {
            crate::prefetch::fetch(set);
        }
    }

    /// Has the switch `node` use only `port` for `dst`, and for all hosts behind the same switch; no effect at that
    /// switch itself.
    pub fn detour(&mut self, node: u32, dst: u32, port: u16) {
        if self.gate[dst as usize] == node {
            return;
        }
        self.sets.ports.push(port);
        self.sets.starts.push(self.sets.ports.len() as u32);
        // From now on the node has a row of its own.
        let shared = self.row[node as usize] as usize * self.groups;
        self.table.extend_from_within(shared..shared + self.groups);
        let own = self.table.len() - self.groups;
        self.row[node as usize] = (own / self.groups) as u32;
        let place = own + self.group[dst as usize] as usize;
        self.table[place] = self.sets.starts.len() as u32 - 2;
    }

    #[inline]
    fn set(&self, node: u32, dst: u32) -> u32 {
        let host = dst as usize;
        if self.gate[host] == node {
            return self.last[host].0;
        }
        if node == dst {
            return NOWHERE;
        }
        match self.gate.get(node as usize) {
            Some(&gate) if gate != NO_NODE => match self.set(gate, dst) {
                NOWHERE => NOWHERE,
                _ => self.last[node as usize].1,
            },
            _ => self.table[self.row[node as usize] as usize * self.groups + self.group[host] as usize],
        }
    }

    /// The link and the node behind a port.
    pub fn wire(&self, node: u32, port: u16) -> (usize, u32) {
        let (link, peer) = self.wires.of(node)[usize::from(port)];
        (link as usize, peer)
    }

    /// The links of a shortest path between two hosts, in order: the one over the first port everywhere. `None` if
    /// there is none; empty from a host to itself.
    pub fn path(&self, src: u32, dst: u32) -> Option<Vec<usize>> {
        let mut path = Vec::new();
        let mut node = src;
        while node != dst {
            let (link, peer) = self.wire(node, *self.ports(node, dst).first()?);
            path.push(link);
            node = peer;
        }
        Some(path)
    }

    /// The number of paths between two hosts: the product of the numbers of choices at the switches along the first
    /// path. If these numbers differ between paths, as after a failure, several labels below it
    /// ([`crate::network::Routing::Source`]) name the same path. 0 if there is none.
    pub fn ways(&self, src: u32, dst: u32) -> u32 {
        let (mut ways, mut node) = (1u32, src);
        while node != dst {
            let ports = self.ports(node, dst);
            let Some(first) = ports.first() else { return 0 };
            if node != src {
                ways = ways.saturating_mul(ports.len() as u32);
            }
            node = self.wire(node, *first).1;
        }
        ways
    }

    /// Memory used, bytes.
    pub fn bytes(&self) -> usize {
        let hosts = self.group.len() + self.gate.len() + 2 * self.last.len();
        let words = hosts + self.row.len() + self.table.len() + self.sets.starts.len() + self.wires.starts.len();
        4 * words + 8 * self.wires.ends.len() + 2 * self.sets.ports.len()
    }
}

impl Topology {
    /// The number of links on a shortest path between two hosts. For many pairs, use [`Routes::path`].
    pub fn path_hops(&self, a: u32, b: u32) -> Option<u32> {
        let (mut queue, mut distance) = (Vec::new(), Vec::new());
        Wires::new(self).distances(b, &|_| false, &mut queue, &mut distance);
        Some(distance[a as usize]).filter(|hops| *hops != UNREACHABLE)
    }

    /// The links of a path returned by [`Routes::path`], in order.
    pub fn along<'a>(&'a self, path: &'a [usize]) -> impl Iterator<Item = &'a LinkSpec> {
        path.iter().map(|link| &self.links[*link])
    }
}

fn port_number(port: usize) -> u16 {
    u16::try_from(port).expect("a node has at most 65,536 links")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: fn(usize) -> bool = |_| false;

    /// Follows every port of every set and checks against a plain search that each step comes one link closer.
    fn check(topology: &Topology, down: &impl Fn(usize) -> bool) {
        let routes = Routes::compute(topology, down);
        let wires = Wires::new(topology);
        let (mut queue, mut distance) = (Vec::new(), Vec::new());
        for dst in 0..topology.hosts {
            wires.distances(dst, down, &mut queue, &mut distance);
            for node in 0..topology.nodes() {
                let closer: Vec<u16> = topology
                    .ports(node)
                    .iter()
                    .enumerate()
                    .filter(|(_, (link, peer))| {
                        let far = distance[node as usize];
                        far != UNREACHABLE
                            && !down(*link)
                            && (*peer == dst || !topology.is_host(*peer))
                            && distance[*peer as usize] < far
                    })
                    .map(|(port, _)| port as u16)
                    .collect();
                assert_eq!(routes.ports(node, dst), closer, "{}: from {node} to {dst}", topology.name);
            }
        }
    }

    #[test]
    fn ports_are_those_that_lead_closer() {
        for topology in [
            Topology::star(4, 1, 1),
            Topology::dumbbell(2, 3, 1, 1, 1),
            Topology::leaf_spine(3, 2, 2, 1, 1, 1),
            Topology::fat_tree(4, 1, 1),
            Topology::oversubscribed_fat_tree(4, 2, 1, 1),
        ] {
            check(&topology, &UP);
            for failed in 0..topology.links.len() {
                check(&topology, &|link| link == failed);
            }
            check(&topology, &|link| link % 3 == 1);
        }
    }

    fn link(a: u32, b: u32) -> LinkSpec {
        LinkSpec { a, b, rate: 1, delay: 1, loss: 0.0 }
    }

    fn network(hosts: u32, switches: u32, links: &[(u32, u32)]) -> Topology {
        let links = links.iter().map(|(a, b)| link(*a, *b)).collect();
        Topology { name: "test".to_owned(), hosts, switches, links, ids: Vec::new() }
    }

    #[test]
    fn hosts_pass_nothing_on() {
        // Host 1 has a link to either switch, but does not connect them.
        let net = network(3, 2, &[(0, 3), (1, 3), (1, 4), (2, 4)]);
        check(&net, &UP);
        let routes = Routes::compute(&net, &UP);
        assert_eq!(routes.path(0, 2), None);
        assert_eq!(routes.path(0, 1), Some(vec![0, 1]));
        assert_eq!(routes.path(1, 2), Some(vec![2, 3]));
        assert_eq!(net.path_hops(0, 2), None);
        assert_eq!(net.path_hops(1, 2), Some(2));
    }

    #[test]
    fn parallel_links_and_hosts_of_two_links_spread() {
        let net = network(2, 2, &[(0, 2), (0, 2), (1, 3), (2, 3), (2, 3)]);
        check(&net, &UP);
        let routes = Routes::compute(&net, &UP);
        assert_eq!(routes.ports(0, 1), [0, 1]);
        assert_eq!(routes.ports(2, 1), [2, 3]);
        assert_eq!(routes.ports(2, 0), [0, 1]);
        assert_eq!(routes.ports(0, 0), []);
    }

    #[test]
    fn two_hosts_need_no_switch() {
        let net = network(2, 0, &[(0, 1)]);
        let routes = Routes::compute(&net, &UP);
        assert_eq!(routes.path(0, 1), Some(vec![0]));
        assert_eq!(routes.path(0, 0), Some(vec![]));
        assert_eq!(Routes::compute(&net, &|_| true).path(0, 1), None);
    }

    #[test]
    fn a_fat_tree_spreads_over_half_of_its_ports_upwards() {
        let k = 6;
        let net = Topology::fat_tree(k, 1, 1);
        let routes = Routes::compute(&net, &UP);
        let (edge, aggregation, core) = (net.hosts, net.hosts + 18, net.hosts + 36);
        assert_eq!(routes.ports(0, net.hosts - 1), [0]);
        assert_eq!(routes.ports(edge, net.hosts - 1), [3, 4, 5]);
        assert_eq!(routes.ports(edge, 1), [1]);
        assert_eq!(routes.ports(aggregation, net.hosts - 1), [3, 4, 5]);
        assert_eq!(routes.ports(aggregation, 0), [0]);
        assert_eq!(routes.ports(core, net.hosts - 1), [5]);
    }

    #[test]
    fn a_fat_tree_has_a_way_by_each_of_its_cores() {
        let k = 6;
        let net = Topology::fat_tree(k, 1, 1);
        let routes = Routes::compute(&net, &UP);
        // In another pod, in the same pod, behind the same switch.
        assert_eq!([net.hosts - 1, 3, 1].map(|dst| routes.ways(0, dst)), [k * k / 4, k / 2, 1]);
        assert_eq!(routes.ways(0, 0), 1);
        let first = net.ports(0)[0].0;
        assert_eq!(Routes::compute(&net, &|link| link == first).ways(0, 1), 0);
    }

    #[test]
    fn routes_of_a_thousand_servers_are_small() {
        let net = Topology::fat_tree(16, 1, 1);
        let routes = Routes::compute(&net, &UP);
        assert!(routes.bytes() < 300_000, "{} bytes", routes.bytes());
    }
}
