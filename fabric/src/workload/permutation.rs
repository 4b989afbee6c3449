//! Permutation traffic: every host sends to one other and receives from one other, all at once; or to random others.

use super::random::{Purpose, Random};
use super::{Flow, Setting};
use crate::input::Error;

/// A permutation without fixed points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    /// Size of each flow, bytes, 1 or more.
    pub bytes: u64,
    /// Start of all flows, ns.
    pub start: u64,
}

impl Default for Permutation {
    fn default() -> Permutation {
        Permutation { bytes: 1_000_000, start: 0 }
    }
}

/// Draws the permutation: a uniformly random cycle through all hosts (Sattolo's algorithm).
pub fn generate(permutation: &Permutation, setting: &Setting<'_>, class: u8) -> Result<Vec<Flow>, Error> {
    setting.needs_two_hosts("permutation")?;
    let mut random = Random::new(setting.seed, Purpose::Permutation, class, 0);
    let mut to: Vec<u32> = (0..setting.topology.hosts).collect();
    for at in (1..to.len()).rev() {
        let with = random.below(at as u64) as usize;
        to.swap(at, with);
    }
    let Permutation { bytes, start } = *permutation;
    let flows =
        (0..).zip(to).map(|(src, dst)| Flow { src, dst, bytes, start, priority: setting.priority, class, setup: 0 });
    Ok(flows.collect())
}

/// A number of flows from every host to random others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anywhere {
    /// Flows from each host, 1 or more.
    pub flows: u32,
    /// Size of each flow, bytes, 1 or more.
    pub bytes: u64,
    /// Start of all flows, ns.
    pub start: u64,
}

impl Default for Anywhere {
    /// Returns four of 1 MB from each (NDP §6.1's background, with an end).
    fn default() -> Anywhere {
        Anywhere { flows: 4, bytes: 1_000_000, start: 0 }
    }
}

/// Draws the receivers: for each flow of a host any other, independently of the rest.
pub fn anywhere(anywhere: &Anywhere, setting: &Setting<'_>, class: u8) -> Result<Vec<Flow>, Error> {
    setting.needs_two_hosts("random")?;
    let (hosts, Anywhere { flows, bytes, start }) = (setting.topology.hosts, anywhere.clone());
    let of_host = |src| {
        let mut random = Random::new(setting.seed, Purpose::Destinations, class, src);
        (0..flows).map(move |_| {
            let other = random.below(u64::from(hosts) - 1) as u32;
            let dst = other + u32::from(other >= src);
            Flow { priority: setting.priority, class, ..Flow::new(src, dst, bytes, start) }
        })
    };
    Ok((0..hosts).flat_map(of_host).collect())
}
