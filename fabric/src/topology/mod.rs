//! Topologies: hosts, switches and the links between them, independent of the type of the switches.
//!
//! [`Topology`] is built by a constructor, read from a file of the ns-3 RDMA simulators ([`ns3`]), or parsed from text
//! ([`spec`]). [`routes`] has the routing tables.

mod build;
pub mod ns3;
pub mod routes;
pub mod spec;

pub use build::{Internet2, MAX_ARITY, MAX_HOSTS};
pub use routes::Routes;
pub(crate) use routes::Wires;
pub use spec::names;

/// A network: nodes `0..hosts` are hosts, `hosts..hosts + switches` are switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Name in reports.
    pub name: String,
    /// Number of hosts.
    pub hosts: u32,
    /// Number of switches.
    pub switches: u32,
    /// Links, each in both directions. Their order numbers the ports of a node.
    pub links: Vec<LinkSpec>,
    /// Id of each node in the file it came from; empty if they equal the numbers here.
    pub ids: Vec<u32>,
}

/// A link, the same in both directions.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// One end, a node.
    pub a: u32,
    /// Other end, a node.
    pub b: u32,
    /// Rate, bit/s.
    pub rate: u64,
    /// Propagation delay, ns.
    pub delay: u64,
    /// Probability that a packet is lost on it, 0 to 1.
    pub loss: f64,
}

impl LinkSpec {
    /// The end that is not `node`.
    pub fn peer(&self, node: u32) -> u32 {
        if self.a == node { self.b } else { self.a }
    }
}

impl Topology {
    /// The shortest propagation delay of all links, ns; 0 without links.
    pub fn shortest_delay(&self) -> u64 {
        self.links.iter().map(|link| link.delay).min().unwrap_or(0)
    }

    /// Number of hosts and switches together.
    pub fn nodes(&self) -> u32 {
        self.hosts + self.switches
    }

    /// Whether a node is a host.
    pub fn is_host(&self, node: u32) -> bool {
        node < self.hosts
    }

    /// Id of a node in the file that it came from; otherwise its number.
    pub fn id(&self, node: u32) -> u32 {
        self.ids.get(node as usize).copied().unwrap_or(node)
    }

    /// Name of a node in results: `h0` for the first host, `s0` for the first switch.
    pub fn label(&self, node: u32) -> String {
        match node.checked_sub(self.hosts) {
            None => format!("h{node}"),
            Some(switch) => format!("s{switch}"),
        }
    }

    /// The node with this id or name in results.
    pub fn node_named(&self, name: &str) -> Option<u32> {
        let after = |letter| name.strip_prefix(letter).and_then(|number: &str| number.parse::<u32>().ok());
        match (after('h'), after('s')) {
            (Some(host), _) => Some(host).filter(|host| *host < self.hosts),
            (_, Some(switch)) => Some(switch).filter(|switch| *switch < self.switches).map(|s| self.hosts + s),
            _ => {
                let id = name.parse().ok()?;
                (0..self.nodes()).find(|node| self.id(*node) == id)
            }
        }
    }

    /// The host with this `id` in the file.
    pub fn host_with_id(&self, id: u32) -> Option<u32> {
        if self.ids.is_empty() {
            return (id < self.hosts).then_some(id);
        }
        // Hosts are numbered in the order of their ids.
        self.ids[..self.hosts as usize].binary_search(&id).ok().map(|host| host as u32)
    }

    /// The links of a node, in port order, each with the node at its other end. Linear in all links: for single nodes.
    pub fn ports(&self, node: u32) -> Vec<(usize, u32)> {
        let links = self.links.iter().enumerate();
        links.filter(|(_, link)| link.a == node || link.b == node).map(|(at, link)| (at, link.peer(node))).collect()
    }

    /// Distance of each node from the nearest host, in links; 0 for hosts, [`u32::MAX`] if none is reachable.
    pub fn tiers(&self) -> Vec<u32> {
        let wires = Wires::new(self);
        let mut tiers = vec![u32::MAX; self.nodes() as usize];
        let mut queue: Vec<u32> = (0..self.hosts).collect();
        queue.iter().for_each(|host| tiers[*host as usize] = 0);
        let mut at = 0;
        while let Some(&node) = queue.get(at) {
            at += 1;
            for &(_, peer) in wires.of(node) {
                if tiers[peer as usize] == u32::MAX {
                    tiers[peer as usize] = tiers[node as usize] + 1;
                    queue.push(peer);
                }
            }
        }
        tiers
    }

    /// The rate at which each host can send over all its links, bit/s.
    pub fn host_rates(&self) -> Vec<u64> {
        let mut rates = vec![0; self.hosts as usize];
        for link in &self.links {
            for node in [link.a, link.b] {
                if self.is_host(node) {
                    rates[node as usize] += link.rate;
                }
            }
        }
        rates
    }
}
