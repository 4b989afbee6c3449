//! Independent flows: Poisson arrivals at every host, with uniformly random destinations (IRN §4.3.1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::random::{Purpose, Random};
use super::{Flow, Setting, Sizes};
use crate::input::Error;

/// Maximum load: ten times what links can carry.
pub const MAX_LOAD: f64 = 10.0;
/// Values accepted by [`load`], for messages.
pub const LOAD: &str = "a share of the links' rate, above 0, 1 being all of it, at most 10";

/// Parses a load.
pub fn load(text: &str) -> Option<f64> {
    text.parse().ok().filter(|load| *load > 0.0 && *load <= MAX_LOAD)
}

/// Maximum number of generated flows.
pub const MAX_FLOWS: u64 = 100_000_000;

/// One host's next flow.
struct Source {
    flows: Random,
    destinations: Random,
    /// Mean time between flows, ns.
    gap: f64,
    /// Start of the next flow, ns.
    next: f64,
}

/// Draws flows until the setting's duration or number, one of which must be given.
///
/// The load counts bytes on the wire: payload, and headers for each packet.
pub fn generate(sizes: &Sizes, setting: &Setting<'_>, class: u8) -> Result<Vec<Flow>, Error> {
    let hosts = setting.topology.hosts;
    generate_to(sizes, setting, class, |src, random| {
        let other = random.below(u64::from(hosts) - 1) as u32;
        Some(if other < src { other } else { other + 1 })
    })
}

/// Like [`generate`], to hosts outside the sender's group: hosts are grouped in number order, `group` at a time.
pub fn generate_outside(group: u32, sizes: &Sizes, setting: &Setting<'_>, class: u8) -> Result<Vec<Flow>, Error> {
    let hosts = setting.topology.hosts;
    if group == 0 || group >= hosts {
        let expected = format!("fewer than the {hosts} hosts there are");
        return Err(Error::value(&sizes.name, "outside", group, expected));
    }
    generate_to(sizes, setting, class, |src, random| {
        let first = src / group * group;
        let inside = group.min(hosts - first);
        let other = random.below(u64::from(hosts - inside)) as u32;
        Some(if other < first { other } else { other + inside })
    })
}

/// Like [`generate`], to the host that `draw` returns for a sender; if it returns `None`, the flow is left out.
pub(super) fn generate_to(
    sizes: &Sizes,
    setting: &Setting<'_>,
    class: u8,
    mut draw: impl FnMut(u32, &mut Random) -> Option<u32>,
) -> Result<Vec<Flow>, Error> {
    let wrong = |key: &str, value: String, expected: String| Err(Error::value(&sizes.name, key, value, expected));
    setting.needs_two_hosts(&sizes.name)?;
    if !(setting.load > 0.0 && setting.load <= MAX_LOAD) {
        return wrong("load", setting.load.to_string(), format!("above 0, at most {MAX_LOAD}"));
    }
    if setting.duration.is_none() && setting.flows.is_none() {
        return wrong("flows", "unlimited".to_owned(), "a number of flows, or a duration".to_owned());
    }

    let wire_bytes = sizes.mean() + sizes.mean_packets(setting.mtu) * f64::from(setting.header);
    let rates = setting.topology.host_rates();
    let total: f64 = rates.iter().map(|rate| *rate as f64).sum();
    let end = setting.duration.unwrap_or(u64::MAX);
    let expected = total * setting.load / (8.0 * wire_bytes) * (end as f64 / 1e9);
    if expected.min(setting.flows.unwrap_or(u64::MAX) as f64) > MAX_FLOWS as f64 {
        return wrong("flows", format!("{expected:.0}"), format!("at most {MAX_FLOWS}; shorten the duration"));
    }

    let mut sources = Vec::new();
    let mut queue = BinaryHeap::new();
    for (host, rate) in (0..).zip(&rates) {
        let mut source = Source {
            flows: Random::new(setting.seed, Purpose::Flows, class, host),
            destinations: Random::new(setting.seed, Purpose::Destinations, class, host),
            gap: 8e9 * wire_bytes / (*rate as f64 * setting.load),
            next: 0.0,
        };
        // A host without a link sends nothing.
        if *rate > 0 {
            queue.push(Reverse((source.start_next(), host)));
        }
        sources.push(source);
    }

    let limit = setting.flows.unwrap_or(MAX_FLOWS).min(MAX_FLOWS) as usize;
    let mut flows = Vec::new();
    while let Some(Reverse((start, src))) = queue.pop().filter(|Reverse((start, _))| *start < end) {
        if flows.len() == limit {
            break;
        }
        let source = &mut sources[src as usize];
        let bytes = sizes.draw(&mut source.flows);
        if let Some(dst) = draw(src, &mut source.destinations) {
            flows.push(Flow { src, dst, bytes, start, priority: setting.priority, class, setup: 0 });
        }
        queue.push(Reverse((source.start_next(), src)));
    }
    Ok(flows)
}

/// A host that sends to another.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Pair {
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Offered load on the wire, headers included, bit/s, above 0.
    pub rate: f64,
    /// Class of its flows.
    pub class: u8,
}

/// Draws flows that start before `duration`, ns, independently of one another: Poisson arrivals between given hosts.
/// Packets have `mtu` bytes of payload and `header` bytes around it.
pub fn between(sizes: &Sizes, pairs: &[Pair], duration: u64, seed: u64, mtu: u32, header: u32) -> Vec<Flow> {
    let wire_bytes = sizes.mean() + sizes.mean_packets(mtu) * f64::from(header);
    let mut flows = Vec::new();
    for (index, pair) in (0..).zip(pairs) {
        let mut source = Source {
            flows: Random::new(seed, Purpose::Flows, pair.class, index),
            destinations: Random::new(seed, Purpose::Destinations, pair.class, index),
            gap: 8e9 * wire_bytes / pair.rate,
            next: 0.0,
        };
        let mut start = source.start_next();
        while start < duration {
            let bytes = sizes.draw(&mut source.flows);
            flows.push(Flow { class: pair.class, ..Flow::new(pair.src, pair.dst, bytes, start) });
            start = source.start_next();
        }
    }
    super::sort(&mut flows);
    flows
}

impl Source {
    /// Start of the next flow, rounded down to ns. The remainder is carried over to the next gap.
    fn start_next(&mut self) -> u64 {
        self.next += self.flows.exponential() * self.gap;
        self.next as u64
    }
}
