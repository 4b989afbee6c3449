//! Remote procedure calls: requests start as Poisson arrivals at every host, independently of the network's state, and
//! the server returns a response once a request has arrived completely (TIMELY §6.2).

use super::random::{Purpose, Random};
use super::{Flow, Setting, Sizes, poisson};
use crate::input::Error;
use crate::topology::{Routes, Topology};

/// Configuration of calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Rpc {
    /// Size of a request, bytes.
    pub request: u64,
    /// Size of a response, bytes.
    pub response: u64,
    /// Share of its links' rate that each host offers in requests, headers included; responses from the servers add to
    /// it. `None`: [`Setting::load`].
    pub load: Option<f64>,
    /// Which hosts may be called.
    pub to: To,
    /// Number of servers of a client, drawn once, 1 or more, or as many as there are; `None`: all of them.
    pub servers: Option<u32>,
}

/// Candidate servers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum To {
    /// Any other host, with equal probability.
    #[default]
    Any,
    /// Any of the hosts at the maximum distance in links.
    Farthest,
}

impl Default for Rpc {
    /// 64 KiB in each direction, to any host.
    fn default() -> Rpc {
        Rpc { request: 64 << 10, response: 64 << 10, load: None, to: To::Any, servers: None }
    }
}

/// The response to each flow of a class.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Class of the requests, shared by the responses.
    pub class: u8,
    /// Payload bytes of each response.
    pub bytes: u64,
}

/// Draws the requests until the setting's duration or number, one of which must be given.
pub(super) fn requests(of: &Rpc, setting: &Setting<'_>, class: u8) -> Result<Vec<Flow>, Error> {
    let load = of.load.unwrap_or(setting.load);
    let setting = Setting { load, ..setting.clone() };
    let mut sizes = Sizes::fixed(of.request);
    "rpc".clone_into(&mut sizes.name);
    if (of.to, of.servers) == (To::Any, None) {
        return poisson::generate(&sizes, &setting, class);
    }
    setting.needs_two_hosts("rpc")?;
    let hosts = setting.topology.hosts;
    let mut called = match of.to {
        To::Any => (0..hosts).map(|src| (0..hosts).filter(|dst| *dst != src).collect()).collect(),
        To::Farthest => farthest(setting.topology),
    };
    if let Some(servers) = of.servers {
        for (src, all) in (0..).zip(&mut called) {
            let mut random = Random::new(setting.seed, Purpose::Servers, class, src);
            choose(all, servers as usize, &mut random);
        }
    }
    poisson::generate_to(&sizes, &setting, class, |src, random| {
        let there: &Vec<u32> = &called[src as usize];
        there.get(random.below(there.len().max(1) as u64) as usize).copied()
    })
}

/// Reduces `all` to at most `n` random elements.
fn choose(all: &mut Vec<u32>, n: usize, random: &mut Random) {
    for at in 0..n.min(all.len()) {
        let other = at + random.below((all.len() - at) as u64) as usize;
        all.swap(at, other);
    }
    all.truncate(n);
}

/// By host, the others at the maximum distance in links; unreachable ones do not count.
fn farthest(topology: &Topology) -> Vec<Vec<u32>> {
    let routes = Routes::compute(topology, &|_| false);
    let of = |src: u32| {
        let hops = |dst: u32| Some(routes.path(src, dst)?.len()).filter(|_| dst != src);
        let all: Vec<(u32, usize)> = (0..topology.hosts).filter_map(|dst| Some((dst, hops(dst)?))).collect();
        let most = all.iter().map(|(_, hops)| *hops).max();
        all.into_iter().filter(|(_, hops)| Some(*hops) == most).map(|(dst, _)| dst).collect()
    };
    (0..topology.hosts).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farthest_are_in_other_pods() {
        // Four pods of two leaves with two hosts each.
        let topology = Topology::fat_tree(4, 10_000_000_000, 1_000);
        let farthest = farthest(&topology);
        assert_eq!(farthest[5], [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15]);
        // On a star, all others are.
        assert_eq!(super::farthest(&Topology::star(3, 10_000_000_000, 1_000))[1], [0, 2]);
    }

    #[test]
    fn requests_offer_their_load_to_the_farthest() {
        let topology = Topology::fat_tree(4, 10_000_000_000, 1_000);
        let setting = Setting {
            topology: &topology,
            seed: 7,
            load: 0.9,
            duration: Some(20_000_000),
            flows: None,
            mtu: 1_024,
            header: 62,
            priority: 3,
        };
        let rpc = Rpc { load: Some(0.3), to: To::Farthest, ..Rpc::default() };
        let flows = requests(&rpc, &setting, 2).unwrap();
        assert!(flows.iter().all(|f| f.src / 4 != f.dst / 4 && (f.bytes, f.class, f.priority) == (65_536, 2, 3)));
        let wire: u64 = flows.iter().map(|f| setting.wire_bytes(f.bytes)).sum();
        let load = wire as f64 * 8.0 / (16.0 * 10e9 * 0.02);
        assert!((0.27..0.33).contains(&load), "{load} of {} flows", flows.len());
        let few = requests(&Rpc { servers: Some(3), ..rpc.clone() }, &setting, 2).unwrap();
        let mut of_five: Vec<u32> = few.iter().filter(|f| f.src == 5).map(|f| f.dst).collect();
        of_five.sort_unstable();
        of_five.dedup();
        assert!(of_five.len() == 3 && of_five.iter().all(|dst| !(4..8).contains(dst)), "{of_five:?}");
        let wrong = requests(&Rpc { load: Some(0.0), ..rpc }, &setting, 2).unwrap_err();
        assert_eq!(wrong.to_string(), "rpc: load=0: expected above 0, at most 10");
    }
}
