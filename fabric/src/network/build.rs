//! Construction of a network: hosts, switches and the links between them.

use rand_pcg::Pcg64Mcg;

use super::links::routes;
use super::{
    Agenda, End, Endpoint, Event, EventQueue, Host, Network, NetworkConfig, NetworkError, Packets, Port, PortId,
    SwitchNode, mix,
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
        let topology = &config.topology;
        let nodes = topology.hosts + topology.switches;
        let wires = Wires::new(topology);
        let mut ports: Vec<Port> = Vec::with_capacity(2 * topology.links.len());
        let mut first = Vec::with_capacity(nodes as usize + 1);
        // Ports of a node are contiguous, in the order of its links.
        let mut ends = vec![[u32::MAX; 2]; topology.links.len()];
        for node in 0..nodes {
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
        if let Some(credits) = config.switch.credits() {
            for at in 0..ports.len() {
                if ports[at].node >= topology.hosts {
                    ports[at].grant_credit(credits);
                    let peer = ports[at].peer as usize;
                    ports[peer].set_credit(credits);
                }
            }
        }
        if A::PARTED {
            for at in 0..ports.len() {
                let peer = ports[ports[at].peer as usize].node;
                let cut = events.owns(ports[at].node) != events.owns(peer);
                ports[at].set_cut(cut);
            }
        }
        let own: Vec<u32> = (0..topology.hosts).filter(|&host| events.owns(host)).collect();
        let mut places = vec![u32::MAX; if A::PARTED { topology.hosts as usize } else { 0 }];
        if A::PARTED {
            (0..).zip(&own).for_each(|(place, &host)| places[host as usize] = place);
        }
        let hosts = endpoints.into_iter().zip(own.iter().map(|&host| first[host as usize]));
        let hosts = hosts.map(|(endpoint, port)| Host { endpoint, port, wakes: u64::MAX }).collect();
        let routes = routes(&config, &|_| false);
        let mut config = config;
        let all = std::iter::once(&mut config.switch).chain(config.differing.iter_mut().map(|(_, switch)| switch));
        with_tables(all, &config.topology, &routes);
        let topology = &config.topology;
        let switches: Vec<SwitchNode> = (topology.hosts..nodes)
            .map(|node| {
                let range = first[node as usize] as usize..first[node as usize + 1] as usize;
                SwitchNode {
                    switch: if events.owns(node) {
                        switch(&config, node, &ports[range.clone()], &wires)
                    } else {
                        Box::new(RemoteSwitch)
                    },
                    rng: Pcg64Mcg::new(u128::from(config.seed) << 64 | u128::from(node) << 1 | 1),
                    first: range.start as PortId,
                    count: range.len() as u32,
                    salt: mix(config.seed as u32 ^ mix(node)),
                    sprayed: 0,
                    wakes: u64::MAX,
                }
            })
            .collect();
        for node in switches.iter().filter(|node| node.switch.preempts()) {
            let own = node.first as usize..(node.first + node.count) as usize;
            ports[own].iter_mut().for_each(Port::preempt);
        }
        Network {
            now: 0,
            events,
            packets: Packets::default(),
            ends: ports.iter().map(End::from).collect(),
            lossy: ports.iter().any(|port| port.loss > 0),
            ports,
            hosts,
            all_hosts: topology.hosts,
            places,
            switches,
            routes,
            rng: Pcg64Mcg::new(u128::from(config.seed) << 64 | 1),
            ledger: Ledger::default(),
            controls: Vec::new(),
            free_controls: Vec::new(),
            next_change: 0,
            late: u64::MAX,
            looks: 0,
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
