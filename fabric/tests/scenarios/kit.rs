//! Networks, switches and flows for the cases, and what most of them have in common.
//!
//! Unless a case says otherwise a packet is 1250 bytes on the wire, 1024 of payload: 250 ns at 40 Gbit/s.

use irnic_fabric::generator::{Generator, Stream};
use irnic_fabric::network::{LinkRecord, Network, NetworkConfig, PortCounters, Standstill};
use irnic_fabric::sim::{Ending, HeaderBytes, Outcome, SimConfig, Simulation};
use irnic_fabric::switch::{
    Ecn, InputQueuedConfig, Scheduling, SharedBufferConfig, SharedPfc, SwitchConfig, Thresholds,
};
use irnic_fabric::topology::{LinkSpec, Topology};
use irnic_fabric::workload::Flow;
use irnic_transports::config::TransportConfig;

/// A configuration with some fields of its own: `with! { field: value, ..base }`.
macro_rules! with {
    (@ $config:ident $field:ident) => { $config.$field = $field };
    (@ $config:ident $field:ident $value:expr) => { $config.$field = $value };
    ($($field:ident $(: $value:expr)?),+ , ..$base:expr) => {{
        let mut config = $base;
        $(with!(@ config $field $($value)?);)+
        config
    }};
}
pub(crate) use with;

pub const G: u64 = 1_000_000_000;
/// Bytes of the payload of a full packet.
pub const MTU: u64 = 1024;
/// Bytes around it.
pub const AROUND: u32 = 226;
/// Bytes of a full packet on the wire: 10,000 bits.
pub const WIRE: u64 = MTU + AROUND as u64;
/// More buffer than any case fills.
pub const DEEP: u64 = 1 << 30;

/// A network whose hosts send streams that nothing slows down.
pub type Net = Network<Generator>;

/// Runs streams of hosts until `until`, or to the end. The accounts hold.
pub fn stream_until(config: NetworkConfig, streams: Vec<Vec<Stream>>, until: u64) -> Net {
    let hosts = streams.into_iter().map(|streams| Generator::new(streams, 1)).collect();
    let mut net = Network::new(config, hosts, ()).unwrap();
    net.watch();
    let end = net.run_until(until);
    assert!(until < u64::MAX || end == Some(Standstill::Stuck) && net.packets().is_empty());
    net.check().unwrap();
    net
}

/// What has happened at the output of `from` to `to`.
pub fn link(net: &Net, from: u32, to: u32) -> PortCounters {
    let there = |l: &LinkRecord| (l.from, l.to) == (from, to);
    net.links().find(there).unwrap().counters
}

pub fn transport(text: &str) -> TransportConfig {
    text.parse().unwrap()
}

/// `packets` full packets from `src` to `dst`, at 0.
pub fn flow(src: u32, dst: u32, packets: u64) -> Flow {
    Flow { src, dst, bytes: packets * MTU, start: 0, priority: 0, class: 0, setup: 0 }
}

pub fn with_priority(priority: u8, flow: Flow) -> Flow {
    Flow { priority, ..flow }
}

/// Hosts `0..hosts`, switches after them, links of (a, b, bit/s, ns).
pub fn network(hosts: u32, switches: u32, links: &[(u32, u32, u64, u64)]) -> Topology {
    let links = links.iter().map(|&(a, b, rate, delay)| LinkSpec { a, b, rate, delay, loss: 0.0 }).collect();
    Topology { name: "test".to_owned(), hosts, switches, links, ids: Vec::new() }
}

/// A star whose hosts have links of these rates, 1 µs long.
pub fn star(rates: &[u64]) -> Topology {
    let hosts = rates.len() as u32;
    let links: Vec<_> = (0..).zip(rates).map(|(host, &rate)| (host, hosts, rate, 1_000)).collect();
    network(hosts, 1, &links)
}

pub fn input_queued(buffer: u64, pfc: Option<Thresholds>) -> SwitchConfig {
    SwitchConfig::InputQueued(with! { pfc, ..InputQueuedConfig::new(buffer) })
}

pub fn shared(buffer: u64, alpha: f64, pfc: Option<SharedPfc>) -> SwitchConfig {
    SwitchConfig::SharedBuffer(with! { alpha, pfc, ..SharedBufferConfig::new(buffer, WIRE as u32) })
}

/// PFC in a shared buffer for one priority, with headroom by the links.
pub fn shared_pfc(alpha: f64, reserve: u64, resume: u64) -> SharedPfc {
    with! { reserve, resume, ..SharedPfc::new(alpha) }
}

/// Either kind of switch, with room for everything.
pub fn deep() -> [SwitchConfig; 2] {
    [input_queued(DEEP, None), shared(DEEP, 1e6, None)]
}

pub fn set_ecn(switch: &mut SwitchConfig, rule: Ecn) {
    match switch {
        SwitchConfig::InputQueued(c) => c.ecn = rule,
        SwitchConfig::SharedBuffer(c) => c.ecn = rule,
        other => panic!("{other:?} has no marking rule"),
    }
}

pub fn set_scheduling(switch: &mut SwitchConfig, rule: Scheduling) {
    match switch {
        SwitchConfig::InputQueued(c) => c.scheduling = rule,
        SwitchConfig::SharedBuffer(c) => c.scheduling = rule,
        other => panic!("{other:?} has no choice among priorities"),
    }
}

/// A run with packets of [`WIRE`] bytes.
pub fn config(topology: Topology, flows: Vec<Flow>, switch: SwitchConfig, transport_: &str) -> SimConfig {
    let headers = HeaderBytes::Fixed(AROUND);
    with! { headers, ..SimConfig::new(topology, flows, switch, transport(transport_)) }
}

pub fn run(config: SimConfig) -> Outcome {
    Simulation::new(config).unwrap().finish().unwrap()
}

/// Runs a simulation, and checks that all flows have ended.
pub fn complete(config: SimConfig) -> Outcome {
    let outcome = run(config);
    assert_eq!(outcome.ending, Ending::Complete, "at {} ns", outcome.ended);
    outcome
}

/// Flow completion times, ns.
pub fn fcts(outcome: &Outcome) -> Vec<u64> {
    outcome.flows.iter().zip(&outcome.records).map(|(flow, record)| record.fct(flow).expect("delivered")).collect()
}

pub fn ideals(outcome: &Outcome) -> Vec<u64> {
    outcome.records.iter().map(|r| r.ideal).collect()
}

/// What the port of `from` towards `to` counted.
pub fn port(outcome: &Outcome, from: u32, to: u32) -> irnic_fabric::network::PortCounters {
    let link = outcome.links.iter().find(|l| (l.from, l.to) == (from, to));
    link.unwrap_or_else(|| panic!("no link from {from} to {to}")).counters
}
