//! The simulation: NICs with flows on a [`Network`], run in virtual time to the end of all flows.
//!
//! [`Simulation`] is the network, whose endpoints are NICs, and the application on all of them: it starts flows when
//! they are due (`application`, `flows`) and polls completions. `endpoint` is the NIC at the end of a link, `observe`
//! measures at the ends of connections, `outcome` holds samples and results.

mod application;
mod config;
mod endpoint;
mod flows;
mod ideal;
mod observe;
mod outcome;
mod parallel;
mod remote_flows;
mod rounds;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use irnic_nic::{NicConfig, NicError};

pub use config::{HeaderBytes, QpPolicy, QpSetup, Quit, SimConfig, SimError};
pub use endpoint::{NicEndpoint, NicShared};
pub use ideal::{Train, ideal, packets};
pub use observe::{Observe, Observed};
pub use outcome::{ColourTotals, Ending, FlowRecord, Outcome, Sample};
pub use parallel::Parallel;
pub use rounds::Round;

use crate::network::{Agenda, Event, EventQueue, Network, PortId, Recorder, Standstill, Step};
pub use crate::network::{Change, Detour, LinkChange, LinkRecord, Routing};
use crate::workload::closed_loop::After;
use flows::Flows;
use observe::Observer;

/// Bytes around a RoCEv2 frame (BTH to ICRC) over IPv4: Ethernet header, IPv4, UDP, frame check sequence.
pub const ENCAPSULATION: u32 = 14 + 20 + 8 + 4;

/// A network whose endpoints are NICs.
type Net<A> = Network<NicEndpoint, A>;

/// Tokens of calls that the simulation requests from the network: start of flows; abort of flows; sampling of queues;
/// start of flows of closed loops.
const START: u32 = 0;
const ABORT: u32 = 1;
const SAMPLE: u32 = 2;
const LOOP: u32 = 3;

/// A network, or a part of one, and the application on its NICs.
#[derive(Debug)]
struct Site<A: Agenda> {
    config: Arc<SimConfig>,
    net: Net<A>,
    flows: Flows,
    samples: Vec<Sample>,
    next_quit: usize,
    /// Whether flows that have left their senders are tracked: because flows follow them, or because no other event
    /// reports them.
    follows_sends: bool,
}

impl<A: Agenda> Site<A> {
    /// A network at time 0, before any event.
    fn new(config: Arc<SimConfig>, mut net: Net<A>, mut flows: Flows) -> Site<A> {
        // In this order: of simultaneous events, the one scheduled first comes first.
        if let Some(at) = flows.next_start() {
            net.call_at(at, START);
        }
        flows.begin_loops(&mut net);
        net.schedule_changes();
        if let Some(quit) = config.quits.first() {
            net.call_at(quit.at, ABORT);
        }
        if let Some(every) = config.sample {
            net.observe_at(every, SAMPLE);
        }
        net.watch();
        if config.outlive_deadlocks {
            net.go_on();
        }
        if let Some(what) = config.observe {
            net.count_late_pfc(what.from);
        }
        let follows_sends = net.shared().sent.is_some();
        Site { config, net, flows, samples: Vec::new(), next_quit: 0, follows_sends }
    }
}

/// Whether there are closed loops on which a flow follows one that has left its sender.
fn follows_sends(config: &SimConfig) -> bool {
    config.loops.iter().any(|loops| loops.after() == After::Sent)
}

/// The NICs of these hosts, without queue pairs, and their shared state.
fn nics(
    config: &SimConfig,
    flows: &Flows,
    hosts: impl Iterator<Item = u32>,
) -> Result<(Vec<NicEndpoint>, NicShared), SimError> {
    let mut nics = Vec::with_capacity(hosts.size_hint().0);
    for host in hosts {
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
        nics.push(NicEndpoint::new(nic, flows.completions())?);
    }
    let shared = NicShared {
        headers: config.headers,
        carry_bytes: config.carry_bytes,
        labels: config.routing == Routing::Source,
        trimmed: 0,
        sent: (follows_sends(config) || config.has_open_loops()).then(Vec::new),
        observer: config.observe.map(|what| Box::new(Observer::new(what, config.flows.len()))),
        recorder: None,
    };
    Ok((nics, shared))
}

/// Flows between NICs on a network, in virtual time.
#[derive(Debug)]
pub struct Simulation {
    config: Arc<SimConfig>,
    site: Site<EventQueue<Event>>,
    ending: Option<Ending>,
}

impl Simulation {
    /// A network at time 0, before any event.
    pub fn new(config: SimConfig) -> Result<Simulation, SimError> {
        Simulation::of(Arc::new(config))
    }

    fn of(config: Arc<SimConfig>) -> Result<Simulation, SimError> {
        config.check()?;
        let flows = Flows::new(&config);
        let (nics, shared) = nics(&config, &flows, 0..config.topology.hosts)?;
        let mut net = Network::build(config.network(), nics, shared)?;
        if let Some(detail) = config.schedule {
            net.keep_journal(detail);
        }
        Ok(Simulation { site: Site::new(config.clone(), net, flows), ending: None, config })
    }

    /// Records packets that leave by these ports from now on. They have their bytes with [`SimConfig::carry_bytes`],
    /// otherwise only headers.
    pub fn record(&mut self, ports: impl IntoIterator<Item = PortId>, recorder: Box<dyn Recorder>) {
        ports.into_iter().for_each(|port| self.site.net.tap(port));
        self.site.net.shared_mut().recorder = Some(recorder);
    }

    /// Virtual time, ns.
    pub fn now(&self) -> u64 {
        self.site.net.now()
    }

    /// The network.
    pub fn network(&self) -> &Network<NicEndpoint> {
        &self.site.net
    }

    /// Numbers of complete flows, and of all flows; for closed loops, the latter is extrapolated.
    pub fn progress(&self) -> (usize, usize) {
        (self.site.flows.done, self.site.flows.expected(self.site.net.now()))
    }

    /// Runs until all flows are complete, nothing moves any more, or `events` more events were processed. Returns
    /// whether the run is over.
    pub fn run(&mut self, events: u64) -> Result<bool, SimError> {
        for _ in 0..events {
            if self.ending.is_some() {
                return Ok(true);
            }
            if self.site.flows.done == self.site.flows.len() && !self.site.flows.are_to_come() {
                self.ending = Some(Ending::Complete);
                return Ok(true);
            }
            let step = self.site.net.step(self.config.until);
            if self.site.answer(step)? {
                continue;
            }
            if step == Step::Standstill || self.site.net.events().0 == 0 {
                self.ending = Some(self.site.net.standstill().into());
            } else {
                self.site.net.advance(self.config.until);
                self.ending = Some(Ending::TimeUp);
            }
        }
        Ok(self.ending.is_some())
    }

    /// Runs to the end.
    pub fn finish(mut self) -> Result<Outcome, SimError> {
        while !self.run(u64::MAX)? {}
        self.outcome()
    }

    /// The outcome, with all invariants checked.
    pub fn outcome(self) -> Result<Outcome, SimError> {
        outcome::of(vec![self.site], self.ending.unwrap_or(Ending::TimeUp))
    }
}

impl From<Standstill> for Ending {
    fn from(standstill: Standstill) -> Ending {
        match standstill {
            Standstill::Deadlock(cycle) => Ending::Deadlock(cycle),
            Standstill::Stuck => Ending::Stuck,
        }
    }
}

impl From<NicError> for SimError {
    fn from(e: NicError) -> SimError {
        SimError::Nic(e.to_string())
    }
}
