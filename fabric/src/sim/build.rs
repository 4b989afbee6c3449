//! Joins hosts and switches by links.

use irnic_nic::NicConfig;
use rand_pcg::Pcg64Mcg;

use super::deadlock::{WATCH, Watched};
use super::flows::Flows;
use super::links::routes;
use super::observe::Observer;
use super::outcome::Totals;
use super::{Event, SimConfig, SimError, Simulation, SwitchNode, mix};
use crate::agenda::Agenda;
use crate::host::Host;
use crate::packet::Packets;
use crate::port::{Port, PortId};

impl Simulation {
    /// A network at time 0, in which nothing has happened.
    pub fn new(config: SimConfig) -> Result<Simulation, SimError> {
        config.check()?;
        let topology = &config.topology;
        let nodes = topology.hosts + topology.switches;
        let mut ports: Vec<Port> = Vec::new();
        let mut first = Vec::with_capacity(nodes as usize + 1);
        // Ports of a node lie together, in the order of its links.
        let mut ends = vec![[u32::MAX; 2]; topology.links.len()];
        for node in 0..nodes {
            first.push(ports.len() as PortId);
            for (local, (link, _)) in topology.ports(node).into_iter().enumerate() {
                let spec = &topology.links[link];
                ends[link][usize::from(spec.b == node)] = ports.len() as PortId;
                ports.push(Port::new(node, local as u16, u32::MAX, link as u32, spec.rate, spec.delay, spec.loss));
            }
        }
        first.push(ports.len() as PortId);
        for [a, b] in ends {
            ports[a as usize].peer = b;
            ports[b as usize].peer = a;
        }
        let flows = Flows::new(&config);
        let mut hosts = Vec::with_capacity(topology.hosts as usize);
        for host in 0..topology.hosts {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&config.seed.to_le_bytes());
            seed[8..12].copy_from_slice(&host.to_le_bytes());
            let nic = NicConfig {
                seed,
                mtu: config.longest_mtu(),
                quantum: config.quantum,
                timer_tick: config.timer_tick,
                ..NicConfig::default()
            };
            hosts.push(Host::new(nic, first[host as usize], flows.completions())?);
        }
        let switches = (topology.hosts..nodes)
            .map(|node| {
                let range = first[node as usize] as usize..first[node as usize + 1] as usize;
                SwitchNode {
                    switch: config.switch.build(&ports[range.clone()]),
                    chance: Pcg64Mcg::new(u128::from(config.seed) << 64 | u128::from(node) << 1 | 1),
                    first: range.start as PortId,
                    count: range.len() as u32,
                    salt: mix(config.seed as u32 ^ mix(node)),
                    sprayed: 0,
                }
            })
            .collect();
        let mut agenda = Agenda::new();
        let routes = routes(&config, &|_| false);
        if let Some(at) = flows.next_start() {
            agenda.push(at, Event::Start);
        }
        if let Some(change) = config.changes.first() {
            agenda.push(change.at, Event::Change);
        }
        if let Some(quit) = config.quits.first() {
            agenda.push(quit.at, Event::Quit);
        }
        if let Some(every) = config.sample {
            agenda.push(every, Event::Sample);
        }
        agenda.push(WATCH, Event::Watch);
        Ok(Simulation {
            now: 0,
            agenda,
            packets: Packets::default(),
            ports,
            hosts,
            switches,
            routes,
            flows,
            asks: Vec::new(),
            chance: Pcg64Mcg::new(u128::from(config.seed) << 64 | 1),
            totals: Totals::default(),
            samples: Vec::new(),
            next_change: 0,
            next_quit: 0,
            observer: config.observe.map(|what| Box::new(Observer::new(what, config.flows.len()))),
            watched: Watched::default(),
            ending: None,
            config,
        })
    }
}
