//! Every host sends to one other and receives from one other, all at once; or to some others by chance.

use super::random::{Purpose, Random};
use super::{Flow, Setting};
use crate::input::Error;

/// A permutation without fixed points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    /// What each host sends, bytes, 1 or more.
    pub bytes: u64,
    /// When all begin, ns.
    pub start: u64,
}

impl Default for Permutation {
    fn default() -> Permutation {
        Permutation { bytes: 1_000_000, start: 0 }
    }
}

/// Draws who sends to whom: one cycle through all hosts, any of them as likely (Sattolo's algorithm).
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

/// Some flows from every host, each to any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anywhere {
    /// From each host, 1 or more.
    pub flows: u32,
    /// Payload of each, bytes, 1 or more.
    pub bytes: u64,
    /// When all begin, ns.
    pub start: u64,
}

impl Default for Anywhere {
    /// Returns four of 1 MB from each (NDP §6.1's background, with an end).
    fn default() -> Anywhere {
        Anywhere { flows: 4, bytes: 1_000_000, start: 0 }
    }
}

/// Draws who sends to whom: for each flow of a host any other, whatever the rest have.
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
