//! Closed loops: each host keeps a number of connections, on each of which a flow starts some time after the previous
//! one has ended (NDP §6.3), or has left its sender (RoCC's generators). The amount of traffic depends on the speed of
//! the network.

use std::ops::RangeInclusive;

use super::random::{Purpose, Random};
use super::{Flow, Setting, Sizes, poisson};
use crate::input::Error;

/// Maximum number of connections of a host.
pub const MAX_CONNECTIONS: u32 = 4_096;

/// Configuration of closed loops.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedLoop {
    /// Sending hosts; `None`: all.
    pub from: Option<RangeInclusive<u32>>,
    /// Hosts that each of them sends to, except itself; `None`: random others.
    pub to: Option<RangeInclusive<u32>>,
    /// Number of connections of a sender with each of `to`, or with random others, kept for all its flows; 1 to
    /// [`MAX_CONNECTIONS`], all of a sender together.
    pub connections: u32,
    /// Event after which the gap begins.
    pub after: After,
    /// Median time from then until the next flow on the same connection starts, ns.
    pub gap: u64,
    /// Distribution of these times.
    pub gaps: Gaps,
    /// Distribution of flow sizes.
    pub sizes: Sizes,
}

/// Event that ends a flow for its successor.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Its sender knows that it has arrived completely.
    Acknowledged,
    /// Its last packet leaves its sender for the first time.
    Sent,
}

/// Distribution of the times between flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// Exponential. The first flow of a connection starts after such a time as well.
    Exponential,
    /// Constant. The first flow of a connection starts after a uniformly distributed part of it.
    Constant,
}

/// The connections of a part of a workload. Flows are drawn while they run: each connection has its own random numbers,
/// so that its flows and gaps do not depend on the others.
#[derive(Clone, Debug)]
pub struct Loops {
    of: ClosedLoop,
    connections: Vec<Connection>,
    /// End of flow starts, exclusive, ns.
    end: u64,
    /// Number of flows that may still start.
    left: u64,
    /// Priority of the flows, 0 to 7.
    pub priority: u8,
    /// Class: index of the part of the workload.
    pub class: u8,
    /// Setup of their queue pairs ([`Flow::setup`]).
    pub setup: u16,
}

#[derive(Clone, Debug)]
struct Connection {
    src: u32,
    dst: u32,
    random: Random,
}

impl Loops {
    /// Draws the connections. [`Setting::duration`], [`Setting::flows`] or both must be given.
    pub fn new(of: &ClosedLoop, setting: &Setting<'_>, class: u8) -> Result<Loops, Error> {
        setting.needs_two_hosts("closed-loop")?;
        if setting.duration.is_none() && setting.flows.is_none() {
            return Err(Error::value("closed-loop", "flows", "unlimited", "a number of flows, or a duration"));
        }
        let hosts = setting.topology.hosts;
        for (key, named) in [("from", &of.from), ("to", &of.to)] {
            if let Some(named) = named.as_ref().filter(|named| *named.end() >= hosts) {
                let written = format!("{}-{}", named.start(), named.end());
                return Err(Error::value("closed-loop", key, written, format!("hosts below {hosts}")));
            }
        }
        // By sender; within one by receiver, repeated for each connection with it.
        let to = of.to.clone().map(|to| to.collect::<Vec<u32>>());
        let each = |src: u32| {
            let named = to.iter().flatten().copied().filter(move |dst| *dst != src);
            let named = named.flat_map(|dst| std::iter::repeat_n(Some(dst), of.connections as usize));
            let at_random = std::iter::repeat_n(None, if to.is_none() { of.connections as usize } else { 0 });
            (0..).zip(named.chain(at_random)).map(move |(n, dst)| {
                let mut random = Random::new(setting.seed, Purpose::Loops, class, src * MAX_CONNECTIONS + n);
                let dst = dst.unwrap_or_else(|| {
                    let other = random.below(u64::from(hosts) - 1) as u32;
                    other + u32::from(other >= src)
                });
                Connection { src, dst, random }
            })
        };
        let most = to.as_ref().map_or(1, Vec::len) as u64 * u64::from(of.connections);
        if most > MAX_CONNECTIONS.into() {
            let expected = format!("at most {MAX_CONNECTIONS} of a sender, {most} with all of `to`");
            return Err(Error::value("closed-loop", "connections", of.connections, expected));
        }
        let senders = of.from.clone().unwrap_or(0..=hosts - 1);
        let connections: Vec<Connection> = senders.flat_map(each).collect();
        if connections.is_empty() {
            return Err(Error::value("closed-loop", "to", "the sender", "another host"));
        }
        Ok(Loops {
            of: of.clone(),
            connections,
            end: setting.duration.unwrap_or(u64::MAX),
            left: setting.flows.unwrap_or(poisson::MAX_FLOWS).min(poisson::MAX_FLOWS),
            priority: setting.priority,
            class,
            setup: 0,
        })
    }

    /// Returns the hosts of each connection: source and destination.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.connections.iter().map(|c| (c.src, c.dst))
    }

    /// Returns the size of the longest possible flow, bytes.
    pub fn longest(&self) -> u64 {
        self.of.sizes.range().1
    }

    /// Returns the event after which the gap begins.
    pub fn after(&self) -> After {
        self.of.after
    }

    /// Returns the time from which no flow starts, ns.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of flows that may still start.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Returns the start of the first flow of a connection, ns; `None` if it would be too late.
    pub(crate) fn first(&mut self, connection: u32) -> Option<u64> {
        match self.of.gaps {
            Gaps::Exponential => self.next(connection, 0),
            Gaps::Constant => {
                let share = self.connections[connection as usize].random.share();
                Some((share * self.of.gap as f64) as u64).filter(|at| *at < self.end)
            }
        }
    }

    /// Returns the start of the successor of a flow that `ended`, ns; `None` if there is none.
    pub(crate) fn next(&mut self, connection: u32, ended: u64) -> Option<u64> {
        let random = &mut self.connections[connection as usize].random;
        let gap = match self.of.gaps {
            // The median of an exponential distribution is ln 2 of its mean.
            Gaps::Exponential => (random.exponential() * self.of.gap as f64 / std::f64::consts::LN_2) as u64,
            Gaps::Constant => self.of.gap,
        };
        Some(ended.saturating_add(gap)).filter(|at| *at < self.end && self.left > 0)
    }

    /// Draws the flow that starts now; `None` if the number of flows is exhausted.
    pub(crate) fn start(&mut self, connection: u32, now: u64) -> Option<Flow> {
        self.left = self.left.checked_sub(1)?;
        let Connection { src, dst, random } = &mut self.connections[connection as usize];
        let bytes = self.of.sizes.draw(random);
        let Loops { priority, class, setup, .. } = *self;
        Some(Flow { src: *src, dst: *dst, bytes, start: now, priority, class, setup })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    fn loops(hosts: u32, connections: u32, gaps: Gaps, seed: u64) -> Loops {
        let topology = Topology::star(hosts, 10_000_000_000, 1_000);
        let setting = Setting {
            topology: &topology,
            seed,
            load: 0.7,
            duration: Some(1_000_000_000),
            flows: None,
            mtu: 1_024,
            header: 62,
            priority: 3,
        };
        let after = After::Acknowledged;
        let sizes = Sizes::irn_heavy();
        let of = ClosedLoop { from: None, to: None, connections, after, gap: 1_000_000, gaps, sizes };
        Loops::new(&of, &setting, 2).unwrap()
    }

    #[test]
    fn gaps_have_the_median_that_was_asked_for() {
        let mut of = loops(2, 1, Gaps::Exponential, 1);
        let mut gaps: Vec<u64> = (0..20_001).map(|_| of.next(0, 500).unwrap() - 500).collect();
        gaps.sort_unstable();
        // The deviation of the median of an exponential distribution is that of its mean: 1.44 ms / √20,000, 10 µs.
        assert!((950_000..1_050_000).contains(&gaps[10_000]), "{}", gaps[10_000]);
        assert!(gaps[1_000] < 200_000 && gaps[19_000] > 4_000_000, "{} {}", gaps[1_000], gaps[19_000]);
        let mut of = loops(2, 1, Gaps::Constant, 1);
        assert_eq!((of.next(0, 500), of.next(0, 999_999_999)), (Some(1_000_500), None));
    }

    #[test]
    fn connections_are_their_hosts_own() {
        let (few, many) = (loops(5, 2, Gaps::Constant, 7), loops(5, 3, Gaps::Constant, 7));
        let of_hosts = |loops: &Loops, n: usize| -> Vec<(u32, u32)> {
            (0..5).flat_map(|src| loops.pairs().filter(move |(from, _)| *from == src).take(n)).collect()
        };
        assert_eq!(few.pairs().collect::<Vec<_>>(), of_hosts(&many, 2));
        assert!(many.pairs().all(|(src, dst)| src != dst && dst < 5));
        let mut starts: Vec<u64> = (0..15).map(|c| many.clone().first(c).unwrap()).collect();
        assert!(starts.iter().all(|at| *at < 1_000_000));
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), 15);
        // Connections draw independently.
        let (mut alone, mut other) = (few.clone(), few.clone());
        (0..9).for_each(|at| assert!(other.start(1, at).is_some()));
        assert_eq!(alone.start(0, 5), other.start(0, 5));
        assert_eq!(alone.start(0, 6).map(|f| (f.priority, f.class, f.start)), Some((3, 2, 6)));
    }
}
