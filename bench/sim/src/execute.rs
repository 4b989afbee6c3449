//! Runs of all cases with all seeds.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

use irnic_fabric::experiment::{Case, Experiment, KEYS};
use irnic_fabric::network::{CreditConfig, address};
use irnic_fabric::schedule::{Detail, Schedule};
use irnic_fabric::sim::{Ending, FlowRecord, Outcome, Parallel, Sample, SimConfig, Simulation};
use irnic_fabric::summary::{Summary, size_edges};
use irnic_fabric::switch::{
    Discipline, Ecn, InputQueuedConfig, PiConfig, SharedBufferConfig, SwitchConfig, Thresholds,
};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;
use irnic_fabric::workload::incast::{Bytes, Incast, When};
use irnic_fabric::workload::spec::Part;
use irnic_report::CommandError;
use irnic_report::origin::Origin;
use irnic_sweep::{self as sweep, How, NoResult, Sweep, Watch};
use serde::{Deserialize, Serialize};

use crate::error::usage;
use crate::port_capture::{PcapArgs, PortCapture};
use crate::stored;

/// Number of events between updates of the flag and the bar: some tens of milliseconds.
pub const SLICE: u64 = 200_000;

/// The runs to be performed: every case with every seed.
pub struct Batch {
    /// Points of the grid.
    pub cases: Vec<Case>,
    /// The experiments they describe.
    pub experiments: Vec<Experiment>,
    /// Seeds of each case.
    pub seeds: Vec<u64>,
    /// How to get the results again.
    pub origin: Origin,
    /// Threads of each run.
    pub threads: usize,
    /// Whether individual flows are needed afterwards.
    pub keep_flows: bool,
    /// Level of detail of the packets recorded in the only run.
    pub schedule: Option<Detail>,
    /// Capture of packets of the only run.
    pub pcap: PcapArgs,
}

impl Batch {
    /// Returns the name of a run.
    pub fn name(&self, run: &Run) -> String {
        let label = &self.cases[run.case].label;
        if self.seeds.len() > 1 { format!("{label} seed={}", run.seed) } else { label.clone() }
    }

    /// Returns the runs of one case that have results.
    pub fn of_case<'a>(&self, case: usize, runs: &'a [Run]) -> impl Iterator<Item = (&'a Run, &'a Finished)> + use<'a> {
        runs.iter().filter(move |r| r.case == case).filter_map(|r| Some((r, r.result.as_ref().ok()?)))
    }
}

/// One case with one seed.
pub struct Run {
    /// Index of the case.
    pub case: usize,
    /// Seed.
    pub seed: u64,
    /// Its result, or why there is none.
    pub result: Result<Finished, NoResult>,
}

/// Progress of the runs of an experiment at Ctrl-C.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Total number of runs.
    pub all: usize,
    /// Runs with results.
    pub done: usize,
    /// Failed runs.
    pub failed: usize,
    /// Runs that were in progress.
    pub interrupted: usize,
    /// Runs that were waiting.
    pub never_begun: usize,
}

impl Reached {
    /// Counts the runs by state.
    pub fn by(runs: &[Run]) -> Reached {
        let count = |of: &dyn Fn(&Run) -> bool| runs.iter().filter(|run| of(run)).count();
        Reached {
            all: runs.len(),
            done: count(&|r| r.result.is_ok()),
            failed: count(&|r| matches!(r.result, Err(NoResult::Failed(_)))),
            interrupted: count(&|r| matches!(r.result, Err(NoResult::Interrupted))),
            never_begun: count(&|r| matches!(r.result, Err(NoResult::NeverBegun))),
        }
    }

    /// Returns whether runs were interrupted.
    pub fn is_short(&self) -> bool {
        self.interrupted + self.never_begun > 0
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reached { all, done, failed, interrupted, never_begun } = self;
        write!(f, "{done} of {all} runs {} done", if *done == 1 { "was" } else { "were" })?;
        if *failed > 0 {
            write!(f, ", {failed} failed")?;
        }
        write!(f, ", {interrupted} under way, {never_begun} never begun")
    }
}

/// Results of a run.
#[derive(Serialize, Deserialize)]
pub struct Finished {
    /// Statistics.
    pub summary: Summary,
    /// Whether it was ended by Ctrl-C and is the only run: of several, an interrupted one has no result.
    pub interrupted: bool,
    /// Parameters derived from the configuration.
    pub resolved: Vec<(Cow<'static, str>, String)>,
    /// Nodes of a deadlock, by their ids in the topology file.
    pub deadlock: Vec<u32>,
    /// Flows with their records, if needed; hosts by their ids in the topology file.
    #[serde(with = "stored::flows")]
    pub flows: Vec<(Flow, FlowRecord)>,
    /// Start of the first flow, ns. Files of the ns-3 simulators begin at 2 s.
    pub begins: u64,
    /// Samples of the network from then on.
    #[serde(with = "stored::samples")]
    pub samples: Vec<Sample>,
    /// Times at which packets entered and left the network, if recorded.
    #[serde(skip)]
    pub schedule: Option<Schedule>,
    /// Why a single thread ran it, although more were requested.
    pub alone: Option<Cow<'static, str>>,
    /// Real time that it took.
    pub took: Duration,
}

impl Finished {
    /// Returns whether all flows are complete.
    pub fn complete(&self) -> bool {
        !self.interrupted && self.summary.ending == Ending::Complete
    }
}

/// The runs of a command, as a sweep.
pub struct Simulations<'a> {
    /// The runs.
    pub batch: &'a Batch,
    /// The command, and the settings that its results depend on apart from the experiments.
    pub command: &'static str,
    /// Returns the command line that repeats a run.
    pub replay: &'a (dyn Fn(usize, u64) -> String + Sync),
    /// The text of the experiment file.
    pub experiment: Option<&'a str>,
}

impl Sweep for Simulations<'_> {
    type Result = Finished;

    fn command(&self) -> &str {
        self.command
    }

    fn cases(&self) -> usize {
        self.batch.cases.len()
    }

    fn seeds(&self) -> &[u64] {
        &self.batch.seeds
    }

    fn label(&self, case: usize) -> String {
        self.batch.cases[case].label.clone()
    }

    fn settings(&self, case: usize) -> Result<String, CommandError> {
        let experiment = &self.batch.experiments[case];
        let mut settings = format!("{experiment:?}");
        // Workloads may name files, which are read with each run; contents of other files are in the experiment.
        for part in &experiment.workload.parts {
            if let Part::File(path) | Part::Matrix(path, _) = part {
                let text = std::fs::read(path);
                let text = text.map_err(|e| CommandError::Usage(format!("--workload: {}: {e}", path.display())))?;
                settings += &sweep::digest(&[&String::from_utf8_lossy(&text)]);
            }
        }
        Ok(settings)
    }

    fn check(&self, case: usize) -> Result<(), CommandError> {
        let Batch { cases, experiments, seeds, .. } = self.batch;
        // Errors that depend on the flows are detected with those of the first seed, before anything runs.
        experiments[case].config(seeds[0]).map_err(|error| usage(cases[case].error(error)))?;
        Ok(())
    }

    fn estimate(&self, case: usize) -> f64 {
        estimate(&self.batch.experiments[case])
    }

    fn replay(&self, case: usize, seed: u64) -> String {
        (self.replay)(case, seed)
    }

    fn make(&self, case: usize, seed: u64, watch: &Watch<'_>) -> Result<Finished, NoResult> {
        match one(self.batch, case, seed, watch) {
            Ok(finished) if finished.interrupted && !watch.is_alone() => Err(NoResult::Interrupted),
            result => result.map_err(NoResult::Failed),
        }
    }

    fn trim(&self, finished: &mut Finished) {
        if !self.batch.keep_flows {
            finished.flows = Vec::new();
        }
    }

    fn experiment(&self) -> Option<&str> {
        self.experiment
    }
}

impl Simulations<'_> {
    /// Performs all runs, or loads their results. Results are in the order of cases, and within a case of seeds.
    /// Returns `None` if there is nothing to show; with the runs, the version of irnic that performed them.
    pub fn perform(&self, how: &How<'_>) -> Result<Option<(Vec<Run>, String)>, CommandError> {
        let Some(performed) = sweep::perform(self, how)? else { return Ok(None) };
        let seeds = &self.batch.seeds;
        let run = |(at, result)| Run { case: at / seeds.len(), seed: seeds[at % seeds.len()], result };
        Ok(Some((performed.results.into_iter().enumerate().map(run).collect(), performed.irnic)))
    }
}

/// Returns the command line of `irnic sim` that repeats a run of a case.
pub fn replay(case: &Case, seed: u64) -> String {
    let mut arguments = vec!["irnic".to_owned(), "sim".to_owned()];
    for (key, written) in KEYS.iter().filter_map(|key| Some((key, case.given(key.name())?))) {
        let option = format!("--{}", key.name());
        match key.value_name {
            Some(_) => arguments.extend([option, written.text.clone()]),
            None => arguments.extend((written.text == "on").then_some(option)),
        }
    }
    arguments.extend(["--seed".to_owned(), seed.to_string()]);
    sweep::quoted(&arguments)
}

/// Returns the estimated amount to be sent by hosts until the end of the run: rates times load times duration, bits.
pub fn estimate(experiment: &Experiment) -> f64 {
    let topology = &experiment.topology;
    let hosts = f64::from(topology.hosts);
    let rate: f64 = topology.host_rates().iter().map(|rate| *rate as f64).sum();
    let until = |ns: Option<u64>| ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e9);
    // Without a time or a number of flows, arrivals continue for 10 ms.
    let arrivals = until(experiment.duration.or(experiment.arrivals.is_none().then_some(10_000_000)));
    let offered = |load: f64, mean: f64| {
        (rate * load * arrivals).min(experiment.arrivals.map_or(f64::INFINITY, |flows| flows as f64 * mean * 8.0))
    };
    let part = |part: &Part| match part {
        Part::Poisson { sizes, load, .. } => offered(load.unwrap_or(experiment.load), sizes.mean()),
        Part::Rpc(rpc) => {
            let both = (rpc.request + rpc.response) as f64;
            offered(rpc.load.unwrap_or(experiment.load) * both / rpc.request as f64, both)
        }
        Part::Permutation(permutation) => hosts * permutation.bytes as f64 * 8.0,
        Part::Anywhere(anywhere) => hosts * f64::from(anywhere.flows) * anywhere.bytes as f64 * 8.0,
        Part::Incast(Incast { when: When::Load(load), .. }) => offered(*load, f64::INFINITY),
        // It is a share of what the others offer.
        Part::Incast(Incast { when: When::Share(_), .. }) => 0.0,
        Part::Incast(Incast { when: When::Times { repeat, .. }, bytes, senders, flows, .. }) => {
            let count = senders.map_or(hosts - 1.0, f64::from) * f64::from(*flows);
            f64::from(*repeat)
                * match bytes {
                    Bytes::Together(bytes) => *bytes as f64 * 8.0,
                    Bytes::Each(bytes) => *bytes as f64 * 8.0 * count,
                }
        }
        // Files are unknown before they are read, as are loops before they run.
        Part::Loop(_) | Part::Matrix(..) | Part::File(_) => offered(experiment.load, 0.0),
    };
    let sent = match &experiment.flows {
        Some(flows) => flows.iter().map(|flow| flow.bytes as f64 * 8.0).sum(),
        None => experiment.workload.parts.iter().map(part).sum::<f64>(),
    };
    sent.min(rate * until(experiment.until)).min(f64::MAX)
}

fn one(batch: &Batch, case: usize, seed: u64, watch: &Watch<'_>) -> Result<Finished, String> {
    let mut config = batch.experiments[case].config(seed).map_err(|e| batch.cases[case].error(e).to_string())?;
    config.schedule = batch.schedule;
    let resolved = resolved(&config);
    let edges = size_edges(config.setups[0].mtu.bytes() as u64);
    let topology = config.topology.clone();
    let (until, samples) = (config.until, config.sample.is_some());
    let begun = Instant::now();
    let mut simulation = Runner::new(config, batch, &topology)?;
    let mut advance = watch.begin();
    let mut stopped = false;
    while !simulation.run(SLICE)? {
        let (done, all) = simulation.progress();
        advance.to((done as f64 / all.max(1) as f64).max(simulation.now() as f64 / until as f64));
        if watch.is_interrupted() {
            stopped = true;
            break;
        }
    }
    let took = begun.elapsed();
    drop(advance);
    let alone = simulation.alone(batch).map(Cow::Borrowed);
    let mut outcome = simulation.outcome()?;
    let mut summary = Summary::of(&outcome, &edges);
    // Observers must not affect the count.
    summary.events -= outcome.samples.len() as u64;
    let begins = outcome.flows.first().map_or(0, |f| f.start);
    outcome.samples.retain(|s| s.at >= begins);
    // Curves reach the end of the run.
    if samples && outcome.last.at > outcome.samples.last().map_or(begins, |sample| sample.at) {
        outcome.samples.push(outcome.last);
    }
    let flows = std::mem::take(&mut outcome.flows).into_iter().zip(std::mem::take(&mut outcome.records));
    let named = |(flow, record): (Flow, FlowRecord)| {
        (Flow { src: topology.id(flow.src), dst: topology.id(flow.dst), ..flow }, record)
    };
    Ok(Finished {
        summary,
        interrupted: stopped,
        resolved,
        deadlock: outcome.deadlock.iter().map(|(from, _)| topology.id(*from)).collect(),
        flows: if batch.keep_flows { flows.map(named).collect() } else { Vec::new() },
        begins,
        samples: outcome.samples,
        schedule: outcome.schedule,
        alone,
        took,
    })
}

/// Returns the values of keys without a fixed default, for reports.
pub fn resolved(config: &SimConfig) -> Vec<(Cow<'static, str>, String)> {
    let topology = &config.topology;
    let network = format!("{} hosts, {} switches, {} links", topology.hosts, topology.switches, topology.links.len());
    let transports: Vec<String> = config.setups.iter().map(|s| format!("{:#}", s.transport)).collect();
    let mut all = vec![("network", network), ("transport", transports.join(" + "))];
    all.extend(switches(&config.switch));
    if !config.differing.is_empty() {
        let text = |(node, switch): &(u32, SwitchConfig)| format!("{}: {}", topology.id(*node), exception(switch));
        all.push(("switch-at", config.differing.iter().map(text).collect::<Vec<_>>().join("; ")));
    }
    all.into_iter().map(|(key, text)| (Cow::Borrowed(key), text)).collect()
}

/// Returns the values of the keys that describe the type of the switches, and what they mark, which may follow from the
/// congestion control.
fn switches(switch: &SwitchConfig) -> Vec<(&'static str, String)> {
    let ecn = match switch {
        SwitchConfig::InputQueued(c) => c.ecn,
        SwitchConfig::SharedBuffer(c) => c.ecn,
        SwitchConfig::OutputQueued(c) => c.ecn,
        _ => Ecn::Off,
    };
    let marked = match ecn {
        Ecn::Step { k } => format!("all that meet more than {k} bytes"),
        Ecn::Red { kmin, kmax, pmax } => format!("RED, kmin {kmin} bytes, kmax {kmax} bytes, pmax {pmax}"),
        Ecn::Pi(PiConfig { reference, .. }) => format!("PI, reference {reference} bytes"),
        Ecn::Off => return kind(switch),
    };
    let mut all = kind(switch);
    all.push(("ecn", marked));
    all
}

/// Returns the values of the keys that describe the type of the switches.
fn kind(switch: &SwitchConfig) -> Vec<(&'static str, String)> {
    match switch {
        SwitchConfig::InputQueued(c) => input_queued(c),
        SwitchConfig::SharedBuffer(c) => shared_buffer(c),
        SwitchConfig::Trimming(c) => {
            let back = if c.returns { "" } else { "not " };
            let buffer = format!(
                "{} bytes of packets with payload and {} of others for each output, those being sent included; headers \
                 do {back}go back",
                c.data, c.headers
            );
            vec![("buffer", buffer)]
        }
        SwitchConfig::OutputQueued(c) => {
            let order = order_name(&c.discipline);
            let packets = c.packets.map_or_else(String::new, |n| format!(" and {n} packets"));
            vec![("buffer", format!("{} bytes{packets} for each output, {order}", c.buffer))]
        }
        SwitchConfig::Policy(policy) => {
            let parameters = policy.policy().parameters();
            let parameters: Vec<String> = parameters.iter().map(|p| format!("{}={}", p.name, p.value)).collect();
            vec![("policy", parameters.join(", "))]
        }
        // The command line has no names for others.
        _ => Vec::new(),
    }
}

/// Returns the values of the keys of switches with a buffer for each input.
fn input_queued(c: &InputQueuedConfig) -> Vec<(&'static str, String)> {
    let mut all = vec![("buffer", format!("{} bytes for each input", c.buffer))];
    if let Some(n) = c.speedup {
        all.push(("crossbar", format!("each input sends to {n} outputs at a time")));
    }
    if let Some(CreditConfig { each, .. }) = c.credits {
        all.push(("credits", format!("{each} bytes for each priority of an input")));
    }
    if let Some(thresholds) = c.pfc {
        all.push(("pfc", fixed(thresholds)));
    }
    all
}

/// Returns the values of the keys of switches with one buffer for all ports.
fn shared_buffer(c: &SharedBufferConfig) -> Vec<(&'static str, String)> {
    let mut all = vec![("buffer", format!("{} bytes for each switch, alpha {}", c.buffer, c.alpha))];
    if let Some(g) = &c.gfc {
        all.push(("gfc", format!("slower from {} bytes on, {} at most, {} stages", g.first, g.most, g.levels)));
    }
    if let Some(p) = &c.pfc {
        let dynamic = || format!("alpha {}, reserve {} bytes, XON {} bytes below XOFF", p.alpha, p.reserve, p.resume);
        all.push(("pfc", p.fixed.map_or_else(dynamic, fixed)));
    }
    all
}

/// Describes fixed thresholds of PFC.
fn fixed(Thresholds { xoff, xon }: Thresholds) -> String {
    format!("XOFF above {xoff} bytes, XON at {xon}")
}

/// Describes a switch of another type than the others.
fn exception(switch: &SwitchConfig) -> String {
    match switch {
        SwitchConfig::OutputQueued(c) => order_name(&c.discipline).to_owned(),
        SwitchConfig::Policy(policy) => {
            let parameters = policy.policy().parameters();
            let parameters = parameters.iter().map(|p| format!(" {}={}", p.name, p.value));
            format!("policy{}", parameters.collect::<String>())
        }
        _ => String::new(),
    }
}

/// The order's name, if it has one.
fn order_name(order: &Discipline) -> &'static str {
    Discipline::NAMES.into_iter().find(|(_, named)| named == order).map_or("", |(name, _)| name)
}

/// A run on one thread or on several.
enum Runner {
    One(Box<Simulation>),
    Several(Box<Parallel>),
}

impl Runner {
    fn new(config: SimConfig, batch: &Batch, topology: &Topology) -> Result<Runner, String> {
        if batch.threads > 1 && batch.pcap.pcap.is_none() {
            let parallel = Parallel::new(config, batch.threads).map_err(|e| e.to_string())?;
            return Ok(Runner::Several(Box::new(parallel)));
        }
        let mut simulation = Simulation::new(config).map_err(|e| e.to_string())?;
        let ports = simulation.network().ports();
        if let Some(capture) = PortCapture::open(&batch.pcap, topology, ports, address)? {
            simulation.record(capture.ports.clone(), Box::new(capture));
        }
        Ok(Runner::One(Box::new(simulation)))
    }

    fn run(&mut self, events: u64) -> Result<bool, String> {
        match self {
            Runner::One(simulation) => simulation.run(events),
            Runner::Several(parallel) => parallel.run(events),
        }
        .map_err(|e| e.to_string())
    }

    fn progress(&self) -> (usize, usize) {
        match self {
            Runner::One(simulation) => simulation.progress(),
            Runner::Several(parallel) => parallel.progress(),
        }
    }

    fn now(&self) -> u64 {
        match self {
            Runner::One(simulation) => simulation.now(),
            Runner::Several(parallel) => parallel.now(),
        }
    }

    /// Why a single thread runs it, although more were requested.
    fn alone(&self, batch: &Batch) -> Option<&'static str> {
        match self {
            Runner::One(_) => (batch.threads > 1).then_some("--pcap records packets one after another"),
            Runner::Several(parallel) => parallel.alone(),
        }
    }

    fn outcome(self) -> Result<Outcome, String> {
        match self {
            Runner::One(simulation) => simulation.outcome(),
            Runner::Several(parallel) => parallel.outcome(),
        }
        .map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use irnic_fabric::experiment::{Grid, Written};

    use super::*;

    fn case(values: &[(&'static str, &str)]) -> Case {
        let common = values.iter().map(|(key, text)| (*key, vec![Written::flag(key, text)])).collect();
        Grid { common, runs: Vec::new() }.cases().unwrap().remove(0)
    }

    #[test]
    fn runs_are_estimated_by_what_hosts_are_to_send() {
        let star = ("topology", "star:hosts=10,rate=10G");
        let of = |values: &[(&'static str, &str)]| estimate(&case(&[&[star], values].concat()).experiment().unwrap());
        let close = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
        // 100 Gbit/s at 70 % for 10 ms.
        close(of(&[]), 0.7e9);
        close(of(&[("load", "0.35"), ("duration", "40ms")]), 1.4e9);
        close(of(&[("workload", "irn-heavy:load=0.5+fixed:1KB,load=0.1")]), 0.6e9);
        close(of(&[("workload", "irn-heavy+foreground")]), 0.7e9);
        close(of(&[("workload", "fixed:1MB"), ("flows-count", "5")]), 4e7);
        close(of(&[("workload", "permutation:bytes=1MB")]), 8e7);
        close(of(&[("workload", "permutation:bytes=endless"), ("until", "2ms")]), 2e8);
        close(of(&[("workload", "incast:senders=all,each=1MB,repeat=2")]), 1.44e8);
        close(of(&[("workload", "incast:senders=3,bytes=1MB")]), 8e6);
        assert!(of(&[("workload", "closed-loop")]) > 0.0);
    }

    #[test]
    fn a_run_alone_has_the_settings_that_were_written() {
        let values = [("load", "0.5"), ("verify", "on"), ("pfc", "off"), ("link-event", "rate:0>1=1G@0s")];
        let expected = "irnic sim --load 0.5 --link-event 'rate:0>1=1G@0s' --verify --pfc off --seed 7";
        assert_eq!(replay(&case(&values), 7), expected);
        assert_eq!(replay(&case(&[("verify", "off")]), 1), "irnic sim --seed 1");
    }
}
