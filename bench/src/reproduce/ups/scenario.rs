//! What is run (§5.1.3), as experiments. docs/reproduction-ups.md tells what the text leaves open.

use std::path::Path;

use irnic_fabric::experiment::Experiment;
use irnic_fabric::schedule::Detail;
use irnic_fabric::sim::{HeaderBytes, Routing, SimConfig};
use irnic_fabric::topology::{Internet2, Topology};
use irnic_fabric::workload::Sizes;
use irnic_fabric::workload::cdf::{self, Reading};
use irnic_fabric::workload::poisson::{Pair, between};
use irnic_transports::qp::Service;

use super::edge::Aqm;
use super::schedulers::{Order, switches};

/// Bytes of a packet on the wire, and of its payload.
pub const WIRE: u32 = 1_460;
const PAYLOAD: u32 = 1_024;
/// Packets of a flow and the share of flows that have no more: `CDF_aditya.txt` of github.com/NetSys/simulator.
pub const SIZES: &str =
    "1 0.5\n2 0.6\n3 0.7\n5 0.75\n7 0.8\n40 0.8125\n72 0.825\n137 0.85\n267 0.9\n1187 0.95\n2107 1\n";
const G: u64 = 1_000_000_000;

/// The sizes of flows.
pub fn sizes() -> Result<Sizes, String> {
    let sizes = cdf::parse(Path::new("ups"), SIZES, Reading { unit: PAYLOAD.into(), discrete: true });
    sizes.map_err(|e| e.to_string())
}

/// A network.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Internet-2: Gbit/s of hosts' links and of edge routers', and what all rates are divided by.
    Internet2(u64, u64, u64),
    /// The datacenter.
    FatTree,
}

/// What the original switches do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Original {
    /// An order that needs nothing of the sender.
    Order(Order),
    /// Shortest job first: packets of the flow with the fewest packets.
    Sjf,
}

/// What replays it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Least slack time first.
    Lstf,
    /// Least slack time first, by switches that interrupt packets.
    PreemptiveLstf,
    /// Earliest deadline first, which is the same with static headers.
    Edf,
    /// Static priorities: earliest departure from the network first.
    Priorities,
    /// A vector of times, one for each switch.
    Vector,
}

/// What is run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub network: Network,
    /// Per cent of the core links.
    pub load: u32,
    pub original: Original,
    pub by: By,
    /// Queue management, of runs that are not replayed.
    pub aqm: Option<Aqm>,
}

impl Scenario {
    /// The default: random order, replayed by LSTF.
    pub fn new(network: Network, load: u32) -> Scenario {
        Scenario { network, load, original: Original::Order(Order::Random), by: By::Lstf, aqm: None }
    }

    pub fn topology(&self) -> Topology {
        match self.network {
            Network::Internet2(host, edge, by) => {
                let [rate, host, access] = [1, host, edge].map(|rate| rate * G / by);
                Topology::internet2(&Internet2 { rate, host, access, ..Internet2::default() })
            }
            // The text says "full bisection" and nothing of delays: 1 µs here.
            Network::FatTree => Topology::fat_tree(8, 10 * G, 1_000),
        }
    }

    /// Senders and receivers: hosts at different cores, or all.
    pub fn pairs(&self, topology: &Topology) -> Vec<(u32, u32)> {
        let group = match self.network {
            Network::Internet2(..) => 10,
            Network::FatTree => 1,
        };
        let hosts = 0..topology.hosts;
        let of = |src: u32| hosts.clone().filter(move |dst| src / group != *dst / group).map(move |dst| (src, dst));
        hosts.clone().flat_map(of).collect()
    }

    /// What the load is a share of: 1 Gbit/s, for which the core links are made, in the datacenter hosts' links; bit/s.
    pub fn nominal(&self) -> u64 {
        match self.network {
            Network::Internet2(_, _, by) => G / by,
            Network::FatTree => 10 * G,
        }
    }

    pub fn routing(&self) -> Routing {
        match self.network {
            Network::Internet2(..) => Routing::Lowest,
            Network::FatTree => Routing::Ecmp,
        }
    }

    /// Time of a packet on the bottleneck, ns: T of the text.
    pub fn packet_time(&self) -> u64 {
        let rate = match self.network {
            Network::Internet2(host, edge, by) => host.min(edge) * G / by,
            Network::FatTree => 10 * G,
        };
        u64::from(WIRE) * 8 * G / rate
    }

    /// Switches of the original network.
    fn order(&self) -> Order {
        match self.original {
            Original::Order(order) => order,
            Original::Sjf => Order::Rank,
        }
    }

    /// Returns the original run with a seed, of flows that arrive for so many ns. Of shortest job first, whose senders have to say how long flows are, the run
    /// that says when packets enter, which is the same.
    pub fn config(&self, seed: u64, duration: u64) -> Result<SimConfig, String> {
        let topology = self.topology();
        let pairs = self.pairs(&topology);
        let sizes = sizes()?;
        let senders = f64::from(topology.hosts);
        let rate = self.nominal() as f64 * f64::from(self.load) / 100.0 * senders / pairs.len() as f64;
        let pairs: Vec<Pair> = pairs.into_iter().map(|(src, dst)| Pair { src, dst, rate, class: 0 }).collect();
        let mut experiment = Experiment::default();
        experiment.flows = Some(between(&sizes, &pairs, duration, seed, PAYLOAD, WIRE - PAYLOAD));
        experiment.topology = topology;
        experiment.routing = self.routing();
        experiment.service = Service::Uc;
        // A host is one queue, first come, first served.
        experiment.quantum = 65_536;
        experiment.headers = HeaderBytes::Fixed(WIRE - PAYLOAD);
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        let order = if self.original == Original::Sjf { Order::Fifo } else { self.order() };
        config.switch = switches(order);
        config.schedule = Some(if self.by == By::Vector { Detail::Hops } else { Detail::Ends });
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_offer_what_the_text_says() {
        let scenario = Scenario::new(Network::Internet2(10, 1, 1), 70);
        let config = scenario.config(1, 50_000_000).expect("a configuration");
        let bytes: u64 = config.flows.iter().map(|flow| flow.bytes / u64::from(PAYLOAD) * u64::from(WIRE)).sum();
        // 100 hosts at 0.7 Gbit/s for 50 ms; sizes are heavy-tailed.
        let offered = bytes as f64 * 8.0 / (100.0 * 0.7e9 * 0.05);
        assert!((0.8..1.2).contains(&offered), "{offered}");
        assert!(config.flows.iter().all(|flow| flow.src / 10 != flow.dst / 10 && flow.bytes % 1_024 == 0));
        assert_eq!(scenario.packet_time(), 11_680);
        assert_eq!(Scenario::new(Network::Internet2(1, 1, 10), 70).packet_time(), 116_800);
        assert_eq!(Scenario::new(Network::FatTree, 70).packet_time(), 1_168);
    }
}
