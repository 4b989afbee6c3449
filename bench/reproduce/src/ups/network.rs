//! The networks and traffic matrices of the chapter. docs/reproduction-ups.md lists what the text leaves open.

use std::path::Path;

use irnic_fabric::sim::Routing;
use irnic_fabric::topology::{Internet2, LinkSpec, Topology};
use irnic_fabric::workload::cdf::{self, Reading};
use irnic_fabric::workload::poisson::{Pair, between};
use irnic_fabric::workload::{Flow, Sizes};

/// Length of a packet in the text, bytes, without headers except for TCP.
pub const PAPERS: u32 = 1_460;
/// Payload of a packet here, bytes.
pub const PAYLOAD: u32 = 1_024;
/// Factor by which a host hands packets to its queue faster than its link.
const HOST_SPEEDUP: u64 = 100;
/// One Gbit/s.
pub const G: u64 = 1_000_000_000;
/// Packets of a flow, and the cumulative share of flows: `CDF_aditya.txt` of github.com/NetSys/simulator.
const SIZES: &str = "1 0.5\n2 0.6\n3 0.7\n5 0.75\n7 0.8\n40 0.8125\n72 0.825\n137 0.85\n267 0.9\n1187 0.95\n2107 1\n";

/// Length of a packet on the wire, bytes: in the text, and here.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    pub text: u32,
    pub here: u32,
}

impl Wire {
    /// Packets of open-loop flows, as in the text.
    pub const OPEN: Wire = Wire { text: PAPERS, here: PAPERS };

    /// Scales a rate of the text, bit/s, so that each packet takes the same time as there.
    pub fn scaled(self, papers: u64) -> u64 {
        (u128::from(papers) * u128::from(self.here) / u128::from(self.text)) as u64
    }
}

/// A network.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Internet-2: rates of hosts' links and of edge routers', Gbit/s, and the divisor of all rates.
    Internet2(u64, u64, u64),
    /// The datacenter.
    FatTree,
}

impl Network {
    /// The topology, with rates at which a packet takes the same time as in the text.
    pub fn topology(self, wire: Wire) -> Topology {
        match self {
            Network::Internet2(host, edge, by) => {
                let [rate, host, access] = [1, host, edge].map(|rate| wire.scaled(rate * G) / by);
                Topology::internet2(&Internet2 { rate, host, access, ..Internet2::default() })
            }
            // The text says "full bisection" and gives no delays: 1 µs here.
            Network::FatTree => Topology::fat_tree(8, wire.scaled(10 * G), 1_000),
        }
    }

    /// The topology with a separate queue for each host: a switch with the host's link, to which the host has a link
    /// [`HOST_SPEEDUP`] times as fast. Packets of a NIC wait there, as in a host that is a single queue, rather than in
    /// the NIC. Also returns the nodes of these switches.
    pub fn with_host_queues(self, wire: Wire) -> (Topology, std::ops::Range<u32>) {
        let mut topology = self.topology(wire);
        let first = topology.hosts + topology.switches;
        for at in 0..topology.links.len() {
            let link = topology.links[at];
            let Some(host) = [link.a, link.b].into_iter().find(|node| *node < topology.hosts) else { continue };
            let (queue, other) = (first + host, if link.a == host { link.b } else { link.a });
            topology.links[at] = LinkSpec { a: host, b: queue, rate: link.rate * HOST_SPEEDUP, delay: 1, loss: 0.0 };
            topology.links.push(LinkSpec { a: queue, b: other, ..link });
        }
        topology.switches += topology.hosts;
        let queues = first..first + topology.hosts;
        (topology, queues)
    }

    /// The routing.
    pub fn routing(self) -> Routing {
        match self {
            Network::Internet2(..) => Routing::Lowest,
            Network::FatTree => Routing::Ecmp,
        }
    }

    /// Transmission time of a packet on the bottleneck, ns: T of the text.
    pub fn packet_time(self) -> u64 {
        let rate = match self {
            Network::Internet2(host, edge, by) => host.min(edge) * G / by,
            Network::FatTree => 10 * G,
        };
        u64::from(PAPERS) * 8 * G / rate
    }

    /// Poisson arrivals for `duration` ns that load core links by `load` %, or hosts' links in the datacenter, counting
    /// [`PAPERS`] bytes for each packet: to hosts at other cores, or to all others.
    pub fn flows(self, load: u32, wire: Wire, seed: u64, duration: u64) -> Result<Vec<Flow>, String> {
        // Core links are dimensioned for 1 Gbit/s per host.
        let (group, nominal, hosts) = match self {
            Network::Internet2(_, _, by) => (10, G / by, 100),
            Network::FatTree => (1, 10 * G, 128),
        };
        let rate =
            Wire { text: PAPERS, ..wire }.scaled(nominal) as f64 * f64::from(load) / 100.0 / f64::from(hosts - group);
        let all = (0..hosts).flat_map(|src| (0..hosts).map(move |dst| (src, dst)));
        let apart = all.filter(|(src, dst)| src / group != dst / group);
        let pairs: Vec<Pair> = apart.map(|(src, dst)| Pair { src, dst, rate, class: 0 }).collect();
        let reading = Reading { unit: PAYLOAD.into(), discrete: true };
        let sizes: Sizes = cdf::parse(Path::new("ups"), SIZES, reading).map_err(|e| e.to_string())?;
        Ok(between(&sizes, &pairs, duration, seed, PAYLOAD, wire.here - PAYLOAD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_take_the_time_of_the_texts() {
        let network = Network::Internet2(10, 1, 1);
        assert_eq!(network.packet_time(), 11_680);
        assert_eq!(Network::Internet2(1, 1, 10).packet_time(), 116_800);
        assert_eq!(Network::FatTree.packet_time(), 1_168);
        for (text, here, time) in [(PAPERS, PAPERS, 11_680), (PAPERS, 1_052, 11_680), (1_510, 1_052, 12_080)] {
            let slowest = network.topology(Wire { text, here }).links.iter().map(|link| link.rate).min();
            assert_eq!(slowest.map(|rate| u64::from(here) * 8 * G / rate), Some(time));
        }
    }

    #[test]
    fn hosts_with_queues_beside_them_are_as_far_apart_as_before() {
        let network = Network::Internet2(10, 1, 1);
        let (topology, queues) = network.with_host_queues(Wire::OPEN);
        assert_eq!((topology.hosts, topology.switches, queues), (100, 210, 210..310));
        let plain = network.topology(Wire::OPEN);
        assert_eq!(topology.links.len(), plain.links.len() + 100);
        for host in [0, 57] {
            let of = |node: u32| topology.links.iter().filter(move |link| link.a == node || link.b == node);
            let (own, link) = (of(host).next().expect("a link"), of(210 + host).nth(1).expect("a link"));
            let before = plain.links.iter().find(|link| link.a == host || link.b == host).expect("a link");
            assert_eq!((of(host).count(), of(210 + host).count()), (1, 2));
            assert_eq!((own.rate, link.rate, link.delay), (100 * before.rate, before.rate, before.delay));
        }
    }

    #[test]
    fn hosts_offer_what_the_text_says() {
        for (network, hosts) in [(Network::Internet2(10, 1, 1), 100), (Network::FatTree, 128)] {
            assert_eq!(network.topology(Wire::OPEN).hosts, hosts);
        }
        let flows = Network::Internet2(10, 1, 1).flows(70, Wire::OPEN, 1, 50_000_000).expect("flows");
        let bytes: u64 = flows.iter().map(|flow| flow.bytes / u64::from(PAYLOAD) * u64::from(PAPERS)).sum();
        // 100 hosts at 0.7 Gbit/s for 50 ms; sizes are heavy-tailed.
        let offered = bytes as f64 * 8.0 / (100.0 * 0.7e9 * 0.05);
        assert!((0.8..1.2).contains(&offered), "{offered}");
        assert!(flows.iter().all(|flow| flow.src / 10 != flow.dst / 10 && flow.bytes % 1_024 == 0));
    }
}
