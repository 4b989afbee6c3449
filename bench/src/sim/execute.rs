//! Runs all cases with all seeds, as many at a time as there are cores.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use irnic_fabric::experiment::{Case, Experiment};
use irnic_fabric::network::address;
use irnic_fabric::sim::{Ending, FlowRecord, Outcome, Parallel, Sample, SimConfig, Simulation};
use irnic_fabric::summary::{Summary, size_edges};
use irnic_fabric::switch::{SwitchConfig, Thresholds};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;
use rayon::prelude::*;

use super::SimError;
use crate::port_capture::{PcapArgs, PortCapture};

/// Events between two looks at the flag and the bar: some tens of milliseconds.
pub const SLICE: u64 = 200_000;
/// Experiments shorter than this have no bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Steps of the bar for each run.
pub const STEPS: u64 = 1_000;

/// Runs that are to be made: every case with every seed.
pub struct Batch {
    /// Points of the grid.
    pub cases: Vec<Case>,
    /// What each of them describes.
    pub experiments: Vec<Experiment>,
    /// Seeds of each case.
    pub seeds: Vec<u64>,
    /// Runs at a time; 0 for one for each core.
    pub jobs: usize,
    /// Threads of each run.
    pub threads: usize,
    /// Single flows are wanted afterwards.
    pub keep_flows: bool,
    /// Packets of the only run are recorded.
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
    /// Place among the cases.
    pub case: usize,
    /// Seed of all chance.
    pub seed: u64,
    /// What came of it, or why nothing did.
    pub result: Result<Finished, NoResult>,
}

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoResult {
    /// It went wrong.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C ended it, and others have results: a part of a run is not compared with whole ones.
    #[error("interrupted")]
    Interrupted,
    /// Ctrl-C came before its turn.
    #[error("never begun")]
    NeverBegun,
}

/// How far Ctrl-C let the runs of an experiment get.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Runs in all.
    pub all: usize,
    /// Those that have results.
    pub done: usize,
    /// Those that went wrong.
    pub failed: usize,
    /// Those that were under way.
    pub interrupted: usize,
    /// Those that were waiting.
    pub never_begun: usize,
}

impl Reached {
    /// Counts these runs.
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

    /// Returns whether runs were cut short.
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

/// What is known of a run.
pub struct Finished {
    /// Statistics.
    pub summary: Summary,
    /// It was ended by Ctrl-C, and is the only run: of several, such a one has no result.
    pub interrupted: bool,
    /// What followed from the configuration.
    pub resolved: Vec<(&'static str, String)>,
    /// Deadlock: nodes that wait for each other, as the topology's file calls them.
    pub deadlock: Vec<u32>,
    /// Flows, and what became of them, if they are wanted; hosts as the topology's file calls them.
    pub flows: Vec<(Flow, FlowRecord)>,
    /// When the first flow starts, ns. Files of the ns-3 simulators begin at 2 s.
    pub begins: u64,
    /// The network at intervals, from then on.
    pub samples: Vec<Sample>,
    /// Why one thread ran it although there were to be more.
    pub alone: Option<&'static str>,
    /// How long it took, in real time.
    pub took: Duration,
}

impl Finished {
    /// Returns whether all flows are complete.
    pub fn complete(&self) -> bool {
        !self.interrupted && self.summary.ending == Ending::Complete
    }
}

/// Progress of all runs together, on a terminal.
pub struct Progress {
    begun: Instant,
    done: AtomicU64,
    total: u64,
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress {
    /// Returns the progress of so many runs, none of which has begun.
    pub fn new(runs: usize) -> Progress {
        Progress { begun: Instant::now(), done: AtomicU64::new(0), total: runs as u64 * STEPS, bar: Mutex::new(None) }
    }

    /// Takes the bar away: all runs are over.
    pub fn finish(self) {
        if let Ok(Some(bar)) = self.bar.into_inner() {
            bar.finish_and_clear();
        }
    }

    /// Takes note of `more` steps of a run.
    pub fn add(&self, more: u64) {
        let done = self.done.fetch_add(more, Ordering::Relaxed) + more;
        if self.begun.elapsed() < PATIENCE {
            return;
        }
        // Who finds somebody else drawing goes on with its run.
        if let Ok(mut bar) = self.bar.try_lock() {
            let left = self.begun.elapsed().mul_f64((self.total - done) as f64 / done.max(1) as f64);
            let left = HumanDuration(left).to_string();
            let bar = bar.get_or_insert_with(|| self.bar().with_prefix(left.clone()));
            bar.set_prefix(left);
            bar.set_position(done);
        }
    }

    /// Indicatif draws on standard error, and only on a terminal.
    fn bar(&self) -> ProgressBar {
        let runs = self.total / STEPS;
        let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent} %  {elapsed}, {prefix} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let label = if runs == 1 { "sim".to_owned() } else { format!("sim, {runs} runs") };
        let bar = ProgressBar::new(self.total).with_style(style).with_message(label);
        bar.with_elapsed(self.begun.elapsed())
    }
}

/// Runs everything. Results are in the order of cases, and within a case of seeds, whatever was ready first.
pub fn all(batch: &Batch, interrupted: &AtomicBool) -> Result<Vec<Run>, SimError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(batch.jobs).build();
    let pool = pool.map_err(|e| SimError::Failed(format!("threads: {e}")))?;
    let pairs: Vec<(usize, u64)> =
        (0..batch.cases.len()).flat_map(|case| batch.seeds.iter().map(move |seed| (case, *seed))).collect();
    let progress = Progress::new(pairs.len());
    let alone = pairs.len() == 1;
    let runs = pool.install(|| {
        let each = pairs.into_par_iter().with_max_len(1).map(|(case, seed)| {
            let result = if !alone && interrupted.load(Ordering::Relaxed) {
                Err(NoResult::NeverBegun)
            } else {
                match one(batch, case, seed, interrupted, &progress) {
                    Ok(finished) if finished.interrupted && !alone => Err(NoResult::Interrupted),
                    result => result.map_err(NoResult::Failed),
                }
            };
            Run { case, seed, result }
        });
        each.collect()
    });
    progress.finish();
    Ok(runs)
}

fn one(
    batch: &Batch,
    case: usize,
    seed: u64,
    interrupted: &AtomicBool,
    progress: &Progress,
) -> Result<Finished, String> {
    let config = batch.experiments[case].config(seed).map_err(|e| batch.cases[case].error(e).to_string())?;
    let resolved = resolved(&config);
    let edges = size_edges(config.setups[0].mtu.bytes() as u64);
    let topology = config.topology.clone();
    let until = config.until;
    let begun = Instant::now();
    let mut simulation = Runner::new(config, batch, &topology)?;
    let mut steps = 0;
    let mut stopped = false;
    while !simulation.run(SLICE)? {
        let (done, all) = simulation.progress();
        let by_time = u128::from(STEPS) * u128::from(simulation.now()) / u128::from(until);
        let at = (STEPS * done as u64 / all.max(1) as u64).max(by_time as u64).clamp(steps, STEPS);
        progress.add(at - steps);
        steps = at;
        if interrupted.load(Ordering::Relaxed) {
            stopped = true;
            break;
        }
    }
    let took = begun.elapsed();
    progress.add(STEPS - steps);
    let alone = simulation.alone(batch);
    let mut outcome = simulation.outcome()?;
    let summary = Summary::of(&outcome, &edges);
    let begins = outcome.flows.first().map_or(0, |f| f.start);
    outcome.samples.retain(|s| s.at >= begins);
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
        alone,
        took,
    })
}

/// Returns what came of keys that have no fixed default, for reports.
fn resolved(config: &SimConfig) -> Vec<(&'static str, String)> {
    let mut all = vec![
        (
            "network",
            format!(
                "{} hosts, {} switches, {} links",
                config.topology.hosts,
                config.topology.switches,
                config.topology.links.len()
            ),
        ),
        ("transport", config.setups.iter().map(|s| s.transport.to_string()).collect::<Vec<_>>().join(" + ")),
    ];
    match &config.switch {
        SwitchConfig::InputQueued(c) => {
            all.push(("buffer", format!("{} bytes for each input", c.buffer)));
            if let Some(n) = c.speedup {
                all.push(("crossbar", format!("each input sends to {n} outputs at a time")));
            }
            if let Some(Thresholds { xoff, xon }) = c.pfc {
                all.push(("pfc", format!("XOFF above {xoff} bytes, XON at {xon}")));
            }
        }
        SwitchConfig::SharedBuffer(c) => {
            all.push(("buffer", format!("{} bytes for each switch, alpha {}", c.buffer, c.alpha)));
            if let Some(p) = &c.pfc {
                all.push((
                    "pfc",
                    format!("alpha {}, reserve {} bytes, XON {} bytes below XOFF", p.alpha, p.reserve, p.resume),
                ));
            }
        }
        SwitchConfig::Trimming(c) => {
            let back = if c.returns { "" } else { "not " };
            all.push((
                "buffer",
                format!(
                    "{} bytes of packets with payload and {} of others for each output, those being sent included; headers \
                     do {back}go back",
                    c.data, c.headers
                ),
            ));
        }
        // The command line has names for no others.
        _ => {}
    }
    all
}

/// A run by one thread or by several.
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

    /// Why one thread runs it although there were to be more.
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
