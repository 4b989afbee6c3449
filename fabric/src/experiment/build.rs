//! Derivation of a run from a description.

use irnic_transports::config::{FlowControl, Timer, TransportConfig, WireFormat, paper};
use irnic_transports::congestion::CongestionConfig;
use irnic_units::keys::ValueError;

use super::{Experiment, LinkFlowControl, Transport, checks, switches};
use crate::sim::{ENCAPSULATION, HeaderBytes, QpSetup, Routing, SimConfig};
use crate::switch::{Ecn, HolConfig, Remedy};
use crate::topology::{Routes, Topology};
use crate::workload::{Flow, Loops, Setting};

/// Period in which flows start, if neither a time nor a number is given, ns.
const DURATION: u64 = 10_000_000;
/// Bytes of BTH and ICRC, which every packet has, without IRN's extension, so that all transports get the same flows.
const BTH_AND_ICRC: u32 = 16;

impl Experiment {
    /// Returns the run with this seed.
    ///
    /// # Errors
    /// The error names the key of an invalid value, and states what was expected: [`super::KEYS`] has the keys' names,
    /// also for programs.
    pub fn config(&self, seed: u64) -> Result<SimConfig, ValueError> {
        let mut config = self.network()?;
        config.flows = match &self.flows {
            Some(flows) => flows.clone(),
            None => {
                let (flows, loops) = self.generate(seed)?;
                config.loops = loops;
                config.responses = self.workload.responses();
                flows
            }
        };
        config.seed = seed;
        let longest: Vec<(u16, u64)> = config.longest_flows().collect();
        for (index, (setup, transport)) in config.setups.iter_mut().zip(&self.transports).enumerate() {
            if !transport.gives("window") {
                let flows = longest.iter().filter(|(setup, _)| usize::from(*setup) == index);
                widen(&mut setup.transport, flows.map(|(_, bytes)| *bytes), setup.mtu.bytes() as u64);
            }
        }
        switches::count_priorities(&mut config);
        checks::run(self, &config)?;
        Ok(config)
    }

    /// Returns the network without flows, for external hosts ([`crate::lab`]). PFC reserves room for the priority of
    /// [flows](Experiment::priority) and that of acknowledgements.
    ///
    /// # Errors
    /// As [`Experiment::config`].
    pub fn lab(&self, seed: u64) -> Result<SimConfig, ValueError> {
        let mut config = self.network()?;
        config.seed = seed;
        if let Err(error) = config.setups.iter().try_for_each(|setup| setup.transport.check_without_notices()) {
            return Err(self.refuse("transport", error));
        }
        if self.pfc && self.flow_control == LinkFlowControl::Credits {
            return Err(self.refuse("flow-control", "hosts from outside do not count credits"));
        }
        // Senders and amounts are unknown.
        config.flows = vec![Flow { priority: self.priority, ..Flow::new(0, 1, 0, 0) }];
        switches::count_priorities(&mut config);
        checks::run(self, &config)?;
        config.flows.clear();
        Ok(config)
    }

    /// Returns a run without flows.
    fn network(&self) -> Result<SimConfig, ValueError> {
        let setups = self.setups()?;
        let [QpSetup { transport, .. }, ..] = setups[..] else {
            return Err(self.wrong("transport", "one, or one for each part of the workload"));
        };
        let ecn = self.ecn.unwrap_or_else(|| {
            let rules = setups.iter().map(|s| default_ecn(&s.transport.congestion, s.transport.line_rate));
            rules.into_iter().find(|rule| *rule != Ecn::Off).unwrap_or(Ecn::Off)
        });
        let full = checks::full_packet(&setups, self.headers);
        let switch = self.switch(ecn, longest(&setups, self.headers), full)?;
        let differing = self.differing_switches(&switch, ecn, longest(&setups, self.headers))?;
        let mut config = SimConfig::new(self.topology.clone(), Vec::new(), switch, transport);
        config.differing = differing;
        config.rocc = self.points(&setups)?;
        config.hol = self.hol.clone().filter(|_| self.pfc && self.flow_control == LinkFlowControl::Pfc);
        if let Some(HolConfig::Breaker(breaker)) = &mut config.hol {
            breaker.place = longest(&setups, self.headers);
        }
        config.setups = setups;
        config.headers = self.headers;
        config.setup_rtts = self.setup_rtts;
        config.handshake = self.handshake;
        config.quantum = self.quantum;
        config.ect = ecn != Ecn::Off;
        config.qps = self.qps;
        config.routing = self.routing;
        config.detours.clone_from(&self.detours);
        config.outlive_deadlocks = self.outlive_deadlocks;
        config.carry_bytes = self.verify;
        config.sample = self.sample;
        config.until = self.until.unwrap_or(u64::MAX);
        config.changes.clone_from(&self.changes);
        checks::network(self, &config)?;
        Ok(config)
    }

    /// Returns the length of the longest packet on the wire, bytes.
    pub(super) fn longest_packet(&self) -> Result<u32, ValueError> {
        Ok(longest(&self.setups()?, self.headers))
    }

    /// Returns the setups of queue pairs, one for each transport.
    fn setups(&self) -> Result<Vec<QpSetup>, ValueError> {
        let (transports, parts) = (self.transports.len(), self.workload.parts.len());
        if self.flows.is_none() && transports > 1 && transports != parts {
            let parts = if parts == 1 { "one part".to_owned() } else { format!("{parts} parts") };
            let why =
                format!("{transports} transports for {parts} of the workload; expected one, or one for each part");
            return Err(self.refuse("transport", why));
        }
        self.transports.iter().map(|transport| self.setup(transport)).collect()
    }

    fn setup(&self, given: &Transport) -> Result<QpSetup, ValueError> {
        let mut transport = given.config;
        if transport.wire == WireFormat::Roce && !given.gives_timer() {
            // IRN §4.3.2: with PFC nothing is lost, so RoCE has no timeouts; without it, only RTO_high. The latter also
            // applies where switches drop frames of a loop.
            let drops = matches!(&self.hol, Some(HolConfig::Breaker(breaker)) if breaker.remedy == Remedy::Drop);
            transport.timer = match transport.timer {
                Timer::Fixed(_) if self.pfc && !drops => Timer::Fixed(None),
                Timer::Fixed(None) => Timer::Fixed(Some(paper::RTO_HIGH)),
                chosen => chosen,
            };
        }
        transport.check().map_err(|error| self.refuse("transport", error))?;
        if let Some(name) = transport.needs_one_way()
            && matches!(self.routing, Routing::Spray | Routing::Random)
        {
            let why = format!("{name} takes packets that are overtaken for lost; it needs ecmp, source or static");
            return Err(self.refuse("routing", why));
        }
        if transport.congestion != CongestionConfig::None || transport.has_probes() {
            if !given.gives("line-rate") {
                transport.line_rate = fastest(&self.topology);
            }
            if !given.gives("base-rtt") {
                transport.base_rtt = propagation(&self.topology);
            }
        }
        if transport.discipline.pull().is_some() && !given.gives("line-rate") {
            transport.line_rate = fastest(&self.topology);
        }
        let mut setup = QpSetup { service: self.service, mtu: self.mtu, ..QpSetup::new(transport) };
        if transport.congestion.uses_telemetry() && !given.gives("base-rtt") {
            // HPCC compares bytes in flight with what a link can send in a round trip: that of packets, not of
            // propagation alone.
            setup.transport.base_rtt = checks::round_trip(&self.topology, &setup, self.headers);
        }
        Ok(setup)
    }

    /// Generates the flows of the workload, and its closed loops. The flows of each part use its transport.
    fn generate(&self, seed: u64) -> Result<(Vec<Flow>, Vec<Loops>), ValueError> {
        let setting = Setting {
            topology: &self.topology,
            seed,
            load: self.load,
            duration: self.duration.or(self.arrivals.is_none().then_some(DURATION)),
            flows: self.arrivals,
            mtu: self.mtu.bytes() as u32,
            header: match self.headers {
                HeaderBytes::Real => ENCAPSULATION + BTH_AND_ICRC,
                HeaderBytes::Fixed(bytes) => bytes,
            },
            priority: self.priority,
        };
        let mut flows = self.workload.generate(&setting).map_err(|error| self.refuse(self.origin(), error))?;
        let mut loops = self.workload.loops(&setting).map_err(|error| self.refuse(self.origin(), error))?;
        if flows.is_empty() && loops.is_empty() {
            let why = "there are no flows; a longer --duration or a higher --load makes some";
            return Err(self.refuse(self.origin(), why));
        }
        if self.transports.len() > 1 {
            flows.iter_mut().for_each(|flow| flow.setup = flow.class.into());
            loops.iter_mut().for_each(|loops| loops.setup = loops.class.into());
        }
        Ok((flows, loops))
    }
}

fn longest(setups: &[QpSetup], headers: HeaderBytes) -> u32 {
    setups.iter().map(|setup| headers.longest(setup)).max().unwrap_or(0)
}

/// Returns the rate of the fastest host's link, bit/s.
fn fastest(topology: &Topology) -> u64 {
    topology.links.iter().filter(|l| l.a.min(l.b) < topology.hosts).map(|l| l.rate).max().unwrap_or(1)
}

/// Returns the round-trip propagation delay on the longest of the shortest paths, ns.
fn propagation(topology: &Topology) -> u64 {
    let routes = Routes::compute(topology, &|_| false);
    let one_way = |dst| Some(topology.along(&routes.path(0, dst)?).map(|l| l.delay).sum::<u64>());
    2 * (1..topology.hosts).filter_map(one_way).max().unwrap_or(0)
}

/// Returns the default marking of an algorithm: DCQCN's with its paper's thresholds for 40 Gbit/s, DCTCP's with those
/// of the ns-3 simulators, both scaled to the rate.
fn default_ecn(congestion: &CongestionConfig, rate: u64) -> Ecn {
    let bytes = |at_40g: u64| (u128::from(at_40g) * u128::from(rate) / 40_000_000_000) as u64;
    match congestion {
        c if !c.uses_ecn() => Ecn::Off,
        c if c.cnp_interval().is_some() => Ecn::Red { kmin: bytes(5_000), kmax: bytes(200_000), pmax: 0.01 },
        _ => Ecn::Step { k: bytes(120_000) },
    }
}

/// Widens the window of a sender without a cap to its longest flow, up to the maximum window.
fn widen(transport: &mut TransportConfig, flows: impl Iterator<Item = u64>, mtu: u64) {
    const MOST: u64 = 65_536;
    // A pulled stream has little in flight at a time.
    if transport.flow == FlowControl::None && transport.discipline.pull().is_none() {
        let longest = flows.map(|bytes| bytes.div_ceil(mtu)).max().unwrap_or(1);
        transport.window = longest.min(MOST).next_power_of_two().max(u64::from(transport.window)) as u32;
    }
}
