//! One simulation on several threads, each with a part of the network, with byte-identical outcome.
//!
//! Parts process windows of time in which nothing can arrive from another part (`crew`), and put events of the same
//! nanosecond into the order that one queue would have given them ([`crate::network`]). What cannot be known before a
//! window is over is left to one thread: the end of the last flows is found event by event, and a network that stands
//! still is run again from the beginning.

mod barrier;
mod crew;
#[cfg(test)]
mod tests;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use super::endpoint::Remote;
use super::flows::{Flows, Numbers, Others};
use super::remote_flows::{Answers, RemoteFlows};
use super::{Ending, Net, Outcome, QpPolicy, SimConfig, SimError, Simulation, Site, nics, outcome};
use crate::network::{Moment, Network, Next, Part, Partition, Records};
use crate::switch::{Discipline, OutputQueuedConfig, SharedBufferConfig, SwitchConfig};
use crew::Crew;
use irnic_transports::congestion::CongestionConfig;

/// Number of records of a part at which pending events are settled.
const RECORDS: usize = 1 << 18;

/// Why a single thread takes over.
const STANDS_STILL: &str = "the network stands still, or the run fails";

/// Maximum length of a window, ns.
const WINDOW: u64 = 1 << 22;

/// Maximum number of link changes in the same nanosecond, times ports.
const CHANGES: usize = 1 << 22;

/// A [`Simulation`] run by several threads.
#[derive(Debug)]
pub struct Parallel {
    config: Arc<SimConfig>,
    sites: Vec<Site<Part>>,
    limits: Limits,
    watch: Watch,
    ending: Option<Ending>,
    /// The single-threaded run that replaces it, and why.
    alone: Option<(Box<Simulation>, &'static str)>,
}

/// Conditions for threads to stop.
#[derive(Copy, Clone, Debug)]
struct Limits {
    /// Time, ns.
    until: u64,
    /// Length of a window, ns.
    window: u64,
    /// Flows of the run.
    flows: usize,
    /// Total of events processed since the beginning, of all parts.
    events: u64,
    /// Records kept by a part.
    records: usize,
}

/// Reason for threads to stop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stop {
    /// The requested number of events was processed.
    Events,
    /// The end time of the run was reached.
    TimeUp,
    /// All flows have arrived: the run ends when the last is acknowledged.
    Arrived,
    /// Too many records are kept.
    Settle,
    /// A condition that a single thread must examine.
    Alone,
}

/// State at the last standstill check.
#[derive(Copy, Clone, Debug, Default)]
struct Watch {
    delivered: u64,
}

impl Watch {
    /// Whether the network may stand still: true at least whenever [`Network::watch`] would find it so.
    fn stands_still(&mut self, whole: &Moment) -> bool {
        let before = std::mem::replace(&mut self.delivered, whole.delivered);
        let idle = whole.observations + if whole.packets == 0 { whole.timers } else { 0 };
        before == whole.delivered && whole.packets > 0 || whole.events + whole.common <= idle
    }
}

impl Parallel {
    /// A network at time 0, before any event, for at most this many threads.
    pub fn new(config: SimConfig, threads: usize) -> Result<Parallel, SimError> {
        config.check()?;
        config.network().check()?;
        let config = Arc::new(config);
        let limits = Limits {
            until: config.until,
            window: config.topology.shortest_delay().min(WINDOW),
            flows: config.flows.len(),
            events: 0,
            records: RECORDS,
        };
        let mut parallel = Parallel {
            sites: Vec::new(),
            limits,
            watch: Watch::default(),
            ending: None,
            alone: None,
            config: config.clone(),
        };
        let cut = Partition::new(&config.topology, threads);
        if let Some(why) =
            if cut.hosts.len() < 2 { Some("fewer than two switches have hosts") } else { obstacle(&config) }
        {
            parallel.leave(why)?;
            return Ok(parallel);
        }
        let numbers = Arc::new(Numbers::new(config.flows.len()));
        let answers = Arc::new(Answers::new(config.flows.len()));
        let build = &|number: usize| -> Result<(Net<Part>, Flows), SimError> {
            let flows = Flows::new(&config);
            let (mut nics, shared) = nics(&config, &flows, cut.hosts[number].iter().copied())?;
            nics.iter_mut().for_each(|nic| nic.remote_flows = Some(Box::new(RemoteFlows::new(answers.clone()))));
            let part = Part::new(number as u32, cut.part_of.clone(), cut.hosts.len());
            Ok((Network::assemble(config.network(), part, nics, shared), flows))
        };
        let built: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..cut.hosts.len()).map(|number| scope.spawn(move || build(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|why| resume_unwind(why))).collect()
        });
        let mut parts = built.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut remotes: Vec<Option<Remote>> = vec![None; config.topology.hosts as usize];
        for ((net, _), hosts) in parts.iter().zip(&cut.hosts) {
            hosts.iter().for_each(|&host| remotes[host as usize] = Some(net.endpoint(host).remote()));
        }
        let remotes: Arc<[Remote]> = remotes.into_iter().flatten().collect();
        for (net, mut flows) in parts.drain(..) {
            flows.others = Some(Others::new(numbers.clone(), remotes.clone(), answers.clone()));
            parallel.sites.push(Site::new(config.clone(), net, flows));
        }
        Ok(parallel)
    }

    /// Leaves the run to a single thread, from the beginning.
    fn leave(&mut self, why: &'static str) -> Result<(), SimError> {
        self.sites.clear();
        self.alone = Some((Box::new(Simulation::of(self.config.clone())?), why));
        Ok(())
    }

    /// Why a single thread runs it, if so.
    pub fn alone(&self) -> Option<&'static str> {
        self.alone.as_ref().map(|(_, why)| *why)
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.sites.len().max(1)
    }

    /// Virtual time, ns.
    pub fn now(&self) -> u64 {
        match &self.alone {
            Some((alone, _)) => alone.now(),
            None => self.sites.iter().map(|site| site.net.now()).max().unwrap_or(0),
        }
    }

    /// Numbers of complete flows, and of all flows: see [`Simulation::progress`].
    pub fn progress(&self) -> (usize, usize) {
        match &self.alone {
            Some((alone, _)) => alone.progress(),
            None => (self.done(), self.limits.flows),
        }
    }

    fn done(&self) -> usize {
        self.sites.iter().map(|site| site.flows.done).sum()
    }

    fn events(&self) -> u64 {
        self.sites.iter().map(|site| site.net.events().1).sum()
    }

    /// Runs until all flows are complete, nothing moves any more, or about `events` more events were processed. Returns
    /// whether the run is over.
    pub fn run(&mut self, events: u64) -> Result<bool, SimError> {
        if let Some((alone, _)) = &mut self.alone {
            return alone.run(events);
        }
        self.limits.events = self.events().saturating_add(events);
        while self.ending.is_none() {
            let all_arrived = self.sites.iter().map(|site| site.flows.arrived).sum::<usize>() == self.limits.flows;
            match if all_arrived { self.event_by_event() } else { self.windows() } {
                Stop::Events => return Ok(false),
                Stop::TimeUp => {
                    self.sites.iter_mut().for_each(|site| site.net.advance(self.limits.until));
                    self.ending = Some(Ending::TimeUp);
                }
                Stop::Arrived => {}
                Stop::Settle => Part::settle(self.sites.iter_mut().map(|site| site.net.part_mut())),
                Stop::Alone => {
                    self.leave(STANDS_STILL)?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Processes windows with a thread for each part.
    fn windows(&mut self) -> Stop {
        let crew = Crew::new(self.sites.len());
        let (limits, watch) = (&self.limits, self.watch);
        let Some((mine, others)) = self.sites.split_first_mut() else { return Stop::Alone };
        let (stop, watch) = thread::scope(|scope| {
            for (me, site) in (1..).zip(others) {
                let crew = &crew;
                scope.spawn(move || crew.work(me, site, limits, watch));
            }
            crew.work(0, mine, limits, watch)
        });
        self.watch = watch;
        stop
    }

    /// Processes the events of all parts one by one, until the last flow is acknowledged: nothing after that may
    /// happen.
    fn event_by_event(&mut self) -> Stop {
        loop {
            if self.done() == self.limits.flows {
                self.ending = Some(Ending::Complete);
                return Stop::Arrived;
            }
            if self.events() >= self.limits.events {
                return Stop::Events;
            }
            // All parts must have processed the same number of common events.
            let common = || self.sites.iter().map(|site| site.net.common_events());
            if self.sites.iter().any(|site| site.net.part().kept() > self.limits.records)
                && common().min() == common().max()
            {
                return Stop::Settle;
            }
            let next: Vec<_> = self.sites.iter_mut().map(|site| site.net.part_mut().next()).collect();
            let records = Records::new(self.sites.iter().map(|site| site.net.part().records()).collect());
            let heads = next.iter().enumerate().filter_map(|(part, next)| next.map(|next| (part, next)));
            let first = heads.min_by(|(_, a), (_, b)| a.order(b, &records));
            let Some((part, Next { at, .. })) = first else { return Stop::Alone };
            if at > self.limits.until {
                return Stop::TimeUp;
            }
            let step = self.sites[part].net.step(at);
            if self.sites[part].answer(step).is_err() {
                return Stop::Alone;
            }
            let mut mail: Vec<_> = self.sites.iter_mut().map(crew::hand_out).collect();
            self.sites.iter_mut().for_each(|site| crew::take_in(site, mail.iter()));
            self.sites.iter_mut().zip(&mut mail).for_each(|(site, mail)| crew::take_back(site, mail));
            if self.sites.iter().all(|site| site.net.part().has_moment()) {
                let mut whole = Moment::default();
                for site in &mut self.sites {
                    let mut moments = Vec::new();
                    site.net.part_mut().take_moments(&mut moments);
                    moments.iter().for_each(|moment| whole.add(moment));
                }
                if self.watch.stands_still(&whole) {
                    return Stop::Alone;
                }
            }
        }
    }

    /// Runs to the end.
    pub fn finish(mut self) -> Result<Outcome, SimError> {
        while !self.run(u64::MAX)? {}
        self.outcome()
    }

    /// The outcome, with all invariants checked.
    pub fn outcome(self) -> Result<Outcome, SimError> {
        match self.alone {
            Some((alone, _)) => alone.outcome(),
            None => outcome::of(self.sites, self.ending.unwrap_or(Ending::TimeUp)),
        }
    }
}

/// Why a configuration needs a single thread, if it does.
fn obstacle(config: &SimConfig) -> Option<&'static str> {
    let changes = config.changes.chunk_by(|a, b| a.at == b.at).map(<[_]>::len).max().unwrap_or(0);
    let from_outside = |switch: &SwitchConfig| {
        matches!(
            switch,
            SwitchConfig::Custom(_)
                | SwitchConfig::SharedBuffer(SharedBufferConfig { scheduler: Some(_), .. })
                | SwitchConfig::OutputQueued(OutputQueuedConfig { discipline: Discipline::Custom(_), .. })
        )
    };
    let all = [
        (config.topology.shortest_delay() == 0, "links without delay"),
        (
            config.topology.links.iter().any(|link| link.loss > 0.0),
            "links that lose packets by chance, one after another",
        ),
        (!config.loops.is_empty(), "closed loops, whose flows follow from others"),
        (!config.responses.is_empty(), "responses, which follow from requests"),
        (config.has_open_loops(), "unreliable connections, whose senders do not learn when their flows end"),
        (config.qps == QpPolicy::Reused, "queue pairs that several flows share"),
        (config.handshake, "handshakes"),
        (config.carry_bytes, "packets with bytes"),
        (config.observe.is_some(), "observed connections"),
        (config.schedule.is_some(), "a schedule that is recorded"),
        (config.switches().any(from_outside), "switches from outside"),
        (
            config.setups.iter().any(|s| matches!(s.transport.congestion, CongestionConfig::Custom(_))),
            "congestion control from outside",
        ),
        (changes * 2 * config.topology.links.len() > CHANGES, "too many changes of links at a time"),
    ];
    all.into_iter().find_map(|(obstacle, why)| obstacle.then_some(why))
}
