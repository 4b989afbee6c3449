//! Constructors of topologies.

use super::{LinkSpec, Topology};

/// Maximum arity of a fat-tree: 65,536 servers.
pub const MAX_ARITY: u32 = 64;
/// Maximum number of hosts of a fat-tree, oversubscribed or not.
pub const MAX_HOSTS: u32 = MAX_ARITY * MAX_ARITY * MAX_ARITY / 4;

/// Maximum oversubscription of a fat-tree of arity `k`: beyond it, there would be more than [`MAX_HOSTS`].
pub(super) fn most_times(k: u32) -> u32 {
    MAX_HOSTS / (k * k * k / 4)
}

/// Rates and delays of [`Topology::internet2`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Internet2 {
    /// Rate of a host that core links are dimensioned for, bit/s.
    pub rate: u64,
    /// Rate of a link between edge and core, or between host and core without edges, bit/s.
    pub access: u64,
    /// Rate of a link between host and edge, bit/s.
    pub host: u64,
    /// Delay of a core link, ns.
    pub core_delay: u64,
    /// Delay of all other links, ns.
    pub delay: u64,
    /// Whether there are edge switches.
    pub edge: bool,
}

impl Default for Internet2 {
    /// Returns the default case of §5.1.3: 1 Gbit/s to the core, 10 Gbit/s to the edge, 10 ms and 1 ms.
    fn default() -> Internet2 {
        const G: u64 = 1_000_000_000;
        Internet2 { rate: G, access: G, host: 10 * G, core_delay: 10_000_000, delay: 1_000_000, edge: true }
    }
}

/// A builder; nodes are numbered as in [`Topology`].
struct Builder(Topology);

impl Builder {
    fn new(name: String, hosts: u32, switches: u32) -> Builder {
        Builder(Topology { name, hosts, switches, links: Vec::new(), ids: Vec::new() })
    }

    fn link(&mut self, a: u32, b: u32, rate: u64, delay: u64) {
        self.0.links.push(LinkSpec { a, b, rate, delay, loss: 0.0 });
    }
}

impl Topology {
    /// `hosts` around one switch. `rate` in bit/s, `delay` of one link in ns.
    pub fn star(hosts: u32, rate: u64, delay: u64) -> Topology {
        let mut net = Builder::new(format!("star-{hosts}"), hosts, 1);
        for host in 0..hosts {
            net.link(host, hosts, rate, delay);
        }
        net.0
    }

    /// Two switches, one link between them of rate `bottleneck`, `left` hosts on one and `right` hosts on the other,
    /// linked at `rate` (both bit/s). All links have the same `delay`, ns. The hosts of the left come first.
    pub fn dumbbell(left: u32, right: u32, rate: u64, bottleneck: u64, delay: u64) -> Topology {
        let hosts = left + right;
        let mut net = Builder::new(format!("dumbbell-{left}-{right}"), hosts, 2);
        for host in 0..hosts {
            net.link(host, if host < left { hosts } else { hosts + 1 }, rate, delay);
        }
        net.link(hosts, hosts + 1, bottleneck, delay);
        net.0
    }

    /// `switches` in a ring, 3 or more, each linked to the next, and `hosts` at each. `rate` of all links in bit/s,
    /// `delay` of one in ns. The hosts of the first switch come first, and links of hosts before those of the ring.
    pub fn ring(switches: u32, hosts: u32, rate: u64, delay: u64) -> Topology {
        let total = switches * hosts;
        let mut net = Builder::new(format!("ring-{switches}-{hosts}"), total, switches);
        for host in 0..total {
            net.link(host, total + host / hosts, rate, delay);
        }
        for switch in 0..switches {
            net.link(total + switch, total + (switch + 1) % switches, rate, delay);
        }
        net.0
    }

    /// Two tiers: every one of `leaves` switches has `hosts` hosts, at `rate`, and a link to each of `spines` switches,
    /// at `uplink` (both bit/s). All links have the same `delay`, ns. Leaves are numbered before spines.
    pub fn leaf_spine(leaves: u32, spines: u32, hosts: u32, rate: u64, uplink: u64, delay: u64) -> Topology {
        let total = leaves * hosts;
        let mut net = Builder::new(format!("leaf-spine-{leaves}-{spines}-{hosts}"), total, leaves + spines);
        for host in 0..total {
            net.link(host, total + host / hosts, rate, delay);
        }
        for leaf in 0..leaves {
            for spine in 0..spines {
                net.link(total + leaf, total + leaves + spine, uplink, delay);
            }
        }
        net.0
    }

    /// The Internet-2 of universal packet scheduling (Mittal, UCB/EECS-2018-103, §5.1.3): ten core switches and sixteen
    /// links between them. Each core has ten edge switches with a host each, or ten hosts. The rate of a core link is
    /// the load of its paths when hosts send at [`Internet2::rate`] uniformly to hosts of all other cores, by routes
    /// over the lowest-numbered neighbours ([`Routes::lowest`](super::Routes::lowest)). Cores are numbered before
    /// edges.
    pub fn internet2(net: &Internet2) -> Topology {
        // Two cores, and the number of ordered pairs of cores whose path takes the link in one direction.
        const CORES: [(u32, u32, u64); 16] = [
            (0, 1, 5),
            (0, 2, 7),
            (0, 3, 13),
            (1, 2, 3),
            (1, 5, 5),
            (2, 4, 3),
            (3, 4, 5),
            (3, 5, 3),
            (3, 6, 9),
            (3, 7, 13),
            (4, 5, 1),
            (5, 6, 4),
            (6, 8, 8),
            (7, 8, 1),
            (7, 9, 7),
            (8, 9, 2),
        ];
        let (hosts, cores) = (100, 100);
        let edges = if net.edge { cores + 10 } else { cores };
        let mut built = Builder::new("internet2".to_owned(), hosts, edges + if net.edge { 100 } else { 10 } - hosts);
        for host in 0..hosts {
            if net.edge {
                built.link(host, edges + host, net.host, net.delay);
            } else {
                built.link(host, cores + host / 10, net.access, net.delay);
            }
        }
        for (a, b, pairs) in CORES {
            // Whole Mbit/s for hosts of 1 Gbit/s, rounded up.
            let rate = u128::from((pairs * 10_000).div_ceil(9)) * u128::from(net.rate) / 1_000;
            built.link(cores + a, cores + b, rate as u64, net.core_delay);
        }
        for edge in (0..hosts).filter(|_| net.edge) {
            built.link(cores + edge / 10, edges + edge, net.access, net.delay);
        }
        built.0
    }

    /// The three-tier fat-tree of Al-Fares et al., SIGCOMM 2008, as in IRN §4.3.1: `k` pods of `k/2` edge and `k/2`
    /// aggregation switches, `(k/2)²` core switches, `k³/4` hosts, full bisection bandwidth. `rate` of all links in
    /// bit/s, `delay` of one in ns. Switches are numbered edge, aggregation, core, each pod by pod.
    ///
    /// # Panics
    /// Unless `k` is even and 2 to [`MAX_ARITY`].
    pub fn fat_tree(k: u32, rate: u64, delay: u64) -> Topology {
        Topology::oversubscribed_fat_tree(k, 1, rate, delay)
    }

    /// [`Self::fat_tree`] with `times` as many hosts below the same edge switches, which have `times · k/2` ports down
    /// and `k/2` up: hosts can send `times` what the links above their switch carry. 1 is the full fat-tree; with 4 and
    /// `k` 8 it is the network of NDP §6.3, 512 hosts.
    ///
    /// # Panics
    /// Unless `k` is even and 2 to [`MAX_ARITY`], `times` is 1 or more, and hosts are at most [`MAX_HOSTS`].
    pub fn oversubscribed_fat_tree(k: u32, times: u32, rate: u64, delay: u64) -> Topology {
        assert!(k.is_multiple_of(2) && (2..=MAX_ARITY).contains(&k), "arity {k}");
        assert!(times >= 1 && times <= most_times(k), "{times} times the hosts");
        let half = k / 2;
        let per_tier = k * half;
        let hosts = per_tier * half * times;
        let (edges, aggregations, cores) = (hosts, hosts + per_tier, hosts + 2 * per_tier);
        let name = if times == 1 { format!("fat-tree-{k}") } else { format!("fat-tree-{k}-{times}-to-1") };
        let mut net = Builder::new(name, hosts, 2 * per_tier + half * half);
        for host in 0..hosts {
            net.link(host, edges + host / (half * times), rate, delay);
        }
        for edge in 0..per_tier {
            for up in 0..half {
                net.link(edges + edge, aggregations + edge / half * half + up, rate, delay);
            }
        }
        for aggregation in 0..per_tier {
            // The first aggregation switch of every pod has the first k/2 cores, and so on.
            for up in 0..half {
                net.link(aggregations + aggregation, cores + aggregation % half * half + up, rate, delay);
            }
        }
        net.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::Routes;
    use super::*;

    #[test]
    fn fat_trees_have_the_sizes_of_the_paper() {
        // IRN §4.3.1 and Table 4.4.
        for (k, hosts, switches) in [(4, 16, 20), (6, 54, 45), (8, 128, 80), (10, 250, 125), (16, 1024, 320)] {
            let net = Topology::fat_tree(k, 40_000_000_000, 2_000);
            assert_eq!((net.hosts, net.switches), (hosts, switches), "k={k}");
            assert_eq!(net.links.len() as u32, 3 * hosts, "k={k}");
            for switch in net.hosts..net.nodes() {
                assert_eq!(net.ports(switch).len() as u32, k, "k={k}, switch {switch}");
            }
            let routes = Routes::compute(&net, &|_| false);
            assert_eq!(routes.path(0, hosts - 1).map(|path| path.len()), Some(6), "k={k}");
        }
    }

    #[test]
    fn an_oversubscribed_fat_tree_has_more_hosts_and_the_same_switches() {
        for (k, times, hosts) in [(8, 4, 512), (4, 3, 48), (6, 1, 54), (2, 2, 4)] {
            let (full, net) = (Topology::fat_tree(k, 10, 1), Topology::oversubscribed_fat_tree(k, times, 10, 1));
            assert_eq!((net.hosts, net.switches), (hosts, full.switches), "k={k}, {times}");
            assert_eq!((net == full, times == 1), (times == 1, net.name == full.name));
            let (half, edges) = (k / 2, k * k / 2);
            for switch in 0..net.switches {
                let ports = net.ports(net.hosts + switch);
                let down = ports.iter().filter(|(_, peer)| net.is_host(*peer)).count() as u32;
                assert_eq!(down, if switch < edges { half * times } else { 0 }, "switch {switch}");
                let up = ports.len() as u32 - down;
                assert_eq!(up, if switch < edges { half } else { k }, "switch {switch}");
            }
            // Hosts are numbered switch by switch, and switches pod by pod.
            let rack = half * times;
            let routes = Routes::compute(&net, &|_| false);
            let hops = |dst| routes.path(0, dst).map(|path| path.len());
            assert_eq!(hops(rack - 1), Some(if rack == 1 { 0 } else { 2 }));
            assert_eq!((hops(hosts - 1), routes.ways(0, hosts - 1)), (Some(6), half * half), "k={k}, {times}");
            if k > 2 {
                assert_eq!((hops(rack), routes.ways(0, rack)), (Some(4), half));
            }
        }
    }

    /// Each link has the rate for the number of ordered pairs of cores whose paths it carries, in either direction.
    #[test]
    fn core_links_of_internet2_are_made_for_what_they_carry() {
        for edge in [true, false] {
            let net = Topology::internet2(&Internet2 { edge, ..Internet2::default() });
            assert_eq!((net.hosts, net.switches, net.links.len()), if edge { (100, 110, 216) } else { (100, 10, 116) });
            let routes = Routes::lowest(&net, &|_| false);
            let mut carried = vec![[0u64; 2]; net.links.len()];
            let mut hops = [0; 5];
            for (a, b) in (0..10).flat_map(|a| (0..10).map(move |b| (a, b))).filter(|(a, b)| a != b) {
                let mut node = 10 * a;
                let mut between = 0;
                for link in routes.path(10 * a, 10 * b + 9).unwrap() {
                    let spec = net.links[link];
                    carried[link][usize::from(spec.a == node)] += 1;
                    node = spec.peer(node);
                    between += usize::from(spec.delay == 10_000_000);
                }
                hops[between] += 1;
            }
            assert_eq!(hops, [0, 32, 34, 18, 6]);
            let cores = net.links.iter().zip(&carried).filter(|(link, _)| link.delay == 10_000_000);
            assert_eq!(cores.clone().count(), 16);
            for (link, [back, forth]) in cores {
                assert_eq!(link.rate, (forth * 10_000).div_ceil(9) * 1_000_000, "{link:?}");
                assert_eq!(forth, back, "{link:?}");
            }
        }
    }

    #[test]
    fn internet2_is_scaled_by_its_rate() {
        const M: u64 = 1_000_000;
        let tenth =
            Topology::internet2(&Internet2 { rate: 100 * M, access: 100 * M, host: 100 * M, ..Internet2::default() });
        let rates: Vec<u64> = [0, 100, 215].into_iter().map(|link| tenth.links[link].rate).collect();
        assert_eq!(rates, [100 * M, 555_600_000, 100 * M]);
    }

    #[test]
    fn every_host_has_one_link() {
        for net in [
            Topology::star(5, 1, 1),
            Topology::dumbbell(3, 4, 2, 1, 1),
            Topology::leaf_spine(3, 2, 4, 1, 2, 1),
            Topology::fat_tree(2, 1, 1),
            Topology::ring(3, 2, 1, 1),
        ] {
            for host in 0..net.hosts {
                assert_eq!(net.ports(host).len(), 1, "{} host {host}", net.name);
            }
        }
    }

    #[test]
    fn in_a_ring_the_shorter_way_round_is_taken() {
        let net = Topology::ring(5, 2, 10, 1);
        assert_eq!((net.hosts, net.switches, net.links.len()), (10, 5, 15));
        let routes = Routes::compute(&net, &|_| false);
        // Host 0 is at switch 10, host 9 at switch 14, its neighbour; host 4 at the second switch after that.
        let hops = |dst| routes.path(0, dst).map(|path| path.len());
        assert_eq!([hops(1), hops(9), hops(4), hops(6)], [Some(2), Some(3), Some(4), Some(4)]);
        for switch in 10..15 {
            assert_eq!(net.ports(switch).len(), 4);
        }
    }

    #[test]
    fn a_dumbbell_has_its_bottleneck_between_the_sides() {
        let net = Topology::dumbbell(2, 3, 10, 4, 1);
        let routes = Routes::compute(&net, &|_| false);
        let rates = |a, b| routes.path(a, b).unwrap().into_iter().map(|link| net.links[link].rate).collect::<Vec<_>>();
        assert_eq!(rates(0, 1), [10, 10]);
        assert_eq!(rates(0, 4), [10, 4, 10]);
        assert_eq!(rates(2, 4), [10, 10]);
    }
}
