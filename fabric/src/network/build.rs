//! Construction of a network: hosts, switches and the links between them.

use rand_pcg::Pcg64Mcg;

use super::links::routes;
use super::{
    Agenda, CreditConfig, End, Endpoint, Event, EventQueue, Host, Network, NetworkConfig, NetworkError, Packets, Port,
    PortId, SwitchNode, mix,
};
use crate::switch::{
    Any, Breaker, Escape, HolConfig, InputQueued, Ledger, RemoteSwitch, Rocc, SharedBuffer, Switch, SwitchConfig,
    with_tables,
};
use crate::topology::{Topology, Wires};

/// Builds the switch of `node` with these ports and this wiring.
fn switch(config: &NetworkConfig, node: u32, ports: &[Port], wires: &Wires) -> Box<dyn Switch> {
    let Topology { hosts, switches, links, .. } = &config.topology;
    let edges = || wires.of(node).iter().map(|(_, peer)| peer < hosts).collect::<Vec<bool>>();
    let switch: Box<dyn Switch> = match &config.hol {
        None => config.switch_at(node).build(node, ports),
        Some(HolConfig::Breaker(breaker)) => {
            Box::new(Breaker::around(config.switch_at(node).build(node, ports), breaker, node, ports, &edges()))
        }
        Some(HolConfig::Escape(escape)) => {
            let delay = links.iter().map(|link| link.delay).max().unwrap_or(0);
            let rate = links.iter().map(|link| link.rate).min().unwrap_or(1);
            let reclaim = escape.reclaim_in(*switches, delay, rate);
            let edges = edges();
            // Every packet passes both: the usual combinations are monomorphized.
            match config.switch_at(node) {
                SwitchConfig::InputQueued(inner) => {
                    Box::new(Escape::around(InputQueued::new(inner, ports), escape, ports, &edges, reclaim))
                }
                SwitchConfig::SharedBuffer(inner) => {
                    Box::new(Escape::around(SharedBuffer::new(inner, ports), escape, ports, &edges, reclaim))
                }
                other => Box::new(Escape::around(Any(other.build(node, ports)), escape, ports, &edges, reclaim)),
            }
        }
    };
    match &config.rocc {
        None => switch,
        Some(rocc) => Box::new(Rocc::around(switch, rocc, node, ports)),
    }
}

/// The ports of a network under construction, contiguous by node.
struct PortTable {
    wires: Wires,
    ports: Vec<Port>,
    /// By node, its first port; at the end, the number of ports.
    first: Vec<PortId>,
}

impl PortTable {
    /// Creates the ports at both ends of each link; those of a node are in the order of its links.
    fn new(topology: &Topology) -> PortTable {
        let wires = Wires::new(topology);
        let mut ports: Vec<Port> = Vec::with_capacity(2 * topology.links.len());
        let mut first = Vec::with_capacity(topology.nodes() as usize + 1);
        let mut ends = vec![[u32::MAX; 2]; topology.links.len()];
        for node in 0..topology.nodes() {
            first.push(ports.len() as PortId);
            for (local, &(link, _)) in wires.of(node).iter().enumerate() {
                let spec = &topology.links[link as usize];
                ends[link as usize][usize::from(spec.b == node)] = ports.len() as PortId;
                ports.push(Port::new(node, local as u16, u32::MAX, link, spec.rate, spec.delay, spec.loss));
            }
        }
        first.push(ports.len() as PortId);
        for [a, b] in ends {
            ports[a as usize].peer = b;
            ports[b as usize].peer = a;
        }
        PortTable { wires, ports, first }
    }

    /// Has the ports of all switches, the nodes from `hosts` on, grant these credits to their neighbours.
    fn grant_credits(&mut self, credits: CreditConfig, hosts: u32) {
        for at in 0..self.ports.len() {
            if self.ports[at].node >= hosts {
                self.ports[at].grant_credit(credits);
                let peer = self.ports[at].peer as usize;
                self.ports[peer].set_credit(credits);
            }
        }
    }

    /// Marks the ports whose link leads from one part of the network to another.
    fn mark_cuts(&mut self, events: &impl Agenda) {
        for at in 0..self.ports.len() {
            let peer = self.ports[self.ports[at].peer as usize].node;
            let cut = events.owns(self.ports[at].node) != events.owns(peer);
            self.ports[at].set_cut(cut);
        }
    }

    /// Builds all switches, and prepares the ports of those that interrupt packets for it.
    fn switches(&mut self, config: &NetworkConfig, events: &impl Agenda) -> Vec<SwitchNode> {
        let nodes = config.topology.hosts..config.topology.nodes();
        let switches: Vec<SwitchNode> = nodes.map(|node| self.switch_node(config, node, events.owns(node))).collect();
        for node in switches.iter().filter(|node| node.switch.preempts()) {
            let own = node.first as usize..(node.first + node.count) as usize;
            self.ports[own].iter_mut().for_each(Port::preempt);
        }
        switches
    }

    /// Builds the switch of `node` with its random numbers, or a placeholder unless this part of the network owns it.
    fn switch_node(&self, config: &NetworkConfig, node: u32, owned: bool) -> SwitchNode {
        let range = self.first[node as usize] as usize..self.first[node as usize + 1] as usize;
        let ports = &self.ports[range.clone()];
        SwitchNode {
            switch: if owned { switch(config, node, ports, &self.wires) } else { Box::new(RemoteSwitch) },
            rng: Pcg64Mcg::new(u128::from(config.seed) << 64 | u128::from(node) << 1 | 1),
            first: range.start as PortId,
            count: range.len() as u32,
            salt: mix(config.seed as u32 ^ mix(node)),
            sprayed: 0,
            wakes: u64::MAX,
        }
    }
}

impl<E: Endpoint> Network<E> {
    /// A network at time 0 with an endpoint for each host, in order, and their shared state.
    pub fn new(config: NetworkConfig, endpoints: Vec<E>, shared: E::Shared) -> Result<Network<E>, NetworkError> {
        let mut network = Network::build(config, endpoints, shared)?;
        network.schedule_changes();
        for host in 0..network.all_hosts {
            network.settle(host);
        }
        Ok(network)
    }

    /// A network at time 0 with no events, not even link changes.
    pub(crate) fn build(
        config: NetworkConfig,
        endpoints: Vec<E>,
        shared: E::Shared,
    ) -> Result<Network<E>, NetworkError> {
        config.check()?;
        let (endpoints_given, hosts) = (endpoints.len(), config.topology.hosts);
        if endpoints_given != hosts as usize {
            return Err(NetworkError::Endpoints { endpoints: endpoints_given, hosts });
        }
        Ok(Network::assemble(config, EventQueue::new(), endpoints, shared))
    }
}

impl<E: Endpoint, A: Agenda> Network<E, A> {
    /// The part of a network that `events` owns, with an endpoint for each of its hosts, in order.
    pub(crate) fn assemble(config: NetworkConfig, events: A, endpoints: Vec<E>, shared: E::Shared) -> Network<E, A> {
        let all_hosts = config.topology.hosts;
        let mut table = PortTable::new(&config.topology);
        if let Some(credits) = config.switch.credits() {
            table.grant_credits(credits, all_hosts);
        }
        if A::PARTED {
            table.mark_cuts(&events);
        }
        let own: Vec<u32> = (0..all_hosts).filter(|&host| events.owns(host)).collect();
        let mut places = vec![u32::MAX; if A::PARTED { all_hosts as usize } else { 0 }];
        if A::PARTED {
            (0..).zip(&own).for_each(|(place, &host)| places[host as usize] = place);
        }
        let hosts = endpoints.into_iter().zip(own.iter().map(|&host| table.first[host as usize]));
        let hosts = hosts.map(|(endpoint, port)| Host { endpoint, port, wakes: u64::MAX }).collect();
        let routes = routes(&config, &|_| false);
        let mut config = config;
        let all = std::iter::once(&mut config.switch).chain(config.differing.iter_mut().map(|(_, switch)| switch));
        with_tables(all, &config.topology, &routes);
        let switches = table.switches(&config, &events);
        let ports = table.ports;
        Network {
            now: 0,
            events,
            packets: Packets::default(),
            ends: ports.iter().map(End::from).collect(),
            lossy: ports.iter().any(|port| port.loss > 0),
            ports,
            hosts,
            all_hosts,
            places,
            switches,
            routes,
            rng: Pcg64Mcg::new(u128::from(config.seed) << 64 | 1),
            ledger: Ledger::default(),
            controls: Vec::new(),
            free_controls: Vec::new(),
            next_change: 0,
            late: u64::MAX,
            observations: 0,
            timers: 0,
            watched: Default::default(),
            journal: None,
            shared,
            config,
        }
    }

    /// Schedules the first link change.
    pub(crate) fn schedule_changes(&mut self) {
        if let Some(change) = self.config.changes.first() {
            self.events.push(change.at, Event::LinkChange);
        }
    }
}
