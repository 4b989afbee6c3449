//! The simulation: NICs with flows on a [`Network`], run in virtual time to the end of all flows.
//!
//! [`Simulation`] is the network, whose endpoints are NICs, and the application on all of them: it starts flows when
//! they are due (`application`, `flows`) and takes what is complete. `endpoint` is the NIC at the end of a link,
//! `observe` what the ends of connections see, `outcome` samples and the end.

mod application;
mod config;
mod endpoint;
mod flows;
mod ideal;
mod observe;
mod outcome;
#[cfg(test)]
mod tests;

use irnic_nic::{NicConfig, NicError};

pub use config::{HeaderBytes, QpPolicy, QpSetup, Quit, SimConfig, SimError};
pub use endpoint::{NicEndpoint, NicShared};
pub use ideal::{Train, ideal, packets};
pub use observe::{Observe, Observed};
pub use outcome::{ColourTotals, Ending, FlowRecord, Outcome, Sample};

pub use crate::network::{Change, Detour, LinkChange, LinkRecord, Routing};
use crate::network::{Network, PortId, Recorder, Standstill, Step};
use flows::Flows;
use observe::Observer;

/// Bytes around a RoCEv2 frame (BTH to ICRC) over IPv4: Ethernet header, IPv4, UDP, frame check sequence.
pub const ENCAPSULATION: u32 = 14 + 20 + 8 + 4;

/// A network whose endpoints are NICs.
type Net = Network<NicEndpoint>;

/// Calls that the simulation wants from the network: the next flows start; flows end before they are complete; queues
/// are looked at; flows of closed loops start.
const START: u32 = 0;
const ABORT: u32 = 1;
const SAMPLE: u32 = 2;
const LOOP: u32 = 3;

/// Flows between NICs on a network, in virtual time.
#[derive(Debug)]
pub struct Simulation {
    config: SimConfig,
    net: Net,
    flows: Flows,
    samples: Vec<Sample>,
    next_quit: usize,
    ending: Option<Ending>,
}

impl Simulation {
    /// A network at time 0, in which nothing has happened.
    pub fn new(config: SimConfig) -> Result<Simulation, SimError> {
        config.check()?;
        let mut flows = Flows::new(&config);
        let mut nics = Vec::with_capacity(config.topology.hosts as usize);
        for host in 0..config.topology.hosts {
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
            observer: config.observe.map(|what| Box::new(Observer::new(what, config.flows.len()))),
            recorder: None,
        };
        let mut net = Network::build(config.network(), nics, shared)?;
        // In this order: of events at the same time the one scheduled first comes first.
        if let Some(at) = flows.next_start() {
            net.call_at(at, START);
        }
        flows.begin_loops(&mut net);
        net.schedule_changes();
        if let Some(quit) = config.quits.first() {
            net.call_at(quit.at, ABORT);
        }
        if let Some(every) = config.sample {
            net.look_at(every, SAMPLE);
        }
        net.watch();
        if let Some(what) = config.observe {
            net.count_late_pfc(what.from);
        }
        Ok(Simulation { net, flows, samples: Vec::new(), next_quit: 0, ending: None, config })
    }

    /// Shows what leaves by these ports from now on. Packets have their bytes with [`SimConfig::carry_bytes`], else only
    /// their headers.
    pub fn record(&mut self, ports: impl IntoIterator<Item = PortId>, recorder: Box<dyn Recorder>) {
        ports.into_iter().for_each(|port| self.net.tap(port));
        self.net.shared_mut().recorder = Some(recorder);
    }

    /// Virtual time, ns.
    pub fn now(&self) -> u64 {
        self.net.now()
    }

    /// The network.
    pub fn network(&self) -> &Network<NicEndpoint> {
        &self.net
    }

    /// Flows that are complete, and flows in all: of closed loops as many as there will be if they go on as until now.
    pub fn progress(&self) -> (usize, usize) {
        (self.flows.done, self.flows.expected(self.net.now()))
    }

    /// Runs until all flows are complete, nothing moves any more, or `events` more events have come. Returns whether it
    /// is over.
    pub fn run(&mut self, events: u64) -> Result<bool, SimError> {
        for _ in 0..events {
            if self.ending.is_some() {
                return Ok(true);
            }
            if self.flows.done == self.flows.len() && !self.flows.are_to_come() {
                self.ending = Some(Ending::Complete);
                return Ok(true);
            }
            match self.net.step(self.config.until) {
                Step::Done => {}
                Step::Endpoint(host) => self.after_host(host)?,
                Step::Call(START) => self.start_flows()?,
                Step::Call(ABORT) => self.quit_flows()?,
                Step::Call(LOOP) => self.start_loops()?,
                Step::Call(_) => self.sample(),
                Step::Standstill => self.ending = Some(self.net.standstill().into()),
                Step::Idle if self.net.events().0 == 0 => self.ending = Some(self.net.standstill().into()),
                Step::Idle => {
                    self.net.advance(self.config.until);
                    self.ending = Some(Ending::TimeUp);
                }
            }
        }
        Ok(self.ending.is_some())
    }

    /// Runs to the end.
    pub fn finish(mut self) -> Result<Outcome, SimError> {
        while !self.run(u64::MAX)? {}
        self.outcome()
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
